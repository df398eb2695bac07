// SPDX-License-Identifier: Apache-2.0
// One row for each operation: its definition in rationals, its fast form and its told steps. The
// row stands at the end of the operation's file, below these three. Internal to oracles/exact.
//
// The definition and the fast form check each other, so neither calls the other, and they share no
// arithmetic: the definition has rational.h and real.h, the fast form dyadic.h and fixed_point.h.
// The told steps are a derivation by the definition. meanings_test reads the files for that.
#ifndef QUALM_ORACLES_EXACT_MEANINGS_H_
#define QUALM_ORACLES_EXACT_MEANINGS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/tensor.h"
#include "oracles/exact/arithmetic/rational.h"
#include "oracles/exact/evaluate.h"
#include "oracles/trace.h"

namespace qualm::exact {

class Teller;

struct Definition {
  // The real value of output (m, n) before rounding, zero point and clamp; m counts the pixels of
  // an output with a window in row-major order. nullopt: quantize of NaN and infinities, and values
  // of table that are not rational.
  std::optional<Rational> (*value)(const Case& c, int64_t m, int64_t n) = nullptr;
  // The accumulator, which is the input of a requantization mode other than exact.
  Integer (*accumulator)(const Case& c, int64_t m, int64_t n) = nullptr;
  // Computes all outputs of an operation that does more than round the value half to even.
  Tensor (*outputs)(const Case& c) = nullptr;
};

struct FastForm {
  void (*integers)(const Case& c, Integers* integers) = nullptr;
  // The line of channel n, which turns an integer into its real value.
  Line (*line)(const Case& c, int64_t n) = nullptr;
  // Turns the integer and the line that the channel gives into those of the value of output (m, n).
  void (*scaled)(const Case& c, const Integers& integers, int64_t m, int64_t n,
                 Scaled* scaled) = nullptr;
  // The rounded value of output (m, n), for operations where it differs from Round(scaled); they
  // have `scaled` too.
  // `integer` is the integer with the channel's line.
  Rounded (*rounded)(const Case& c, const Integers& integers, int64_t m, int64_t n,
                     const Scaled& integer) = nullptr;
  // An estimate of that rounded value, if there is one.
  std::optional<Estimate> (*estimate)(const Case& c, int64_t m, int64_t n,
                                      const Scaled& integer) = nullptr;
  // The value of an output that is not linear in an integer; nullopt for other outputs.
  std::optional<Real> (*real)(const Case& c, int64_t m, int64_t n) = nullptr;
  // Computes all outputs of an operation without these stages.
  Tensor (*outputs)(const Case& c) = nullptr;
};

// Parts that several fast forms share. Code less zero point, of an operand with one zero point:
inline int64_t Difference(const Tensor& codes, const QParams& q, int64_t index) {
  return int64_t{codes.IntAt(index)} - q.zero_point_at(0);
}
// FastForm::integers of operations on x, element by element.
void DifferencesOfX(const Case& c, Integers* integers);
// FastForm::line of operations that keep the codes, and of those that divide x_scale by out_scale.
Line IdentityLine(const Case& c, int64_t n);
Line RescaleLine(const Case& c, int64_t n);

struct Told {
  // exact::Derive of output `index`.
  Trace (*steps)(const Case& c, int64_t index) = nullptr;
  // exact::RealValueText of a value for which Definition::value gives nullopt.
  std::string (*value)(const Case& c, int64_t index) = nullptr;
};

// A row is `extern constexpr Meaning kName{...}` in the operation's file; meanings.cc names them
// all.
struct Meaning {
  Op op;
  Definition definition;
  FastForm fast;
  Told told;
};

// An operation without a row does not compile, or does not link.
const Meaning& MeaningOf(Op op);

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_MEANINGS_H_
