// SPDX-License-Identifier: Apache-2.0
// int32 sums to codes, rounded once, in float32: the end of a tile of linear, conv2d and depthwise.
// Included after hwy/highway.h by files that hwy/foreach_target.h compiles again and again.
//
// Write v = S*m for the real value, S the sum and m the real multiplier, M for m rounded to float32
// (a normal number) and F for S rounded to float32. RNE(v) matters only where |v| <= 256.5, which
// Epilogue::MakeCodePlan requires of bounds and zero point; for larger |v| any number beyond the
// same bound gives the same code.
//
// Multipliers that are exact: t = fma(F, M, 1.5*2^23), see RescalePath::kFloat32 in
//   common/rescale.cc. t - 1.5*2^23 is the difference of the bits; a maximum keeps it from
//   wrapping.
// Multipliers all of whose values are ties or further than 2^-13 from each (Plan::tie_distance):
//   fma(F, M, 1536) is rounded to a multiple of 2^-13 where v matters. Before that it is off by
//   2.01 * 2^-16, by M and by F: a tie, itself a multiple, is hit exactly. Other values are moved
//   by less than 2^-13 in all and stay on their side of each tie. Adding 1.5*2^23 - 1536 then
//   rounds to an integer, half to even, and the rest is as before.
// All others: t = F*M + 1536.5, a multiple of 2^-13 where v matters. Errors there are at most
//   1.01*2^-16 each by M, by F and by the product where it is not fused, and 2^-14 by the sum:
//   together less than 2^-13. If t is no integer, no integer lies between t and v + 1536.5, so
//   floor(t) - 1536 is floor(v + 1/2) = RNE(v), and v is no tie. floor(t) are the bits of t above
//   the lowest 13. If t is an integer (one element of 8192, and every tie), common/rescale.h
//   decides the vector. Bits of floats are ordered like the floats as long as these are positive,
//   and all negative ones are negative as integers, so that the clamp is right for every t.

