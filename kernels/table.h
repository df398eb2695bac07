// SPDX-License-Identifier: Apache-2.0
// Functions of single codes: exactly rounded on every instruction set, by a table of 256 answers.
#ifndef QUALM_KERNELS_TABLE_H_
#define QUALM_KERNELS_TABLE_H_

#include <array>
#include <cstdint>

#include "kernels/common/code_table.h"
#include "kernels/elementwise.h"
#include "kernels/types.h"

namespace qualm::kernels {

enum class TableFunction : uint8_t {
  kRelu,       // max(v, 0)
  kLeakyRelu,  // v where v >= 0, else negative_slope * v
  kHardSwish,  // v * min(max(v + 3, 0), 6) / 6
  kSigmoid,
  kTanh,
};

struct TableParams {
  TableFunction function = TableFunction::kRelu;
  float negative_slope = 0.01f;  // kLeakyRelu; finite, >= 0
  ElementType x_type = ElementType::kU8;
  Quantization x_q = {};
  ElementType y_type = ElementType::kU8;
  Quantization y_q = {};
  OutputRange range = {};
};

// y = clamp(RNE(f(x_scale * (x - x_zero_point)) / y_scale) + y_zero_point).
class PackedTable {
 public:
  // Computes the table. The first three functions are exact for all parameters. sigmoid and tanh
  // are computed in double with an error bound (transcendental.h: about 2^-50 of the value); where
  // a rounding boundary lies within it, the answer is not known, and Build refuses with an error.
  // For drawn scales that is about one table in 10^12; it happens where the value of a code other
  // than the zero point is next to a tie by construction: sigmoid with y_scale 1 and
  // x_scale < 2^-48, tanh with x_scale < 2^-24 and x_scale / y_scale a multiple of 1/2.
  static Status Build(const TableParams& params, PackedTable* table);

  // x and y have the types of the parameters and one shape. May work in place: y.data == x.data,
  // where no row of y begins after the same row of x.
  Status Run(const ConstMatrix& x, const MutableMatrix& y) const;

 private:
  ElementType x_type_ = ElementType::kU8;
  ElementType y_type_ = ElementType::kU8;
  internal::CodeTable table_;
};

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_TABLE_H_
