// SPDX-License-Identifier: Apache-2.0
// sum += the four products of each channel, u8 times s8 (kDot: s8 times s8): the one step of the
// inner loops of linear, conv2d and depthwise. Exact modulo 2^32, but for kPairs, which needs
// weights that cannot saturate (certify.h), and kDot, which needs initial sums with 128 * w
// (pack.cc, depthwise_lines.cc). kHighway is vpdpbusd on AVX3_DL and above, and elsewhere, like
// kWidened, products in 16 bits that are added in pairs in 32 (vpmaddwd on x86): two of at most
// 255 * 128 do not saturate. Included after hwy/highway.h by files that hwy/foreach_target.h
// compiles again and again.
//
// Why there is assembly here: Highway 1.2 has no target with AVX-VNNI; on NEON it takes three times
// as many instructions as sdot, also where it knows that the processor has it (NEON_BF16); on SVE
// it needs two udot and three more for one usdot. Intrinsics would need functions of another
// target, which compilers do not inline. The assembler needs no permission on x86, and on Arm a
// directive. Which processor has what: kernels/targets.cc.
//
//   vpdpbusd  u8 times s8 in four int16 without saturation (products lie in [-32640, 32385]), their
//             sum in int32, which wraps. Not vpdpbusds, which saturates.
//   usdot     the same
//   sdot      s8 times s8: a - 128 stands for a. sum (a - 128) w = sum a w - 128 sum w.

#if defined(QUALM_KERNELS_SUMS_QUADS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUALM_KERNELS_SUMS_QUADS_INL_H_
#undef QUALM_KERNELS_SUMS_QUADS_INL_H_
#else
#define QUALM_KERNELS_SUMS_QUADS_INL_H_
#endif

#include <type_traits>

