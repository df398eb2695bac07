// SPDX-License-Identifier: Apache-2.0
// Random valid cases over the whole domain of each operation, for the tests of oracles/. Small
// shapes; extreme scales and zero points; values drawn onto ties, clamp edges and cancellation.
#ifndef QUALM_ORACLES_EXACT_RANDOM_CASE_H_
#define QUALM_ORACLES_EXACT_RANDOM_CASE_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "core/case.h"
#include "core/rng.h"
#include "oracles/exact/exact.h"

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
      case Op::kConv2d:
      case Op::kDepthwise: Conv(&c); break;
      case Op::kAdd:
      case Op::kMul:
      case Op::kRescale: Elementwise(&c); break;
      case Op::kMaxPool:
      case Op::kAvgPool:
      case Op::kGlobalAvgPool: Pool(&c); break;
      case Op::kConcat: Concat(&c); break;
      case Op::kTable: Table(&c); break;
      case Op::kSoftmax: Softmax(&c); break;
      case Op::kChooseQParams: ChooseQParams(&c); break;
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

  Tensor CodesOf(DType dtype, std::vector<int64_t> shape) {
    Tensor tensor(dtype, std::move(shape));
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
    c->x = CodesOf(CodeType(), {c->M, c->N});
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
    c->x = CodesOf(CodeType(), {c->M, c->K});
    c->w = CodesOf(rng_.Chance(2, 3) ? DType::kS8 : DType::kU8, {c->N, c->K});
    FinishSums(c);
  }

  void Conv(Case* c) {
    Window& v = c->window;
    v = AnyWindow();
    const bool depthwise = c->op == Op::kDepthwise;
    v.groups = depthwise || rng_.Chance(1, 3) ? rng_.Between(1, 4) : 1;
    v.in_c = v.groups;
    if (!depthwise) v.in_c *= rng_.Chance(1, 30) ? 0 : rng_.Between(1, 4);
    c->N = rng_.Chance(1, 30) ? 0 : v.groups * rng_.Between(1, 2);
    DeriveSizes(c);
    c->x = CodesOf(CodeType(), {v.batch, v.in_h, v.in_w, v.in_c});
    c->w = CodesOf(rng_.Chance(2, 3) ? DType::kS8 : DType::kU8,
                   {c->N, v.kernel_h, v.kernel_w, v.in_c / v.groups});
    FinishSums(c);
  }

  // Windows of all kinds: inside the image, across its border, beside it, and some that do not fit.
  Window AnyWindow() {
    Window v;
    v.batch = rng_.Chance(1, 30) ? 0 : rng_.Between(1, 2);
    v.in_h = rng_.Chance(1, 40) ? 0 : rng_.Between(1, 5);
    v.in_w = rng_.Chance(1, 40) ? 0 : rng_.Between(1, 5);
    v.kernel_h = rng_.Between(1, 3);
    v.kernel_w = rng_.Between(1, 3);
    v.stride_h = rng_.Between(1, 3);
    v.stride_w = rng_.Between(1, 3);
    if (rng_.Chance(1, 3)) {
      v.dilation_h = rng_.Between(1, 3);
      v.dilation_w = rng_.Between(1, 3);
    }
    if (rng_.Chance(2, 3)) {
      for (int64_t* pad : {&v.pad_top, &v.pad_bottom, &v.pad_left, &v.pad_right}) {
        *pad = rng_.Between(0, rng_.Chance(1, 5) ? 4 : 2);
      }
    }
    return v;
  }

  void Elementwise(Case* c) {
    c->per_channel = false;
    c->x = CodesOf(CodeType(), {c->M, c->N});
    c->x_q = Params(false, c->N, -5);
    if (HasTwoOperands(c->op)) {
      c->w = CodesOf(c->x.dtype(), {c->M, c->N});
      c->w_q = Params(false, c->N, -5);
    }
    c->out_q = Params(false, c->N, c->op == Op::kMul ? -3 : -4);
    Output(c, CodeType());
  }

  void Concat(Case* c) {
    c->per_channel = false;
    const int64_t a = rng_.Between(0, c->N);
    c->x = CodesOf(CodeType(), {c->M, a});
    c->w = CodesOf(c->x.dtype(), {c->M, c->N - a});
    c->x_q = Params(false, c->N, -5);
    c->w_q = Params(false, c->N, -5);
    c->out_q = Params(false, c->N, -4);
    Output(c, CodeType());
  }

  void Table(Case* c) {
    static constexpr std::array<Function, 5> kFunctions = {Function::kRelu, Function::kLeakyRelu,
                                                           Function::kHardSwish, Function::kSigmoid,
                                                           Function::kTanh};
    static constexpr std::array<float, 6> kSlopes = {0.0f,      0.25f,   1.0f,
                                                     0x1p-149f, FLT_MAX, 0x1.99999ap-4f};
    c->per_channel = false;
    c->function = rng_.Pick(kFunctions);
    if (c->function == Function::kLeakyRelu && rng_.Chance(2, 3))
      c->negative_slope = rng_.Pick(kSlopes);
    c->x = CodesOf(CodeType(), {c->M, c->N});
    c->x_q = Params(false, c->N, -5);
    c->out_q = Params(false, c->N, -7);
    Output(c, CodeType());
    c->relu = false;
  }

  void Softmax(Case* c) {
    c->per_channel = false;
    c->x = CodesOf(CodeType(), {c->M, c->N});
    c->x_q = Params(false, c->N, -5);
    Output(c, c->x.dtype());
    c->relu = false;
    c->out_q = {{0x1p-8f}, {RangeOf(c->out_dtype).min}};
  }

  void Pool(Case* c) {
    c->per_channel = false;
    Window& v = c->window;
    do {
      v = AnyWindow();
      v.in_c = c->N;
      v.ceil_mode = rng_.Chance(1, 3) && RowOf(c->op).ceil_mode;
      v.count_include_pad = c->op == Op::kAvgPool && rng_.Chance(1, 2);
      if (c->op != Op::kMaxPool) v.dilation_h = v.dilation_w = 1;
      if (c->op == Op::kGlobalAvgPool) {
        v.kernel_h = std::max<int64_t>(v.in_h, 1);
        v.kernel_w = std::max<int64_t>(v.in_w, 1);
        v.pad_top = v.pad_bottom = v.pad_left = v.pad_right = 0;
      }
      DeriveSizes(c);
    } while (LeavesImage(*c));
    c->x = CodesOf(CodeType(), {v.batch, v.in_h, v.in_w, v.in_c});
    c->x_q = Params(false, c->N, -5);
    c->out_q = c->op == Op::kMaxPool ? c->x_q : Params(false, c->N, -5);
    Output(c, c->op == Op::kMaxPool ? c->x.dtype() : CodeType());
  }

  void ChooseQParams(Case* c) {
    Observer& o = c->observer;
    o.kind = static_cast<Observer::Kind>(rng_.Below(3));
    o.dtype = CodeType();
    o.symmetric = rng_.Chance(1, 2);
    o.reduce_range = rng_.Chance(1, 2) && !(o.symmetric && o.dtype == DType::kU8);
    const CodeRange range = RangeOf(o.dtype);
    o.quant_min = range.min;
    o.quant_max = range.max;
    if (rng_.Chance(1, 3)) {
      o.quant_min = static_cast<int32_t>(rng_.Between(range.min, 0));
      o.quant_max = static_cast<int32_t>(rng_.Between(3, range.max));  // more than a code if halved
    }
    static constexpr std::array<float, 5> kShares = {0.01f, 0.0f, 1.0f, 0.5f, 0x1p-149f};
    if (rng_.Chance(1, 3)) o.averaging_constant = rng_.Pick(kShares);
    const bool histogram = o.kind == Observer::Kind::kHistogram;
    if (histogram) c->per_channel = false;
    c->M = std::max<int64_t>(c->M, 1);
    c->N = std::max<int64_t>(c->N, 1) * (rng_.Chance(1, 3) ? 5 : 1);
    c->out_dtype = DType::kF32;
    c->out_min = INT32_MIN;
    c->out_max = INT32_MAX;
    do {
      c->x = Tensor(DType::kF32, {rng_.Between(1, 4), c->M, c->N});
      const auto exponent = static_cast<int>(rng_.Between(-40, histogram ? 10 : 40));
      const bool one_sign = rng_.Chance(1, 3), any_bits = !histogram && rng_.Chance(1, 4);
      const auto shift = static_cast<float>(rng_.Between(-3, 3));
      for (float& x : c->x.as<float>()) {
        x = static_cast<float>(rng_.Unit() * 2 - 1);
        if (one_sign) x = std::abs(x) * (shift < 0 ? -1.0f : 1.0f);
        x = histogram && rng_.Chance(1, 2) ? x + shift : std::ldexp(x, exponent);
        if (any_bits) x = AnyBits();
        if (rng_.Chance(1, 12)) x = rng_.Chance(1, 2) ? 0.0f : -0.0f;
      }
    } while (!Validate(*c).empty());
  }

  // A pool has no answer where a window meets no input element, unless padding counts.
  static bool LeavesImage(const Case& c) {
    for (int64_t m = 0; m < c.M && !c.window.count_include_pad; ++m) {
      bool any = false;
      for (const Tap& tap : TapsOf(c.window, m)) any = any || tap.x_row >= 0;
      if (!any) return true;
    }
    return false;
  }

  // Everything but sizes and tensors of a sum.
  void FinishSums(Case* c) {
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
      case 2: {  // nearly cancels the sum of the first row
        if (c.M == 0) return 1.0f;
        const double unit = double{c.x_q.scale_at(0)} * double{c.w_q.scale_at(n)};
        const double bias = -static_cast<double>(CorrectedSums(c)[static_cast<size_t>(n)]) * unit;
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
