// SPDX-License-Identifier: Apache-2.0
// A repaired layer gives the exact results of the original on kernels that saturate, bit for bit.
#include "proofs/repair.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "adapters/registry.h"
#include "core/io/case_json.h"
#include "core/rng.h"
#include "core/status.h"
#include "core/subject.h"
#include "oracles/exact/exact.h"
#include "proofs/directed.h"
#include "proofs/matching.h"

namespace qualm::proofs {
namespace {

// Codes of Gaussian weights, the largest of them 127: `spread` standard deviations.
int32_t Gaussian(std::mt19937_64& rng, double spread) {
  std::normal_distribution<double> draw(0, 127 / spread);
  return static_cast<int32_t>(std::lround(std::clamp(draw(rng), -128.0, 127.0)));
}

Case Layer(std::mt19937_64& rng, double spread, int64_t n, int64_t k, int64_t groups = 0) {
  Case c;
  c.N = n;
  c.K = k;
  if (groups > 0) {
    c.op = Op::kConv2d;
    c.window.kernel_h = c.window.in_h = 3;
    c.window.kernel_w = c.window.in_w = 3;
    c.window.in_c = k * groups;
    c.window.groups = groups;
    DeriveSizes(&c);
  }
  c.x = Tensor(DType::kU8, ShapeOfX(c));
  c.w = Tensor(DType::kS8, ShapeOfW(c));
  for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, Gaussian(rng, spread));
  return c;
}

std::map<std::string, Remedy> ByName(std::vector<Remedy> remedies) {
  std::map<std::string, Remedy> by_name;
  for (Remedy& remedy : remedies) by_name[remedy.name] = std::move(remedy);
  return by_name;
}

// All exact remedies of a layer, on rows that aim at its pairs: the sums without zero points are
// the original's, and what a convention or a library computes are the exact raw sums.
void ExpectExact(const Case& layer, const std::string& subject_name, int* repaired) {
  const auto subject = SubjectRegistry::Get().Make(subject_name);
  std::string convention = subject_name;
  if (convention.starts_with("model:")) convention = convention.substr(6);
  if (convention == "onednn@avx2") convention = "onednn2@avx2";
  Case plain = layer;
  if (convention == "onednn2@avx2") plain.w_q.zero_point = {0};
  const Scheme scheme = SchemeOf(convention, plain);
  const Codes x{0, 255};
  if (IsSafe(plain, scheme, x)) return;
  Case rows = Directed(plain, x, 24, 9);
  rows.x_q = plain.x_q;
  rows.w_q = plain.w_q;
  rows.per_channel = plain.per_channel;
  for (const Remedy& remedy : Repair(plain, scheme, x)) {
    if (!remedy.exact) continue;
    ASSERT_TRUE(remedy.certified);
    const Case rebuilt = Apply(*remedy.rebuilt, rows);
    ASSERT_EQ(Validate(rebuilt), "");
    ASSERT_TRUE(exact::CorrectedSums(rebuilt) == exact::CorrectedSums(rows)) << remedy.name;
    EXPECT_GE(remedy.overhead, 0);
    Case raw = RawSumsOf(rebuilt, 24);
    raw.x = rebuilt.x;
    if (!subject->CannotRun(raw).empty()) {  // a model that shows its sums beside codes
      raw.out_dtype = DType::kU8;
      raw.out_min = 0;
      raw.out_max = 255;
    }
    ASSERT_EQ(subject->CannotRun(raw), "");
    RunContext context;
    context.want_acc = raw.out_dtype == DType::kU8;
    const Outcome outcome = subject->Run(raw, context);
    ASSERT_TRUE(outcome.ok()) << outcome.detail;
    const std::vector<int64_t> exact = exact::RawSums(raw);
    const Tensor& sums = context.want_acc ? *outcome.acc : outcome.y;
    for (size_t i = 0; i < exact.size(); ++i) {
      ASSERT_EQ(sums.IntAt(static_cast<int64_t>(i)), exact[i]) << remedy.name;
    }
    ++*repaired;
  }
}

class RepairTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterAllSubjects(); }
};

void RepairDrawnLayers(const std::string& subject) {
  std::mt19937_64 rng(11);
  int repaired = 0;
  for (int i = 0; i < 60; ++i) {
    const double spread = std::uniform_real_distribution(1.2, 4.0)(rng);
    const auto size = [&](int64_t most) {
      return std::uniform_int_distribution<int64_t>(1, most)(rng);
    };
    Case layer = i % 2 == 0 ? Layer(rng, spread, size(12), size(24))
                            : Layer(rng, spread, 2 * size(3), size(5), 1 + i % 4 / 2);
    layer.x_q.zero_point = {static_cast<int32_t>(size(255))};
    if (i % 3 == 0) layer.w_q.zero_point = {static_cast<int32_t>(size(40)) - 20};
    ASSERT_NO_FATAL_FAILURE(ExpectExact(layer, subject, &repaired)) << Describe(layer) << i;
  }
  EXPECT_GT(repaired, 60);
}

TEST_F(RepairTest, IsExactOnFbgemm) { RepairDrawnLayers("model:fbgemm@avx2"); }

TEST_F(RepairTest, IsExactOnOneDnn) {
  try {
    (void)SubjectRegistry::Get().Make("onednn@avx2");
  } catch (const std::exception& error) {
    GTEST_SKIP() << error.what();
  }
  RepairDrawnLayers("onednn@avx2");
}

