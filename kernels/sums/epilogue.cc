// SPDX-License-Identifier: Apache-2.0
// Exact integer sums to outputs. common/rescale.cc rounds codes and floats once and has the proof;
// int32 outputs are only clamped; codes in the arithmetic of another library come from
// common/backend_requantize.cc. Sums that leave int32 are rounded once too, one at a
// time; in the arithmetic of another library they saturate to int32 first.
#include "kernels/sums/epilogue.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/common/backend_requantize.h"
#include "kernels/common/rescale.h"
#include "kernels/common/validate.h"
#include "kernels/sums/accumulate.h"

namespace qualm::kernels {
namespace {

bool IsCode(ElementType type) { return type == ElementType::kU8 || type == ElementType::kS8; }

size_t OutputBytes(ElementType type) { return IsCode(type) ? 1 : 4; }

std::vector<Multiplier> Scales(const EpilogueParams& params) {
  if (params.output_type == ElementType::kS32) return {Multiplier()};  // sums have no scale
  const bool code = IsCode(params.output_type);
  // A bias is per channel, and then so are the scales. Floats take x_scale at the end.
  const size_t count =
      params.bias.empty() ? params.w_scale.size() : static_cast<size_t>(params.channels);
  std::vector<Multiplier> scales(count);
  for (size_t i = 0; i < count; ++i) {
    scales[i] = {code ? params.x_scale : 1.0f, params.w_scale[params.w_scale.size() == 1 ? 0 : i],
                 code ? params.y_scale : 1.0f};
  }
  return scales;
}

internal::Rescale MakeRescale(const EpilogueParams& params, internal::Bounds bounds) {
  const bool has_bias = params.output_type != ElementType::kS32;
  return {Scales(params), has_bias ? params.bias : std::span<const float>(),
          IsCode(params.output_type) ? params.y_zero_point : 0, bounds};
}

}  // namespace

struct Epilogue::Impl {
  explicit Impl(const EpilogueParams& params)
      : type(params.output_type),
        relu(params.range.relu),
        x_scale(params.x_scale),
        bounds(internal::OutputBounds(params.output_type, params.range,
                                      IsCode(params.output_type) ? params.y_zero_point : 0)),
        rescale(MakeRescale(params, bounds)) {
    if (params.requantization != Requantization::kExact) {
      backend.emplace(params.requantization, Scales(params), params.y_zero_point, bounds);
    }
    if (CurrentAccumulateTraits().makes_codes) codes = MakeCodePlan(params);
  }

  // The conditions are those of codes-inl.h.
  std::optional<CodePlan> MakeCodePlan(const EpilogueParams& params) const {
    const internal::Rescale::Plan& plan = rescale.plan();
    if (!IsCode(type) || backend || !params.bias.empty()) return {};
    if (plan.lo < -256 || plan.hi > 256) return {};
    for (const double m : plan.multiplier) {
      if (m < 0x1p-126 || m > 0x1.fffffep127) return {};
    }
    const bool is_float = plan.path == internal::RescalePath::kFloat32;
    CodePlan made = {.multiplier = {},
                     .is_exact = is_float || plan.tie_distance <= 13,
                     .origin = is_float ? 0x1.8p23f : 1536.0f,
                     .to_integer = is_float ? 0.0f : 0x1.8p23f - 1536.0f,
                     .is_signed = type == ElementType::kS8,
                     .lo = bounds.lo,
                     .hi = bounds.hi,
                     .zero_point = params.y_zero_point,
                     .rescale = &rescale};
    const size_t channels = static_cast<size_t>(params.channels);
    made.multiplier.reserve(channels + static_cast<size_t>(CurrentAccumulateTraits().panel_width));
    if (plan.per_channel) {
      made.multiplier.assign(plan.multiplier.begin(), plan.multiplier.end());
    } else {
      made.multiplier.assign(channels, static_cast<float>(plan.multiplier[0]));
    }
    made.multiplier.resize(made.multiplier.capacity());
    return made;
  }

