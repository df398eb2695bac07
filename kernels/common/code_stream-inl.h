// SPDX-License-Identifier: Apache-2.0
// Streams of codes: y[i] = clamp(RNE(v_i) + z) for values v_i that float32 knows exactly or nearly.
// Four vectors of floats become one of bytes. Included after hwy/highway.h by files that
// hwy/foreach_target.h compiles again and again.
//
// A caller brings each v_i in one of two forms; the zero point z is that of unsigned codes, 0..255.
//   Exact:  t = 1.5*2^23 + RNE(v), from one addition that rounds the exact v once, half to even.
//   Nearly: t = 2^(23-f) + z + 1/2 + v + e, rounded to the grid of 2^-f (f = kFraction), with an
//     error |e| of the caller's v. The bits of t above the fraction are the code floor(z + 1/2 +
//     v), and the fraction says how far v is from a tie n + 1/2: where it is further than |e| and
//     half a step of the grid, the code is RNE(v) + z. Elsewhere, once in some thousand elements or
//     where v is a tie, the caller decides again, exactly.
// Where v is so large that the spacing changes, both t still rise with v. Such v lie beyond the
// codes, and the saturating conversions end at the right bound. A NaN among the t of "nearly"
// values is found by a comparison and goes to the caller too.
//
// With a fused multiply-add all of this is scaled by 2^-73: then the bits of t above the fraction
// are 63 * 2^9 plus the code, and fit int16. A product that underflows does no harm, because a
// fused one is not rounded. Without fusion nothing is scaled, and one more subtraction makes the
// bits fit.

#if defined(QUALM_KERNELS_CODE_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUALM_KERNELS_CODE_STREAM_INL_H_
#undef QUALM_KERNELS_CODE_STREAM_INL_H_
#else
#define QUALM_KERNELS_CODE_STREAM_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/common/unsigned_codes.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using StreamD = hn::ScalableTag<float>;
using StreamInt = hn::RebindToSigned<StreamD>;
using StreamV = hn::Vec<StreamD>;

// The grid of values that are nearly known.
constexpr int kFraction = HWY_NATIVE_FMA ? 14 : 13;
constexpr int32_t kFractionMask = (1 << kFraction) - 1;
constexpr double kGridStep = 1.0 / (1 << kFraction);
constexpr float kGridScale = HWY_NATIVE_FMA ? 0x1p-73f : 1.0f;
constexpr int32_t kGridBase = HWY_NATIVE_FMA ? 63 << 9 : 137 << 10;  // the bits of code 0
constexpr float kGridStart = 1 << (23 - kFraction);

// The constant to which v is added: exact, for v in units of kGridScale.
HWY_INLINE float GridOrigin(UnsignedCodes to) {
  return (kGridStart + static_cast<float>(to.zero_point) + 0.5f) * kGridScale;
}

#if HWY_TARGET != HWY_SCALAR

