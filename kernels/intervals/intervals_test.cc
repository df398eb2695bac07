// SPDX-License-Identifier: Apache-2.0
#include "kernels/intervals/intervals.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/common/fused.h"
#include "kernels/elementwise.h"
#include "kernels/targets.h"

#define QUALM_INTERVALS_FUSED 1
#include "kernels/intervals/highway/hwy/highway.h"

namespace qualm {
namespace {

namespace hn = hwy::N_FUSED;
using intervals::Codes;
using intervals::CodesBetween;
using intervals::Problem;

// --- Operations: the results for members of lanes lie in the lane of the result. ---

template <class T>
T Draw(std::mt19937_64& rng) {
  if constexpr (std::is_floating_point_v<T>) {
    switch (rng() % 6) {
      case 0: return static_cast<T>(static_cast<int64_t>(rng() % 7) - 3);
      case 1: return std::numeric_limits<T>::infinity() * (rng() % 2 == 0 ? 1 : -1);
      case 2:
        return std::ldexp(static_cast<T>(rng() % 1000) - 500, static_cast<int>(rng() % 40) - 20);
      case 3: return -T{0};
      default: {
        const T value = std::bit_cast<T>(static_cast<hn::BitsOf<T>>(rng()));
        return std::isnan(value) ? T{1} : value;
      }
    }
  } else {
    return static_cast<T>(rng() % 3 == 0 ? rng() % 16 : rng() >> rng() % 48);
  }
}

// A lane, and a member of it.
template <class T>
std::pair<hn::Lane<T>, T> DrawLane(std::mt19937_64& rng) {
  T lo = Draw<T>(rng), hi = rng() % 3 == 0 ? lo : Draw<T>(rng);
  if (hi < lo) std::swap(lo, hi);
  T member = rng() % 3 == 0 ? lo : hi;
  for (int i = 0; i < 20; ++i) {
    const T other = Draw<T>(rng);
    if (lo < other && other < hi) member = other;
  }
  if (lo == hi) member = lo;  // a point has one sign of zero
  if (std::bit_cast<std::array<char, sizeof(T)>>(lo) ==
      std::bit_cast<std::array<char, sizeof(T)>>(hi))
    member = lo;
  return {hn::Between(lo, hi), member};
}

template <class T>
bool Holds(const hn::Lane<T>& lane, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(value)) return lane.nan;
  }
  return lane.lo <= value && value <= lane.hi;
}

bool Holds(hn::Truth truth, bool value) { return value ? truth.can_be_true : truth.can_be_false; }

// Applies f to vectors of one lane: of the drawn intervals, and of the members.
template <class T, class F>
void Check(const char* name, const F& f) {
  std::mt19937_64 rng(7);
  for (int i = 0; i < 5000; ++i) {
    std::array<hn::Vector<T, 1>, 3> lanes, members;
    for (size_t k = 0; k < 3; ++k) {
      const auto [lane, member] = DrawLane<T>(rng);
      lanes[k].lane[0] = lane;
      members[k].lane[0] = hn::Point(member);
    }
    const auto all = f(lanes[0], lanes[1], lanes[2]).lane[0];
    const auto one = f(members[0], members[1], members[2]).lane[0];
    const auto told = [&](size_t k) {
      return ::testing::PrintToString(lanes[k].lane[0].lo) + ".." +
             ::testing::PrintToString(lanes[k].lane[0].hi) + " at " +
             ::testing::PrintToString(members[k].lane[0].lo);
    };
    if constexpr (std::is_same_v<decltype(all), const hn::Truth>) {
      ASSERT_TRUE(!one.can_be_true || Holds(all, true)) << name << told(0) << ", " << told(1);
      ASSERT_TRUE(!one.can_be_false || Holds(all, false)) << name << told(0) << ", " << told(1);
    } else {
      ASSERT_TRUE(one.nan ? all.nan : Holds(all, one.lo) && Holds(all, one.hi))
          << name << " " << told(0) << ", " << told(1) << ", " << told(2);
    }
  }
}

