// SPDX-License-Identifier: Apache-2.0
// XNNPACK as a plugin: its quantized operators as the public header declares them, on the calling
// thread. An operator without weights is made, run and deleted for each problem. The last operators
// with weights are kept, because an application runs one many times: what an operator remembers of
// earlier inputs shows only so.
//
// The library itself refuses ratios of scales out of its range and 1x1 maxima. Cases that it only
// asserts about, or gets wrong, are refused here with the reason.
#include <cmath>

#include "adapters/libraries/xnnpack/ops.h"

namespace qualm_xnnpack {

using qualm::plugin::Refusal;

void Require(bool holds, const char* reason) {
  if (!holds) throw Refusal{QUALM_UNSUPPORTED, reason};
}

void Check(xnn_status status, const std::string& function) {
  switch (status) {
    case xnn_status_success: return;
    case xnn_status_invalid_parameter:
      throw Refusal{QUALM_UNSUPPORTED, "XNNPACK refuses (" + function + ": invalid parameter)"};
    case xnn_status_unsupported_parameter:
      throw Refusal{QUALM_UNSUPPORTED, "XNNPACK refuses (" + function + ": unsupported parameter)"};
    case xnn_status_unsupported_hardware:
      throw Refusal{QUALM_UNSUPPORTED, "XNNPACK lacks " + function + " on this CPU"};
    default:
      throw Refusal{QUALM_FAILED, function + " failed with status " + std::to_string(status)};
  }
}

void RequireNormal(float scale) {
  Require(std::isnormal(scale), "XNNPACK's scales are normal numbers");
}

void RequireMultiplier(float multiplier) {
  Require(multiplier >= 0x1p-32f && multiplier < 256.0f,
          "XNNPACK's multipliers lie in [2^-32, 256)");
}

void RequireProduct(const qualm_problem& p) {
  RequireMultiplier(p.x_q.scale[0] * p.w_q.scale[0] / p.out_q.scale[0]);
}

void RequireOneType(const qualm_problem& p) {
  Require(p.x->dtype == p.y->dtype && (p.w == nullptr || p.w->dtype == p.x->dtype),
          "XNNPACK's operands and output have one type");
}

bool HasSameParameters(const qualm_problem& p) {
  return p.x_q.scale[0] == p.out_q.scale[0] && p.x_q.zero_point[0] == p.out_q.zero_point[0];
}

void RequireAverage(const qualm_problem& p, int64_t count) {
  RequireOneType(p);
  RequireNormal(p.x_q.scale[0]);
  RequireNormal(p.out_q.scale[0]);
  RequireMultiplier(p.x_q.scale[0] / (p.out_q.scale[0] * static_cast<float>(count)));
}

void RequirePaddingCounts(const qualm_problem& p) {
  const qualm_window& v = *p.window;
  const bool any_padding = (v.pad_top | v.pad_bottom | v.pad_left | v.pad_right) != 0;
  Require(!any_padding || v.count_include_pad != 0,
          "XNNPACK's quantized average counts the padding");
}

namespace {

// The library adds a row's numerators in uint32 and divides by the sum. From 513 channels on it may
// wrap, and to 0: 1024 equal codes have numerators of 2^22. It asserts that it has not.
bool SumWrapsToZero(const qualm_problem& p) {
  const double largest =
      std::min(static_cast<double>(UINT32_MAX) / static_cast<double>(p.x->dims[1]), 8388607.0);
  for (int64_t m = 0; m < p.x->dims[0]; ++m) {
    const uint8_t* row = static_cast<const uint8_t*>(p.x->data) + m * p.x->strides[0];
    const int top = *std::max_element(row, row + p.x->dims[1]);
    uint32_t sum = 0;
    for (int64_t n = 0; n < p.x->dims[1]; ++n) {
      sum += static_cast<uint32_t>(
          std::lrint(largest * std::exp((row[n] - top) * static_cast<double>(p.x_q.scale[0]))));
    }
    if (sum == 0) return true;
  }
  return false;
}

// XNNPACK replaces a tap in the padding by a "safe" pixel of the same phase, which should lie in
// the window. With wide padding that pixel lies outside the window, or outside the image. Along an
// axis without dilation neighbouring windows share their entries, and the window that is written
// last decides which pixel all of them read (src/indirection.c, xnn_indirection_init_maxpool2d).
bool SafePixelsAreInTheWindow(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t pad,
                              int64_t dilation, bool shared) {
  for (int64_t o = 0; o < out; ++o) {
    const int64_t first = o * stride - pad;
    const int64_t last = first + (kernel - 1) * dilation;
    for (int64_t k = 0; k < kernel; ++k) {
      const int64_t at = first + k * dilation;
      if (at >= 0 && at < in) continue;
      const int64_t writer = shared ? std::min(out - 1, o + k / stride) : o;
      int64_t safe = writer * stride - pad % dilation;
      if (safe < 0) safe += dilation;
      if (safe < first || safe > last || safe >= in) return false;
    }
  }
  return true;
}

int32_t Run(const qualm_problem* problem) {
  return qualm::plugin::Answer([&] {
    const int32_t codes = problem->op == QUALM_QUANTIZE ? problem->y->dtype : problem->x->dtype;
    if (codes == QUALM_S8) {
      RunOp<int8_t>(*problem);
    } else {
      RunOp<uint8_t>(*problem);
    }
  });
}

}  // namespace

void RequireSoftmaxSum(const qualm_problem& p) {
  Require(p.x->dims[1] <= 512 || !SumWrapsToZero(p),
          "XNNPACK's softmax divides by a sum that has wrapped to 0");
}

void RequireSafePixels(const qualm_problem& p) {
  const qualm_window& v = *p.window;
  if (v.dilation_h == 1 && v.dilation_w == 1) return;
  Require(SafePixelsAreInTheWindow(p.x->dims[1], p.y->dims[1], v.kernel_h, v.stride_h, v.pad_top,
                                   v.dilation_h, false) &&
              SafePixelsAreInTheWindow(p.x->dims[2], p.y->dims[2], v.kernel_w, v.stride_w,
                                       v.pad_left, v.dilation_w, v.dilation_w == 1),
          "XNNPACK's dilated max pool reads a pixel outside the window with this padding");
}

Geometry GeometryOf(const qualm_problem& p) {
  if (p.op == QUALM_LINEAR) {
    qualm_window one{};
    one.kernel_h = one.kernel_w = one.stride_h = one.stride_w = one.dilation_h = one.dilation_w =
        one.groups = 1;
    return {1,
            Size(p.x->dims[0]),
            1,
            Size(p.x->dims[1]),
            Size(p.y->dims[1]),
            Size(p.x->strides[0]),
            Size(p.y->strides[0]),
            one};
  }
  return {Size(p.x->dims[0]), Size(p.x->dims[1]),    Size(p.x->dims[2]),    Size(p.x->dims[3]),
          Size(p.y->dims[3]), Size(p.x->strides[2]), Size(p.y->strides[2]), *p.window};
}

// Never destroyed: at process exit the library's own globals may go first.
std::vector<KeptOperator::Entry>& KeptOperator::Kept() {
  static auto* kept = new std::vector<Entry>;
  return *kept;
}

qualm_capability Codes(uint32_t types, uint32_t features) {
  qualm_capability c{};
  c.size = sizeof c;
  c.x_dtypes = c.w_dtypes = c.out_dtypes = types;
  c.features = features;
  c.x_zero_point_min = c.w_zero_point_min = c.out_zero_point_min = INT8_MIN;
  c.x_zero_point_max = c.w_zero_point_max = c.out_zero_point_max = UINT8_MAX;
  c.read_slack_bytes = XNN_EXTRA_BYTES;
  return c;
}

}  // namespace qualm_xnnpack

extern "C" const qualm_plugin* qualm_plugin_entry(void) {
  if (xnn_initialize(nullptr) != xnn_status_success) return nullptr;
  static const qualm_plugin plugin = {.size = sizeof(qualm_plugin),
                                      .abi_version = QUALM_ABI_VERSION,
                                      .reserved = 0,
                                      .name = "XNNPACK",
                                      .version = qualm_xnnpack::kVersion,
                                      .contract = qualm_xnnpack::Contract(),
                                      .instruction_set = qualm_xnnpack::InstructionSet(),
                                      .capability = qualm_xnnpack::Capability,
                                      .run = qualm_xnnpack::Run,
                                      .last_error = qualm::plugin::LastErrorText};
  return &plugin;
}
