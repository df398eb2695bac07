// SPDX-License-Identifier: Apache-2.0
// Why these loops give the bits that block_linear.h promises. Codes of w are unsigned here, or s8
// where the instruction wants that: w = packed - zero, so s_b = sum packed * x - zero * sum x, and
// the second part is the initial value of the sum. All of it is exact in int32, and quads-inl.h
// adds products of a u8 and a s8 without saturation; kPairs is used for codes of 4 bits alone, of
// which two products are at most 2 * 15 * 128 < 2^15. s and z have 6 bits: p_b and q_b stay below
// 2^25. The float operations are those of the header, in that order, and never fused: a fused sum
// would be another number, and not all targets have it.
#include "kernels/sums/blocks.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

#include "kernels/common/validate.h"
#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sums/blocks.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h:
#include "hwy/highway.h"
#include "kernels/common/dispatch.h"
#include "kernels/sums/quads-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels {
namespace HWY_NAMESPACE {
namespace {

using internal::ArrangedBlock;
using internal::BlockTile;
using internal::BlockTraits;
using internal::FloatAt;
using internal::FloatOfHalf;
using internal::HalfAt;
using internal::PanelBytes;
using internal::QuadSum;
using internal::SixBits;

constexpr int64_t kScaleBytes = 2;
constexpr int64_t kParts = BlockParts(BlockFormat::kQ4_K);
constexpr int64_t kSumsAt = 4 + kParts * kBlockCodes;  // in a block of Q8_K

// Of a block Q4_K, whose scale and minimum are stored there.
HWY_INLINE float Term(int32_t products, const uint8_t* scale, int32_t minima,
                      const uint8_t* minimum, float of_x) {
  return static_cast<float>(products) * (FloatOfHalf(HalfAt(scale)) * of_x) -
         static_cast<float>(minima) * (FloatOfHalf(HalfAt(minimum)) * of_x);
}

#if HWY_TARGET == HWY_SCALAR

// Vectors have one lane here, and Highway's pairwise operations find no pair: plain code.
constexpr int64_t kLanes = 4, kVectorsOfPanel = 1, kRowsOfTile = 1;
int64_t LanesOfTarget() { return kLanes; }

int32_t CodeOfQ4(uint8_t byte, int64_t k) { return k < 16 ? byte & 15 : byte >> 4; }

int64_t SumOfPair(int32_t pair) {
  int16_t sums[2];
  std::memcpy(sums, &pair, sizeof(sums));
  return int64_t{sums[0]} + sums[1];
}

void MultiplySuperBlocks(const BlockTile& t) {
  for (int64_t n = 0; n < t.columns; ++n) {
    const uint8_t* at = t.panel;
    for (int64_t lane = 0; lane < kBlockLanes; ++lane) {
      float sum = 0;
      for (int64_t b = lane; b < t.blocks; b += kBlockLanes, at += kLanes * PanelBytes(t.format)) {
        const uint8_t* const factors = at + 2 * kLanes * kScaleBytes;
        int32_t products = 0;
        int64_t minima = 0;
        for (int64_t part = 0; part < kParts; ++part) {
          const ArrangedBlock& x = t.x[0][b * kParts + part];
          const uint8_t* const codes = factors + (2 * kParts + part * kBlockCodes / 2) * kLanes;
          int32_t of_part = 0;
          for (int64_t k = 0; k < kBlockCodes; ++k) {
            const int64_t byte = k % 16;
            of_part += CodeOfQ4(codes[byte / 4 * 4 * kLanes + 4 * n + byte % 4], k) * x.codes[k];
          }
          products += factors[part * kLanes + n] * of_part;
          minima += factors[(kParts + part) * kLanes + n] * SumOfPair(x.initial);
        }
        const float of_x = t.x[0][b * kParts].scale;
        sum += Term(products, at + n * kScaleBytes, static_cast<int32_t>(minima),
                    at + (kLanes + n) * kScaleBytes, of_x);
      }
      t.y[n] = lane == 0 ? sum : t.y[n] + sum;
    }
  }
}

void MultiplyTileImpl(const BlockTile& t) {
  if (t.format == BlockFormat::kQ4_K) return MultiplySuperBlocks(t);
  const bool nibbles = t.format == BlockFormat::kQ4_0;
  const int64_t block_bytes = kLanes * BlockBytes(t.format);
  for (int64_t n = 0; n < t.columns; ++n) {
    const uint8_t* at = t.panel;
    for (int64_t lane = 0; lane < kBlockLanes; ++lane) {
      float sum = 0;
      for (int64_t b = lane; b < t.blocks; b += kBlockLanes, at += block_bytes) {
        const ArrangedBlock& x = t.x[0][b];
        const uint8_t* const codes = at + kLanes * kScaleBytes;
        int32_t products = x.initial;
        for (int64_t k = 0; k < kBlockCodes; ++k) {
          const int64_t byte = nibbles ? k % 16 : k;
          const uint8_t packed = codes[byte / 4 * 4 * kLanes + 4 * n + byte % 4];
          products += (nibbles ? CodeOfQ4(packed, k) : packed) * x.codes[k];
        }
        const float scale = FloatOfHalf(HalfAt(at + n * kScaleBytes)) * x.scale;
        sum += static_cast<float>(products) * scale;
      }
      t.y[n] = lane == 0 ? sum : t.y[n] + sum;
    }
  }
}

float DotOfSuperBlocks(const uint8_t* w, const uint8_t* x, int64_t blocks) {
  float sums[kBlockLanes] = {};
  for (int64_t b = 0; b < blocks; ++b) {
    const SixBits factors(w + 4);
    int32_t products = 0, minima = 0;
    for (int64_t part = 0; part < kParts; ++part) {
      int32_t of_part = 0, pair;
      for (int64_t k = 0; k < kBlockCodes; ++k) {
        const int code = w[16 + part / 2 * kBlockCodes + k] >> part % 2 * 4 & 15;
        of_part += code * static_cast<int8_t>(x[4 + part * kBlockCodes + k]);
      }
      products += factors.s[part] * of_part;
      std::memcpy(&pair, x + kSumsAt + part * 4, sizeof(pair));
      minima += factors.z[part] * static_cast<int32_t>(SumOfPair(pair));
    }
    sums[b % kBlockLanes] += Term(products, w, minima, w + kScaleBytes, FloatAt(x));
    w += BlockBytes(BlockFormat::kQ4_K);
    x += BlockBytes(BlockFormat::kQ8_K);
  }
  return ((sums[0] + sums[1]) + sums[2]) + sums[3];
}

float DotImpl(BlockFormat format, const uint8_t* w, const uint8_t* x, int64_t blocks) {
  if (format == BlockFormat::kQ4_K) return DotOfSuperBlocks(w, x, blocks);
  const bool nibbles = format == BlockFormat::kQ4_0;
  float sums[kBlockLanes] = {};
  for (int64_t b = 0; b < blocks; ++b) {
    int32_t products = 0;
    for (int64_t k = 0; k < kBlockCodes; ++k) {
      const uint8_t packed = w[kScaleBytes + (nibbles ? k % 16 : k)];
      products += (nibbles ? CodeOfQ4(packed, k) - 8 : static_cast<int8_t>(packed)) *
                  static_cast<int8_t>(x[kScaleBytes + k]);
    }
    sums[b % kBlockLanes] +=
        static_cast<float>(products) * (FloatOfHalf(HalfAt(w)) * FloatOfHalf(HalfAt(x)));
    w += BlockBytes(format);
    x += BlockBytes(BlockFormat::kQ8_0);
  }
  return ((sums[0] + sums[1]) + sums[2]) + sums[3];
}

#else  // HWY_TARGET != HWY_SCALAR

namespace hn = hwy::HWY_NAMESPACE;
using quads::DI32;
using quads::DU8;
using quads::VI32;
using quads::VI8;
using quads::VU8;
using DF = hn::Repartition<float, DI32>;
using VF = hn::Vec<DF>;

// With these, sums, weights and what is repeated of a row fill the registers.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
constexpr int64_t kVectorsOfPanel = 2, kRowsOfTile = 6;
#elif HWY_ARCH_X86
constexpr int64_t kVectorsOfPanel = 2, kRowsOfTile = 2;
#else
constexpr int64_t kVectorsOfPanel = 2, kRowsOfTile = 4;
#endif
static_assert(kRowsOfTile <= BlockTile::kMostRows);

int64_t LanesOfTarget() { return static_cast<int64_t>(hn::Lanes(DI32())); }

// FloatOfHalf of each of them. Where Highway would emulate the conversion, it takes infinities for
// numbers.
template <class D, class V16>
HWY_INLINE hn::Vec<D> FloatsOfHalves(D d, V16 halves) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::BitCast(d16, halves));
#else
  const hn::RebindToUnsigned<D> du;
  const auto wide = hn::PromoteTo(du, halves);
  const auto largest = hn::Set(du, 0x7C00);
  const auto special =
      hn::IfThenElseZero(hn::Eq(hn::And(wide, largest), largest), hn::Set(du, 0x7F800000));
  const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(du, 0x8000)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(wide, hn::Set(du, 0x7FFF)));
  const auto value = hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f));
  return hn::BitCast(d, hn::Or(hn::Or(hn::BitCast(du, value), special), sign));