template <class T>
void CheckReals() {
  using D = hn::Simd<T, 1>;
  using I = hn::RebindToSigned<D>;
  using U = hn::RebindToUnsigned<D>;
  Check<T>("add", [](auto a, auto b, auto) { return hn::Add(a, b); });
  Check<T>("sub", [](auto a, auto b, auto) { return hn::Sub(a, b); });
  Check<T>("mul", [](auto a, auto b, auto) { return hn::Mul(a, b); });
  Check<T>("mul_add", [](auto a, auto b, auto c) { return hn::MulAdd(a, b, c); });
  Check<T>("mul_sub", [](auto a, auto b, auto c) { return hn::MulSub(a, b, c); });
  Check<T>("neg_mul_add", [](auto a, auto b, auto c) { return hn::NegMulAdd(a, b, c); });
  Check<T>("min", [](auto a, auto b, auto) { return hn::Min(a, b); });
  Check<T>("max", [](auto a, auto b, auto) { return hn::Max(a, b); });
  Check<T>("abs", [](auto a, auto, auto) { return hn::Abs(a); });
  Check<T>("lt", [](auto a, auto b, auto) { return hn::Lt(a, b); });
  Check<T>("eq", [](auto a, auto b, auto) { return hn::Eq(a, b); });
  Check<T>("same", [](auto a, auto, auto) { return hn::Eq(a, a); });
  Check<T>("select", [](auto a, auto b, auto c) { return hn::IfThenElse(hn::Lt(a, b), b, c); });
  Check<T>("signed bits", [](auto a, auto, auto) { return hn::BitCast(I(), a); });
  Check<T>("unsigned bits", [](auto a, auto, auto) { return hn::BitCast(U(), a); });
}

template <class T>
void CheckIntegers() {
  using D = hn::Simd<T, 1>;
  Check<T>("sub", [](auto a, auto b, auto) { return hn::Sub(a, b); });
  Check<T>("and", [](auto a, auto b, auto) { return hn::And(a, b); });
  Check<T>("and_not", [](auto a, auto b, auto) { return hn::AndNot(a, b); });
  Check<T>("xor", [](auto a, auto b, auto) { return hn::Xor(a, b); });
  Check<T>("mask", [](auto a, auto, auto) { return hn::And(a, hn::Set(D(), 0x3FFF)); });
  Check<T>("bit", [](auto a, auto, auto) { return hn::And(a, hn::Set(D(), 0x4000)); });
  Check<T>("floor", [](auto a, auto, auto) { return hn::AndNot(hn::Set(D(), 0x3FFF), a); });
  Check<T>("shift", [](auto a, auto, auto) { return hn::template ShiftRight<14>(a); });
  Check<T>("ne", [](auto a, auto b, auto) { return hn::Ne(a, b); });
  Check<T>("bytes", [](auto a, auto, auto) {
    return hn::TruncateTo(hn::Simd<uint8_t, 1>(), hn::BitCast(hn::RebindToUnsigned<D>(), a));
  });
}

TEST(Intervals, OperationsEncloseWhatTheyGiveForMembers) {
  CheckReals<float>();
  CheckReals<double>();
  CheckIntegers<int32_t>();
  CheckIntegers<uint64_t>();
  Check<int32_t>("to float",
                 [](auto a, auto, auto) { return hn::ConvertTo(hn::Simd<float, 1>(), a); });
  Check<int32_t>("as float",
                 [](auto a, auto, auto) { return hn::BitCast(hn::Simd<float, 1>(), a); });
  Check<float>("to double",
               [](auto a, auto, auto) { return hn::PromoteTo(hn::Simd<double, 1>(), a); });
  for (int half = 0; half < 2; ++half) {
    const auto pick = [half](auto v) {
      return hn::Vector<decltype(v.lane[0].lo), 1>{{v.lane[static_cast<size_t>(half)]}};
    };
    Check<double>("halves",
                  [&](auto a, auto, auto) { return pick(hn::BitCast(hn::Simd<int32_t, 2>(), a)); });
    Check<int32_t>("quarters", [&](auto a, auto, auto) {
      return pick(hn::BitCast(hn::Simd<int16_t, 2>(), a));
    });
    Check<int32_t>("saturated", [&](auto a, auto b, auto) {
      return pick(hn::OrderedDemote2To(hn::Simd<int16_t, 2>(), a, b));
    });
  }
}

// --- Kernels: their codes lie in the intervals' codes, on every target. ---

int32_t KernelsCode(const Problem& p, uint32_t bits) {
  const kernels::OutputRange range{p.out_min, p.out_max, p.relu};
  const auto type = p.signed_codes ? kernels::ElementType::kS8 : kernels::ElementType::kU8;
  // Beside an input that takes another way.
  std::array<uint32_t, 64> x{};
  x.fill(bits);
  std::array<uint8_t, 64> y{};
  const kernels::ConstMatrix in{
      x.data(), p.quantize ? kernels::ElementType::kF32 : kernels::ElementType::kS32, 1, 64, 64};
  const kernels::MutableMatrix out{y.data(), type, 1, 64, 64};
  const std::array<int32_t, 1> zero_point{p.zero_point};
  const std::array<float, 1> scale{p.denominator};
  const std::array<kernels::Multiplier, 1> multiplier{
      {{p.numerator_a, p.numerator_b, p.denominator}}};
  const kernels::Status status =
      p.quantize ? kernels::Quantize(in, scale, zero_point, range, out)
                 : kernels::Requantize(in, multiplier, p.zero_point, range, out);
  EXPECT_TRUE(status.ok()) << status.error;
  return p.signed_codes ? static_cast<int8_t>(y[17]) : y[17];
}