// Per-tensor Gaussian weights need no more than another order.
TEST_F(RepairTest, OrdersOfGaussianWeights) {
  std::mt19937_64 rng(13);
  int unsafe = 0;
  for (int i = 0; i < 10; ++i) {
    const Case layer = Layer(rng, 3.8, 64, 64);
    const Scheme scheme = SchemeOf("pairs", layer);
    if (IsSafe(layer, scheme, {0, 255})) continue;
    ++unsafe;
    const std::vector<Remedy> remedies = Repair(layer, scheme, {0, 255});
    EXPECT_EQ(remedies[0].name, "permutation");
    EXPECT_EQ(remedies[0].overhead, 0);
    std::vector<int32_t> source = remedies[0].rebuilt->source;
    std::ranges::sort(source);
    for (int32_t k = 0; k < 64; ++k) EXPECT_EQ(source[static_cast<size_t>(k)], k);
  }
  EXPECT_GE(unsafe, 5);
}

TEST_F(RepairTest, RemediesAreRanked) {
  Case layer;
  layer.N = 1;
  layer.K = 4;
  layer.w = Tensor::Of<int8_t>({1, 4}, std::vector<int8_t>{100, 90, 80, 70});
  layer.x = Tensor(DType::kU8, {0, 4});
  const Scheme scheme = SchemeOf("pairs", layer);
  const std::vector<Remedy> remedies = Repair(layer, scheme, {0, 255});
  std::vector<std::string> names;
  for (const Remedy& remedy : remedies) names.push_back(remedy.name);
  // No two of them fit. The excess of two, 62 and 22, makes a pair; alone, four take seven places,
  // since the last needs no partner.
  EXPECT_EQ(names, (std::vector<std::string>{"permutation and split", "split", "permutation",
                                             "edits", "largest safe code", "reduce_range"}));
  const auto by_name = ByName(remedies);
  EXPECT_EQ(by_name.at("split").overhead, 0.5);
  EXPECT_EQ(by_name.at("permutation").overhead, 0.75);
  EXPECT_EQ(by_name.at("edits").changed, 2);
  EXPECT_TRUE(by_name.at("edits").certified);
  EXPECT_FALSE(by_name.at("edits").exact);
  // 190 * 172 fits int16, 190 * 173 does not.
  EXPECT_EQ(by_name.at("largest safe code").x, (Codes{0, 172}));
  EXPECT_EQ(by_name.at("reduce_range").x, (Codes{0, 127}));
  EXPECT_TRUE(by_name.at("reduce_range").certified);
  EXPECT_EQ(by_name.at("edits").rebuilt->w,
            Tensor::Of<int8_t>({1, 4}, std::vector<int8_t>{38, 90, 58, 70}));
}

// Kernels that pair other terms get their pairs there.
TEST_F(RepairTest, GivenPairs) {
  Case layer;
  layer.N = 1;
  layer.K = 4;
  layer.w = Tensor::Of<int8_t>({1, 4}, std::vector<int8_t>{100, 1, 100, 1});
  layer.x = Tensor(DType::kU8, {0, 4});
  EXPECT_TRUE(IsSafe(layer, SchemeOf("pairs", layer), {0, 255}));
  const Scheme far = GivenPairs({0, 2, 1, 3});
  ASSERT_FALSE(IsSafe(layer, far, {0, 255}));
  const std::vector<Remedy> remedies = Repair(layer, far, {0, 255});
  ASSERT_TRUE(remedies[0].exact);
  EXPECT_EQ(remedies[0].overhead, 0);
  EXPECT_TRUE(IsSafe(Apply(*remedies[0].rebuilt, layer), far, {0, 255}));
}

TEST_F(RepairTest, OneDepthwiseChannelBecomesTwo) {
  std::mt19937_64 rng(17);
  Case layer = Layer(rng, 1.5, 8, 1, 8);
  layer.op = Op::kDepthwise;
  ASSERT_EQ(Validate(layer), "");
  const Scheme scheme = SchemeOf("pairs", layer);
  ASSERT_FALSE(IsSafe(layer, scheme, {0, 255}));
  const std::vector<Remedy> remedies = Repair(layer, scheme, {0, 255});
  ASSERT_TRUE(remedies[0].exact);
  EXPECT_EQ(remedies[0].overhead, 1);
  const Case rebuilt = Apply(*remedies[0].rebuilt, layer);
  EXPECT_EQ(rebuilt.op, Op::kConv2d);
  EXPECT_EQ(Validate(rebuilt), "");
}

TEST(Matching, IsMaximum) {
  Rng rng(19);
  for (int i = 0; i < 300; ++i) {
    const size_t count = rng.Below(9);
    std::vector<std::vector<bool>> conflicts(count, std::vector<bool>(count));
    for (size_t a = 0; a < count; ++a) {
      for (size_t b = 0; b < a; ++b) conflicts[a][b] = conflicts[b][a] = rng.Chance(2, 3);
    }
    const std::vector<int32_t> partners = Partners(conflicts);
    size_t matched = 0;
    for (size_t a = 0; a < count; ++a) {
      if (partners[a] == kNoPartner) continue;
      const auto b = static_cast<size_t>(partners[a]);
      EXPECT_EQ(partners[b], static_cast<int32_t>(a));
      EXPECT_FALSE(conflicts[a][b]);
      ++matched;
    }
    // The best of all ways to pair the first free thing or to leave it.
    const auto best = [&](auto&& self, unsigned taken) -> size_t {
      size_t a = 0;
      while (a < count && (taken >> a & 1) != 0) ++a;
      if (a == count) return 0;
      size_t most = self(self, taken | 1u << a);
      for (size_t b = a + 1; b < count; ++b) {
        if ((taken >> b & 1) != 0 || conflicts[a][b]) continue;
        most = std::max(most, 2 + self(self, taken | 1u << a | 1u << b));
      }
      return most;
    };
    EXPECT_EQ(matched, best(best, 0));
  }
}

}  // namespace
}  // namespace qualm::proofs
