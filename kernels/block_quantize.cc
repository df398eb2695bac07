// SPDX-License-Identifier: Apache-2.0
// Blocks of floats become codes and a scale: the largest magnitude of each by integers, which order
// floats as their values and NaN behind them; scales, of many blocks of 32 at a time; the codes of
// each. The float operations are those of the header, in that order, each of
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

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels::internal {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int32_t kInfinityBits = 0x7F800000, kMagnitudeBits = 0x7FFFFFFF;
constexpr int64_t kTogether = 64;  // blocks whose scales are computed together, a vector at a time

using D = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<D>;
using V = hn::Vec<D>;
using VI = hn::Vec<DI>;

HWY_INLINE VI Magnitudes(const float* x) {
  const DI di;
  return hn::And(hn::BitCast(di, hn::LoadU(D(), x)), hn::Set(di, kMagnitudeBits));
}

constexpr int64_t CodesIn(BlockFormat format) { return BlockParts(format) * kBlockCodes; }

// The value of largest magnitude, the first one of several; of Q8_0 its magnitude. `seen` becomes
// the largest bits of a magnitude, NaN and infinity included.
template <BlockFormat kFormat>
HWY_INLINE float MostOf(const float* x, int32_t& seen) {
  const DI di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(di));
  VI largest = hn::Zero(di);
  for (int64_t k = 0; k < CodesIn(kFormat); k += lanes)
    largest = hn::Max(largest, Magnitudes(x + k));
  int32_t bits = hn::ReduceMax(di, largest);
  seen = std::max(seen, bits);
  if (HWY_UNLIKELY(bits >= kInfinityBits)) {
    bits = 0;
    for (int64_t k = 0; k < CodesIn(kFormat); ++k) {
      const int32_t magnitude = std::bit_cast<int32_t>(x[k]) & kMagnitudeBits;
      if (magnitude < kInfinityBits) bits = std::max(bits, magnitude);
    }
  }
  if constexpr (kFormat != BlockFormat::kQ8_0) {
    for (int64_t k = 0; k < CodesIn(kFormat); k += lanes) {
      const intptr_t at = hn::FindFirstTrue(di, hn::Eq(Magnitudes(x + k), hn::Set(di, bits)));
      if (at >= 0) return x[k + at];
    }
    return 0.0f;  // no value is finite
  }
  return std::bit_cast<float>(bits);
}

// kOrdinary: all values of the block are finite, and its scale is not beyond float16. Then products
// are at most 127, or 8, but for a rounding.
template <BlockFormat kFormat, bool kOrdinary>
HWY_INLINE VI CodesOf(const float* x, V inverse) {
  const D d;
  V v = hn::Mul(hn::LoadU(d, x), inverse);
  if constexpr (!kOrdinary) v = hn::IfThenElseZero(hn::Eq(v, v), v);
  if constexpr (kFormat == BlockFormat::kQ8_0) {
    if constexpr (!kOrdinary) v = hn::Min(hn::Max(v, hn::Set(d, -127.0f)), hn::Set(d, 127.0f));
    return hn::NearestInt(v);
  } else {
    v = hn::Min(hn::Add(v, hn::Set(d, 8.5f)), hn::Set(d, 15.0f));
    return hn::ConvertTo(DI(), kOrdinary ? v : hn::Max(v, hn::Zero(d)));
  }
}

// The float16 nearest to each, half to even; infinity from 65520 on. Not of NaN.
HWY_INLINE VI HalvesOf(V value) {
  const D d;
  const DI di;
  const auto of = [&](int32_t bits) HWY_ATTR { return hn::Set(di, bits); };
  const VI bits = hn::BitCast(di, value);
  const VI magnitude = hn::And(bits, of(kMagnitudeBits));
  // Below 2^-14: near 0.5 floats are 2^-24 apart.
  const V near_half = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f));
  const VI denormal = hn::Sub(hn::BitCast(di, near_half), of(0x3F000000));
  const VI odd = hn::And(hn::ShiftRight<13>(magnitude), of(1));
  const VI normal = hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, of(0x0FFF - 0x38000000)), odd));
  const VI half =
      hn::IfThenElse(hn::Lt(magnitude, of(0x38800000)), denormal, hn::Min(normal, of(0x7C00)));
  return hn::Or(half, hn::And(hn::ShiftRight<16>(bits), of(0x8000)));
}

// Of blocks with these values of largest magnitude, the scales as they are stored, and what values
// are multiplied by, which replaces those.
template <BlockFormat kFormat>
HWY_INLINE void ScalesOf(float* most, int32_t* halves) {
  const D d;
  const DI di;
  const V m = hn::Load(d, most);
  const V scale = hn::Div(m, hn::Set(d, kFormat == BlockFormat::kQ8_0 ? 127.0f : -8.0f));
  V inverse = kFormat == BlockFormat::kQ8_0 ? hn::Div(hn::Set(d, 127.0f), m)
                                            : hn::Div(hn::Set(d, 1.0f), scale);
  VI half = HalvesOf(scale);
  const VI magnitude = hn::And(half, hn::Set(di, 0x7FFF));
  const auto zero = hn::RebindMask(d, hn::Eq(magnitude, hn::Zero(di)));
  const auto beyond = hn::Eq(magnitude, hn::Set(di, 0x7C00));
  inverse = hn::IfThenZeroElse(zero, inverse);
  inverse = hn::IfThenElse(hn::RebindMask(d, beyond),
                           hn::CopySign(hn::Set(d, 1.0f / 65504.0f), scale), inverse);
  half = hn::IfThenElse(beyond, hn::Sub(half, hn::Set(di, 1)), half);
  hn::Store(half, di, halves);
  hn::Store(inverse, d, most);
}

