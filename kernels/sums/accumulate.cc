// SPDX-License-Identifier: Apache-2.0
#include "kernels/sums/accumulate.h"

#include <cstring>
#include <string>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sums/accumulate.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h:
#include "hwy/highway.h"
#include "kernels/common/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

// Vectors have one lane here: Highway's pairwise operations find no pair and would return a plain
// product. So this target gets plain code.
constexpr bool kHasSaturatingPath = false;
int64_t PanelWidth() { return 4; }

// Unsigned arithmetic: int32 overflow must wrap, not be undefined.
void SumQuads(const uint8_t* x, uint8_t flip, int64_t quads, const int8_t* weights,
              uint32_t* sums) {
  for (int64_t q = 0; q < quads; ++q) {
    for (int64_t c = 0; c < PanelWidth(); ++c) {
      for (int64_t i = 0; i < 4; ++i) {
        const int product = (x[4 * q + i] ^ flip) * weights[(q * PanelWidth() + c) * 4 + i];
        sums[c] += static_cast<uint32_t>(product);
      }
    }
  }
}

void AccumulatePanelImpl(const AccumulateArgs& args) {
  const uint8_t flip = args.x_is_signed ? 0x80 : 0;
  for (int64_t r = 0; r < args.rows; ++r) {
    uint32_t sums[4];
    std::memcpy(sums, args.initial, sizeof(sums));
    SumQuads(args.x + r * args.x_stride, flip, args.quads, args.weights, sums);
    if (args.tail != nullptr) {
      SumQuads(args.tail + 4 * r, flip, 1, args.weights + args.quads * PanelWidth() * 4, sums);
    }
    if (args.weight_zero != nullptr) {
      for (int64_t c = 0; c < PanelWidth(); ++c) {
        sums[c] -=
            static_cast<uint32_t>(args.weight_zero[c]) * static_cast<uint32_t>(args.row_sums[r]);
      }
    }
    std::memcpy(args.sums + r * PanelWidth(), sums, sizeof(sums));
  }
}

#else  // HWY_TARGET != HWY_SCALAR

namespace hn = hwy::HWY_NAMESPACE;
using DI32 = hn::ScalableTag<int32_t>;
using DI16 = hn::Repartition<int16_t, DI32>;
using DI8 = hn::Repartition<int8_t, DI32>;
using DU8 = hn::Repartition<uint8_t, DI32>;
using VI32 = hn::Vec<DI32>;
using VI8 = hn::Vec<DI8>;
using VU8 = hn::Vec<DU8>;

// vpmaddubsw exists from SSSE3 on and is superseded by vpdpbusd, which does not saturate, from
// AVX3_DL on. Elsewhere Highway emulates it, slower than the exact sum.
constexpr bool kHasSaturatingPath =
    HWY_ARCH_X86 && HWY_TARGET <= HWY_SSSE3 && HWY_TARGET > HWY_AVX3_DL;

// Two vectors: with four rows that is eight accumulators, two weight vectors and one activation,
// within 16 registers.
int64_t PanelWidth() { return static_cast<int64_t>(2 * hn::Lanes(DI32())); }

// Four activations of one row, repeated for every channel.
template <bool kSigned>
HWY_INLINE VU8 BroadcastQuad(const uint8_t* x) {
  uint32_t quad;
  std::memcpy(&quad, x, sizeof(quad));
  if constexpr (kSigned) quad ^= 0x80808080u;  // s8 -> u8, adds 128 to each
  return hn::BitCast(DU8(), hn::Set(DI32(), static_cast<int32_t>(quad)));
}

// sum + the four products of each channel. Exact modulo 2^32 for any weights if not kCertified.
template <bool kCertified>
HWY_INLINE VI32 AddQuad(VI32 sum, VU8 x, VI8 weights) {
  if constexpr (kCertified) {
    const auto pairs = hn::SatWidenMulPairwiseAdd(DI16(), x, weights);
    return hn::Add(sum, hn::WidenMulPairwiseAdd(DI32(), pairs, hn::Set(DI16(), 1)));
  } else {
    return hn::SumOfMulQuadAccumulate(DI32(), x, weights, sum);
  }
}

HWY_INLINE VI32 SubtractRowSum(VI32 sum, const int32_t* weight_zero, int64_t row_sum) {
  const auto low_bits = hn::Set(DI32(), static_cast<int32_t>(row_sum));
  return hn::Sub(sum, hn::Mul(hn::LoadU(DI32(), weight_zero), low_bits));
}

// Accumulators have names: in an array, gcc 12 keeps them in memory.
template <bool kCertified, bool kSigned>
void OneRow(const AccumulateArgs& args, int64_t row) {
  const DI32 d;
  const DI8 d8;
  const size_t n = hn::Lanes(d);
  VI32 sum0 = hn::LoadU(d, args.initial);
  VI32 sum1 = hn::LoadU(d, args.initial + n);
  const int8_t* weights = args.weights;
  const uint8_t* x = args.x + row * args.x_stride;
  int64_t quads = args.quads;
  bool tail_left = args.tail != nullptr;
  for (;;) {
    for (int64_t q = 0; q < quads; ++q, x += 4, weights += 8 * n) {
      const VU8 a = BroadcastQuad<kSigned>(x);
      sum0 = AddQuad<kCertified>(sum0, a, hn::Load(d8, weights));
      sum1 = AddQuad<kCertified>(sum1, a, hn::Load(d8, weights + 4 * n));
    }
    if (!tail_left) break;
    tail_left = false;
    quads = 1;
    x = args.tail + 4 * row;
  }
  if (args.weight_zero != nullptr) {
    sum0 = SubtractRowSum(sum0, args.weight_zero, args.row_sums[row]);
    sum1 = SubtractRowSum(sum1, args.weight_zero + n, args.row_sums[row]);
  }
  int32_t* out = args.sums + row * static_cast<int64_t>(2 * n);
  hn::StoreU(sum0, d, out);
  hn::StoreU(sum1, d, out + n);
}