#endif
}

HWY_INLINE VI8 BroadcastQuad(const int8_t* codes) {
  int32_t quad;
  std::memcpy(&quad, codes, sizeof(quad));
  return hn::BitCast(quads::DI8(), hn::Set(DI32(), quad));
}

// The sums of a tile are parameters with names, handed on as packs (accumulate.cc says why):
// kVectors of the first row, then of the others. The types of two packs in one list:
template <size_t>
struct OfTile {
  using Integers = VI32;
  using Floats = VF;
};

// One quad of all rows, with its weights: one vector of channels, or two.
template <QuadSum kQuadSum, int kVectors, size_t... kSum>
HWY_INLINE void AddQuads(std::index_sequence<kSum...>, const ArrangedBlock* const* x, int64_t block,
                         int64_t k, VU8 w0, VU8 w1, typename OfTile<kSum>::Integers&... sums) {
  VI8 quad = hn::Zero(quads::DI8());
  const auto add = [&](auto place, VI32& sum) HWY_ATTR {
    constexpr size_t kPlace = decltype(place)::value;
    if constexpr (kPlace % kVectors == 0)
      quad = BroadcastQuad(x[kPlace / kVectors][block].codes + k);
    if constexpr (kPlace % kVectors == 0) {
      quads::Add<kQuadSum>(sum, w0, quad);
    } else {
      quads::Add<kQuadSum>(sum, w1, quad);
    }
  };
  (add(std::integral_constant<size_t, kSum>(), sums), ...);
}

