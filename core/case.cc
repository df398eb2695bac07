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

// Positions of a window along one axis. With ceil_mode a last, partial window counts if it starts
// inside the input or the leading padding (PyTorch's pooling_output_shape).
int64_t Extent(int64_t in, int64_t kernel, int64_t stride, int64_t pad_before, int64_t pad_after,
               int64_t dilation, bool ceil_mode) {
  const int64_t room = in + pad_before + pad_after - dilation * (kernel - 1) - 1;
  if (room < 0 || in == 0) return 0;
  int64_t count = room / stride + 1;
  if (ceil_mode && room % stride != 0 && count * stride < in + pad_before) ++count;
  return count;
}

std::string CheckWindow(const Case& c) {
  // So that no derived size overflows: dimensions of tensors are bounded by their readers too.
  constexpr int64_t kMost = int64_t{1} << 20;
  const Window& v = c.window;
  const bool conv = IsConv(c.op);
  struct Rule {
    std::string_view field;
    int64_t value;
    int64_t least;
  };
  for (const Rule& rule :
       {Rule{"batch", v.batch, 0}, Rule{"H", v.in_h, 0}, Rule{"W", v.in_w, 0},
        Rule{conv ? "IC" : "C", v.in_c, 0}, Rule{"R", v.kernel_h, 1}, Rule{"S", v.kernel_w, 1},
        Rule{"stride", v.stride_h, 1}, Rule{"stride", v.stride_w, 1}, Rule{"pad", v.pad_top, 0},
        Rule{"pad", v.pad_bottom, 0}, Rule{"pad", v.pad_left, 0}, Rule{"pad", v.pad_right, 0},
        Rule{"dilation", v.dilation_h, 1}, Rule{"dilation", v.dilation_w, 1},
        Rule{"groups", v.groups, 1}}) {
    if (rule.value < rule.least || rule.value > kMost) {
      return Wrong(rule.field, "is " + std::to_string(rule.value) + ", expected " +
                                   std::to_string(rule.least) + ".." + std::to_string(kMost));
    }
  }
  if (conv) {
    if (v.in_c % v.groups != 0 || c.N % v.groups != 0)
      return Wrong("groups", "does not divide the input and output channels");
    if (c.op == Op::kDepthwise && v.groups != v.in_c)
      return Wrong("groups", "a depthwise convolution has one group per input channel");
    if (v.ceil_mode) return Wrong("ceil_mode", "only pools have it");
  } else {
    if (v.groups != 1) return Wrong("groups", "only convolutions have them");
    if (c.N != v.in_c) return Wrong("C", "a pool has as many output as input channels");
  }
  if ((v.dilation_h != 1 || v.dilation_w != 1) && !conv && c.op != Op::kMaxPool)
    return Wrong("dilation", "only convolutions and max_pool have it");
  if (v.count_include_pad && c.op != Op::kAvgPool)
    return Wrong("count_include_pad", "only avg_pool has it");
  Case derived = c;
  DeriveSizes(&derived);
  if (derived.M != c.M || derived.K != c.K) return Wrong("M", "does not follow from the window");
  if (c.op == Op::kGlobalAvgPool &&
      (v.kernel_h != std::max<int64_t>(v.in_h, 1) || v.kernel_w != std::max<int64_t>(v.in_w, 1) ||
       v.pad_top + v.pad_bottom + v.pad_left + v.pad_right != 0))
    return Wrong("R", "the window of global_avg_pool is the whole image");
  if (IsPool(c.op)) {
    // A window without a single input element has no maximum and divides by zero.
    for (int64_t m = 0; m < v.out_h() * v.out_w() && v.batch > 0; ++m) {
      const std::vector<Tap> taps = TapsOf(v, m);
      const bool any =
          std::any_of(taps.begin(), taps.end(), [](const Tap& t) { return t.x_row >= 0; });
      if (!any && !v.count_include_pad) return Wrong("pad", "a window lies wholly in the padding");
    }
  }
  return "";
}

std::string CheckDType(std::string_view field, bool allowed, std::string_view expected) {
  return allowed ? "" : Wrong(field, "type not possible here, expected " + std::string(expected));
}

}  // namespace

int64_t Window::out_h() const {
  return Extent(in_h, kernel_h, stride_h, pad_top, pad_bottom, dilation_h, ceil_mode);
}
int64_t Window::out_w() const {
  return Extent(in_w, kernel_w, stride_w, pad_left, pad_right, dilation_w, ceil_mode);
}

std::vector<int64_t> Case::output_shape() const {
  if (!HasWindow(op)) return {M, N};
  return {window.batch, window.out_h(), window.out_w(), N};
}

void DeriveSizes(Case* c) {
  if (!HasWindow(c->op)) return;
  const Window& v = c->window;
  if (IsPool(c->op)) c->N = v.in_c;
  c->M = v.batch * v.out_h() * v.out_w();
  c->K = v.kernel_h * v.kernel_w * (IsConv(c->op) ? v.in_c / v.groups : 1);
}