template <bool kCertified, bool kSigned>
void FourRows(const AccumulateArgs& args, int64_t row) {
  const DI32 d;
  const DI8 d8;
  const size_t n = hn::Lanes(d);
  VI32 sum00 = hn::LoadU(d, args.initial);
  VI32 sum01 = hn::LoadU(d, args.initial + n);
  VI32 sum10 = sum00, sum11 = sum01;
  VI32 sum20 = sum00, sum21 = sum01;
  VI32 sum30 = sum00, sum31 = sum01;
  const int8_t* weights = args.weights;
  const uint8_t* x0 = args.x + row * args.x_stride;
  const uint8_t* x1 = x0 + args.x_stride;
  const uint8_t* x2 = x1 + args.x_stride;
  const uint8_t* x3 = x2 + args.x_stride;
  int64_t quads = args.quads;
  bool tail_left = args.tail != nullptr;
  for (;;) {
    for (int64_t q = 0; q < quads; ++q, weights += 8 * n) {
      const VI8 w0 = hn::Load(d8, weights);
      const VI8 w1 = hn::Load(d8, weights + 4 * n);
      const VU8 a0 = BroadcastQuad<kSigned>(x0 + 4 * q);
      sum00 = AddQuad<kCertified>(sum00, a0, w0);
      sum01 = AddQuad<kCertified>(sum01, a0, w1);
      const VU8 a1 = BroadcastQuad<kSigned>(x1 + 4 * q);
      sum10 = AddQuad<kCertified>(sum10, a1, w0);
      sum11 = AddQuad<kCertified>(sum11, a1, w1);
      const VU8 a2 = BroadcastQuad<kSigned>(x2 + 4 * q);
      sum20 = AddQuad<kCertified>(sum20, a2, w0);
      sum21 = AddQuad<kCertified>(sum21, a2, w1);
      const VU8 a3 = BroadcastQuad<kSigned>(x3 + 4 * q);
      sum30 = AddQuad<kCertified>(sum30, a3, w0);
      sum31 = AddQuad<kCertified>(sum31, a3, w1);
    }
    if (!tail_left) break;
    tail_left = false;
    quads = 1;
    x0 = args.tail + 4 * row;
    x1 = x0 + 4;
    x2 = x1 + 4;
    x3 = x2 + 4;
  }
  if (args.weight_zero != nullptr) {
    const int32_t* zero0 = args.weight_zero;
    const int32_t* zero1 = args.weight_zero + n;
    sum00 = SubtractRowSum(sum00, zero0, args.row_sums[row]);
    sum01 = SubtractRowSum(sum01, zero1, args.row_sums[row]);
    sum10 = SubtractRowSum(sum10, zero0, args.row_sums[row + 1]);
    sum11 = SubtractRowSum(sum11, zero1, args.row_sums[row + 1]);
    sum20 = SubtractRowSum(sum20, zero0, args.row_sums[row + 2]);
    sum21 = SubtractRowSum(sum21, zero1, args.row_sums[row + 2]);
    sum30 = SubtractRowSum(sum30, zero0, args.row_sums[row + 3]);
    sum31 = SubtractRowSum(sum31, zero1, args.row_sums[row + 3]);
  }
  int32_t* out = args.sums + row * static_cast<int64_t>(2 * n);
  hn::StoreU(sum00, d, out);
  hn::StoreU(sum01, d, out + n);
  hn::StoreU(sum10, d, out + 2 * n);
  hn::StoreU(sum11, d, out + 3 * n);
  hn::StoreU(sum20, d, out + 4 * n);
  hn::StoreU(sum21, d, out + 5 * n);
  hn::StoreU(sum30, d, out + 6 * n);
  hn::StoreU(sum31, d, out + 7 * n);
}

template <bool kCertified, bool kSigned>
void AllRows(const AccumulateArgs& args) {
  int64_t row = 0;
  for (; row + 4 <= args.rows; row += 4) FourRows<kCertified, kSigned>(args, row);
  for (; row < args.rows; ++row) OneRow<kCertified, kSigned>(args, row);
}

void AccumulatePanelImpl(const AccumulateArgs& args) {
  // `certified` may only be set for weights packed for a target with the saturating path, so that
  // the other targets need not carry its code.
  if (kHasSaturatingPath && args.certified) {
    args.x_is_signed ? AllRows<kHasSaturatingPath, true>(args)
                     : AllRows<kHasSaturatingPath, false>(args);
  } else {
    args.x_is_signed ? AllRows<false, true>(args) : AllRows<false, false>(args);
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

AccumulateTraits TraitsImpl() { return {HWY_TARGET, PanelWidth(), kHasSaturatingPath}; }

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels {

HWY_EXPORT(TraitsImpl);
HWY_EXPORT(AccumulatePanelImpl);

AccumulateTraits CurrentAccumulateTraits() { return QUALM_DISPATCH(TraitsImpl)(); }

Status CheckPackedFor(int64_t target) {
  const int64_t current = CurrentAccumulateTraits().target;
  if (current == target) return {};
  return {std::string("the weights are packed for ") + hwy::TargetName(target) +
          ", expected the target that runs, " + hwy::TargetName(current)};
}

void AccumulatePanel(const AccumulateArgs& args) { QUALM_DISPATCH(AccumulatePanelImpl)(args); }

}  // namespace qualm::kernels
#endif  // HWY_ONCE