// The products of 32 codes of 4 bits, of all rows.
template <QuadSum kQuadSum, int kVectors, size_t... kSum>
HWY_INLINE void AddNibbles(std::index_sequence<kSum...> all, const ArrangedBlock* const* x,
                           int64_t block, const uint8_t* w,
                           typename OfTile<kSum>::Integers&... products) {
  const DU8 d8;
  const int64_t bytes = static_cast<int64_t>(hn::Lanes(d8));
  const int64_t step = kVectors == 2 ? bytes : 0;
  const auto second = [&](const uint8_t* at) HWY_ATTR { return hn::LoadU(DU8(), at + step); };
  const hn::Repartition<uint16_t, DU8> d16;
  const auto high = [&](VU8 v) HWY_ATTR {
    return hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, v))), hn::Set(d8, 15));
  };
  for (int64_t k = 0; k < kBlockCodes / 2; k += 4, w += kVectors * bytes) {
    const VU8 w0 = hn::LoadU(d8, w), w1 = second(w);
    AddQuads<kQuadSum, kVectors>(all, x, block, k, hn::And(w0, hn::Set(d8, 15)),
                                 hn::And(w1, hn::Set(d8, 15)), products...);
    AddQuads<kQuadSum, kVectors>(all, x, block, k + 16, high(w0), high(w1), products...);
  }
}

// One block of all rows: its integer sums begin as `products`.
template <QuadSum kQuadSum, BlockFormat kFormat, int kVectors, size_t... kSum>
HWY_INLINE void AddBlock(std::index_sequence<kSum...> all, const ArrangedBlock* const* x,
                         int64_t block, const uint8_t* panel,
                         typename OfTile<kSum>::Floats&... sums,
                         typename OfTile<kSum>::Integers... products) {
  const DU8 d8;
  const int64_t bytes = static_cast<int64_t>(hn::Lanes(d8));
  const int64_t lanes = bytes / 4;
  const uint8_t* w = panel + kVectors * lanes * kScaleBytes;
  const int64_t step = kVectors == 2 ? bytes : 0;
  const auto second = [&](const uint8_t* at) HWY_ATTR { return hn::LoadU(DU8(), at + step); };
  if constexpr (kFormat == BlockFormat::kQ4_0) {
    AddNibbles<kQuadSum, kVectors>(all, x, block, w, products...);
  } else {
    for (int64_t k = 0; k < kBlockCodes; k += 4, w += kVectors * bytes)
      AddQuads<kQuadSum, kVectors>(all, x, block, k, hn::LoadU(d8, w), second(w), products...);
  }
  const DF df;
  const hn::Rebind<uint16_t, DF> dh;
  const auto scales = [&](int64_t vector) HWY_ATTR {
    const uint8_t* const at = panel + vector * lanes * kScaleBytes;
    return FloatsOfHalves(df, hn::LoadU(dh, reinterpret_cast<const uint16_t*>(at)));
  };
  const VF scale0 = scales(0), scale1 = scales(kVectors - 1);
  const auto add = [&](auto place, VF& sum, VI32 product) HWY_ATTR {
    constexpr size_t kPlace = decltype(place)::value;
    const VF of_row = hn::Set(df, x[kPlace / kVectors][block].scale);
    const VF scale = hn::Mul(kPlace % kVectors == 0 ? scale0 : scale1, of_row);
    sum = hn::Add(sum, hn::Mul(hn::ConvertTo(df, product), scale));
  };
  (add(std::integral_constant<size_t, kSum>(), sums, products), ...);
}

