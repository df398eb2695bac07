// SPDX-License-Identifier: Apache-2.0
// rescale: y = clamp(RNE(sx * (x - zx) / sy) + zy). x has only 256 values: their answers fill a
// table, and common/code_table.cc looks each element up. Exact because each answer is the integer
// x - zx times a rational scale, rounded once by common/rescale.cc. Fewer than 256 elements are
// answered without a table. concat rescales each input into its columns of y.
#include <array>
#include <cstdlib>
#include <numeric>
#include <string>

#include "hwy/base.h"
#include "kernels/common/code_table.h"
#include "kernels/common/fp_environment.h"
#include "kernels/common/rescale.h"
#include "kernels/common/validate.h"
#include "kernels/concat.h"
#include "kernels/elementwise.h"

namespace qualm::kernels {
namespace internal {
namespace {

// RescaleCodes of valid arguments with at least one element. Not inlined: else the compiler may
// move arithmetic in front of ScopedFpEnvironment.
HWY_NOINLINE void RescaleMatrix(const ConstMatrix& x, const Quantization& x_q,
                                const Quantization& y_q, const OutputRange& range,
                                const MutableMatrix& y) {
  const Multiplier multiplier{x_q.scale, 1.0f, y_q.scale};
  const Rescale rescale({&multiplier, 1}, {}, y_q.zero_point,
                        OutputBounds(y.type, range, y_q.zero_point));
  const bool is_signed = x.type == ElementType::kS8;
  const bool fits = std::abs(int64_t{x_q.zero_point}) <= INT32_MAX - 255;
  constexpr size_t kCodes = 256;
  const auto rescale_some = [&](const uint8_t* in, size_t count, uint8_t* out) {  // up to kCodes
    std::array<int64_t, kCodes> differences;
    std::array<int32_t, kCodes> sums;
    for (size_t i = 0; i < count; ++i) {
      const int value = is_signed ? static_cast<int8_t>(in[i]) : in[i];
      differences[i] = int64_t{value} - x_q.zero_point;
      sums[i] = static_cast<int32_t>(differences[i]);
    }
    if (fits) return rescale.CodesFromSums(sums.data(), 0, count, out);
    for (size_t i = 0; i < count; ++i) {
      out[i] = static_cast<uint8_t>(rescale.CodeFromSum(differences[i], 0));
    }
  };
  if (x.rows * x.columns < int64_t{kCodes}) return ForEachRowOfCodes(x, y, rescale_some);
  std::array<uint8_t, kCodes> all;
  std::iota(all.begin(), all.end(), uint8_t{0});
  CodeTable table;
  rescale_some(all.data(), kCodes, table.bytes.data());
  ForEachRowOfCodes(
      x, y, [&](const uint8_t* in, size_t count, uint8_t* out) { LookUp(table, in, count, out); });
}

Status ValidateConcat(std::span<const ConcatInput> inputs, const Quantization& y_q,
                      const OutputRange& range, const MutableMatrix& y) {
  if (Status s = CheckScale("y_q.scale", y_q.scale); !s.ok()) return s;
  if (Status s = CheckCode("y", y.type); !s.ok()) return s;
  if (Status s = CheckRange("range", range, y.type); !s.ok()) return s;
  if (Status s = CheckMatrix("y", y); !s.ok()) return s;
  int64_t left = y.columns;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = "inputs[" + std::to_string(i) + "]";
    const ConstMatrix& x = inputs[i].x;
    if (Status s = CheckCode(name + ".x", x.type); !s.ok()) return s;
    if (Status s = CheckMatrix(name + ".x", x); !s.ok()) return s;
    if (Status s = CheckScale(name + ".q.scale", inputs[i].q.scale); !s.ok()) return s;
    if (x.rows != y.rows) {
      return {name + ".x has " + std::to_string(x.rows) + " rows, expected those of y, " +
              std::to_string(y.rows)};
    }
    // Subtracted, so that no sum of columns overflows.
    if (x.columns > left) {
      return {name + ".x has " + std::to_string(x.columns) + " columns, expected at most " +
              std::to_string(left) + ", the rest of y"};
    }
    left -= x.columns;
  }
  if (left == 0) return {};
  return {"y.columns is " + std::to_string(y.columns) + ", expected the columns of all inputs, " +
          std::to_string(y.columns - left)};
}

}  // namespace
}  // namespace internal

Status RescaleCodes(const ConstMatrix& x, const Quantization& x_q, const Quantization& y_q,
                    const OutputRange& range, const MutableMatrix& y) {
  const ScopedFpEnvironment environment;
  if (Status s = internal::ValidateRescaleCodes(x, x_q, y_q, range, y); !s.ok()) return s;
  if (x.rows == 0 || x.columns == 0) return {};
  internal::RescaleMatrix(x, x_q, y_q, range, y);
  return {};
}

Status Concat(std::span<const ConcatInput> inputs, const Quantization& y_q,
              const OutputRange& range, const MutableMatrix& y) {
  const ScopedFpEnvironment environment;
  if (Status s = internal::ValidateConcat(inputs, y_q, range, y); !s.ok()) return s;
  MutableMatrix part = y;
  for (const ConcatInput& input : inputs) {
    part.columns = input.x.columns;
    if (part.rows == 0 || part.columns == 0) continue;
    internal::RescaleMatrix(input.x, input.q, y_q, range, part);
    part.data = static_cast<uint8_t*>(part.data) + part.columns;
  }
  return {};
}

}  // namespace qualm::kernels
