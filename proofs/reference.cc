// SPDX-License-Identifier: Apache-2.0
#include "proofs/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/status.h"
#include "oracles/conventions/convention.h"
#include "oracles/exact/exact.h"
#include "proofs/enclose.h"
#include "proofs/fast_codes.h"

namespace qualm::proofs {
namespace {

std::vector<int32_t> Codes(const Tensor& tensor) {
  std::vector<int32_t> codes(static_cast<size_t>(tensor.size()));
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = tensor.IntAt(static_cast<int64_t>(i));
  return codes;
}

std::function<Tensor(const Case&)> EvaluatorOf(const Domain& domain, const Contract& contract) {
  if (contract.exact()) return exact::Evaluate;
  if (contract.permits_intervals())
    throw InputError(contract.text() + ": permits intervals, expected exact or model:NAME");
  const Convention* const convention = FindConvention(contract.convention);
  if (convention == nullptr) throw InputError(contract.text() + ": no such convention");
  const std::string why = convention->cannot_run(domain.Shape(domain.granule()));
  if (!why.empty()) throw InputError(contract.text() + ": does not define this: " + why);
  return [convention](const Case& c) { return convention->run(c).y; };
}

}  // namespace

Reference::Reference(const Domain& domain, const Contract& contract)
    : domain_(domain),
      exact_(contract.exact()),
      convention_(exact_ ? nullptr : FindConvention(contract.convention)),
      evaluate_(EvaluatorOf(domain, contract)) {}

const std::vector<Steps>& Reference::StepsOfRanges() {
  if (!steps_.empty()) return steps_;
  const Ask ask = [this](std::span<const uint64_t> numbers) {
    return Codes(evaluate_(domain_.At(numbers)));
  };
  const auto guess = [this](int32_t n) { return domain_.Guess(n); };
  for (const auto& [first, last] : domain_.Rising()) {
    // The exact value rises by its meaning; a convention may not.
    FoundSteps found = FindPieces(ask, first, last, guess, exact_ ? 0 : 1024);
    if (found.fall) {
      throw InputError(
          fmt::format("the convention falls from {} at {} to {} at {}, expected one "
                      "that rises (--each needs no steps)",
                      found.fall->value_a, domain_.TextOf(found.fall->a), found.fall->value_b,
                      domain_.TextOf(found.fall->b)));
    }
    steps_.push_back(std::move(found.steps));
  }
  QUALM_CHECK(!steps_.empty());
  return steps_;
}

std::string Reference::WhyNotShown() {
  if (exact_) return "";
  const Enclose enclose = [this](uint32_t first,
                                 uint32_t last) -> std::optional<EnclosingSubject::Codes> {
    const auto codes = EncloseBy(*convention_, EndsOf(domain_.problem(), first, last));
    if (!codes) return std::nullopt;
    return EnclosingSubject::Codes{codes->min, codes->max};
  };
  const std::vector<Steps>& steps = StepsOfRanges();
  const auto ranges = domain_.Rising();
  for (size_t r = 0; r < ranges.size(); ++r) {
    const std::string why = WhyNotEnclosed(domain_, steps[r], ranges[r].second, enclose);
    if (!why.empty()) return convention_->name + " " + why;
  }
  return "";
}

bool Reference::InDoubles(uint64_t first, uint64_t count, std::span<uint8_t> expected) const {
  if (!exact_ || !HasNearest(domain_.problem())) return false;
  const Case c = domain_.At(first, count);
  const std::vector<uint32_t> open = Nearest(c, c.x.bytes(), c.w.bytes(), expected);
  if (open.empty()) return true;
  std::vector<uint64_t> numbers;
  for (const uint32_t place : open) numbers.push_back(first + place);
  const Tensor y = evaluate_(domain_.At(numbers));
  const size_t size = SizeOf(y.dtype());
  for (size_t i = 0; i < open.size(); ++i)
    std::memcpy(&expected[open[i] * size], &y.bytes()[i * size], size);
  return true;
}

void Reference::Each(uint64_t first, uint64_t count, std::span<uint8_t> expected) const {
  if (InDoubles(first, count, expected)) return;
  const Case c = domain_.At(first, count);
  if (exact_ && domain_.inputs() == Inputs::kQuads) {
    // Two products of codes: the meaning itself, in a loop that a compiler makes fast.
    const std::vector<int32_t> x = Codes(c.x), w = Codes(c.w);
    auto* out = reinterpret_cast<int32_t*>(expected.data());
    for (size_t m = 0; m < x.size(); m += 2) {
      for (size_t n = 0; n < w.size(); n += 2)
        *out++ = std::clamp(x[m] * w[n] + x[m + 1] * w[n + 1], c.out_min, c.out_max);
    }
    return;
  }
  const Tensor y = evaluate_(c);
  std::memcpy(expected.data(), y.bytes().data(), expected.size());
}

}  // namespace qualm::proofs
