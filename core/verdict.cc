// SPDX-License-Identifier: Apache-2.0
#include "core/verdict.h"

#include <array>
#include <cmath>
#include <cstdint>

#include "core/float_format.h"

namespace qualm {
namespace {

// Maps codes of floats to integers in value order, so that a difference counts representable
// values.
int64_t OrderedBits(const Tensor& tensor, int64_t i) {
  const uint32_t bits = tensor.BitsAt(i), sign = SignOf(tensor.dtype());
  return (bits & sign) != 0 ? -int64_t{bits & ~sign} : int64_t{bits};
}

}  // namespace

std::string_view Name(Judgement judgement) {
  constexpr std::array<std::string_view, 6> kNames{"passed",  "failed",  "expected",
                                                   "skipped", "vacuous", "not_applicable"};
  return kNames[static_cast<size_t>(judgement)];
}

std::string_view Name(FindingKind kind) {
  constexpr std::array<std::string_view, 14> kNames{
      "pair-saturation", "int32-overflow", "rounding",   "tie",    "tail",
      "padding",         "clamp",          "zero-point", "index",  "memory",
      "nondeterminism",  "crash",          "hang",       "unknown"};
  return kNames[static_cast<size_t>(kind)];
}

void SumGrades::Add(const SumGrades& more) {
  window += more.window;
  bound += more.bound;
  undecided += more.undecided;
  tree += more.tree;
}

std::string SumGrades::text() const {
  if (tree != 0) return "tree " + std::to_string(tree);
  return "exact window " + std::to_string(window) + ", sound bound " + std::to_string(bound) +
         ", undecided " + std::to_string(undecided);
}

double DistanceLsb(const Tensor& expected, const Tensor& actual, int64_t i) {
  return DistanceLsb(expected, i, actual, i);
}

double DistanceLsb(const Tensor& expected, int64_t i, const Tensor& actual, int64_t j) {
  if (IsFloat(expected.dtype()))
    return std::abs(static_cast<double>(OrderedBits(expected, i) - OrderedBits(actual, j)));
  return std::abs(static_cast<double>(int64_t{expected.IntAt(i)} - actual.IntAt(j)));
}

std::string ElementText(const Tensor& tensor, int64_t i) {
  return IsFloat(tensor.dtype()) ? CodeText(tensor.dtype(), tensor.BitsAt(i))
                                 : std::to_string(tensor.IntAt(i));
}

std::optional<Divergence> FirstDivergence(const Tensor& expected, const Tensor& actual) {
  QUALM_CHECK(expected.dtype() == actual.dtype());
  QUALM_CHECK(expected.shape() == actual.shape());
  if (expected == actual) return std::nullopt;
  for (int64_t i = 0; i < expected.size(); ++i) {
    if (expected.SameAt(i, actual)) continue;
    return Divergence{i, ElementText(expected, i), ElementText(actual, i),
                      DistanceLsb(expected, actual, i)};
  }
  return std::nullopt;
}

}  // namespace qualm
