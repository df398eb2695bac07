// SPDX-License-Identifier: Apache-2.0
// The exact computation of a case in stages. A stage without a hook is exact; a hook computes the
// stage as a wrong kernel does. The rows of causes.cc set the hooks.
#ifndef QUALM_TRIAGE_STAGES_H_
#define QUALM_TRIAGE_STAGES_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/case.h"
#include "oracles/conventions/convention.h"
#include "oracles/exact/evaluate.h"
#include "oracles/exact/observer.h"

namespace qualm::triage {

using Codes = std::span<const int32_t>;

// One sum over K is products - zx*w_sum - zw*x_sum + count*zx*zw + bias.
struct SumTerms {
  int64_t products = 0;
  int64_t x_sum = 0, w_sum = 0;  // of the codes
  int64_t count = 0;             // K
  int64_t zx = 0, zw = 0;
  int64_t bias = 0;  // the int32 bias

  // The operands of the products, and their sums.
  DType x_dtype = DType::kU8, w_dtype = DType::kS8;
  Codes x, w;
  std::span<const int64_t> x_sums, w_sums;  // of every row, and of every channel
  int64_t row = 0, channel = 0;
  int64_t padding_w_sum = 0;  // of the weights whose taps lie in the padding
  int64_t padding_taps = 0;   // how many these are

  // The sum, bias included.
  __int128 corrected() const {
    const __int128 zero_x = zx, zero_w = zw;
    return products - zero_x * w_sum - zero_w * x_sum + count * zero_x * zero_w + bias;
  }
};

// Linear, and a convolution laid out as a matrix (im2col): products of codes are added, then
// the zero-point terms are subtracted. Taps in the padding hold the code of real 0.
struct SumSteps {
  bool other_sign_in_products = false;
  // Where in x a tap of output pixel m reads (Tap::x_row), -1 for the padding. None: where it is.
  int64_t (*x_row)(const Window& window, int64_t m, const Tap& tap) = nullptr;
  bool group_modulo = false;            // output channel n is of group n mod groups
  std::optional<int32_t> padding_code;  // none: the zero point of x
  // Of a tap at (y, x), which lies outside of the image: whether it has `padding_code`. None: all.
  bool (*coded_padding)(const Window& window, int64_t y, int64_t x) = nullptr;
  // The products that are added: `added` of the K, from `first_added` on.
  int64_t first_added = 0;
  int64_t added = std::numeric_limits<int64_t>::max();
  std::function<int64_t(DType x_dtype, Codes x, Codes w)> add;
  // Which of the K terms are read and added otherwise, from the first to before the second number;
  // all others are as they should be.
  std::function<std::pair<int64_t, int64_t>(int64_t terms)> changed_terms;
  // Adds products of codes less their zero points instead: what it gives is the corrected sum.
  std::function<__int128(const SumTerms& terms)> add_differences;
  std::function<void(SumTerms& terms)> edit_terms;
  std::function<void(SumTerms& terms)> edit_bias;
  // The places from which the products take the codes of row `row` and term `term`: an index into
  // the codes of the matrix, -1 for code 0. All other terms read (row, term). `columns` is K.
  std::function<int64_t(int64_t row, int64_t term, int64_t columns)> read_w, read_x;
  // Of a case that is some rows of another one: the sums of all rows of that one, and which of them
  // is the first here.
  std::vector<int64_t> row_sums;
  int64_t first_row = 0;
};

// The codes under one window of a pool, and the numbers from which the pool makes its output.
struct PoolWindow {
  int64_t positions = 0;  // K
  int64_t height = 0, width = 0;
  int64_t inside = 0;        // positions in the image
  int64_t with_padding = 0;  // positions in the image or its padding, not beyond (ceil_mode)
  int64_t not_before = 0;    // positions except those above or left of the image
  DType dtype = DType::kU8;
  int32_t zero_point = 0;

  int64_t sum = 0;    // of the codes inside the image
  int64_t terms = 0;  // how many zero points are subtracted from `sum`
  int64_t divisor = 1;
  int64_t largest = INT32_MIN;                // code
  int64_t largest_of_other_sign = INT32_MIN;  // the code whose bits are largest as the other type's
  std::vector<int32_t> codes;                 // inside the image, in the order of the taps
};

// A real output before it is rounded to a code.
struct RealOutput {
  const Case& c;
  const exact::Outputs& outputs;
  int64_t index = 0;
  exact::Code exact;

