// SPDX-License-Identifier: Apache-2.0
// y = scale * (q - zero_point), rounded once. Where |zero_point| <= 2^23 the difference is a
// float32 exactly, and one multiplication is the one rounding, gradual underflow and overflow
// included. Larger zero points take exact integer arithmetic, element by element.
#include <algorithm>
#include <vector>

#include "kernels/common/exact_sum.h"
#include "kernels/common/fp_environment.h"
#include "kernels/common/validate.h"
#include "kernels/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dequantize.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/common/dispatch.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels::internal {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;

constexpr size_t kWorthAligning = 256;

template <bool kPerColumn, class D, typename T>
HWY_INLINE hn::Vec<D> Parameter(D d, const T* values, size_t i, size_t n) {
  if constexpr (kPerColumn) {
    return LoadSome(d, values + i, n);
  } else {
    return hn::Set(d, values[0]);
  }
}

template <bool kPerColumn, typename T>
void Row(const T* q, const float* scale, const int32_t* zero_point, size_t count, float* y) {
  const DF df;
  const DI di;
  const hn::Rebind<T, DF> dq;
  const size_t lanes = hn::Lanes(df);
  const auto dequantize = [&](hn::Vec<decltype(dq)> codes, size_t i, size_t n) HWY_ATTR {
    const auto z = Parameter<kPerColumn>(di, zero_point, i, n);
    const auto difference = hn::Sub(hn::PromoteTo(di, codes), z);
    return hn::Mul(hn::ConvertTo(df, difference), Parameter<kPerColumn>(df, scale, i, n));
  };
  const auto some = [&](size_t i, size_t n) HWY_ATTR {
    hn::StoreN(dequantize(hn::LoadN(dq, q + i, n), i, n), df, y + i, n);
  };
  size_t i = 0;
  // Stores across cache lines take twice as long.
  if (count >= kWorthAligning) {
    i = ElementsToAlignment(df, y);
    some(0, i);
  }
  if (HWY_UNLIKELY(AreBeyondCaches(count * (sizeof(T) + sizeof(float))))) {
    for (; i + lanes <= count; i += lanes) {
      hn::Stream(dequantize(hn::LoadU(dq, q + i), i, lanes), df, y + i);
    }
    hwy::FlushStream();
  }
  // Four at a time: one by one, stores to the L2 cache take a third longer (Zen 5).
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const auto a = dequantize(hn::LoadU(dq, q + i), i, lanes);
    const auto b = dequantize(hn::LoadU(dq, q + i + lanes), i + lanes, lanes);
    const auto c = dequantize(hn::LoadU(dq, q + i + 2 * lanes), i + 2 * lanes, lanes);
    const auto d = dequantize(hn::LoadU(dq, q + i + 3 * lanes), i + 3 * lanes, lanes);
    hn::StoreU(a, df, y + i);
    hn::StoreU(b, df, y + i + lanes);
    hn::StoreU(c, df, y + i + 2 * lanes);
    hn::StoreU(d, df, y + i + 3 * lanes);
  }
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(dequantize(hn::LoadU(dq, q + i), i, lanes), df, y + i);
  }
  if (i < count) some(i, count - i);
}

}  // namespace

// `per_column`: scale and zero_point have one value per element of the row, else one.
void DequantizeRow(const void* q, bool is_signed, const float* scale, const int32_t* zero_point,
                   bool per_column, size_t count, float* y) {
  if (is_signed) {
    const auto* codes = static_cast<const int8_t*>(q);
    per_column ? Row<true>(codes, scale, zero_point, count, y)
               : Row<false>(codes, scale, zero_point, count, y);
  } else {
    const auto* codes = static_cast<const uint8_t*>(q);
    per_column ? Row<true>(codes, scale, zero_point, count, y)
               : Row<false>(codes, scale, zero_point, count, y);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels {
namespace internal {
namespace {

HWY_EXPORT(DequantizeRow);

// With it, |q - zero_point| <= 2^23 + 255 < 2^24.
constexpr int32_t kLargestFastZeroPoint = 1 << 23;

float DequantizeExactly(int32_t q, float scale, int32_t zero_point) {
  ExactSum sum;
  sum.AddHalves(2 * (int64_t{q} - zero_point), scale);
  return sum.ToFloat();
}

// Not inlined: else the compiler may move arithmetic in front of ScopedFpEnvironment.
HWY_NOINLINE void Run(const ConstMatrix& q, std::span<const float> scale,
                      std::span<const int32_t> zero_point, const MutableMatrix& y) {
  int64_t rows = q.rows;
  int64_t columns = q.columns;
  const bool per_column = scale.size() != 1 || zero_point.size() != 1;
  // Either both have one value per column, or neither has.
  std::vector<float> scales;
  std::vector<int32_t> zero_points;
  if (per_column && scale.size() == 1) {
    scales.assign(static_cast<size_t>(columns), scale[0]);
    scale = scales;
  }
  if (per_column && zero_point.size() == 1) {
    zero_points.assign(static_cast<size_t>(columns), zero_point[0]);
    zero_point = zero_points;
  }
  if (!per_column && q.row_stride == columns && y.row_stride == columns) {
    columns *= rows;
    rows = 1;
  }
  const bool fast = std::all_of(zero_point.begin(), zero_point.end(), [](int32_t z) {
    return z >= -kLargestFastZeroPoint && z <= kLargestFastZeroPoint;
  });
  const bool is_signed = q.type == ElementType::kS8;
  for (int64_t i = 0; i < rows; ++i) {
    const auto* in = static_cast<const uint8_t*>(q.data) + i * q.row_stride;
    auto* out = static_cast<float*>(y.data) + i * y.row_stride;
    if (fast) {
      QUALM_DISPATCH(DequantizeRow)
      (in, is_signed, scale.data(), zero_point.data(), per_column, static_cast<size_t>(columns),
       out);
      continue;
    }
    for (int64_t j = 0; j < columns; ++j) {
      const size_t k = per_column ? static_cast<size_t>(j) : 0;
      const int32_t code = is_signed ? static_cast<int8_t>(in[j]) : in[j];
      out[j] = DequantizeExactly(code, scale[k], zero_point[k]);
    }
  }
}

}  // namespace
}  // namespace internal

Status Dequantize(const ConstMatrix& q, std::span<const float> scale,
                  std::span<const int32_t> zero_point, const MutableMatrix& y) {
  const ScopedFpEnvironment environment;
  if (Status s = internal::ValidateDequantize(q, scale, zero_point, y); !s.ok()) return s;
  if (q.rows == 0 || q.columns == 0) return {};
  internal::Run(q, scale, zero_point, y);
  return {};
}

}  // namespace qualm::kernels
#endif  // HWY_ONCE
