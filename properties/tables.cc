// SPDX-License-Identifier: Apache-2.0
// concat, table and softmax in terms of other operations and of themselves. No oracle: the subject
// is compared with itself.
#include <string>
#include <vector>

#include "core/rng.h"
#include "core/slice.h"
#include "properties/list.h"
#include "properties/relation.h"

namespace qualm {
namespace {

using relation::Answer;
using relation::Ask;

// Each input of a concat, rescaled.
Verdict PartsAreRescaled(const Case& c, Subject& subject) {
  if (c.M == 0 || c.N == 0) return Verdict::Vacuous("the output is empty");
  const Answer whole = Ask(subject, c);
  if (whole.verdict) return *whole.verdict;
  const int64_t first = c.x.shape()[1];
  for (const bool second : {false, true}) {
    Case part = ProblemOf(c);
    part.op = Op::kRescale;
    if (second) {
      part.x = c.w;
      part.x_q = c.w_q;
    }
    part.w = Tensor();
    part.w_q = QParams{};
    part.N = part.x.shape()[1];
    if (part.N == 0) continue;
    const auto place = [&](int64_t i) {
      return i / part.N * c.N + i % part.N + (second ? first : 0);
    };
    const auto differs = relation::CompareAlone(c, whole.y, part, subject, place,
                                                second ? "the second input is not rescaled alone"
                                                       : "the first input is not rescaled alone");
    if (differs) return *differs;
  }
  return Verdict::Passed();
}

// relu, and leaky_relu of slope 1, of the same codes.
Verdict ReluIsRescale(const Case& c, Subject& subject) {
  if (c.x.empty()) return Verdict::Vacuous("the output is empty");
  for (const bool relu : {true, false}) {
    Case table = ProblemOf(c);
    table.function = relu ? Function::kRelu : Function::kLeakyRelu;
    table.negative_slope = relu ? Case().negative_slope : 1.0f;
    Case rescale = ProblemOf(c);
    rescale.op = Op::kRescale;
    rescale.function = Case().function;
    rescale.negative_slope = Case().negative_slope;
    rescale.relu = relu;
    Verdict verdict = relation::SameAnswer(
        rescale, table, subject,
        relu ? "relu is not rescale with relu" : "leaky_relu of slope 1 is not rescale");
    if (verdict.judgement != Judgement::kPassed) return verdict;
  }
  return Verdict::Passed();
}

Verdict RowPermutation(const Case& c, Subject& subject) {
  if (c.N < 2) return Verdict::Vacuous("nothing to permute");
  Rng rng(relation::Hash(c));
  const std::vector<int64_t> from = relation::Permutation(rng, c.N);
  const Case permuted = slice::Channels(c, from);
  if (permuted.x == c.x) return Verdict::Vacuous("the permutation changes nothing");
  const Answer base = Ask(subject, c);
  if (base.verdict) return *base.verdict;
  Tensor expected = base.y;
  for (int64_t i = 0; i < expected.size(); ++i) {
    expected.SetInt(i, base.y.IntAt(i / c.N * c.N + from[static_cast<size_t>(i % c.N)]));
  }
  return relation::Expect(permuted, expected, subject,
                          "permuting a row does not permute its output");
}

// Codes that all move alike, the zero point standing still: unlike zero_point_shift, real values
// change.
Verdict AddedConstant(const Case& c, Subject& subject) {
  if (c.x.empty()) return Verdict::Vacuous("the output is empty");
  const int32_t by = relation::ShiftWithin(c.x);
  if (by == 0) return Verdict::Vacuous("the codes fill their type");
  Case moved = ProblemOf(c);
  moved.x = *relation::Shifted(c.x, c.x.dtype(), by);
  return relation::SameAnswer(c, moved, subject,
                              "a constant added to all codes changes the output");
}

Verdict InputZeroPointIsIrrelevant(const Case& c, Subject& subject) {
  if (c.x.empty()) return Verdict::Vacuous("the output is empty");
  Case other = ProblemOf(c);
  const CodeRange range = RangeOf(c.x.dtype());
  // Any other code.
  const auto code = static_cast<int32_t>(relation::Hash(c) % 256) + range.min;
  other.x_q.zero_point = {code == c.x_q.zero_point_at(0) ? range.min + range.max - code : code};
  return relation::SameAnswer(c, other, subject, "the zero point of x changes the output");
}

}  // namespace

std::vector<Property> TableProperties() {
  return {
      {"parts_are_rescaled",
       "Each input's columns of a concat are rescale of that input alone.",
       {Op::kConcat},
       false,
       PartsAreRescaled},
      {"relu_is_rescale",
       "A table of relu is rescale with fused relu, one of leaky_relu with slope 1 is rescale.",
       {Op::kTable},
       false,
       ReluIsRescale},
      {"row_permutation",
       "Permuting the codes of each row permutes its output.",
       {Op::kSoftmax},
       false,
       RowPermutation},
      {"added_constant",
       "Adding a constant to all codes changes nothing, where they stay in their type.",
       {Op::kSoftmax},
       false,
       AddedConstant},
      {"input_zero_point_is_irrelevant",
       "The zero point of x changes nothing.",
       {Op::kSoftmax},
       false,
       InputZeroPointIsIrrelevant},
  };
}

}  // namespace qualm
