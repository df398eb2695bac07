// SPDX-License-Identifier: Apache-2.0
// Each claim of a convention (`satisfies`) holds on drawn cases that are moved into its domain.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "core/rng.h"
#include "oracles/conventions/convention.h"
#include "properties/gen/gen.h"
#include "properties/gen/library.h"
#include "properties/list.h"
#include "properties/test_subject.h"

namespace qualm {
namespace {

TEST(ConventionClaims, HoldOnDrawnCases) {
  constexpr uint64_t kCases = 60;
  for (const Convention& convention : AllConventions()) {
    TestSubject subject(
        [&](const Case& c, const RunContext&) { return TestSubject::Good(convention.run(c).y); });
    subject.cannot_run = convention.cannot_run;
    subject.set_contract({convention.name});
    for (const Op op : convention.ops) {
      // The operations that IntoLibraryDomain moves into the domain of conventions.
      const bool moved = HasSums(op) || HasTwoOperands(op) || op == Op::kQuantize ||
                         op == Op::kDequantize || op == Op::kRequantize;
      if (!moved) continue;
      Rng rng(static_cast<uint64_t>(op) + 1);
      int64_t taken = 0;
      std::map<std::string, int64_t> passed;
      for (uint64_t seed = 0; seed < kCases; ++seed) {
        const Case c = gen::IntoLibraryDomain(gen::Draw(op, seed), rng);
        ASSERT_EQ(Validate(c), "");
        if (!convention.cannot_run(c).empty()) continue;
        ++taken;
        MemoSubject memo(subject);
        for (const Property& property : AllProperties()) {
          const bool about = property.about(op);
          if (!about || !Satisfies(convention, op, property.claim)) continue;
          const Verdict verdict = Judge(property, c, memo);
          EXPECT_FALSE(verdict.failed())
              << convention.name << " " << FullName(op, property) << ": " << verdict.reason;
          passed[FullName(op, property)] += verdict.judgement == Judgement::kPassed ? 1 : 0;
        }
      }
      for (const auto& [claim, count] : passed) {
        // A claim that was judged on no case has no evidence.
        if (taken >= 20) {
          EXPECT_GT(count, 0) << convention.name << " " << claim;
        }
      }
    }
  }
}

// Fuzzing model:fbgemm@avx2 reported this within seconds: two scales whose product leaves float32
// make 0 * inf, and maxps keeps the NaN (FBGEMM src/QuantUtilsAvx2.cc, requantizeForFloatAvx2).
TEST(ConventionClaims, ReluOfALibraryMayKeepNaN) {
  const Convention& fbgemm = *FindConvention("fbgemm@avx2");
  Case c;
  c.op = Op::kLinear;
  c.M = c.N = 1;
  c.K = 0;
  c.x = Tensor(DType::kU8, {1, 0});
  c.w = Tensor(DType::kS8, {1, 0});
  c.x_q.scale = c.w_q.scale = {0x1p127f};
  c.out_dtype = DType::kF32;
  c.relu = true;
  OpenClamp(&c);
  ASSERT_EQ(Validate(c), "");
  Tensor y = fbgemm.run(c).y;
  ASSERT_TRUE(std::isnan(y.FloatAt(0)));
  TestSubject subject([&](const Case&, const RunContext&) { return TestSubject::Good(y); });
  const Property& clamp = *FindProperty("clamp");
  EXPECT_TRUE(Judge(clamp, c, subject).failed()) << "NaN is not exact";
  subject.set_contract({fbgemm.name});
  EXPECT_EQ(Judge(clamp, c, subject).judgement, Judgement::kPassed);
  EXPECT_EQ(Judge(*FindProperty("matches_model"), c, subject).judgement, Judgement::kPassed);
  y = Tensor(DType::kF32, {1, 1});
  y.as<float>()[0] = -1.0f;
  EXPECT_TRUE(Judge(clamp, c, subject).failed()) << "no relu lets a negative number through";
}

// A claim that no property has would never be judged.
TEST(ConventionClaims, NameProperties) {
  const auto expect_names = [](const Convention& convention, const std::string& of) {
    for (const std::string& claim : convention.satisfies) {
      EXPECT_NE(FindProperty(claim), nullptr) << of << " " << claim;
    }
  };
  for (const Convention& convention : AllConventions()) {
    expect_names(convention, convention.name);
    if (!convention.for_op) continue;
    for (const Op op : AllOps()) {
      if (const Convention* one = convention.for_op(op)) expect_names(*one, convention.name);
    }
  }
}

}  // namespace
}  // namespace qualm
