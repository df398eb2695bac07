// SPDX-License-Identifier: Apache-2.0
// y[i] = table[x[i]], a vector at a time where the target can look bytes up. Exact because bytes
// are moved, or XORed so that all but one cancel: LookUpBytes says why that one is right.
#include "kernels/common/code_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/common/code_table.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/common/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// AVX-512 with VBMI looks up 128 bytes at once: two lookups, and the top bit chooses.
//
// Where a shuffle of bytes looks up 16 of them by the low four bits of the index, and gives 0 where
// the top bit is set, eight shuffles look up 128. Entry k of their tables is T[k] ^ T[k-1], of 16
// bytes each, and from one to the next 16 is subtracted from the index, which becomes negative
// after the part that it belongs to: the tables up to there cancel to T[k]. Subtracting saturates,
// so that negative indices stay negative. Indices of the other 128 bytes are negative from the
// start, and flipping the top bit exchanges the two halves.
void LookUpBytes(const uint8_t* table, const uint8_t* x, size_t count, uint8_t* y) {
  size_t i = 0;
#if HWY_TARGET <= HWY_AVX3_DL
  const hn::ScalableTag<uint8_t> d;
  const size_t lanes = hn::Lanes(d);
  const auto t0 = hn::LoadU(d, table);
  const auto t1 = hn::LoadU(d, table + 64);
  const auto t2 = hn::LoadU(d, table + 128);
  const auto t3 = hn::LoadU(d, table + 192);
  const auto low = hn::Set(d, 0x7F);
  const auto look_up = [&](hn::Vec<decltype(d)> code) HWY_ATTR {
    const auto index = hn::IndicesFromVec(d, hn::And(code, low));
    const hn::RebindToSigned<decltype(d)> di;
    const auto upper = hn::RebindMask(d, hn::IsNegative(hn::BitCast(di, code)));
    return hn::IfThenElse(upper, hn::TwoTablesLookupLanes(d, t2, t3, index),
                          hn::TwoTablesLookupLanes(d, t0, t1, index));
  };
  for (; i + lanes <= count; i += lanes) hn::StoreU(look_up(hn::LoadU(d, x + i)), d, y + i);
  if (i < count) {
    const size_t n = count - i;
    hn::StoreN(look_up(hn::LoadN(d, x + i, n)), d, y + i, n);
    return;
  }
#elif HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const hn::ScalableTag<uint8_t> d;
  const hn::RebindToSigned<decltype(d)> di;
  const size_t lanes = hn::Lanes(d);
  alignas(16) uint8_t differences[256];
  for (size_t k = 0; k < 256 && count >= 2 * lanes; ++k) {
    differences[k] = static_cast<uint8_t>(table[k] ^ (k % 128 < 16 ? 0 : table[k - 16]));
  }
  const auto sixteen = hn::Set(di, 16);
#if !HWY_ARCH_X86
  const auto looked_at = hn::Set(d, 0x8F);  // for Arm bits 4 to 6 are an index past the end
#endif
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    auto result0 = hn::Zero(d);
    auto result1 = hn::Zero(d);
    for (const uint8_t flip : {0x00, 0x80}) {
      auto index0 = hn::BitCast(di, hn::Xor(hn::LoadU(d, x + i), hn::Set(d, flip)));
      auto index1 = hn::BitCast(di, hn::Xor(hn::LoadU(d, x + i + lanes), hn::Set(d, flip)));
      HWY_UNROLL(8)
      for (size_t k = 0; k < 128; k += 16) {
        const auto part = hn::LoadDup128(d, differences + flip + k);
        auto from0 = hn::BitCast(d, index0);
        auto from1 = hn::BitCast(d, index1);
#if !HWY_ARCH_X86
        from0 = hn::And(from0, looked_at);
        from1 = hn::And(from1, looked_at);
#endif
        result0 = hn::Xor(result0, hn::TableLookupBytesOr0(part, from0));
        result1 = hn::Xor(result1, hn::TableLookupBytesOr0(part, from1));
        index0 = hn::SaturatedSub(index0, sixteen);
        index1 = hn::SaturatedSub(index1, sixteen);
      }
    }
    hn::StoreU(result0, d, y + i);
    hn::StoreU(result1, d, y + i + lanes);
  }
#endif
  for (; i < count; ++i) y[i] = table[x[i]];
}

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels::internal {

HWY_EXPORT(LookUpBytes);

void LookUp(const CodeTable& table, const uint8_t* x, size_t count, uint8_t* y) {
  QUALM_DISPATCH(LookUpBytes)(table.bytes.data(), x, count, y);
}

}  // namespace qualm::kernels::internal
#endif  // HWY_ONCE
