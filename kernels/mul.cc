// SPDX-License-Identifier: Apache-2.0
// y = clamp(RNE(sa*sb*(a - za)*(b - zb) / sy) + zy): integer products p = (a - za)*(b - zb), then a
// requantization with the multiplier sa*sb/sy (common/rescale.h).
//
// Where products fit int32, the codes are a stream (code_stream-inl.h). float32 has both
// differences exactly: where one is not 0 the other may reach 128, so each is below 2^31 / 128. A
// product of more than 24 bits is rounded to float32, and so is a sum in
// rescale.cc: the proof of streams there holds here too. Blocks with an element next to a tie, and
// multipliers and zero points without a stream, write int32 products and requantize them. Products
// that leave int32 take exact integers, element by element.
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
#include "kernels/common/code_stream-inl.h"
#include "kernels/common/dispatch.h"

#ifndef QUALM_KERNELS_MUL_FACTORS_
#define QUALM_KERNELS_MUL_FACTORS_
namespace qualm::kernels::internal {
namespace {

// Codes are read as unsigned: s8 codes and their zero points are shifted by 128.
struct Factors {
  uint8_t flip = 0;  // 0x80 for s8
  int64_t a_zero = 0, b_zero = 0;
};

}  // namespace
}  // namespace qualm::kernels::internal
#endif

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// products[i] = (a[i]^flip - a_zero) * (b[i]^flip - b_zero), which fit int32. `products` has room
// for whole vectors; of a and b nothing beyond count is read.
void ProductsOfCodes(const uint8_t* a, const uint8_t* b, size_t count, const Factors& factors,
                     int32_t* HWY_RESTRICT products) {
  const uint8_t flip = factors.flip;
  const auto a_zero = static_cast<int32_t>(factors.a_zero);
  const auto b_zero = static_cast<int32_t>(factors.b_zero);
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

// Not inlined: its array would push what the streams need out of registers.
HWY_NOINLINE void CodesOfProducts(OneRescale& rounding, const uint8_t* a, const uint8_t* b,
                                  size_t count, const Factors& factors, bool near_ties,
                                  uint8_t* y) {
  const Rescale& rescale = rounding.rescale();
  constexpr size_t kChunk = 1024;  // a multiple of every vector's lanes
  int32_t products[kChunk];
  for (size_t i = 0; i < count; i += kChunk) {
    const size_t n = HWY_MIN(kChunk, count - i);
    ProductsOfCodes(a + i, b + i, n, factors, products);
    near_ties ? rescale.CodesNearTies(products, n, y + i)
              : rescale.CodesFromSums(products, 0, n, y + i);
  }
}

// Codes of type T.
template <typename T, bool kExact>
void MulStream(OneRescale& rounding, const uint8_t* a, const uint8_t* b, size_t count,
               const Factors& factors, uint8_t* y) {
  const StreamD df;
  const StreamInt di;
  const hn::Rebind<T, StreamD> dc;
  const auto difference = [&](const uint8_t* codes, size_t n, StreamV zero) HWY_ATTR {
    const auto some = LoadSome(dc, reinterpret_cast<const T*>(codes), n);
    return hn::Sub(hn::ConvertTo(df, hn::PromoteTo(di, some)), zero);
  };
  const StreamV a_zero = hn::Set(df, static_cast<float>(factors.a_zero - factors.flip));
  const StreamV b_zero = hn::Set(df, static_cast<float>(factors.b_zero - factors.flip));
  const UnsignedCodes to = rounding.stream().codes;
  const StreamV m = hn::Set(df, rounding.stream().multiplier * (kExact ? 1.0f : kGridScale));
  const int parts = rounding.stream().parts();
  const StreamV origin = hn::Set(df, kExact ? kInteger32 : GridOrigin(to, parts));
  StreamCodes<kExact, false>(
      to, FractionsToTest(parts), AreBeyondCaches(3 * count), count, y,
      [&](size_t i, size_t n) HWY_ATTR {
        return hn::MulAdd(hn::Mul(difference(a + i, n, a_zero), difference(b + i, n, b_zero)), m,
                          origin);
      },
      [&](size_t i, size_t n)
          HWY_ATTR { CodesOfProducts(rounding, a + i, b + i, n, factors, true, y + i); });
}

template <typename T>
void MulRow(OneRescale& rounding, bool exact, const uint8_t* a, const uint8_t* b, size_t count,
            const Factors& factors, uint8_t* y) {
  exact ? MulStream<T, true>(rounding, a, b, count, factors, y)
        : MulStream<T, false>(rounding, a, b, count, factors, y);
}

// Products fit int32.
void MulCodes(OneRescale& rounding, const uint8_t* a, const uint8_t* b, size_t count,
              const Factors& factors, uint8_t* y) {
  const StreamMultiplier& stream = rounding.stream();
  if (!stream.streams) return CodesOfProducts(rounding, a, b, count, factors, false, y);
  const bool exact = stream.is_float && (HWY_NATIVE_FMA || stream.power_of_two);
  factors.flip != 0 ? MulRow<int8_t>(rounding, exact, a, b, count, factors, y)
                    : MulRow<uint8_t>(rounding, exact, a, b, count, factors, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels {
namespace internal {
namespace {

HWY_EXPORT(MulCodes);

// Not inlined: else the compiler may move arithmetic in front of ScopedFpEnvironment.
HWY_NOINLINE void RunMul(const ConstMatrix& a, const Quantization& a_q, const ConstMatrix& b,
                         const Quantization& b_q, const Quantization& y_q, const OutputRange& range,
                         const MutableMatrix& y) {
  OneRescale rounding({a_q.scale, b_q.scale, y_q.scale}, y_q.zero_point,
                      OutputBounds(y.type, range, y_q.zero_point));
  const uint8_t flip = a.type == ElementType::kS8 ? 0x80 : 0;
  const int64_t a_zero = int64_t{a_q.zero_point} + flip;
  const int64_t b_zero = int64_t{b_q.zero_point} + flip;
  // Each factor below 2^33.
  const __int128 most =
      static_cast<__int128>(LargestDifference(a_zero)) * LargestDifference(b_zero);
  const bool fits = most <= INT32_MAX && std::max(std::abs(a_zero), std::abs(b_zero)) <= INT32_MAX;
  ForEachRowOfTwo(a, b, y, [&](const uint8_t* pa, const uint8_t* pb, size_t count, uint8_t* py) {
    if (fits) {
      QUALM_DISPATCH(MulCodes)
      (rounding, pa, pb, count, {flip, a_zero, b_zero}, py);
      return;
    }
    for (size_t i = 0; i < count; ++i) {
      const __int128 da = (pa[i] ^ flip) - a_zero;
      const __int128 db = (pb[i] ^ flip) - b_zero;
      py[i] = static_cast<uint8_t>(rounding.rescale().CodeFromSum(da * db, 0));
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
