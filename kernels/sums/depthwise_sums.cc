// SPDX-License-Identifier: Apache-2.0
// Each lane is a channel, and adds (x - zx) * (w - zw) over the taps inside the input. Exact
// because int32 lanes subtract, multiply and add modulo 2^32, and the caller knows that the sum
// fits int32.
#include "kernels/sums/depthwise_sums.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sums/depthwise_sums.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h:
#include "hwy/highway.h"
#include "kernels/common/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using DI32 = hn::ScalableTag<int32_t>;
using VI32 = hn::Vec<DI32>;

// Sums of the `count` channels from `first` on, at most a vector of them; fewer only with kPartial,
// because reading a whole vector could then read past the end of the images.
template <class Code, bool kPartial>
HWY_INLINE VI32 OneVector(const DepthwiseArgs& args, int64_t first, size_t count,
                          const int32_t* weights, VI32 sum) {
  const DI32 d;
  const hn::Rebind<Code, DI32> d_code;
  const VI32 zero = hn::Set(d, args.x_zero);
  for (int64_t r = 0; r < args.rows; ++r) {
    for (int64_t s = 0; s < args.columns; ++s) {
      const Code* at = reinterpret_cast<const Code*>(args.x + first + r * args.x_row_step +
                                                     s * args.x_column_step);
      const auto codes = kPartial ? hn::LoadN(d_code, at, count) : hn::LoadU(d_code, at);
      const VI32 w = hn::Load(d, weights + r * args.w_row_step + s * args.w_column_step);
      sum = hn::Add(sum, hn::Mul(hn::Sub(hn::PromoteTo(d, codes), zero), w));
    }
  }
  return sum;
}

// One vector of input channels with all their output channels.
template <class Code, bool kPartial>
void AllMultiples(const DepthwiseArgs& args, int64_t first, size_t count) {
  const DI32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t multiplier = args.multiplier;
  int32_t* sums = args.sums + first * multiplier;
  for (int64_t j = 0; j < multiplier; ++j) {
    const int64_t at = j * args.padded_channels + first;
    const VI32 sum = OneVector<Code, kPartial>(args, first, count, args.weights + at,
                                               hn::LoadU(d, args.initial + at));
    if (multiplier == 1) {
      hn::StoreU(sum, d, sums);
    } else {
      HWY_ALIGN int32_t each[hn::MaxLanes(d)];
      hn::Store(sum, d, each);
      for (int64_t c = 0; c < lanes; ++c) sums[c * multiplier + j] = each[c];
    }
  }
}

template <class Code>
void AllChannels(const DepthwiseArgs& args) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DI32()));
  int64_t first = 0;
  for (; first + lanes <= args.channels; first += lanes) {
    AllMultiples<Code, false>(args, first, static_cast<size_t>(lanes));
  }
  if (first < args.channels) {
    AllMultiples<Code, true>(args, first, static_cast<size_t>(args.channels - first));
  }
}

void SumDepthwiseImpl(const DepthwiseArgs& args) {
  args.x_is_signed ? AllChannels<int8_t>(args) : AllChannels<uint8_t>(args);
}

int64_t DepthwiseLanesImpl() { return static_cast<int64_t>(hn::Lanes(DI32())); }

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels {

HWY_EXPORT(DepthwiseLanesImpl);
HWY_EXPORT(SumDepthwiseImpl);

int64_t DepthwiseLanes() { return QUALM_DISPATCH(DepthwiseLanesImpl)(); }

void SumDepthwise(const DepthwiseArgs& args) { QUALM_DISPATCH(SumDepthwiseImpl)(args); }

}  // namespace qualm::kernels
#endif  // HWY_ONCE
