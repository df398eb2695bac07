// SPDX-License-Identifier: Apache-2.0
// Integer sums of linear for the fast form: one int64 dot product per output, zero points taken out
// with row and column sums afterwards (the definition multiplies the differences instead).
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/status.h"
#include "oracles/exact/exact.h"

namespace qualm::exact {
namespace {

// So many terms fit int32 that the inner loop vectorizes.
constexpr int64_t kBlock = 32768;
static_assert(kBlock * 255 * 255 <= INT32_MAX);

template <class X, class W>
int64_t Dot(const X* x, const W* w, int64_t k) {
  int64_t total = 0;
  for (int64_t start = 0; start < k; start += kBlock) {
    const int64_t end = std::min(k, start + kBlock);
    int32_t sum = 0;
    for (int64_t i = start; i < end; ++i) sum += int32_t{x[i]} * int32_t{w[i]};
    total += sum;
  }
  return total;
}

template <class X, class W>
std::vector<int64_t> Dots(const Case& c) {
  const X* x = c.x.as<X>().data();
  const W* w = c.w.as<W>().data();
  std::vector<int64_t> sums(static_cast<size_t>(c.M * c.N));
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      sums[static_cast<size_t>(m * c.N + n)] = Dot(x + m * c.K, w + n * c.K, c.K);
    }
  }
  return sums;
}

template <class T>
std::vector<int64_t> RowSums(const Tensor& tensor, int64_t rows, int64_t k) {
  std::vector<int64_t> sums(static_cast<size_t>(rows));
  const T* row = tensor.as<T>().data();
  for (int64_t& sum : sums) {
    for (int64_t i = 0; i < k; ++i) sum += row[i];
    row += k;
  }
  return sums;
}

std::vector<int64_t> RowSums(const Tensor& tensor, int64_t rows, int64_t k) {
  return tensor.dtype() == DType::kU8 ? RowSums<uint8_t>(tensor, rows, k)
                                      : RowSums<int8_t>(tensor, rows, k);
}

}  // namespace

std::vector<int64_t> RawSums(const Case& c) {
  QUALM_CHECK(c.op == Op::kLinear);
  const bool unsigned_w = c.w.dtype() == DType::kU8;
  if (c.x.dtype() == DType::kU8) {
    return unsigned_w ? Dots<uint8_t, uint8_t>(c) : Dots<uint8_t, int8_t>(c);
  }
  return unsigned_w ? Dots<int8_t, uint8_t>(c) : Dots<int8_t, int8_t>(c);
}

std::vector<__int128> CorrectedSums(const Case& c) {
  const std::vector<int64_t> raw = RawSums(c);
  const std::vector<int64_t> x_sums = RowSums(c.x, c.M, c.K);
  const std::vector<int64_t> w_sums = RowSums(c.w, c.N, c.K);
  const __int128 zx = c.x_q.zero_point_at(0);
  std::vector<__int128> sums(raw.size());
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      const auto i = static_cast<size_t>(m * c.N + n);
      const auto row = static_cast<size_t>(m);
      const auto channel = static_cast<size_t>(n);
      const __int128 zw = c.w_q.zero_point_at(n);
      // sum (x-zx)(w-zw) = sum xw - zx sum w - zw sum x + K zx zw
      sums[i] = raw[i] - zx * w_sums[channel] - zw * x_sums[row] + c.K * zx * zw;
      if (c.bias_i32) sums[i] += (*c.bias_i32)[channel];
    }
  }
  return sums;
}

}  // namespace qualm::exact
