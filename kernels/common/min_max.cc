// SPDX-License-Identifier: Apache-2.0
// The smallest and the largest of a row of floats, a vector at a time. Exact because the floats are
// compared as integers of the same order (min_max.h): nothing is rounded or flushed to zero.
#include "kernels/common/min_max.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/common/min_max.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/common/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Widens `keys` by x[0..count).
void MinMaxOfRow(const float* x, size_t count, MinMaxKeys* keys) {
  const hn::ScalableTag<int32_t> d;
  const hn::Rebind<float, decltype(d)> df;
  const auto magnitude = hn::Set(d, INT32_MAX);
  const auto key_at = [&](size_t at) HWY_ATTR {
    const auto bits = hn::BitCast(d, hn::LoadU(df, x + at));
    return hn::Xor(bits, hn::And(hn::BroadcastSignBit(bits), magnitude));
  };
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  if (count >= lanes) {
    auto min = key_at(0);
    auto max = min;
    for (i = lanes; i + lanes <= count; i += lanes) {
      const auto key = key_at(i);
      min = hn::Min(min, key);
      max = hn::Max(max, key);
    }
    // The tail as an overlapping vector: twice the same value does no harm.
    const auto key = key_at(count - lanes);
    keys->min = std::min(keys->min, hn::ReduceMin(d, hn::Min(min, key)));
    keys->max = std::max(keys->max, hn::ReduceMax(d, hn::Max(max, key)));
    return;
  }
  for (; i < count; ++i) {
    const int32_t key = KeyOf(x[i]);
    keys->min = std::min(keys->min, key);
    keys->max = std::max(keys->max, key);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels::internal {

HWY_EXPORT(MinMaxOfRow);

void WidenBy(const float* x, size_t count, MinMaxKeys* keys) {
  QUALM_DISPATCH(MinMaxOfRow)(x, count, keys);
}

}  // namespace qualm::kernels::internal
#endif  // HWY_ONCE
