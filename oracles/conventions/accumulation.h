// SPDX-License-Identifier: Apache-2.0
// The sums of linear and of convolutions: how products are added, and how zero points leave the
// sum.
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
  // The codes that the zero points were multiplied with: of every tap of the image, and of the
  // padding where the sum counts it.
  std::span<const int32_t> x, w;
};

// acc without the zero points, modulo 2^32.
Value TakeOutWrapping(const RawSum& sum);
// The same with another sum of the codes of x.
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
    kHalvedWeights,  // the exact sum of x*rne(w/2); the number without zero points is doubled
  };
  // What a convolution multiplies for its taps in the padding.
  enum class Padding : uint8_t {
    kAbsent,     // left out of the sums and of the offsets
    kZeroPoint,  // the low byte of the zero point of x, in sums and offsets
    kZeroCode,   // code 0 in the sums, where it may be one half of a pair; left out of the offsets
  };
  Kind kind = Kind::kExact;
  // The zero points leave the sum: what the steps begin with. A family with its own way brings its
  // own function.
  Value (*take_out)(const RawSum&) = TakeOutWrapping;
  // For traces: how take_out departs from the exact number, where it does. "": take_out changes
  // nothing, and steps add what the zero points ask for.
  std::string_view lossy_how = ", wrapped to int32";
  // Pairs never span this k (0: none): the first of two blocks ends here, padded to even.
  int64_t first_block = 0;
  // Convolutions add in the order of the weights: (r, s, c), c fastest and inside the group.
  Padding padding = Padding::kAbsent;
  bool pairs_within_tap = false;  // the last of an odd number of channels has no partner
  // The kernel has no sum of the weights to take the zero point of x out with. It stays in the
  // products of the image; for each tap in the padding, zero point times weight is added.
  bool zero_point_stays = false;
  std::string_view kernel;  // for traces
};

// The sum of products of row x and row w (same length) under an accumulation; appends what happened
// to `trace` if given. kHalvedWeights: half of it.
int32_t Accumulate(const Accumulation& accumulation, std::span<const int32_t> x,
                   std::span<const int32_t> w, Trace* trace);

// The sums of a linear or of a convolution, output by output.
class Sums {
 public:
  Sums(const Case& c, const Accumulation& accumulation);
  ~Sums();

  struct Sum {
    int32_t accumulator = 0;  // raw
    Value value;              // without the zero points: what the steps begin with
  };
  // Of output `index`, noted in `trace` if given.
  Sum At(int64_t index, Trace* trace);

 private:
  class Terms;
  const Case& case_;
  Accumulation accumulation_;
  std::unique_ptr<Terms> terms_;
};

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_ACCUMULATION_H_