#include "hwy/highway.h"
#include "kernels/common/quad_sum.h"

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
namespace quads {
namespace hn = hwy::HWY_NAMESPACE;
using internal::QuadSum;
using DI32 = hn::ScalableTag<int32_t>;
using DI16 = hn::Repartition<int16_t, DI32>;
using DI8 = hn::Repartition<int8_t, DI32>;
using DU8 = hn::Repartition<uint8_t, DI32>;
using VI32 = hn::Vec<DI32>;
using VI8 = hn::Vec<DI8>;
using VU8 = hn::Vec<DU8>;

// Whether the code of this target has it.
constexpr bool Has(QuadSum quad_sum) {
  switch (quad_sum) {
    case QuadSum::kHighway: return true;
    // vpmaddubsw exists from SSSE3 on and is superseded by vpdpbusd, which does not saturate, from
    // AVX3_DL on. Elsewhere Highway emulates it, slower than the exact sum.
    // Activations are widened where vpmaddwd is what remains for other weights.
    case QuadSum::kPairs:
    case QuadSum::kWidened:
      return HWY_ARCH_X86 && HWY_TARGET <= HWY_SSSE3 && HWY_TARGET > HWY_AVX3_DL;
    case QuadSum::kVnniVex:
    case QuadSum::kVnniEvex: return HWY_TARGET == HWY_AVX2;
    case QuadSum::kDot:
      return HWY_TARGET == HWY_NEON || HWY_TARGET == HWY_NEON_BF16 || HWY_TARGET_IS_SVE;
    case QuadSum::kI8mm: return HWY_TARGET == HWY_NEON_BF16 || HWY_TARGET_IS_SVE;
  }
  return false;
}

template <QuadSum kQuadSum>
HWY_INLINE void Add(VI32& sum, VU8 x, VI8 w) {
  static_assert(Has(kQuadSum) && kQuadSum != QuadSum::kWidened);
  if constexpr (kQuadSum == QuadSum::kHighway) {
    sum = hn::SumOfMulQuadAccumulate(DI32(), x, w, sum);
  } else if constexpr (kQuadSum == QuadSum::kPairs) {
    const auto pairs = hn::SatWidenMulPairwiseAdd(DI16(), x, w);
    sum = hn::Add(sum, hn::WidenMulPairwiseAdd(DI32(), pairs, hn::Set(DI16(), 1)));
  }
#if HWY_TARGET == HWY_AVX2
  // Braces behind % are the assembler's; others would choose between two syntaxes.
#define QUALM_VPDPBUSD(ENCODING) \
  __asm__("%{" ENCODING "%} vpdpbusd %2, %1, %0" : "+x"(sum.raw) : "x"(x.raw), "x"(w.raw))
  if constexpr (kQuadSum == QuadSum::kVnniVex) QUALM_VPDPBUSD("vex");
  if constexpr (kQuadSum == QuadSum::kVnniEvex) QUALM_VPDPBUSD("evex");
#undef QUALM_VPDPBUSD
#elif HWY_TARGET == HWY_NEON || HWY_TARGET == HWY_NEON_BF16
  if constexpr (kQuadSum == QuadSum::kDot)
    __asm__(".arch_extension dotprod\n\tsdot %0.4s, %1.16b, %2.16b"
            : "+w"(sum.raw)
            : "w"(x.raw), "w"(w.raw));
  if constexpr (kQuadSum == QuadSum::kI8mm)
    __asm__(".arch_extension i8mm\n\tusdot %0.4s, %1.16b, %2.16b"
            : "+w"(sum.raw)
            : "w"(x.raw), "w"(w.raw));
#elif HWY_TARGET_IS_SVE
  if constexpr (kQuadSum == QuadSum::kDot)
    sum = hn::SumOfMulQuadAccumulate(DI32(), hn::BitCast(DI8(), x), w, sum);  // sdot
  if constexpr (kQuadSum == QuadSum::kI8mm)
    __asm__(".arch_extension i8mm\n\tusdot %0.s, %1.b, %2.b" : "+w"(sum) : "w"(x), "w"(w));
#endif
}

// The same for activations in 16 bits: `even` has 0 and 2 of each quad, `odd` 1 and 3.
HWY_INLINE void AddWidened(VI32& sum, VU8 even, VU8 odd, VI8 w) {
  const DI32 d;
  const DI16 d16;
  const auto pairs = hn::BitCast(d16, w);
  const auto w_even = hn::ShiftRight<8>(hn::ShiftLeft<8>(pairs));
  const auto w_odd = hn::ShiftRight<8>(pairs);
  sum = hn::Add(sum, hn::WidenMulPairwiseAdd(d, hn::BitCast(d16, even), w_even));
  sum = hn::Add(sum, hn::WidenMulPairwiseAdd(d, hn::BitCast(d16, odd), w_odd));
}

// Calls run(std::integral_constant<QuadSum, S>()) for the S that a layer was packed for.
template <class Run>
HWY_INLINE void ForQuadSum(QuadSum quad_sum, const Run& run) {
  const auto is = [&](auto candidate) {
    if constexpr (Has(decltype(candidate)::value)) {
      if (quad_sum != decltype(candidate)::value) return false;
      run(candidate);
      return true;
    } else {
      return false;
    }
  };
  (void)(is(std::integral_constant<QuadSum, QuadSum::kVnniVex>()) ||
         is(std::integral_constant<QuadSum, QuadSum::kVnniEvex>()) ||
         is(std::integral_constant<QuadSum, QuadSum::kDot>()) ||
         is(std::integral_constant<QuadSum, QuadSum::kI8mm>()) ||
         is(std::integral_constant<QuadSum, QuadSum::kPairs>()) ||
         is(std::integral_constant<QuadSum, QuadSum::kWidened>()) ||
         is(std::integral_constant<QuadSum, QuadSum::kHighway>()));
}

}  // namespace quads
#endif

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels
HWY_AFTER_NAMESPACE();

#endif  // QUALM_KERNELS_SUMS_QUADS_INL_H_
