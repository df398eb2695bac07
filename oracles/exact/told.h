// SPDX-License-Identifier: Apache-2.0
// Tells the steps of one output: the sentences that several operations share. Internal to
// oracles/exact; Derive is the door.
#ifndef QUALM_ORACLES_EXACT_TOLD_H_
#define QUALM_ORACLES_EXACT_TOLD_H_

#include <cstdint>
#include <string>

#include "core/case.h"
#include "core/slice.h"
#include "core/tensor.h"
#include "oracles/exact/arithmetic/rational.h"
#include "oracles/exact/evaluate.h"
#include "oracles/trace.h"

namespace qualm::exact {

// A float32 as people read it; the exact value of a step stands in TraceStep::value.
std::string Short(float value);
// An integer of up to 64 bits as it is, other values to about nine digits.
std::string Readable(const Rational& value);
// Negative numbers in parentheses.
std::string Parenthesized(const Rational& value);
// "sx * sw / sy" of the first channel.
std::string ScalesText(const Case& c);
// Appends term `i` of `count`. Long lists are told by their ends: the middle of a thousand terms
// helps nobody.
void AppendTerm(std::string* list, int64_t i, int64_t count, const std::string& between,
                const std::string& term);

// Tells the only output of a case with M = N = 1, or the first one of a softmax.
class Teller {
 public:
  explicit Teller(const Case& told) : c(told) {}

  void Step(Stage stage, std::string text, std::string value);
  // The sentence ends in the value.
  void Step(Stage stage, const std::string& text, const Rational& value);

  // Tells that the zero point leaves the first code, and returns what remains. `of` begins the
  // sentence.
  Rational Difference(const std::string& of, const Tensor& codes, const QParams& q);
  // The first code of an operand, brought to the scale of the output, to the end.
  void RescaleOperand(const std::string& of, const std::string& scale, const Tensor& codes,
                      const QParams& q);

  // From a real value, a rounded value or a code on to the end.
  void RoundToCode(const Rational& value);
  void RoundToReal(const Rational& value);
  void AddZeroPoint(const Integer& rounded);
  void ClampCode(const Integer& value);
  // From an accumulator to the end, in the requantization mode of the case.
  void RoundAs(const Integer& accumulator);

  const Case& c;
  Trace trace;
};

// Told::steps of an operation that tells each output alone.
template <void (*kTell)(Teller& teller)>
Trace Alone(const Case& c, int64_t index) {
  const Case one = slice::OneOutput(c, index);
  Teller teller(one);
  kTell(teller);
  return teller.trace;
}

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_TOLD_H_
