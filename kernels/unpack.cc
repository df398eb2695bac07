// SPDX-License-Identifier: Apache-2.0
// Integer i lies in the bits [i * bits, (i + 1) * bits) of the stream; the lowest bit of a byte is
// the first one. A signed code c of b bits is (c ^ 2^(b-1)) - 2^(b-1).
#include "kernels/unpack.h"

#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/unpack.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/common/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels::internal {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<uint8_t>;
using V = hn::Vec<D>;
}  // namespace

// Of `count` bytes of packed integers as many as fill vectors; how many those are.
size_t UnpackVectors(const uint8_t* from, size_t count, int bits, uint8_t sign, uint8_t* to) {
  const D d;
  const V mask = hn::Set(d, static_cast<uint8_t>((1 << bits) - 1)), high = hn::Set(d, sign);
  const auto code = [&](V shifted)
                        HWY_ATTR { return hn::Sub(hn::Xor(hn::And(shifted, mask), high), high); };
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const V byte = hn::LoadU(d, from + i);
    if (bits == 4) {
      hn::StoreInterleaved2(code(byte), code(hn::ShiftRight<4>(byte)), d, to + 2 * i);
    } else {
      hn::StoreInterleaved4(code(byte), code(hn::ShiftRight<2>(byte)),
                            code(hn::ShiftRight<4>(byte)), code(hn::ShiftRight<6>(byte)), d,
                            to + 4 * i);
    }
  }
  return i;
}

// The inverse.
size_t PackVectors(const uint8_t* from, size_t count, int bits, uint8_t* to) {
  const D d;
  const V mask = hn::Set(d, static_cast<uint8_t>((1 << bits) - 1));
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    V a, b, c, e;
    if (bits == 4) {
      hn::LoadInterleaved2(d, from + 2 * i, a, b);
      hn::StoreU(hn::Or(hn::And(a, mask), hn::ShiftLeft<4>(b)), d, to + i);
    } else {
      hn::LoadInterleaved4(d, from + 4 * i, a, b, c, e);
      const V low = hn::Or(hn::And(a, mask), hn::ShiftLeft<2>(hn::And(b, mask)));
      const V upper = hn::Or(hn::ShiftLeft<4>(hn::And(c, mask)), hn::ShiftLeft<6>(e));
      hn::StoreU(hn::Or(low, upper), d, to + i);
    }
  }
  return i;
}

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels {
namespace internal {
namespace {
HWY_EXPORT(UnpackVectors);
HWY_EXPORT(PackVectors);
}  // namespace
}  // namespace internal

namespace {

template <unsigned kBits>
void UnpackBits(const uint8_t* from, unsigned sign, std::span<uint8_t> to) {
  constexpr size_t kPerByte = 8 / kBits;
  constexpr unsigned kMask = (1u << kBits) - 1;
  const auto unpack = [sign](uint8_t byte, size_t count, uint8_t* codes) {
    for (size_t i = 0; i < count; ++i) {
      const unsigned code = byte >> (i * kBits) & kMask;
      codes[i] = static_cast<uint8_t>((code ^ sign) - sign);
    }
  };
  const size_t whole = to.size() / kPerByte, rest = to.size() % kPerByte;
  size_t i = QUALM_DISPATCH(internal::UnpackVectors)(from, whole, kBits, static_cast<uint8_t>(sign),
                                                     to.data());
  for (; i < whole; ++i) unpack(from[i], kPerByte, &to[i * kPerByte]);
  if (rest != 0) unpack(from[whole], rest, &to[whole * kPerByte]);
}

template <unsigned kBits>
void PackBits(std::span<const uint8_t> from, uint8_t* to) {
  constexpr size_t kPerByte = 8 / kBits;
  constexpr unsigned kMask = (1u << kBits) - 1;
  const auto pack = [](const uint8_t* codes, size_t count) {
    unsigned byte = 0;
    for (size_t i = 0; i < count; ++i) byte |= (codes[i] & kMask) << (i * kBits);
    return static_cast<uint8_t>(byte);
  };
  const size_t whole = from.size() / kPerByte, rest = from.size() % kPerByte;
  size_t i = QUALM_DISPATCH(internal::PackVectors)(from.data(), whole, kBits, to);
  for (; i < whole; ++i) to[i] = pack(&from[i * kPerByte], kPerByte);
  if (rest != 0) to[whole] = pack(&from[whole * kPerByte], rest);
}

}  // namespace

void Pack(std::span<const uint8_t> from, int bits, uint8_t* to) {
  if (bits == 4) {
    PackBits<4>(from, to);
  } else {
    PackBits<2>(from, to);
  }
}

void Unpack(const PackedIntegers& from, std::span<uint8_t> to) {
  const unsigned sign = from.is_signed ? 1u << (from.bits - 1) : 0;
  if (from.bits == 4) {
    UnpackBits<4>(from.data, sign, to);
  } else {
    UnpackBits<2>(from.data, sign, to);
  }
}

}  // namespace qualm::kernels
#endif  // HWY_ONCE
