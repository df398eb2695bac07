// SPDX-License-Identifier: Apache-2.0
// softmax of each row: t of each code from a table (softmax.h), their sum, then the share of each t
// in doubles, y = min(255, floor((256*t + floor(sum/2)) / sum)). Build has rounded each t once, or
// refused.
//
// Why nothing overflows and every division is exact: t <= RNE(q) <= 2^23 - 1, so an int32 lane
// holds the sum of 256 numerators t, and an int64 the sum of 2^40. With N < 2^32, sum <= N * (q +
// 1/2) < 2^33, and the numerator 256*t + floor(sum/2) < 2^33: both are exact doubles. Their
// quotient Q has a value below 2^10 (t <= sum), and where it is no integer it lies at least 1/sum >
// 2^-33 below the next one, while rounding it moves it by less than 2^-43: floor(RN(Q)) = floor(Q).
#include "kernels/softmax.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/code_table.h"
#include "kernels/common/fp_environment.h"
#include "kernels/common/transcendental.h"
#include "kernels/common/validate.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/common/dispatch.h"

#ifndef QUALM_KERNELS_SOFTMAX_SHARE_
#define QUALM_KERNELS_SOFTMAX_SHARE_
namespace qualm::kernels::internal {
namespace {
// The constants of a row that turn its numerators into codes.
struct Share {
  double sum = 1;
  double half = 0;  // floor(sum / 2)
  double zero_point = 0;
  double lo = 0, hi = 0;  // of the code
};
}  // namespace
}  // namespace qualm::kernels::internal
#endif

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The largest of count >= 1 codes, as unsigned ones: flip is 0x80 for s8.
uint8_t LargestCode(const uint8_t* x, size_t count, uint8_t flip) {
  const hn::ScalableTag<uint8_t> d;
  const size_t lanes = hn::Lanes(d);
  uint8_t largest = 0;
  size_t i = 0;
  if (count >= lanes) {
    const auto flips = hn::Set(d, flip);
    auto most = hn::Zero(d);
    for (; i + lanes <= count; i += lanes) {
      most = hn::Max(most, hn::Xor(hn::LoadU(d, x + i), flips));
    }
    HWY_ALIGN uint8_t each[HWY_LANES(uint8_t)];
    hn::Store(most, d, each);
    for (size_t lane = 0; lane < lanes; ++lane) largest = HWY_MAX(largest, each[lane]);
  }
  for (; i < count; ++i) {
    const auto code = static_cast<uint8_t>(x[i] ^ flip);
    largest = HWY_MAX(largest, code);
  }
  return largest;
}

// The sum of t over the row.
uint64_t SumOfNumerators(const int32_t* t, const uint8_t* x, size_t count, uint8_t flip,
                         uint8_t largest) {
  const hn::ScalableTag<int32_t> d;
  const hn::Rebind<uint8_t, decltype(d)> codes;
  const size_t lanes = hn::Lanes(d);
  const auto flips = hn::Set(codes, flip);
  const auto top = hn::Set(d, largest);
  uint64_t total = 0;
  size_t i = 0;
  while (i + lanes <= count) {
    auto sum = hn::Zero(d);
    for (size_t vectors = 0; vectors < 256 && i + lanes <= count; ++vectors, i += lanes) {
      const auto code = hn::PromoteTo(d, hn::Xor(hn::LoadU(codes, x + i), flips));
      sum = hn::Add(sum, hn::GatherIndex(d, t, hn::Sub(top, code)));
    }
    HWY_ALIGN int32_t each[HWY_LANES(int32_t)];
    hn::Store(sum, d, each);
    for (size_t lane = 0; lane < lanes; ++lane) total += static_cast<uint64_t>(each[lane]);
  }
  for (; i < count; ++i) total += static_cast<uint64_t>(t[largest - (x[i] ^ flip)]);
  return total;
}

