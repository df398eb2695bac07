// SPDX-License-Identifier: Apache-2.0
// choose_qparams: scale and zero point of observed values, as PyTorch and ONNX Runtime compute
// them. The contract is its float32 steps, not one rounding (docs/quantization.md). The same bits
// everywhere because the smallest and the largest value are found as integers (common/min_max.h),
// and the few steps after that, and the histogram's (common/histogram.cc), are scalar code compiled
// without contraction.
#include "kernels/observer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "hwy/base.h"
#include "kernels/common/fp_environment.h"
#include "kernels/common/histogram.h"
#include "kernels/common/min_max.h"
#include "kernels/common/validate.h"

namespace qualm::kernels {
namespace internal {
namespace {

constexpr float kEps = 0x1p-23f;
constexpr float kMostAveraged = 0x1p126f;
constexpr float kSmallestFloat = 0x1p-149f;

MinMaxKeys KeysOf(const ConstMatrix& x, int64_t first, int64_t rows) {
  MinMaxKeys keys;
  const auto* from = static_cast<const float*>(x.data) + first * x.row_stride;
  for (int64_t i = 0; i < rows; ++i, from += x.row_stride) {
    WidenBy(from, static_cast<size_t>(x.columns), &keys);
  }
  return keys;
}

// An error unless all values are finite and within +-most.
Status CheckValues(const MinMaxKeys& keys, float most) {
  if (!keys.AreFinite()) return {"x has a value that is not finite"};
  if (keys.min < KeyOf(-most) || keys.max > KeyOf(most))
    return {"x has a value greater in magnitude than this observer takes"};
  return {};
}

Status CheckBatch(const ConstMatrix& batch) {
  if (Status s = CheckType("x", batch.type, ElementType::kF32); !s.ok()) return s;
  if (Status s = CheckMatrix("x", batch); !s.ok()) return s;
  if (batch.rows < 1 || batch.columns < 1) return {"x is empty, expected something to observe"};
  return {};
}

Status CheckStates(const ConstMatrix& batch, size_t states) {
  if (states == 1 || states == static_cast<uint64_t>(batch.rows)) return {};
  return {"states has " + std::to_string(states) + " elements, expected 1 or " +
          std::to_string(batch.rows) + ", one per row"};
}

// The codes left by reduce_range.
Bounds CodesOf(const ObserverParams& params) {
  if (!params.reduce_range) return {params.quant_min, params.quant_max};
  return {params.quant_min >> 1, params.quant_max >> 1};
}

Status CheckParams(const ObserverParams& params) {
  if (Status s = CheckCode("type", params.type); !s.ok()) return s;
  const Bounds type = TypeBounds(params.type);
  const Bounds codes = CodesOf(params);
  if (params.quant_min < type.lo || params.quant_max > type.hi || params.quant_min > 0 ||
      params.quant_max < 0 || codes.lo >= codes.hi) {
    return {"quant_min and quant_max must leave two codes of the type, with 0 between them"};
  }
  if (params.reduce_range && params.symmetric && params.type == ElementType::kU8)
    return {"reduce_range does not go with symmetric u8"};
  switch (params.rule) {
    case QParamsRule::kObserver: return {};
    case QParamsRule::kAten:
    case QParamsRule::kOnnx:
      if (params.type != ElementType::kU8 || params.symmetric || params.quant_min != 0 ||
          params.quant_max != 255) {
        return {
            "the parameters are not those of all u8 codes, affine, expected them for this rule"};
      }
      if (params.rule == QParamsRule::kOnnx && params.reduce_range)
        return {"reduce_range is set, expected it not to be for this rule"};
      return {};
  }
  return {"rule is unknown, expected one of QParamsRule"};
}

struct Extent {
  float min, max;
};

template <class Merge>
Status Observe(const ConstMatrix& batch, std::span<MinMaxState> states, float most,
               const Merge& merge) {
  if (Status s = CheckBatch(batch); !s.ok()) return s;
  if (Status s = CheckStates(batch, states.size()); !s.ok()) return s;
  const int64_t rows = states.size() == 1 ? batch.rows : 1;
  const auto extent_of = [&](size_t m, Extent* extent) {
    const MinMaxKeys keys = KeysOf(batch, static_cast<int64_t>(m), rows);
    *extent = {FloatOf(keys.min), FloatOf(keys.max)};
    return CheckValues(keys, most);
  };
  Extent extent{};
  // A batch with a value that is refused must leave all states as they were.
  for (size_t m = 0; m < states.size(); ++m) {
    if (Status s = extent_of(m, &extent); !s.ok()) return s;
  }
  for (size_t m = 0; m < states.size(); ++m) {
    if (states.size() != 1 && !extent_of(m, &extent).ok()) continue;
    MinMaxState& state = states[m];
    if (state.empty) {
      state = {extent.min, extent.max, false};
    } else {
      merge(extent, &state);
    }
  }
  return {};
}

HWY_NOINLINE Status MovingAverage(const ConstMatrix& batch, float constant,
                                  std::span<MinMaxState> states) {
  return Observe(batch, states, kMostAveraged, [&](const Extent& now, MinMaxState* state) {
    state->min += constant * (now.min - state->min);
    state->max += constant * (now.max - state->max);
  });
}

Quantization ByObserver(const ObserverParams& params, float min, float max) {
  const Bounds codes = CodesOf(params);
  const auto steps = static_cast<float>(codes.hi - codes.lo);
  if (!params.symmetric) {
    const float scale = std::max((max - min) / steps, kEps);
    const auto low = static_cast<int32_t>(std::nearbyint(min / scale));
    return {scale, std::clamp(codes.lo - low, codes.lo, codes.hi)};
  }
  const float scale = std::max(std::max(-min, max) / (steps / 2), kEps);
  if (params.type == ElementType::kS8) return {scale, 0};
  const Bounds type = TypeBounds(params.type);
  const bool all_codes = params.quant_min == type.lo && params.quant_max == type.hi;
  return {scale, all_codes ? 128 : (codes.lo + codes.hi) >> 1};
}

// Scales below this one are numbers of float16 without full precision (ATen's reason).
constexpr float kAtenSmallestScale = 6.1e-5f;

Quantization ByAten(float min, float max, bool reduce_range) {
  const int32_t steps = reduce_range ? 127 : 255;  // from code 0
  double scale = (static_cast<double>(max) - static_cast<double>(min)) / steps;
  const auto single = static_cast<float>(scale);
  if (single == 0.0f || std::isinf(1.0f / single)) scale = 0.1;
  if (scale < static_cast<double>(kAtenSmallestScale)) {
    if (min == 0.0f) {
      max = kAtenSmallestScale * static_cast<float>(steps);
    } else if (max == 0.0f) {
      min = -kAtenSmallestScale * static_cast<float>(steps);
    } else {
      const float amplifier = kAtenSmallestScale / static_cast<float>(scale);
      min *= amplifier;
      max *= amplifier;
    }
    scale = static_cast<double>(kAtenSmallestScale);
  }
  const double min_codes = static_cast<double>(min) / scale;
  const double max_codes = static_cast<double>(max) / scale;
  // ATen means to compare errors. It subtracts terms that would have to be added.
  const bool from_min = 0 - std::fabs(min_codes) < steps - std::fabs(max_codes);
  const double zero_point = from_min ? 0 - min_codes : steps - max_codes;
  return {static_cast<float>(scale),
          static_cast<int32_t>(std::nearbyint(std::clamp<double>(zero_point, 0, steps)))};
}

Quantization ByOnnx(float min, float max) {
  const float scale = max == min ? 1.0f : std::max((max - min) / 255.0f, kSmallestFloat);
  const float zero_point = std::clamp(0.0f - min / scale, 0.0f, 255.0f);
  return {scale, static_cast<int32_t>(std::nearbyint(zero_point))};
}

// Not inlined: else the compiler may move its arithmetic in front of ScopedFpEnvironment.
HWY_NOINLINE Quantization Choose(const ObserverParams& params, float min, float max) {
  min = std::min(min, 0.0f);
  max = std::max(max, 0.0f);
  switch (params.rule) {
    case QParamsRule::kAten: return ByAten(min, max, params.reduce_range);
    case QParamsRule::kOnnx: return ByOnnx(min, max);
    case QParamsRule::kObserver: break;
  }
  return ByObserver(params, min, max);
}

}  // namespace
}  // namespace internal

Status ObserveMinMax(const ConstMatrix& batch, std::span<MinMaxState> states) {
  // Compared as keys: denormals are not zero, whatever the caller has set.
  return internal::Observe(batch, states, std::bit_cast<float>(0x7F7FFFFFu),
                           [](const internal::Extent& now, MinMaxState* state) {
                             if (internal::KeyOf(now.min) < internal::KeyOf(state->min))
                               state->min = now.min;
                             if (internal::KeyOf(now.max) > internal::KeyOf(state->max))
                               state->max = now.max;
                           });
}

Status ObserveMovingAverage(const ConstMatrix& batch, float averaging_constant,
                            std::span<MinMaxState> states) {
  const ScopedFpEnvironment environment;
  if (!(averaging_constant >= 0 && averaging_constant <= 1))
    return {"averaging_constant must be in 0..1"};
  return internal::MovingAverage(batch, averaging_constant, states);
}

Status ChooseQParams(const ObserverParams& params, std::span<const MinMaxState> states,
                     std::span<float> scale, std::span<int32_t> zero_point) {
  const ScopedFpEnvironment environment;
  if (Status s = internal::CheckParams(params); !s.ok()) return s;
  if (scale.size() != states.size() || zero_point.size() != states.size())
    return {"scale and zero_point must have one element per state"};
  for (const MinMaxState& state : states) {
    if (state.empty) return {"states has one that has observed nothing"};
  }
  for (size_t m = 0; m < states.size(); ++m) {
    const Quantization chosen = internal::Choose(params, states[m].min, states[m].max);
    scale[m] = chosen.scale;
    zero_point[m] = chosen.zero_point;
  }
  return {};
}

Status ObserveHistogram(const ConstMatrix& batch, HistogramState* state) {
  const ScopedFpEnvironment environment;
  if (Status s = internal::CheckBatch(batch); !s.ok()) return s;
  if (batch.rows > (int64_t{1} << 24) / batch.columns) return {"x has more than 2^24 values"};
  const internal::MinMaxKeys keys = internal::KeysOf(batch, 0, batch.rows);
  if (Status s = internal::CheckValues(keys, 0x1p24f); !s.ok()) return s;
  return internal::AddToHistogram(batch, internal::FloatOf(keys.min), internal::FloatOf(keys.max),
                                  state);
}

Status ChooseQParams(const ObserverParams& params, const HistogramState& state, float* scale,
                     int32_t* zero_point) {
  const ScopedFpEnvironment environment;
  if (Status s = internal::CheckParams(params); !s.ok()) return s;
  if (params.rule != QParamsRule::kObserver) return {"rule is not that of observers"};
  if (state.empty) return {"state has observed nothing"};
  float min = 0, max = 0;
  internal::SearchHistogram(state, &min, &max);
  const Quantization chosen = internal::Choose(params, min, max);
  *scale = chosen.scale;
  *zero_point = chosen.zero_point;
  return {};
}

}  // namespace qualm::kernels
