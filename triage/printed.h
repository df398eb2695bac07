// SPDX-License-Identifier: Apache-2.0
// What follows from numbers that somebody printed (Case::printed): whether an answer that is not
// exact with the digits as they stand is exact, or a named convention's, with other numbers that
// print so.
#ifndef QUALM_TRIAGE_PRINTED_H_
#define QUALM_TRIAGE_PRINTED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/tensor.h"

namespace qualm::triage {

// A number that prints as the one in the case: any float32 between the two.
struct OtherNumber {
  std::string name;  // "x_scale", "w_scale[3]"
  std::string text;  // as printed
  float low = 0, high = 0;
};
// One way to give the whole answer: these numbers, all others as in the case.
struct OtherNumbers {
  std::string arithmetic;  // "exact", or a convention
  std::vector<OtherNumber> numbers;
};

struct PrintedAnswer {
  enum class Verdict : uint8_t {
    kAsWritten,  // nothing is printed, or the answer is exact as it is
    kWithin,     // exact with other numbers that print so
    kBeyond,     // exact with no such numbers
    kUndecided,
  };
  Verdict verdict = Verdict::kAsWritten;
  std::vector<OtherNumbers> ways;  // exact ones, else those of conventions
  // Of kBeyond: an output that no such numbers give, and the codes or values that they do give; -1
  // if each output alone can be given.
  int64_t index = -1;
  std::string lowest, highest;
};
PrintedAnswer ExaminePrinted(const Case& c, const Tensor& y);

// In a few lines; "" for kAsWritten.
std::string PrintedText(const PrintedAnswer& answer, const Tensor& y);

// Whether an f32 answer is the observed output as it is printed (Observed::printed).
bool PrintsAs(const Observed& observed, const Tensor& answer);
// Puts in place of a printed output the answer that prints so, of the exact meaning or else of the
// first such convention; where there is none, the exact numbers that do. Says so in a line; ""
// where no output is printed.
std::string TakeAsPrinted(Case* c);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_PRINTED_H_