// One part of a block Q4_K of all rows: its sums begin as `products`. `factors` has the s of each
// channel, and behind those of all parts z.
template <QuadSum kQuadSum, int kVectors, size_t... kSum>
HWY_INLINE void AddPart(std::index_sequence<kSum...> all, const ArrangedBlock* const* x,
                        int64_t part, const uint8_t* factors, const uint8_t* w,
                        typename OfTile<kSum>::Integers&... codes,
                        typename OfTile<kSum>::Integers&... minima,
                        typename OfTile<kSum>::Integers... products) {
  AddNibbles<kQuadSum, kVectors>(all, x, part, w, products...);
  const DI32 d;
  const hn::Repartition<int16_t, DI32> d16;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = [&](int64_t vector, int64_t of_z) HWY_ATTR {
    const hn::Rebind<uint8_t, DI32> d8;
    const uint8_t* const at = factors + vector * lanes + of_z * kParts * kVectors * lanes;
    return hn::PromoteTo(d, hn::LoadU(d8, at));
  };
  const auto twice = [&](VI32 z)
                         HWY_ATTR { return hn::BitCast(d16, hn::Or(z, hn::ShiftLeft<16>(z))); };
  const VI32 s0 = factor(0, 0), s1 = factor(kVectors - 1, 0);
  const auto z0 = twice(factor(0, 1)), z1 = twice(factor(kVectors - 1, 1));
  const auto add = [&](auto place, VI32& code, VI32& minimum, VI32 product) HWY_ATTR {
    constexpr size_t kPlace = decltype(place)::value;
    constexpr bool kFirst = kPlace % kVectors == 0;
    code = hn::Add(code, hn::Mul(product, kFirst ? s0 : s1));
    const auto pair = hn::BitCast(d16, hn::Set(d, x[kPlace / kVectors][part].initial));
    minimum = hn::Add(minimum, hn::WidenMulPairwiseAdd(d, kFirst ? z0 : z1, pair));
  };
  (add(std::integral_constant<size_t, kSum>(), codes, minima, products), ...);
}

// One block Q4_K of all rows: its integer sums begin as 0.
template <QuadSum kQuadSum, int kVectors, size_t... kSum>
HWY_INLINE void AddSuperBlock(std::index_sequence<kSum...> all, const ArrangedBlock* const* x,
                              int64_t block, const uint8_t* panel,
                              typename OfTile<kSum>::Floats&... sums,
                              typename OfTile<kSum>::Integers... codes,
                              typename OfTile<kSum>::Integers... minima) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(DI32()));
  const int64_t width = kVectors * lanes;
  const uint8_t* const factors = panel + 2 * width * kScaleBytes;
  const uint8_t* const w = factors + 2 * kParts * width;
  for (int64_t part = 0; part < kParts; ++part) {
    AddPart<kQuadSum, kVectors>(all, x, block * kParts + part, factors + part * width,
                                w + part * width * kBlockCodes / 2, codes..., minima...,
                                (static_cast<void>(kSum), hn::Zero(DI32()))...);
  }
  const DF df;
  const hn::Rebind<uint16_t, DF> dh;
  const auto halves = [&](int64_t vector, int64_t of_minimum) HWY_ATTR {
    const uint8_t* const at = panel + (vector * lanes + of_minimum * width) * kScaleBytes;
    return FloatsOfHalves(df, hn::LoadU(dh, reinterpret_cast<const uint16_t*>(at)));
  };
  const VF scale0 = halves(0, 0), scale1 = halves(kVectors - 1, 0);
  const VF minimum0 = halves(0, 1), minimum1 = halves(kVectors - 1, 1);
  const auto add = [&](auto place, VF& sum, VI32 code, VI32 minimum) HWY_ATTR {
    constexpr size_t kPlace = decltype(place)::value;
    constexpr bool kFirst = kPlace % kVectors == 0;
    const VF of_row = hn::Set(df, x[kPlace / kVectors][block * kParts].scale);
    const VF of_codes = hn::Mul(hn::ConvertTo(df, code), hn::Mul(kFirst ? scale0 : scale1, of_row));
    const VF of_minima =
        hn::Mul(hn::ConvertTo(df, minimum), hn::Mul(kFirst ? minimum0 : minimum1, of_row));
    sum = hn::Add(sum, hn::Sub(of_codes, of_minima));
  };
  (add(std::integral_constant<size_t, kSum>(), sums, codes, minima), ...);
}

