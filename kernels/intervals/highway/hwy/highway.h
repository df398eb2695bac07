// SPDX-License-Identifier: Apache-2.0
// The part of Highway that the kernels use, over intervals: a lane is the set of values from lo to
// hi, and each operation gives a set that holds every result. Where a closer set is not worth the
// effort, it is everything. A branch on what vectors hold goes both ways (../ways.h), because lanes
// that nobody knows decide with this one. Vectors have 8 bytes.
//
// QUALM_INTERVALS_FUSED says whether MulAdd and its like round once.
#ifndef QUALM_KERNELS_INTERVALS_HIGHWAY_H_
#define QUALM_KERNELS_INTERVALS_HIGHWAY_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <source_location>
#include <type_traits>

#include "kernels/intervals/memory.h"
#include "kernels/intervals/ways.h"

#define HWY_AVX3 1
#define HWY_EMU128 2
#define HWY_SCALAR 3
#define HWY_TARGET 4
#define HWY_ARCH_X86 0
#define HWY_MAX_BYTES 8
#define HWY_NATIVE_FMA QUALM_INTERVALS_FUSED
#if QUALM_INTERVALS_FUSED
#define HWY_NAMESPACE N_FUSED
#else
#define HWY_NAMESPACE N_PLAIN
#endif
#define HWY_ONCE 1
#define HWY_BEFORE_NAMESPACE() static_assert(true)
#define HWY_AFTER_NAMESPACE() static_assert(true)
#define HWY_ATTR
#define HWY_INLINE inline
#define HWY_NOINLINE
#define HWY_LIKELY(condition) (condition)
#define HWY_MIN(a, b) ((a) < (b) ? (a) : (b))
#define HWY_DISPATCH_TABLE(FUNC) FUNC##Table
#define HWY_EXPORT(FUNC) \
  constexpr std::array FUNC##Table { &HWY_NAMESPACE::FUNC }

namespace hwy::HWY_NAMESPACE {

template <class T>
constexpr bool kReal = std::is_floating_point_v<T>;
template <class T>
using Limits = std::numeric_limits<T>;
template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

// A new number for each computed value: two lanes with the same number are equal.
inline uint32_t NewName() {
  thread_local uint32_t names = 0;
  return ++names;
}

// The values lo..hi, and a NaN too if `nan`. None but the NaN where lo > hi.
template <class T>
struct Lane {
  T lo{}, hi{};
  bool nan = false;
  uint32_t name = 0;