// The codes of `count` numerators; both arrays have room for whole vectors.
void SharesOf(const int32_t* t, size_t count, const Share& share, uint8_t* y) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<int32_t, decltype(d)> numerators;
  const hn::Rebind<uint8_t, decltype(d)> codes;
  const hn::RebindToUnsigned<decltype(d)> bits;
  const auto sum = hn::Set(d, share.sum);
  const auto half = hn::Set(d, share.half);
  const auto zero_point = hn::Set(d, share.zero_point);
  const auto lo = hn::Set(d, share.lo);
  const auto hi = hn::Set(d, share.hi);
  const auto most = hn::Set(d, 255.0);
  const auto factor = hn::Set(d, 256.0);
  const auto integer = hn::Set(d, 0x1.8p52);  // the low byte of this plus a code is the code
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto t256 = hn::Mul(hn::PromoteTo(d, hn::LoadU(numerators, t + i)), factor);
    const auto floor = hn::Floor(hn::Div(hn::Add(t256, half), sum));
    const auto code = hn::Add(hn::Min(floor, most), zero_point);
    const auto clamped = hn::Min(hn::Max(code, lo), hi);
    hn::StoreU(hn::TruncateTo(codes, hn::BitCast(bits, hn::Add(clamped, integer))), codes, y + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels {
namespace internal {
namespace {

HWY_EXPORT(LargestCode);
HWY_EXPORT(SumOfNumerators);
HWY_EXPORT(SharesOf);

constexpr int64_t kMostNumerator = (int64_t{1} << 23) - 1;
constexpr int64_t kMostSum = (int64_t{1} << 32) - 1;

// Not inlined: else the compiler may move arithmetic in front of ScopedFpEnvironment.
HWY_NOINLINE Status FillNumerators(float x_scale, int64_t columns, std::array<int32_t, 256>* t) {
  const bool shared = kMostSum < kMostNumerator * columns;
  int64_t first = kMostNumerator;
  if (shared) {  // RNE of a quotient that may be a tie
    first = kMostSum / columns;
    const int64_t twice_rest = 2 * (kMostSum - first * columns);
    if (twice_rest > columns || (twice_rest == columns && first % 2 != 0)) ++first;
  }
  (*t)[0] = static_cast<int32_t>(first);
  const double q = shared ? static_cast<double>(kMostSum) / static_cast<double>(columns)
                          : static_cast<double>(kMostNumerator);
  for (int32_t below = 1; below < 256; ++below) {
    const Interval e = ExpOfMinus(static_cast<double>(below) * x_scale);
    const Interval value = Widened({q * e.lo, q * e.hi});
    const double lo = std::nearbyint(value.lo);
    if (lo != std::nearbyint(value.hi)) {
      return {"the numerator of distance " + std::to_string(below) +
              " is so close to a rounding boundary that double cannot tell on which side"};
    }
    (*t)[static_cast<size_t>(below)] = static_cast<int32_t>(lo);
  }
  return {};
}

HWY_NOINLINE void RunSoftmax(const std::array<int32_t, 256>& t, const ConstMatrix& x,
                             const OutputRange& range, const MutableMatrix& y) {
  const uint8_t flip = x.type == ElementType::kS8 ? 0x80 : 0;
  const Bounds bounds = OutputBounds(y.type, range, TypeBounds(y.type).lo);
  const auto count = static_cast<size_t>(x.columns);
  for (int64_t i = 0; i < x.rows; ++i) {
    const uint8_t* const in = static_cast<const uint8_t*>(x.data) + i * x.row_stride;
    uint8_t* const out = static_cast<uint8_t*>(y.data) + i * y.row_stride;
    const uint8_t largest = QUALM_DISPATCH(LargestCode)(in, count, flip);
    const uint64_t sum = QUALM_DISPATCH(SumOfNumerators)(t.data(), in, count, flip, largest);
    const uint64_t half = sum / 2;
    const Share share{.sum = static_cast<double>(sum),
                      .half = static_cast<double>(half),
                      .zero_point = static_cast<double>(TypeBounds(y.type).lo),
                      .lo = static_cast<double>(bounds.lo),
                      .hi = static_cast<double>(bounds.hi)};
    alignas(64) std::array<int32_t, 256> numerators{};
    CodeTable codes;
    if (count < numerators.size()) {
      for (size_t j = 0; j < count; ++j) {
        numerators[j] = t[static_cast<size_t>(largest - (in[j] ^ flip))];
      }
      QUALM_DISPATCH(SharesOf)(numerators.data(), count, share, codes.bytes.data());
      std::copy_n(codes.bytes.data(), count, out);
      continue;
    }
    // At least as many elements as there are codes: compute the share of each code once.
    for (size_t code = 0; code <= largest; ++code) numerators[code ^ flip] = t[largest - code];
    QUALM_DISPATCH(SharesOf)(numerators.data(), numerators.size(), share, codes.bytes.data());
    LookUp(codes, in, count, out);
  }
}

Status ValidateSoftmax(float x_scale, int64_t columns) {
  if (Status s = CheckScale("x_scale", x_scale); !s.ok()) return s;
  // (2^32 - 1) / columns is the largest numerator. From 2^33 columns on it rounds to 0, and then
  // the sum, a divisor, may be 0.
  if (columns >= 0 && columns <= UINT32_MAX) return {};
  return {"columns is " + std::to_string(columns) + ", expected 0..2^32 - 1"};
}

Status ValidateSoftmaxRun(int64_t columns, const ConstMatrix& x, const OutputRange& range,
                          const MutableMatrix& y) {
  if (Status s = CheckCode("x", x.type); !s.ok()) return s;
  if (Status s = CheckMatrix("x", x); !s.ok()) return s;
  // The numerators depend on the number of codes that share 2^32.
  if (x.columns != columns) {
    return {"x.columns is " + std::to_string(x.columns) + ", expected " + std::to_string(columns) +
            ", as built for"};
  }
  if (Status s = CheckType("y", y.type, x.type); !s.ok()) return s;
  if (Status s = CheckRange("range", range, y.type); !s.ok()) return s;
  if (range.relu) return {"range.relu is set, expected none: no output is negative"};
  if (Status s = CheckMatrix("y", y); !s.ok()) return s;
  return CheckSameShape(x, y);
}

}  // namespace
}  // namespace internal

Status PackedSoftmax::Build(float x_scale, int64_t columns, PackedSoftmax* softmax) {
  const ScopedFpEnvironment environment;
  if (Status s = internal::ValidateSoftmax(x_scale, columns); !s.ok()) return s;
  PackedSoftmax built;
  built.columns_ = columns;
  if (Status s = internal::FillNumerators(x_scale, columns, &built.t_); !s.ok()) return s;
  *softmax = built;
  return {};
}

Status PackedSoftmax::Run(const ConstMatrix& x, const OutputRange& range,
                          const MutableMatrix& y) const {
  const ScopedFpEnvironment environment;
  if (Status s = internal::ValidateSoftmaxRun(columns_, x, range, y); !s.ok()) return s;
  if (x.rows == 0 || x.columns == 0) return {};
  internal::RunSoftmax(t_, x, range, y);
  return {};
}

}  // namespace qualm::kernels
#endif  // HWY_ONCE