template <QuadSum kQuadSum, BlockFormat kFormat, int kVectors, size_t... kSum>
HWY_INLINE void AddBlocks(std::index_sequence<kSum...> all, const BlockTile& t,
                          typename OfTile<kSum>::Floats... sums) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(DI32()));
  constexpr int64_t kBytes = PanelBytes(kFormat);
  const DF df;
  // Adds the sum of a lane to the output, or begins it.
  const auto store = [&](int64_t lane, size_t row, int64_t first, VF sum) HWY_ATTR {
    float* const y = t.y + static_cast<int64_t>(row) * t.y_stride + first;
    const int64_t count = t.columns - first;
    if (count >= lanes) {
      hn::StoreU(lane == 0 ? sum : hn::Add(hn::LoadU(df, y), sum), df, y);
    } else if (count > 0) {
      const auto some = static_cast<size_t>(count);
      hn::StoreN(lane == 0 ? sum : hn::Add(hn::LoadN(df, y, some), sum), df, y, some);
    }
  };
  const uint8_t* panel = t.panel;
  for (int64_t lane = 0; lane < std::min(kBlockLanes, std::max<int64_t>(t.blocks, 1)); ++lane) {
    ((sums = hn::Zero(df)), ...);
    for (int64_t block = lane; block < t.blocks; block += kBlockLanes) {
      if constexpr (kFormat == BlockFormat::kQ4_K) {
        AddSuperBlock<kQuadSum, kVectors>(all, t.x, block, panel, sums...,
                                          (static_cast<void>(kSum), hn::Zero(DI32()))...,
                                          (static_cast<void>(kSum), hn::Zero(DI32()))...);
      } else {
        AddBlock<kQuadSum, kFormat, kVectors>(
            all, t.x, block, panel, sums...,
            hn::Set(DI32(), t.x[kSum / kVectors][block].initial)...);
      }
      panel += kVectors * lanes * kBytes;
    }
    (store(lane, kSum / kVectors, static_cast<int64_t>(kSum % kVectors) * lanes, sums), ...);
  }
}

template <QuadSum kQuadSum, BlockFormat kFormat, int kVectors, size_t... kSum>
HWY_INLINE void BeginTile(std::index_sequence<kSum...> all, const BlockTile& t) {
  AddBlocks<kQuadSum, kFormat, kVectors>(all, t, (static_cast<void>(kSum), hn::Zero(DF()))...);
}

template <QuadSum kQuadSum, BlockFormat kFormat, int kVectors, int kRows>
HWY_NOINLINE void SumBlocks(const BlockTile& t) {
  BeginTile<kQuadSum, kFormat, kVectors>(std::make_index_sequence<kRows * kVectors>(), t);
}

// The function for a tile of 1 + i rows is element i.
template <QuadSum kQuadSum, BlockFormat kFormat, int kVectors, int... kRow>
HWY_INLINE void SumBlocksOf(const BlockTile& t, std::integer_sequence<int, kRow...>) {
  static constexpr void (*kFunctions[])(const BlockTile&) = {
      SumBlocks<kQuadSum, kFormat, kVectors, 1 + kRow>...};
  kFunctions[t.rows - 1](t);
}

template <QuadSum kQuadSum, BlockFormat kFormat>
HWY_INLINE void SumBlocksOf(const BlockTile& t) {
  constexpr auto kRows = std::make_integer_sequence<int, int{kRowsOfTile}>();
  if (t.vectors == 1) {
    SumBlocksOf<kQuadSum, kFormat, 1>(t, kRows);
  } else {
    SumBlocksOf<kQuadSum, kFormat, 2>(t, kRows);
  }
}

void MultiplyTileImpl(const BlockTile& t) {
  quads::ForQuadSum(t.quad_sum, [&](auto quad_sum) {
    if constexpr (quad_sum() != QuadSum::kWidened) {
      if (t.format == BlockFormat::kQ4_0) return SumBlocksOf<quad_sum(), BlockFormat::kQ4_0>(t);
      if (t.format == BlockFormat::kQ4_K) return SumBlocksOf<quad_sum(), BlockFormat::kQ4_K>(t);
      if constexpr (quad_sum() != QuadSum::kPairs) SumBlocksOf<quad_sum(), BlockFormat::kQ8_0>(t);
    }
  });
}

