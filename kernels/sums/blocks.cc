// SPDX-License-Identifier: Apache-2.0
// Why these loops give the bits that block_linear.h promises. Codes of w are unsigned here, or s8
// where the instruction wants that: w = packed - zero, so s_b = sum packed * x - zero * sum x, and
// the second part is the initial value of the sum. All of it is exact in int32, and quads-inl.h
// adds products of a u8 and a s8 without saturation; kPairs is used for codes of 4 bits alone, of
// which two products are at most 2 * 15 * 128 < 2^15. The float operations are those of the header,
// in that order, and never fused: a fused sum would be another number, and not all targets have it.
#include "kernels/sums/blocks.h"

#include <algorithm>
#include <cstddef>
#include <utility>

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
using internal::FloatOfHalf;
using internal::HalfAt;
using internal::QuadSum;

constexpr int64_t kScaleBytes = 2;

#if HWY_TARGET == HWY_SCALAR

// Vectors have one lane here, and Highway's pairwise operations find no pair: plain code.
constexpr int64_t kLanes = 4, kVectorsOfPanel = 1, kRowsOfTile = 1;
int64_t LanesOfTarget() { return kLanes; }

int32_t CodeOfQ4(uint8_t byte, int64_t k) { return k < 16 ? byte & 15 : byte >> 4; }

