// SPDX-License-Identifier: Apache-2.0
// What no case asks of the linear layer: sums longer than cases have, the panels that packing
// makes, channels that share a panel with others, the control word of the caller. Its outputs are
// judged by properties/native_kernels_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "kernels/linear.h"
#include "kernels/sums/linear_testing.h"
#include "kernels/targets.h"

namespace qualm::kernels {
namespace {

using testing::Choices;
using testing::Collect;
using testing::Data;
using testing::Elements;
using testing::Fill;
using testing::FillOrdinary;
using testing::GuardedBytes;
using testing::HighestCode;
using testing::LowestCode;
using testing::PackProblem;
using testing::PlainOutputs;
using testing::Problem;
using testing::RunProblem;
using testing::Spread;

constexpr ElementType kCodes[] = {ElementType::kU8, ElementType::kS8};

void FillBoth(Choices& choices, Data data, Problem& p) {
  p.x.resize(static_cast<size_t>(p.m * p.k));
  p.w.resize(static_cast<size_t>(p.n * p.k));
  Fill(choices, data, p.x_type, p.x);
  Fill(choices, data, p.w_type, p.w);
}

// All activations are equal, so each sum is an activation times the sum of the weights. Expects the
// sums as float32 outputs of scale 1 and as s32, on every instruction set.
void ExpectSumsOfEqualActivations(Problem p) {
  ASSERT_EQ(std::ranges::count(p.x, p.x[0]), p.m * p.k);
  std::vector<int32_t> floats, clamped;
  for (int64_t i = 0; i < p.m * p.n; ++i) {
    const int64_t j = i % p.n;
    const int64_t of_weights =
        std::accumulate(p.w.begin() + j * p.k, p.w.begin() + (j + 1) * p.k, int64_t{0});
    const auto zero = static_cast<__int128>(p.w_zero[p.w_zero.size() == 1 ? 0 : size_t(j)]);
    const int32_t bias = p.bias_i32.empty() ? 0 : p.bias_i32[static_cast<size_t>(j)];
    const __int128 sum = (of_weights - zero * p.k) * (int64_t{p.x[0]} - p.x_zero) + bias;
    floats.push_back(std::bit_cast<int32_t>(static_cast<float>(sum)));
    clamped.push_back(static_cast<int32_t>(std::clamp<__int128>(sum, INT32_MIN, INT32_MAX)));
  }
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    p.y_type = ElementType::kF32;
    ASSERT_EQ(RunProblem(p), floats) << target << " " << p.Describe();
    p.y_type = ElementType::kS32;
    ASSERT_EQ(RunProblem(p), clamped) << target << " " << p.Describe();
  }
}

// Raw sums pass 2^31 from 65,794 terms of 255 * -128 on, and again from twice as many. The int32
// bias brings one back into range and pushes another further out. Zero points make sums need 64
// bits, and 128, with more than one row tile.
TEST(LinearLong, SumsOfExtremes) {
  for (const int64_t k : {65'788, 65'793, 65'794, 131'590}) {
    for (const ElementType x_type : kCodes) {
      for (const ElementType w_type : kCodes) {
        for (const bool high : {true, false}) {
          Problem p;
          p.n = 4;
          p.k = k;
          p.x_type = x_type;
          p.w_type = w_type;
          p.w.assign(static_cast<size_t>(p.n * k), LowestCode(w_type));
          p.bias_i32 = {INT32_MAX, 0, INT32_MIN, 1};
          for (const int32_t x_zero : {0, INT32_MIN}) {
            if (x_zero != 0 && k != 65'794) continue;
            p.m = x_zero == 0 ? 1 : 5;
            p.x_zero = x_zero;
            if (x_zero != 0) p.w_zero = {INT32_MIN, 0, 128, INT32_MAX};
            p.x.assign(static_cast<size_t>(p.m * k),
                       high ? HighestCode(x_type) : LowestCode(x_type));
            ExpectSumsOfEqualActivations(p);
            if (::testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// Long sums are taken in parts; a few weights that would make some pairs saturate belong to one of
// them (sums/split.h).
TEST(LinearLong, FewPairsPastTheInt16Limit) {
  Problem p;
  p.m = 2;
  p.n = 2;
  p.k = 140'001;
  p.x.assign(static_cast<size_t>(p.m * p.k), 255);
  p.w.assign(static_cast<size_t>(p.n * p.k), 63);
  for (size_t k = 5; k < p.w.size(); k += 20'000) p.w[k] = p.w[k - 1] = 127;
  ExpectSumsOfEqualActivations(p);
}

// Each channel has the bits that it has alone: in panels of its own order, width and distance from
// ties.
void ExpectChannelsAsAlone(const Problem& p) {
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    const std::vector<int32_t> together = RunProblem(p);
    for (int64_t n = 0; n < p.n; ++n) {
      const auto channel = static_cast<size_t>(n);
      Problem one = p;
      one.n = 1;
      one.w.assign(p.w.begin() + n * p.k, p.w.begin() + (n + 1) * p.k);
      if (p.w_scale.size() > 1) one.w_scale = {p.w_scale[channel]};
      if (p.w_zero.size() > 1) one.w_zero = {p.w_zero[channel]};
      if (!p.bias_i32.empty()) one.bias_i32 = {p.bias_i32[channel]};
      const std::vector<int32_t> alone = RunProblem(one);
      for (int64_t m = 0; m < p.m; ++m) {
        ASSERT_EQ(together[static_cast<size_t>(m * p.n + n)], alone[static_cast<size_t>(m)])
            << target << " channel " << n << ": " << p.Describe();
      }
    }
  }
}

// Activations move, so that large weights are no pair (sums/pairing.h); panels differ in whether
// and how.
TEST(LinearChannels, ActivationsThatMove) {
  Choices choices(12);
  for (const int64_t k : {64, 131}) {
    Problem p;
    p.m = choices.OneOf({7, 70});
    p.n = 210;
    p.k = k;
    p.x_gap = 3;
    p.y_type = ElementType::kS32;
    FillBoth(choices, Data::kRandom, p);
    FillOrdinary(choices, k, p.w);
    ExpectChannelsAsAlone(p);
  }
}

// Panels of 16 channels: the first keeps the order of its activations, the last shares another one
// with its neighbours, and both need their rows in 16 bits (sums/arrange.h).
TEST(LinearChannels, WidenedRowsInTwoOrders) {
  Choices choices(13);
  Problem p;
  p.m = 7;
  p.n = 96;
  p.k = 64;
  p.y_type = ElementType::kS32;
  FillBoth(choices, Data::kRandom, p);
  for (int64_t n = 0; n < p.n; ++n) {
    for (int64_t k = 0; k < p.k; ++k) {
      int32_t& w = p.w[static_cast<size_t>(n * p.k + k)];
      switch (n / 16) {
        case 0: w = 127; break;
        case 5: w = k % 16 < 11 ? 127 : 1; break;  // too many for a second pass
        default: w = k % 16 < 2 ? 100 : 1; break;  // safe where these two do not meet
      }
    }
  }
  ExpectChannelsAsAlone(p);
}

bool UsesSaturatingPath(const std::string& target) {
  return target == "AVX3" || target == "AVX2" || target == "SSE4" || target == "SSSE3";
}

TEST(LinearPanels, OnlyCertifiedPanelsTakeTheSaturatingPath) {
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    Problem p;
    p.n = 1000;
    p.k = 6;
    p.w.assign(static_cast<size_t>(p.n * p.k), 64);
    PackedLinear packed;
    ASSERT_TRUE(PackProblem(p, &packed).ok());
    const PackedLinear::PackingStats safe = packed.stats();
    EXPECT_GE(safe.panels, 4) << target;
    EXPECT_EQ(safe.panels_certified, UsesSaturatingPath(target) ? safe.panels : 0) << target;

    p.w[static_cast<size_t>(p.k * 500 + 5)] = 65;  // 64 + 65 in the last pair of channel 500
    ASSERT_TRUE(PackProblem(p, &packed).ok());
    EXPECT_EQ(packed.stats().panels, safe.panels) << target;
    EXPECT_EQ(packed.stats().panels_certified, std::max<int64_t>(safe.panels_certified - 1, 0))
        << target;
  }
}

// If enough pairs are unsafe, packing certifies a panel in another order of its weights, in which
// large weights are no pair.
TEST(LinearPanels, OutliersMoveAwayFromEachOther) {
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    Problem p;
    p.n = 256;
    p.k = 128;
    p.w.assign(static_cast<size_t>(p.n * p.k), 1);
    for (int64_t n = 0; n < p.n; ++n) {
      for (const int64_t k : {0, 1, 16, 17}) p.w[static_cast<size_t>(n * p.k + k)] = 100;
    }
    PackedLinear packed;
    ASSERT_TRUE(PackProblem(p, &packed).ok());
    const PackedLinear::PackingStats stats = packed.stats();
    EXPECT_EQ(stats.panels_certified, UsesSaturatingPath(target) ? stats.panels : 0) << target;
    EXPECT_EQ(packed.ScratchBytes(3) >= 3 * 128, UsesSaturatingPath(target)) << target;
  }
}

TEST(LinearPanels, UnsignedWeightsAreCertifiedAfterTheShift) {
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    Problem p;
    p.k = 2;
    p.w_type = ElementType::kU8;
    PackedLinear packed;
    p.w = {192, 192};  // 64 and 64 after the shift
    ASSERT_TRUE(PackProblem(p, &packed).ok());
    EXPECT_EQ(packed.stats().panels_certified, UsesSaturatingPath(target)) << target;
    p.w = {0, 0};  // -128 and -128
    ASSERT_TRUE(PackProblem(p, &packed).ok());
    EXPECT_EQ(packed.stats().panels_certified, 0) << target;
  }
}

// Channels whose sums are `bias` - 128 .. `bias` + 127, one in each row.
Problem ConsecutiveSums(std::vector<float> w_scale, float y_scale, std::vector<int32_t> bias) {
  Problem p;
  p.m = 256;
  p.n = static_cast<int64_t>(w_scale.size());
  p.k = 4;
  for (int32_t r = 0; r < 256; ++r) p.x.insert(p.x.end(), {r, 128, 128, 128});
  for (int64_t c = 0; c < p.n; ++c) p.w.insert(p.w.end(), {1, 0, 0, 0});
  p.x_zero = 128;
  p.w_scale = std::move(w_scale);
  p.y_scale = y_scale;
  p.bias_i32 = std::move(bias);
  return p;
}

// Channels whose scales are such that 128 bits are far from needed: the codes from quotients of
// integers, half to even, on every instruction set.
void ExpectNearestCodes(const Problem& p) {
  constexpr double kUnit = 1 << 16;  // of which all scales are multiples
  std::vector<int32_t> expected;
  const int32_t low = LowestCode(p.y_type), high = HighestCode(p.y_type);
  for (int64_t i = 0; i < p.m * p.n; ++i) {
    const auto row = static_cast<size_t>(i / p.n), n = static_cast<size_t>(i % p.n);
    const int64_t sum = p.x[4 * row] - p.x_zero + p.bias_i32[n];
    const double w_scale = p.w_scale[p.w_scale.size() == 1 ? 0 : n];
    const auto divisor = static_cast<int64_t>(p.y_scale * kUnit);
    const int64_t value =
        sum * static_cast<int64_t>(p.x_scale) * static_cast<int64_t>(w_scale * kUnit);
    int64_t code = value / divisor - (value % divisor < 0 ? 1 : 0);
    const int64_t rest = 2 * (value - code * divisor);
    if (rest > divisor || (rest == divisor && code % 2 != 0)) ++code;
    expected.push_back(static_cast<int32_t>(std::clamp<int64_t>(code + p.y_zero, low, high)));
  }
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    ASSERT_EQ(RunProblem(p), expected) << target << " " << p.Describe();
  }
}

// A channel for each multiplier A * 2^exponent / 3, A odd and no multiple of 3, with the two sums
// whose values are 2^exponent / 3 above and below ties n + 1/2, n even and odd. No other value but
// ties is as close.
Problem NextToTies(int exponent) {
  const int64_t unit = int64_t{3} << -exponent;  // sums that differ by it have fractions alike
  std::vector<float> w_scale;
  std::vector<int32_t> bias;
  for (int64_t a = 1; a <= 61; a += 2) {
    for (int64_t sum = 0; a % 3 != 0 && sum < 2 * unit; ++sum) {
      const int64_t rest = sum * a % unit;
      if (rest != unit / 2 - 1 && rest != unit / 2 + 1) continue;
      w_scale.push_back(std::ldexp(static_cast<float>(a), exponent));
      bias.push_back(static_cast<int32_t>(sum));
    }
  }
  return ConsecutiveSums(w_scale, 3, bias);
}

// Rounding to multiples of 2^-13 is right down to 2^-12 / 3, and wrong below.
TEST(LinearTies, ValuesNextToTies) {
  for (int exponent = -9; exponent >= -16; --exponent) {
    Problem p = NextToTies(exponent);
    ExpectNearestCodes(p);
    p.y_type = ElementType::kS8;
    ExpectNearestCodes(p);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Each channel has its own distance to ties. The last channel has a multiplier of 1/6; all others
// come closer to ties than this one.
TEST(LinearTies, EachChannelIsAsCloseAsItIs) {
  Problem p = NextToTies(-13);
  p.w_scale.push_back(0.5f);
  p.bias_i32.push_back(1);
  ExpectNearestCodes(ConsecutiveSums(p.w_scale, 3, p.bias_i32));
}

constexpr int64_t kTieChannels = 70;

// Multipliers so small that ties, which are common, are only told from their neighbours in double.
TEST(LinearTies, TiesOfSmallMultipliers) {
  for (const bool per_channel : {false, true}) {
    std::vector<float> w_scale;
    std::vector<int32_t> bias;
    for (int32_t c = 0; c < kTieChannels; ++c) {
      const int32_t numerator = per_channel ? 1 + 2 * (c % 4) : 3;  // 1, 3, 5 or 7
      w_scale.push_back(static_cast<float>(numerator) * 0x1p-13f);
      // The value (2n + 1) / 2 with 2n + 1 = numerator * (2c - 69).
      bias.push_back((2 * c - 69) * 5 * (1 << 12));
    }
    Problem p = ConsecutiveSums(w_scale, 5, bias);
    if (!per_channel) p.w_scale.resize(1);
    p.y_zero = 128;
    ExpectNearestCodes(p);
  }
}

// Layers with a value 2^-40 away from a tie. With odd numbers a, b, c and k, the sum 1 has the
// value a*b*2^-16 / c = k/2 +- 2^-16 / c.
TEST(LinearTies, NearMisses) {
  int found = 0;
  for (int64_t a = 0xC00001; found < 8; a += 2) {
    int64_t inverse = 1;  // of a, modulo 2^15
    for (int i = 0; i < 4; ++i) inverse = inverse * (2 - a * inverse) & 0x7FFF;
    for (int64_t sign : {-1, 1}) {
      const int64_t b = (sign * inverse & 0x7FFF) + 511 * (1 << 15);
      const int64_t rest = (a * b - sign) >> 15;
      for (int64_t k = 257; k < 511; k += 2) {
        // Rounded half to even, the tie would become the other neighbour.
        if (rest % k != 0 || rest / k % 2 == 0 || (k / 2 % 2 == 0) != (sign > 0)) continue;
        ++found;
        Problem p = ConsecutiveSums(
            std::vector<float>(kTieChannels, std::ldexp(static_cast<float>(b), -16)),
            static_cast<float>(rest / k), std::vector<int32_t>(kTieChannels, 1));
        p.x_scale = static_cast<float>(a);
        ExpectNearestCodes(p);
        p.w_scale.resize(1);
        ExpectNearestCodes(p);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

#if defined(__SSE2__)
// A call with few rows may leave the caller's control word as it is: rounding upward, flushing
// subnormals, with traps. It computes the same codes under all of them, and leaves no flag.
TEST(LinearEnvironment, SmallCallsNeitherObeyNorChangeTheEnvironment) {
  constexpr unsigned kControls[] = {0x1F80, 0x3F80, 0x5F80, 0x7F80, 0x9FC0, 0x0000, 0x6000, 0xE040};
  Choices choices(11);
  for (int round = 0; round < 40; ++round) {
    Problem p;
    p.m = choices.Between(1, 48);
    p.n = choices.Between(1, 70);
    p.k = choices.Between(4, 40);
    p.x_type = choices.OneOf({ElementType::kU8, ElementType::kS8});
    p.y_type = choices.OneOf({ElementType::kU8, ElementType::kS8});
    FillBoth(choices, Data::kRandom, p);
    // Multipliers of all three kinds of sums/codes-inl.h: powers of two, sixths, and others.
    p.x_scale = choices.OneOf({1.0f, 1.0f, 0.7f});
    p.y_scale = choices.OneOf({512.0f, 768.0f, 700.0f});
    p.y_zero = choices.OneOf({0, 100});
    const std::vector<int32_t> expected = PlainOutputs(p);
    for (const std::string& target : SupportedTargets()) {
      SCOPED_TRACE(target + " " + p.Describe());
      const ScopedTarget scoped(target);
      PackedLinear packed;
      ASSERT_TRUE(PackProblem(p, &packed).ok());
      GuardedBytes x(Elements(p.m, p.k, 0));
      Spread(p.x, p.m, p.k, 0, x.data());
      for (const unsigned control : kControls) {
        GuardedBytes y(Elements(p.m, p.n, 0));
        const unsigned caller = _mm_getcsr();
        _mm_setcsr(control);
        const bool ok =
            packed.Run({x.data(), p.x_type, p.m, p.k, p.k}, {y.data(), p.y_type, p.m, p.n, p.n})
                .ok();
        const unsigned after = _mm_getcsr();
        _mm_setcsr(caller);
        ASSERT_TRUE(ok);
        EXPECT_EQ(after, control);
        EXPECT_EQ(Collect(p.y_type, p.n, 0, 0xA5, y), expected) << std::hex << control;
      }
    }
  }
}
#endif

}  // namespace
}  // namespace qualm::kernels
