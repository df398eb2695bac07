// SPDX-License-Identifier: Apache-2.0
// The end of linear, conv2d, depthwise and dynamic_linear: exact integer sums to outputs, rounded
// once, or as the library rounds that `requantization` names. Internal to kernels/.
#ifndef QUALM_KERNELS_SUMS_EPILOGUE_H_
#define QUALM_KERNELS_SUMS_EPILOGUE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "kernels/sums/codes.h"
#include "kernels/types.h"

namespace qualm::kernels {

struct EpilogueParams {
  int64_t channels = 0;
  float x_scale = 1.0f;
  std::span<const float> w_scale;  // 1 or channels
  float y_scale = 1.0f;            // u8, s8 outputs
  int32_t y_zero_point = 0;        // u8, s8 outputs
  std::span<const float> bias;     // empty or channels; real units
  ElementType output_type = ElementType::kU8;
  OutputRange range;
  Requantization requantization = Requantization::kExact;
};

// Plans once per layer, applies per row. Make and Apply must run in a ScopedFpEnvironment; Apply
// allocates nothing and may run on several threads at once. `sums` are sum_k (x-zx)(w-zw_n) +
// bias_i32[n], exact, of channels [first, first + count); y points at the output of channel
// `first`.
// A requantization other than kExact takes them clamped to int32.
// f32 outputs are (sum * x_scale * w_scale) + bias rounded once; an exact zero is +0, a negative
// value that underflows -0, and with relu all that is not positive +0.
class Epilogue {
 public:
  Epilogue();
  ~Epilogue();
  Epilogue(Epilogue&&) noexcept;
  Epilogue& operator=(Epilogue&&) noexcept;

  // Arguments are already validated (kernels/common/validate.h).
  static Epilogue Make(const EpilogueParams& params);

  // An `x_scale`, for f32 outputs only, takes the place of that of the parameters.
  void Apply(const int32_t* sums, int64_t first, int64_t count, void* y,
             std::optional<float> x_scale = {}) const;
  void Apply(const int64_t* sums, int64_t first, int64_t count, void* y,
             std::optional<float> x_scale = {}) const;
  // Zero points may be any int32, so a sum may need more than 64 bits.
  void Apply(const __int128* sums, int64_t first, int64_t count, void* y,
             std::optional<float> x_scale = {}) const;

  // For sums that fit int32, on the target of Make: the same codes. Null where codes-inl.h is not
  // exact for the layer.
  const CodePlan* code_plan() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_SUMS_EPILOGUE_H_
