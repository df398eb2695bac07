// SPDX-License-Identifier: Apache-2.0
// The rescale operation: 256 possible inputs, so a table of exact answers and a lookup.
#include <array>

#include "kernels/elementwise.h"
#include "kernels/fp_environment.h"
#include "kernels/rescale.h"
#include "kernels/validate.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rescale_codes.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// y[i] = table[x[i]]; y may be x. Where a shuffle of bytes looks up 16 of them, sixteen shuffles
// look up 256: index - 16*k is 0..15 only for the k-th sixteen, and adding 0x70 with saturation
// sets the top bit, for which the shuffle gives 0, for all others.
void LookUp(const uint8_t* table, const uint8_t* x, size_t count, uint8_t* y) {
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const hn::ScalableTag<uint8_t> d;
  const size_t lanes = hn::Lanes(d);
  const auto bias = hn::Set(d, 0x70);
  const auto sixteen = hn::Set(d, 16);
  for (; i + lanes <= count; i += lanes) {
    auto index = hn::LoadU(d, x + i);
    auto result = hn::Zero(d);
    for (size_t k = 0; k < 16; ++k) {
      const auto part = hn::LoadDup128(d, table + 16 * k);
      result = hn::Or(result, hn::TableLookupBytesOr0(part, hn::SaturatedAdd(index, bias)));
      index = hn::Sub(index, sixteen);
    }
    hn::StoreU(result, d, y + i);
  }
#endif
  for (; i < count; ++i) y[i] = table[x[i]];
}

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels {
namespace internal {
namespace {

HWY_EXPORT(LookUp);

// Not inlined: the arithmetic must stay behind the change of the control word.
HWY_NOINLINE void RunRescale(const ConstMatrix& x, const Quantization& x_q, const Quantization& y_q,
                             const OutputRange& range, const MutableMatrix& y) {
  const Multiplier multiplier{x_q.scale, 1.0f, y_q.scale};
  const Rescale rescale({&multiplier, 1}, {}, y_q.zero_point,
                        OutputBounds(y.type, range, y_q.zero_point));
  const bool is_signed = x.type == ElementType::kS8;
  const auto code = [&](uint8_t byte) {
    const int value = is_signed ? static_cast<int8_t>(byte) : byte;
    return static_cast<uint8_t>(rescale.CodeFromSum(int64_t{value} - x_q.zero_point, 0));
  };
  int64_t rows = x.rows;
  int64_t columns = x.columns;
  if (x.row_stride == columns && y.row_stride == columns) {
    columns *= rows;
    rows = 1;
  }
  const auto for_each_row = [&](const auto& row) {
    for (int64_t i = 0; i < rows; ++i) {
      row(static_cast<const uint8_t*>(x.data) + i * x.row_stride,
          static_cast<uint8_t*>(y.data) + i * y.row_stride);
    }
  };
  const auto count = static_cast<size_t>(columns);
  if (rows * columns < 256) {  // fewer elements than the table has
    for_each_row([&](const uint8_t* in, uint8_t* out) {
      for (size_t j = 0; j < count; ++j) out[j] = code(in[j]);
    });
    return;
  }
  alignas(16) std::array<uint8_t, 256> table;
  for (size_t i = 0; i < table.size(); ++i) table[i] = code(static_cast<uint8_t>(i));
  for_each_row([&](const uint8_t* in, uint8_t* out) {
    QUALM_DISPATCH(LookUp)(table.data(), in, count, out);
  });
}

}  // namespace
}  // namespace internal

Status RescaleCodes(const ConstMatrix& x, const Quantization& x_q, const Quantization& y_q,
                    const OutputRange& range, const MutableMatrix& y) {
  const ScopedFpEnvironment environment;
  if (Status s = internal::ValidateRescaleCodes(x, x_q, y_q, range, y); !s.ok()) return s;
  if (x.rows == 0 || x.columns == 0) return {};
  internal::RunRescale(x, x_q, y_q, range, y);
  return {};
}

}  // namespace qualm::kernels
#endif  // HWY_ONCE