  bool IsNan() const { return nan && lo > hi; }
  bool IsPoint() const {
    if constexpr (kReal<T>) {
      return !nan && std::bit_cast<BitsOf<T>>(lo) == std::bit_cast<BitsOf<T>>(hi);
    } else {
      return lo == hi;
    }
  }
};

template <class T>
Lane<T> Between(T lo, T hi) {
  return {lo, hi, false, NewName()};
}
template <class T>
Lane<T> Point(T value) {
  return Between(value, value);
}
template <class T>
Lane<T> OnlyNan() {
  return {Limits<T>::infinity(), -Limits<T>::infinity(), true, NewName()};
}
template <class T>
Lane<T> Anything() {
  if constexpr (kReal<T>) {
    return {-Limits<T>::infinity(), Limits<T>::infinity(), true, NewName()};
  } else {
    return Between(Limits<T>::min(), Limits<T>::max());
  }
}
template <class T>
Lane<T> Hull(const Lane<T>& a, const Lane<T>& b) {
  return {std::min(a.lo, b.lo), std::max(a.hi, b.hi), a.nan || b.nan, NewName()};
}

// Tags, vectors and masks.
template <class T, size_t N>
struct Simd {
  using Type = T;
  static constexpr size_t kLanes = N;
};
template <class T>
using ScalableTag = Simd<T, 8 / sizeof(T)>;
template <class D>
using TFromD = typename D::Type;
template <class T, class D>
using Rebind = Simd<T, D::kLanes>;
template <class T, class D>
using Repartition = Simd<T, D::kLanes * sizeof(TFromD<D>) / sizeof(T)>;
template <class D>
using RebindToSigned = Rebind<std::make_signed_t<BitsOf<TFromD<D>>>, D>;
template <class D>
using RebindToUnsigned = Rebind<BitsOf<TFromD<D>>, D>;

template <class T, size_t N>
using Lanes_ = std::array<Lane<T>, N>;
template <class T, size_t N>
struct Vector {
  Lanes_<T, N> lane;
};
template <class D>
using Vec = Vector<TFromD<D>, D::kLanes>;

struct Truth {
  bool can_be_false = false, can_be_true = false;
};
template <size_t N>
struct Masks {
  std::array<Truth, N> lane;
};
template <class D>
using Mask = Masks<D::kLanes>;

template <class T, size_t N>
constexpr size_t Lanes(Simd<T, N> /*d*/) {
  return N;
}

// f(lane, lane, ...) of each place.
template <class F, class T, size_t N, class... More>
auto Map(const F& f, const Vector<T, N>& a, const More&... more) {
  using Result = decltype(f(a.lane[0], more.lane[0]...));
  if constexpr (std::is_same_v<Result, Truth>) {
    Masks<N> result;
    for (size_t i = 0; i < N; ++i) result.lane[i] = f(a.lane[i], more.lane[i]...);
    return result;
  } else {
    Vector<decltype(Result::lo), N> result;
    for (size_t i = 0; i < N; ++i) result.lane[i] = f(a.lane[i], more.lane[i]...);
    return result;
  }
}

// Constants and memory.
template <class T, size_t N, class U>
Vector<T, N> Set(Simd<T, N> /*d*/, U value) {
  Vector<T, N> v;
  v.lane.fill(Point(static_cast<T>(value)));
  return v;
}
template <class T, size_t N>
Vector<T, N> Zero(Simd<T, N> d) {
  return Set(d, T{});
}
template <class T, size_t N>
Vector<T, N> LoadN(Simd<T, N> d, const T* from, size_t n) {
  Vector<T, N> v = Zero(d);
  for (size_t i = 0; i < std::min(n, N); ++i) {
    const auto [lo, hi] = qualm::intervals::Load(from + i);
    bool nan = false;
    if constexpr (kReal<T>) nan = std::isnan(lo);
    v.lane[i] = nan ? Anything<T>() : Between(lo, hi);
    if constexpr (kReal<T>) {
      if (nan) v.lane[i] = OnlyNan<T>();
    }
  }
  return v;
}
template <class T, size_t N>
Vector<T, N> LoadU(Simd<T, N> d, const T* from) {
  return LoadN(d, from, N);
}
template <class T, size_t N>
void StoreN(const Vector<T, N>& v, Simd<T, N> /*d*/, T* to, size_t n) {
  for (size_t i = 0; i < std::min(n, N); ++i)
    qualm::intervals::Store(to + i, v.lane[i].lo, v.lane[i].hi);
}
template <class T, size_t N>
void StoreU(const Vector<T, N>& v, Simd<T, N> d, T* to) {
  StoreN(v, d, to, N);
}

// Arithmetic. A sum of products is largest and smallest at corners of the box.
template <class T>
Lane<T> AddLanes(const Lane<T>& a, const Lane<T>& b) {
  if constexpr (kReal<T>) {
    if (a.IsNan() || b.IsNan()) return OnlyNan<T>();
    if (a.nan || b.nan || (std::isinf(a.hi) && std::isinf(b.lo)) ||
        (std::isinf(a.lo) && std::isinf(b.hi)))
      return a.IsPoint() && b.IsPoint() && !std::isnan(a.lo + b.lo) ? Point(a.lo + b.lo)
                                                                    : Anything<T>();
    return Between<T>(a.lo + b.lo, a.hi + b.hi);
  } else {
    T lo{}, hi{};
    const bool wraps =
        __builtin_add_overflow(a.lo, b.lo, &lo) || __builtin_add_overflow(a.hi, b.hi, &hi);
    return wraps ? Anything<T>() : Between(lo, hi);
  }
}
template <class T>
Lane<T> NegateLane(const Lane<T>& a) {
  return {-a.hi, -a.lo, a.nan, NewName()};
}
template <class T>
Lane<T> SubLanes(const Lane<T>& a, const Lane<T>& b) {
  if constexpr (kReal<T>) {
    return AddLanes(a, NegateLane(b));  // a - b and a + -b round alike
  } else {
    T lo{}, hi{};
    const bool wraps =
        __builtin_sub_overflow(a.lo, b.hi, &lo) || __builtin_sub_overflow(a.hi, b.lo, &hi);
    return wraps ? Anything<T>() : Between(lo, hi);
  }
}
// The least and the largest f(a, b) over the corners; everything if one is a NaN.
template <class T, class Low, class High>
Lane<T> AtCorners(const Lane<T>& a, const Lane<T>& b, const Low& low, const High& high) {
  if (a.IsNan() || b.IsNan()) return OnlyNan<T>();
  const auto meets_zero = [](const Lane<T>& v) { return v.lo <= 0 && v.hi >= 0; };
  const auto is_far = [](const Lane<T>& v) { return std::isinf(v.lo) || std::isinf(v.hi); };
  if (a.nan || b.nan || (meets_zero(a) && is_far(b)) || (meets_zero(b) && is_far(a)))
    return Anything<T>();
  Lane<T> result = {Limits<T>::infinity(), -Limits<T>::infinity(), false, NewName()};
  const T as[] = {a.lo, a.hi}, bs[] = {b.lo, b.hi};
  for (int i = 0; i < (a.IsPoint() ? 1 : 2); ++i) {
    for (int j = 0; j < (b.IsPoint() ? 1 : 2); ++j) {
      const T least = low(as[i], bs[j]), most = high(as[i], bs[j]);
      if (std::isnan(least) || std::isnan(most)) return Anything<T>();
      // Assigned, not compared, where equal: keeps the sign of zero of a point.
      if (!(least > result.lo)) result.lo = least;
      if (!(most < result.hi)) result.hi = most;
    }
  }
  return result;
}
template <class T>
Lane<T> MulLanes(const Lane<T>& a, const Lane<T>& b) {
  const auto product = [](T x, T y) { return x * y; };
  return AtCorners(a, b, product, product);
}
template <class T>
Lane<T> MulAddLanes(const Lane<T>& a, const Lane<T>& b, const Lane<T>& c) {
#if QUALM_INTERVALS_FUSED
  if (c.IsNan()) return OnlyNan<T>();
  if (c.nan) return Anything<T>();
  return AtCorners(
      a, b, [&](T x, T y) { return std::fma(x, y, c.lo); },
      [&](T x, T y) { return std::fma(x, y, c.hi); });
#else
  return AddLanes(MulLanes(a, b), c);
#endif
}
template <class V>
V Add(const V& a, const V& b) {
  return Map([](const auto& x, const auto& y) { return AddLanes(x, y); }, a, b);
}
template <class V>
V Sub(const V& a, const V& b) {
  return Map([](const auto& x, const auto& y) { return SubLanes(x, y); }, a, b);
}
template <class V>
V Mul(const V& a, const V& b) {
  return Map([](const auto& x, const auto& y) { return MulLanes(x, y); }, a, b);
}
template <class V>
V MulAdd(const V& a, const V& b, const V& c) {
  return Map([](const auto& x, const auto& y, const auto& z) { return MulAddLanes(x, y, z); }, a, b,
             c);
}
template <class V>
V MulSub(const V& a, const V& b, const V& c) {
  return Map(
      [](const auto& x, const auto& y, const auto& z) { return MulAddLanes(x, y, NegateLane(z)); },
      a, b, c);
}
template <class V>
V NegMulAdd(const V& a, const V& b, const V& c) {
  return Map(
      [](const auto& x, const auto& y, const auto& z) { return MulAddLanes(NegateLane(x), y, z); },
      a, b, c);
}
template <class V>
V Abs(const V& a) {
  return Map(
      [](const auto& x) {
        using T = decltype(x.lo);
        if (x.nan) return Anything<T>();
        if (x.lo < 0 && x.hi > 0) return Between<T>(0, std::max(-x.lo, x.hi));
        const T ends[] = {std::fabs(x.lo), std::fabs(x.hi)};
        return Between<T>(std::min(ends[0], ends[1]), std::max(ends[0], ends[1]));
      },
      a);
}
// If one operand is a NaN, processors disagree about the result, so it may be anything.
template <class V>
V Min(const V& a, const V& b) {
  return Map(
      [](const auto& x, const auto& y) {
        using T = decltype(x.lo);
        return x.nan || y.nan ? Anything<T>()
                              : Between<T>(std::min(x.lo, y.lo), std::min(x.hi, y.hi));
      },
      a, b);
}
template <class V>
V Max(const V& a, const V& b) {
  return Map(
      [](const auto& x, const auto& y) {
        using T = decltype(x.lo);
        return x.nan || y.nan ? Anything<T>()
                              : Between<T>(std::max(x.lo, y.lo), std::max(x.hi, y.hi));
      },
      a, b);
}
template <class T, size_t N>
Vector<T, N> ZeroIfNegative(const Vector<T, N>& a) {
  return Max(a, Zero(Simd<T, N>()));
}
template <size_t N>
Vector<int16_t, N> SaturatedSub(const Vector<int16_t, N>& a, const Vector<int16_t, N>& b) {
  const auto clamp = [](int32_t v) { return static_cast<int16_t>(std::clamp(v, -32768, 32767)); };
  return Map(
      [&](const auto& x, const auto& y) { return Between(clamp(x.lo - y.hi), clamp(x.hi - y.lo)); },
      a, b);
}

// Bits. With a known mask: its low bits rise with the value while all bits above stay the same.
template <class T>
Lane<T> AndLanes(const Lane<T>& a, const Lane<T>& b) {
  if (!a.IsPoint() && !b.IsPoint()) return Anything<T>();
  const T mask = b.IsPoint() ? b.lo : a.lo;
  const Lane<T>& x = b.IsPoint() ? a : b;
  if (x.IsPoint()) return Point(static_cast<T>(x.lo & mask));
  using U = std::make_unsigned_t<T>;
  const int low = std::countr_zero(static_cast<U>(mask));
  const int width = std::bit_width(static_cast<U>(mask));
  if (width == 8 * sizeof(T)) return Anything<T>();
  const U ones = static_cast<U>(static_cast<U>(mask) >> (low % (8 * sizeof(T))));
  if (mask != 0 && (ones & (ones + 1)) == 0 && x.lo >> width == x.hi >> width)
    return Between(static_cast<T>(x.lo & mask), static_cast<T>(x.hi & mask));
  return Between(T{0}, mask);
}
template <class T>
Lane<T> AndNotLanes(const Lane<T>& a, const Lane<T>& x) {
  if (!a.IsPoint()) return Anything<T>();
  if (x.IsPoint()) return Point(static_cast<T>(~a.lo & x.lo));
  if (a.lo < 0 || (a.lo & (a.lo + 1)) != 0) return Anything<T>();
  return Between(static_cast<T>(~a.lo & x.lo), static_cast<T>(~a.lo & x.hi));  // rounds down
}
template <class T>
Lane<T> XorLanes(const Lane<T>& a, const Lane<T>& b) {
  if (!a.IsPoint() && !b.IsPoint()) return Anything<T>();
  const T flips = b.IsPoint() ? b.lo : a.lo;
  const Lane<T>& x = b.IsPoint() ? a : b;
  if (flips == 0) return x;
  const int low = std::countr_zero(static_cast<std::make_unsigned_t<T>>(flips));
  if (x.lo >> low != x.hi >> low) return Anything<T>();
  return Between(static_cast<T>(x.lo ^ flips), static_cast<T>(x.hi ^ flips));
}
template <class T, size_t N>
Vector<T, N> And(const Vector<T, N>& a, const Vector<T, N>& b) {
  return Map([](const auto& x, const auto& y) { return AndLanes(x, y); }, a, b);
}
template <class T, size_t N>
Vector<T, N> AndNot(const Vector<T, N>& a, const Vector<T, N>& b) {
  return Map([](const auto& x, const auto& y) { return AndNotLanes(x, y); }, a, b);
}
template <class T, size_t N>
Vector<T, N> Xor(const Vector<T, N>& a, const Vector<T, N>& b) {
  return Map([](const auto& x, const auto& y) { return XorLanes(x, y); }, a, b);
}
template <int kBits, class V>
V ShiftRight(const V& a) {
  return Map(
      [](const auto& x) {
        using T = decltype(x.lo);
        return Between(static_cast<T>(x.lo >> kBits), static_cast<T>(x.hi >> kBits));
      },
      a);
}

// Conditions.
template <class T>
Truth EqualLanes(const Lane<T>& a, const Lane<T>& b) {
  const bool nan = a.nan || b.nan;
  const bool meet = a.lo <= b.hi && b.lo <= a.hi && !a.IsNan() && !b.IsNan();
  if (a.name == b.name) return {nan, !a.IsNan()};
  const bool same = a.lo == a.hi && b.lo == b.hi && a.lo == b.lo && !nan;
  return {!same, meet};
}
inline Truth Opposite(Truth t) { return {t.can_be_true, t.can_be_false}; }
template <class V>
auto Eq(const V& a, const V& b) {
  return Map([](const auto& x, const auto& y) { return EqualLanes(x, y); }, a, b);
}
template <class V>
auto Ne(const V& a, const V& b) {
  return Map([](const auto& x, const auto& y) { return Opposite(EqualLanes(x, y)); }, a, b);
}
template <class V>
auto Lt(const V& a, const V& b) {
  return Map(
      [](const auto& x, const auto& y) {
        const bool nan = x.nan || y.nan;
        return Truth{nan || x.hi >= y.lo, !x.IsNan() && !y.IsNan() && x.lo < y.hi};
      },
      a, b);
}
template <class V>
auto Gt(const V& a, const V& b) {
  return Lt(b, a);
}
template <class V>
auto IsEitherNaN(const V& a, const V& b) {
  return Map(
      [](const auto& x, const auto& y) { return Truth{!x.IsNan() && !y.IsNan(), x.nan || y.nan}; },
      a, b);
}
template <class F, size_t N>
Masks<N> MapMasks(const F& f, const Masks<N>& a, const Masks<N>& b) {
  Masks<N> result;
  for (size_t i = 0; i < N; ++i) result.lane[i] = f(a.lane[i], b.lane[i]);
  return result;
}
template <size_t N>
Masks<N> And(const Masks<N>& a, const Masks<N>& b) {
  return MapMasks(
      [](Truth x, Truth y) {
        return Truth{x.can_be_false || y.can_be_false, x.can_be_true && y.can_be_true};
      },
      a, b);
}
template <size_t N>
Masks<N> Or(const Masks<N>& a, const Masks<N>& b) {
  return MapMasks(
      [](Truth x, Truth y) {
        return Truth{x.can_be_false && y.can_be_false, x.can_be_true || y.can_be_true};
      },
      a, b);
}
template <class D>
Mask<D> MaskFalse(D /*d*/) {
  Mask<D> none;
  none.lane.fill({true, false});
  return none;
}
template <class D, size_t N>
Masks<N> RebindMask(D /*d*/, const Masks<N>& mask) {
  static_assert(D::kLanes == N);
  return mask;
}
// AllTrue can always be false, because of the other lanes of the vector.
template <class D, size_t N>
bool AllTrue(D /*d*/, const Masks<N>& mask,
             const std::source_location& place = std::source_location::current()) {
  const bool can = std::ranges::all_of(mask.lane, [](Truth t) { return t.can_be_true; });
  return qualm::intervals::ways.Take(place, true, can);
}
template <class D, size_t N>
bool AllFalse(D /*d*/, const Masks<N>& mask,
              const std::source_location& place = std::source_location::current()) {
  const bool can = std::ranges::all_of(mask.lane, [](Truth t) { return t.can_be_false; });
  return qualm::intervals::ways.Take(place, true, can);
}
template <class T>
Lane<T> Chosen(Truth mask, const Lane<T>& yes, const Lane<T>& no) {
  if (!mask.can_be_false) return yes;
  return mask.can_be_true ? Hull(yes, no) : no;
}
template <class T, size_t N>
Vector<T, N> IfThenElse(const Masks<N>& mask, const Vector<T, N>& yes, const Vector<T, N>& no) {
  Vector<T, N> result;
  for (size_t i = 0; i < N; ++i) result.lane[i] = Chosen(mask.lane[i], yes.lane[i], no.lane[i]);
  return result;
}
template <class T, size_t N>
Vector<T, N> IfThenElseZero(const Masks<N>& mask, const Vector<T, N>& yes) {
  return IfThenElse(mask, yes, Zero(Simd<T, N>()));
}
template <class T, size_t N>
Vector<T, N> MaskedSubOr(const Vector<T, N>& no, const Masks<N>& mask, const Vector<T, N>& a,
                         const Vector<T, N>& b) {
  return IfThenElse(mask, Sub(a, b), no);
}

// Conversions: they round, or saturate, and rise.
template <class To, class T, size_t N>
Vector<To, N> Converted(const Vector<T, N>& v) {
  return Map(
      [](const Lane<T>& x) {
        if (x.IsNan()) return OnlyNan<To>();
        return Lane<To>{static_cast<To>(x.lo), static_cast<To>(x.hi), x.nan, NewName()};
      },
      v);
}
template <class T, size_t N, class From>
Vector<T, N> PromoteTo(Simd<T, N> /*d*/, const Vector<From, N>& v) {
  return Converted<T>(v);
}
template <class T, size_t N, class From>
Vector<T, N> ConvertTo(Simd<T, N> /*d*/, const Vector<From, N>& v) {
  return Converted<T>(v);
}
template <class T, size_t N, class From>
Vector<T, N> DemoteTo(Simd<T, N> /*d*/, const Vector<From, N>& v) {
  return Converted<T>(v);
}
template <class T, size_t N, class From>
Vector<T, N> TruncateTo(Simd<T, N> /*d*/, const Vector<From, N>& v) {
  return Map(
      [](const Lane<From>& x) {
        const auto lo = static_cast<T>(x.lo), hi = static_cast<T>(x.hi);
        return x.hi - x.lo <= Limits<T>::max() && lo <= hi ? Between(lo, hi) : Anything<T>();
      },
      v);
}
template <class T, size_t N, class From, size_t kHalf>
Vector<T, N> OrderedDemote2To(Simd<T, N> /*d*/, const Vector<From, kHalf>& a,
                              const Vector<From, kHalf>& b) {
  static_assert(N == 2 * kHalf);
  const auto saturate = [](From v) {
    return static_cast<T>(std::clamp<From>(v, Limits<T>::min(), Limits<T>::max()));
  };
  Vector<T, N> result;
  for (size_t i = 0; i < N; ++i) {
    const Lane<From>& x = i < kHalf ? a.lane[i] : b.lane[i - kHalf];
    result.lane[i] = Between(saturate(x.lo), saturate(x.hi));
  }
  return result;
}
template <class T, size_t N>
Vector<T, N> ConcatEven(Simd<T, N> /*d*/, const Vector<T, N>& high, const Vector<T, N>& low) {
  Vector<T, N> result;
  for (size_t i = 0; i < N / 2; ++i) {
    result.lane[i] = low.lane[2 * i];
    result.lane[N / 2 + i] = high.lane[2 * i];
  }
  return result;
}

// The bits of a lane as another type of its size.
template <class To, class From>
Lane<To> Reinterpreted(const Lane<From>& x) {
  if constexpr (kReal<From> && !kReal<To>) {
    using S = std::make_signed_t<To>;
    if (x.IsPoint()) return Point(std::bit_cast<To>(x.lo));
    if (x.nan) return Anything<To>();
    // Negative floats fall as signed integers; a lane that ends at 0 may hold either zero.
    Lane<S> bits;
    if (x.hi < 0) {
      bits = Between(std::bit_cast<S>(x.hi), std::bit_cast<S>(x.lo));
    } else if (x.lo > 0) {
      bits = Between(std::bit_cast<S>(x.lo), std::bit_cast<S>(x.hi));
    } else {
      bits = Between(Limits<S>::min(), x.hi == 0 ? S{0} : std::bit_cast<S>(x.hi));
    }
    return Reinterpreted<To>(bits);
  } else if constexpr (kReal<To> && !kReal<From>) {
    if (x.IsPoint()) {
      const To value = std::bit_cast<To>(x.lo);
      return std::isnan(value) ? OnlyNan<To>() : Point(value);
    }
    if ((x.lo < 0) != (x.hi < 0)) return Anything<To>();
    const To a = std::bit_cast<To>(x.lo), b = std::bit_cast<To>(x.hi);
    if (std::isnan(a) || std::isnan(b)) return Anything<To>();
    return Between(std::min(a, b), std::max(a, b));
  } else {
    // Between signed and unsigned the order is kept on either side of the top bit.
    const auto lo = static_cast<To>(x.lo), hi = static_cast<To>(x.hi);
    return lo <= hi && (static_cast<std::make_signed_t<To>>(lo) < 0) ==
                           (static_cast<std::make_signed_t<To>>(hi) < 0)
               ? Between(lo, hi)
               : Anything<To>();
  }
}
// The lower and the upper half of unsigned bits.
template <class Half, class T>
std::array<Lane<Half>, 2> Halves(const Lane<T>& x) {
  constexpr int kBits = 8 * sizeof(Half);
  const auto low = [](T v) { return static_cast<Half>(v); };
  const auto high = [](T v) { return static_cast<Half>(v >> kBits); };
  const Lane<Half> upper = Between(high(x.lo), high(x.hi));
  return {upper.IsPoint() ? Between(low(x.lo), low(x.hi)) : Anything<Half>(), upper};
}
template <class To, size_t M, class From, size_t N>
Vector<To, M> BitCast(Simd<To, M> /*d*/, const Vector<From, N>& v) {
  Vector<To, M> result;
  if constexpr (M == N) {
    for (size_t i = 0; i < N; ++i) result.lane[i] = Reinterpreted<To>(v.lane[i]);
  } else if constexpr (M == 2 * N) {
    using Whole = BitsOf<From>;
    using Half = std::make_unsigned_t<To>;
    for (size_t i = 0; i < N; ++i) {
      const auto halves = Halves<Half>(Reinterpreted<Whole>(v.lane[i]));
      for (size_t k = 0; k < 2; ++k) result.lane[2 * i + k] = Reinterpreted<To>(halves[k]);
    }
  } else {
    static_assert(2 * M == N && !kReal<From> && !kReal<To>);
    using Half = std::make_unsigned_t<From>;
    for (size_t i = 0; i < M; ++i) {
      const Lane<Half> low = Reinterpreted<Half>(v.lane[2 * i]);
      const Lane<Half> high = Reinterpreted<Half>(v.lane[2 * i + 1]);
      const auto join = [](Half h, Half l) {
        return static_cast<BitsOf<To>>(static_cast<BitsOf<To>>(h) << (8 * sizeof(Half)) | l);
      };
      result.lane[i] = Reinterpreted<To>(Between(join(high.lo, low.lo), join(high.hi, low.hi)));
    }
  }
  return result;
}

}  // namespace hwy::HWY_NAMESPACE

#endif  // QUALM_KERNELS_INTERVALS_HIGHWAY_H_
