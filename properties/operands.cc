// SPDX-License-Identifier: Apache-2.0
// add, sub, mul and rescale in terms of each other. No oracle: the subject is compared with itself.
#include <algorithm>
#include <string>
#include <utility>

#include "properties/list.h"
#include "properties/relation.h"

namespace qualm {
namespace {

Verdict Commutes(const Case& c, Subject& subject) {
  if (c.x.empty()) return Verdict::Vacuous("the output is empty");
  Case swapped = ProblemOf(c);
  std::swap(swapped.x, swapped.w);
  std::swap(swapped.x_q, swapped.w_q);
  if (swapped == ProblemOf(c)) return Verdict::Vacuous("both operands are the same");
  return relation::SameAnswer(c, swapped, subject, "swapping the operands changes the output");
}

// A difference is the one that changes when its operands are swapped.
bool IsCommutative(Op op) {
  switch (RowOf(op).combine) {
    case Combine::kSum:
    case Combine::kProduct: return true;
    case Combine::kDifference:
    case Combine::kNone: break;
  }
  return false;
}

// The second operand that leaves the first one as it is.
struct Neutral {
  int32_t real = 0;
  const char* otherwise = "";  // the message if the subject does not rescale
};
Neutral NeutralOf(Op op) {
  switch (RowOf(op).combine) {
    case Combine::kSum:
    case Combine::kDifference: return {0, "adding or subtracting 0 is not rescaling"};
    case Combine::kProduct: return {1, "multiplying by 1 is not rescaling"};
    case Combine::kNone: break;
  }
  QUALM_CHECK(!"no two operands");
  return {};
}

Verdict NeutralOperandIsRescale(const Case& c, Subject& subject) {
  if (c.x.empty()) return Verdict::Vacuous("the output is empty");
  Case neutral = ProblemOf(c);
  const CodeRange range = RangeOf(c.w.dtype());
  const auto [real, otherwise] = NeutralOf(c.op);
  int32_t& zero = neutral.w_q.zero_point[0];
  zero = std::clamp(zero, range.min, range.max - real);
  if (real != 0) neutral.w_q.scale = {1.0f};
  for (int64_t i = 0; i < neutral.w.size(); ++i) neutral.w.SetInt(i, zero + real);
  Case rescale = ProblemOf(c);
  rescale.op = Op::kRescale;
  rescale.w = Tensor();
  rescale.w_q = QParams{};
  return relation::SameAnswer(rescale, neutral, subject, otherwise);
}

Verdict EqualQParamsIsIdentity(const Case& c, Subject& subject) {
  if (c.x.empty()) return Verdict::Vacuous("the output is empty");
  Case same = ProblemOf(c);
  same.out_q = c.x_q;
  same.out_dtype = c.x.dtype();
  if (c.out_dtype != same.out_dtype) OpenClamp(&same);
  Tensor expected = c.x;
  const auto low = static_cast<int32_t>(relation::LowEnd(same, 0));
  for (int64_t i = 0; i < expected.size(); ++i) {
    expected.SetInt(i, std::clamp(expected.IntAt(i), low, same.out_max));
  }
  return relation::Expect(same, expected, subject, "rescaling to the same qparams changes codes");
}

}  // namespace

std::vector<Property> OperandProperties() {
  return {
      {"commutes", "Swapping the operands with their scales and zero points changes nothing.",
       OpsWhere(IsCommutative), false, Commutes},
      {"neutral_operand_is_rescale",
       "Adding or subtracting real 0, or multiplying by real 1, is rescale of the first operand.",
       OpsWhere(HasTwoOperands), false, NeutralOperandIsRescale},
      {"equal_qparams_is_identity",
       "rescale with equal types, scales and zero points gives its input, clamped.",
       {Op::kRescale},
       false,
       EqualQParamsIsIdentity},
  };
}

}  // namespace qualm
