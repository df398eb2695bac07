// SPDX-License-Identifier: Apache-2.0
// Experiments that know no cause: what an output reads, and what all wrong outputs have in common.
// A subject departs by a cause of the table, or computes another case than it was asked.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "properties/gen/gen.h"
#include "triage/fault_test_util.h"
#include "triage/reads.h"
#include "triage/stages.h"
#include "triage/traits.h"

namespace qualm::triage {
namespace {

// A convolution of the images, with random codes.
Case Image(Op op, Window window, int64_t channels) {
  Case c;
  c.op = op;
  c.window = window;
  c.N = channels;
  c.x = Tensor(DType::kU8, {window.batch, window.in_h, window.in_w, window.in_c});
  c.x_q.zero_point = {7};
  c.out_q = {{64}, {20}};
  DeriveSizes(&c);
  Rng rng(5);
  Fill(c.x, rng);
  if (IsConv(op)) {
    c.w = Tensor(DType::kS8, ShapeOfW(c));
    Fill(c.w, rng);
  } else {
    c.out_q = c.x_q;
  }
  OpenClamp(&c);
  EXPECT_EQ(Validate(c), "");
  return c;
}
const Window kPlain{.batch = 1, .in_h = 5, .in_w = 6, .in_c = 2, .kernel_h = 3, .kernel_w = 3};
Window With(Window window, const std::function<void(Window&)>& edit) {
  edit(window);
  return window;
}
const Window kPadded = With(kPlain, [](Window& v) {
  v.pad_left = 2, v.pad_right = 1, v.pad_top = v.pad_bottom = 1, v.stride_w = 2;
});

Case Pair(Op op) {
  Case c = CaseOver(op, Tensor(DType::kU8, {3, 4}), DType::kU8);
  c.w = Tensor(DType::kU8, {3, 4});
  Rng rng(6);
  Fill(c.x, rng), Fill(c.w, rng);
  c.out_q.scale = {2};
  EXPECT_EQ(Validate(c), "");
  return c;
}

// Element i of the result is element from(i) of the tensor.
void Reorder(Tensor& tensor, const std::function<int64_t(int64_t)>& from) {
  const Tensor old = tensor;
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.SetInt(i, old.IntAt(from(i)));
}

struct Misread {
  std::string name;
  Case c;
  std::function<void(Case&)> computes;  // another case than it is asked
  std::string kind, sentence;           // "": nothing is said
};

std::vector<Misread> Misreadings() {
  const Case conv = Image(Op::kConv2d, kPlain, 3), padded = Image(Op::kConv2d, kPadded, 3);
  const Case depthwise = Image(Op::kDepthwise, With(kPlain, [](Window& v) { v.groups = 2; }), 2);
  const auto as = [](const std::string& cause) {
    return [cause](Case& c) {
      Stages stages;
      stages.c = c;
      CauseNamed(cause).change(stages);
      c = stages.c;
    };
  };
  const auto weights = [](std::function<int64_t(const Case&, int64_t)> from) {
    return [from](Case& c) { Reorder(c.w, [&](int64_t i) { return from(c, i); }); };
  };
  return {
      {"Flipped", conv, weights([](const Case& c, int64_t i) {
         const int64_t row = i / c.K * c.K, term = i % c.K;  // two channels of nine taps
         return row + (8 - term / 2) * 2 + term % 2;
       }),
       "index", "takes the weights of the taps from the last to the first (the kernel is flipped)"},
      {"ColumnsFlipped", conv, weights([](const Case& c, int64_t i) {
         const int64_t row = i / c.K * c.K, tap = i % c.K / 2, column = tap % 3;
         return row + (tap - column + 2 - column) * 2 + i % c.K % 2;
       }),
       "index", "takes the columns of the kernel from right to left"},
      {"RowsFlipped", conv, weights([](const Case& c, int64_t i) {
         const int64_t row = i / c.K * c.K, tap = i % c.K / 2, line = tap / 3;
         return row + ((2 - line) * 3 + tap % 3) * 2 + i % c.K % 2;
       }),
       "index", "takes the rows of the kernel from bottom to top"},
      {"Transposed", depthwise, weights([](const Case& c, int64_t i) {
         const int64_t tap = i % c.K;
         return i - tap + tap % 3 * 3 + tap / 3;
       }),
       "index", "takes rows of the kernel for columns (it is transposed)"},
      {"LinearReversed", Layer(3, 2, 9),
       weights([](const Case& c, int64_t i) { return i / c.K * c.K + c.K - 1 - i % c.K; }), "index",
       "takes the weights of a sum from the last to the first"},
      {"OtherOrder", Layer(3, 2, 9),
       weights([](const Case& c, int64_t i) { return i / c.K * c.K + (i % c.K + 2) % c.K; }),
       "index", "pairs elements of x and weights otherwise than it should"},
      {"PaddingOfOtherAxis", padded, as("padding of other axis"), "padding",
       "looks at windows that lie elsewhere than they should"},
      {"StridesSwapped", padded, as("strides swapped"), "index",
       "looks at windows that lie elsewhere than they should, each by another distance"},
      {"GroupZero", Image(Op::kConv2d, With(kPlain, [](Window& v) { v.groups = 2; }), 2),
       as("channels of group 0 for all"), "index",
       "reads the input channels of group 0 where it should read others"},
      {"NextGroup", Image(Op::kConv2d, With(kPlain, [](Window& v) { v.groups = 2; }), 2),
       as("channels of the next group"), "index", "reads other input channels than it should"},
      {"FirstImage", Image(Op::kConv2d, With(kPlain, [](Window& v) { v.batch = 2; }), 2),
       as("first image for all"), "index",
       "reads the first image where it should read another one"},
      {"DilationIgnored",
       Image(Op::kDepthwise,
             With(kPlain,
                  [](Window& v) { v.groups = 2, v.in_h = 7, v.dilation_h = 2, v.pad_bottom = 2; }),
             2),
       [](Case& c) { c.window.dilation_h = 1, c.window.pad_bottom -= 2, DeriveSizes(&c); }, "index",
       "pairs elements of x and weights otherwise than it should"},
      {"LastTerm", Layer(2, 3, 9),
       [](Case& c) {
         for (int64_t n = 0; n < c.N; ++n) c.w.SetInt(n * c.K + c.K - 1, c.w_q.zero_point_at(n));
       },
       "tail", "leaves out the last of 9 terms"},
      {"MiddleTerm", conv,
       [](Case& c) {
         for (int64_t n = 0; n < c.N; ++n) c.w.SetInt(n * c.K + 3, c.w_q.zero_point_at(n));
       },
       "index", "leaves out tap (0, 1) of channel 1"},
      {"InputChannel", conv,
       [](Case& c) {
         for (int64_t i = 0; i < c.w.size(); i += 2) c.w.SetInt(i, c.w_q.zero_point_at(i / c.K));
       },
       "index", "leaves out input channel 0"},
      {"InputChannelOfOneOutput", conv,
       [](Case& c) {
         for (int64_t i = (c.N - 1) * c.K + 1; i < c.w.size(); i += 2)
           c.w.SetInt(i, c.w_q.zero_point_at(c.N - 1));
       },
       "index", "leaves out the last input channel, for the last output channel alone"},
      {"FirstRowOfB", Pair(Op::kMul),
       [](Case& c) { Reorder(c.w, [&](int64_t i) { return i % c.N; }); }, "index",
       "takes elements of the first row of b for other rows"},
      {"FirstElementOfARow", Pair(Op::kAdd),
       [](Case& c) { Reorder(c.w, [&](int64_t i) { return i == 1 ? 0 : i; }); }, "index",
       "takes other elements of b than it should"},
      {"OtherElementsOfA", Pair(Op::kAdd),
       [](Case& c) { Reorder(c.x, [&](int64_t i) { return (i + 1) % c.x.size(); }); }, "index",
       "takes other elements of a than it should"},
      {"SmallerWindow", Image(Op::kMaxPool, kPlain, 2),
       [](Case& c) {
         c.window.kernel_w = 2, c.window.pad_right = 0, c.window.in_w -= 1;
         const Tensor old = c.x;
         c.x = Tensor(DType::kU8, ShapeOfX(c));
         for (int64_t i = 0; i < c.x.size(); ++i) {
           const int64_t pixel = i / 2;
           c.x.SetInt(
               i,
               old.IntAt((pixel / c.window.in_w * (c.window.in_w + 1) + pixel % c.window.in_w) * 2 +
                         i % 2));
         }
         DeriveSizes(&c);
       },
       "index", "leaves out elements of a window"},
      // What changes values is no matter of reading.
      {"Doubled", conv, [](Case& c) { c.x_q.scale = {2}; }, "", ""},
      {"HalvedWeights", conv,
       [](Case& c) {
         for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, c.w.IntAt(i) / 2);
       },
       "", ""},
      {"InputZeroPoint", conv, [](Case& c) { c.x_q.zero_point = {0}; }, "", ""},
      {"Relu", conv, [](Case& c) { c.relu = true; }, "", ""},
  };
}

class Reads : public testing::TestWithParam<Misread> {};

TEST_P(Reads, SaysWhatIsReadElsewhere) {
  const Misread& row = GetParam();
  TestSubject subject = Answers([&](const Case& asked) {
    Case other = ProblemOf(asked);
    row.computes(other);
    const Tensor y = Right(other);
    return y.shape() == Right(asked).shape() ? y : Right(asked);
  });
  const Tensor y = subject.Run(row.c, {}).y;
  if (!row.sentence.empty()) ASSERT_NE(y, Right(row.c));
  const auto said = FindMisreading(row.c, Right(row.c), y, subject);
  EXPECT_EQ(said ? said->sentence : "", row.sentence) << (said ? said->evidence : "");
  if (said) EXPECT_EQ(Name(said->kind), row.kind);
}
INSTANTIATE_TEST_SUITE_P(All, Reads, testing::ValuesIn(Misreadings()),
                         [](const auto& row) { return row.param.name; });

TEST(TraitsOf, OneOutputThatIsOffByOneIsNoRounding) {
  TestSubject subject = Answers([](const Case& asked) {
    Tensor y = Right(asked);
    if (y.size() > 0 && IsCode(y.dtype())) y.SetInt(0, y.IntAt(0) == 5 ? 4 : y.IntAt(0) ^ 1);
    return y;
  });
  const auto said = FindCommonTrait(gen::Draw(Op::kRescale, 3), subject);
  EXPECT_FALSE(said) << said->sentence << "; " << said->evidence;
}

TEST(ReadsOf, AnExactSubjectAndOneThatFailsSayNothing) {
  const Case c = Layer(2, 2, 5);
  TestSubject exact = Answers([](const Case& asked) { return Right(asked); });
  EXPECT_FALSE(FindMisreading(c, Right(c), Plus(Right(c), 0, 1), exact));
  TestSubject fails([](const Case&, const RunContext&) { return Outcome{}; });
  EXPECT_FALSE(FindMisreading(c, Right(c), Plus(Right(c), 0, 1), fails));
}

// More weights than elements that are asked about: the whole layer is asked, not its first rows.
TEST(ReadsOf, ALayerOfManyWeightsIsAskedAsItIs) {
  const Case c = Layer(4, 90, 5);
  TestSubject last_row = Answers([](const Case& asked) {
    Case other = ProblemOf(asked);
    if (asked.M > 3) other.x.CopyFrom(asked.x, 0, asked.K, 3 * asked.K);
    return Right(other);
  });
  const Tensor y = last_row.Run(c, {}).y;
  ASSERT_NE(y, Right(c));
  const auto said = FindMisreading(c, Right(c), y, last_row);
  ASSERT_TRUE(said);
  EXPECT_EQ(said->not_in, "");
}

struct Common {
  std::string name, cause;
  Op op;
  std::string kind, sentence;  // the beginning; "": nothing is said
};
const Common kCommon[] = {
    {"Ties", "half away from zero", Op::kRequantize, "tie", "is off by one on some exact ties"},
    {"NextToTies", "float32 multiplier", Op::kRequantize, "rounding",
     "is off by one next to ties, of the answers asked within 2^-"},
    {"SomeTies", "float32 multiplier", Op::kConcat, "tie", "is off by one on some exact ties"},
    {"OffByOne", "operands rounded first", Op::kAdd, "rounding",
     "is off by one at most in the cases asked, in either direction"},
    {"Wrap", "int32 wrap", Op::kLinear, "int32-overflow",
     "is wrong only where the integer that is scaled is 2^31 or more"},
    {"Conversion", "conversion overflow", Op::kRequantize, "int32-overflow",
     "is wrong only where the scaled value is 2^31 or more"},
    {"Narrow", "truncating narrow", Op::kQuantize, "clamp",
     "is wrong nearly only where the value lies beyond the bounds"},
    {"Factor", "result doubled", Op::kLinear, "rounding", "multiplies by another number"},
    {"Channel", "input zero point ignored", Op::kLinear, "zero-point",
     "adds a wrong amount to the outputs of a channel"},
    {"Pairs", "pair saturation", Op::kLinear, "", ""},
};

class Traits : public testing::TestWithParam<Common> {};

TEST_P(Traits, SaysWhatWrongOutputsHaveInCommon) {
  const Common& row = GetParam();
  const Cause& cause = CauseNamed(row.cause);
  TestSubject subject = Answers(
      [&](const Case& asked) { return Counterfactual(asked, cause).value_or(Right(asked)); });
  subject.cannot_run = [](const Case& asked) {
    return HasWideCodes(asked) ? std::string(kOfWideCodes) : "";
  };
  std::optional<Case> found;
  for (uint64_t seed = 1; !found && seed < 500; ++seed) {
    const Case c = gen::Draw(row.op, seed);
    if (HasWideCodes(c)) continue;
    if (c.M * c.N * std::max<int64_t>(c.K, 1) < 20'000 && subject.Run(c, {}).y != Right(c))
      found = c;
  }
  ASSERT_TRUE(found);
  const auto said = FindCommonTrait(*found, subject);
  EXPECT_EQ(said ? said->sentence.substr(0, row.sentence.size()) : "", row.sentence)
      << (said ? said->sentence + "; " + said->evidence : "");
  if (said) EXPECT_EQ(Name(said->kind), row.kind);
}
INSTANTIATE_TEST_SUITE_P(All, Traits, testing::ValuesIn(kCommon),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace qualm::triage