// One dot product: the sums of four codes of a block lie in the lanes of a vector, and those of as
// many blocks as it has lanes are added up together.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
constexpr int64_t kTogether = 8;
#else
constexpr int64_t kTogether = 4;
#endif
using GI32 = hn::FixedTag<int32_t, kTogether>;
using GI8 = hn::Repartition<int8_t, GI32>;
using GU8 = hn::Repartition<uint8_t, GI32>;
using GF = hn::FixedTag<float, kTogether>;
using GVI32 = hn::Vec<GI32>;
using GVU8 = hn::Vec<GU8>;
constexpr int64_t kGroupBytes = kTogether * 4;

// Whether one instruction adds four products of u8 and s8, and none does so for s8 and s8.
template <QuadSum kQuadSum>
constexpr bool IsOfUnsigned() {
  return HWY_ARCH_X86 && (HWY_TARGET <= HWY_AVX3_DL || kQuadSum == QuadSum::kVnniVex ||
                          kQuadSum == QuadSum::kVnniEvex);
}

// Codes of w as a block has them: q of Q8_0, q + 8 of Q4_0, the codes from 16 * part on.
template <bool kNibbles>
HWY_INLINE GVU8 PackedCodes(const uint8_t* w, [[maybe_unused]] int64_t part) {
  const GU8 d8;
  if constexpr (!kNibbles) {
    return hn::LoadU(d8, w + kScaleBytes + part * 16);
  } else {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
    const hn::Repartition<uint32_t, GU8> d32;
    const auto twice = hn::BitCast(d32, hn::LoadDup128(d8, w + kScaleBytes));
    const auto shifts = hn::ConcatUpperLower(d32, hn::Set(d32, 4), hn::Zero(d32));
    return hn::And(hn::BitCast(d8, hn::Shr(twice, shifts)), hn::Set(d8, 15));
#else
    const hn::Repartition<uint16_t, GU8> d16;
    const auto bytes = hn::LoadU(d8, w + kScaleBytes);
    const auto high = hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, bytes)));
    return hn::And(part == 0 ? bytes : high, hn::Set(d8, 15));
#endif
  }
}

// The products of a block, somehow spread over the lanes. With c for the packed code and z for
// what it is of 0, sum (c - z) x = sum c x + z sum ~x + z * 32, because -x = ~x + 1.
template <QuadSum kQuadSum, bool kNibbles>
HWY_INLINE GVI32 DotOfBlock(const uint8_t* w, const uint8_t* x) {
  const GI32 d;
  const GI8 d8;
  const GU8 du8;
  constexpr int kZero = kNibbles ? 8 : 128;
  GVI32 sum = IsOfUnsigned<kQuadSum>() ? hn::Set(d, kZero * 32 / kTogether) : hn::Zero(d);
  const auto add = [&](GVU8 packed, const uint8_t* codes) HWY_ATTR {
    const auto of_x = hn::BitCast(d8, hn::LoadU(du8, codes));
    if constexpr (IsOfUnsigned<kQuadSum>()) {
      const auto zero = hn::Set(du8, kZero);
      if constexpr (!kNibbles) packed = hn::Xor(packed, zero);
#if HWY_TARGET == HWY_AVX2
      quads::Add<kQuadSum>(sum, packed, of_x);
      quads::Add<kQuadSum>(sum, zero, hn::Not(of_x));
#else
      sum = hn::SumOfMulQuadAccumulate(d, packed, of_x, sum);
      sum = hn::SumOfMulQuadAccumulate(d, zero, hn::Not(of_x), sum);
#endif
    } else {
      auto code = hn::BitCast(d8, packed);
      if constexpr (kNibbles) code = hn::Sub(code, hn::Set(d8, kZero));
      sum = hn::SumOfMulQuadAccumulate(d, code, of_x, sum);
    }
  };
  for (int64_t part = 0; part < kBlockCodes / kGroupBytes; ++part)
    add(PackedCodes<kNibbles>(w, part), x + kScaleBytes + part * 16);
  return sum;
}

// Four blocks: in each 128 bits the sums of these over what they had there.
HWY_INLINE GVI32 AddFours(GVI32 a, GVI32 b, GVI32 c, GVI32 e) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  // Highway 1.2 has no name for it.
  const auto pairs = [](GVI32 v, GVI32 w)
                         HWY_ATTR { return GVI32{_mm256_hadd_epi32(v.raw, w.raw)}; };
  return pairs(pairs(a, b), pairs(c, e));
#else
  const GI32 d;
  const hn::Repartition<int64_t, GI32> d64;
  const auto pairs = [&](GVI32 v, GVI32 w) HWY_ATTR {
    return hn::BitCast(d64, hn::Add(hn::InterleaveEven(d, v, w), hn::InterleaveOdd(d, v, w)));
  };
  const auto ab = pairs(a, b), ce = pairs(c, e);
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, ab, ce)),
                 hn::BitCast(d, hn::InterleaveUpper(d64, ab, ce)));
