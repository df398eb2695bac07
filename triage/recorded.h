// SPDX-License-Identifier: Apache-2.0
// The answer of somebody's software to a case: whether it is exact, whose arithmetic it is, and how
// much of its error a quantized computation cannot avoid.
#ifndef QUALM_TRIAGE_RECORDED_H_
#define QUALM_TRIAGE_RECORDED_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/tensor.h"
#include "core/verdict.h"
#include "triage/printed.h"

namespace qualm::triage {

// A part of an error, over all outputs, in output codes.
struct ErrorPart {
  double rms = 0;
  double worst = 0;
};

// An answer minus a float32 reference, in codes. Output by output the parts add up:
//   total = quantization + kernel, quantization = operands + rounding.
struct ErrorSplit {
  bool has_reference = false;  // else the real result on these codes stands in for the reference
  ErrorPart operands;  // the real result on these codes less the reference: what the quantization
                       // of x and w, and the layers before, cost; 0 without a reference
  ErrorPart rounding;  // the exact code less that real result: at most half a code, or the clamp
  ErrorPart quantization;
  ErrorPart kernel;  // the answer less the exact code: no quantization asks for it
  ErrorPart total;
  // The reference and the answer themselves, as reals in steps of the output's scale.
  ErrorPart signal, answer;
  // Codes that depart from the exact ones, and the outputs in all.
  int64_t departing = 0, outputs = 0;

  // Signal to noise of the answer, as people compare layers of models: 20 log10 of the root mean
  // squares of the reference and of the whole error. Infinite without an error.
  double sqnr_db() const;
  // Of the angle between the reference and the answer; NaN where one of them is zero.
  double cosine() const;
};

// The split of all the outputs of `splits`, of one at least.
ErrorSplit Together(const std::vector<ErrorSplit>& splits);

// Throws InputError "reference: ..." unless it is `outputs` finite numbers of float32.
void RequireReference(const Tensor& reference, int64_t outputs);

// Splits the answer `y`. `reference`: float32, as many elements as outputs, in their order; null:
// the real result of the operation on the codes and parameters of the case. nullopt where the
// output has no scale of its own or a real result is no finite fraction. Throws as
// RequireReference.
std::optional<ErrorSplit> SplitError(const Case& c, const Tensor& y,
                                     const Tensor* reference = nullptr);

// An answer judged by itself: no subject is asked.
struct RecordedAnswer {
  int64_t outputs = 0;
  int64_t departing = 0;  // outputs that are not exact
  double worst_lsb = 0;   // the largest distance; ulps of f32
  std::optional<Divergence> first;
  // The named conventions that give the whole answer if it is not exact; "" if none does.
  std::string arithmetic;
  // If is_wrong(): the convention of a library that gives the most outputs, "" where the exact
  // answer gives as many; the outputs that it does not give, and the first of them.
  std::string nearest;
  int64_t not_nearest = 0;
  std::optional<Divergence> first_not_nearest;
  // No convention defines the case, so that nobody knows whose arithmetic it could be.
  bool undefined = false;

  // Exact with other numbers that print as those of the case (triage/printed.h). Looked at where
  // no convention of a library gives it.
  bool within_digits = false;

  // The case names a contract of float32 sums, and no convention gives the answer: whether each
  // output is a sum in some order. nullopt without such a contract, or where it decides nothing.
  std::optional<bool> is_sums;

  bool exact() const { return departing == 0; }
  // Neither exact nor anybody's known arithmetic, though some convention, or the contract of sums,
  // defines the case.
  bool is_wrong() const {
    if (exact() || !arithmetic.empty() || within_digits) return false;
    return is_sums ? !*is_sums : !undefined;
  }
};
// `digits`: of ExaminePrinted; null: it is asked where that matters.
RecordedAnswer JudgeRecorded(const Case& c, const Tensor& y, const PrintedAnswer* digits = nullptr);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_RECORDED_H_
