// SPDX-License-Identifier: Apache-2.0
// Why these loops give the bits that nbits_linear.h promises. Lanes are channels, and each adds its
// own terms in the order of the header. A code q and a zero point z become 2^23 + q and 2^23 + z in
// float32, exactly, and so is their difference. Of codes of x, n_b = sum q x - z sum x: each part
// is below 255 * 128 * 2^16 < 2^31, and so is n_b. quads-inl.h adds products of a u8 and a s8
// without saturation; kPairs is used for codes of 4 bits alone, of which two products are at most
// 2 * 15 * 128 < 2^15. No float operation is fused: not all targets have it.
#include "kernels/sums/nbits.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sums/nbits.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h:
#include "hwy/highway.h"
#include "kernels/common/dispatch.h"
#include "kernels/sums/quads-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels {
namespace HWY_NAMESPACE {
namespace {

using internal::NBitsGroup;
using internal::NBitsTile;
using internal::NBitsTraits;
using internal::QuadSum;

#if HWY_TARGET == HWY_SCALAR

// Vectors have one lane here, and Highway's pairwise operations find no pair: plain code.
constexpr int64_t kLanes = 4, kVectorsOfPanel = 1, kRowsOfTile = 1;
int64_t LanesOfTarget() { return kLanes; }

void MultiplyNBitsImpl(const NBitsTile& t) {
  const int64_t group = NBitsGroup(t.bits);
  for (int64_t n = 0; n < t.columns; ++n) {
    const uint8_t* at = t.panel;
    float y = 0;
    for (int64_t first = 0, block = 0; first < t.depth; first += t.block, ++block) {
      float scale;
      std::memcpy(&scale, at + n * 4, sizeof(scale));
      const int32_t zero = at[kLanes * 4 + n];
      at += kLanes * internal::kNBitsParameterBytes;
      float sum = 0;
      int32_t products = 0;
      const int64_t count = t.BlockDepth(first);
      for (int64_t k = 0; k < count; ++k) {
        const uint8_t byte = at[k / group * kLanes * 4 + n * 4 + k % 4];
        const int32_t code = t.bits == 8 ? byte : byte >> (k % group / 4 * 4) & 15;
        if (t.coded) {
          products += (code - zero) * t.codes[0][first + k];
        } else {
          sum += t.values[0][first + k] * (static_cast<float>(code - zero) * scale);
        }
      }
      if (t.coded) sum = static_cast<float>(products) * (scale * t.scales[0][block]);
      y += sum;
      at += (count + group - 1) / group * kLanes * 4;
    }
    t.y[n] = t.bias == nullptr ? y : y + t.bias[n];
  }
}

void QuantizeNBitsBlockImpl(const float* x, int64_t count, int8_t* codes, float* scale) {
  float largest = 0;
  for (int64_t k = 0; k < count; ++k)
    if (std::isfinite(x[k])) largest = std::max(largest, std::fabs(x[k]));
  const float d = largest / 127.0f, inverse = 127.0f / largest;
  for (int64_t k = 0; k < count; ++k) {
    float v = d < 0x1p-126f ? x[k] / d : x[k] * inverse;
    if (d == 0 || std::isnan(v)) v = 0;
    codes[k] = static_cast<int8_t>(std::nearbyint(std::min(std::max(v, -127.0f), 127.0f)));
  }
  *scale = d;
}

#else  // HWY_TARGET != HWY_SCALAR

namespace hn = hwy::HWY_NAMESPACE;
using quads::DI32;
using quads::DU8;
using quads::VI32;
using quads::VI8;
using quads::VU8;
using DF = hn::Repartition<float, DI32>;
using DU32 = hn::Repartition<uint32_t, DI32>;
using VF = hn::Vec<DF>;
using VU32 = hn::Vec<DU32>;

// With these, sums, weights and what is repeated of a row fill the registers.
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
constexpr int64_t kVectorsOfPanel = 2, kRowsOfTile = 2;
#else
constexpr int64_t kVectorsOfPanel = 2, kRowsOfTile = 4;
#endif
static_assert(kRowsOfTile <= NBitsTile::kMostRows);

int64_t LanesOfTarget() { return static_cast<int64_t>(hn::Lanes(DI32())); }

// The sums of a tile are parameters with names, handed on as packs (accumulate.cc says why):
// kVectors of the first row, then of the others. The types of two packs in one list:
template <size_t>
struct OfTile {
  using Integers = VI32;
  using Floats = VF;
};

// What a block has of each channel of a vector.
HWY_INLINE VF ScalesOf(const uint8_t* panel, int64_t vector) {
  const DU8 d8;
  return hn::BitCast(DF(), hn::LoadU(d8, panel + vector * static_cast<int64_t>(hn::Lanes(d8))));
}
HWY_INLINE VI32 ZerosOf(const uint8_t* panel, int64_t vector, int64_t width) {
  const hn::Rebind<uint8_t, DI32> d8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d8));
  return hn::PromoteTo(DI32(), hn::LoadU(d8, panel + width * 4 + vector * lanes));
}

