// SPDX-License-Identifier: Apache-2.0
// The facts from which the bounds of the permitted variations (variations.h) are computed: the
// exact value of an output, from oracles/exact, and the magnitudes of its terms.
#ifndef QUALM_ORACLES_CONVENTIONS_VARIATION_FACTS_H_
#define QUALM_ORACLES_CONVENTIONS_VARIATION_FACTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "core/case.h"
#include "core/tensor.h"
#include "oracles/exact/evaluate.h"

namespace qualm::variations {

// The facts of one output, in output codes, or in real units for f32 outputs.
struct Facts {
  const Case* c = nullptr;      // of dynamic_linear: the linear that remains once x has codes
  const Case* given = nullptr;  // the case itself
  int64_t index = 0, channel = 0;
  double real = 0;   // the exact value before rounding and zero point
  double terms = 0;  // the sum of the magnitudes that make it up: |sum|*multiplier + |bias|
  // The same, with the magnitude of every product; of a sum of operands, of every code and every
  // zero point, which ATen scales by themselves; of a sigmoid, of 1.
  double products = 0;
  double sum = 0;                    // |accumulator|, int32 bias included, zero points taken out
  double multiplier = 0;             // output units per accumulator unit
  long double exact_multiplier = 0;  // the same, to 64 bits
  // |scale * (code - zero point)| of any x or w; of two operands, x in output codes too.
  double largest_operand = 0;
  double bias_units = 0;    // |float bias| in accumulator units
  double chosen_scale = 0;  // of choose_qparams
  int64_t count = 0;        // elements that an average is taken of
  bool zero_points_are_codes = true;
  bool real_is_exact = false;  // the double `real` is the exact value
  // The value is codes times scales, or a sum of such products. false where it also depends on a
  // count of elements or on a function: their float32 may be inexact even where every scale has few
  // bits.
  bool is_linear = true;
};

// The output scale; 1 if the output is no code.
float OutputScale(const Facts& f);
// Whether the accumulator is in units of the product of two input scales.
bool HasProductOfScales(Op op);
// The product of the two input scales, in float32. An operand that has no scale counts as 1.
float ProductOfScales(const Case& c, int64_t channel);

// The next two tell where a step is exact: ties stay ties there. A product of two float32 numbers
// is exact in long double.
bool IsFloat(long double value);
bool IsPowerOfTwo(float value);
bool DividesExactly(long double value, float divisor);

// The products of one output as a kernel of saturating pairs computes them: u8 * s8, an s8 operand
// shifted by 128; a tap in the padding has the zero point's low byte, or is left out.
template <class Visit>
void ForEachProduct(const Facts& f, const Visit& visit) {
  const Case& c = *f.c;
  const int64_t m = f.index / c.N, n = f.index % c.N;
  if (c.op == Op::kLinear) {
    for (int64_t k = 0; k < c.K; ++k) visit(c.x.IntAt(m * c.K + k), c.w.IntAt(n * c.K + k));
    return;
  }
  const Window& v = c.window;
  const int64_t depth = v.in_c / v.groups, first = n / (c.N / v.groups) * depth;
  const auto byte = static_cast<uint8_t>(static_cast<uint32_t>(c.x_q.zero_point_at(0)));
  const int32_t padding = c.x.dtype() == DType::kU8 ? byte : static_cast<int8_t>(byte);
  int64_t k = n * c.K;
  for (const Tap& tap : TapsOf(v, m)) {
    for (int64_t i = 0; i < depth; ++i, ++k) {
      visit(tap.x_row < 0 ? padding : c.x.IntAt(tap.x_row + first + i), c.w.IntAt(k));
    }
  }
}

// Gives the facts of each output of a case, and holds what the outputs share. The facts point to it
// and to the case; both must outlive them. The rows of a dynamic_linear must share one choice: no
// convention has another.
class FactsOf {
 public:
  explicit FactsOf(const Case& c);
  std::vector<Facts> All() const;

 private:
  Facts At(int64_t index) const;
  // Adds the magnitudes whose sum is the exact value: an integer times a multiplier, and an offset.
  void AddTerms(Facts* f) const;
  // The same for a value that is not linear in an integer: from the real number before the output
  // scale.
  void AddRealNumber(Facts* f) const;
  void AddProducts(Facts* f) const;
  void AddOperands(Facts* f) const;
  void AddAverage(Facts* f) const;

  const Case& given_;
  std::optional<Case> chosen_linear_;  // dynamic_linear
  const Case& c_;
  bool are_codes_;
  std::optional<exact::Outputs> outputs_;  // none for choose_qparams
  Tensor chosen_;                          // choose_qparams: the exact answer
};

}  // namespace qualm::variations

#endif  // QUALM_ORACLES_CONVENTIONS_VARIATION_FACTS_H_