#endif
}

// The scales of a whole group.
template <int64_t kStep>
HWY_INLINE hn::Vec<GF> ScalesOfGroup(const uint8_t* at) {
  const auto four = [&](int64_t i) {
    const auto half = [&](int64_t block) { return uint64_t{HalfAt(at + block * kStep)}; };
    return half(i) | half(i + 1) << 16 | half(i + 2) << 32 | half(i + 3) << 48;
  };
  const hn::FixedTag<uint64_t, 2> d64;
  const hn::FixedTag<uint16_t, 8> d16;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  const auto all = hn::InterleaveLower(d64, hn::Set(d64, four(0)), hn::Set(d64, four(4)));
  return FloatsOfHalves(GF(), hn::BitCast(d16, all));
#else
  return FloatsOfHalves(GF(), hn::LowerHalf(hn::BitCast(d16, hn::Set(d64, four(0)))));
#endif
}

template <QuadSum kQuadSum, bool kNibbles>
HWY_INLINE float Dot(const uint8_t* w, const uint8_t* x, int64_t blocks) {
  constexpr int64_t kW = kNibbles ? 18 : 34, kX = 34;
  const GI32 d;
  const GF df;
  const hn::FixedTag<float, kBlockLanes> dl;
  auto lanes = hn::Zero(dl);
  for (; blocks >= kTogether; blocks -= kTogether, w += kTogether * kW, x += kTogether * kX) {
    const auto of_block = [&](int64_t i) HWY_ATTR {
      return DotOfBlock<kQuadSum, kNibbles>(w + i * kW, x + i * kX);
    };
    GVI32 products = AddFours(of_block(0), of_block(1), of_block(2), of_block(3));
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
    const GVI32 more = AddFours(of_block(4), of_block(5), of_block(6), of_block(7));
    products =
        hn::Add(hn::ConcatLowerLower(d, more, products), hn::ConcatUpperUpper(d, more, products));
#endif
    const auto scales = hn::Mul(ScalesOfGroup<kW>(w), ScalesOfGroup<kX>(x));
    const auto terms = hn::Mul(hn::ConvertTo(df, products), scales);
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
    lanes = hn::Add(hn::Add(lanes, hn::LowerHalf(dl, terms)), hn::UpperHalf(dl, terms));
#else
    lanes = hn::Add(lanes, terms);
#endif
  }
  HWY_ALIGN float sums[kBlockLanes];
  hn::Store(lanes, dl, sums);
  for (int64_t lane = 0; lane < blocks; ++lane, w += kW, x += kX) {
    const int32_t products = hn::ReduceSum(d, DotOfBlock<kQuadSum, kNibbles>(w, x));
    sums[lane % kBlockLanes] +=
        static_cast<float>(products) * (FloatOfHalf(HalfAt(w)) * FloatOfHalf(HalfAt(x)));
  }
  return ((sums[0] + sums[1]) + sums[2]) + sums[3];
}

// Of Q4_K. Two products of a code of 4 bits and one of x fit int16, and two of such sums times s
// int32.
float DotOfSuperBlocks(const uint8_t* w, const uint8_t* x, int64_t blocks) {
  const GI32 d;
  const hn::Repartition<int16_t, GI32> d16;
  const hn::Repartition<uint16_t, GI32> du16;
  const GI8 d8;
  const GU8 du8;
  const auto low = hn::Set(du8, 15);
  float sums[kBlockLanes] = {};
  for (int64_t b = 0; b < blocks; ++b) {
    const SixBits factors(w + 2 * kScaleBytes);
    GVI32 codes = hn::Zero(d), minima = hn::Zero(d);
    for (int64_t part = 0; part < kParts; ++part) {
      const auto s = hn::Set(d16, factors.s[part]);
      for (int64_t k = 0; k < kBlockCodes; k += kGroupBytes) {
        auto code = hn::LoadU(du8, w + 16 + part / 2 * kBlockCodes + k);
        if (part % 2 != 0) code = hn::BitCast(du8, hn::ShiftRight<4>(hn::BitCast(du16, code)));
        const auto of_x = hn::BitCast(d8, hn::LoadU(du8, x + 4 + part * kBlockCodes + k));
        const auto pairs = hn::SatWidenMulPairwiseAdd(d16, hn::And(code, low), of_x);
        codes = hn::Add(codes, hn::WidenMulPairwiseAdd(d, pairs, s));
      }
    }
    HWY_ALIGN int16_t twice[2 * kParts];
    for (int64_t i = 0; i < 2 * kParts; ++i) twice[i] = factors.z[i / 2];
    for (int64_t i = 0; i < 2 * kParts; i += 2 * kTogether) {
      const auto of_x = hn::BitCast(d16, hn::LoadU(du8, x + kSumsAt + 2 * i));
      minima = hn::Add(minima, hn::WidenMulPairwiseAdd(d, of_x, hn::Load(d16, twice + i)));
    }
    sums[b % kBlockLanes] +=
        Term(hn::ReduceSum(d, codes), w, hn::ReduceSum(d, minima), w + kScaleBytes, FloatAt(x));
    w += BlockBytes(BlockFormat::kQ4_K);
    x += BlockBytes(BlockFormat::kQ8_K);
  }
  return ((sums[0] + sums[1]) + sums[2]) + sums[3];
}