Problem DrawProblem(std::mt19937_64& rng) {
  const auto scale = [&](int lowest, int highest) {
    const auto exponent =
        lowest + static_cast<int>(rng() % static_cast<uint64_t>(highest - lowest));
    return std::ldexp(
        rng() % 5 == 0 ? 1.0f : 1.0f + static_cast<float>(rng() % (1 << 23)) * 0x1p-23f, exponent);
  };
  Problem p;
  p.quantize = rng() % 2 == 0;
  p.signed_codes = rng() % 2 == 0;
  p.zero_point = static_cast<int32_t>(rng() % 256) - (p.signed_codes ? 128 : 0);
  if (rng() % 6 == 0) p.zero_point *= 3;
  if (p.quantize) {
    p.denominator = scale(-62, 42);
  } else {
    p.numerator_a = scale(-24, 2);
    if (rng() % 2 == 0) {
      p.numerator_b = scale(-3, 3);
      p.denominator = scale(-3, 3);
    }
  }
  return p;
}

// The bits of float32 or int32 in the order of their values.
uint32_t BitsAt(const Problem& p, uint64_t place) {
  if (!p.quantize) return static_cast<uint32_t>(place - 0x8000'0000);
  return static_cast<uint32_t>(place >= 0x8000'0000 ? place - 0x8000'0000 : 0xFFFF'FFFF - place);
}

TEST(Intervals, EncloseWhatTheKernelsGive) {
  std::mt19937_64 rng(3);
  int64_t known = 0, single = 0;
  for (const std::string& target : kernels::SupportedTargets()) {
    const kernels::ScopedTarget scope(target);
    const bool fused = kernels::FusesMultiplyAdd();
    for (int i = 0; i < 60; ++i) {
      const Problem p = DrawProblem(rng);
      for (int k = 0; k < 40; ++k) {
        constexpr uint64_t kFirst = 0x80'0000, kLast = 0xFF7F'FFFF;  // without NaN
        const uint64_t width = rng() >> (32 + rng() % 32);
        const uint64_t from = kFirst + rng() % (kLast - kFirst), to = std::min(kLast, from + width);
        const uint64_t inside = from + rng() % (to - from + 1);
        const auto codes = CodesBetween(p, fused, BitsAt(p, from), BitsAt(p, to));
        if (!codes) continue;
        ++known;
        single += codes->lo == codes->hi;
        for (const uint64_t place : {from, inside, to}) {
          const int32_t code = KernelsCode(p, BitsAt(p, place));
          ASSERT_LE(codes->lo, code) << target << " " << BitsAt(p, place);
          ASSERT_GE(codes->hi, code) << target << " " << BitsAt(p, place);
        }
      }
    }
  }
  EXPECT_GT(known, 1000);
  EXPECT_GT(single, known / 4);  // sets of all codes would hold anything
}

TEST(Intervals, DecideSingleInputsAndNaN) {
  Problem p{.denominator = 0x1.99999ap-5f, .zero_point = 3};
  const auto at = [](float x) { return std::bit_cast<uint32_t>(x); };
  for (const bool fused : {false, true}) {
    EXPECT_EQ(CodesBetween(p, fused, at(1.0f), at(1.0f)), (Codes{23, 23}));
    EXPECT_EQ(CodesBetween(p, fused, at(NAN), at(NAN)), (Codes{3, 3}));
    EXPECT_EQ(CodesBetween(p, fused, at(20.0f), at(INFINITY)), (Codes{255, 255}));
    EXPECT_EQ(CodesBetween(p, fused, at(-INFINITY), at(-INFINITY)), (Codes{0, 0}));
    // Between the ties 1.024999... and 1.075...
    EXPECT_EQ(CodesBetween(p, fused, at(1.026f), at(1.074f)), (Codes{24, 24}));
    const auto two = CodesBetween(p, fused, at(1.0f), at(1.05f));
    ASSERT_TRUE(two);
    EXPECT_LE(two->lo, 23);
    EXPECT_GE(two->hi, 24);
  }
}

}  // namespace
}  // namespace qualm