// Whether none of four vectors on the grid has a fraction of 0, apart from bits outside the mask.
template <bool kMayBeNaN>
HWY_INLINE bool AreDecided(StreamV a, StreamV b, StreamV c, StreamV d, int32_t fraction_mask) {
  const StreamD df;
  const StreamInt di;
  const auto mask = hn::Set(di, fraction_mask);
  const auto fraction = [&](StreamV t) HWY_ATTR { return hn::And(hn::BitCast(di, t), mask); };
#if HWY_TARGET <= HWY_AVX3
  // A test under a mask replaces two tests. Without the empty asm the compiler makes single tests
  // of the conjunction, joined by "or", which takes a quarter longer.
  const auto test = [&](StreamV t) HWY_ATTR { return hn::Ne(fraction(t), hn::Zero(di)); };
  auto decided = test(a);
  const auto narrow = [&](hn::Mask<StreamInt> other) HWY_ATTR {
    decided = hn::And(decided, other);
    __asm__("" : "+k"(decided.raw));
  };
  narrow(test(b));
  narrow(test(c));
  narrow(test(d));
  if constexpr (kMayBeNaN) {
    narrow(hn::Not(hn::RebindMask(di, hn::IsEitherNaN(a, b))));
    narrow(hn::Not(hn::RebindMask(di, hn::IsEitherNaN(c, d))));
  }
  return hn::AllTrue(di, decided);
#else
  // The smallest fraction: as int16, because the upper halves are 0 and the lower ones positive.
  const hn::Repartition<int16_t, StreamD> d16;
  const auto half = [&](StreamV t) HWY_ATTR { return hn::BitCast(d16, fraction(t)); };
  const auto least = hn::Min(hn::Min(half(a), half(b)), hn::Min(half(c), half(d)));
  bool decided = hn::AllFalse(di, hn::Eq(hn::BitCast(di, least), hn::Zero(di)));
  if constexpr (kMayBeNaN) {
    const StreamV sum = hn::Add(hn::Add(a, b), hn::Add(c, d));  // inf - inf: a false alarm
    decided = decided && hn::AllTrue(df, hn::Eq(sum, sum));
  }
  return decided;
#endif
}

// Four vectors of int32, minus `offset` at 16 bits, as u8 in order, with saturation at each step.
HWY_INLINE hn::Vec<hn::Repartition<uint8_t, StreamD>> ToBytes(
    hn::Vec<StreamInt> a, hn::Vec<StreamInt> b, hn::Vec<StreamInt> c, hn::Vec<StreamInt> d,
    hn::Vec<hn::Repartition<int16_t, StreamD>> offset) {
  const hn::Repartition<int16_t, StreamD> d16;
  const hn::Repartition<uint8_t, StreamD> d8;
#if HWY_ARCH_X86 && HWY_MAX_BYTES > 16
  // Packing works inside each 16 bytes: one permutation in the end instead of one for each step.
  const hn::Repartition<uint32_t, StreamD> d32;
  const auto ab = hn::SaturatedSub(hn::ReorderDemote2To(d16, a, b), offset);
  const auto cd = hn::SaturatedSub(hn::ReorderDemote2To(d16, c, d), offset);
  const auto bytes = hn::BitCast(d32, hn::ReorderDemote2To(d8, ab, cd));
#if HWY_MAX_BYTES == 64
  alignas(64) static constexpr uint32_t kOrder[] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                    2, 6, 10, 14, 3, 7, 11, 15};
#else
  alignas(32) static constexpr uint32_t kOrder[] = {0, 4, 1, 5, 2, 6, 3, 7};
#endif
  return hn::BitCast(d8, hn::TableLookupLanes(bytes, hn::SetTableIndices(d32, kOrder)));
#else
  return hn::OrderedDemote2To(d8, hn::SaturatedSub(hn::OrderedDemote2To(d16, a, b), offset),
                              hn::SaturatedSub(hn::OrderedDemote2To(d16, c, d), offset));
#endif
}

// Four vectors of codes, not yet clamped and shifted by 128 for s8: where they are exact without
// the zero point, else as the bits above the fraction.
template <bool kExact>
HWY_INLINE hn::Vec<hn::Repartition<uint8_t, StreamD>> Finish(UnsignedCodes to, hn::Vec<StreamInt> a,
                                                             hn::Vec<StreamInt> b,
                                                             hn::Vec<StreamInt> c,
                                                             hn::Vec<StreamInt> d) {
  const hn::Repartition<int16_t, StreamD> d16;
  const hn::Repartition<uint8_t, StreamD> d8;
  const auto offset = hn::Set(d16, static_cast<int16_t>(kExact           ? -to.zero_point
                                                        : HWY_NATIVE_FMA ? kGridBase
                                                                         : 0));
  const auto bytes = ToBytes(a, b, c, d, offset);
  if (to.lo == 0 && to.hi == 255 && to.flip == 0) return bytes;  // the same in the whole loop
  return hn::Xor(hn::Min(hn::Max(bytes, hn::Set(d8, to.lo)), hn::Set(d8, to.hi)),
                 hn::Set(d8, to.flip));
}

