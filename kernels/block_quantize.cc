// SPDX-License-Identifier: Apache-2.0
// Blocks of 32 floats become 32 codes and a scale, one block after the other: the largest magnitude
// by integers, which order floats as their values and NaN behind them; the scale of the block; its
// codes, a vector at a time. The float operations are those of the header, in that order, each of
// them rounded to nearest and none fused, so that every target has the same bits.
#include "kernels/block_quantize.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/common/fp_environment.h"
#include "kernels/common/validate.h"
#include "kernels/sums/blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/block_quantize.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h:
#include "hwy/highway.h"
#include "kernels/common/dispatch.h"

#ifndef QUALM_KERNELS_BLOCK_QUANTIZE_SCALE_
#define QUALM_KERNELS_BLOCK_QUANTIZE_SCALE_
namespace qualm::kernels::internal {

inline constexpr int32_t kInfinityBits = 0x7F800000, kMagnitudeBits = 0x7FFFFFFF;

// The float16 nearest to it, half to even; infinity from 65520 on. Not of NaN.
inline uint16_t HalfOfFloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & kMagnitudeBits;
  uint32_t half = 0x7C00;
  if (magnitude < 0x38800000) {  // below 2^-14: near 0.5 floats are 2^-24 apart
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000;
  } else if (magnitude < 0x47800000) {
    half = (magnitude + 0x0FFF + (magnitude >> 13 & 1) - 0x38000000) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

// The scale of a block as it is stored, and what its values are multiplied by.
struct BlockScale {
  uint16_t half;
  float inverse;
};
inline BlockScale ScaleOf(BlockFormat format, float most) {
  const float scale = format == BlockFormat::kQ8_0 ? most / 127.0f : most / -8.0f;
  uint16_t half = HalfOfFloat(scale);
  if ((half & 0x7FFF) == 0) return {half, 0.0f};
  if ((half & 0x7FFF) == 0x7C00) {
    half = static_cast<uint16_t>((half & 0x8000) | 0x7BFF);
    return {half, 1.0f / FloatOfHalf(half)};
  }
  return {half, format == BlockFormat::kQ8_0 ? 127.0f / most : 1.0f / scale};
}

}  // namespace qualm::kernels::internal
#endif

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels::internal {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<D>;
using V = hn::Vec<D>;
using VI = hn::Vec<DI>;

HWY_INLINE VI Magnitudes(const float* x) {
  const DI di;
  return hn::And(hn::BitCast(di, hn::LoadU(D(), x)), hn::Set(di, kMagnitudeBits));
}

// The value of largest magnitude, the first one of several; of Q8_0 its magnitude.
template <BlockFormat kFormat>
HWY_INLINE float MostOf(const float* x) {
  const DI di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(di));
  VI largest = hn::Zero(di);
  for (int64_t k = 0; k < kBlockCodes; k += lanes) largest = hn::Max(largest, Magnitudes(x + k));
  int32_t bits = hn::ReduceMax(di, largest);
  if (HWY_UNLIKELY(bits >= kInfinityBits)) {
    bits = 0;
    for (int64_t k = 0; k < kBlockCodes; ++k) {
      const int32_t magnitude = std::bit_cast<int32_t>(x[k]) & kMagnitudeBits;
      if (magnitude < kInfinityBits) bits = std::max(bits, magnitude);
    }
  }
  if constexpr (kFormat == BlockFormat::kQ4_0) {
    for (int64_t k = 0; k < kBlockCodes; k += lanes) {
      const intptr_t at = hn::FindFirstTrue(di, hn::Eq(Magnitudes(x + k), hn::Set(di, bits)));
      if (at >= 0) return x[k + at];
    }
    return 0.0f;  // no value is finite
  }
  return std::bit_cast<float>(bits);
}

template <BlockFormat kFormat>
HWY_INLINE VI CodesOf(const float* x, V inverse) {
  const D d;
  V v = hn::Mul(hn::LoadU(d, x), inverse);
  v = hn::IfThenElseZero(hn::Eq(v, v), v);
  if constexpr (kFormat == BlockFormat::kQ8_0) {
    return hn::NearestInt(hn::Min(hn::Max(v, hn::Set(d, -127.0f)), hn::Set(d, 127.0f)));
  } else {
    v = hn::Add(v, hn::Set(d, 8.5f));
    return hn::ConvertTo(DI(), hn::Min(hn::Max(v, hn::Zero(d)), hn::Set(d, 15.0f)));
  }
}

template <BlockFormat kFormat>
HWY_INLINE void BlocksOf(const float* x, int64_t blocks, uint8_t* y) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; blocks > 0; --blocks, x += kBlockCodes, y += BlockBytes(kFormat)) {
    const BlockScale scale = ScaleOf(kFormat, MostOf<kFormat>(x));
    std::memcpy(y, &scale.half, sizeof(scale.half));
    const V inverse = hn::Set(d, scale.inverse);
    uint8_t* const codes = y + sizeof(scale.half);
    if constexpr (kFormat == BlockFormat::kQ8_0) {
      const hn::Rebind<int8_t, D> d8;
      for (int64_t k = 0; k < kBlockCodes; k += lanes)
        hn::StoreU(hn::DemoteTo(d8, CodesOf<kFormat>(x + k, inverse)), d8,
                   reinterpret_cast<int8_t*>(codes) + k);
    } else {
      const hn::Rebind<uint8_t, D> d8;
      for (int64_t k = 0; k < kBlockCodes / 2; k += lanes) {
        const VI high = CodesOf<kFormat>(x + k + kBlockCodes / 2, inverse);
        const VI both = hn::Or(CodesOf<kFormat>(x + k, inverse), hn::ShiftLeft<4>(high));
        hn::StoreU(hn::DemoteTo(d8, both), d8, codes + k);
      }
    }
  }
}

void BlocksOfRow(BlockFormat format, const float* x, int64_t blocks, uint8_t* y) {
  if (format == BlockFormat::kQ8_0) return BlocksOf<BlockFormat::kQ8_0>(x, blocks, y);
  BlocksOf<BlockFormat::kQ4_0>(x, blocks, y);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels {
namespace internal {
HWY_EXPORT(BlocksOfRow);
}  // namespace internal

Status QuantizeBlocks(const ConstMatrix& x, const MutableBlocks& y) {
  QUALM_RETURN_IF_ERROR(internal::CheckMatrix("x", x));
  QUALM_RETURN_IF_ERROR(internal::CheckType("x.type", x.type, ElementType::kF32));
  QUALM_RETURN_IF_ERROR(
      internal::CheckBlocks("y", {y.data, y.format, y.rows, y.blocks, y.row_stride}));
  QUALM_RETURN_IF_ERROR(internal::CheckSize("y.rows", y.rows, x.rows, "the rows of x"));
  if (y.blocks * kBlockCodes != x.columns)
    return internal::IsButExpected("x.columns", x.columns, "32 for each block of y");
  if (y.rows == 0 || y.blocks == 0) return {};
  const int64_t row_bytes = y.blocks * BlockBytes(y.format);
  QUALM_RETURN_IF_ERROR(
      internal::CheckDisjoint(x, {y.data, ElementType::kU8, y.rows, row_bytes, y.row_stride}, {}));
  const ScopedFpEnvironment environment;
  for (int64_t row = 0; row < y.rows; ++row) {
    QUALM_DISPATCH(internal::BlocksOfRow)
    (y.format, static_cast<const float*>(x.data) + row * x.row_stride, y.blocks,
     static_cast<uint8_t*>(y.data) + row * y.row_stride);
  }
  return {};
}

}  // namespace qualm::kernels
#endif  // HWY_ONCE
