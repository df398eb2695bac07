// SPDX-License-Identifier: Apache-2.0
// What is asked between two questions that must get one answer: problems that differ in everything,
// in their zero points, in one thing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/slice.h"
#include "oracles/conventions/convention.h"
#include "properties/gen/gen.h"
#include "properties/property.h"
#include "properties/spoiled_subject.h"
#include "properties/test_subject.h"

namespace qualm {
namespace {

const Property& History() { return *FindProperty("answer_independent_of_history"); }

void ExpectEveryElementDiffers(const Tensor& a, const Tensor& b, bool negated) {
  ASSERT_EQ(a.dtype(), b.dtype());
  ASSERT_EQ(a.shape(), b.shape());
  for (int64_t i = 0; i < a.size(); ++i) {
    if (a.dtype() != DType::kF32) {
      EXPECT_NE(a.IntAt(i), b.IntAt(i));
    } else if (negated) {
      EXPECT_EQ(a.BitsAt(i) ^ b.BitsAt(i), 0x80000000u) << "an observer takes no other values";
    } else {
      EXPECT_NE(std::fabs(a.FloatAt(i)), std::fabs(b.FloatAt(i)));
    }
  }
}

TEST(AnswerIndependentOfHistory, AsksAboutALookalikeInWhichEveryInputDiffers) {
  bool bias = false;
  for (const Op op : AllOps()) {
    const int met = ForCases(History(), op, 6, [&](const Case& c, const auto& asked) {
      ASSERT_GE(asked.size(), 5u);
      EXPECT_EQ(asked[0].first, asked[2].first);
      EXPECT_EQ(asked[1].first, ProblemOf(c));
      EXPECT_EQ(asked[4].first, ProblemOf(c));
      Case lookalike = asked[3].first;
      ExpectEveryElementDiffers(c.x, lookalike.x, op == Op::kChooseQParams);
      ExpectEveryElementDiffers(c.w, lookalike.w, false);
      for (size_t i = 0; c.bias_i32 && i < c.bias_i32->size(); ++i) {
        EXPECT_NE(c.bias_i32->at(i), lookalike.bias_i32->at(i));
        bias = true;
      }
      lookalike.x = c.x;
      lookalike.w = c.w;
      lookalike.bias_i32 = c.bias_i32;
      EXPECT_EQ(lookalike, ProblemOf(c)) << "all else is what a cache may look at";
    });
    EXPECT_GT(met, 0) << Name(op);
  }
  EXPECT_TRUE(bias);
}

TEST(AnswerIndependentOfHistory, TellsOfProblemsInBetween) {
  for (const Op op : AllOps()) {
    ForCases(History(), op, 3, [&](const Case& c, const auto& asked) {
      const auto refusing = [&](const Case& one) {
        Spoiled subject;
        subject.refuses = [&](const Case& problem) { return problem == one; };
        return Judge(History(), c, subject);
      };
      const Case& other = asked[0].first;
      const Case& lookalike = asked[3].first;
      if (!(other == lookalike)) {
        EXPECT_EQ(refusing(other).judgement, Judgement::kPassed)
            << "the lookalike is asked about: " << Describe(c);
      }
      const Verdict none = refusing(lookalike);
      EXPECT_EQ(none.judgement, Judgement::kVacuous);
      EXPECT_EQ(none.reason, "no problem of the same shape: no");
      Spoiled skips([](size_t at, const Case&, const RunContext&, Outcome& outcome) {
        if (at == 5) outcome = Broken(RunStatus::kSkipped, "cannot");
      });
      EXPECT_EQ(Judge(History(), c, skips).judgement, Judgement::kPassed)
          << "other zero points are not needed";
      for (const size_t run : {size_t{0}, size_t{2}, size_t{3}}) {
        Spoiled crashes([&](size_t at, const Case&, const RunContext&, Outcome& outcome) {
          if (at == run) outcome = Broken(RunStatus::kCrashed, "signal 11");
        });
        const Verdict verdict = Judge(History(), c, crashes);
        EXPECT_TRUE(verdict.failed());
        EXPECT_EQ(verdict.reason,
                  "on another problem (" + Describe(asked[run].first) + "): crashed: signal 11");
      }
    });
  }
}

// Zero points within their type move, others stay.
void ExpectMoved(const QParams& before, const QParams& after, DType dtype) {
  const CodeRange range = RangeOf(dtype);
  EXPECT_EQ(before.scale, after.scale);
  ASSERT_EQ(before.zero_point.size(), after.zero_point.size());
  for (size_t i = 0; i < before.zero_point.size(); ++i) {
    const int32_t zero = before.zero_point[i], moved = after.zero_point[i];
    if (zero < range.min || zero > range.max) {
      EXPECT_EQ(moved, zero) << "it is no code";
      continue;
    }
    EXPECT_NE(moved, zero);
    EXPECT_GE(moved, range.min);
    EXPECT_LE(moved, range.max);
  }
}

TEST(AnswerIndependentOfHistory, AsksAboutOtherZeroPoints) {
  std::map<Op, std::set<std::pair<bool, bool>>> met;  // zero points of inputs, of the output
  for (const Op op : {Op::kLinear, Op::kAdd, Op::kRescale, Op::kQuantize, Op::kDequantize,
                      Op::kMaxPool, Op::kSoftmax}) {
    ForCases(History(), op, 10, [&](const Case& c, const auto&) {
      // A subject may be kept from one of the two.
      for (const auto& [inputs, output] : std::vector<std::pair<bool, bool>>{
               {true, true}, {true, false}, {false, true}, {false, false}}) {
        Spoiled subject;
        subject.refuses = [&, inputs, output](const Case& problem) {
          if (problem.x.shape() != c.x.shape() || problem.M != c.M || problem.N != c.N ||
              !(problem.x == c.x))
            return false;
          return (!inputs && problem.x_q != c.x_q) || (!output && problem.out_q != c.out_q);
        };
        EXPECT_EQ(Judge(History(), c, subject).judgement, Judgement::kPassed) << Describe(c);
        if (subject.asked.size() < 6) continue;
        Case sibling = subject.asked[5].first;
        EXPECT_EQ(Validate(sibling), "");
        const bool of_inputs = sibling.x_q != c.x_q || sibling.w_q != c.w_q;
        const bool of_output = sibling.out_q != c.out_q;
        EXPECT_TRUE(of_inputs || of_output) << "it is the same problem: " << Describe(c);
        met[op].insert({of_inputs, of_output});
        if (of_inputs && IsCode(c.x.dtype())) ExpectMoved(c.x_q, sibling.x_q, c.x.dtype());
        if (of_inputs && HasTwoInputs(op)) ExpectMoved(c.w_q, sibling.w_q, c.w.dtype());
        if (of_output) ExpectMoved(c.out_q, sibling.out_q, c.out_dtype);
        sibling.x_q = c.x_q;
        sibling.out_q = c.out_q;
        if (HasTwoInputs(op)) sibling.w_q = c.w_q;
        EXPECT_EQ(sibling, ProblemOf(c)) << "only zero points differ";
      }
    });
  }
  const std::set<std::pair<bool, bool>> all{{true, true}, {true, false}, {false, true}};
  for (const Op op : {Op::kLinear, Op::kAdd, Op::kRescale}) EXPECT_EQ(met[op], all) << Name(op);
  EXPECT_EQ(met[Op::kQuantize], (std::set<std::pair<bool, bool>>{{false, true}}));
  EXPECT_EQ(met[Op::kDequantize], (std::set<std::pair<bool, bool>>{{true, false}}));
}

TEST(AnswerIndependentOfHistory, ZeroPointsThatAreNoCodeStay) {
  const struct {
    int32_t zero;
    bool moves;
  } rows[]{{-1, false}, {0, true}, {255, true}, {256, false}, {INT32_MIN, false}, {100, true}};
  Case c = CaseOver(Op::kRescale, Tensor(DType::kU8, {1, 3}), DType::kU8);
  for (const auto& of_x : rows) {
    for (const auto& of_y : rows) {
      c.x_q.zero_point = {of_x.zero};
      c.out_q.zero_point = {of_y.zero};
      ASSERT_EQ(Validate(c), "");
      Spoiled subject;
      EXPECT_EQ(Judge(History(), c, subject).judgement, Judgement::kPassed);
      ASSERT_EQ(subject.asked.size(), of_x.moves || of_y.moves ? 6u : 5u) << of_x.zero;
      if (!of_x.moves && !of_y.moves) continue;
      const Case& sibling = subject.asked[5].first;
      ExpectMoved(c.x_q, sibling.x_q, DType::kU8);
      ExpectMoved(c.out_q, sibling.out_q, DType::kU8);
    }
  }
}

TEST(AnswerIndependentOfHistory, TakesWhicheverZeroPointTheSubjectTakes) {
  Case c = CaseOver(Op::kRescale, Tensor(DType::kU8, {1, 3}), DType::kU8);
  for (const bool input : {false, true}) {
    for (const bool output : {false, true}) {
      Spoiled subject;
      subject.refuses = [&](const Case& problem) {
        if (!(problem.x == c.x)) return false;
        return (problem.x_q != c.x_q && !input) || (problem.out_q != c.out_q && !output);
      };
      EXPECT_EQ(Judge(History(), c, subject).judgement, Judgement::kPassed);
      ASSERT_EQ(subject.asked.size(), input || output ? 6u : 5u);
      if (!input && !output) continue;
      EXPECT_EQ(subject.asked[5].first.x_q != c.x_q, input);
      EXPECT_EQ(subject.asked[5].first.out_q != c.out_q, output);
    }
  }
}

// --- One thing changed --------------------------------------------------------------------------

std::set<std::string> ThingsThatDiffer(const Case& a, const Case& b) {
  std::set<std::string> things;
  const auto add = [&](bool differs, const std::string& what) {
    if (differs) things.insert(what);
  };
  add(a.x_q.scale != b.x_q.scale, "the scale of x");
  add(a.x_q.zero_point != b.x_q.zero_point, "the zero point of x");
  add(a.w_q.scale != b.w_q.scale, "the scale of w");
  add(a.w_q.zero_point != b.w_q.zero_point, "the zero point of w");
  add(a.multiplier != b.multiplier, "the multiplier");
  add(a.out_q.scale != b.out_q.scale, "the output scale");
  add(a.out_q.zero_point != b.out_q.zero_point, "the output zero point");
  add(a.bias != b.bias || a.bias_i32 != b.bias_i32, "the bias");
  add(a.out_max != b.out_max, "the clamp");
  add(a.out_min != b.out_min, "the lower clamp");
  add(a.x.shape() != b.x.shape(), "the number of rows");
  add(a.x.dtype() != b.x.dtype(), "the type of x");
  add(a.w.dtype() != b.w.dtype(), "the type of w");
  const Window &v = a.window, &u = b.window;
  const bool dilation = v.dilation_h != u.dilation_h || v.dilation_w != u.dilation_w;
  add(dilation, "the dilation");  // with padding for what the kernel is longer by
  add(v.stride_h != u.stride_h || v.stride_w != u.stride_w, "the stride");
  add(v.groups != u.groups, "the groups");
  add(!dilation && (v.pad_top != u.pad_top || v.pad_left != u.pad_left ||
                    v.pad_bottom != u.pad_bottom || v.pad_right != u.pad_right),
      "the padding");
  ForEachParameter(a, b, [&]<class T>(const Field& field, const T& one, const T& other) {
    if constexpr (requires { static_cast<double>(one); })
      add(one != other, std::string(field.name));
  });
  // All else is the same.
  if (a.x.shape() == b.x.shape()) {
    const auto differ = [](const Tensor& one, const Tensor& other) {
      int64_t count = one.size() != other.size();
      for (size_t i = 0; count == 0 && i + 1 < one.bytes().size(); ++i)
        count += one.bytes()[i] != other.bytes()[i];
      return count != 0                                   ? "many elements"
             : one.bytes().empty()                        ? ""
             : one.bytes().back() != other.bytes().back() ? "the last element"
                                                          : "";
    };
    const std::string x = differ(a.x, b.x), w = v.groups == u.groups ? differ(a.w, b.w) : "";
    add(!x.empty(), x + " of x");
    add(!w.empty(), w + " of w");
    const bool sizes = a.output_shape() != b.output_shape() && a.codes == b.codes;
    add(sizes && v.stride_h == u.stride_h && v.stride_w == u.stride_w, "the shape");
  }
  return things;
}

// What can be changed alone in a valid case of the operation.
std::set<std::string> ThingsOf(Op op) {
  const OpRow& row = RowOf(op);
  std::set<std::string> things{"the number of rows"};
  const auto add = [&](bool has, std::initializer_list<const char*> names) {
    if (has) things.insert(names.begin(), names.end());
  };
  // max_pool: input and output have one scale and one zero point.
  add(row.x_qparams && op != Op::kMaxPool, {"the scale of x"});
  add(row.x_qparams && op != Op::kMaxPool && op != Op::kRequantize, {"the zero point of x"});
  add(HasW(op), {"the scale of w", "the zero point of w"});
  add(HasOutQParams(op), {"the output scale", "the output zero point"});
  add(row.multiplier, {"the multiplier"});
  add(row.bias || row.bias_i32, {"the bias"});
  add(row.clamp, {"the clamp", "the lower clamp"});
  things.insert("the last element of x");
  add(HasW(op), {"the last element of w"});
  add(HasWeights(op), {"the type of w"});
  add(IsCode(row.x_types.front()) && op != Op::kMaxPool, {"the type of x"});
  add(HasWindow(op) && op != Op::kGlobalAvgPool, {"the padding", "the stride"});
  add(row.dilation, {"the dilation"});
  add(op == Op::kConv2d, {"the groups"});
  const Case any;
  ForEachParameter(any, [&]<class T>(const Field& field, const T& value) {
    if constexpr (requires { static_cast<double>(value); }) {
      if (row.*field.has) things.insert(std::string(field.name));
    }
  });
  if (row.dynamic) things.erase("dtype");  // u8 alone
  // With another one the lists of w, or of x, have another length.
  things.erase("w_block");
  things.erase("x_block");
  // Where the output, or the other input, has the type of x.
  if (op == Op::kSoftmax || HasTwoInputs(op)) things.erase("the type of x");
  return things;
}

const Property& OneThing() { return *FindProperty("one_thing_changed"); }

class OneThingChangedOf : public testing::TestWithParam<Op> {};

TEST_P(OneThingChangedOf, IsOneAndIsNamed) {
  const Op op = GetParam();
  std::set<std::string> met;
  ForCases(OneThing(), op, 100, [&](const Case& c, const auto& asked) {
    ASSERT_EQ(asked.size() % 2, 1u);
    ASSERT_LE(asked.size(), 5u) << "two of them at most";
    for (size_t run = 1; run < asked.size(); run += 2) {
      EXPECT_EQ(asked[run + 1].first, ProblemOf(c));
      const std::set<std::string> things = ThingsThatDiffer(c, asked[run].first);
      ASSERT_EQ(things.size(), 1u) << Describe(c) << " " << *things.begin();
      const std::string& thing = *things.begin();
      met.insert(thing);
      const auto reason = [&](size_t wrong) {
        Spoiled subject([&](size_t at, const Case&, const RunContext&, Outcome& outcome) {
          if (at == wrong && !outcome.y.empty()) Spoil(outcome.y, 0);
        });
        return Judge(OneThing(), c, subject).reason;
      };
      EXPECT_EQ(reason(run).find("asked with only " + thing + " changed, the answer departs"), 0u)
          << reason(run);
      EXPECT_EQ(reason(run + 1).find("the first problem, asked again after one with " + thing +
                                     " changed, gets another answer"),
                0u)
          << reason(run + 1);
    }
    // What seldom tells is seldom asked where anything else does.
    for (const std::string& thing : ThingsOf(op)) {
      if (met.contains(thing)) continue;
      Spoiled subject;
      subject.refuses = [&](const Case& problem) {
        return !(problem == ProblemOf(c)) && ThingsThatDiffer(c, problem) != std::set{thing};
      };
      if (Judge(OneThing(), c, subject).judgement == Judgement::kPassed) met.insert(thing);
    }
  });
  EXPECT_EQ(met, ThingsOf(op));
}

INSTANTIATE_TEST_SUITE_P(Ops, OneThingChangedOf, testing::ValuesIn(AllOps()),
                         [](const auto& op) { return std::string(Name(op.param)); });

// The problem that is asked about with this thing changed; the case decides which things are.
Case With(Case c, const std::string& thing) {
  for (int32_t number = 0; number < 256; ++number) {
    if (c.x.dtype() == DType::kF32) {
      c.x.as<float>()[0] = static_cast<float>(number);
    } else {
      c.x.SetInt(0, number);
    }
    Spoiled subject;
    subject.refuses = [&](const Case& problem) {
      return !(problem == c) && ThingsThatDiffer(c, problem) != std::set{thing};
    };
    Judge(OneThing(), c, subject);
    for (const auto& [problem, context] : subject.asked) {
      if (ThingsThatDiffer(c, problem) == std::set<std::string>{thing}) return problem;
    }
  }
  ADD_FAILURE() << "no problem differs in " << thing << " alone";
  return {};
}

Case SmallLinear() {
  Case c;
  c.op = Op::kLinear;
  c.M = 3;
  c.N = 2;
  c.K = 2;
  c.x = Tensor(DType::kU8, {3, 2});
  c.w = Tensor(DType::kS8, {2, 2});
  for (int64_t i = 0; i < 4; ++i) c.w.SetInt(i, static_cast<int32_t>(i - 1));
  return c;
}

TEST(OneThingChanged, ScalesDoubleOrHalveAndZeroPointsMoveByOne) {
  Case c = SmallLinear();
  c.per_channel = true;
  const struct {
    float scale, changed;
  } scales[]{{1, 2}, {0x1p126f, 0x1p127f}, {0x1p127f, 0x1p126f}};
  for (const auto& [scale, changed] : scales) {
    c.w_q = {{1, scale}, {0, 0}};
    EXPECT_EQ(With(c, "the scale of w").w_q.scale, (std::vector<float>{1, changed}));
  }
  const struct {
    int32_t zero, changed;
  } zeros[]{{0, 1},
            {126, 127},
            {127, 126},
            {128, 129},
            {INT32_MAX - 1, INT32_MAX},
            {INT32_MAX, INT32_MAX - 1},
            {INT32_MIN, INT32_MIN + 1}};
  for (const auto& [zero, changed] : zeros) {
    c.w_q = {{1, 1}, {0, zero}};
    EXPECT_EQ(With(c, "the zero point of w").w_q.zero_point, (std::vector<int32_t>{0, changed}));
  }
}

TEST(OneThingChanged, EachChangeIsOfTheLast) {
  Case c = SmallLinear();
  c.out_min = 10;
  c.out_max = 21;
  c.bias = std::vector<float>{3, 4};
  EXPECT_EQ(*With(c, "the bias").bias, (std::vector<float>{3, -4}));
  EXPECT_EQ(With(c, "the clamp").out_max, 15);
  EXPECT_EQ(With(c, "the clamp").out_min, 10);
  Case integers = c;
  integers.bias.reset();
  integers.bias_i32 = std::vector<int32_t>{3, 4};
  EXPECT_EQ(*With(integers, "the bias").bias_i32, (std::vector<int32_t>{3, -5}));
  const Case fewer = With(c, "the number of rows");
  EXPECT_EQ(fewer.M, 2);
  EXPECT_EQ(fewer.x.shape(), (std::vector<int64_t>{2, 2}));
  Case table = CaseOver(Op::kTable, Tensor(DType::kU8, {1, 2}), DType::kU8);
  table.function = Function::kLeakyRelu;
  table.negative_slope = 0.5f;
  EXPECT_EQ(With(table, "negative_slope").negative_slope, 0.25f);
  table = CaseOver(Op::kTable, table.x, DType::kU8);
  table.function = Function::kSigmoid;
  EXPECT_EQ(With(table, "function").function, Function::kTanh) << "the next one";
  Case pool;
  pool.op = Op::kAvgPool;
  pool.N = 2;
  pool.window = {.batch = 3, .in_h = 2, .in_w = 2, .in_c = 2, .kernel_h = 2, .kernel_w = 2};
  pool.x = Tensor(DType::kU8, {3, 2, 2, 2});
  DeriveSizes(&pool);
  EXPECT_EQ(With(pool, "the number of rows").window.batch, 2);
  EXPECT_TRUE(With(pool, "ceil_mode").window.ceil_mode);
}

TEST(OneThingChanged, ObserversChooseForTheOtherType) {
  Case c;
  c.op = Op::kChooseQParams;
  c.M = 1;
  c.N = 2;
  c.x = Tensor(DType::kF32, {1, 1, 2});
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  c.observer.quant_max = 127;  // codes of both types
  for (const DType dtype : {DType::kU8, DType::kS8}) {
    c.observer.dtype = dtype;
    EXPECT_EQ(With(c, "dtype").observer.dtype, dtype == DType::kU8 ? DType::kS8 : DType::kU8);
  }
}

// However many things a subject refuses to have changed, the one that it takes is found, once.
TEST(OneThingChanged, FindsTheOneThingThatASubjectTakes) {
  Case c = SmallLinear();
  for (int32_t number = 0; number < 256; ++number) {
    c.x.SetInt(0, number);
    Spoiled subject;
    subject.refuses = [&](const Case& problem) {
      return !(problem == c) && ThingsThatDiffer(c, problem) != std::set<std::string>{"the clamp"};
    };
    EXPECT_EQ(Judge(OneThing(), c, subject).judgement, Judgement::kPassed);
    ASSERT_EQ(subject.asked.size(), 3u) << number;
    EXPECT_NE(subject.asked[1].first.out_max, c.out_max);
    Spoiled nothing;
    nothing.refuses = [&](const Case& problem) { return !(problem == c); };
    EXPECT_EQ(Judge(OneThing(), c, nothing).reason, "nothing can be changed alone");
    Spoiled skips([](size_t at, const Case&, const RunContext&, Outcome& outcome) {
      if (at == 1) outcome = Broken(RunStatus::kSkipped, "cannot");
    });
    EXPECT_EQ(Judge(OneThing(), c, skips).judgement, Judgement::kPassed) << "others are tried";
  }
}

// Properties that ask twice want two runs, whoever remembers answers.
TEST(History, IsRunAndNotRemembered) {
  for (const char* claim : {"one_thing_changed", "answer_independent_of_history", "same_bits_twice",
                            "packed_once", "concurrent_calls"}) {
    const Case c = SmallLinear();
    Spoiled alone, behind;
    MemoSubject memo(behind);
    EXPECT_EQ(Judge(*FindProperty(claim), c, alone).judgement, Judgement::kPassed);
    EXPECT_EQ(Judge(*FindProperty(claim), c, memo).judgement, Judgement::kPassed);
    EXPECT_EQ(alone.asked.size(), behind.asked.size()) << claim;
  }
}

TEST(SeveralStates, OneThatTheSubjectTakesIsEnough) {
  const Case c = SmallLinear();
  for (const auto& [first, second] : std::vector<std::pair<bool, bool>>{
           {true, false}, {false, true}, {false, false}, {true, true}}) {
    Spoiled subject([&](size_t at, const Case&, const RunContext&, Outcome& outcome) {
      if ((at == 1 && !first) || (at == 2 && !second))
        outcome = Broken(RunStatus::kSkipped, at == 1 ? "not one" : "not two");
    });
    const Verdict verdict = Judge(*FindProperty("layer_strides"), c, subject);
    EXPECT_EQ(verdict.judgement, first || second ? Judgement::kPassed : Judgement::kSkipped);
    EXPECT_EQ(verdict.reason, first || second ? "" : "not two");
  }
}

// One thread has nothing to share. Else the rows are repeated, all but the first turned.
TEST(SeveralThreads, HaveWorkForEachOfThem) {
  const Property& property = *FindProperty("several_threads");
  Spoiled alone([](size_t, const Case&, const RunContext& context, Outcome& outcome) {
    if (context.threads > 1) outcome = Broken(RunStatus::kSkipped, "runs on one thread");
  });
  EXPECT_EQ(Judge(property, SmallLinear(), alone).reason, "runs on one thread");
  EXPECT_EQ(alone.asked.size(), 1u);
  for (const Op op : AllOps()) {
    const int met = ForCases(property, op, 10, [&](const Case& c, const auto& asked) {
      ASSERT_EQ(asked.size(), 2u);
      EXPECT_EQ(asked[0].first, asked[1].first);
      EXPECT_EQ(asked[0].second.rounding, asked[1].second.rounding);
      EXPECT_EQ(asked[0].second.flush_denormals, asked[1].second.flush_denormals);
      const Case& many = asked[0].first;
      EXPECT_EQ(Validate(many), "");
      EXPECT_GE(many.M, c.M);
      if (op == Op::kAdd) EXPECT_TRUE(many.M >= 15) << Describe(c);
      const std::span<const uint8_t> before = c.x.bytes(), after = many.x.bytes();
      EXPECT_TRUE(std::ranges::equal(before, after.first(before.size())));
    });
    EXPECT_GT(met, 0) << Name(op);
  }
}

TEST(SeveralStates, OfOperandsInOneBuffer) {
  Case c = CaseOver(Op::kAdd, Tensor(DType::kU8, {1, 2}), DType::kU8);
  c.w = c.x;
  c.w.SetInt(0, 1);
  for (const bool over : {false, true}) {
    for (const bool shared : {false, true}) {
      Spoiled subject([&](size_t, const Case&, const RunContext& context, Outcome& outcome) {
        if (context.over_w && !over) outcome = Broken(RunStatus::kSkipped, "not over w");
        if (context.shared_inputs && !shared) outcome = Broken(RunStatus::kSkipped, "not shared");
      });
      const Verdict verdict = Judge(*FindProperty("aliased_operands"), c, subject);
      EXPECT_EQ(verdict.judgement, over || shared ? Judgement::kPassed : Judgement::kSkipped);
    }
  }
}

// The promise of a convention is judged by the convention, not by the exact value; where nothing
// is promised, nothing is compared.
TEST(OneThingChanged, FollowsThePromisedConvention) {
  for (const char* claim : {"one_thing_changed", "answer_independent_of_history"}) {
    const Property& property = *FindProperty(claim);
    const Convention& convention = *FindConvention("fbgemm@avx2");
    int departs = 0, wrong = 0;
    for (uint64_t seed = 0; seed < 150; ++seed) {
      const Case c = gen::Draw(Op::kLinear, seed);
      if (!convention.cannot_run(c).empty() || c.M * c.N * c.K > 20'000) continue;
      std::vector<Case> asked;
      const auto run = [&](const Case& problem, const RunContext&) {
        asked.push_back(problem);
        return convention.cannot_run(problem).empty()
                   ? TestSubject::Good(convention.run(problem).y)
                   : Broken(RunStatus::kCrashed, "the convention does not define it");
      };
      TestSubject keeps(run);
      keeps.cannot_run = [&](const Case& problem) {
        // Problems of another shape are chosen without the convention.
        return problem.x.shape() == c.x.shape() ? "" : convention.cannot_run(problem);
      };
      keeps.set_contract({convention.name});
      const Verdict verdict = Judge(property, c, keeps);
      EXPECT_FALSE(verdict.failed()) << claim << " " << Describe(c) << " " << verdict.reason;
      if (verdict.judgement != Judgement::kPassed) continue;
      for (const Case& problem : asked)
        departs += !(convention.run(problem).y == exact::Evaluate(problem));
      // An exact subject does not keep that promise.
      TestSubject exact;
      exact.cannot_run = keeps.cannot_run;
      exact.set_contract({convention.name});
      wrong += Judge(property, c, exact).failed();
    }
    EXPECT_GT(departs, 10) << claim;
    EXPECT_GT(wrong, 5) << claim;
  }
  TestSubject unknown;
  unknown.set_contract({"no such convention"});
  const Case c = gen::Draw(Op::kLinear, gen::Theme::kUniform, 1);
  EXPECT_EQ(Judge(OneThing(), c, unknown).reason, "nothing is promised");
  EXPECT_EQ(unknown.runs, 0);
  EXPECT_EQ(Judge(History(), c, unknown).judgement, Judgement::kPassed);
  EXPECT_EQ(unknown.runs, 5) << "no zero points are moved";
}

// A subject whose new instances can be asked answers wrongly about the problems in between.
TEST(History, AWrongAnswerIsMemoryOnlyIfANewInstanceGivesTheRightOne) {
  static std::map<std::string, TestSubject::RunFunction> anew;
  static int made = 0;
  SubjectRegistry::Get().Add({"anew",
                              "test",
                              "",
                              [] { return std::vector<std::string>{}; },
                              [](const std::string& name) -> std::unique_ptr<Subject> {
                                ++made;
                                return std::make_unique<TestSubject>(anew.at(name), name);
                              },
                              {}});
  const auto wrong = [](const Case& problem, const RunContext& context) {
    Outcome outcome = TestSubject::Exact(problem, context);
    if (!outcome.y.empty()) Spoil(outcome.y, 0);
    return outcome;
  };
  const auto crashes = [](const Case&, const RunContext&) {
    return Broken(RunStatus::kCrashed, "signal 11");
  };
  for (const Property* property : {&OneThing(), &History()}) {
    const bool one_thing = property == &OneThing();
    ForCases(*property, Op::kLinear, 1, [&](const Case& c, const auto& asked) {
      if (asked.size() < (one_thing ? 3 : 6)) return;
      const Case& between = asked[one_thing ? 1 : 5].first;
      const auto judge = [&](const std::string& name) {
        TestSubject subject(
            [&](const Case& problem, const RunContext& context) {
              return problem == between ? wrong(problem, context)
                                        : TestSubject::Exact(problem, context);
            },
            name);
        return Judge(*property, c, subject);
      };
      const std::string own = "anew:" + std::string(property->claim);
      anew[own + "-wrong"] = wrong;
      anew[own + "-crashes"] = crashes;
      anew[own + "-right"] = TestSubject::Exact;
      for (const char* name : {"-wrong", "-crashes"})
        EXPECT_FALSE(judge(own + name).failed()) << name << ": others report that";
      made = 0;
      for (int turn = 0; turn < 8; ++turn) EXPECT_FALSE(judge(own + "-wrong").failed());
      EXPECT_LE(made, 3) << "one that was wrong is asked again, and no new one made";
      made = 0;
      for (int turn = 0; turn < 3; ++turn) {
        const Verdict verdict = judge(own + "-right");
        EXPECT_TRUE(verdict.failed()) << own;
        EXPECT_EQ(verdict.kind, FindingKind::kNondeterminism);
        EXPECT_EQ(made, 1) << "what remembers once is not made again";
      }
    });
    EXPECT_EQ(made, 1) << "nothing was judged";
  }
}

}  // namespace
}  // namespace qualm