template <BlockFormat kFormat, bool kOrdinary>
HWY_INLINE void CodesOfBlock(const float* x, float inverse_of_all, uint8_t* codes) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const V inverse = hn::Set(d, inverse_of_all);
  if constexpr (kFormat == BlockFormat::kQ8_0) {
    const hn::Rebind<int8_t, D> d8;
    for (int64_t k = 0; k < kBlockCodes; k += lanes)
      hn::StoreU(hn::DemoteTo(d8, CodesOf<kFormat, kOrdinary>(x + k, inverse)), d8,
                 reinterpret_cast<int8_t*>(codes) + k);
  } else {
    const hn::Rebind<uint8_t, D> d8;
    for (int64_t k = 0; k < kBlockCodes / 2; k += lanes) {
      const VI high = CodesOf<kFormat, kOrdinary>(x + k + kBlockCodes / 2, inverse);
      const VI both = hn::Or(CodesOf<kFormat, kOrdinary>(x + k, inverse), hn::ShiftLeft<4>(high));
      hn::StoreU(hn::DemoteTo(d8, both), d8, codes + k);
    }
  }
}

template <BlockFormat kFormat>
HWY_INLINE void BlocksOf(const float* x, int64_t blocks, uint8_t* y) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  HWY_ALIGN float inverse[kTogether] = {};
  HWY_ALIGN int32_t halves[kTogether];
  for (int64_t first = 0; first < blocks; first += kTogether) {
    const int64_t count = std::min(kTogether, blocks - first);
    int32_t seen = 0;
    for (int64_t b = 0; b < count; ++b) inverse[b] = MostOf<kFormat>(x + b * kBlockCodes, seen);
    const bool ordinary = seen <= std::bit_cast<int32_t>(65504.0f * 8.0f);
    for (int64_t b = 0; b < count; b += lanes) ScalesOf<kFormat>(inverse + b, halves + b);
    for (int64_t b = 0; b < count; ++b, x += kBlockCodes, y += BlockBytes(kFormat)) {
      const auto half = static_cast<uint16_t>(halves[b]);
      std::memcpy(y, &half, sizeof(half));
      if (HWY_LIKELY(ordinary)) {
        CodesOfBlock<kFormat, true>(x, inverse[b], y + sizeof(half));
      } else {
        CodesOfBlock<kFormat, false>(x, inverse[b], y + sizeof(half));
      }
    }
  }
}

template <bool kOrdinary>
HWY_INLINE void CodesOfSuperBlock(const float* x, float inverse, uint8_t* codes, int16_t* sums) {
  constexpr int64_t kSummed = 16;
  for (int64_t k = 0; k < CodesIn(BlockFormat::kQ8_K); k += kBlockCodes)
    CodesOfBlock<BlockFormat::kQ8_0, kOrdinary>(x + k, inverse, codes + k);
  for (int64_t k = 0; k < CodesIn(BlockFormat::kQ8_K); k += kSummed, ++sums) {
    int32_t sum = 0;
    for (int64_t i = 0; i < kSummed; ++i) sum += static_cast<int8_t>(codes[k + i]);
    *sums = static_cast<int16_t>(sum);
  }
}

void SuperBlocksOf(const float* x, int64_t blocks, uint8_t* y) {
  constexpr BlockFormat kFormat = BlockFormat::kQ8_K;
  for (int64_t b = 0; b < blocks; ++b, x += CodesIn(kFormat), y += BlockBytes(kFormat)) {
    int32_t seen = 0;
    float inverse = -127.0f / MostOf<kFormat>(x, seen);
    float scale = 0.0f;
    if ((std::bit_cast<int32_t>(inverse) & kMagnitudeBits) < kInfinityBits) {
      scale = 1.0f / inverse;
    } else {
      inverse = 0.0f;
    }
    int16_t sums[CodesIn(kFormat) / 16];
    uint8_t* const codes = y + sizeof(scale);
    std::memcpy(y, &scale, sizeof(scale));
    if (HWY_LIKELY(seen < kInfinityBits)) {
      CodesOfSuperBlock<true>(x, inverse, codes, sums);
    } else {
      CodesOfSuperBlock<false>(x, inverse, codes, sums);
    }
    std::memcpy(codes + CodesIn(kFormat), sums, sizeof(sums));
  }
}

void BlocksOfRow(BlockFormat format, const float* x, int64_t blocks, uint8_t* y) {
  if (format == BlockFormat::kQ8_K) return SuperBlocksOf(x, blocks, y);
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
  if (y.format == BlockFormat::kQ4_K) return {"y.format is kQ4_K, expected kQ8_0, kQ4_0 or kQ8_K"};
  QUALM_RETURN_IF_ERROR(internal::CheckSize("y.rows", y.rows, x.rows, "the rows of x"));
  const int64_t codes = BlockParts(y.format) * kBlockCodes;
  if (x.columns % codes != 0 || y.blocks != x.columns / codes)
    return internal::IsButExpected("x.columns", x.columns, "32 or 256 for each block of y");
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
