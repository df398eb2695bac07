// SPDX-License-Identifier: Apache-2.0
// What the models claim of themselves, on drawn cases moved into the domains of conventions.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "core/rng.h"
#include "oracles/models/model.h"
#include "properties/gen/gen.h"
#include "properties/list.h"
#include "properties/test_subject.h"

namespace qualm {
namespace {

void Retype(Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype) return;
  const int32_t by = dtype == DType::kS8 ? -128 : 128;
  Tensor moved(dtype, tensor.shape());
  for (int64_t i = 0; i < tensor.size(); ++i) moved.SetInt(i, tensor.IntAt(i) + by);
  tensor = std::move(moved);
}

void IntoCodes(QParams& q, DType dtype) {
  const CodeRange range = RangeOf(dtype);
  for (int32_t& z : q.zero_point) {
    if (z < range.min || z > range.max) {
      z = range.min + static_cast<int32_t>(static_cast<uint32_t>(z) % 256);
    }
  }
}

void WholeRange(Case& c) {
  c.out_min = RangeOf(c.out_dtype).min;
  c.out_max = RangeOf(c.out_dtype).max;
}

// Weights that most conventions take, and a bias in the form that more of them do.
void MoveSums(Case& c, Rng& rng) {
  Retype(c.w, rng.Chance(3, 4) ? DType::kS8 : c.x.dtype());
  IntoCodes(c.w_q, c.w.dtype());
  const bool symmetric = rng.Chance(2, 3);
  for (int32_t& z : c.w_q.zero_point) z = symmetric ? 0 : c.w_q.zero_point[0];
  switch (rng.Below(3)) {
    case 0:
      c.bias.reset();
      c.bias_i32.reset();
      break;
    case 1:
      if (!c.bias) break;
      c.bias_i32.emplace(c.bias->size());
      for (int32_t& b : *c.bias_i32) b = static_cast<int32_t>(rng.Between(-20000, 20000));
      c.bias.reset();
      break;
    default: break;
  }
  if (c.per_channel && c.N > 0 && rng.Chance(1, 2)) {
    c.per_channel = false;
    c.w_q.scale.resize(1);
    c.w_q.zero_point.resize(1);
  }
}

// Conventions know fewer types, clamps and zero points than the generators draw.
Case Moved(Case c, Rng& rng) {
  if (rng.Chance(1, 8)) return c;
  if (rng.Chance(1, 2)) c.relu = false;
  if (IsCode(c.x.dtype())) {
    const DType dtype = rng.Chance(1, 2) ? DType::kU8 : DType::kS8;
    Retype(c.x, dtype);
    IntoCodes(c.x_q, dtype);
    if (HasTwoOperands(c.op)) {
      Retype(c.w, dtype);
      IntoCodes(c.w_q, dtype);
    }
    if (HasSums(c.op)) MoveSums(c, rng);
    if (c.op != Op::kDequantize && rng.Chance(5, 6)) c.out_dtype = dtype;
  }
  if (IsCode(c.out_dtype)) IntoCodes(c.out_q, c.out_dtype);
  if (c.bias && c.out_dtype == DType::kS32) c.bias.reset();
  WholeRange(c);
  return c;
}

TEST(ModelClaims, HoldOnDrawnCases) {
  constexpr uint64_t kCases = 60;
  for (const Model& model : AllModels()) {
    TestSubject subject(
        [&](const Case& c, const RunContext&) { return TestSubject::Good(model.run(c).y); });
    subject.cannot_run = model.cannot_run;
    subject.set_contract({model.name});
    for (const Op op : {Op::kQuantize, Op::kDequantize, Op::kRequantize, Op::kLinear, Op::kConv2d,
                        Op::kDepthwise, Op::kAdd, Op::kMul}) {
      Rng rng(static_cast<uint64_t>(op) + 1);
      int64_t taken = 0;
      std::map<std::string, int64_t> passed;
      for (uint64_t seed = 0; seed < kCases; ++seed) {
        const Case c = Moved(gen::Draw(op, seed), rng);
        ASSERT_EQ(Validate(c), "");
        if (!model.cannot_run(c).empty()) continue;
        ++taken;
        MemoSubject memo(subject);
        for (const Property& property : AllProperties()) {
          const bool about = std::ranges::find(property.ops, op) != property.ops.end();
          if (!about || !Satisfies(model, op, property.claim)) continue;
          const Verdict verdict = Judge(property, c, memo);
          EXPECT_FALSE(verdict.failed())
              << model.name << " " << FullName(op, property) << ": " << verdict.reason;
          passed[FullName(op, property)] += verdict.judgement == Judgement::kPassed ? 1 : 0;
        }
      }
      for (const auto& [claim, count] : passed) {
        // A claim that nothing was tried on is no evidence.
        if (taken >= 20) {
          EXPECT_GT(count, 0) << model.name << " " << claim;
        }
      }
    }
  }
}

// A name that no property has would never be judged. PyTorch's engines repeat what each part claims
// for the operations that the part computes, whether the property speaks of them or not.
TEST(ModelClaims, NameProperties) {
  for (const Model& model : AllModels()) {
    for (const std::string& claim : model.satisfies) {
      const std::string bare = claim.substr(claim.find('.') + 1);
      const bool composed = model.name.starts_with("torch-");
      EXPECT_NE(FindProperty(composed ? bare : claim), nullptr) << model.name << " " << claim;
    }
  }
}

}  // namespace
}  // namespace qualm
