// SPDX-License-Identifier: Apache-2.0
#include "oracles/accepted.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/scaled_cast.h"
#include "core/status.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/tree_contract.h"
#include "oracles/exact/exact.h"

namespace qualm {
namespace {

// An end of an interval as an element of the type.
Tensor EndOf(DType dtype, double end) {
  Tensor one(dtype, {1});
  if (dtype == DType::kF32) {
    one.as<float>()[0] = static_cast<float>(end);
  } else {
    one.SetInt(0, static_cast<int32_t>(end));
  }
  return one;
}

}  // namespace

Accepted Accepted::Sums(Tensor nominal, const std::vector<FloatSum>& each) {
  Accepted accepted = Within(std::move(nominal), {});
  for (const FloatSum& sum : each) {
    accepted.each_.push_back(sum.permitted);
    accepted.grade_.push_back(sum.grade);
  }
  accepted.grades_ = CountGrades(each);
  return accepted;
}

bool Accepted::Decides(int64_t i) const {
  if (each_.empty()) return true;
  const Permitted& permitted = each_[static_cast<size_t>(i)];
  if (nominal_.dtype() == DType::kF32)
    return std::isfinite(permitted.low) || std::isfinite(permitted.high);
  const CodeRange range = RangeOf(nominal_.dtype());
  return permitted.low > range.min || permitted.high < range.max;
}

bool Accepted::Holds(const Tensor& y, int64_t i) const {
  if (y.SameAt(i, nominal_)) return true;
  if (each_.empty()) return false;
  const Permitted& permitted = each_[static_cast<size_t>(i)];
  const double value = y.ValueAt(i);
  return !Decides(i) || (value >= permitted.low && value <= permitted.high);
}

std::optional<Divergence> Accepted::First(const Tensor& y) const {
  if (each_.empty()) return FirstDivergence(nominal_, y);
  QUALM_CHECK(y.dtype() == nominal_.dtype() && y.size() == nominal_.size());
  for (int64_t i = 0; i < y.size(); ++i) {
    if (Holds(y, i)) continue;
    const Permitted& permitted = each_[static_cast<size_t>(i)];
    const double value = y.ValueAt(i);
    const Tensor low = EndOf(nominal_.dtype(), permitted.low),
                 high = EndOf(nominal_.dtype(), permitted.high);
    const std::string ends = ElementText(low, 0) + ", " + ElementText(high, 0);
    return Divergence{i, permitted.low == permitted.high ? ElementText(low, 0) : "[" + ends + "]",
                      ElementText(y, i), DistanceLsb(value < permitted.low ? low : high, 0, y, i)};
  }
  return std::nullopt;
}

int64_t Accepted::undecided() const {
  int64_t count = 0;
  for (int64_t i = 0; i < nominal_.size(); ++i) count += Decides(i) ? 0 : 1;
  return count;
}

std::string Accepted::What(const Contract& contract, int64_t i) const {
  if (contract.is_tree()) return "sums along the tree of the contract";
  if (!contract.convention.empty()) return "convention " + contract.convention;
  if (!grades_) return "what " + contract.text() + " permits";
  return (grade_[static_cast<size_t>(i)] == SumGrade::kWindow
              ? "the one value that float32 sums of every order have"
              : "what float32 sums of any order can give") +
         (" (" + grades_->text() + ")");
}

std::string WhyNotJudged(const Contract& contract, const Case& c) {
  for (const std::string& id : contract.variations) {
    if (FindVariation(id) == nullptr) return "there is no variation " + id;
  }
  if ((c.w_block != 0 || HasFloatX(c)) && !contract.variations.empty())
    return "variations know no " + std::string(HasFloatX(c) ? kOfFloatX : kInBlocks);
  if (HasElementBlocks(c) && !contract.variations.empty())
    return "variations know no " + std::string(kElementsInBlocks);
  if (IsScaledCast(c) && !contract.variations.empty())
    return "variations know no " + std::string(kOfScaledCasts);
  if (contract.sum) return WhyNoFloatSums(c, OffsetsOf(contract));
  if (contract.convention.empty()) return "";
  const Convention* const convention = FindConvention(contract.convention);
  if (convention == nullptr) {
    return contract.is_tree() ? conventions::WhyNoConvention(contract.convention)
                              : "there is no convention " + contract.convention;
  }
  const std::string reason = convention->cannot_run(c);
  if (reason.empty() || contract.is_tree()) return reason;
  return "convention " + contract.convention + " does not define it: " + reason;
}

Accepted AcceptedBy(const Contract& contract, const Case& c) {
  if (!contract.convention.empty()) {
    const Convention* const convention = FindConvention(contract.convention);
    QUALM_CHECK(convention != nullptr);
    Accepted right = Accepted::Only(convention->run(c).y);
    if (contract.is_tree()) right.grades_ = SumGrades{.tree = right.nominal_.size()};
    return right;
  }
  if (contract.exact()) return Accepted::Only(exact::Evaluate(c));
  if (contract.sum) return Accepted::Sums(exact::Evaluate(c), FloatSums(c, OffsetsOf(contract)));
  return Accepted::Within(exact::Evaluate(c), PermittedOutputs(contract.variations, c));
}

}  // namespace qualm