constexpr uint32_t kTwoTo23 = 0x4B000000;
HWY_INLINE VF PlusTwoTo23(VU32 integer) {
  return hn::BitCast(DF(), hn::Or(integer, hn::Set(DU32(), kTwoTo23)));
}

// One code of a group, times the values that it meets.
template <int kBits, int kVectors, int kPlace, size_t... kSum>
HWY_INLINE void AddCode(std::index_sequence<kSum...>, const float* const* x, int64_t k, VU32 w0,
                        VU32 w1, VF zero0, VF zero1, VF scale0, VF scale1,
                        typename OfTile<kSum>::Floats&... sums) {
  const DF df;
  const auto weight = [&](VU32 group, VF zero, VF scale) HWY_ATTR {
    constexpr int kShift = kPlace % 4 * 8 + kPlace / 4 * 4;
    const VU32 code = hn::And(hn::ShiftRight<kShift>(group), hn::Set(DU32(), (1u << kBits) - 1));
    return hn::Mul(hn::Sub(PlusTwoTo23(code), zero), scale);
  };
  const VF weight0 = weight(w0, zero0, scale0);
  const VF weight1 = kVectors == 2 ? weight(w1, zero1, scale1) : weight0;
  VF value = hn::Zero(df);
  const auto add = [&](auto place, VF& sum) HWY_ATTR {
    constexpr size_t kAt = decltype(place)::value;
    if constexpr (kAt % kVectors == 0) value = hn::Set(df, x[kAt / kVectors][k + kPlace]);
    sum = hn::Add(sum, hn::Mul(value, kAt % kVectors == 0 ? weight0 : weight1));
  };
  (add(std::integral_constant<size_t, kSum>(), sums), ...);
}

// The first `count` codes of a group.
template <int kBits, int kVectors, int... kPlace, class All, class... Sums>
HWY_INLINE void AddGroup(std::integer_sequence<int, kPlace...>, All all, int64_t count,
                         const float* const* x, int64_t k, VU32 w0, VU32 w1, VF zero0, VF zero1,
                         VF scale0, VF scale1, Sums&... sums) {
  const auto add = [&](auto place) HWY_ATTR {
    constexpr int kAt = decltype(place)::value;
    if (kAt < count)
      AddCode<kBits, kVectors, kAt>(all, x, k, w0, w1, zero0, zero1, scale0, scale1, sums...);
  };
  (add(std::integral_constant<int, kPlace>()), ...);
}

