// SPDX-License-Identifier: Apache-2.0
// Loops over the whole vectors of a row and its rest, once per instruction set. Only elements of
// the row are read and written, and nothing is computed here.
// Included after hwy/highway.h by files that hwy/foreach_target.h compiles again and again.

#ifndef QUALM_KERNELS_VECTORS_CONSTANTS_
#define QUALM_KERNELS_VECTORS_CONSTANTS_
#include <cstddef>

namespace qualm::kernels::internal {
// Near these numbers floats are 1 apart, so adding one of them rounds to an integer, half to even.
constexpr double kInteger64 = 6755399441055744.0;  // 1.5 * 2^52
constexpr float kInteger32 = 12582912.0f;          // 1.5 * 2^23

// Whether a call that reads and writes so many bytes finds its output in no cache afterwards. Then
// stores that bypass the caches save reading each line before it is written.
constexpr bool AreBeyondCaches(size_t bytes) { return bytes >= size_t{1} << 25; }
}  // namespace qualm::kernels::internal
#endif

#if defined(QUALM_KERNELS_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUALM_KERNELS_VECTORS_INL_H_
#undef QUALM_KERNELS_VECTORS_INL_H_
#else
#define QUALM_KERNELS_VECTORS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The first n <= Lanes(d) elements; no others are touched.
template <class D>
HWY_INLINE hn::Vec<D> LoadSome(D d, const hn::TFromD<D>* p, size_t n) {
  return n == hn::Lanes(d) ? hn::LoadU(d, p) : hn::LoadN(d, p, n);
}
template <class D>
HWY_INLINE void StoreSome(hn::Vec<D> v, D d, hn::TFromD<D>* p, size_t n) {
  if (n == hn::Lanes(d)) {
    hn::StoreU(v, d, p);
  } else {
    hn::StoreN(v, d, p, n);
  }
}

// A parameter of channels i.. of n lanes: one value for all, or one each.
template <class D, class List>
HWY_INLINE hn::Vec<D> Parameter(D d, const List& values, bool per_channel, size_t i, size_t n) {
  return per_channel ? LoadSome(d, values.data() + i, n) : hn::Set(d, values[0]);
}

// Elements from p to the next multiple of a vector's bytes.
template <class D>
HWY_INLINE size_t ElementsToAlignment(D d, const hn::TFromD<D>* p) {
  const size_t bytes = hn::Lanes(d) * sizeof(*p);
  return (bytes - reinterpret_cast<uintptr_t>(p) % bytes) % bytes / sizeof(*p);
}

// Calls leaf(i, n) for all vectors of [0, count); n is a constant in the main loop.
template <class D, class Leaf>
HWY_INLINE void ForEachVector(D d, size_t count, const Leaf& leaf) {
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) leaf(i, lanes);
  if (i < count) leaf(i, count - i);
}

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels::internal
HWY_AFTER_NAMESPACE();

#endif  // QUALM_KERNELS_VECTORS_INL_H_
