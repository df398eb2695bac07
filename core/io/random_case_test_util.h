// SPDX-License-Identifier: Apache-2.0
// Random valid cases for tests of readers and writers: every op, type, form and optional field.
#ifndef QUALM_CORE_IO_RANDOM_CASE_TEST_UTIL_H_
#define QUALM_CORE_IO_RANDOM_CASE_TEST_UTIL_H_

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/case.h"
#include "core/rng.h"
#include "core/status.h"

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

inline Case RandomCase(Op op, Rng& rng) {
  constexpr std::array<DType, 2> kCodes{DType::kU8, DType::kS8};
  constexpr std::array<DType, 4> kAll{DType::kU8, DType::kS8, DType::kS32, DType::kF32};
  Case c;
  c.op = op;
  c.M = rng.Between(0, 4);
  c.N = rng.Between(0, 5);
  c.per_channel = rng.Chance(1, 2);
  c.out_dtype = rng.Pick(kCodes);
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
      break;
    default: QUALM_CHECK(IsListed(op));  // no other has a case file
  }
  const CodeRange range = RangeOf(c.out_dtype);
  c.out_min = range.min;
  c.out_max = range.max;
  if (c.out_dtype != DType::kF32 && rng.Chance(1, 2)) {
    c.out_min = static_cast<int32_t>(rng.Between(range.min, range.max));
    c.out_max = static_cast<int32_t>(rng.Between(c.out_min, range.max));
  }
  c.relu = op != Op::kDequantize && rng.Chance(1, 2);
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
