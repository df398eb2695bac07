// SPDX-License-Identifier: Apache-2.0
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

// Where a shuffle of bytes looks up 16 of them, sixteen shuffles look up 256: index - 16*k is 0..15
// only for the k-th sixteen. Adding 0x70 with saturation sets the top bit of every other index, and
// the shuffle gives 0 for an index with the top bit set. In the k-th sixteen bits 4 to 6 are then
// set. x86 ignores these bits; for Arm they make an index past the end, so they are cleared.
void LookUpBytes(const uint8_t* table, const uint8_t* x, size_t count, uint8_t* y) {
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const hn::ScalableTag<uint8_t> d;
  const size_t lanes = hn::Lanes(d);
  const auto bias = hn::Set(d, 0x70);
  const auto sixteen = hn::Set(d, 16);
#if !HWY_ARCH_X86
  const auto looked_at = hn::Set(d, 0x8F);
#endif
  for (; i + lanes <= count; i += lanes) {
    auto index = hn::LoadU(d, x + i);
    auto result = hn::Zero(d);
    for (size_t k = 0; k < 16; ++k) {
      const auto part = hn::LoadDup128(d, table + 16 * k);
      auto from = hn::SaturatedAdd(index, bias);
#if !HWY_ARCH_X86
      from = hn::And(from, looked_at);
#endif
      result = hn::Or(result, hn::TableLookupBytesOr0(part, from));
      index = hn::Sub(index, sixteen);
    }
    hn::StoreU(result, d, y + i);
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