#if defined(QUALM_KERNELS_SUMS_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUALM_KERNELS_SUMS_CODES_INL_H_
#undef QUALM_KERNELS_SUMS_CODES_INL_H_
#else
#define QUALM_KERNELS_SUMS_CODES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/common/fp_environment.h"
#include "kernels/sums/codes.h"

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels {
namespace HWY_NAMESPACE {

// Vectors have one lane in SCALAR: nothing to narrow.
#if HWY_TARGET == HWY_SCALAR
constexpr bool kHasCodes = false;
namespace codes {
constexpr bool kNeedsEnvironment = true;
}
#else
constexpr bool kHasCodes = true;

namespace codes {
namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using DI32 = hn::RebindToSigned<DF>;
using DI16 = hn::Repartition<int16_t, DF>;
using DU8 = hn::Repartition<uint8_t, DF>;
using VF = hn::Vec<DF>;
using VI32 = hn::Vec<DI32>;
using VU8 = hn::Vec<DU8>;
using MI32 = hn::Mask<DI32>;

// What rounds, to nearest and half to even. AVX-512 instructions carry that in them, together with
// silence about exceptions, and no operand or result here is subnormal: the control word does not
// matter, and small calls need not set it, which takes as long as their sums. Decide sets it.
#if HWY_TARGET <= HWY_AVX3
constexpr bool kNeedsEnvironment = false;
constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
HWY_INLINE VF RoundedFloat(VI32 v) { return VF{_mm512_cvt_roundepi32_ps(v.raw, kNearest)}; }
HWY_INLINE VF RoundedMulAdd(VF a, VF b, VF c) {
  return VF{_mm512_fmadd_round_ps(a.raw, b.raw, c.raw, kNearest)};
}
HWY_INLINE VF RoundedSum(VF a, VF b) { return VF{_mm512_add_round_ps(a.raw, b.raw, kNearest)}; }
#else
constexpr bool kNeedsEnvironment = true;
HWY_INLINE VF RoundedFloat(VI32 v) { return hn::ConvertTo(DF(), v); }
HWY_INLINE VF RoundedMulAdd(VF a, VF b, VF c) { return hn::MulAdd(a, b, c); }
HWY_INLINE VF RoundedSum(VF a, VF b) { return hn::Add(a, b); }
#endif

// The bits of t of the second kind, and which of them are integers.
HWY_INLINE VI32 Bits(VI32 sums, VF m) {
  return hn::BitCast(DI32(), RoundedMulAdd(RoundedFloat(sums), m, hn::Set(DF(), 1536.5f)));
}
HWY_INLINE MI32 IsInteger(VI32 t) {
  return hn::Eq(hn::And(t, hn::Set(DI32(), 0x1FFF)), hn::Zero(DI32()));
}

// Leaves in `decided` the lanes that have no integer here either.
HWY_INLINE void KeepDecided(VI32 t, MI32& decided) {
#if HWY_TARGET <= HWY_AVX3
  // A test under a mask combines two. Without the empty asm the compiler turns the conjunction into
  // a disjunction of single tests.
  decided = hn::And(decided, hn::Ne(hn::And(t, hn::Set(DI32(), 0x1FFF)), hn::Zero(DI32())));
  __asm__("" : "+k"(decided.raw));
#else
  decided = hn::AndNot(IsInteger(t), decided);
#endif
}

// RNE(sum * m) + zero_point, or anything where `decided` becomes false.
template <bool kExact>
HWY_INLINE VI32 Round(VI32 sums, VF m, VF origin, VF to_integer, int32_t zero_point,
                      MI32& decided) {
  const DF df;
  const DI32 di;
  if constexpr (kExact) {
    const VF integer = RoundedSum(RoundedMulAdd(RoundedFloat(sums), m, origin), to_integer);
    const VF t = hn::Max(integer, hn::Set(df, 0x1.7ep23f));
    return hn::Sub(hn::BitCast(di, t), hn::Set(di, 0x4B400000 - zero_point));
  } else {
    const VI32 t = Bits(sums, m);
    KeepDecided(t, decided);
    return hn::Sub(hn::ShiftRight<13>(t), hn::Set(di, (0x44C00000 >> 13) - zero_point));
  }
}

// The order of the channels in lanes: ascending, or, within 16 channels, the order in which bytes
// of four vectors are interleaved (depthwise_lines.h).
enum class Order { kChannels, kBlocks };

#if HWY_TARGET_IS_SVE
constexpr bool kHasBlocks = false;
#else
constexpr bool kHasBlocks = true;
#endif

// Bytes of four vectors, saturated to 0..255, in the order of channels.
template <Order kOrder>
HWY_INLINE VU8 ToBytes(VI32 n0, VI32 n1, VI32 n2, VI32 n3) {
  const DI16 d16;
  const DU8 d8;
  constexpr bool kInBlocks = kOrder == Order::kBlocks && kHasBlocks;
  if constexpr (kInBlocks || HWY_TARGET <= HWY_AVX3) {
    // Demotion keeps four bytes of a block of each vector together, and these in their order.
    const VU8 blocks = hn::ReorderDemote2To(d8, hn::ReorderDemote2To(d16, n0, n1),
                                            hn::ReorderDemote2To(d16, n2, n3));
    if constexpr (kInBlocks) return blocks;
    HWY_ALIGN static constexpr int32_t kPlaces[16] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                      2, 6, 10, 14, 3, 7, 11, 15};
    const DI32 di;
    return hn::BitCast(
        d8, hn::TableLookupLanes(hn::BitCast(di, blocks), hn::SetTableIndices(di, kPlaces)));
  } else {
    return hn::OrderedDemote2To(d8, hn::OrderedDemote2To(d16, n0, n1),
                                hn::OrderedDemote2To(d16, n2, n3));
  }
}

// Decides the elements of one row that Round has left undecided.
inline HWY_NOINLINE void Decide(const CodePlan& plan, const int32_t* sums, const CodesOut& out,
                                uint8_t* y) {
  const ScopedFpEnvironment fp_environment;
  const DI32 di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(di));
  const internal::Rescale& rescale = *plan.rescale;
  if (rescale.plan().on_grid) {  // the whole row costs little more than a vector of it
    const size_t count = static_cast<size_t>(out.count);
    rescale.plan().streams
        ? rescale.CodesNearTies(sums, count, y)
        : rescale.CodesFromSums(sums, static_cast<size_t>(out.channel), count, y);
    return;
  }
  for (int64_t first = 0; first < out.count; first += lanes) {
    const VF m = hn::LoadU(DF(), plan.multiplier.data() + out.channel + first);
    if (hn::AllFalse(di, IsInteger(Bits(hn::LoadU(di, sums + first), m)))) continue;
    rescale.CodesFromSums(sums + first, static_cast<size_t>(out.channel + first),
                          static_cast<size_t>(std::min(lanes, out.count - first)), y + first);
  }
}

// The same for lanes in the order kBlocks.
inline HWY_NOINLINE void DecideBlocks(const CodePlan& plan, const int32_t* sums,
                                      const CodesOut& out, uint8_t* y) {
  HWY_ALIGN int32_t in_order[4 * hn::MaxLanes(DI32())];
  const size_t lanes = hn::Lanes(DI32());
  for (size_t v = 0; v < 4; ++v) {
    for (size_t lane = 0; lane < lanes; lane += 4) {
      hn::Store(hn::Load(hn::FixedTag<int32_t, 4>(), sums + v * lanes + lane),
                hn::FixedTag<int32_t, 4>(), in_order + 4 * lane + 4 * v);
    }
  }
  Decide(plan, in_order, out, y);
}

// The codes of kRows rows, which follow each other in `bytes`, each in its place.
template <int kRows, class D, class V = hn::Vec<D> >
HWY_INLINE void StoreRows(D d, V bytes, uint8_t* y, int64_t y_stride, size_t count) {
  if constexpr (kRows > 1) {
    const hn::Half<D> half;
    StoreRows<kRows / 2>(half, hn::LowerHalf(half, bytes), y, y_stride, count);
    StoreRows<kRows / 2>(half, hn::UpperHalf(half, bytes), y + kRows / 2 * y_stride, y_stride,
                         count);
  } else if (HWY_LIKELY(count == hn::Lanes(d))) {
    hn::StoreU(bytes, d, y);
  } else {
    hn::StoreN(bytes, d, y, count);
  }
}

// Rows of sums of kVectors vectors of channels: sums_of(r, s0, s1, s2, s3) computes those of a row.
// kRows rows of one or two vectors, which fill four, are narrowed and stored together: sums_of has
// then the sums of as many rows from r on, vector by vector.
// Codes are computed from 0 on: s8 codes are moved up by 128, and down again by a flip of their
// highest bit. undecided(r, y, s0, s1, s2, s3) has the rows whose codes Decide must write again.
template <int kVectors, int kRows, Order kOrder, bool kExact, class SumsOf, class Undecided>
HWY_INLINE void OfRows(const CodePlan& plan, const float* multiplier, int64_t rows,
                       const CodesOut& out, const SumsOf& sums_of, const Undecided& undecided) {
  static_assert(kRows == 1 || kRows * kVectors == 4);
  const DF df;
  const DI32 di;
  const DU8 d8;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(di));
  const auto multiplier_of = [&](int vector) HWY_ATTR {
    const int of_row = vector % kVectors;
    return hn::LoadU(df, multiplier + (vector < kVectors * kRows ? of_row * lanes : 0));
  };
  const VF m0 = multiplier_of(0);
  const VF m1 = multiplier_of(1);
  const VF m2 = multiplier_of(2);
  const VF m3 = multiplier_of(3);
  const VF origin = hn::Set(df, plan.origin);
  const VF to_integer = hn::Set(df, plan.to_integer);
  const int32_t up = plan.is_signed ? 128 : 0;
  const int32_t zero_point = plan.zero_point + up;
  const VU8 lo = hn::Set(d8, static_cast<uint8_t>(plan.lo + up));
  const VU8 hi = hn::Set(d8, static_cast<uint8_t>(plan.hi + up));
  const VU8 flip = hn::Set(d8, static_cast<uint8_t>(up));
  const bool is_narrower = plan.is_signed || plan.lo > 0 || plan.hi < 255;  // than saturation
  const size_t count = static_cast<size_t>(out.count);
  const auto round = [&](VI32 sums, VF m, MI32& decided) HWY_ATTR {
    return Round<kExact>(sums, m, origin, to_integer, zero_point, decided);
  };
  uint8_t* y = out.y;
  for (int64_t r = 0; r < rows; r += kRows, y += kRows * out.y_stride) {
    VI32 s0, s1, s2, s3;
    sums_of(r, s0, s1, s2, s3);
    MI32 decided = hn::Not(hn::MaskFalse(di));
    const VI32 n0 = round(s0, m0, decided);
    VI32 n1 = n0, n2 = n0, n3 = n0;
    if constexpr (kVectors * kRows > 1) n1 = round(s1, m1, decided);
    if constexpr (kVectors * kRows > 2) n2 = round(s2, m2, decided);
    if constexpr (kVectors * kRows > 3) n3 = round(s3, m3, decided);
    VU8 bytes = ToBytes<kOrder>(n0, n1, n2, n3);
    if (is_narrower) bytes = hn::Xor(hn::Min(hn::Max(bytes, lo), hi), flip);
    if constexpr (kRows > 1) {
      StoreRows<kRows>(d8, bytes, y, out.y_stride, count);
    } else if (kVectors == 4 && HWY_LIKELY(count == hn::Lanes(d8))) {
      hn::StoreU(bytes, d8, y);
    } else if (kVectors == 2 && HWY_LIKELY(2 * count == hn::Lanes(d8))) {
      hn::StoreU(hn::LowerHalf(bytes), hn::Half<DU8>(), y);
    } else {
      hn::StoreN(bytes, d8, y, count);
    }
    if (!kExact && HWY_UNLIKELY(!hn::AllTrue(di, decided))) undecided(r, y, s0, s1, s2, s3);
  }
}