float DotImpl(BlockFormat format, const uint8_t* w, const uint8_t* x, int64_t blocks) {
  if (format == BlockFormat::kQ4_K) return DotOfSuperBlocks(w, x, blocks);
  const auto dot = [&](auto quad_sum) HWY_ATTR {
    return format == BlockFormat::kQ4_0 ? Dot<quad_sum(), true>(w, x, blocks)
                                        : Dot<quad_sum(), false>(w, x, blocks);
  };
  using Highway = std::integral_constant<QuadSum, QuadSum::kHighway>;
#if HWY_TARGET == HWY_AVX2
  const QuadSum quad_sum = internal::TargetQuadSum();
  if (quad_sum == QuadSum::kVnniVex)
    return dot(std::integral_constant<QuadSum, QuadSum::kVnniVex>());
  if (quad_sum == QuadSum::kVnniEvex)
    return dot(std::integral_constant<QuadSum, QuadSum::kVnniEvex>());
#endif
  return dot(Highway());
}

#endif  // HWY_TARGET == HWY_SCALAR

BlockTraits BlockTraitsImpl(BlockFormat format) {
  const bool supers = format == BlockFormat::kQ4_K;
  const bool nibbles = supers || format == BlockFormat::kQ4_0;
  QuadSum quad_sum = internal::TargetQuadSum();
#if HWY_TARGET != HWY_SCALAR
  if (nibbles && quad_sum == QuadSum::kHighway && quads::Has(QuadSum::kPairs))
    quad_sum = QuadSum::kPairs;
#endif
  const bool of_signed = quad_sum == QuadSum::kDot;
  return {.target = internal::TargetId(),
          .quad_sum = quad_sum,
          .lanes = LanesOfTarget(),
          .panel_vectors = kVectorsOfPanel,
          .most_rows = kRowsOfTile,
          .zero = supers      ? 0
                  : nibbles   ? 8
                  : of_signed ? 0
                              : 128,
          .flip = static_cast<uint8_t>(nibbles || of_signed ? 0 : 0x80)};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels {

HWY_EXPORT(BlockTraitsImpl);
HWY_EXPORT(MultiplyTileImpl);
HWY_EXPORT(DotImpl);

namespace internal {

BlockTraits CurrentBlockTraits(BlockFormat format) {
  return QUALM_DISPATCH(BlockTraitsImpl)(format);
}
void MultiplyTile(const BlockTile& tile) { QUALM_DISPATCH(MultiplyTileImpl)(tile); }
float DotOfBlocks(BlockFormat format, const uint8_t* w, const uint8_t* x, int64_t blocks) {
  return QUALM_DISPATCH(DotImpl)(format, w, x, blocks);
}

Status CheckBlocks(std::string_view name, const ConstBlocks& m) {
  const auto of = [&](const char* what) { return std::string(name) + what; };
  if (!IsBlockFormat(m.format)) return {of(".format is unknown, expected one of BlockFormat")};
  if (m.rows < 0) return IsButExpected(of(".rows"), m.rows, "0 or more");
  if (m.blocks < 0 || m.blocks > kMostBlocks)
    return IsButExpected(of(".blocks"), m.blocks, "0 to 2^40");
  if (m.rows == 0 || m.blocks == 0) return {};
  const int64_t bytes = m.blocks * BlockBytes(m.format);
  if (m.row_stride < bytes)
    return IsButExpected(of(".row_stride"), m.row_stride,
                         "the bytes of a row, " + std::to_string(bytes) + ", or more");
  if (m.rows > 1 && m.row_stride > INT64_MAX / m.rows)
    return IsButExpected(of(".row_stride"), m.row_stride, "a matrix of fewer bytes");
  if (m.data == nullptr) return {of(".data is null, expected the blocks")};
  return {};
}

}  // namespace internal
}  // namespace qualm::kernels
#endif  // HWY_ONCE
