// SPDX-License-Identifier: Apache-2.0
// Subjects that are exact but for one thing: one output of one run, one run that fails, one
// context. A property that compares must see each, whichever run and whichever output it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/slice.h"
#include "core/status.h"
#include "oracles/conventions/convention.h"
#include "properties/gen/gen.h"
#include "properties/property.h"
#include "properties/relation.h"
#include "properties/spoiled_subject.h"
#include "properties/test_subject.h"

namespace qualm {
namespace {

// Properties in which every output counts, of these runs: a wrong one anywhere is a failure.
struct Compared {
  const char* claim;
  std::vector<size_t> runs;  // none: all
  std::optional<FindingKind> kind = std::nullopt;
  bool same_place = true;  // the output that is told is the one that is wrong
};

const std::vector<Compared>& AllCompared() {
  using enum FindingKind;
  static const std::vector<Compared> compared{
      {"matches_exact", {}},
      {"in_place", {}, kMemory},
      {"alignment_and_stride", {}, kMemory},
      {"same_bits_twice", {}, kNondeterminism},
      {"poison_is_irrelevant", {}, kMemory},
      {"environment", {}, kRounding},
      {"answer_independent_of_history", {1, 4, 5}, kNondeterminism},
      {"one_thing_changed", {}, kNondeterminism},
      {"packed_once", {}, kNondeterminism},
      {"concurrent_calls", {}, kNondeterminism},
      {"several_threads", {}, kNondeterminism},
      {"layer_strides", {}, kMemory},
      {"aliased_operands", {}, kMemory},
      {"k_permutation", {}},
      {"zero_term_append", {}},
      {"zero_point_shift", {}},
      {"gauge", {}},
      {"per_channel_equals_per_tensor", {}},
      {"weight_scale_doubling", {}},
      {"row_order", {}, std::nullopt, false},
      {"row_independence", {1, 2}, std::nullopt, false},
      {"column_independence", {1, 2}, std::nullopt, false},
      {"batch_independence", {1, 2}, std::nullopt, false},
      {"groups_are_separate", {1, 2}, std::nullopt, false},
      {"rows_are_tensors", {1, 2}},
      {"identity_weights", {}},
      {"one_by_one_is_linear", {}},
      {"padding_is_explicit", {}},
      {"depthwise_is_grouped", {}},
      {"dilation_is_zero_stuffed", {}},
      {"stride_is_subsample", {0}},
      {"constants_pool_to_themselves", {}},
      {"counts_only_padding_that_is", {}},
      {"global_is_whole_window", {}},
      {"commutes", {}},
      {"neutral_operand_is_rescale", {}},
      {"equal_qparams_is_identity", {}},
      {"parts_are_rescaled", {}, std::nullopt, false},
      {"relu_is_rescale", {}},
      {"row_permutation", {}, std::nullopt, false},
      {"added_constant", {}},
      {"input_zero_point_is_irrelevant", {}},
      {"value_permutation", {}},
      {"zero_append", {}},
      {"symmetric_negation", {}},
      {"split_k", {}, std::nullopt},
  };
  return compared;
}

class EachComparison : public testing::TestWithParam<size_t> {};

TEST_P(EachComparison, SeesOneWrongOutputOfOneRunAndTellsTheNumbers) {
  const Compared& row = AllCompared()[GetParam()];
  const Property& property = *FindProperty(row.claim);
  for (const Op op : property.ops) {
    const int met = ForCases(property, op, 4, [&](const Case& c, const auto& asked) {
      // Windows that only ceil mode has are in no image of stride 1.
      if (property.claim == "stride_is_subsample" && c.window.ceil_mode) return;
      // The codes of values that are new are compared with nothing, and move the others.
      if (property.claim == "zero_append" && c.codes) return;
      for (size_t run = 0; run < asked.size(); ++run) {
        if (!row.runs.empty() && std::ranges::find(row.runs, run) == row.runs.end()) continue;
        int64_t size = 1;
        for (const int64_t dim : asked[run].first.output_shape()) size *= dim;
        for (const int64_t i : std::set<int64_t>{0, size / 2, size - 1}) {
          Spoiled subject([&](size_t at, const Case&, const RunContext&, Outcome& outcome) {
            if (at == run) Spoil(outcome.y, i);
          });
          const Verdict verdict = Judge(property, c, subject);
          ASSERT_TRUE(verdict.failed())
              << FullName(op, property) << " run " << run << " output " << i << " of " << size
              << " " << Describe(c) << " " << verdict.reason;
          ASSERT_TRUE(verdict.divergence.has_value()) << verdict.reason;
          const Divergence& divergence = *verdict.divergence;
          EXPECT_NE(divergence.expected, divergence.actual);
          // Of two answers to one question none is expected.
          const auto has = [&](const std::string& text) {
            return verdict.reason.find(text) != std::string::npos;
          };
          const auto both = [&](const std::string& first, const std::string& then) {
            return has(": first " + first + " at output") && has(", then " + then);
          };
          const std::string &right = divergence.expected, &wrong = divergence.actual;
          EXPECT_TRUE((has(": expected " + right) && has("got " + wrong)) || both(right, wrong) ||
                      both(wrong, right))
              << verdict.reason;
          EXPECT_GT(verdict.reason.rfind(": "), 10u) << "what went wrong: " << verdict.reason;
          // An answer that is not given again has no cause in where and how it was asked.
          if (verdict.reason.find("asked") == std::string::npos ||
              verdict.kind != FindingKind::kNondeterminism) {
            EXPECT_EQ(verdict.kind, row.kind) << row.claim << ": " << verdict.reason;
          }
          if (row.same_place) {
            EXPECT_EQ(divergence.index, i) << FullName(op, property);
          }
        }
      }
    });
    EXPECT_GT(met, 0) << FullName(op, property);
  }
}

INSTANTIATE_TEST_SUITE_P(Properties, EachComparison,
                         testing::Range(size_t{0}, AllCompared().size()),
                         [](const auto& at) { return std::string(AllCompared()[at.param].claim); });

class EachProperty : public testing::TestWithParam<size_t> {
 protected:
  const Property& property() const { return AllProperties()[GetParam()]; }
  // These two ask only where there are conventions or other targets.
  bool AsksHere() const {
    return property().claim != "matches_model" && property().claim != "targets_agree";
  }
};

TEST_P(EachProperty, TellsACrashAndAWrongShapeOfAnyRun) {
  if (!AsksHere()) return;
  for (const Op op : property().ops) {
    const int met = ForCases(property(), op, 2, [&](const Case& c, const auto& asked) {
      for (size_t run = 0; run < asked.size(); ++run) {
        Spoiled crashes([&](size_t at, const Case&, const RunContext&, Outcome& outcome) {
          if (at == run) outcome = Broken(RunStatus::kCrashed, "signal 11");
        });
        const Verdict crash = Judge(property(), c, crashes);
        ASSERT_TRUE(crash.failed()) << FullName(op, property()) << " run " << run;
        EXPECT_EQ(crash.kind, FindingKind::kCrash) << FullName(op, property()) << " run " << run;
        EXPECT_NE(crash.reason.find("crashed: signal 11"), std::string::npos) << crash.reason;
        Spoiled long_answer([&](size_t at, const Case&, const RunContext&, Outcome& outcome) {
          if (at != run) return;
          std::vector<int64_t> shape = outcome.y.shape();
          ++shape.back();
          outcome.y = Tensor(outcome.y.dtype(), shape);
        });
        const Verdict wrong = Judge(property(), c, long_answer);
        EXPECT_TRUE(wrong.failed()) << FullName(op, property()) << " run " << run;
        EXPECT_EQ(wrong.kind, FindingKind::kUnknown);
        Spoiled other_type([&](size_t at, const Case&, const RunContext&, Outcome& outcome) {
          if (at != run) return;
          const DType dtype = outcome.y.dtype() == DType::kS8 ? DType::kU8 : DType::kS8;
          outcome.y = Tensor(dtype, outcome.y.shape());
        });
        EXPECT_TRUE(Judge(property(), c, other_type).failed()) << FullName(op, property());
      }
    });
    EXPECT_GT(met, 0) << FullName(op, property());
  }
}

TEST_P(EachProperty, AnUnaskedRunIsNoFailure) {
  if (!AsksHere()) return;
  for (const Op op : property().ops) {
    ForCases(property(), op, 2, [&](const Case& c, const auto& asked) {
      for (size_t run = 0; run < asked.size(); ++run) {
        Spoiled skips([&](size_t at, const Case&, const RunContext&, Outcome& outcome) {
          if (at == run) outcome = Broken(RunStatus::kSkipped, "cannot");
        });
        const Verdict verdict = Judge(property(), c, skips);
        EXPECT_FALSE(verdict.failed()) << FullName(op, property()) << ": " << verdict.reason;
        EXPECT_FALSE(verdict.kind) << FullName(op, property()) << ": a kind of no failure";
        // Where one run is all there is, nothing was judged.
        if (asked.size() == 1) {
          EXPECT_EQ(verdict.judgement, Judgement::kSkipped) << FullName(op, property());
          EXPECT_EQ(verdict.reason, "cannot");
        }
        Spoiled refuses;
        refuses.refuses = [&, run](const Case& problem) { return problem == asked[run].first; };
        const Verdict refused = Judge(property(), c, refuses);
        EXPECT_FALSE(refused.failed()) << FullName(op, property()) << ": " << refused.reason;
        for (const auto& [problem, context] : refuses.asked)
          EXPECT_FALSE(problem == asked[run].first) << FullName(op, property());
      }
      Spoiled skips([](size_t, const Case&, const RunContext&, Outcome& outcome) {
        outcome = Broken(RunStatus::kSkipped, "cannot");
      });
      const Verdict none = Judge(property(), c, skips);
      if (property().claim == "several_threads") {  // nothing could have failed on one thread
        EXPECT_EQ(none.judgement, Judgement::kVacuous);
        return;
      }
      EXPECT_EQ(none.judgement, Judgement::kSkipped) << FullName(op, property());
      EXPECT_EQ(none.reason, "cannot");
    });
  }
}

// A verdict that is no pass says why, and cases with nothing in them are vacuous.
TEST_P(EachProperty, SaysWhyNothingWasJudged) {
  for (const Op op : property().ops) {
    for (uint64_t seed = 0; seed < 60; ++seed) {
      const Case c = gen::Draw(op, seed % 2 == 0 ? gen::Theme::kUniform : gen::Theme::kEmpty, seed);
      if (c.M * c.N * std::max<int64_t>(c.K, 1) > 20'000) continue;
      Spoiled subject;
      const Verdict verdict = Judge(property(), c, subject);
      if (verdict.judgement == Judgement::kPassed) continue;
      EXPECT_FALSE(verdict.failed()) << FullName(op, property()) << " " << Describe(c);
      EXPECT_GT(verdict.reason.size(), 7u) << FullName(op, property());
    }
  }
}

// A subject need not bear with a problem that is none.
TEST_P(EachProperty, AsksAboutValidProblems) {
  for (const Op op : property().ops) {
    ForCases(property(), op, 25, [&](const Case& c, const auto& asked) {
      for (const auto& [problem, context] : asked)
        ASSERT_EQ(Validate(problem), "") << FullName(op, property()) << " " << Describe(c);
    });
  }
}

// Of these, what is judged is not the output: it is the run itself, or a sweep with its own rows.
bool JudgesSomethingElse(std::string_view claim) {
  return claim == "no_stray_access" || claim == "inputs_unmodified" ||
         claim == "leaves_nothing_behind" || claim.starts_with("sweep_");
}

TEST_P(EachProperty, AnEmptyOutputIsVacuous) {
  if (!AsksHere() || JudgesSomethingElse(property().claim)) return;
  for (const Op op : property().ops) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      const Case c = gen::Draw(op, gen::Theme::kUniform, seed);
      std::vector<Case> cases{HasWindow(op) ? slice::Batches(c, {}) : slice::Rows(c, {}),
                              slice::Channels(c, {})};
      for (const Case& empty : cases) {
        if (!Validate(empty).empty()) continue;
        ASSERT_EQ(exact::Evaluate(empty).size(), 0);
        Spoiled subject;
        const Verdict verdict = Judge(property(), empty, subject);
        EXPECT_EQ(verdict.judgement, Judgement::kVacuous)
            << FullName(op, property()) << " " << Describe(empty) << ": " << verdict.reason;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Properties, EachProperty,
                         testing::Range(size_t{0}, AllProperties().size()), [](const auto& at) {
                           return std::string(AllProperties()[at.param].claim);
                         });

// A fault that shows in one state of a run. Every case that the property judges must show it.
struct Context {
  const char* claim;
  const char* name;
  bool (*holds)(const RunContext&);
};
bool HasGaps(const RunContext& r) { return r.x_row_gap > 0 && r.y_row_gap > 0; }
const std::vector<Context>& AllContexts() {
  using R = const RunContext&;
  static const std::vector<Context> contexts{
      {"no_stray_access", "Before", [](R r) { return !r.end_at_guard && !HasGaps(r); }},
      {"no_stray_access", "Behind", [](R r) { return r.end_at_guard && !HasGaps(r); }},
      {"no_stray_access", "BeforeStrided", [](R r) { return !r.end_at_guard && HasGaps(r); }},
      {"no_stray_access", "BehindStrided", [](R r) { return r.end_at_guard && HasGaps(r); }},
      {"inputs_unmodified", "Dense", [](R r) { return !HasGaps(r); }},
      {"inputs_unmodified", "Strided", HasGaps},
      {"alignment_and_stride", "Moved", [](R r) { return r.align_offset > 0 && !HasGaps(r); }},
      {"alignment_and_stride", "Strided", [](R r) { return r.align_offset == 0 && HasGaps(r); }},
      {"alignment_and_stride", "Both", [](R r) { return r.align_offset > 0 && HasGaps(r); }},
      {"in_place", "Dense", [](R r) { return r.in_place && !HasGaps(r); }},
      {"in_place", "Strided", [](R r) { return r.in_place && HasGaps(r); }},
      {"poison_is_irrelevant", "Zeros", [](R r) { return r.poison == 0; }},
      {"poison_is_irrelevant", "Ones", [](R r) { return r.poison == 0xFF; }},
      {"poison_is_irrelevant", "Large", [](R r) { return r.poison == 0x7F; }},
      {"environment", "Down", [](R r) { return r.rounding == Rounding::kDown; }},
      {"environment", "Up", [](R r) { return r.rounding == Rounding::kUp; }},
      {"environment", "TowardZero", [](R r) { return r.rounding == Rounding::kTowardZero; }},
      {"environment", "Flushed",
       [](R r) { return r.flush_denormals && r.rounding == Rounding::kNearest; }},
      {"packed_once", "Thrice", [](R r) { return r.calls == 3; }},
      {"concurrent_calls", "Callers", [](R r) { return r.callers == 3; }},
      {"several_threads", "Threads", [](R r) { return r.threads == 2 || r.threads == 3; }},
      {"aliased_operands", "OverSecond", [](R r) { return r.over_w; }},
      {"aliased_operands", "OneBuffer", [](R r) { return r.shared_inputs && !r.in_place; }},
      {"aliased_operands", "AllOneBuffer", [](R r) { return r.shared_inputs && r.in_place; }},
      {"leaves_nothing_behind", "Watched", [](R r) { return r.watch; }},
  };
  return contexts;
}

class EachContext : public testing::TestWithParam<size_t> {};

TEST_P(EachContext, IsAskedIn) {
  const Context& row = AllContexts()[GetParam()];
  const Property& property = *FindProperty(row.claim);
  for (const Op op : property.ops) {
    const int met = ForCases(property, op, 4, [&](const Case& c, const auto&) {
      Spoiled subject([&](size_t, const Case&, const RunContext& context, Outcome& outcome) {
        if (row.holds(context)) outcome = Broken(RunStatus::kTouchedOutside, "read before x");
      });
      const Verdict verdict = Judge(property, c, subject);
      EXPECT_TRUE(verdict.failed()) << FullName(op, property) << " " << Describe(c);
      EXPECT_EQ(verdict.kind, FindingKind::kMemory);
    });
    EXPECT_GT(met, 0) << FullName(op, property);
  }
}

INSTANTIATE_TEST_SUITE_P(Properties, EachContext, testing::Range(size_t{0}, AllContexts().size()),
                         [](const auto& at) {
                           return std::string(AllContexts()[at.param].claim) +
                                  AllContexts()[at.param].name;
                         });

TEST(LayerStrides, AsksForGapsOfWeightsAndOfLinesAtBothGuards) {
  const Property& property = *FindProperty("layer_strides");
  for (const Op op : AllOps())
    EXPECT_EQ(property.about(op), HasWeights(op) || HasWindow(op)) << Name(op);
  for (const Op op : property.ops) {
    ForCases(property, op, 4, [&](const Case& c, const auto& asked) {
      std::set<std::tuple<bool, bool, bool>> met;  // at the guard, gaps of w, gaps of lines
      for (const auto& [problem, r] : asked) {
        EXPECT_LE(r.w_row_gap, 7);
        EXPECT_LE(r.x_line_gap, 7);
        EXPECT_TRUE(r.w_row_gap == 0 || r.x_line_gap == 0) << "one kind of gap at a time";
        if (r != RunContext{}) met.insert({r.end_at_guard, r.w_row_gap > 0, r.x_line_gap > 0});
      }
      for (const bool guard : {false, true}) {
        EXPECT_EQ(met.contains({guard, true, false}), HasWeights(c.op)) << Describe(c);
        EXPECT_EQ(met.contains({guard, false, true}), HasWindow(c.op)) << Describe(c);
      }
    });
  }
}

// The number of rows whose distance the context `gap` sets; of an image, lines.
int64_t RowsWith(int64_t RunContext::* gap, const Case& c) {
  const auto rows_of = [](const std::vector<int64_t>& shape) {
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
    return shape.back() == 0 ? 0 : rows;
  };
  if (gap == &RunContext::x_row_gap) return rows_of(c.x.shape());
  if (gap == &RunContext::y_row_gap) return rows_of(c.output_shape());
  if (gap == &RunContext::w_row_gap) return HasWeights(c.op) ? c.N : 0;
  return HasWindow(c.op) ? c.window.batch * c.window.in_h : 0;
}

// How many elements such a row holds.
int64_t ColumnsWith(int64_t RunContext::* gap, const Case& c) {
  if (gap == &RunContext::x_row_gap) return c.x.shape().back();
  if (gap == &RunContext::y_row_gap) return c.output_shape().back();
  return gap == &RunContext::w_row_gap ? c.K : c.window.in_w * c.window.in_c;
}

constexpr int64_t RunContext::* kGaps[] = {&RunContext::x_row_gap, &RunContext::y_row_gap,
                                           &RunContext::w_row_gap, &RunContext::x_line_gap};

// A tensor alone: a product of its stride in 32 bits is then the only thing that can go wrong.
TEST(FarRows, LiesEachTensorOfTwoToEightRowsBeyond32BitsAlone) {
  const Property& property = *FindProperty("far_rows");
  std::map<std::pair<size_t, int64_t>, int> met;  // which gap, rows
  for (const Op op : property.ops) {
    ForCases(property, op, 40, [&](const Case& c, const auto& asked) {
      for (size_t which = 0; which < std::size(kGaps); ++which) {
        const auto gap = kGaps[which];
        const int64_t rows = RowsWith(gap, c);
        const bool wanted = rows >= 2 && rows <= 8;
        int runs = 0;
        for (const auto& [problem, r] : asked) {
          if (r.*gap == 0) continue;
          ++runs;
          RunContext alone;
          alone.*gap = (int64_t{1} << 31) + 64 - ColumnsWith(gap, c);
          EXPECT_EQ(r, alone) << Describe(c) << " gap " << which;
        }
        EXPECT_EQ(runs, wanted ? 1 : 0) << Describe(c) << " gap " << which;
        if (wanted) ++met[{which, rows}];
      }
    });
  }
  for (size_t which = 0; which < std::size(kGaps); ++which) {
    EXPECT_TRUE(met.contains({which, 2})) << which << ": the fewest rows were never drawn";
    EXPECT_TRUE(met.contains({which, 8})) << which << ": the most rows were never drawn";
  }
}

TEST(FarRows, OneWrongRunFailsAsMemoryAndARefusedOneDoesNot) {
  const Property& property = *FindProperty("far_rows");
  for (const Op op : property.ops) {
    for (const auto gap : kGaps) {
      ForCases(property, op, 6, [&](const Case& c, const auto& asked) {
        const auto meant = [&](const auto& run) { return run.second.*gap != 0; };
        if (std::ranges::none_of(asked, meant) || c.M * c.N == 0) return;
        Spoiled wrong([&](size_t, const Case&, const RunContext& context, Outcome& outcome) {
          if (context.*gap == 0) return;
          Spoil(outcome.y, outcome.y.size() - 1);
        });
        const Verdict verdict = Judge(property, c, wrong);
        EXPECT_TRUE(verdict.failed()) << Describe(c);
        EXPECT_EQ(verdict.kind, FindingKind::kMemory);
        EXPECT_NE(verdict.reason.find("2^31 elements apart"), std::string::npos) << verdict.reason;
        Spoiled refuses([&](size_t, const Case&, const RunContext& context, Outcome& outcome) {
          if (context.*gap != 0) outcome = Broken(RunStatus::kSkipped, "no far rows here");
        });
        EXPECT_FALSE(Judge(property, c, refuses).failed()) << Describe(c);
      });
    }
  }
}

TEST(FarRows, AreVacuousWithoutATensorOfTwoToEightRows) {
  const auto judged = [](int64_t rows) {
    Case c;
    c.op = Op::kQuantize;
    c.M = rows;
    c.N = 1;
    c.x = Tensor(DType::kF32, {rows, 1});
    EXPECT_EQ(Validate(c), "");
    Spoiled subject;
    const Verdict verdict = Judge(*FindProperty("far_rows"), c, subject);
    if (verdict.judgement == Judgement::kVacuous) {
      EXPECT_EQ(verdict.reason, "no tensor has from 2 to 8 rows");
    }
    return verdict.judgement;
  };
  EXPECT_EQ(judged(1), Judgement::kVacuous);
  EXPECT_EQ(judged(2), Judgement::kPassed);
  EXPECT_EQ(judged(8), Judgement::kPassed);
  EXPECT_EQ(judged(9), Judgement::kVacuous);
}

TEST(Placements, GapsAndOffsetsDifferFromCaseToCase) {
  std::set<int64_t> x_gaps, y_gaps, w_gaps, moved, both;
  std::set<bool> guards;
  for (const char* claim : {"no_stray_access", "alignment_and_stride", "layer_strides"}) {
    const Property& property = *FindProperty(claim);
    ForCases(property, Op::kLinear, 120, [&](const Case&, const auto& asked) {
      for (const auto& [problem, r] : asked) {
        if (r.x_row_gap > 0) x_gaps.insert(r.x_row_gap), y_gaps.insert(r.y_row_gap);
        if (r.w_row_gap > 0) w_gaps.insert(r.w_row_gap);
        if (r.align_offset == 0) continue;
        (HasGaps(r) ? both : moved).insert(r.align_offset);
        if (HasGaps(r)) guards.insert(r.end_at_guard);
        EXPECT_LT(r.align_offset, 64);
        EXPECT_TRUE(HasGaps(r) || !r.end_at_guard) << "else the guard decides where it ends";
      }
    });
  }
  EXPECT_EQ(x_gaps, (std::set<int64_t>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(y_gaps, (std::set<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(w_gaps, x_gaps);
  EXPECT_GT(moved.size(), 40u);
  EXPECT_EQ(*moved.begin(), 1);
  EXPECT_EQ(both.size(), 15u);
  EXPECT_EQ(guards.size(), 2u);
  for (const int64_t offset : both) EXPECT_EQ(offset % 4, 0);
}

TEST(InputsUnmodified, OneInputIsEnough) {
  const Property& property = *FindProperty("inputs_unmodified");
  const auto judged = [&](const Case& c) {
    Spoiled subject;
    return Judge(property, c, subject);
  };
  Case one = gen::Draw(Op::kRescale, gen::Theme::kUniform, 1);
  ASSERT_TRUE(!one.x.empty() && one.w.empty());
  EXPECT_EQ(judged(one).judgement, Judgement::kPassed);
  one = slice::Rows(one, {});
  EXPECT_EQ(judged(one).reason, "there is no input to modify");
  const Case weights = slice::Rows(gen::Draw(Op::kLinear, gen::Theme::kUniform, 1), {});
  ASSERT_TRUE(weights.x.empty() && !weights.w.empty());
  EXPECT_EQ(judged(weights).judgement, Judgement::kPassed);
}

// A slice is compared where it is wrong: the last one always, any other one in its turn.
struct Slice {
  const char* claim;
  std::vector<Op> ops;
  // Which slice output i belongs to, and how many there are.
  int64_t (*slice_of)(const Case&, int64_t i);
  int64_t (*count)(const Case&);
};
TEST(Slices, EveryOneHasItsTurnAndTheLastOneAlways) {
  const std::vector<Slice> slices{
      {"row_independence",
       {Op::kLinear, Op::kQuantize, Op::kAdd, Op::kSoftmax},
       [](const Case& c, int64_t i) { return i / c.N; },
       [](const Case& c) { return c.M; }},
      {"column_independence",
       {Op::kLinear, Op::kQuantize, Op::kConv2d, Op::kAdd},
       [](const Case& c, int64_t i) { return i % c.N; },
       [](const Case& c) { return c.N; }},
      {"batch_independence",
       {Op::kConv2d, Op::kMaxPool},
       [](const Case& c, int64_t i) { return i / (c.M / c.window.batch * c.N); },
       [](const Case& c) { return c.window.batch; }},
      {"groups_are_separate",
       {Op::kConv2d, Op::kDepthwise},
       [](const Case& c, int64_t i) { return i % c.N / (c.N / c.window.groups); },
       [](const Case& c) { return c.window.groups; }},
  };
  for (const Slice& row : slices) {
    const Property& property = *FindProperty(row.claim);
    for (const Op op : row.ops) {
      int first_seen = 0, first_missed = 0;
      ForCases(property, op, 60, [&](const Case& c, const auto&) {
        const auto judge = [&](int64_t slice) {
          Spoiled subject([&](size_t run, const Case& asked, const RunContext&, Outcome& outcome) {
            if (run != 0) return;
            for (int64_t i = 0; i < outcome.y.size(); ++i) {
              if (row.slice_of(asked, i) == slice) Spoil(outcome.y, i);
            }
          });
          return Judge(property, c, subject);
        };
        const Verdict last = judge(row.count(c) - 1);
        EXPECT_TRUE(last.failed()) << FullName(op, property) << " " << Describe(c);
        EXPECT_EQ(row.slice_of(c, last.divergence->index), row.count(c) - 1);
        if (row.count(c) < 3) return;
        const Verdict first = judge(0);
        ++(first.failed() ? first_seen : first_missed);
        if (first.failed()) {
          EXPECT_EQ(row.slice_of(c, first.divergence->index), 0);
        }
      });
      EXPECT_GT(first_seen, 0) << FullName(op, property);
      EXPECT_GT(first_missed, 0) << FullName(op, property) << ": others have their turn";
    }
  }
}

// More outputs than any block or message holds.
TEST(MatchesExact, SeesTheLastOfManyOutputs) {
  Case c;
  c.op = Op::kQuantize;
  c.M = 3;
  c.N = 7001;
  c.x = Tensor(DType::kF32, {c.M, c.N});
  for (int64_t i = 0; i < c.x.size(); ++i)
    c.x.as<float>()[static_cast<size_t>(i)] = static_cast<float>(i % 255);
  ASSERT_EQ(Validate(c), "");
  for (const char* claim :
       {"matches_exact", "same_bits_twice", "environment", "gauge", "in_place"}) {
    const Property& property = *FindProperty(claim);
    if (!property.about(c.op)) continue;
    for (const int64_t i : {int64_t{2000}, int64_t{4096}, int64_t{20'000}, c.x.size() - 1}) {
      Spoiled subject([&](size_t run, const Case&, const RunContext&, Outcome& outcome) {
        if (run == 0) Spoil(outcome.y, i);
      });
      const Verdict verdict = Judge(property, c, subject);
      ASSERT_TRUE(verdict.failed()) << claim << " " << i;
      EXPECT_EQ(verdict.divergence->index, i);
      EXPECT_NE(verdict.reason.find("[" + std::to_string(i / c.N) + "," + std::to_string(i % c.N)),
                std::string::npos)
          << verdict.reason;
    }
  }
}

// --- Conventions and other targets --------------------------------------------------------------

TEST(MatchesModel, SaysWhatIsMissing) {
  const Property& property = *FindProperty("matches_model");
  const Case c = gen::Draw(Op::kLinear, gen::Theme::kUniform, 1);
  Spoiled subject;
  subject.set_contract({"no such convention"});
  const Verdict none = Judge(property, c, subject);
  EXPECT_EQ(none.judgement, Judgement::kSkipped);
  EXPECT_EQ(none.reason, "there is no convention no such convention");
  const Convention& convention = *FindConvention("fbgemm@avx2");
  subject.set_contract({convention.name});
  int judged = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Case drawn = gen::Draw(Op::kLinear, seed);
    if (!convention.cannot_run(drawn).empty()) {
      const Verdict refused = Judge(property, drawn, subject);
      EXPECT_EQ(refused.judgement, Judgement::kSkipped);
      EXPECT_NE(refused.reason.find(convention.cannot_run(drawn)), std::string::npos);
      continue;
    }
    const Tensor promised = convention.run(drawn).y;
    const auto judge = [&](const Spoiled::Spoil& spoil) {
      Spoiled keeps(
          [&](size_t run, const Case& asked, const RunContext& context, Outcome& outcome) {
            outcome.y = promised;
            if (spoil) spoil(run, asked, context, outcome);
          });
      keeps.set_contract({convention.name});
      return Judge(property, drawn, keeps);
    };
    EXPECT_EQ(judge(nullptr).judgement,
              promised.empty() ? Judgement::kVacuous : Judgement::kPassed);
    if (promised.empty()) continue;
    ++judged;
    const Verdict off = judge([&](size_t, const Case&, const RunContext&, Outcome& outcome) {
      Spoil(outcome.y, outcome.y.size() - 1);
    });
    EXPECT_TRUE(off.failed());
    EXPECT_NE(off.reason.find("departs from convention fbgemm@avx2"), std::string::npos);
    const Verdict crash = judge([](size_t, const Case&, const RunContext&, Outcome& outcome) {
      outcome = Broken(RunStatus::kCrashed, "signal 11");
    });
    EXPECT_EQ(crash.kind, FindingKind::kCrash);
  }
  EXPECT_GT(judged, 10);
}

TEST(TargetsAgree, NamesWhyNobodyWasAsked) {
  static int made = 0;
  static std::optional<Outcome> answer;
  SubjectRegistry::Get().Add({"sibling",
                              "test",
                              "",
                              [] { return std::vector<std::string>{}; },
                              [](const std::string& name) -> std::unique_ptr<Subject> {
                                ++made;
                                if (name == "sibling@absent")
                                  throw Unavailable("no such processor");
                                return std::make_unique<TestSubject>(
                                    [](const Case& c, const RunContext& context) {
                                      return answer ? *answer : TestSubject::Exact(c, context);
                                    },
                                    name);
                              },
                              {}});
  const Property& property = *FindProperty("targets_agree");
  TestSubject subject;
  const auto judge = [&](uint64_t seed, const std::vector<std::string>& siblings) {
    subject.siblings = siblings;
    return Judge(property, gen::Draw(Op::kLinear, gen::Theme::kUniform, seed), subject);
  };
  EXPECT_EQ(judge(1, {}).reason, "the subject has no other targets");
  EXPECT_EQ(judge(1, {"test"}).reason, "the subject has no other targets") << "itself is none";
  EXPECT_EQ(judge(1, {"sibling@absent"}).reason, "no such processor");
  EXPECT_EQ(judge(2, {"sibling@absent"}).reason, "no such processor");
  EXPECT_EQ(made, 1) << "who is absent is asked for once";
  EXPECT_EQ(judge(1, {"sibling@absent", "sibling@good"}).judgement, Judgement::kPassed);
  EXPECT_EQ(judge(2, {"sibling@good"}).judgement, Judgement::kPassed);
  EXPECT_EQ(made, 2) << "a subject is made once";
  answer = Broken(RunStatus::kCrashed, "signal 11");
  const Verdict crashed = judge(3, {"sibling@good"});
  EXPECT_EQ(crashed.judgement, Judgement::kVacuous) << "which is reported of the sibling";
  EXPECT_NE(crashed.reason.find("signal 11"), std::string::npos);
  answer.reset();
  Case empty = gen::Draw(Op::kLinear, gen::Theme::kUniform, 1);
  empty = slice::Rows(empty, {});
  EXPECT_EQ(Judge(property, empty, subject).judgement, Judgement::kVacuous);
  TestSubject crashes(
      [](const Case&, const RunContext&) { return Broken(RunStatus::kCrashed, "signal 11"); });
  EXPECT_TRUE(Judge(property, gen::Draw(Op::kLinear, gen::Theme::kUniform, 1), crashes).failed());
}

// Between two operands the same codes can be divided in several ways.
TEST(Hash, SeesWhereATensorEnds) {
  std::set<uint64_t> met;
  for (int64_t first = 0; first <= 4; ++first) {
    Case c = CaseOver(Op::kConcat, Tensor(DType::kU8, {1, first}), DType::kU8);
    c.w = Tensor(DType::kU8, {1, 4 - first});
    c.N = 4;
    ASSERT_EQ(Validate(c), "");
    met.insert(relation::Hash(c));
  }
  EXPECT_EQ(met.size(), 5u);
}

TEST(Hash, SeesEverySizeAndEveryCode) {
  std::set<uint64_t> met;
  int64_t cases = 0;
  for (const Op op : AllOps()) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      Case c = gen::Draw(op, seed);
      if (c.x.empty()) continue;
      met.insert(relation::Hash(c)), ++cases;
      EXPECT_EQ(relation::Hash(c), relation::Hash(ProblemOf(c)));
      for (Tensor* tensor : {&c.x, &c.w}) {
        if (tensor->empty()) continue;
        const uint64_t before = relation::Hash(c);
        Spoil(*tensor, tensor->size() - 1);
        EXPECT_NE(relation::Hash(c), before) << Describe(c);
        const uint64_t last = relation::Hash(c);
        Spoil(*tensor, 0);
        EXPECT_TRUE(relation::Hash(c) != last &&
                    (tensor->size() == 1 || relation::Hash(c) != before));
      }
    }
  }
  EXPECT_GT(cases, 200);
  EXPECT_GE(static_cast<int64_t>(met.size()), cases - 2);
  Case c = gen::Draw(Op::kQuantize, 1);
  const uint64_t before = relation::Hash(c);
  c.op = Op::kDequantize;
  EXPECT_NE(relation::Hash(c), before);
}

}  // namespace
}  // namespace qualm