// One block of values: its sums begin as 0. The codes of the block are at w.
template <int kBits, int kVectors, size_t... kSum>
HWY_INLINE void AddValues(std::index_sequence<kSum...> all, const NBitsTile& t, int64_t first,
                          const uint8_t* w, VF scale0, VF scale1, VI32 z0, VI32 z1,
                          typename OfTile<kSum>::Floats&... totals,
                          typename OfTile<kSum>::Floats... sums) {
  const DU32 du;
  constexpr int64_t kGroup = NBitsGroup(kBits);
  constexpr auto kPlaces = std::make_integer_sequence<int, int{kGroup}>();
  const auto bytes = static_cast<int64_t>(hn::Lanes(DU8()));
  const int64_t step = kVectors == 2 ? bytes : 0;
  const VU32 flip = hn::BitCast(du, hn::Set(DU8(), t.flip));
  const VF zero0 = PlusTwoTo23(hn::BitCast(du, z0));
  const VF zero1 = PlusTwoTo23(hn::BitCast(du, z1));
  const auto load = [&](const uint8_t* at) HWY_ATTR {
    const VU32 group = hn::BitCast(du, hn::LoadU(DU8(), at));
    return kBits == 8 ? hn::Xor(group, flip) : group;
  };
  const int64_t end = first + t.BlockDepth(first);
  int64_t k = first;
  for (; k + kGroup <= end; k += kGroup, w += kVectors * bytes)
    AddGroup<kBits, kVectors>(kPlaces, all, kGroup, t.values, k, load(w), load(w + step), zero0,
                              zero1, scale0, scale1, sums...);
  if (k < end)
    AddGroup<kBits, kVectors>(kPlaces, all, end - k, t.values, k, load(w), load(w + step), zero0,
                              zero1, scale0, scale1, sums...);
  ((totals = hn::Add(totals, sums)), ...);
}

// The products of four codes with those of each row.
template <QuadSum kQuadSum, int kVectors, size_t... kSum>
HWY_INLINE void AddQuads(std::index_sequence<kSum...>, const int8_t* const* x, int64_t k, VU8 w0,
                         VU8 w1, typename OfTile<kSum>::Integers&... products) {
  VI8 quad = hn::Zero(quads::DI8());
  const auto add = [&](auto place, VI32& product) HWY_ATTR {
    constexpr size_t kAt = decltype(place)::value;
    if constexpr (kAt % kVectors == 0) {
      int32_t four;
      std::memcpy(&four, x[kAt / kVectors] + k, sizeof(four));
      quad = hn::BitCast(quads::DI8(), hn::Set(DI32(), four));
    }
    quads::Add<kQuadSum>(product, kAt % kVectors == 0 ? w0 : w1, quad);
  };
  (add(std::integral_constant<size_t, kSum>(), products), ...);
}

// One block of codes: its integer sums begin as 0.
template <QuadSum kQuadSum, int kBits, int kVectors, size_t... kSum>
HWY_INLINE void AddCodes(std::index_sequence<kSum...> all, const NBitsTile& t, int64_t first,
                         const uint8_t* w, VF scale0, VF scale1, VI32 z0, VI32 z1,
                         typename OfTile<kSum>::Floats&... totals,
                         typename OfTile<kSum>::Integers... products) {
  const DU8 d8;
  const hn::Repartition<uint16_t, DU8> d16;
  constexpr int64_t kGroup = NBitsGroup(kBits);
  const auto bytes = static_cast<int64_t>(hn::Lanes(d8));
  const int64_t step = kVectors == 2 ? bytes : 0;
  const int64_t end = first + t.BlockDepth(first);
  const VU8 nibble = hn::Set(d8, 15);
  const auto high = [&](VU8 v) HWY_ATTR {
    return hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, v))), nibble);
  };
  for (int64_t k = first; k < end; k += kGroup, w += kVectors * bytes) {
    const VU8 w0 = hn::LoadU(d8, w), w1 = hn::LoadU(d8, w + step);
    if constexpr (kBits == 8) {
      AddQuads<kQuadSum, kVectors>(all, t.codes, k, w0, w1, products...);
    } else {
      AddQuads<kQuadSum, kVectors>(all, t.codes, k, hn::And(w0, nibble), hn::And(w1, nibble),
                                   products...);
      AddQuads<kQuadSum, kVectors>(all, t.codes, k + 4, high(w0), high(w1), products...);
    }
  }
  const DF df;
  const DI32 di;
  const int64_t block = first / t.block;
  const VI32 flip = hn::Set(di, t.flip);
  const VI32 zero0 = hn::Sub(z0, flip), zero1 = hn::Sub(z1, flip);
  const auto add = [&](auto place, VF& total, VI32 product) HWY_ATTR {
    constexpr size_t kAt = decltype(place)::value;
    constexpr bool kFirst = kAt % kVectors == 0;
    const VI32 sum = hn::Set(di, t.code_sums[kAt / kVectors][block]);
    const VF of_row = hn::Set(df, t.scales[kAt / kVectors][block]);
    const VI32 number = hn::Sub(product, hn::Mul(kFirst ? zero0 : zero1, sum));
    const VF scale = hn::Mul(kFirst ? scale0 : scale1, of_row);
    total = hn::Add(total, hn::Mul(hn::ConvertTo(df, number), scale));
  };
  (add(std::integral_constant<size_t, kSum>(), totals, products), ...);
}