  // y points at the output of channel `first`.
  void Apply(const int32_t* sums, size_t first, size_t count, void* y, float factor) const {
    if (backend) {
      backend->CodesFromSums(sums, first, count, static_cast<uint8_t*>(y));
    } else if (IsCode(type)) {
      rescale.CodesFromSums(sums, first, count, static_cast<uint8_t*>(y));
    } else if (type == ElementType::kF32) {
      rescale.FloatsFromSums(sums, first, count, factor, relu, static_cast<float*>(y));
    } else {
      auto* out = static_cast<int32_t*>(y);
      for (size_t i = 0; i < count; ++i) {
        out[i] = std::min(std::max(sums[i], bounds.lo), bounds.hi);
      }
    }
  }

  // One sum of any width.
  void ApplyOne(__int128 sum, size_t channel, void* y, float factor) const {
    const size_t scale = rescale.plan().per_channel ? channel : 0;
    if (IsCode(type)) {
      *static_cast<uint8_t*>(y) = static_cast<uint8_t>(rescale.CodeFromSum(sum, scale));
    } else if (type == ElementType::kF32) {
      *static_cast<float*>(y) = rescale.FloatFromSum(sum, scale, factor, relu);
    } else {
      *static_cast<int32_t*>(y) =
          static_cast<int32_t>(std::min<__int128>(std::max<__int128>(sum, bounds.lo), bounds.hi));
    }
  }

  // Wide sums mostly hold small values: blocks that fit int32 take the vector path.
  template <class Wide>
  void ApplyWide(const Wide* sums, size_t first, size_t count, void* y, float factor) const {
    constexpr size_t kBlock = 256;
    int32_t narrow[kBlock];
    auto* out = static_cast<uint8_t*>(y);
    for (size_t begin = 0; begin < count; begin += kBlock) {
      const size_t size = std::min(kBlock, count - begin);
      bool fits = true;
      for (size_t i = 0; i < size; ++i) {
        const Wide clamped = std::clamp<Wide>(sums[begin + i], INT32_MIN, INT32_MAX);
        narrow[i] = static_cast<int32_t>(clamped);
        fits = fits && (clamped == sums[begin + i] || backend);
      }
      if (fits) {
        Apply(narrow, first + begin, size, out + begin * OutputBytes(type), factor);
        continue;
      }
      for (size_t i = begin; i < begin + size; ++i) {
        ApplyOne(sums[i], first + i, out + i * OutputBytes(type), factor);
      }
    }
  }

  ElementType type;
  bool relu;
  float x_scale;            // of float outputs, unless Apply is given another
  internal::Bounds bounds;  // of code and s32 outputs, activation included
  internal::Rescale rescale;
  std::optional<internal::BackendRequantize> backend;  // code outputs, if not exact
  std::optional<CodePlan> codes;
};

Epilogue::Epilogue() = default;
Epilogue::~Epilogue() = default;
Epilogue::Epilogue(Epilogue&&) noexcept = default;
Epilogue& Epilogue::operator=(Epilogue&&) noexcept = default;

Epilogue Epilogue::Make(const EpilogueParams& params) {
  Epilogue epilogue;
  epilogue.impl_ = std::make_unique<Impl>(params);
  return epilogue;
}

void Epilogue::Apply(const int32_t* sums, int64_t first, int64_t count, void* y,
                     std::optional<float> x_scale) const {
  impl_->Apply(sums, static_cast<size_t>(first), static_cast<size_t>(count), y,
               x_scale.value_or(impl_->x_scale));
}
void Epilogue::Apply(const int64_t* sums, int64_t first, int64_t count, void* y,
                     std::optional<float> x_scale) const {
  impl_->ApplyWide(sums, static_cast<size_t>(first), static_cast<size_t>(count), y,
                   x_scale.value_or(impl_->x_scale));
}
void Epilogue::Apply(const __int128* sums, int64_t first, int64_t count, void* y,
                     std::optional<float> x_scale) const {
  impl_->ApplyWide(sums, static_cast<size_t>(first), static_cast<size_t>(count), y,
                   x_scale.value_or(impl_->x_scale));
}

const CodePlan* Epilogue::code_plan() const { return impl_->codes ? &*impl_->codes : nullptr; }

}  // namespace qualm::kernels
