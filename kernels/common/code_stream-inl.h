// SPDX-License-Identifier: Apache-2.0
// Streams of codes: y[i] = clamp(RNE(v_i) + z) for values v_i that float32 knows exactly or nearly.
// Four vectors of floats become one of bytes. Included after hwy/highway.h by files that
// hwy/foreach_target.h compiles again and again.
//
// A caller brings each v_i in one of two forms; the zero point z is that of unsigned codes, 0..255.
//   Exact:  t = 1.5*2^23 + RNE(v), from one addition that rounds the exact v once, half to even.
//   Nearly: t = origin + z + 1/2 + v + e, rounded to a grid of 2^-f (f = kFraction), with an error
//     |e| of the caller's v. The bits of t above the fraction are the code floor(z + 1/2 + v), and
//     the fraction says how far v is from a tie n + 1/2: where it is further than |e| and the
//     rounding to the grid, the code is RNE(v) + z. Elsewhere, once in some thousand elements or
//     where v is a tie, the caller decides again, exactly.
// Where v is so large that the spacing changes, t still rises with v. Such v lie beyond the codes,
// and the saturating conversions end at the right bound. How t of "nearly" values is made:
//   - AVX-512: t * 2^16 = fma(v, 2^16, (z + 1/2) * 2^16 + w), then rounded to an int32 by
//     vcvtps2dq. For codes |t| <= 2^8, so the spacing of floats is at most 2^-16: the addition and
//     the conversion move t by at most 3/4 step together (one half, or a quarter and a half). w is
//     HalfWindow(), more steps than this and |e|: next to a tie the fraction is one of 0..2w-1, a
//     power of two, and the code is its upper half word. NaN and what leaves int32 become -2^31,
//     whose fraction is 0: the caller decides those too.
//   - Elsewhere: origin = 2^(23-f), which makes the spacing of t the grid. A fraction of 0 is not
//     decided: v is within half a step of the tie. add makes a window of its own, of more steps
//     (GridFor in add.cc). With one lane (SCALAR) the caller decides all elements. With a fused
//     multiply-add all of this is scaled by 2^-73: then the bits of t above the fraction are 63 *
//     2^9 plus the code, and fit int16. A product that underflows does no harm, because a fused one
//     is not rounded. Without fusion nothing is scaled, and one more subtraction makes the bits
//     fit. A NaN among the t is found by a comparison and goes to the caller.

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

// The grid of floats.
constexpr int kFloatFraction = HWY_NATIVE_FMA ? 14 : 13;
constexpr float kFloatScale = HWY_NATIVE_FMA ? 0x1p-73f : 1.0f;
constexpr float kFloatStart = 1 << (23 - kFloatFraction);
constexpr int32_t kFloatBase = HWY_NATIVE_FMA ? 63 << 9 : 137 << 10;  // the bits of code 0

// The grid of values that are nearly known.
constexpr bool kOnInt32Grid = HWY_TARGET <= HWY_AVX3;
constexpr int kFraction = kOnInt32Grid ? 16 : kFloatFraction;
constexpr int32_t kFractionMask = (1 << kFraction) - 1;
constexpr double kGridStep = 1.0 / (1 << kFraction);
constexpr double kGridRounding = (kOnInt32Grid ? 0.75 : 0.5) * kGridStep;  // of t, at most
constexpr float kGridScale = kOnInt32Grid ? 0x1p16f : kFloatScale;
constexpr float kGridStart = kOnInt32Grid ? 0 : kFloatStart;

// Steps of the grid on either side of a tie that t does not decide. The error of v is at most
// `parts` * 2^-24 * |v|, and |v| <= 255.5 next to a tie of codes: less than one step for each part,
// and 3/4 for t.
constexpr int32_t HalfWindow(int parts) { return kOnInt32Grid ? 2 * parts : 0; }
// The bits of a fraction to test: 0 means undecided. One or two parts.
constexpr int32_t FractionsToTest(int parts) {
  return kOnInt32Grid ? kFractionMask & -(2 * HalfWindow(parts)) : kFractionMask;
}
// The constants to which v is added: exact, for v in units of the scale.
HWY_INLINE float FloatGridOrigin(UnsignedCodes to) {
  return (kFloatStart + static_cast<float>(to.zero_point) + 0.5f) * kFloatScale;
}
HWY_INLINE float GridOrigin(UnsignedCodes to, int parts) {
  return (kGridStart + static_cast<float>(to.zero_point) + 0.5f) * kGridScale +
         static_cast<float>(HalfWindow(parts));
}

#if HWY_TARGET != HWY_SCALAR

// Whether none of these vectors on the grid has a fraction of 0, apart from bits outside the mask.
#if HWY_TARGET <= HWY_AVX3

// vcvtps2dq: what leaves int32, and NaN, becomes -2^31.
HWY_INLINE hn::Vec<StreamInt> OnGrid(StreamV t) {
  return hn::Vec<StreamInt>{_mm512_cvtps_epi32(t.raw)};
}

