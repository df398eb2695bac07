// SPDX-License-Identifier: Apache-2.0
// Random valid cases for tests of readers and writers: every op, type, form and optional field.
#ifndef QUALM_CORE_IO_RANDOM_CASE_TEST_UTIL_H_
#define QUALM_CORE_IO_RANDOM_CASE_TEST_UTIL_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/case.h"
#include "core/rng.h"

namespace qualm::test {

inline float AnyFloat(Rng& rng) { return std::bit_cast<float>(static_cast<uint32_t>(rng.Next())); }

inline float AnyFinite(Rng& rng) {
  float value = AnyFloat(rng);
  while (!std::isfinite(value)) value = AnyFloat(rng);
  return value;
}

// Denormals included.
inline float AnyScale(Rng& rng) {
  return std::bit_cast<float>(static_cast<uint32_t>(rng.Between(1, 0x7F7FFFFF)));
}

inline Tensor AnyTensor(Rng& rng, DType dtype, std::vector<int64_t> shape) {
  Tensor tensor(dtype, std::move(shape));
  for (uint8_t& byte : tensor.bytes()) byte = static_cast<uint8_t>(rng.Next());
  return tensor;
}

inline QParams AnyQParams(Rng& rng, bool per_channel, int64_t channels) {
  QParams q{{}, {}};
  for (int64_t i = 0; i < (per_channel ? channels : 1); ++i) {
    q.scale.push_back(AnyScale(rng));
    q.zero_point.push_back(static_cast<int32_t>(rng.Next() >> rng.Below(32)));
  }
  return q;
}

inline std::string AnyText(Rng& rng) {
  constexpr std::array<const char*, 6> kPieces{"a", "\"", "\\", "\n\t\x01", "\xC3\xA9", "//"};
  std::string text;
  for (uint64_t i = rng.Below(6); i > 0; --i) text += rng.Pick(kPieces);
  return text;
}

// Of a convolution or pool; every window of a pool meets the input.
inline Window AnyWindow(Rng& rng, Op op) {
  Window v;
  v.batch = rng.Between(0, 2);
  v.in_h = rng.Between(0, 5);
  v.in_w = rng.Between(0, 5);
  v.in_c = rng.Between(op == Op::kDepthwise ? 1 : 0, 4);
  if (op == Op::kGlobalAvgPool) {
    v.kernel_h = std::max<int64_t>(v.in_h, 1);
    v.kernel_w = std::max<int64_t>(v.in_w, 1);
    return v;
  }
  v.kernel_h = rng.Between(1, 4);
  v.kernel_w = rng.Between(1, 4);
  v.stride_h = rng.Between(1, 3);
  v.stride_w = rng.Between(1, 3);
  // Padding of a pool below the window, so that no window lies wholly in it.
  const bool conv = IsConv(op);
  const auto pad = [&](int64_t kernel) { return rng.Between(0, conv ? 3 : kernel - 1); };
  v.pad_top = pad(v.kernel_h);
  v.pad_bottom = pad(v.kernel_h);
  v.pad_left = pad(v.kernel_w);
  v.pad_right = pad(v.kernel_w);
  if (conv) {
    v.dilation_h = rng.Between(1, 3);
    v.dilation_w = rng.Between(1, 3);
    v.groups = op == Op::kDepthwise ? v.in_c : v.in_c % 2 == 0 ? rng.Between(1, 2) : 1;
    return v;
  }
  v.ceil_mode = rng.Chance(1, 3);
  if (op == Op::kAvgPool) v.count_include_pad = rng.Chance(1, 2);
  // A dilated window may step over a small input.
  if (op == Op::kMaxPool && v.in_h >= 3 && v.in_w >= 3 && v.pad_top + v.pad_left == 0) {
    v.dilation_h = rng.Between(1, 2);
    v.dilation_w = rng.Between(1, 2);
  }
  return v;
}

// Puts in place of values that not every observer takes such that this one does: below 2^126 for
// moving averages; for histograms of few bits, so that no range is far wider than the first.
inline void KeepObservable(Rng& rng, Case* c) {
  const Observer::Kind kind = c->observer.kind;
  const auto exponent = static_cast<int>(rng.Between(-40, 14));
  for (float& value : c->x.as<float>()) {
    if (kind == Observer::Kind::kHistogram) {
      value = std::ldexp(static_cast<float>(rng.Between(-512, 512)), exponent);
    } else {
      value = AnyFinite(rng) * (kind == Observer::Kind::kMovingAverage ? 0.25f : 1.0f);
    }
  }
}

inline Case RandomCase(Op op, Rng& rng) {
  constexpr std::array<DType, 2> kCodes{DType::kU8, DType::kS8};
  constexpr std::array<DType, 4> kAll{DType::kU8, DType::kS8, DType::kS32, DType::kF32};
  Case c;
  c.op = op;
  c.M = rng.Between(0, 4);
  c.N = rng.Between(0, 5);
  c.per_channel = rng.Chance(1, 2);
  c.out_dtype = rng.Pick(kCodes);
  const auto sums = [&] {
    c.x_q = AnyQParams(rng, false, c.N);
    c.w_q = AnyQParams(rng, c.per_channel, c.N);
    c.out_q = AnyQParams(rng, false, c.N);
    c.out_dtype = rng.Pick(kAll);
    if (const uint64_t bias = rng.Below(3); bias == 1 && c.out_dtype != DType::kS32) {
      c.bias.emplace();
      for (int64_t n = 0; n < c.N; ++n) c.bias->push_back(AnyFinite(rng));
    } else if (bias == 2) {
      c.bias_i32.emplace();
      for (int64_t n = 0; n < c.N; ++n) c.bias_i32->push_back(static_cast<int32_t>(rng.Next()));
    }
  };
  const auto elementwise = [&] {
    c.per_channel = false;
    c.x_q = AnyQParams(rng, false, c.N);
    if (HasTwoInputs(op)) {
      c.w_q = AnyQParams(rng, false, c.N);
    }
    c.out_q = AnyQParams(rng, false, c.N);
  };
  switch (op) {
    case Op::kQuantize:
      c.x = AnyTensor(rng, DType::kF32, {c.M, c.N});
      c.out_q = AnyQParams(rng, c.per_channel, c.N);
      break;
    case Op::kDequantize:
      c.x = AnyTensor(rng, rng.Pick(kCodes), {c.M, c.N});
      c.x_q = AnyQParams(rng, c.per_channel, c.N);
      c.out_dtype = DType::kF32;
      break;
    case Op::kRequantize:
      c.x = AnyTensor(rng, DType::kS32, {c.M, c.N});
      c.out_q = AnyQParams(rng, false, c.N);
      if (rng.Chance(1, 2)) {
        c.multiplier = AnyQParams(rng, c.per_channel, c.N).scale;
      } else {
        c.x_q = AnyQParams(rng, false, c.N);
        c.w_q = AnyQParams(rng, c.per_channel, c.N);
      }
      break;
    case Op::kLinear:
      c.K = rng.Between(0, 6);
      c.x = AnyTensor(rng, rng.Pick(kCodes), {c.M, c.K});
      c.w = AnyTensor(rng, rng.Pick(kCodes), {c.N, c.K});
      sums();
      break;
    case Op::kConv2d:
    case Op::kDepthwise: {
      c.window = AnyWindow(rng, op);
      const Window& v = c.window;
      c.N = v.groups * rng.Between(0, 2);
      c.x = AnyTensor(rng, rng.Pick(kCodes), {v.batch, v.in_h, v.in_w, v.in_c});
      c.w = AnyTensor(rng, rng.Pick(kCodes), {c.N, v.kernel_h, v.kernel_w, v.in_c / v.groups});
      sums();
      break;
    }
    case Op::kMaxPool:
    case Op::kAvgPool:
    case Op::kGlobalAvgPool: {
      c.window = AnyWindow(rng, op);
      const Window& v = c.window;
      c.x = AnyTensor(rng, rng.Pick(kCodes), {v.batch, v.in_h, v.in_w, v.in_c});
      elementwise();
      if (op != Op::kMaxPool) break;
      c.out_q = c.x_q;
      c.out_dtype = c.x.dtype();
      break;
    }
    case Op::kAdd:
    case Op::kMul:
      c.x = AnyTensor(rng, rng.Pick(kCodes), {c.M, c.N});
      c.w = AnyTensor(rng, c.x.dtype(), {c.M, c.N});
      elementwise();
      break;
    case Op::kConcat: {
      c.x = AnyTensor(rng, rng.Pick(kCodes), {c.M, rng.Between(0, c.N)});
      c.w = AnyTensor(rng, c.x.dtype(), {c.M, c.N - c.x.shape()[1]});
      elementwise();
      break;
    }
    case Op::kRescale:
      c.x = AnyTensor(rng, rng.Pick(kCodes), {c.M, c.N});
      elementwise();
      break;
    case Op::kTable:
      c.x = AnyTensor(rng, rng.Pick(kCodes), {c.M, c.N});
      elementwise();
      c.function = static_cast<Function>(rng.Between(0, static_cast<int>(Function::kTanh)));
      if (c.function == Function::kLeakyRelu) c.negative_slope = std::abs(AnyFinite(rng));
      break;
    case Op::kSoftmax:
      c.x = AnyTensor(rng, rng.Pick(kCodes), {c.M, c.N});
      elementwise();
      c.out_dtype = c.x.dtype();
      c.out_q = {{0x1p-8f}, {RangeOf(c.out_dtype).min}};
      break;
    case Op::kChooseQParams: {
      c.M += 1;
      c.N += 1;
      c.x = AnyTensor(rng, DType::kF32, {rng.Between(1, 3), c.M, c.N});
      Observer& o = c.observer;
      o.kind = static_cast<Observer::Kind>(rng.Between(0, 2));
      c.per_channel = o.kind != Observer::Kind::kHistogram && rng.Chance(1, 2);
      o.symmetric = rng.Chance(1, 2);
      o.dtype = rng.Pick(kCodes);
      const CodeRange codes = RangeOf(o.dtype);
      o.quant_min = static_cast<int32_t>(rng.Between(codes.min, 0));
      o.quant_max = static_cast<int32_t>(rng.Between(1, codes.max));
      const bool reducible = o.dtype == DType::kS8 || !o.symmetric;
      o.reduce_range = reducible && o.quant_min >> 1 != o.quant_max >> 1 && rng.Chance(1, 2);
      KeepObservable(rng, &c);
      o.averaging_constant = static_cast<float>(rng.Between(0, 1 << 24)) * 0x1p-24f;
      c.out_dtype = DType::kF32;
      // Values are finite, those of histograms and averages moderate and not too far apart; some
      // halved ranges hold one code.
      for (float& x : c.x.as<float>()) {
        if (o.kind != Observer::Kind::kMinMax || !std::isfinite(x))
          x = static_cast<float>(rng.Between(-499, 499)) * 0x1p-7f;
      }
      if (o.dtype == DType::kU8 && o.symmetric) o.reduce_range = false;
      if (o.quant_max - o.quant_min < 3) o.reduce_range = false;
      break;
    }
  }
  DeriveSizes(&c);
  const CodeRange range = RangeOf(c.out_dtype);
  c.out_min = range.min;
  c.out_max = range.max;
  if (c.out_dtype != DType::kF32 && rng.Chance(1, 2)) {
    c.out_min = static_cast<int32_t>(rng.Between(range.min, range.max));
    c.out_max = static_cast<int32_t>(rng.Between(c.out_min, range.max));
  }
  const bool no_relu =
      op == Op::kDequantize || op == Op::kTable || op == Op::kSoftmax || op == Op::kChooseQParams;
  c.relu = !no_relu && rng.Chance(1, 2);
  if ((HasSums(op) || op == Op::kRequantize) && IsCode(c.out_dtype) && !c.bias) {
    c.requant = static_cast<Requant>(rng.Below(4));
  }
  if (rng.Chance(1, 3)) c.property = "matches_exact";
  c.note = AnyText(rng);
  if (rng.Chance(1, 3)) c.expected = AnyTensor(rng, c.out_dtype, c.output_shape());
  if (rng.Chance(1, 3)) {
    c.observed = Observed{AnyText(rng), AnyTensor(rng, c.out_dtype, c.output_shape())};
  }
  return c;
}

}  // namespace qualm::test

#endif  // QUALM_CORE_IO_RANDOM_CASE_TEST_UTIL_H_
