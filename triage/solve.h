// SPDX-License-Identifier: Apache-2.0
// Looks for a number of a case that nobody knows, or that is not what somebody says: its values
// with which an observed output is that of the exact meaning or of a named convention. A scale is
// found from the real values that the codes leave, a few integers are tried.
#ifndef QUALM_TRIAGE_SOLVE_H_
#define QUALM_TRIAGE_SOLVE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/case.h"
#include "core/tensor.h"
#include "triage/identify.h"

namespace qualm::triage {

// A number of a case, or a list with one number per channel.
struct Parameter {
  enum class Kind : uint8_t {
    kScale,
    kZeroPoint,
    kBound,       // of the output, or of the codes that choose_qparams is for
    kBiasFactor,  // what the bias is multiplied by: the unit that it counts in
  };
  std::string key;  // as in case files
  Kind kind = Kind::kScale;
  Printed::List list = Printed::List::kXScale;  // of kScale, and whose zero point it is
  std::vector<int64_t> entries = {};            // of the list: those that are looked for
};
// Every number of the case that Solve can look for and that matters to its outputs.
std::vector<Parameter> ParametersOf(const Case& c);

// What one entry of a list may be.
struct Candidate {
  std::vector<int32_t> integers;                   // of the integers among the unknown, in order
  std::optional<std::pair<float, float>> between;  // of the scale or factor: these and all between
  bool operator==(const Candidate&) const = default;
};
struct Solution {
  std::vector<std::vector<Candidate>> entries;  // of each entry that was looked for
  std::vector<std::string> units;               // of kBiasFactor: units that lie in every interval
  bool operator==(const Solution&) const = default;
  // Every entry has a candidate.
  bool found() const;
  // They have one each.
  bool unique() const;
};

// "" if the numbers can be looked for together, else why not: one list alone, or a scale and two
// integers at most.
std::string CannotSolve(const Case& c, std::span<const Parameter> unknown);

// The values of the unknown numbers with which `arithmetic` gives `y`. Of a convention a scale is
// found by halving, since outputs follow scales in one direction: what it finds gives y, but a
// convention that goes back and forth may have more. nullopt where the arithmetic does not define
// the case, or the work (products of codes) would exceed what is left in `work`.
std::optional<Solution> Solve(const Case& c, const Tensor& y, std::span<const Parameter> unknown,
                              const ConventionOrExact& arithmetic, int64_t* work);

// Halving, for one number or for one number per channel. The numbers are positive float32.
struct Bracket {
  float low = 0, high = 0;
  float start = 0;  // between them; a number at which the arithmetic is defined
};
// The output with these numbers, one for each bracket; nullopt where it is not defined.
using RunWith = std::function<std::optional<Tensor>(std::span<const float>)>;
// For each bracket the smallest and largest number found to give its outputs of `y`: all outputs,
// or those of its channel. `direction`: of each output, 1 if it rises with the number, -1 if it
// falls, 0 if it does not follow.
std::vector<std::optional<std::pair<float, float>>> Halve(const std::vector<Bracket>& brackets,
                                                          const Tensor& y,
                                                          std::span<const int8_t> direction,
                                                          const RunWith& run);
// Of a list of scales, each output's.
std::vector<int8_t> DirectionsOf(const Case& c, Printed::List list);

// Products of codes that one run of the case costs.
int64_t WorkOf(const Case& c);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_SOLVE_H_
