// SPDX-License-Identifier: Apache-2.0
#include "oracles/exact/reduction.h"

#include <algorithm>

#include "core/status.h"

namespace qualm::exact {
namespace {

constexpr int32_t kOffsetOfU16 = 32768;

std::vector<int16_t> Widen(const Tensor& tensor) {
  if (tensor.dtype() == DType::kS16) {
    const auto codes = tensor.as<int16_t>();
    return {codes.begin(), codes.end()};
  }
  if (tensor.dtype() == DType::kU16) {
    std::vector<int16_t> codes;
    codes.reserve(static_cast<size_t>(tensor.size()));
    for (const uint16_t code : tensor.as<uint16_t>())
      codes.push_back(static_cast<int16_t>(code - kOffsetOfU16));
    return codes;
  }
  if (tensor.dtype() == DType::kU8) {
    const auto codes = tensor.as<uint8_t>();
    return {codes.begin(), codes.end()};
  }
  if (tensor.dtype() == DType::kS8) {
    const auto codes = tensor.as<int8_t>();
    return {codes.begin(), codes.end()};
  }
  return Widen(InBytes(tensor));  // weights of 4 and 2 bits
}

}  // namespace

Reduction ReductionOf(const Case& c, int32_t padding) {
  QUALM_CHECK(HasSums(c));
  Reduction lists;
  lists.k = c.K;
  lists.x_offset = c.x.dtype() == DType::kU16 ? kOffsetOfU16 : 0;
  lists.w = Widen(c.w);
  if (c.op == Op::kLinear) {
    lists.x = Widen(c.x);
    return lists;
  }
  const Window& v = c.window;
  const int64_t depth = v.in_c / v.groups;
  const std::vector<int16_t> image = Widen(c.x);
  lists.groups = v.groups;
  lists.channels_per_group = std::max<int64_t>(c.N / v.groups, 1);
  lists.taps = v.kernel_h * v.kernel_w;
  lists.x.assign(static_cast<size_t>(c.M * v.groups * c.K),
                 static_cast<int16_t>(padding - lists.x_offset));
  lists.inside.reserve(static_cast<size_t>(c.M * lists.taps));
  for (int64_t m = 0; m < c.M; ++m) {
    int16_t* rows = lists.x.data() + m * v.groups * c.K;
    for (const Tap& tap : TapsOf(v, m)) {
      lists.inside.push_back(tap.x_row >= 0 ? 1 : 0);
      if (tap.x_row < 0) continue;
      const int64_t at = (tap.r * v.kernel_w + tap.s) * depth;
      for (int64_t g = 0; g < v.groups; ++g) {
        std::copy_n(image.data() + tap.x_row + g * depth, depth, rows + g * c.K + at);
      }
    }
  }
  return lists;
}

}  // namespace qualm::exact
