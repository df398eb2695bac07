// SPDX-License-Identifier: Apache-2.0
// requantize: y = clamp(RNE(acc * m) + zero_point), row by row. Mode kExact takes the inner loops
// of common/rescale.cc, which proves that each value is rounded once. The other modes give the bits
// of other libraries by common/backend_requantize.cc.
#include "hwy/base.h"
#include "kernels/common/backend_requantize.h"
#include "kernels/common/fp_environment.h"
#include "kernels/common/rescale.h"
#include "kernels/common/validate.h"
#include "kernels/elementwise.h"

namespace qualm::kernels {
namespace {

// codes(sums, count, y) for each row, or once for everything where there are no gaps and all
// columns have one multiplier. Not inlined: else the compiler may move arithmetic in front of
// ScopedFpEnvironment.
template <class Codes>
HWY_NOINLINE void ForEachRow(const ConstMatrix& acc, bool per_column, const MutableMatrix& y,
                             const Codes& codes) {
  const auto* in = static_cast<const int32_t*>(acc.data);
  auto* out = static_cast<uint8_t*>(y.data);
  int64_t rows = acc.rows;
  int64_t columns = acc.columns;
  if (!per_column && acc.row_stride == columns && y.row_stride == columns) {
    columns *= rows;
    rows = 1;
  }
  for (int64_t i = 0; i < rows; ++i) {
    codes(in + i * acc.row_stride, static_cast<size_t>(columns), out + i * y.row_stride);
  }
}

}  // namespace

Status Requantize(const ConstMatrix& acc, std::span<const Multiplier> multiplier,
                  int32_t zero_point, const OutputRange& range, const MutableMatrix& y,
                  Requantization requantization) {
  const ScopedFpEnvironment environment;
  if (Status s = internal::ValidateRequantize(acc, multiplier, range, y, requantization); !s.ok())
    return s;
  if (acc.rows == 0 || acc.columns == 0) return {};
  const internal::Bounds bounds = internal::OutputBounds(y.type, range, zero_point);
  const bool per_column = multiplier.size() != 1;
  const auto run = [&](const auto& all) {
    ForEachRow(acc, per_column, y, [&](const int32_t* sums, size_t count, uint8_t* out) {
      all.CodesFromSums(sums, 0, count, out);
    });
  };
  if (requantization != Requantization::kExact) {
    run(internal::BackendRequantize(requantization, multiplier, zero_point, bounds));
  } else if (per_column) {
    run(internal::Rescale(multiplier, {}, zero_point, bounds));
  } else {
    internal::OneRescale one(multiplier[0], zero_point, bounds);
    ForEachRow(acc, per_column, y, [&](const int32_t* sums, size_t count, uint8_t* out) {
      one.CodesFromSums(sums, count, out);
    });
  }
  return {};
}

}  // namespace qualm::kernels
