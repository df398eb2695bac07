// SPDX-License-Identifier: Apache-2.0
// Random valid cases over the whole domain of each operation, for the tests of oracles/. Small
// shapes; extreme scales and zero points; values drawn onto ties, clamp edges and cancellation.
#ifndef QUALM_ORACLES_EXACT_RANDOM_CASE_H_
#define QUALM_ORACLES_EXACT_RANDOM_CASE_H_

#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/case.h"
#include "core/rng.h"

namespace qualm::exact {

class RandomCase {
 public:
  explicit RandomCase(uint64_t seed) : rng_(seed) {}

  Case Draw(Op op) {
    theme_ = static_cast<Theme>(rng_.Below(4));
    Case c;
    c.op = op;
    c.M = rng_.Chance(1, 20) ? 0 : rng_.Between(1, 3);
    c.N = rng_.Chance(1, 20) ? 0 : rng_.Between(1, 4);
    c.per_channel = rng_.Chance(1, 2);
    switch (op) {
      case Op::kQuantize: Quantize(&c); break;
      case Op::kDequantize: Dequantize(&c); break;
      case Op::kRequantize: Requantize(&c); break;
      case Op::kLinear: Linear(&c); break;
    }
    return c;
  }

 private:
  // kTies: scales are powers of two near 1, so that a good part of all values are n + 1/2.
  enum class Theme : uint8_t { kOrdinary, kTies, kExtreme, kMixed };

  float AnyPositive() {
    return std::bit_cast<float>(static_cast<uint32_t>(rng_.Between(1, 0x7f7fffff)));
  }
  float AnyBits() { return std::bit_cast<float>(static_cast<uint32_t>(rng_.Next())); }

  // Around 2^centre.
  float Scale(int centre) {
    static constexpr std::array<float, 10> kEnds = {
        0x1p-149f, 0x1.8p-148f,     0x1.fffffcp-127f, FLT_MIN, 0x1p-100f,
        0x1p100f,  0x1.000002p126f, 0x1p127f,         FLT_MAX, 0x1.fffffep-1f};
    switch (theme_) {
      case Theme::kOrdinary: break;
      case Theme::kTies: return std::ldexp(1.0f, centre + static_cast<int>(rng_.Between(-2, 2)));
      case Theme::kExtreme: return rng_.Chance(1, 2) ? rng_.Pick(kEnds) : AnyPositive();
      case Theme::kMixed:
        if (rng_.Chance(1, 4)) return rng_.Chance(1, 2) ? rng_.Pick(kEnds) : AnyPositive();
        break;
    }
    const auto mantissa = static_cast<float>(rng_.Between(1 << 23, (1 << 24) - 1));
    return std::ldexp(mantissa, centre - 23 + static_cast<int>(rng_.Between(-3, 3)));
  }

  int32_t ZeroPoint() {
    static constexpr std::array<int32_t, 9> kEnds = {
        INT32_MIN, INT32_MIN + 1, INT32_MAX, -129, -128, 127, 128, 255, 256};
    if (rng_.Chance(1, 6)) return rng_.Pick(kEnds);
    if (rng_.Chance(1, 10)) return static_cast<int32_t>(rng_.Next());
    if (rng_.Chance(1, 3)) return 0;
    return static_cast<int32_t>(rng_.Between(-40, 200));
  }

  QParams Params(bool per_channel, int64_t channels, int centre) {
    const auto entries = static_cast<size_t>(per_channel ? channels : 1);
    QParams q{std::vector<float>(entries), std::vector<int32_t>(entries)};
    for (float& scale : q.scale) scale = Scale(centre);
    for (int32_t& zero_point : q.zero_point) zero_point = ZeroPoint();
    return q;
  }

  DType CodeType() { return rng_.Chance(1, 2) ? DType::kU8 : DType::kS8; }

  Tensor CodesOf(DType dtype, int64_t rows, int64_t columns) {
    Tensor tensor(dtype, {rows, columns});
    const CodeRange range = RangeOf(dtype);
    const bool ends = rng_.Chance(1, 4);
    for (int64_t i = 0; i < tensor.size(); ++i) {
      tensor.SetInt(i, ends ? (rng_.Chance(1, 2) ? range.min : range.max)
                            : static_cast<int32_t>(rng_.Between(range.min, range.max)));
    }
    return tensor;
  }

  void Output(Case* c, DType dtype) {
    c->out_dtype = dtype;
    const CodeRange range = RangeOf(dtype);
    c->out_min = range.min;
    c->out_max = range.max;
    if (dtype != DType::kF32 && rng_.Chance(1, 4)) {
      c->out_min = static_cast<int32_t>(rng_.Between(range.min, range.max));
      c->out_max = static_cast<int32_t>(rng_.Between(c->out_min, range.max));
    }
    c->relu = rng_.Chance(1, 4);
  }