// Makes y[i] of value(i, n), the t of elements [i, i + n); lanes beyond n are ignored. Undecided
// elements go to repair(i, n), which writes y[i..i+n): a whole block of four vectors, and several
// blocks if undecided blocks follow each other, as in data full of ties. Each block is read before
// it is written, so y may begin where an input does.
template <bool kExact, bool kMayBeNaN, class Value, class Repair>
HWY_INLINE void StreamCodes(UnsignedCodes to, int32_t fraction_mask, size_t count, uint8_t* y,
                            const Value& value, const Repair& repair) {
  const StreamD df;
  const StreamInt di;
  const hn::Repartition<uint8_t, StreamD> d8;
  const auto integer = [&](StreamV t) HWY_ATTR {
    if constexpr (kExact) {
      // A t below what int16 saturates is raised: the difference of the bits would wrap.
      const StreamV bounded = hn::Max(t, hn::Set(df, kInteger32 - 65536.0f));
      return hn::Sub(hn::BitCast(di, bounded), hn::Set(di, 0x4B400000));
    } else {
      const auto code = hn::ShiftRight<kFraction>(hn::BitCast(di, t));
      return HWY_NATIVE_FMA ? code : hn::Sub(code, hn::Set(di, kGridBase));
    }
  };
  const auto are_decided = [&](StreamV a, StreamV b, StreamV c, StreamV d) HWY_ATTR {
    if constexpr (!kExact) {
      return AreDecided<kMayBeNaN>(a, b, c, d, fraction_mask);
    } else if constexpr (kMayBeNaN) {
      return hn::AllFalse(df, hn::Or(hn::IsEitherNaN(a, b), hn::IsEitherNaN(c, d)));
    } else {
      return true;
    }
  };
  const auto codes = [&](StreamV a, StreamV b, StreamV c, StreamV d) HWY_ATTR {
    return Finish<kExact>(to, integer(a), integer(b), integer(c), integer(d));
  };

  const size_t lanes = hn::Lanes(df);
  const size_t block = 4 * lanes;
  size_t i = 0;
  size_t undecided = block;  // elements for the next repair: four times as many after each one
  while (i + block <= count) {
    const StreamV a = value(i, lanes);
    const StreamV b = value(i + lanes, lanes);
    const StreamV c = value(i + 2 * lanes, lanes);
    const StreamV d = value(i + 3 * lanes, lanes);
    if (HWY_LIKELY(are_decided(a, b, c, d))) {
      hn::StoreU(codes(a, b, c, d), d8, y + i);
      i += block;
      undecided = block;
      continue;
    }
    const size_t n = HWY_MIN(undecided, count - i);
    repair(i, n);
    i += n;
    undecided = HWY_MIN(4 * undecided, 64 * block);
  }
  if (i == count) return;
  const auto rest = [&](size_t vector) HWY_ATTR {
    const size_t begin = HWY_MIN(i + vector * lanes, count);
    return value(begin, HWY_MIN(count - begin, lanes));
  };
  const StreamV a = rest(0);
  StreamV b = a, c = a, d = a;  // copies decide nothing else, and their codes are not stored
  if (count - i > lanes) {
    b = rest(1);
    c = rest(2);
    d = rest(3);
  }
  if (are_decided(a, b, c, d)) {
    hn::StoreN(codes(a, b, c, d), d8, y + i, count - i);
  } else {
    repair(i, count - i);
  }
}

#else  // one lane at a time

template <bool kExact, bool kMayBeNaN, class Value, class Repair>
HWY_INLINE void StreamCodes(UnsignedCodes, int32_t, size_t count, uint8_t*, const Value&,
                            const Repair& repair) {
  repair(0, count);
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels::internal
HWY_AFTER_NAMESPACE();

#endif  // QUALM_KERNELS_CODE_STREAM_INL_H_