template <bool kMayBeNaN, class... Vectors>
HWY_INLINE bool AreDecided(int32_t fractions, hn::Vec<StreamInt> first, Vectors... others) {
  const StreamInt di;
  const auto mask = hn::Set(di, fractions);
  const auto test = [&](hn::Vec<StreamInt> t)
                        HWY_ATTR { return hn::Ne(hn::And(t, mask), hn::Zero(di)); };
  // A test under a mask replaces two tests. Without the empty asm the compiler makes single tests
  // of the conjunction, joined by "or", which takes a quarter longer.
  auto decided = test(first);
  const auto narrow = [&](hn::Mask<StreamInt> other) HWY_ATTR {
    decided = hn::And(decided, other);
    __asm__("" : "+k"(decided.raw));
  };
  (narrow(test(others)), ...);
  return hn::AllTrue(di, decided);
}

#else

HWY_INLINE StreamV OnGrid(StreamV t) { return t; }

template <bool kMayBeNaN>
HWY_INLINE bool AreDecided(int32_t fractions, StreamV a, StreamV b, StreamV c, StreamV d) {
  const StreamD df;
  const StreamInt di;
  const auto mask = hn::Set(di, fractions);
  const auto fraction = [&](StreamV t) HWY_ATTR { return hn::And(hn::BitCast(di, t), mask); };
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
}

#endif

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

// What stands in vectors of codes that are not yet clamped and shifted by 128 for s8.
enum class Form : uint8_t {
  kExact,      // the code without the zero point
  kFloatGrid,  // the bits above the fraction of the grid of floats
  kInt32Grid,  // the code in the upper half, anything in the lower one: AVX-512
};

template <Form kForm>
HWY_INLINE hn::Vec<hn::Repartition<uint8_t, StreamD>> Finish(UnsignedCodes to, hn::Vec<StreamInt> a,
                                                             hn::Vec<StreamInt> b,
                                                             hn::Vec<StreamInt> c,
                                                             hn::Vec<StreamInt> d) {
  const hn::Repartition<int16_t, StreamD> d16;
  const hn::Repartition<uint8_t, StreamD> d8;
  const auto to_bytes = [&]() HWY_ATTR {
#if HWY_TARGET <= HWY_AVX3
    if constexpr (kForm == Form::kInt32Grid) {
#if HWY_TARGET == HWY_AVX3_ZEN4
      // One permutation for each pair of vectors, which costs Intel's processors three.
      const auto upper = [&](hn::Vec<StreamInt> low, hn::Vec<StreamInt> high) HWY_ATTR {
        return hn::ConcatOdd(d16, hn::BitCast(d16, high), hn::BitCast(d16, low));
      };
      return hn::OrderedDemote2To(d8, upper(a, b), upper(c, d));
#else
      return ToBytes(hn::ShiftRight<16>(a), hn::ShiftRight<16>(b), hn::ShiftRight<16>(c),
                     hn::ShiftRight<16>(d), hn::Zero(d16));
#endif
    }
#endif
    const int offset = kForm == Form::kExact ? -to.zero_point : HWY_NATIVE_FMA ? kFloatBase : 0;
    return ToBytes(a, b, c, d, hn::Set(d16, static_cast<int16_t>(offset)));
  };
  const auto bytes = to_bytes();
  if (to.lo == 0 && to.hi == 255 && to.flip == 0) return bytes;  // the same in the whole loop
  return hn::Xor(hn::Min(hn::Max(bytes, hn::Set(d8, to.lo)), hn::Set(d8, to.hi)),
                 hn::Set(d8, to.flip));
}

