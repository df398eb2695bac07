// SPDX-License-Identifier: Apache-2.0
#include "triage/printed.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/float_text.h"
#include "core/random_case_test_util.h"
#include "oracles/conventions/convention.h"
#include "oracles/exact/exact.h"
#include "triage/identify.h"
#include "triage/recorded.h"

namespace qualm::triage {
namespace {

using List = Printed::List;
using Verdict = PrintedAnswer::Verdict;

constexpr List kAll[] = {List::kX,        List::kXScale,     List::kWScale,
                         List::kOutScale, List::kMultiplier, List::kBias};

std::span<float> Writable(Case& c, List list) {
  switch (list) {
    case List::kX: return c.x.as<float>();
    case List::kXScale: return c.x_q.scale;
    case List::kWScale: return c.w_q.scale;
    case List::kOutScale: return c.out_q.scale;
    case List::kMultiplier: return c.multiplier;
    case List::kBias: return *c.bias;
  }
  return {};
}

// The case as somebody prints it who shows `digits` digits of the numbers of these lists.
Case Print(const Case& c, int digits, Rng& rng, std::span<const List> lists) {
  Case printed = c;
  for (const List list : lists) {
    const std::span<const float> values = ListOf(c, list);
    for (size_t i = 0; i < values.size(); ++i) {
      const std::string text = fmt::format("{:.{}e}", values[i], digits - 1);
      const std::optional<float> read = ParseFloatText(text);
      if (!std::isfinite(values[i]) || !ParseDecimal(text) || !read || rng.Chance(1, 4)) continue;
      const float nominal = *read;
      if (list != List::kX && list != List::kBias && !(nominal > 0)) continue;
      Writable(printed, list)[i] = nominal;
      printed.printed.push_back({list, static_cast<int64_t>(i), text});
    }
  }
  if (RowOf(c.op).out_q == OutQParams::kOfInput) printed.out_q = printed.x_q;
  return printed;
}

// The value that an OtherNumber speaks of.
float* Find(Case& c, const std::string& name) {
  const bool pair = HasTwoInputs(c.op);
  const std::map<std::string, List> lists = {{"x", List::kX},
                                             {pair ? "a_scale" : "x_scale", List::kXScale},
                                             {pair ? "b_scale" : "w_scale", List::kWScale},
                                             {"out_scale", List::kOutScale},
                                             {"multiplier", List::kMultiplier},
                                             {"bias", List::kBias}};
  const size_t bracket = name.find('[');
  const size_t index = bracket == std::string::npos ? 0 : std::stoul(name.substr(bracket + 1));
  return &Writable(c, lists.at(name.substr(0, bracket)))[index];
}

// Every way gives the answer, with numbers that print as those of the case.
void ExpectWays(const Case& c, const PrintedAnswer& answer, const Tensor& y) {
  for (const OtherNumbers& way : answer.ways) {
    const Convention* convention = FindConvention(way.arithmetic);
    for (const bool high : {false, true}) {
      Case moved = c;
      for (const OtherNumber& number : way.numbers) {
        const float value = high ? number.high : number.low;
        *Find(moved, number.name) = value;
        const size_t digits = number.text.find('e') - (number.text[0] == '-' ? 1 : 0) - 1;
        const double off =
            std::abs(static_cast<double>(value) - *ParseDoubleText(number.text.substr(0, 1) == "-"
                                                                       ? "-" + number.text.substr(1)
                                                                       : number.text));
        const double unit = std::pow(10, std::stoi(number.text.substr(number.text.find('e') + 1)) -
                                             static_cast<int>(digits) + 1);
        EXPECT_LE(off, unit / 2 * (1 + 1e-6)) << number.name << " " << number.text;
      }
      EXPECT_EQ(convention == nullptr ? exact::Evaluate(moved) : convention->run(moved).y, y)
          << way.arithmetic << " " << Describe(c);
    }
  }
}

// An answer of numbers that were printed with few digits: never told to be beyond them, and nearly
// always found to be within.
TEST(Printed, TheNumbersThatWerePrintedAreWithin) {
  for (const Op op : AllOps()) {
    test::RandomCase draw(31);
    Rng rng(32);
    const auto lists = std::span(kAll).subspan(RowOf(op).dynamic ? 1 : 0);
    std::map<Verdict, int> verdicts;  // of codes: a float32 shows scales to the last bit
    for (int i = 0; i < 800; ++i) {
      const Case c = draw.Draw(op);
      const Case printed = Print(c, 2 + i % 3, rng, lists);
      ASSERT_EQ(Validate(printed), "");
      const Tensor y = exact::Evaluate(c);
      const PrintedAnswer answer = ExaminePrinted(printed, y);
      if (IsCode(c.out_dtype) || op == Op::kDequantize) ++verdicts[answer.verdict];
      EXPECT_NE(answer.verdict, Verdict::kBeyond) << Describe(c);
      if (answer.verdict == Verdict::kWithin) ExpectWays(printed, answer, y);
      EXPECT_EQ(answer.verdict == Verdict::kAsWritten,
                y.empty() || printed.printed.empty() || exact::Evaluate(printed) == y);
    }
    const int within = verdicts[Verdict::kWithin], open = verdicts[Verdict::kUndecided];
    RecordProperty(std::string(Name(op)), fmt::format("{} within, {} undecided", within, open));
    if (op == Op::kTable || op == Op::kSoftmax || op == Op::kChooseQParams || op == Op::kCast)
      continue;
    if (op != Op::kMaxPool && op != Op::kDynamicLinear) EXPECT_GT(within, 15) << Name(op);
    EXPECT_LE(open, within / 5) << Name(op);
  }
}

// One code changed: whatever is said to be beyond the digits is not given by numbers within them.
TEST(Printed, WhatIsBeyondIsGivenByNoNumbers) {
  int64_t beyond = 0, with_index = 0;
  for (const Op op : AllOps()) {
    test::RandomCase draw(41);
    Rng rng(42);
    for (int i = 0; i < 100; ++i) {
      const Case c = draw.Draw(op);
      const Case printed = Print(c, 3, rng, kAll);
      Tensor y = exact::Evaluate(c);
      if (y.empty() || !IsCode(y.dtype())) continue;
      const auto at = static_cast<int64_t>(rng.Below(static_cast<uint64_t>(y.size())));
      const CodeRange range = RangeOf(y.dtype());
      y.SetInt(at, std::clamp(y.IntAt(at) + (rng.Chance(1, 2) ? 2 : -2), range.min, range.max));
      const PrintedAnswer answer = ExaminePrinted(printed, y);
      ExpectWays(printed, answer, y);
      if (answer.verdict != Verdict::kBeyond) continue;
      ++beyond;
      with_index += answer.index >= 0 ? 1 : 0;
      for (int sample = 0; sample < 50; ++sample) {
        Case moved = ProblemOf(printed);
        for (const Printed& number : printed.printed) {
          const std::string digits = number.text.substr(0, number.text.find('e'));
          const double unit =
              std::pow(10, std::stoi(number.text.substr(number.text.find('e') + 1)) - 2);
          float& value = Writable(moved, number.list)[static_cast<size_t>(number.index)];
          value = static_cast<float>(value + (rng.Unit() - 0.5) * unit * 0.999);
        }
        if (RowOf(op).out_q == OutQParams::kOfInput) moved.out_q = moved.x_q;
        const bool finite = std::ranges::all_of(printed.printed, [&](const Printed& number) {
          return std::isfinite(Writable(moved, number.list)[static_cast<size_t>(number.index)]);
        });
        if (!finite || !Validate(moved).empty()) continue;
        const Tensor given = exact::Evaluate(moved);
        EXPECT_NE(given, y) << Describe(c);
        if (answer.index < 0) continue;
        EXPECT_GE(given.IntAt(answer.index), std::stoi(answer.lowest)) << Describe(c);
        EXPECT_LE(given.IntAt(answer.index), std::stoi(answer.highest)) << Describe(c);
      }
    }
  }
  EXPECT_GT(beyond, 300);
  EXPECT_GT(with_index, 200);
  EXPECT_LT(with_index, beyond) << "some answers ask for different numbers in different outputs";
}

Case Requantize(std::vector<int32_t> x, const std::string& multiplier) {
  Case c;
  c.op = Op::kRequantize;
  c.M = static_cast<int64_t>(x.size());
  c.N = 1;
  c.x = Tensor::Of<int32_t>({c.M, 1}, x);
  c.multiplier = {*ParseFloatText(multiplier)};
  c.printed = {{List::kMultiplier, 0, multiplier}};
  return c;
}
Tensor Codes(std::vector<uint8_t> y) {
  const auto size = static_cast<int64_t>(y.size());
  return Tensor::Of<uint8_t>({size, 1}, y);
}

TEST(Printed, SaysWhatIsMeant) {
  const auto text = [](const Case& c, const Tensor& y) {
    return PrintedText(ExaminePrinted(c, y), y);
  };
  const Case c = Requantize({1000, 3000}, "0.0160");  // 16 and 48; 15.95 to 16.05, 47.85 to 48.15
  EXPECT_EQ(text(c, Codes({16, 48})), "");
  EXPECT_EQ(text(c, Codes({16, 49})),
            "  no numbers within the printed digits make the answer exact: output 1 is 48 with all "
            "of them, not 49\n");
  // 10000 asks for 0.01565 to 0.01575, and 1000 takes them too.
  EXPECT_EQ(text(Requantize({10000, 1000}, "0.016"), Codes({157, 16})),
            "  within the printed digits the answer is exact, so its difference shows no fault:\n"
            "    with multiplier between 0.01565 and 0.015749998 (printed 0.016)\n");
  EXPECT_EQ(text(Requantize({10000, 10000}, "0.016"), Codes({157, 158})),
            "  no numbers within the printed digits make the answer exact\n");
  Case whole = c;
  whole.printed.clear();
  EXPECT_EQ(text(whole, Codes({16, 49})), "");
}

// 0.1 * 3 rounded once is 0.3, which is not the float32 that 0.3000 is nearest to.
TEST(Printed, AnOutputIsThatWhichPrintsSo) {
  Case c = CaseOver(Op::kDequantize, Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{3, 7}),
                    DType::kF32);
  c.x_q.scale = {0.1f};
  const Tensor right = exact::Evaluate(c);
  c.observed = Observed{"somebody",
                        Tensor::Of<float>({1, 2}, std::vector<float>{0.3f, 0.7f}),
                        {},
                        {{0, "0.3000"}, {1, "0.7"}}};
  ASSERT_EQ(Validate(c), "");
  Case taken = c;
  EXPECT_EQ(TakeAsPrinted(&taken), "observed output, as printed:\n  the exact output prints so\n");
  EXPECT_EQ(taken.observed->y, right);
  EXPECT_TRUE(taken.observed->printed.empty());
  EXPECT_FALSE(BitEqual(c, c.observed->y, AllConventionsAndExact()).empty());
  taken = c;
  taken.observed->y.as<float>()[1] = 0.8f;
  taken.observed->printed[1].second = "0.8";
  EXPECT_EQ(TakeAsPrinted(&taken),
            "observed output, as printed:\n  no known arithmetic gives an output that prints so\n");
  EXPECT_EQ(taken.observed->y.FloatAt(0), right.FloatAt(0));
  EXPECT_EQ(taken.observed->y.FloatAt(1), 0.8f);
  EXPECT_EQ(TakeAsPrinted(&taken), "") << "nothing is printed any more";
}

// With 1/64, which prints as 0.016, 1056 and -1056 are ties, 16.5 and -16.5. A convention that
// rounds halves up makes 17 and -16 of them, which no multiplier makes in the exact meaning.
TEST(Printed, NamesConventions) {
  Case c = Requantize({1056, -1056}, "0.016");
  c.out_dtype = DType::kS8;
  c.out_min = -128, c.out_max = 127;
  ASSERT_EQ(Validate(c), "");
  const Tensor y = Tensor::Of<int8_t>({2, 1}, std::vector<int8_t>{17, -16});
  Case half = c;
  half.multiplier = {0x1p-6f};
  const PrintedAnswer answer = ExaminePrinted(c, y);
  EXPECT_EQ(answer.verdict, Verdict::kBeyond);
  EXPECT_EQ(answer.index, -1);
  ExpectWays(c, answer, y);
  int64_t named = 0;
  for (const ConventionOrExact& arithmetic : AllConventionsAndExact().subspan(1)) {
    if (!arithmetic.CannotRun(half).empty() || arithmetic.Run(half) != y) continue;
    EXPECT_TRUE(std::ranges::any_of(answer.ways, [&](const OtherNumbers& way) {
      return way.arithmetic == arithmetic.name;
    })) << arithmetic.name;
    ++named;
  }
  EXPECT_GT(named, 0);
  const std::string text = PrintedText(answer, y);
  EXPECT_NE(text.find("within the printed digits it is that of "), std::string::npos) << text;
  EXPECT_NE(text.find(": with multiplier "), std::string::npos) << text;
}

// Both operands of a sum were printed, and neither alone explains the answer.
TEST(Printed, SeveralNumbersTogether) {
  Case c;
  c.op = Op::kAdd;
  c.M = 1, c.N = 3;
  c.x = Tensor::Of<uint8_t>({1, 3}, std::vector<uint8_t>{200, 0, 200});
  c.w = Tensor::Of<uint8_t>({1, 3}, std::vector<uint8_t>{0, 200, 200});
  c.x_q.scale = {0.52f}, c.w_q.scale = {0.32f}, c.out_q.scale = {1};
  c.printed = {{List::kXScale, 0, "0.52"}, {List::kWScale, 0, "0.32"}};
  ASSERT_EQ(Validate(c), "");
  // With 0.5176 and 0.3226: 103.52, 64.52, 168.04; as written 104, 64, 168.
  Case meant = c;
  meant.x_q.scale = {0.5174f}, meant.w_q.scale = {0.3227f};
  const Tensor y = exact::Evaluate(meant);
  ASSERT_EQ(y.IntAt(0), 103);
  ASSERT_EQ(y.IntAt(1), 65);
  const PrintedAnswer answer = ExaminePrinted(c, y);
  ASSERT_EQ(answer.verdict, Verdict::kWithin);
  ASSERT_EQ(answer.ways.size(), 1u);
  EXPECT_EQ(answer.ways[0].numbers.size(), 2u);
  ExpectWays(c, answer, y);
}

// What a table of a model calls wrong does not lie within the printed digits.
TEST(Printed, AnAnswerWithinTheDigitsIsNotWrong) {
  const Case c = Requantize({10000, 1000}, "0.016");
  const RecordedAnswer within = JudgeRecorded(c, Codes({157, 16}));
  EXPECT_FALSE(within.exact());
  EXPECT_TRUE(within.within_digits);
  EXPECT_FALSE(within.is_wrong());
  const RecordedAnswer beyond = JudgeRecorded(c, Codes({150, 16}));
  EXPECT_FALSE(beyond.within_digits);
  EXPECT_TRUE(beyond.is_wrong());
}

}  // namespace
}  // namespace qualm::triage
