// SPDX-License-Identifier: Apache-2.0
// y = clamp(RNE(sa*sb*(a - za)*(b - zb) / sy) + zy): integer products, then a requantization with
// the multiplier sa*sb/sy (rescale.h). Zero points so large that products leave int32 take exact
// integers, element by element.
#include <algorithm>

#include "kernels/binary.h"
#include "kernels/common/binary_rows.h"
#include "kernels/common/fp_environment.h"
#include "kernels/common/rescale.h"
#include "kernels/common/validate.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/mul.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/common/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// products[i] = (a[i]^flip - a_zero) * (b[i]^flip - b_zero), which fit int32. `products` has room
// for whole vectors; of a and b nothing beyond count is read.
void ProductsOfCodes(const uint8_t* a, const uint8_t* b, size_t count, uint8_t flip, int32_t a_zero,
                     int32_t b_zero, int32_t* HWY_RESTRICT products) {
  const hn::ScalableTag<int32_t> di;
  const hn::Rebind<uint8_t, decltype(di)> dc;
  const size_t lanes = hn::Lanes(di);
  const auto difference = [&](hn::Vec<decltype(dc)> codes, int32_t zero) HWY_ATTR {
    return hn::Sub(hn::PromoteTo(di, hn::Xor(codes, hn::Set(dc, flip))), hn::Set(di, zero));
  };
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto da = difference(hn::LoadU(dc, a + i), a_zero);
    const auto db = difference(hn::LoadU(dc, b + i), b_zero);
    hn::StoreU(hn::Mul(da, db), di, products + i);
  }
  if (i < count) {
    const auto da = difference(hn::LoadN(dc, a + i, count - i), a_zero);
    const auto db = difference(hn::LoadN(dc, b + i, count - i), b_zero);
    hn::StoreU(hn::Mul(da, db), di, products + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels {
namespace internal {
namespace {

HWY_EXPORT(ProductsOfCodes);

// Not inlined: else the compiler may move arithmetic in front of ScopedFpEnvironment.
HWY_NOINLINE void RunMul(const ConstMatrix& a, const Quantization& a_q, const ConstMatrix& b,
                         const Quantization& b_q, const Quantization& y_q, const OutputRange& range,
                         const MutableMatrix& y) {
  const Multiplier multiplier{a_q.scale, b_q.scale, y_q.scale};
  const Rescale rescale({&multiplier, 1}, {}, y_q.zero_point,
                        OutputBounds(y.type, range, y_q.zero_point));
  // Codes are read as unsigned: s8 codes and their zero points are shifted by 128.
  const uint8_t flip = a.type == ElementType::kS8 ? 0x80 : 0;
  const int64_t a_zero = int64_t{a_q.zero_point} + flip;
  const int64_t b_zero = int64_t{b_q.zero_point} + flip;
  // Each factor below 2^33.
  const bool fits =
      static_cast<__int128>(LargestDifference(a_zero)) * LargestDifference(b_zero) <= INT32_MAX &&
      std::max(std::abs(a_zero), std::abs(b_zero)) <= INT32_MAX;
  ForEachRowOfTwo(a, b, y, [&](const uint8_t* pa, const uint8_t* pb, size_t count, uint8_t* py) {
    if (!fits) {
      for (size_t i = 0; i < count; ++i) {
        const __int128 da = (pa[i] ^ flip) - a_zero;
        const __int128 db = (pb[i] ^ flip) - b_zero;
        py[i] = static_cast<uint8_t>(rescale.CodeFromSum(da * db, 0));
      }
      return;
    }
    constexpr size_t kChunk = 1024;  // a multiple of every vector's lanes
    int32_t products[kChunk];
    for (size_t i = 0; i < count; i += kChunk) {
      const size_t n = std::min(kChunk, count - i);
      QUALM_DISPATCH(ProductsOfCodes)
      (pa + i, pb + i, n, flip, static_cast<int32_t>(a_zero), static_cast<int32_t>(b_zero),
       products);
      rescale.CodesFromSums(products, 0, n, py + i);
    }
  });
}

}  // namespace
}  // namespace internal

Status Mul(const ConstMatrix& a, const Quantization& a_q, const ConstMatrix& b,
           const Quantization& b_q, const Quantization& y_q, const OutputRange& range,
           const MutableMatrix& y) {
  const ScopedFpEnvironment environment;
  if (Status s = internal::ValidateBinary(a, a_q, b, b_q, y_q, range, y); !s.ok()) return s;
  if (a.rows == 0 || a.columns == 0) return {};
  internal::RunMul(a, a_q, b, b_q, y_q, range, y);
  return {};
}

}  // namespace qualm::kernels
#endif  // HWY_ONCE
