// SPDX-License-Identifier: Apache-2.0
// The exact meaning the other way round: which real values, and which scales, give an output. Exact
// rationals, so that an end of an interval belongs to it or not. Of operations whose real value is
// linear in each scale or in its reciprocal (IsLinearInScales) and whose requantization is exact.
#ifndef QUALM_ORACLES_EXACT_INVERSE_H_
#define QUALM_ORACLES_EXACT_INVERSE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/case.h"
#include "core/tensor.h"
#include "oracles/exact/arithmetic/rational.h"

namespace qualm::exact {

// An interval of the real line. Without a bound it goes on for ever.
struct Reals {
  std::optional<Rational> low, high;
  bool low_closed = true, high_closed = true;  // whether the bound itself belongs to it

  static Reals None() { return {Rational(1), Rational(0), true, true}; }
  bool empty() const;
  bool Contains(const Rational& value) const;
  // Leaves what lies in both.
  void Meet(const Reals& other);
};

// The smallest and the largest finite float32 in it.
std::optional<std::pair<float, float>> FloatsIn(const Reals& reals);

// Its bounds as doubles, infinite where there is none.
std::pair<double, double> NearBounds(const Reals& reals);

// The real values before rounding, zero point and clamp that give element `index` of `y`, which has
// the type and shape of the output.
Reals ValuesGiving(const Case& c, const Tensor& y, int64_t index);

bool IsLinearInScales(const Case& c);

// The real value of each output as factor * s + rest, or, where s divides, as factor / s.
class ScaleParts {
 public:
  // s: every entry of a list of scales (not kX, not kBias), all else as in the case.
  ScaleParts(const Case& c, Printed::List list);
  // s: a factor of the bias, or of the whole value, which is 1 in the case.
  static ScaleParts OfBias(const Case& c);
  static ScaleParts OfValue(const Case& c);

  bool divides() const { return form_ == Form::kDivides; }
  Rational Factor(int64_t index) const;
  Rational Rest(int64_t index) const;
  // The same as doubles, each off by at most `error`; nothing where no such bound is known.
  struct Parts {
    double factor = 0, rest = 0, error = 0;
  };
  std::optional<Parts> Near(int64_t index) const;
  // The same, from the exact numbers where nothing else is known.
  Parts AnyNear(int64_t index) const;

 private:
  struct At;  // the real values with one s
  // What the two cases are: s of 1 and 2, s of 0 and 1, or one case whose value is the factor.
  enum class Form : uint8_t { kFromOne, kFromZero, kDivides, kWhole };
  ScaleParts(const Case& low, const Case& high, Form form);

  Form form_;
  std::shared_ptr<const At> low_, high_;
};

// For each entry of the list the positive scales, and for each channel the factors of any sign of
// the bias or of the whole value, with which all outputs of the entry are those of `y`.
std::vector<Reals> ScalesGiving(const Case& c, Printed::List list, const Tensor& y);
std::vector<Reals> BiasFactorsGiving(const Case& c, const Tensor& y);
std::vector<Reals> FactorsGiving(const Case& c, const Tensor& y);

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_INVERSE_H_