// kCoded: of codes, else of values, which have no QuadSum.
template <bool kCoded, QuadSum kQuadSum, int kBits, int kVectors, size_t... kSum>
HWY_INLINE void AddBlocks(std::index_sequence<kSum...> all, const NBitsTile& t,
                          typename OfTile<kSum>::Floats... totals) {
  const DF df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  const int64_t width = kVectors * lanes;
  constexpr int64_t kGroup = NBitsGroup(kBits);
  const uint8_t* panel = t.panel;
  for (int64_t first = 0; first < t.depth; first += t.block) {
    const VF scale0 = ScalesOf(panel, 0), scale1 = ScalesOf(panel, kVectors - 1);
    const VI32 z0 = ZerosOf(panel, 0, width), z1 = ZerosOf(panel, kVectors - 1, width);
    panel += width * internal::kNBitsParameterBytes;
    if constexpr (kCoded) {
      AddCodes<kQuadSum, kBits, kVectors>(all, t, first, panel, scale0, scale1, z0, z1, totals...,
                                          (static_cast<void>(kSum), hn::Zero(DI32()))...);
    } else {
      AddValues<kBits, kVectors>(all, t, first, panel, scale0, scale1, z0, z1, totals...,
                                 (static_cast<void>(kSum), hn::Zero(df))...);
    }
    panel += (t.BlockDepth(first) + kGroup - 1) / kGroup * width * 4;
  }
  const auto store = [&](size_t row, int64_t channel, VF total) HWY_ATTR {
    float* const y = t.y + static_cast<int64_t>(row) * t.y_stride + channel;
    const int64_t count = t.columns - channel;
    if (count <= 0) return;
    const size_t some = static_cast<size_t>(std::min(count, lanes));
    if (t.bias != nullptr) total = hn::Add(total, hn::LoadN(df, t.bias + channel, some));
    hn::StoreN(total, df, y, some);
  };
  (store(kSum / kVectors, static_cast<int64_t>(kSum % kVectors) * lanes, totals), ...);
}

template <bool kCoded, QuadSum kQuadSum, int kBits, int kVectors, size_t... kSum>
HWY_INLINE void BeginTile(std::index_sequence<kSum...> all, const NBitsTile& t) {
  AddBlocks<kCoded, kQuadSum, kBits, kVectors>(all, t,
                                               (static_cast<void>(kSum), hn::Zero(DF()))...);
}

template <bool kCoded, QuadSum kQuadSum, int kBits, int kVectors, int kRows>
HWY_NOINLINE void SumBlocks(const NBitsTile& t) {
  BeginTile<kCoded, kQuadSum, kBits, kVectors>(std::make_index_sequence<kRows * kVectors>(), t);
}

// The function for a tile of 1 + i rows is element i.
template <bool kCoded, QuadSum kQuadSum, int kBits, int kVectors, int... kRow>
HWY_INLINE void SumRows(const NBitsTile& t, std::integer_sequence<int, kRow...>) {
  static constexpr void (*kFunctions[])(const NBitsTile&) = {
      SumBlocks<kCoded, kQuadSum, kBits, kVectors, 1 + kRow>...};
  kFunctions[t.rows - 1](t);
}