void MultiplyTileImpl(const BlockTile& t) {
  const bool nibbles = t.format == BlockFormat::kQ4_0;
  const int64_t code_bytes = kLanes * (BlockBytes(t.format) - kScaleBytes);
  for (int64_t n = 0; n < t.columns; ++n) {
    float sum = 0;
    const uint8_t* at = t.panel;
    for (int64_t b = 0; b < t.blocks; ++b, at += kLanes * kScaleBytes + code_bytes) {
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
    t.y[n] = sum;
  }
}

float DotImpl(BlockFormat format, const uint8_t* w, const uint8_t* x, int64_t blocks) {
  const bool nibbles = format == BlockFormat::kQ4_0;
  float sum = 0;
  for (; blocks > 0; --blocks, w += BlockBytes(format), x += BlockBytes(BlockFormat::kQ8_0)) {
    int32_t products = 0;
    for (int64_t k = 0; k < kBlockCodes; ++k) {
      const uint8_t packed = w[kScaleBytes + (nibbles ? k % 16 : k)];
      products += (nibbles ? CodeOfQ4(packed, k) - 8 : static_cast<int8_t>(packed)) *
                  static_cast<int8_t>(x[kScaleBytes + k]);
    }
    sum += static_cast<float>(products) * (FloatOfHalf(HalfAt(w)) * FloatOfHalf(HalfAt(x)));
  }
  return sum;
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

// One block of all rows: its integer sums begin as `products`.
template <QuadSum kQuadSum, bool kNibbles, int kVectors, size_t... kSum>
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
  if constexpr (kNibbles) {
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

template <QuadSum kQuadSum, bool kNibbles, int kVectors, size_t... kSum>
HWY_INLINE void AddBlocks(std::index_sequence<kSum...> all, const BlockTile& t,
                          typename OfTile<kSum>::Floats... sums) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(DI32()));
  constexpr int64_t kBytes = kNibbles ? 18 : 34;
  const uint8_t* panel = t.panel;
  for (int64_t block = 0; block < t.blocks; ++block, panel += kVectors * lanes * kBytes) {
    AddBlock<kQuadSum, kNibbles, kVectors>(all, t.x, block, panel, sums...,
                                           hn::Set(DI32(), t.x[kSum / kVectors][block].initial)...);
  }
  const DF df;
  const auto store = [&](size_t row, int64_t first, VF sum) HWY_ATTR {
    float* const y = t.y + static_cast<int64_t>(row) * t.y_stride + first;
    const int64_t count = t.columns - first;
    if (count >= lanes) {
      hn::StoreU(sum, df, y);
    } else if (count > 0) {
      hn::StoreN(sum, df, y, static_cast<size_t>(count));
    }
  };
  (store(kSum / kVectors, static_cast<int64_t>(kSum % kVectors) * lanes, sums), ...);
}

template <QuadSum kQuadSum, bool kNibbles, int kVectors, size_t... kSum>
HWY_INLINE void BeginTile(std::index_sequence<kSum...> all, const BlockTile& t) {
  AddBlocks<kQuadSum, kNibbles, kVectors>(all, t, (static_cast<void>(kSum), hn::Zero(DF()))...);
}

template <QuadSum kQuadSum, bool kNibbles, int kVectors, int kRows>
HWY_NOINLINE void SumBlocks(const BlockTile& t) {
  BeginTile<kQuadSum, kNibbles, kVectors>(std::make_index_sequence<kRows * kVectors>(), t);
}

// The function for a tile of 1 + i rows is element i.
template <QuadSum kQuadSum, bool kNibbles, int kVectors, int... kRow>
HWY_INLINE void SumBlocksOf(const BlockTile& t, std::integer_sequence<int, kRow...>) {
  static constexpr void (*kFunctions[])(const BlockTile&) = {
      SumBlocks<kQuadSum, kNibbles, kVectors, 1 + kRow>...};
  kFunctions[t.rows - 1](t);
}

template <QuadSum kQuadSum, bool kNibbles>
HWY_INLINE void SumBlocksOf(const BlockTile& t) {
  constexpr auto kRows = std::make_integer_sequence<int, int{kRowsOfTile}>();
  if (t.vectors == 1) {
    SumBlocksOf<kQuadSum, kNibbles, 1>(t, kRows);
  } else {
    SumBlocksOf<kQuadSum, kNibbles, 2>(t, kRows);
  }
}

void MultiplyTileImpl(const BlockTile& t) {
  quads::ForQuadSum(t.quad_sum, [&](auto quad_sum) {
    if constexpr (quad_sum() != QuadSum::kWidened) {
      if (t.format == BlockFormat::kQ4_0) return SumBlocksOf<quad_sum(), true>(t);
      if constexpr (quad_sum() != QuadSum::kPairs) SumBlocksOf<quad_sum(), false>(t);
    }
  });
}

// One dot product: the four-code sums of a block lie in the lanes of a vector, and those of as many
// blocks as it has lanes are added up together, pair by pair.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
constexpr int64_t kTogether = 8;
#else
constexpr int64_t kTogether = 4;
#endif
using GI32 = hn::FixedTag<int32_t, kTogether>;
using GI8 = hn::Repartition<int8_t, GI32>;
using GF = hn::FixedTag<float, kTogether>;
using GVI32 = hn::Vec<GI32>;
using GVI8 = hn::Vec<GI8>;

// sum + four products in each lane.
template <QuadSum kQuadSum>
HWY_INLINE GVI32 AddDot(GVI32 sum, GVI8 w, GVI8 x) {
  const GI32 d;
  [[maybe_unused]] const hn::Repartition<uint8_t, GI32> d8;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
  const auto flip = hn::Set(d8, 0x80);
  const auto products = hn::SumOfMulQuadAccumulate(d, hn::Xor(hn::BitCast(d8, w), flip), x, sum);
  return hn::Sub(products, hn::SumOfMulQuadAccumulate(d, flip, x, hn::Zero(d)));
#else
  if constexpr (kQuadSum == QuadSum::kVnniVex || kQuadSum == QuadSum::kVnniEvex) {
    const auto flip = hn::Set(d8, 0x80);
    GVI32 flipped = hn::Zero(d);
    quads::Add<kQuadSum>(sum, hn::Xor(hn::BitCast(d8, w), flip), x);
    quads::Add<kQuadSum>(flipped, flip, x);
    return hn::Sub(sum, flipped);
  } else {
    return hn::SumOfMulQuadAccumulate(d, w, x, sum);
  }
#endif
}

// The products of a block, somehow spread over the lanes.
template <QuadSum kQuadSum, bool kNibbles>
HWY_INLINE GVI32 DotOfBlock(const uint8_t* w, const uint8_t* x) {
  const GI8 d8;
  const GI32 d;
  const auto* const codes = reinterpret_cast<const int8_t*>(w + kScaleBytes);
  const auto* const of_x = reinterpret_cast<const int8_t*>(x + kScaleBytes);
  const auto from_nibbles = [&](auto bytes) HWY_ATTR {
    return hn::Sub(hn::BitCast(d8, bytes), hn::Set(d8, 8));
  };
  const hn::FixedTag<uint8_t, 16> d16;
  const auto low_half = [&](auto bytes) HWY_ATTR { return hn::And(bytes, hn::Set(d16, 15)); };
  const auto high_half = [&](auto bytes) HWY_ATTR {
    const hn::FixedTag<uint16_t, 8> pairs;
    return low_half(hn::BitCast(d16, hn::ShiftRight<4>(hn::BitCast(pairs, bytes))));
  };
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  GVI8 all;
  if constexpr (kNibbles) {
    const auto bytes = hn::LoadU(d16, w + kScaleBytes);
    const hn::Repartition<uint8_t, GI8> du8;
    all = from_nibbles(hn::Combine(du8, high_half(bytes), low_half(bytes)));
  } else {
    all = hn::LoadU(d8, codes);
  }
  return AddDot<kQuadSum>(hn::Zero(d), all, hn::LoadU(d8, of_x));
#else
  GVI8 first = hn::Zero(d8), second = first;
  if constexpr (kNibbles) {
    const auto bytes = hn::LoadU(d16, w + kScaleBytes);
    first = from_nibbles(low_half(bytes));
    second = from_nibbles(high_half(bytes));
  } else {
    first = hn::LoadU(d8, codes);
    second = hn::LoadU(d8, codes + 16);
  }
  const GVI32 sum = AddDot<kQuadSum>(hn::Zero(d), first, hn::LoadU(d8, of_x));
  return AddDot<kQuadSum>(sum, second, hn::LoadU(d8, of_x + 16));
#endif
}

// Sums of neighbours, those of a before those of b.
HWY_INLINE GVI32 AddPairs(GVI32 a, GVI32 b) {
  const GI32 d;
  return hn::Add(hn::ConcatEven(d, b, a), hn::ConcatOdd(d, b, a));
}

// The float16 at every `step` bytes, as many as a group has.
HWY_INLINE hn::Vec<GF> ScalesAt(const uint8_t* at, int64_t step, int64_t last) {
  const auto half = [&](int64_t i) { return uint64_t{HalfAt(at + std::min(i, last) * step)}; };
  const auto four = [&](int64_t i) {
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

// The terms of blocks 0 .. last of a group. Behind them there is nothing to read: block `last`
// again stands for those.
template <QuadSum kQuadSum, bool kNibbles>
HWY_INLINE hn::Vec<GF> TermsOf(const uint8_t* w, const uint8_t* x, int64_t last) {
  constexpr int64_t kW = kNibbles ? 18 : 34, kX = 34;
  const auto of_block = [&](int64_t i) HWY_ATTR {
    i = std::min(i, last);
    return DotOfBlock<kQuadSum, kNibbles>(w + i * kW, x + i * kX);
  };
  const auto of_four = [&](int64_t i) HWY_ATTR {
    return AddPairs(AddPairs(of_block(i), of_block(i + 1)),
                    AddPairs(of_block(i + 2), of_block(i + 3)));
  };
  GVI32 products = of_four(0);
  if constexpr (kTogether == 8) products = AddPairs(products, of_four(4));
  const GF df;
  const auto scales = hn::Mul(ScalesAt(w, kW, last), ScalesAt(x, kX, last));
  return hn::Mul(hn::ConvertTo(df, products), scales);
}

template <QuadSum kQuadSum, bool kNibbles>
HWY_INLINE float Dot(const uint8_t* w, const uint8_t* x, int64_t blocks) {
  constexpr int64_t kW = kNibbles ? 18 : 34, kX = 34;
  HWY_ALIGN float terms[kTogether];
  float sum = 0;
  for (; blocks >= kTogether; blocks -= kTogether, w += kTogether * kW, x += kTogether * kX) {
    hn::Store(TermsOf<kQuadSum, kNibbles>(w, x, kTogether - 1), GF(), terms);
    for (const float term : terms) sum += term;
  }
  if (blocks > 0) {
    hn::Store(TermsOf<kQuadSum, kNibbles>(w, x, blocks - 1), GF(), terms);
    for (int64_t i = 0; i < blocks; ++i) sum += terms[i];
  }
  return sum;
}

float DotImpl(BlockFormat format, const uint8_t* w, const uint8_t* x, int64_t blocks) {
  float sum = 0;
  quads::ForQuadSum(internal::TargetQuadSum(), [&](auto quad_sum) {
    sum = format == BlockFormat::kQ4_0 ? Dot<quad_sum(), true>(w, x, blocks)
                                       : Dot<quad_sum(), false>(w, x, blocks);
  });
  return sum;
}

#endif  // HWY_TARGET == HWY_SCALAR

BlockTraits BlockTraitsImpl(BlockFormat format) {
  const bool nibbles = format == BlockFormat::kQ4_0;
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
          .zero = nibbles     ? 8
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

}  // namespace internal
}  // namespace qualm::kernels
#endif  // HWY_ONCE
