// SPDX-License-Identifier: Apache-2.0
// The sums of linear and of convolutions: how products are added, and how the zero-point terms are
// subtracted.
#ifndef QUALM_ORACLES_CONVENTIONS_ACCUMULATION_H_
#define QUALM_ORACLES_CONVENTIONS_ACCUMULATION_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/case.h"
#include "oracles/conventions/steps.h"
#include "oracles/trace.h"

namespace qualm::conventions {

// One sum of products of codes, with the zero points still in it.
struct RawSum {
  int32_t acc = 0;
  int32_t x_zero_point = 0, w_zero_point = 0;
  bool x_is_signed = false;
  // The codes of the sum: all taps in the image, and the taps in the padding if the sum counts
  // them.
  std::span<const int32_t> x, w;
};

// acc minus the terms of the zero points, modulo 2^32.
Value TakeOutWrapping(const RawSum& sum);
// The same with `x_sum` in place of SumOf(sum.x).
Value TakeOutWrapping(const RawSum& sum, int64_t x_sum);
// The sum of codes.
int64_t SumOf(std::span<const int32_t> codes);

// How the products x*w of one output are added.
struct Accumulation {
  enum class Kind : uint8_t {
    kExact,          // int32, wraps
    kPairs,          // adjacent pairs saturate to int16, pair sums are added in int32
    kPairsInto16,    // pairs saturate, and are added in saturating int16 for 256 k's at a time
    kPairsXPlus128,  // s8 x: pairs of (x+128)*w, then - 128*sum w
    kPairsWPlus128,  // s8 x: pairs of (w+128)*x, then - 128*sum x
    kHalvedWeights,  // the exact sum of x*rne(w/2); the result is doubled after the zero points are
                     // out
  };
  // How a convolution counts its taps in the padding.
  enum class Padding : uint8_t {
    kAbsent,     // left out of the sums and of the offsets
    kZeroPoint,  // the low byte of the zero point of x, in sums and offsets
    kZeroCode,   // code 0 in the sums, where it may be one half of a pair; left out of the offsets
  };
  Kind kind = Kind::kExact;
  // Subtracts the zero-point terms; the result is the input of the first Step. A family that
  // subtracts them in another way sets a function of its own.
  Value (*take_out)(const RawSum&) = TakeOutWrapping;
  // For traces: how take_out loses bits. "" if take_out leaves the sum unchanged; then the steps
  // subtract the zero points.
  std::string_view lossy_how = ", wrapped to int32";
  // No pair crosses this k (0: no limit): the first of two blocks ends here, and is padded to an
  // even length.
  int64_t first_block = 0;
  // Convolutions add in the order of the weights: (r, s, c), c fastest and inside the group.
  Padding padding = Padding::kAbsent;
  bool pairs_within_tap = false;  // the last of an odd number of channels is added alone
  // The kernel leaves zero_point_x * sum(weights) in the result. For each tap in the padding it
  // adds zero_point_x * weight, and nothing else.
  bool zero_point_stays = false;
  std::string_view kernel;  // for traces
};

// The sum of products of row x and row w (same length) under an accumulation; appends what happened
// to `trace` if given. For kHalvedWeights it is half of the sum.
int32_t Accumulate(const Accumulation& accumulation, std::span<const int32_t> x,
                   std::span<const int32_t> w, Trace* trace);

// The sums of a linear or of a convolution, output by output.
class Sums {
 public:
  Sums(const Case& c, const Accumulation& accumulation);
  ~Sums();

  struct Sum {
    int32_t accumulator = 0;  // raw
    Value value;              // without the zero points: the input of the first Step
  };
  // The sum of output `index`. Writes its steps to `trace` unless null.
  Sum At(int64_t index, Trace* trace);

 private:
  class Terms;
  const Case& case_;
  Accumulation accumulation_;
  std::unique_ptr<Terms> terms_;
};

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_ACCUMULATION_H_
