// SPDX-License-Identifier: Apache-2.0
// The rescale operation, by a table of the 256 answers, and concat, which is one for each input.
#include "hwy/base.h"
#include "kernels/common/code_table.h"
#include "kernels/concat.h"
#include "kernels/elementwise.h"
#include "kernels/common/fp_environment.h"
#include "kernels/common/rescale.h"
#include "kernels/common/validate.h"

namespace qualm::kernels {
namespace internal {

// Not inlined: the arithmetic must stay behind the change of the control word.
HWY_NOINLINE void RescaleMatrix(const ConstMatrix& x, const Quantization& x_q,
                                const Quantization& y_q, const OutputRange& range,
                                const MutableMatrix& y) {
  const Multiplier multiplier{x_q.scale, 1.0f, y_q.scale};
  const Rescale rescale({&multiplier, 1}, {}, y_q.zero_point,
                        OutputBounds(y.type, range, y_q.zero_point));
  const bool is_signed = x.type == ElementType::kS8;
  const auto code = [&](uint8_t byte) {
    const int value = is_signed ? static_cast<int8_t>(byte) : byte;
    return static_cast<uint8_t>(rescale.CodeFromSum(int64_t{value} - x_q.zero_point, 0));
  };
  if (x.rows * x.columns < 256) {  // fewer elements than the table has
    ForEachRowOfCodes(x, y, [&](const uint8_t* in, size_t count, uint8_t* out) {
      for (size_t j = 0; j < count; ++j) out[j] = code(in[j]);
    });
    return;
  }
  CodeTable table;
  for (size_t i = 0; i < table.bytes.size(); ++i) table.bytes[i] = code(static_cast<uint8_t>(i));
  ForEachRowOfCodes(
      x, y, [&](const uint8_t* in, size_t count, uint8_t* out) { LookUp(table, in, count, out); });
}

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