// Makes y[i] of value(i, n), the t of elements [i, i + n); lanes beyond n are ignored. Undecided
// elements go to repair(i, n), which writes y[i..i+n): a whole block of four vectors, and several
// blocks if undecided blocks follow each other, as in data full of ties. Each block is read before
// it is written, so y may begin where an input does. If `beyond_caches` (AreBeyondCaches), stores
// bypass the caches, on AVX-512.
template <bool kExact, bool kMayBeNaN, class Value, class Repair>
HWY_INLINE void StreamCodes(UnsignedCodes to, int32_t fractions, bool beyond_caches, size_t count,
                            uint8_t* y, const Value& value, const Repair& repair) {
  const StreamD df;
  const StreamInt di;
  const hn::Repartition<uint8_t, StreamD> d8;
  const auto vector = [&](size_t i, size_t n) HWY_ATTR {
    if constexpr (kExact) {
      return value(i, n);
    } else {
      return OnGrid(value(i, n));
    }
  };
  using Vector = decltype(vector(0, 0));
  const auto integer = [&](Vector t) HWY_ATTR {
    if constexpr (kExact) {
      // A t below what int16 saturates is raised: the difference of the bits would wrap.
      const StreamV bounded = hn::Max(t, hn::Set(df, kInteger32 - 65536.0f));
      return hn::Sub(hn::BitCast(di, bounded), hn::Set(di, 0x4B400000));
    } else if constexpr (kOnInt32Grid) {
      return t;
    } else {
      const auto code = hn::ShiftRight<kFloatFraction>(hn::BitCast(di, t));
      return HWY_NATIVE_FMA ? code : hn::Sub(code, hn::Set(di, kFloatBase));
    }
  };
  const auto are_decided = [&](Vector a, Vector b, Vector c, Vector d) HWY_ATTR {
    if constexpr (!kExact) {
      return AreDecided<kMayBeNaN>(fractions, a, b, c, d);
    } else if constexpr (kMayBeNaN) {
      return hn::AllFalse(df, hn::Or(hn::IsEitherNaN(a, b), hn::IsEitherNaN(c, d)));
    } else {
      return true;
    }
  };
  constexpr Form kForm = kExact ? Form::kExact : kOnInt32Grid ? Form::kInt32Grid : Form::kFloatGrid;
  const auto codes = [&](Vector a, Vector b, Vector c, Vector d) HWY_ATTR {
    return Finish<kForm>(to, integer(a), integer(b), integer(c), integer(d));
  };

  const size_t lanes = hn::Lanes(df);
  const size_t block = 4 * lanes;
  size_t i = 0;
  size_t undecided = block;  // elements for the next repair: four times as many after each one
#if HWY_TARGET <= HWY_AVX3
  if (HWY_UNLIKELY(beyond_caches)) {  // stores that bypass the caches must be aligned
    i = ElementsToAlignment(d8, y);
    if (i != 0) repair(0, i);
  }
#endif
  while (i + block <= count) {
#if HWY_TARGET <= HWY_AVX3
    // Two blocks for each branch. Where one of them is undecided, they go on one by one.
    for (; !kExact && i + 2 * block <= count; i += 2 * block, undecided = block) {
      const Vector a = vector(i, lanes);
      const Vector b = vector(i + lanes, lanes);
      const Vector c = vector(i + 2 * lanes, lanes);
      const Vector d = vector(i + 3 * lanes, lanes);
      const Vector e = vector(i + 4 * lanes, lanes);
      const Vector f = vector(i + 5 * lanes, lanes);
      const Vector g = vector(i + 6 * lanes, lanes);
      const Vector h = vector(i + 7 * lanes, lanes);
      if constexpr (!kExact) {
        if (HWY_UNLIKELY(!AreDecided<kMayBeNaN>(fractions, a, b, c, d, e, f, g, h))) break;
      }
      const auto low = codes(a, b, c, d);
      const auto high = codes(e, f, g, h);
      if (HWY_UNLIKELY(beyond_caches)) {
        hn::Stream(low, d8, y + i);
        hn::Stream(high, d8, y + i + block);
      } else {
        hn::StoreU(low, d8, y + i);
        hn::StoreU(high, d8, y + i + block);
      }
    }
    if (i + block > count) break;
#endif
    const Vector a = vector(i, lanes);
    const Vector b = vector(i + lanes, lanes);
    const Vector c = vector(i + 2 * lanes, lanes);
    const Vector d = vector(i + 3 * lanes, lanes);
    if (HWY_LIKELY(are_decided(a, b, c, d))) {
      const auto bytes = codes(a, b, c, d);
#if HWY_TARGET <= HWY_AVX3
      if (HWY_UNLIKELY(beyond_caches)) {
        hn::Stream(bytes, d8, y + i);
      } else {
        hn::StoreU(bytes, d8, y + i);
      }
#else
      hn::StoreU(bytes, d8, y + i);
#endif
      i += block;
      undecided = block;
      continue;
    }
    const size_t n = HWY_MIN(undecided, count - i);
    repair(i, n);
    i += n;
    undecided = HWY_MIN(4 * undecided, 64 * block);
  }
#if HWY_TARGET <= HWY_AVX3
  if (HWY_UNLIKELY(beyond_caches)) _mm_sfence();  // whoever hears of the return sees the codes
#else
  (void)beyond_caches;
#endif
  if (i == count) return;
  const auto rest = [&](size_t k) HWY_ATTR {
    const size_t begin = HWY_MIN(i + k * lanes, count);
    return vector(begin, HWY_MIN(count - begin, lanes));
  };
  const Vector a = rest(0);
  Vector b = a, c = a, d = a;  // copies decide nothing else, and their codes are not stored
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
HWY_INLINE void StreamCodes(UnsignedCodes, int32_t, bool, size_t count, uint8_t*, const Value&,
                            const Repair& repair) {
  repair(0, count);
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels::internal
HWY_AFTER_NAMESPACE();

#endif  // QUALM_KERNELS_CODE_STREAM_INL_H_