std::vector<Tap> TapsOf(const Window& v, int64_t m) {
  const int64_t out_h = v.out_h(), out_w = v.out_w();
  const int64_t image = m / (out_h * out_w);
  const int64_t top = m / out_w % out_h * v.stride_h - v.pad_top;
  const int64_t left = m % out_w * v.stride_w - v.pad_left;
  std::vector<Tap> taps;
  for (int64_t r = 0; r < v.kernel_h; ++r) {
    for (int64_t s = 0; s < v.kernel_w; ++s) {
      const int64_t y = top + r * v.dilation_h, x = left + s * v.dilation_w;
      const bool inside = y >= 0 && y < v.in_h && x >= 0 && x < v.in_w;
      taps.push_back({r, s, inside ? ((image * v.in_h + y) * v.in_w + x) * v.in_c : -1});
    }
  }
  return taps;
}

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
  if (!HasSums(c.op) && !IsPool(c.op) && c.K != 0) return Wrong("K", "only sums have it");
  if (!HasSums(c.op) && !HasTwoOperands(c.op) && !c.w.empty())
    return Wrong("w", "only linear, convolutions, add and mul have it");
  if (!HasSums(c.op) && (c.bias || c.bias_i32))
    return Wrong("bias", "only linear and convolutions have it");
  if (c.op != Op::kRequantize && !c.multiplier.empty())
    return Wrong("multiplier", "only requantize has it");
  if (HasWindow(c.op)) {
    if (std::string wrong = CheckWindow(c); !wrong.empty()) return wrong;
  } else if (c.window != Window{}) {
    return Wrong("window", "only convolutions and pools have it");
  }
  const Window& v = c.window;
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
    case Op::kRescale:
    case Op::kAdd:
    case Op::kMul:
      error = first(CheckDType("x_dtype", IsCode(c.x.dtype()), "u8 or s8"),
                    CheckTensor("x", c.x, {c.M, c.N}),
                    CheckDType("out_dtype", IsCode(c.out_dtype), "u8 or s8"),
                    CheckQParams("x", c.x_q, false, c.N), CheckQParams("out", c.out_q, false, c.N));
      if (error.empty() && c.per_channel) error = Wrong("gran", "only per tensor here");
      if (!error.empty() || c.op == Op::kRescale) break;
      error = first(CheckDType("w_dtype", c.w.dtype() == c.x.dtype(), "the type of x"),
                    CheckTensor("w", c.w, {c.M, c.N}), CheckQParams("w", c.w_q, false, c.N));
      break;
    case Op::kMaxPool:
    case Op::kAvgPool:
    case Op::kGlobalAvgPool:
      error = first(CheckDType("x_dtype", IsCode(c.x.dtype()), "u8 or s8"),
                    CheckTensor("x", c.x, {v.batch, v.in_h, v.in_w, v.in_c}),
                    CheckDType("out_dtype", IsCode(c.out_dtype), "u8 or s8"),
                    CheckQParams("x", c.x_q, false, c.N), CheckQParams("out", c.out_q, false, c.N));
      if (error.empty() && c.per_channel) error = Wrong("gran", "only per tensor here");
      if (error.empty() && c.op == Op::kMaxPool && (c.x_q != c.out_q || c.x.dtype() != c.out_dtype))
        error = Wrong("out_scale", "max_pool keeps the type and qparams of its input");
      break;
    case Op::kConv2d:
    case Op::kDepthwise:
      error =
          first(CheckDType("x_dtype", IsCode(c.x.dtype()), "u8 or s8"),
                CheckTensor("x", c.x, {v.batch, v.in_h, v.in_w, v.in_c}),
                CheckDType("w_dtype", IsCode(c.w.dtype()), "u8 or s8"),
                CheckTensor("w", c.w, {c.N, v.kernel_h, v.kernel_w, v.in_c / v.groups}),
                CheckQParams("x", c.x_q, false, c.N), CheckQParams("w", c.w_q, c.per_channel, c.N),
                CheckQParams("out", c.out_q, false, c.N));
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
  if (HasWindow(c.op)) {
    const Window& v = c.window;
    const auto pair = [](int64_t a, int64_t b) {
      return a == b ? std::to_string(a) : std::to_string(a) + "x" + std::to_string(b);
    };
    text += " " + std::to_string(v.batch) + "x" + std::to_string(v.in_h) + "x" +
            std::to_string(v.in_w) + "x" + std::to_string(v.in_c) + " kernel " +
            std::to_string(v.kernel_h) + "x" + std::to_string(v.kernel_w);
    if (IsConv(c.op)) text += " -> " + std::to_string(c.N);
    if (v.stride_h != 1 || v.stride_w != 1) text += " stride " + pair(v.stride_h, v.stride_w);
    if (v.pad_top + v.pad_bottom + v.pad_left + v.pad_right != 0) {
      text += " pad " + std::to_string(v.pad_top) + "," + std::to_string(v.pad_bottom) + "," +
              std::to_string(v.pad_left) + "," + std::to_string(v.pad_right);
    }
    if (v.dilation_h != 1 || v.dilation_w != 1)
      text += " dilation " + pair(v.dilation_h, v.dilation_w);
    if (v.groups != 1) text += " groups " + std::to_string(v.groups);
    if (v.ceil_mode) text += " ceil";
  } else {
    text += " M=" + std::to_string(c.M) + " N=" + std::to_string(c.N);
  }
  if (c.op == Op::kLinear) text += " K=" + std::to_string(c.K);
  text += " " + std::string(Name(c.x.dtype()));
  if (!c.w.empty() || HasSums(c.op)) text += "*" + std::string(Name(c.w.dtype()));
  text += "->" + std::string(Name(c.out_dtype));
  text += c.per_channel ? " per-channel" : " per-tensor";
  if (c.bias) text += " bias";
  if (c.bias_i32) text += " bias_i32";
  if (c.relu) text += " relu";
  return text;
}

}  // namespace qualm
