// SPDX-License-Identifier: Apache-2.0
// Every output of the linear layer against its definition, on every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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
using testing::ChooseRealParameters;
using testing::Collect;
using testing::CorrectedSums;
using testing::Data;
using testing::Elements;
using testing::ExpectedOutputs;
using testing::ExpectExactEverywhere;
using testing::Fill;
using testing::GuardedBytes;
using testing::HighestCode;
using testing::LowestCode;
using testing::PackProblem;
using testing::Problem;
using testing::RunProblem;
using testing::Spread;

constexpr ElementType kCodes[] = {ElementType::kU8, ElementType::kS8};
constexpr ElementType kOutputs[] = {ElementType::kU8, ElementType::kS8, ElementType::kS32,
                                    ElementType::kF32};

void FillBoth(Choices& choices, Data data, Problem& p) {
  p.x.resize(static_cast<size_t>(p.m * p.k));
  p.w.resize(static_cast<size_t>(p.n * p.k));
  Fill(choices, data, p.x_type, false, p.x);
  Fill(choices, data, p.w_type, true, p.w);
}

Problem AnySmallProblem(Choices& choices) {
  Problem p;
  p.m = choices.Between(1, 9);
  p.n = choices.OneOf({1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65});
  p.k = choices.OneIn(2) ? choices.Between(0, 20)
                         : choices.OneOf({63, 64, 65, 66, 255, 256, 257, 258});
  p.x_type = kCodes[choices.Between(0, 1)];
  p.w_type = kCodes[choices.Between(0, 1)];
  p.y_type = kOutputs[choices.Between(0, 3)];
  p.x_gap = choices.OneOf({0, 1, 5});
  p.w_gap = choices.OneOf({0, 1, 5});
  p.y_gap = choices.OneOf({0, 1, 5});
  FillBoth(choices,
           choices.OneOf({Data::kRandom, Data::kRandom, Data::kHighLow, Data::kLowLow,
                          Data::kExtremes, Data::kZeroHeavy}),
           p);
  // Zero points: codes, just outside, far outside.
  const int64_t reach = choices.OneOf<int64_t>({0, 127, 300, 100'000, INT32_MAX});
  const auto any_zero = [&](ElementType type) {
    if (choices.OneIn(2)) {
      return static_cast<int32_t>(choices.Between(LowestCode(type), HighestCode(type)));
    }
    return static_cast<int32_t>(choices.Between(-reach - (reach == INT32_MAX), reach));
  };
  p.x_zero = any_zero(p.x_type);
  const bool per_channel = choices.OneIn(2);
  p.w_zero.resize(per_channel ? static_cast<size_t>(p.n) : 1);
  for (int32_t& zero : p.w_zero) zero = any_zero(p.w_type);
  if (choices.OneIn(3)) {
    const int64_t largest = choices.OneOf<int64_t>({1000, INT32_MAX});
    for (int64_t j = 0; j < p.n; ++j) {
      p.bias_i32.push_back(static_cast<int32_t>(choices.Between(-largest, largest)));
    }
  }
  // Full mantissas times sums beyond 2^40 would need more than the reference's 128 bits.
  ChooseRealParameters(choices, CorrectedSums(p), per_channel, reach <= 300 && choices.OneIn(2), p);
  return p;
}

TEST(LinearExact, RandomSmallProblems) {
  Choices choices(1);
  for (int i = 0; i < 1500; ++i) {
    ExpectExactEverywhere(AnySmallProblem(choices));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// All K tails and all row tile residues, with every combination of types.
TEST(LinearExact, EveryTailAndTypeCombination) {
  Choices choices(2);
  for (const ElementType x_type : kCodes) {
    for (const ElementType w_type : kCodes) {
      for (const ElementType y_type : kOutputs) {
        for (int64_t k = 0; k <= 20; ++k) {
          Problem p;
          p.m = 1 + k % 9;
          p.n = 1 + k * 7 % 37;
          p.k = k;
          p.x_type = x_type;
          p.w_type = w_type;
          p.y_type = y_type;
          FillBoth(choices, Data::kRandom, p);
          p.x_zero = 3;
          p.w_zero = {-5};
          ChooseRealParameters(choices, CorrectedSums(p), false, true, p);
          ExpectExactEverywhere(p);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

// Raw sums pass 2^31 from 65,794 terms of 255 * -128 on. The int32 bias brings one back into range
// and pushes another further out.
TEST(LinearExact, LongSumsOfExtremes) {
  Choices choices(3);
  for (const int64_t k :
       {33'025, 33'026, 65'788, 65'791, 65'792, 65'793, 65'794, 65'795, 65'796, 131'579, 131'590}) {
    for (const ElementType x_type : kCodes) {
      for (const ElementType w_type : kCodes) {
        for (const Data data : {Data::kHighLow, Data::kLowLow, Data::kExtremes}) {
          Problem p;
          p.m = 1;
          p.n = 3;
          p.k = k;
          p.x_type = x_type;
          p.w_type = w_type;
          p.y_type = ElementType::kF32;
          FillBoth(choices, data, p);
          if (data != Data::kExtremes) p.bias_i32 = {INT32_MAX, 0, INT32_MIN};
          ExpectExactEverywhere(p);
          p.y_type = ElementType::kS32;
          ExpectExactEverywhere(p);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

// The numbers between a sum and its code must not wrap (sums/codes-inl.h).
TEST(LinearExact, SumsFarBeyondTheCodes) {
  for (const float x_scale : {1.0f, 0.0078125f, 3.0f, 0.1f, 1000.3f}) {
    for (const ElementType y_type : kCodes) {
      Problem p;
      p.m = 3;
      p.k = 4;
      p.y_type = y_type;
      p.x_scale = x_scale;
      for (int64_t bias = 1; bias < int64_t{1} << 31; bias *= 2) {
        for (const int64_t b : {bias - 1, bias + bias / 2, -bias, -bias - bias / 2}) {
          p.bias_i32.push_back(static_cast<int32_t>(std::clamp<int64_t>(b, INT32_MIN, INT32_MAX)));
        }
      }
      p.n = static_cast<int64_t>(p.bias_i32.size());
      p.x.assign(static_cast<size_t>(p.m * p.k), 1);
      p.w.assign(static_cast<size_t>(p.n * p.k), 0);
      p.w[1] = 1;
      ExpectExactEverywhere(p);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// Long sums are taken in parts; a few weights that would make some pairs saturate belong to one of
// them (sums/split.h).
TEST(LinearExact, LongSumsOfFewPairsPastTheInt16Limit) {
  for (const ElementType y_type : {ElementType::kS32, ElementType::kF32}) {
    Problem p;
    p.m = 2;
    p.n = 2;
    p.k = 140'001;
    p.y_type = y_type;
    p.x.assign(static_cast<size_t>(p.m * p.k), 255);
    p.w.assign(static_cast<size_t>(p.n * p.k), 63);
    for (size_t k = 5; k < p.w.size(); k += 20'000) p.w[k] = p.w[k - 1] = 127;
    ExpectExactEverywhere(p);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// The extreme sum of a layer is exactly a limit of int32, or one past it. One channel at a time: a
// neighbour that needs 64 bits would hide a wrong choice.
TEST(LinearExact, SumsAtTheLimitsOfInt32) {
  for (const int64_t past : {0, 1}) {
    Problem p;
    p.k = 3;
    p.y_type = ElementType::kF32;
    p.x = {255, 255, 255};
    p.w = {127, 127, 127};
    p.bias_i32 = {static_cast<int32_t>(INT32_MAX - 3 * 255 * 127 + past)};
    ASSERT_EQ(static_cast<int64_t>(CorrectedSums(p)[0]), INT32_MAX + past);
    ExpectExactEverywhere(p);
    p.w = {-128, -128, -128};
    p.bias_i32 = {static_cast<int32_t>(INT32_MIN + 3 * 255 * 128 - past)};
    ASSERT_EQ(static_cast<int64_t>(CorrectedSums(p)[0]), INT32_MIN - past);
    ExpectExactEverywhere(p);
  }
}

// The same with zero points that need 64 and 128 bits, and more than one row tile.
TEST(LinearExact, LongSumsWithExtremeZeroPoints) {
  Choices choices(4);
  for (const int32_t x_zero : {INT32_MIN, -1, 255, INT32_MAX}) {
    for (const ElementType type : kCodes) {
      Problem p;
      p.m = 5;
      p.n = 4;
      p.k = 65'797;
      p.x_type = type;
      p.w_type = type == ElementType::kU8 ? ElementType::kS8 : ElementType::kU8;
      p.y_type = ElementType::kF32;
      FillBoth(choices, Data::kExtremes, p);
      p.x_zero = x_zero;
      p.w_zero = {INT32_MIN, 0, 128, INT32_MAX};
      ExpectExactEverywhere(p);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(LinearExact, ZeroPointsAtEveryExtreme) {
  Choices choices(5);
  constexpr int32_t kZeros[] = {INT32_MIN, INT32_MIN + 1, -129, -128, 0,
                                127,       128,           255,  256,  INT32_MAX};
  for (const int32_t x_zero : kZeros) {
    for (const int32_t w_zero : kZeros) {
      for (const ElementType x_type : kCodes) {
        for (const ElementType w_type : kCodes) {
          for (const ElementType y_type : {ElementType::kS32, ElementType::kF32}) {
            Problem p;
            p.m = 2;
            p.n = 5;
            p.k = choices.OneOf({1, 2, 7, 8});
            p.x_type = x_type;
            p.w_type = w_type;
            p.y_type = y_type;
            FillBoth(choices, Data::kExtremes, p);
            p.x_zero = x_zero;
            p.w_zero = {w_zero};
            p.bias_i32 = {INT32_MIN, -1, 0, 1, INT32_MAX};
            ExpectExactEverywhere(p);
            if (::testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// One channel needs 128 bits, its neighbours 32: no panel may borrow the other's width.
TEST(LinearExact, ChannelsOfVeryDifferentSize) {
  Choices choices(6);
  for (const ElementType y_type : kOutputs) {
    for (const int64_t odd_one : {0, 1, 40, 129}) {
      Problem p;
      p.m = 6;
      p.n = 130;
      p.k = 37;
      p.y_type = y_type;
      FillBoth(choices, Data::kRandom, p);
      p.x_zero = 1 << 30;
      p.w_zero.resize(130);
      for (int64_t j = 0; j < p.n; ++j) p.w_zero[static_cast<size_t>(j)] = static_cast<int32_t>(j);
      p.w_zero[static_cast<size_t>(odd_one)] = INT32_MIN;
      p.y_scale = std::ldexp(1.0f, 40);
      ExpectExactEverywhere(p);
      p.x_zero = 77;
      p.y_scale = std::ldexp(1.0f, 12);
      ExpectExactEverywhere(p);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

bool UsesSaturatingPath(const std::string& target) {
  return target == "AVX3" || target == "AVX2" || target == "SSE4" || target == "SSSE3";
}

// The case this project is about: pairs at and just past the int16 limit.
TEST(LinearSaturation, PairsAroundTheInt16Limit) {
  const std::pair<int, int> kPairs[] = {{64, 64},   {64, 65},     {127, 1},   {127, 2},
                                        {127, 127}, {-128, 0},    {-128, -1}, {-64, -64},
                                        {-64, -65}, {-128, -128}, {127, -128}};
  for (const auto& [w0, w1] : kPairs) {
    for (const int64_t k : {2, 3, 4, 6, 7, 8}) {
      for (int64_t at = 0; at + 1 < k; at += 2) {
        for (const ElementType x_type : kCodes) {
          Problem p;
          p.m = 5;
          p.n = 3;
          p.k = k;
          p.x_type = x_type;
          p.y_type = ElementType::kS32;
          p.x.assign(static_cast<size_t>(p.m * k), HighestCode(x_type));
          p.w.assign(static_cast<size_t>(p.n * k), 0);
          p.w[static_cast<size_t>(k + at)] = w0;  // channel 1
          p.w[static_cast<size_t>(k + at + 1)] = w1;
          ExpectExactEverywhere(p);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(LinearSaturation, OnlyCertifiedPanelsTakeTheSaturatingPath) {
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

// A few outliers: some pairs saturate, and have extra quads (sums/split.h).
TEST(LinearSaturation, FewPairsPastTheLimit) {
  Choices choices(8);
  for (const int64_t k : {6, 23, 64, 255}) {
    for (const int64_t outliers : {7, 30, 200}) {
      for (const ElementType x_type : kCodes) {
        for (const ElementType y_type : {ElementType::kU8, ElementType::kS32}) {
          Problem p;
          p.m = choices.Between(1, 14);
          p.n = choices.OneOf({1, 5, 16, 40, 130});
          p.k = k;
          p.x_type = x_type;
          p.y_type = y_type;
          p.x_gap = choices.OneOf({0, 3});
          FillBoth(choices, choices.OneOf({Data::kRandom, Data::kHighLow}), p);
          for (int32_t& w : p.w) {
            w = static_cast<int32_t>(choices.OneIn(outliers) ? choices.OneOf({-128, -90, 100, 127})
                                                             : choices.Between(-64, 64));
          }
          ChooseRealParameters(choices, CorrectedSums(p), true, true, p);
          ExpectExactEverywhere(p);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

// Activations move, so that large weights are no pair (sums/pairing.h); panels differ in whether
// and how.
TEST(LinearSaturation, ActivationsThatMove) {
  Choices choices(12);
  for (const int64_t k : {64, 96, 131}) {
    for (const int64_t n : {9, 64, 210}) {
      for (const ElementType x_type : kCodes) {
        for (const ElementType y_type : {ElementType::kU8, ElementType::kF32}) {
          Problem p;
          p.m = choices.OneOf({1, 7, 70});
          p.n = n;
          p.k = k;
          p.x_type = x_type;
          p.y_type = y_type;
          p.x_gap = choices.OneOf({0, 3});
          FillBoth(choices, choices.OneOf({Data::kRandom, Data::kHighLow}), p);
          FillOrdinary(choices, k, p.w);
          if (choices.OneIn(3)) p.w_zero = {3};
          ChooseRealParameters(choices, CorrectedSums(p), true, false, p);
          ExpectExactEverywhere(p);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

// Panels of 16 channels: the first keeps the order of its activations, the last shares another one
// with its neighbours, and both need their rows in 16 bits (sums/arrange.h).
TEST(LinearSaturation, WidenedRowsInTwoOrders) {
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
  ExpectExactEverywhere(p);
}

// Certified in another order than that of the weights given, where that is dear enough.
TEST(LinearSaturation, OutliersMoveAwayFromEachOther) {
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

TEST(LinearSaturation, UnsignedWeightsAreCertifiedAfterTheShift) {
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
    ExpectExactEverywhere(p);
    p.y_type = ElementType::kS8;
    ExpectExactEverywhere(p);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// The last channel has a multiplier of 1/6, all others come closer to ties than it.
TEST(LinearTies, EachChannelIsAsCloseAsItIs) {
  Problem p = NextToTies(-13);
  p.w_scale.push_back(0.5f);
  p.bias_i32.push_back(1);
  ExpectExactEverywhere(ConsecutiveSums(p.w_scale, 3, p.bias_i32));
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
    ExpectExactEverywhere(p);
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
        ExpectExactEverywhere(p);
        p.w_scale.resize(1);
        ExpectExactEverywhere(p);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(LinearRows, EveryRowIsIndependentOfTheOthers) {
  Choices choices(7);
  Problem p;
  p.m = 131;  // two full row blocks and a remainder
  p.n = 19;
  p.k = 23;
  p.x_type = ElementType::kS8;
  FillBoth(choices, Data::kRandom, p);
  p.x_zero = -4;
  p.w_zero = {3};
  p.y_scale = 700.0f;
  p.y_zero = 128;
  const std::vector<int32_t> expected = ExpectedOutputs(p);
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    EXPECT_EQ(RunProblem(p), expected) << target;
    for (int64_t row = 0; row < p.m; row += 13) {
      Problem one = p;
      one.m = 1;
      one.x.assign(p.x.begin() + row * p.k, p.x.begin() + (row + 1) * p.k);
      const std::vector<int32_t> expected_row(expected.begin() + row * p.n,
                                              expected.begin() + (row + 1) * p.n);
      EXPECT_EQ(RunProblem(one), expected_row) << target << " row " << row;
    }
  }
}

#if defined(__SSE2__)
// A call with few rows may leave the caller's control word as it is: rounding upward, flushing
// subnormals, with traps. It computes the same codes under all of them, and leaves no flag.
TEST(LinearRows, SmallCallsNeitherObeyNorChangeTheEnvironment) {
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
    const std::vector<int32_t> expected = ExpectedOutputs(p);
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

TEST(LinearRows, EmptyProblems) {
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    for (const auto& [m, n, k] : {std::tuple{0, 3, 5}, {4, 0, 5}, {0, 0, 0}, {4, 3, 0}}) {
      Problem p;
      p.m = m;
      p.n = n;
      p.k = k;
      p.x.assign(static_cast<size_t>(m) * static_cast<size_t>(k), 1);
      p.w.assign(static_cast<size_t>(n) * static_cast<size_t>(k), 1);
      p.y_zero = 9;
      // K = 0: the sum is 0 and the output its zero point.
      EXPECT_EQ(RunProblem(p), std::vector<int32_t>(static_cast<size_t>(m * n), 9)) << target;
    }
  }
}

}  // namespace
}  // namespace qualm::kernels
