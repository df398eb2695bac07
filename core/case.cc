// SPDX-License-Identifier: Apache-2.0
#include "core/case.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

namespace qualm {
namespace {

std::string Wrong(std::string_view field, std::string_view what) {
  return std::string(field) + ": " + std::string(what);
}

std::string CheckTensor(std::string_view field, const Tensor& tensor,
                        const std::vector<int64_t>& shape) {
  if (tensor.shape() == shape) return "";
  std::string text = "shape [";
  for (size_t i = 0; i < tensor.shape().size(); ++i) {
    text += (i != 0 ? "," : "") + std::to_string(tensor.shape()[i]);
  }
  text += "] does not match the dimensions, expected [";
  for (size_t i = 0; i < shape.size(); ++i) text += (i != 0 ? "," : "") + std::to_string(shape[i]);
  return Wrong(field, text + "]");
}

std::string CheckScales(std::string_view field, const std::vector<float>& scales) {
  for (size_t i = 0; i < scales.size(); ++i) {
    if (!std::isfinite(scales[i]) || scales[i] <= 0.0f) {
      return Wrong(field, "entry " + std::to_string(i) + " must be finite and greater than 0");
    }
  }
  return "";
}

std::string CheckLength(std::string_view field, size_t length, bool per_channel, int64_t channels) {
  const size_t want = per_channel ? static_cast<size_t>(channels) : 1;
  if (length == want) return "";
  return Wrong(field, "has " + std::to_string(length) + " entries, expected " +
                          std::to_string(want) + (per_channel ? " (one per channel)" : ""));
}

std::string CheckQParams(std::string_view name, const QParams& q, bool per_channel,
                         int64_t channels) {
  const std::string scale = std::string(name) + "_scale";
  if (auto error = CheckScales(scale, q.scale); !error.empty()) return error;
  if (auto error = CheckLength(scale, q.scale.size(), per_channel, channels); !error.empty())
    return error;
  return CheckLength(std::string(name) + "_zp", q.zero_point.size(), per_channel, channels);
}

std::string CheckDType(std::string_view field, bool allowed, std::string_view expected) {
  return allowed ? "" : Wrong(field, "type not possible here, expected " + std::string(expected));
}

}  // namespace

int64_t LowerBound(const Case& c, int64_t channel) {
  // Without a channel (per-channel parameters, N = 0) there is no zero point to look at.
  if (!c.relu || c.out_q.zero_point.empty()) return c.out_min;
  const int64_t zero = c.out_dtype == DType::kS32 ? 0 : c.out_q.zero_point_at(channel);
  return std::max<int64_t>(c.out_min, zero);
}

Case ProblemOf(const Case& c) {
  Case problem = c;
  problem.property.clear();
  problem.note.clear();
  problem.expected.reset();
  problem.observed.reset();
  return problem;
}

std::string Validate(const Case& c) {
  const auto first = [](const auto&... errors) {
    std::string result;
    ((result = result.empty() ? std::string(errors) : result), ...);
    return result;
  };
  if (c.M < 0) return Wrong("M", "must be >= 0");
  if (c.N < 0) return Wrong("N", "must be >= 0");
  if (c.K < 0) return Wrong("K", "must be >= 0");

  std::string error;
  const bool linear = c.op == Op::kLinear;
  if (!linear && c.K != 0) return Wrong("K", "only linear has it");
  if (!linear && !c.w.empty()) return Wrong("w", "only linear has it");
  if (!linear && (c.bias || c.bias_i32)) return Wrong("bias", "only linear has it");
  if (c.op != Op::kRequantize && !c.multiplier.empty())
    return Wrong("multiplier", "only requantize has it");
  switch (c.op) {
    case Op::kQuantize:
      error = first(CheckDType("x_dtype", c.x.dtype() == DType::kF32, "f32"),
                    CheckTensor("x", c.x, {c.M, c.N}),
                    CheckDType("out_dtype", IsCode(c.out_dtype), "u8 or s8"),
                    CheckQParams("out", c.out_q, c.per_channel, c.N));
      break;
    case Op::kDequantize:
      error = first(CheckDType("x_dtype", IsCode(c.x.dtype()), "u8 or s8"),
                    CheckTensor("x", c.x, {c.M, c.N}),
                    CheckDType("out_dtype", c.out_dtype == DType::kF32, "f32"),
                    CheckQParams("x", c.x_q, c.per_channel, c.N));
      if (error.empty() && c.relu) error = Wrong("relu", "dequantize has none");
      break;
    case Op::kRequantize:
      error = first(CheckDType("x_dtype", c.x.dtype() == DType::kS32, "s32"),
                    CheckTensor("x", c.x, {c.M, c.N}),
                    CheckDType("out_dtype", IsCode(c.out_dtype), "u8 or s8"));
      if (!error.empty()) break;
      if (!c.multiplier.empty() || (c.per_channel && c.N == 0)) {
        error = first(CheckScales("multiplier", c.multiplier),
                      CheckLength("multiplier", c.multiplier.size(), c.per_channel, c.N),
                      CheckQParams("out", c.out_q, false, c.N));
      } else {
        error = first(CheckQParams("x", c.x_q, false, c.N),
                      CheckQParams("w", c.w_q, c.per_channel, c.N),
                      CheckQParams("out", c.out_q, false, c.N));
      }
      break;
    case Op::kLinear:
      error = first(
          CheckDType("x_dtype", IsCode(c.x.dtype()), "u8 or s8"), CheckTensor("x", c.x, {c.M, c.K}),
          CheckDType("w_dtype", IsCode(c.w.dtype()), "u8 or s8"), CheckTensor("w", c.w, {c.N, c.K}),
          CheckQParams("x", c.x_q, false, c.N), CheckQParams("w", c.w_q, c.per_channel, c.N),
          CheckQParams("out", c.out_q, false, c.N));
      break;
  }
  if (!error.empty()) return error;

  if (c.bias && c.bias_i32) return Wrong("bias_i32", "bias is given too, expected one of the two");
  const auto channels = static_cast<size_t>(c.N);
  if (c.bias) {
    if (c.bias->size() != channels) return Wrong("bias", "expected one entry per output channel");
    for (size_t i = 0; i < channels; ++i) {
      if (!std::isfinite((*c.bias)[i]))
        return Wrong("bias", "entry " + std::to_string(i) + " must be finite");
    }
    if (c.out_dtype == DType::kS32)
      return Wrong("bias", "an s32 output takes bias_i32, not a float bias");
  }
  if (c.bias_i32 && c.bias_i32->size() != channels)
    return Wrong("bias_i32", "expected one entry per output channel");

  const CodeRange range = RangeOf(c.out_dtype);
  if (c.out_min < range.min || c.out_min > range.max)
    return Wrong("out_min", "outside the output type");
  if (c.out_max < range.min || c.out_max > range.max)
    return Wrong("out_max", "outside the output type");
  if (c.out_min > c.out_max) return Wrong("out_min", "is greater than out_max");
  if (c.out_dtype == DType::kF32 && (c.out_min != range.min || c.out_max != range.max))
    return Wrong("out_min", "an f32 output has no clamp");
  if (c.expected && (c.expected->dtype() != c.out_dtype || c.expected->shape() != c.output_shape()))
    return Wrong("expected", "does not have the type and shape of the output");
  if (c.observed &&
      (c.observed->y.dtype() != c.out_dtype || c.observed->y.shape() != c.output_shape()))
    return Wrong("observed", "does not have the type and shape of the output");
  return "";
}

std::string Describe(const Case& c) {
  std::string text(Name(c.op));
  text += " M=" + std::to_string(c.M) + " N=" + std::to_string(c.N);
  if (c.op == Op::kLinear) text += " K=" + std::to_string(c.K);
  text += " " + std::string(Name(c.x.dtype()));
  if (c.op == Op::kLinear) text += "*" + std::string(Name(c.w.dtype()));
  text += "->" + std::string(Name(c.out_dtype));
  text += c.per_channel ? " per-channel" : " per-tensor";
  if (c.bias) text += " bias";
  if (c.bias_i32) text += " bias_i32";
  if (c.relu) text += " relu";
  return text;
}

}  // namespace qualm