template <int kVectors, Order kOrder, int kRows = 1, class SumsOf, class Undecided>
HWY_INLINE void OfRows(const CodePlan& plan, const float* multiplier, int64_t rows,
                       const CodesOut& out, const SumsOf& sums_of, const Undecided& undecided) {
#if HWY_NATIVE_FMA
  if (plan.is_exact) {
    return OfRows<kVectors, kRows, kOrder, true>(plan, multiplier, rows, out, sums_of, undecided);
  }
#endif
  OfRows<kVectors, kRows, kOrder, false>(plan, multiplier, rows, out, sums_of, undecided);
}

// The same for sums in memory, a row each `sums_step`. `rows` is a multiple of kRows.
template <int kVectors, Order kOrder, int kRows>
HWY_INLINE void OfWholeRows(const CodePlan& plan, const float* multiplier, const int32_t* sums,
                            int64_t sums_step, int64_t rows, const CodesOut& out) {
  const DI32 di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(di));
  // Vector v of those that are narrowed together.
  const auto vector = [=](const int32_t* row, int v) HWY_ATTR {
    return hn::LoadU(di, row + v / kVectors * sums_step + v % kVectors * lanes);
  };
  OfRows<kVectors, kOrder, kRows>(
      plan, multiplier, rows, out,
      [&](int64_t r, VI32& s0, VI32& s1, VI32& s2, VI32& s3) HWY_ATTR {
        const int32_t* const row = sums + r * sums_step;
        s0 = s1 = s2 = s3 = vector(row, 0);
        if constexpr (kVectors * kRows > 1) s1 = vector(row, 1);
        if constexpr (kVectors * kRows > 2) s2 = vector(row, 2);
        if constexpr (kVectors * kRows > 3) s3 = vector(row, 3);
      },
      [&](int64_t r, uint8_t* y, VI32, VI32, VI32, VI32) HWY_ATTR {
        for (int64_t i = 0; i < kRows; ++i, y += out.y_stride) {
          const int32_t* const row = sums + (r + i) * sums_step;
          kOrder == Order::kBlocks ? DecideBlocks(plan, row, out, y) : Decide(plan, row, out, y);
        }
      });
}

template <int kVectors, Order kOrder>
void OfRows(const CodePlan& plan, const float* multiplier, const int32_t* sums, int64_t sums_step,
            int64_t rows, CodesOut out) {
#if HWY_TARGET_IS_SVE
  constexpr int kRows = 1;  // parts of vectors are dear
#else
  constexpr int kRows = kOrder == Order::kChannels && 4 % kVectors == 0 ? 4 / kVectors : 1;
#endif
  const int64_t whole = rows - rows % kRows;
  if (kRows > 1 && whole > 0) {
    OfWholeRows<kVectors, kOrder, kRows>(plan, multiplier, sums, sums_step, whole, out);
    sums += whole * sums_step;
    out.y += whole * out.y_stride;
  }
  if (whole == rows && kRows > 1) return;
  OfWholeRows<kVectors, kOrder, 1>(plan, multiplier, sums, sums_step,
                                   kRows > 1 ? rows - whole : rows, out);
}

}  // namespace codes
#endif

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels
HWY_AFTER_NAMESPACE();

#endif  // QUALM_KERNELS_SUMS_CODES_INL_H_
