// SPDX-License-Identifier: Apache-2.0
#include "triage/solve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/random_case_test_util.h"
#include "oracles/exact/exact.h"
#include "properties/gen/library.h"

namespace qualm::triage {
namespace {

using Kind = Parameter::Kind;
using List = Printed::List;

const ConventionOrExact& Exact() { return AllConventionsAndExact().front(); }

std::optional<Solution> SolveOne(const Case& c, const Tensor& y, const Parameter& parameter,
                                 const ConventionOrExact& arithmetic = Exact()) {
  int64_t work = int64_t{1} << 40;
  return Solve(c, y, std::vector{parameter}, arithmetic, &work);
}

// Puts a number of the solution of one parameter into the case, the same end for every entry.
Case With(const Case& c, const Parameter& parameter, const Solution& solution, bool last) {
  Case changed = c;
  for (size_t e = 0; e < parameter.entries.size(); ++e) {
    const std::vector<Candidate>& found = solution.entries[e];
    const Candidate& candidate = last ? found.back() : found.front();
    const auto at = static_cast<size_t>(parameter.entries[e]);
    QParams& q = parameter.list == List::kXScale   ? changed.x_q
                 : parameter.list == List::kWScale ? changed.w_q
                                                   : changed.out_q;
    if (parameter.kind == Kind::kScale) {
      (parameter.list == List::kMultiplier ? changed.multiplier : q.scale)[at] =
          last ? candidate.between->second : candidate.between->first;
    } else if (parameter.kind == Kind::kZeroPoint) {
      q.zero_point[at] = candidate.integers[0];
    } else {
      (parameter.key == "out_min"     ? changed.out_min
       : parameter.key == "out_max"   ? changed.out_max
       : parameter.key == "quant_min" ? changed.observer.quant_min
                                      : changed.observer.quant_max) = candidate.integers[0];
    }
  }
  return changed;
}

// Of an exact output every number of the case is found again, and all that is found gives it.
TEST(Solve, FindsWhatIsWritten) {
  for (const Op op : AllOps()) {
    test::RandomCase draw(21);
    std::map<std::string, int> solved;
    for (int i = 0; i < 20; ++i) {
      const Case c = draw.Draw(op);
      const Tensor y = exact::Evaluate(c);
      if (y.empty()) continue;
      for (const Parameter& parameter : ParametersOf(c)) {
        const auto solution = SolveOne(c, y, parameter);
        ASSERT_TRUE(solution && solution->found()) << Describe(c) << " " << parameter.key;
        ++solved[parameter.key];
        if (parameter.kind == Kind::kBiasFactor) {
          for (const auto& found : solution->entries) {
            EXPECT_LE(found[0].between->first, 1) << Describe(c);
            EXPECT_GE(found[0].between->second, 1) << Describe(c);
          }
          continue;
        }
        for (const bool last : {false, true}) {
          const Case changed = With(c, parameter, *solution, last);
          EXPECT_EQ(exact::Evaluate(changed), y) << Describe(c) << " " << parameter.key;
        }
      }
    }
    const OpRow& row = RowOf(op);
    EXPECT_EQ(solved.contains("out_max"), row.clamp) << Name(op);
    EXPECT_EQ(solved.contains("out_scale"), row.out_q == OutQParams::kOwn && !row.function)
        << Name(op);
    EXPECT_EQ(solved.contains("quant_max"), row.qparams) << Name(op);
    EXPECT_EQ(solved.contains("bias") && solved.contains("bias_i32"), HasSums(op)) << Name(op);
  }
}

// The output is that of other numbers than the case says: they are among what is found.
TEST(Solve, FindsANumberThatIsNotTheWrittenOne) {
  int64_t scales = 0, zero_points = 0;
  for (const Op op : AllOps()) {
    test::RandomCase draw(22);
    for (int i = 0; i < 60; ++i) {
      const Case c = draw.Draw(op);
      for (const Parameter& parameter : ParametersOf(c)) {
        if (parameter.kind != Kind::kScale && parameter.kind != Kind::kZeroPoint) continue;
        Case other = c;
        QParams& q = parameter.list == List::kXScale   ? other.x_q
                     : parameter.list == List::kWScale ? other.w_q
                                                       : other.out_q;
        std::vector<float>& scale =
            parameter.list == List::kMultiplier ? other.multiplier : q.scale;
        if (parameter.kind == Kind::kScale) {
          for (float& value : scale) value *= 2;
        } else {
          for (int32_t& value : q.zero_point) value = value == 7 ? 8 : 7;
        }
        if (!Validate(other).empty()) continue;
        const Tensor y = exact::Evaluate(other);
        if (y.empty() || y == exact::Evaluate(c)) continue;
        const auto solution = SolveOne(c, y, parameter);
        ASSERT_TRUE(solution && solution->found()) << Describe(c) << " " << parameter.key;
        for (size_t e = 0; e < parameter.entries.size(); ++e) {
          if (parameter.kind == Kind::kScale) {
            EXPECT_LE(solution->entries[e][0].between->first, scale[e]) << Describe(c);
            EXPECT_GE(solution->entries[e][0].between->second, scale[e]) << Describe(c);
            ++scales;
          } else {
            EXPECT_TRUE(std::ranges::any_of(solution->entries[e], [&](const Candidate& candidate) {
              return candidate.integers[0] == q.zero_point[e];
            })) << Describe(c);
            ++zero_points;
          }
        }
      }
    }
  }
  EXPECT_GT(scales, 500);
  EXPECT_GT(zero_points, 500);
}

// The scales of every convention, found by halving.
TEST(Solve, HalvesUnderConventions) {
  int64_t solved = 0, missed = 0;
  std::set<std::string> conventions;
  for (const ConventionOrExact& arithmetic : AllConventionsAndExact().subspan(1)) {
    for (const Op op : arithmetic.convention->ops) {
      for (uint64_t seed = 0; seed < 6; ++seed) {
        const Case c = gen::DrawForLibraries(op, seed);
        if (!arithmetic.CannotRun(c).empty() || WorkOf(c) > 20000) continue;
        const Tensor y = arithmetic.Run(c);
        if (y.empty()) continue;
        for (const Parameter& parameter : ParametersOf(c)) {
          if (parameter.kind != Kind::kScale) continue;
          const auto solution = SolveOne(c, y, parameter, arithmetic);
          if (!solution || !solution->found()) {
            ++missed;
            continue;
          }
          ++solved;
          conventions.insert(arithmetic.name);
          for (const bool last : {false, true}) {
            EXPECT_EQ(arithmetic.Run(With(c, parameter, *solution, last)), y)
                << arithmetic.name << " " << Describe(c) << " " << parameter.key;
          }
        }
      }
    }
  }
  EXPECT_GT(solved, 1000);
  EXPECT_LT(missed, solved / 20);
  EXPECT_GT(conventions.size(), 20u);
}

// Of many rows the first are tried before all: the last one decides here.
TEST(Solve, EveryRowCounts) {
  Case c;
  c.op = Op::kRescale;
  c.M = 50, c.N = 1;
  c.x = Tensor(DType::kU8, {50, 1});
  for (int64_t i = 0; i < 50; ++i) c.x.SetInt(i, i == 49 ? 200 : 2);
  c.x_q.scale = {0.25f};
  ASSERT_EQ(Validate(c), "");
  for (const Parameter& parameter : ParametersOf(c)) {
    if (parameter.key != "x_zp") continue;
    Case other = c;
    other.x_q.zero_point = {-1};  // 2 becomes 0.75, which is 1; 200 becomes 50.25
    const auto solution = SolveOne(c, exact::Evaluate(other), parameter);
    ASSERT_TRUE(solution);
    std::vector<int32_t> found;
    for (const Candidate& candidate : solution->entries[0]) found.push_back(candidate.integers[0]);
    EXPECT_EQ(found, (std::vector<int32_t>{-2, -1}));  // -3 gives 1 too, and 50.75
  }
}

Case Requantize(std::vector<int32_t> x, float multiplier) {
  Case c;
  c.op = Op::kRequantize;
  c.M = static_cast<int64_t>(x.size());
  c.N = 1;
  c.x = Tensor::Of<int32_t>({c.M, 1}, x);
  c.multiplier = {multiplier};
  return c;
}

TEST(Solve, TwoNumbersTogether) {
  Case c = Requantize({100, 300, 1000}, 0.127f);
  c.out_q.zero_point = {11};
  const Tensor y = exact::Evaluate(c);
  std::vector<Parameter> both;
  for (const Parameter& parameter : ParametersOf(c)) {
    if (parameter.key == "multiplier" || parameter.key == "out_zp") both.push_back(parameter);
  }
  ASSERT_EQ(both.size(), 2u);
  int64_t work = int64_t{1} << 40;
  const auto solution = Solve(c, y, both, Exact(), &work);
  ASSERT_TRUE(solution && solution->found());
  EXPECT_FALSE(solution->unique());
  bool written = false;
  for (const Candidate& candidate : solution->entries[0]) {
    for (const float multiplier : {candidate.between->first, candidate.between->second}) {
      Case other = c;
      other.multiplier = {multiplier};
      other.out_q.zero_point = {candidate.integers[0]};
      EXPECT_EQ(exact::Evaluate(other), y);
    }
    written |= candidate.integers[0] == 11 && candidate.between->first <= 0.127f &&
               candidate.between->second >= 0.127f;
  }
  EXPECT_TRUE(written);
  // 13, 38 and 127 are 25 and 89 apart: not any zero point will do.
  EXPECT_LT(solution->entries[0].size(), 10u);

  work = 1000;
  EXPECT_FALSE(Solve(c, y, both, Exact(), &work));
  EXPECT_LT(work, 0);
}

TEST(Solve, TellsWhatCannotBeSolved) {
  test::RandomCase draw(3);
  Case c = draw.Draw(Op::kLinear);
  while (!c.per_channel || c.N < 2 || !IsCode(c.out_dtype)) c = draw.Draw(Op::kLinear);
  std::map<std::string, Parameter> by_key;
  for (const Parameter& parameter : ParametersOf(c)) by_key.emplace(parameter.key, parameter);
  const auto cannot = [&](std::vector<std::string> keys) {
    std::vector<Parameter> unknown;
    for (const std::string& key : keys) unknown.push_back(by_key.at(key));
    return CannotSolve(c, unknown);
  };
  EXPECT_EQ(cannot({"x_scale", "x_zp", "out_zp"}), "");
  EXPECT_EQ(cannot({"w_scale"}), "");
  EXPECT_EQ(cannot({"w_scale", "x_zp"}).substr(0, 31), "w_scale: is a list per channel,");
  EXPECT_EQ(cannot({"x_scale", "out_scale"}).substr(0, 39),
            "x_scale: is not the only unknown scale,");
  EXPECT_EQ(cannot({"x_zp", "out_zp", "out_min"}).substr(0, 36),
            "x_zp: is one of 3 unknown integers, ");
}

// A bias that counts in another unit than the case says.
TEST(Solve, TheUnitOfABias) {
  Case c;
  c.op = Op::kLinear;
  c.M = 1, c.N = 2, c.K = 1;
  c.x = Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{100});
  c.w = Tensor::Of<int8_t>({2, 1}, std::vector<int8_t>{2, 5});
  c.x_q.scale = {0x1p-3f};
  c.w_q = {{0x1p-4f, 0x1p-5f}, {0, 0}};
  c.per_channel = true;
  c.out_q.scale = {0x1p-2f};
  c.bias_i32 = {40, 60};
  const float sx = 0x1p-3f;
  const float sw[] = {0x1p-4f, 0x1p-5f};
  const std::pair<std::string, std::vector<float>> units[] = {
      {"x_scale", {sx, sx}},
      {"w_scale", {sw[0], sw[1]}},
      {"x_scale*w_scale", {sx * sw[0], sx * sw[1]}},
      {"out_scale", {0x1p-2f, 0x1p-2f}},
      {"1", {1, 1}},
      {"-1 times what is written", {-sx * sw[0], -sx * sw[1]}}};
  ASSERT_EQ(Validate(c), "");
  for (const auto& [name, unit] : units) {
    Case real = c;
    real.bias_i32.reset();
    real.bias = {40 * unit[0], 60 * unit[1]};
    real.out_min = c.out_min;
    const Tensor y = exact::Evaluate(real);
    for (const Parameter& parameter : ParametersOf(c)) {
      if (parameter.kind != Kind::kBiasFactor) continue;
      const auto solution = SolveOne(c, y, parameter);
      ASSERT_TRUE(solution);
      EXPECT_TRUE(std::ranges::find(solution->units, name) != solution->units.end()) << name;
      // 255 is what any large bias gives; else at most the neighbours look the same.
      if (y.IntAt(0) != 255) EXPECT_LE(solution->units.size(), 2u) << name;
    }
  }
}

}  // namespace
}  // namespace qualm::triage
