// SPDX-License-Identifier: Apache-2.0
#include "hwy/base.h"
#include "kernels/elementwise.h"
#include "kernels/fp_environment.h"
#include "kernels/rescale.h"
#include "kernels/validate.h"

namespace qualm::kernels {
namespace {

// Not inlined: the arithmetic must stay behind the change of the control word.
HWY_NOINLINE void Run(const ConstMatrix& acc, std::span<const Multiplier> multiplier,
                      int32_t zero_point, const OutputRange& range, const MutableMatrix& y) {
  const internal::Rescale rescale(multiplier, {}, zero_point,
                                  internal::OutputBounds(y.type, range, zero_point));
  const auto* in = static_cast<const int32_t*>(acc.data);
  auto* out = static_cast<uint8_t*>(y.data);
  int64_t rows = acc.rows;
  int64_t columns = acc.columns;
  if (multiplier.size() == 1 && acc.row_stride == columns && y.row_stride == columns) {
    columns *= rows;
    rows = 1;
  }
  for (int64_t i = 0; i < rows; ++i) {
    rescale.CodesFromSums(in + i * acc.row_stride, 0, static_cast<size_t>(columns),
                          out + i * y.row_stride);
  }
}

}  // namespace

Status Requantize(const ConstMatrix& acc, std::span<const Multiplier> multiplier,
                  int32_t zero_point, const OutputRange& range, const MutableMatrix& y) {
  const ScopedFpEnvironment environment;
  if (Status s = internal::ValidateRequantize(acc, multiplier, range, y); !s.ok()) return s;
  if (acc.rows == 0 || acc.columns == 0) return {};
  Run(acc, multiplier, zero_point, range, y);
  return {};
}

}  // namespace qualm::kernels