  void Quantize(Case* c) {
    c->out_q = Params(c->per_channel, c->N, -5);
    Output(c, CodeType());
    c->x = Tensor(DType::kF32, {c->M, c->N});
    for (int64_t i = 0; i < c->x.size(); ++i) {
      const float scale = c->out_q.scale_at(i % c->N);
      const auto half_steps = static_cast<float>(rng_.Between(-600, 600));
      float x = half_steps * (scale * 0.5f);
      if (rng_.Chance(1, 4)) x = std::nextafter(x, rng_.Chance(1, 2) ? 1e30f : -1e30f);
      if (rng_.Chance(1, 8)) x = AnyBits();
      if (rng_.Chance(1, 40)) x = std::numeric_limits<float>::quiet_NaN();
      if (rng_.Chance(1, 40)) x = std::numeric_limits<float>::infinity();
      if (rng_.Chance(1, 40)) x = -std::numeric_limits<float>::infinity();
      if (rng_.Chance(1, 40)) x = -0.0f;
      c->x.as<float>()[static_cast<size_t>(i)] = x;
    }
  }

  void Dequantize(Case* c) {
    c->x_q = Params(c->per_channel, c->N, -5);
    c->x = CodesOf(CodeType(), c->M, c->N);
    Output(c, DType::kF32);
    c->relu = false;
  }

  void Requantize(Case* c) {
    c->x = Tensor(DType::kS32, {c->M, c->N});
    const int bits = static_cast<int>(rng_.Between(8, theme_ == Theme::kTies ? 11 : 31));
    for (int64_t i = 0; i < c->x.size(); ++i) {
      const int64_t limit = int64_t{1} << bits;
      int64_t value = rng_.Between(-limit, limit - 1);
      if (rng_.Chance(1, 20)) value = rng_.Chance(1, 2) ? INT32_MIN : INT32_MAX;
      c->x.SetInt(i, static_cast<int32_t>(value));
    }
    Output(c, CodeType());
    c->out_q = Params(false, c->N, -5);
    if (rng_.Chance(1, 2) && c->N > 0) {
      c->multiplier.resize(static_cast<size_t>(c->per_channel ? c->N : 1));
      for (float& m : c->multiplier) m = Scale(7 - bits);
    } else {
      c->x_q = Params(false, c->N, -5);
      c->w_q = Params(c->per_channel, c->N, 7 - bits);
    }
  }

  void Linear(Case* c) {
    static constexpr std::array<int64_t, 8> kLengths = {0, 1, 2, 3, 4, 7, 16, 33};
    c->K = rng_.Pick(kLengths);
    c->x = CodesOf(CodeType(), c->M, c->K);
    c->w = CodesOf(rng_.Chance(2, 3) ? DType::kS8 : DType::kU8, c->N, c->K);
    c->x_q = Params(false, c->N, -5);
    c->w_q = Params(c->per_channel, c->N, -7);
    c->out_q = Params(false, c->N, -3);
    if (theme_ == Theme::kTies && c->N > 0) {
      const auto bits = static_cast<int>(rng_.Between(1, 4));
      c->out_q.scale[0] = std::ldexp(c->x_q.scale_at(0) * c->w_q.scale_at(0), bits);
    }
    static constexpr std::array<DType, 6> kOutputs = {DType::kU8, DType::kU8,  DType::kS8,
                                                      DType::kS8, DType::kS32, DType::kF32};
    Output(c, rng_.Pick(kOutputs));
    const bool integer = c->out_dtype == DType::kS32;
    if (rng_.Chance(1, 3)) {
      c->bias_i32.emplace(static_cast<size_t>(c->N));
      for (int32_t& b : *c->bias_i32) {
        b = rng_.Chance(1, 4) ? static_cast<int32_t>(rng_.Next())
                              : static_cast<int32_t>(rng_.Between(-5000, 5000));
      }
    } else if (!integer && rng_.Chance(1, 2)) {
      c->bias.emplace(static_cast<size_t>(c->N));
      for (int64_t n = 0; n < c->N; ++n) (*c->bias)[static_cast<size_t>(n)] = Bias(*c, n);
    }
  }

  float Bias(const Case& c, int64_t n) {
    switch (rng_.Below(5)) {
      case 0: {
        const float any = AnyBits();
        return std::isfinite(any) ? any : -FLT_MAX;
      }
      case 1: return rng_.Chance(1, 2) ? 0x1p-149f : -0x1p-149f;
      case 2: {  // nearly cancels a sum that the row may well have
        const double unit = double{c.x_q.scale_at(0)} * double{c.w_q.scale_at(n)};
        const double zx = c.x_q.zero_point_at(0);
        const double zw = c.w_q.zero_point_at(n);
        double sum = 0;
        for (int64_t k = 0; k < c.K && c.M > 0; ++k) {
          sum += (c.x.IntAt(k) - zx) * (c.w.IntAt(n * c.K + k) - zw);
        }
        const double bias = -sum * unit;
        return std::abs(bias) <= FLT_MAX ? static_cast<float>(bias) : 1.0f;
      }
      case 3: return static_cast<float>(rng_.Between(-64, 64)) * 0.5f;
      default: return static_cast<float>(rng_.Unit() * 8 - 4);
    }
  }

  Rng rng_;
  Theme theme_ = Theme::kOrdinary;
};

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_RANDOM_CASE_H_