template <bool kCoded, QuadSum kQuadSum, int kBits>
HWY_INLINE void SumTile(const NBitsTile& t) {
  constexpr auto kRows = std::make_integer_sequence<int, int{kRowsOfTile}>();
  if (t.vectors == 1) {
    SumRows<kCoded, kQuadSum, kBits, 1>(t, kRows);
  } else {
    SumRows<kCoded, kQuadSum, kBits, 2>(t, kRows);
  }
}

void MultiplyNBitsImpl(const NBitsTile& t) {
  if (!t.coded) {
    if (t.bits == 4) return SumTile<false, QuadSum::kHighway, 4>(t);
    return SumTile<false, QuadSum::kHighway, 8>(t);
  }
  quads::ForQuadSum(t.quad_sum, [&](auto quad_sum) {
    if constexpr (quad_sum() != QuadSum::kWidened) {
      if (t.bits == 4) return SumTile<true, quad_sum(), 4>(t);
      if constexpr (quad_sum() != QuadSum::kPairs) SumTile<true, quad_sum(), 8>(t);
    }
  });
}

void QuantizeNBitsBlockImpl(const float* x, int64_t count, int8_t* codes, float* scale) {
  const DF df;
  const DI32 di;
  const hn::Rebind<int8_t, DI32> d8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  const VI32 infinity = hn::Set(di, 0x7F800000);
  const auto some = [&](int64_t k) { return static_cast<size_t>(std::min(lanes, count - k)); };
  VI32 most = hn::Zero(di);  // bits of magnitudes have the order of the magnitudes
  for (int64_t k = 0; k < count; k += lanes) {
    const VI32 magnitude = hn::BitCast(di, hn::Abs(hn::LoadN(df, x + k, some(k))));
    most = hn::Max(most, hn::IfThenElseZero(hn::Lt(magnitude, infinity), magnitude));
  }
  const auto largest = std::bit_cast<float>(hn::ReduceMax(di, most));
  const float d = largest / 127.0f;
  const bool denormal = d < 0x1p-126f;
  const VF factor = hn::Set(df, denormal ? d : 127.0f / largest), limit = hn::Set(df, 127.0f);
  for (int64_t k = 0; k < count; k += lanes) {
    const VF value = hn::LoadN(df, x + k, some(k));
    VF v = denormal ? hn::Div(value, factor) : hn::Mul(value, factor);
    v = d == 0 ? hn::Zero(df) : hn::IfThenElseZero(hn::Eq(v, v), v);
    v = hn::Min(hn::Max(v, hn::Neg(limit)), limit);
    hn::StoreN(hn::DemoteTo(d8, hn::NearestInt(v)), d8, codes + k, some(k));
  }
  *scale = d;
}

#endif  // HWY_TARGET == HWY_SCALAR

NBitsTraits NBitsTraitsImpl(int bits) {
  QuadSum quad_sum = internal::TargetQuadSum();
#if HWY_TARGET != HWY_SCALAR
  if (bits == 4 && quad_sum == QuadSum::kHighway && quads::Has(QuadSum::kPairs))
    quad_sum = QuadSum::kPairs;
#endif
  return {.target = internal::TargetId(),
          .quad_sum = quad_sum,
          .lanes = LanesOfTarget(),
          .panel_vectors = kVectorsOfPanel,
          .most_rows = kRowsOfTile,
          .flip = static_cast<uint8_t>(bits == 8 && quad_sum == QuadSum::kDot ? 0x80 : 0)};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels {

HWY_EXPORT(NBitsTraitsImpl);
HWY_EXPORT(MultiplyNBitsImpl);
HWY_EXPORT(QuantizeNBitsBlockImpl);

namespace internal {

NBitsTraits CurrentNBitsTraits(int bits) { return QUALM_DISPATCH(NBitsTraitsImpl)(bits); }
void MultiplyNBits(const NBitsTile& tile) { QUALM_DISPATCH(MultiplyNBitsImpl)(tile); }
void QuantizeNBitsBlock(const float* x, int64_t count, int8_t* codes, float* scale) {
  QUALM_DISPATCH(QuantizeNBitsBlockImpl)(x, count, codes, scale);
}

}  // namespace internal
}  // namespace qualm::kernels
#endif  // HWY_ONCE
