// SPDX-License-Identifier: Apache-2.0
// Shuffles and widens rows. Exact because bytes move or have 128 added modulo 256 (s8 to u8), and
// 16 bits hold a byte.
#include "kernels/sums/arrange.h"

#include <cstddef>
#include <cstring>

#include "kernels/sums/pairing.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sums/arrange.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h:
#include "hwy/highway.h"
#include "kernels/common/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void ShuffleRowsImpl(const RowsIn& in, std::span<const uint8_t> shuffle, uint8_t* to) {
  const uint8_t* x = in.x;
  for (int64_t r = 0; r < in.rows; ++r, x += in.stride, to += in.depth) {
    std::memcpy(to, x, static_cast<size_t>(in.depth));
    for (size_t k = 0; k < shuffle.size(); ++k) to[k] = x[k / kShuffled * kShuffled + shuffle[k]];
  }
}

#else

namespace hn = hwy::HWY_NAMESPACE;

// From activation `k` on, as far as they fill vectors; returns where the rest begins.
template <class D>
HWY_INLINE int64_t ShuffleVectors(D d, const uint8_t* x, int64_t k,
                                  std::span<const uint8_t> shuffle, uint8_t* to) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; k + lanes <= static_cast<int64_t>(shuffle.size()); k += lanes) {
    const auto order = hn::LoadU(d, shuffle.data() + k);
    hn::StoreU(hn::TableLookupBytes(hn::LoadU(d, x + k), order), d, to + k);
  }
  return k;
}

void ShuffleRowsImpl(const RowsIn& in, std::span<const uint8_t> shuffle, uint8_t* to) {
  const hn::ScalableTag<uint8_t> d;
  const hn::FixedTag<uint8_t, kShuffled> one;
  const uint8_t* x = in.x;
  for (int64_t r = 0; r < in.rows; ++r, x += in.stride, to += in.depth) {
    int64_t k = ShuffleVectors(d, x, 0, shuffle, to);
    k = ShuffleVectors(one, x, k, shuffle, to);
    std::memcpy(to + k, x + k, static_cast<size_t>(in.depth - k));
  }
}

#endif

void WidenRowsImpl(const RowsIn& in, bool is_signed, uint8_t* to) {
  const uint8_t flip = is_signed ? 0x80 : 0;
  const int64_t quads = (in.depth + 3) / 4;
  const uint8_t* x = in.x;
  for (int64_t r = 0; r < in.rows; ++r, x += in.stride, to += WidenedBytes(in.depth)) {
    int64_t q = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_IS_LITTLE_ENDIAN
    const hn::ScalableTag<uint8_t> d8;
    const hn::Repartition<uint16_t, decltype(d8)> d16;
    const auto step = static_cast<int64_t>(hn::Lanes(d8)) / 4;
    for (; (q + step) * 4 <= in.depth; q += step) {
      const auto bytes = hn::Xor(hn::LoadU(d8, x + 4 * q), hn::Set(d8, flip));
      const auto pairs = hn::BitCast(d16, bytes);
      const auto even = hn::And(pairs, hn::Set(d16, 0xFF));
      hn::StoreU(hn::BitCast(d8, even), d8, to + 4 * q);
      hn::StoreU(hn::BitCast(d8, hn::ShiftRight<8>(pairs)), d8, to + 4 * (quads + q));
    }
#endif
    for (; q < quads; ++q) {
      const uint8_t* quad = x + (q + 1 < quads ? 4 * q : in.depth - 4);
      const auto wide = [&](int i) { return static_cast<uint16_t>(quad[i] ^ flip); };
      const uint16_t even[2] = {wide(0), wide(2)};
      const uint16_t odd[2] = {wide(1), wide(3)};
      std::memcpy(to + 4 * q, even, sizeof(even));
      std::memcpy(to + 4 * (quads + q), odd, sizeof(odd));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels {
namespace {

HWY_EXPORT(ShuffleRowsImpl);
HWY_EXPORT(WidenRowsImpl);

}  // namespace

void ShuffleRows(const RowsIn& in, std::span<const uint8_t> shuffle, uint8_t* to) {
  QUALM_DISPATCH(ShuffleRowsImpl)(in, shuffle, to);
}

void WidenRows(const RowsIn& in, bool is_signed, uint8_t* to) {
  QUALM_DISPATCH(WidenRowsImpl)(in, is_signed, to);
}

}  // namespace qualm::kernels
#endif  // HWY_ONCE
