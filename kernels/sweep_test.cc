// SPDX-License-Identifier: Apache-2.0
// One input in 257 of all 2^32, on every target, and all inputs next to every step of the output
// staircase. The steps come from the exact references by bisection: specification and kernel are
// monotone, so the codes between two steps are known.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>

#include "kernels/common/test_support.h"
#include "kernels/elementwise.h"

namespace qualm::kernels {
namespace {

using test::Exactly;
using test::ForEachTarget;
using test::Term;

constexpr uint32_t kStride = 257;
constexpr size_t kBlock = 1 << 16;
constexpr uint32_t kNeighbours = 40;

struct Codes {
  ElementType type;
  int32_t zero_point;
  OutputRange range;
  int32_t lo, hi;
};

// Inputs are ranked 0, 1, ... in ascending order. code(rank) is monotone.
// A float as the name of a test: "0x1_8pm3" is 0x1.8p-3.
std::string NameOf(float value) {
  char text[32];
  std::snprintf(text, sizeof text, "%a", static_cast<double>(value));
  std::string name = text;
  std::ranges::replace(name, '-', 'm');
  std::ranges::replace_if(name, [](char letter) { return letter == '.' || letter == '+'; }, '_');
  return name;
}

struct Sweep {
  uint32_t last;                               // rank
  std::function<int32_t(uint32_t rank)> code;  // the specification
  std::function<void(const std::vector<uint32_t>& ranks, std::vector<uint8_t>* y)> run;
};

void CheckSweep(const Sweep& sweep, const Codes& codes, size_t* steps_seen) {
  // steps[i]: smallest rank with a code above lo + i; last + 1 if there is none.
  std::vector<uint64_t> steps;
  for (int32_t code = codes.lo; code < codes.hi; ++code) {
    uint64_t below = steps.empty() ? 0 : steps.back();
    uint64_t above = uint64_t{sweep.last} + 1;
    while (below < above) {
      const uint64_t middle = (below + above) / 2;
      if (sweep.code(static_cast<uint32_t>(middle)) > code) {
        above = middle;
      } else {
        below = middle + 1;
      }
    }
    steps.push_back(below);
  }
  *steps_seen += static_cast<size_t>(std::count_if(
      steps.begin(), steps.end(), [&](uint64_t s) { return s != 0 && s <= sweep.last; }));
  ForEachTarget([&](const std::string&) {
    std::vector<uint32_t> ranks;
    std::vector<uint8_t> y;
    const auto flush = [&] {
      sweep.run(ranks, &y);
      size_t step = static_cast<size_t>(
          std::upper_bound(steps.begin(), steps.end(), uint64_t{ranks[0]}) - steps.begin());
      for (size_t i = 0; i < ranks.size(); ++i) {
        while (step < steps.size() && steps[step] <= ranks[i]) ++step;
        const auto expected = static_cast<uint8_t>(codes.lo + static_cast<int32_t>(step));
        ASSERT_EQ(y[i], expected) << "rank " << ranks[i];
      }
      ranks.clear();
    };
    for (uint64_t rank = 0; rank <= sweep.last; rank += kStride) {
      ranks.push_back(static_cast<uint32_t>(rank));
      if (ranks.size() == kBlock) flush();
      if (::testing::Test::HasFatalFailure()) return;
    }
    flush();
    for (const uint64_t step : steps) {
      for (uint64_t rank = step - std::min<uint64_t>(step, kNeighbours);
           rank <= std::min<uint64_t>(step + kNeighbours, sweep.last); ++rank) {
        ranks.push_back(static_cast<uint32_t>(rank));
      }
      if (!ranks.empty()) flush();
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

class RequantizeSweep : public ::testing::TestWithParam<Multiplier> {};

TEST_P(RequantizeSweep, MatchesTheSpecification) {
  const Multiplier m = GetParam();
  const Term scale = Exactly(m.numerator_a) * Exactly(m.numerator_b);
  size_t steps = 0;
  for (const Codes& codes : {Codes{ElementType::kU8, 113, {}, 0, 255},
                             Codes{ElementType::kS8, -400, {.min = -100, .max = 101}, -100, 101}}) {
    const auto acc = [](uint32_t rank) { return static_cast<int32_t>(rank ^ 0x80000000u); };
    std::vector<int32_t> in;
    CheckSweep(
        {UINT32_MAX,
         [&](uint32_t rank) {
           return test::ReferenceCode({{acc(rank) * scale.mantissa, scale.exponent}},
                                      Exactly(m.denominator), codes.zero_point, codes.lo, codes.hi);
         },
         [&](const std::vector<uint32_t>& ranks, std::vector<uint8_t>* y) {
           in.resize(ranks.size());
           y->resize(ranks.size());
           std::transform(ranks.begin(), ranks.end(), in.begin(), acc);
           const auto n = static_cast<int64_t>(ranks.size());
           ASSERT_TRUE(Requantize({in.data(), ElementType::kS32, 1, n, n}, {&m, 1},
                                  codes.zero_point, codes.range, {y->data(), codes.type, 1, n, n})
                           .ok());
         }},
        codes, &steps);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(steps, 2u);
}

INSTANTIATE_TEST_SUITE_P(
    Multipliers, RequantizeSweep,
    ::testing::Values(Multiplier{0.1f}, Multiplier{0x1p-13f}, Multiplier{1.7e-7f}, Multiplier{3.7f},
                      Multiplier{0x1.fffffep-12f}, Multiplier{0.02f, 0.003f, 0.05f},
                      Multiplier{1, 1, 12288}, Multiplier{16777213, 16777215, 0x1.fffffap60f}),
    [](const auto& of) {
      return NameOf(of.param.numerator_a) + "_" + NameOf(of.param.numerator_b) + "_" +
             NameOf(of.param.denominator) + "_" + std::to_string(of.param.divisor);
    });

class QuantizeSweep : public ::testing::TestWithParam<float> {};

TEST_P(QuantizeSweep, MatchesTheSpecification) {
  const float scale = GetParam();
  size_t steps = 0;
  // From -inf to +inf; the bits of negative floats descend.
  constexpr uint32_t kInfinity = 0x7F800000;
  const auto value = [](uint32_t rank) {
    return std::bit_cast<float>(rank <= kInfinity ? 0x80000000u + (kInfinity - rank)
                                                  : rank - kInfinity - 1);
  };
  for (const Codes& codes : {Codes{ElementType::kU8, 113, {}, 0, 255},
                             Codes{ElementType::kS8, -400, {.min = -100, .max = 101}, -100, 101}}) {
    std::vector<float> in;
    CheckSweep({2 * kInfinity + 1,
                [&](uint32_t rank) {
                  const float x = value(rank);
                  if (std::isinf(x)) return x < 0 ? codes.lo : codes.hi;
                  return test::ReferenceCode({Exactly(x)}, Exactly(scale), codes.zero_point,
                                             codes.lo, codes.hi);
                },
                [&](const std::vector<uint32_t>& ranks, std::vector<uint8_t>* y) {
                  in.resize(ranks.size());
                  y->resize(ranks.size());
                  std::transform(ranks.begin(), ranks.end(), in.begin(), value);
                  const auto n = static_cast<int64_t>(ranks.size());
                  ASSERT_TRUE(Quantize({in.data(), ElementType::kF32, 1, n, n}, {&scale, 1},
                                       {&codes.zero_point, 1}, codes.range,
                                       {y->data(), codes.type, 1, n, n})
                                  .ok());
                }},
               codes, &steps);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(steps, 2u);
}

INSTANTIATE_TEST_SUITE_P(Scales, QuantizeSweep,
                         ::testing::Values(0.1f, 0x1p-7f, 0x1.5555p-6f, 0x1.fffffep-1f, 0x1p-149f,
                                           0x1.123456p-130f, 0x1.fffffep120f, 3 * 0x1p-7f),
                         [](const auto& of) { return NameOf(of.param); });

}  // namespace
}  // namespace qualm::kernels