  int64_t channel() const { return index % c.N; }
  int32_t zero_point() const { return c.out_q.zero_point_at(channel()); }
  double rounded() const { return static_cast<double>(exact.value - zero_point()); }
  bool is_tie() const { return exact.tie_distance == 0.0; }
};

// A double holds every rounded value that can still become a code after the zero point is added.
struct RoundedOutput {
  double value = 0;
  bool has_zero_point = false;  // already added
};

// The numbers from which a kernel computes an output, each exact in a double. The real value is
// (sum * multiplier + offset) / y / divisor.
struct Factors {
  double sum = 0, multiplier = 0;
  double offset = 0;  // the float bias, or the second operand's part of a sum of two operands
  double y = 1, divisor = 1;
};
Factors FactorsOf(const RealOutput& output);

// The hooks of one stage. A group that equals its default is exact, so a hook that is added to a
// group is never passed over.
struct PoolHooks {
  void (*under_window)(PoolWindow& window) = nullptr;
  void (*window_padding)(PoolWindow& window) = nullptr;
  friend bool operator==(const PoolHooks&, const PoolHooks&) = default;
};
// With the first four hooks distances are measured from the largest code of the type, or from no
// code below `least_largest`, not from the largest code of the row, and codes above it count as
// equal to it; and no distance is larger than most_distance.
struct SoftmaxHooks {
  bool largest_of_type = false;
  int32_t least_largest = std::numeric_limits<int32_t>::min();
  int64_t largest_of_blocks = 0;  // the largest code of whole blocks of so many; 0: of all
  int32_t most_distance = 255;
  bool distance_wraps = false;  // in an int8: from 129 on it counts as 0
  int64_t summed_block = 0;     // the sum begins anew every so many codes; 0: never
  int64_t whole_blocks = 0;     // the sum is that of so many codes as make whole blocks; 0: of all
  friend bool operator==(const SoftmaxHooks&, const SoftmaxHooks&) = default;
};
// The steps from a real value to a code: round, convert to an integer, add the zero point, narrow,
// clamp. For dynamic_linear and choose_qparams: of the codes of x.
struct CodeHooks {
  RoundedOutput (*round)(const RealOutput& output) = nullptr;
  double (*convert)(double rounded) = nullptr;
  double (*narrow)(DType dtype, double code) = nullptr;
  // out_min and out_max bound the value before the zero point is added, and the ends of the type
  // alone the code; with relu_first the zero point bounds the value, as it should bound the code.
  bool bounds_first = false, relu_first = false;
  double (*stored)(double code) = nullptr;  // behind the bounds
  friend bool operator==(const CodeHooks&, const CodeHooks&) = default;
};
// How scales and zero points are chosen.
struct ChoiceHooks {
  bool range_without_zero = false;
  // choose_qparams only.
  bool averages_in_double = false;
  float least_scale = exact::observer::kEps;
  double (*round_zero_point)(double) = nullptr;  // null: to the nearest even
  bool any_zero_point = false;                   // not kept within the codes
  bool lowest_code_is_scaled = false;            // (quant_min - min) / scale
  bool zero_point_from_0 = false;                // counted from code 0, not from the lowest code
  bool over_half_the_codes = false;              // a symmetric range: by 128, not by 127.5
  bool equal_values_are_zeros = false;           // of a range of one value: scale 1, zero point 0
  bool equal_values_by_scale_1 = false;          // scale 1, the zero point follows
  // dynamic_linear only: the range is that of so many values of a row, or of all that share it, as
  // make whole blocks; 0: of all.
  int64_t whole_blocks = 0;
  bool blocks_of_all = false;
  // And each row of x is quantized with the choice (scale, zero point) of row 0,
  // or its sums are scaled with the scale, or corrected with the zero point, of row 0.
  bool choice_of_row_0 = false, scale_of_row_0 = false, zero_point_of_row_0 = false;
  bool zero_point_left_in = false;  // of the sums
  friend bool operator==(const ChoiceHooks&, const ChoiceHooks&) = default;
};

struct Stages {
  // The case to compute. Some causes edit only this case and set no hook.
  Case c;

  std::optional<SumSteps> sums;
  SumSteps& Sums() { return sums ? *sums : sums.emplace(); }
  PoolHooks pool;
  SoftmaxHooks softmax;
  ChoiceHooks choice;
  // Of weights in blocks: what is added to the sum of a block, from its codes.
  SumMoved block_moved;
  bool moves_whole_pairs = false;  // not the last of an odd number of blocks
  // Neighbours of one product of scales and one zero point are one block.
  bool joins_blocks = false;
  // It moves single products or neighbouring pairs, and so each part of a block that a summation
  // tree adds.
  bool moves_parts = false;
  double (*behind_block)(double sum) = nullptr;  // rounds the sum of the blocks so far
  // Change the integer that the scales multiply.
  int64_t added = 0;
  __int128 (*integer)(__int128 value) = nullptr;
  CodeHooks codes;
  // Floats.
  float (*real)(const Case& c, int64_t channel, __int128 integer) = nullptr;
  float (*finish)(float value) = nullptr;
  // The outputs to which the hooks apply; all others stay exact. Rows of an image are its pixels.
  std::function<bool(int64_t row, int64_t column)> only_at;
  // Makes of the case the one by which a row is computed; for operations without a window.
  std::function<bool(Case& c, int64_t row)> edit_row;
  // Which output is stored as output i; -1 for 0.
  std::function<int64_t(int64_t i)> stored_from;

  Tensor Evaluate() const;

  // The amount by which the hooks move each corrected sum. nullopt if another stage has a hook.
  // Empty if no stage has one: then only the case was edited.
  std::optional<std::vector<__int128>> Moved() const;

 private:
  exact::Integers IntegersOfStages() const;
  Tensor CodesOf(const exact::Integers& integers) const;
  Tensor FloatsOf(const exact::Integers& integers) const;
  Tensor FloatsOfBlocks() const;
  Tensor QParamsOf() const;
  void ChooseZeroPoint(double low, double high, exact::ChosenQParams* chosen) const;
  Tensor DynamicOf() const;
  Tensor RowByRow() const;
  Tensor Computed() const;
};

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_STAGES_H_
