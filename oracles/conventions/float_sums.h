// SPDX-License-Identifier: Apache-2.0
// What a sum of products may be if it is computed in float32, in whatever order (docs/sums.md). The
// contracts "sum" and "sum+offsets" accept these outputs and no others.
#ifndef QUALM_ORACLES_CONVENTIONS_FLOAT_SUMS_H_
#define QUALM_ORACLES_CONVENTIONS_FLOAT_SUMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/contract.h"
#include "core/verdict.h"
#include "oracles/conventions/variations.h"

namespace qualm {

// What decided about an output, the strongest first.
enum class SumGrade : uint8_t {
  kWindow,     // nothing is ever rounded: every order gives these bits
  kBound,      // the roundings of the deepest order bound the error
  kUndecided,  // something may overflow, or underflow where nothing bounds it: all is accepted
};

// How zero points of weights are taken out: of each weight, exactly; or of the sums, in float32
// too: then x * w and x * zw, with codes without a sign, are terms of their own.
enum class Offsets : uint8_t {
  kFirst,
  kApart,
  kApartFromEither,  // w0 is the lowest code of the weights' type or, if that is more, the highest
};
Offsets OffsetsOf(const Contract& contract);

struct FloatSum {
  Permitted permitted;  // as of PermittedOutputs; zeros have either sign
  SumGrade grade = SumGrade::kUndecided;
};

// Whether `sum` judges any case of the operation.
bool HasFloatSums(Op op);
// "" if it judges this case, else why not.
std::string WhyNoFloatSums(const Case& c, Offsets offsets = Offsets::kFirst);
// Of each output, in order.
std::vector<FloatSum> FloatSums(const Case& c, Offsets offsets = Offsets::kFirst);

SumGrades CountGrades(const std::vector<FloatSum>& sums);

}  // namespace qualm

#endif  // QUALM_ORACLES_CONVENTIONS_FLOAT_SUMS_H_
