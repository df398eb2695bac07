// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/plugin_limits.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "adapters/qualm_plugin.h"
#include "core/scaled_cast.h"

namespace qualm {
namespace {

bool Has(uint32_t types, DType dtype) { return (types & QUALM_TYPE_BIT(static_cast<int>(dtype))); }

std::string Between(int32_t min, int32_t max) {
  if (min == max) return std::to_string(min);
  return std::to_string(min) + " to " + std::to_string(max);
}

std::string CheckZeroPoints(std::string_view field, const QParams& q, int32_t min, int32_t max) {
  for (const int32_t zero_point : q.zero_point) {
    if (zero_point < min || zero_point > max) {
      return std::string(field) + ": zero point " + std::to_string(zero_point) + " is outside " +
             Between(min, max);
    }
  }
  return "";
}

std::string CheckDim(std::string_view name, int64_t dim, int64_t max, int64_t multiple) {
  if (max > 0 && dim > max) {
    return std::string(name) + " = " + std::to_string(dim) + " is more than " + std::to_string(max);
  }
  if (multiple > 0 && dim % multiple != 0) {
    return std::string(name) + " = " + std::to_string(dim) + " is no multiple of " +
           std::to_string(multiple);
  }
  return "";
}

}  // namespace

PluginLimits AllCases() {
  PluginLimits limits;
  limits.x_dtypes = limits.w_dtypes = limits.out_dtypes = limits.features = ~uint32_t{0};
  limits.x_zero_point_min = limits.w_zero_point_min = limits.out_zero_point_min = INT32_MIN;
  limits.x_zero_point_max = limits.w_zero_point_max = limits.out_zero_point_max = INT32_MAX;
  return limits;
}

uint32_t FeatureBit(PipeFeature feature) {
  switch (feature) {
    case PipeFeature::kBiasF32: return QUALM_CAN_BIAS_F32;
    case PipeFeature::kBiasI32: return QUALM_CAN_BIAS_I32;
    case PipeFeature::kRelu: return QUALM_CAN_RELU;
    case PipeFeature::kClamp: return QUALM_CAN_CLAMP;
    case PipeFeature::kPerChannel: return QUALM_CAN_PER_CHANNEL;
    case PipeFeature::kEmpty: return QUALM_CAN_EMPTY;
    case PipeFeature::kEmptyK: return QUALM_CAN_EMPTY_K;
    case PipeFeature::kAcc: return QUALM_CAN_ACC;
    case PipeFeature::kDilation: return QUALM_CAN_DILATION;
    case PipeFeature::kGroups: return QUALM_CAN_GROUPS;
    case PipeFeature::kAsymmetricPadding: return QUALM_CAN_ASYMMETRIC_PADDING;
    case PipeFeature::kCeilMode: return QUALM_CAN_CEIL_MODE;
    case PipeFeature::kCountPadding: return QUALM_CAN_COUNT_PADDING;
    case PipeFeature::kPerRow: return QUALM_CAN_PER_ROW;
    case PipeFeature::kPerBlock: return QUALM_CAN_PER_BLOCK;
    case PipeFeature::kFloatX: return QUALM_CAN_FLOAT_X;
    case PipeFeature::kCastScales: return QUALM_CAN_CAST_SCALES;
    case PipeFeature::kCodes: return kCanGiveCodes;
    case PipeFeature::kXPerBlock: return QUALM_CAN_X_PER_BLOCK;
  }
  return 0;
}

void PluginLimits::TakeFormats(FormatSet formats, Op op) {
  w_formats = formats;
  if (op != Op::kLinear) {
    const bool quantizes = op == Op::kQuantize;
    x_dtypes = quantizes ? QUALM_TYPE_BIT(QUALM_F32) : TypesOf(formats);
    out_dtypes = ~uint32_t{0};  // WhyNotInFormat knows
    features |= QUALM_CAN_X_PER_BLOCK | QUALM_CAN_CLAMP;
    x_zero_point_min = out_zero_point_min = INT32_MIN;
    x_zero_point_max = out_zero_point_max = INT32_MAX;
    return;
  }
  x_dtypes = QUALM_TYPE_BIT(QUALM_S8);
  w_dtypes = TypesOf(formats);
  out_dtypes = QUALM_TYPE_BIT(QUALM_F32);
  features |= QUALM_CAN_PER_CHANNEL | QUALM_CAN_PER_BLOCK | QUALM_CAN_X_PER_BLOCK;
  x_zero_point_min = x_zero_point_max = 0;
  w_zero_point_min = INT32_MIN;
  w_zero_point_max = INT32_MAX;
}

std::string BeyondCodes(std::string_view field, const QParams& q, DType dtype) {
  if (IsFloat(dtype) || dtype == DType::kS32) return "";
  const CodeRange codes = RangeOf(dtype);
  for (const int32_t zero_point : q.zero_point) {
    if (zero_point < codes.min || zero_point > codes.max) {
      return std::string(field) + ": zero point " + std::to_string(zero_point) + " is no " +
             std::string(Name(dtype)) + " code";
    }
  }
  return "";
}

std::string WrongLimits(const PluginLimits& limits) {
  const int32_t alignment = limits.alignment_bytes;
  if (alignment < 0 || alignment > 4096 || (alignment & (alignment - 1)) != 0) {
    return "alignment_bytes is " + std::to_string(alignment) +
           ", expected a power of two up to 4096";
  }
  if (limits.read_slack_bytes < 0 || limits.read_slack_bytes > 65536) {
    return "read_slack_bytes is " + std::to_string(limits.read_slack_bytes) +
           ", expected 0 to 65536";
  }
  if (limits.m_max < 0 || limits.n_max < 0 || limits.k_max < 0 || limits.n_multiple < 0 ||
      limits.k_multiple < 0) {
    return "a largest dimension or a multiple is negative";
  }
  if (limits.x_zero_point_min > limits.x_zero_point_max ||
      limits.w_zero_point_min > limits.w_zero_point_max ||
      limits.out_zero_point_min > limits.out_zero_point_max) {
    return "a zero point range is empty";
  }
  return "";
}

std::string OutsideLimits(const PluginLimits& limits, const Case& c) {
  const bool has_w = HasW(c.op);
  const Window& v = c.window;
  const auto lacks = [&](uint32_t feature) { return (limits.features & feature) == 0; };
  if (HasFloatX(c) && lacks(QUALM_CAN_FLOAT_X)) return std::string(kOfFloatX);
  if (IsScaledCast(c) && lacks(QUALM_CAN_CAST_SCALES)) return std::string(kOfScaledCasts);
  if (c.codes && lacks(kCanGiveCodes)) return std::string(kWithCodes);
  if (c.w_block != 0 && lacks(QUALM_CAN_PER_BLOCK)) return std::string(kInBlocks);
  if (c.x_block != 0 && lacks(QUALM_CAN_X_PER_BLOCK))
    return std::string(HasElementBlocks(c) ? kElementsInBlocks : kXInBlocks);
  if (!Has(limits.x_dtypes, c.x.dtype())) return "x of type " + std::string(Name(c.x.dtype()));
  if (has_w && !Has(limits.w_dtypes, c.w.dtype()))
    return "w of type " + std::string(Name(c.w.dtype()));
  if (!Has(limits.out_dtypes, c.out_dtype))
    return "output of type " + std::string(Name(c.out_dtype));
  if (c.bias && lacks(QUALM_CAN_BIAS_F32)) return "float bias";
  if (c.bias_i32 && lacks(QUALM_CAN_BIAS_I32)) return "int32 bias";
  if (c.relu && lacks(QUALM_CAN_RELU)) return "fused relu";
  if (c.per_channel && lacks(QUALM_CAN_PER_CHANNEL)) return "parameters per channel";
  if (c.x_gran == Granularity::kRow && lacks(QUALM_CAN_PER_ROW)) return "parameters per row";
  if ((c.M == 0 || c.N == 0) && lacks(QUALM_CAN_EMPTY)) return "empty output";
  if (HasWeights(c.op) && c.K == 0 && lacks(QUALM_CAN_EMPTY_K)) return "K = 0";
  if ((v.dilation_h != 1 || v.dilation_w != 1) && lacks(QUALM_CAN_DILATION)) return "dilation";
  if (v.groups != 1 && !RowOf(c.op).depthwise && lacks(QUALM_CAN_GROUPS)) return "groups";
  if ((v.pad_top != v.pad_bottom || v.pad_left != v.pad_right) &&
      lacks(QUALM_CAN_ASYMMETRIC_PADDING)) {
    return "padding that differs between two sides";
  }
  if (v.ceil_mode && lacks(QUALM_CAN_CEIL_MODE)) return "ceil mode";
  if (v.count_include_pad && lacks(QUALM_CAN_COUNT_PADDING)) return "padding that counts";
  if (const CodeRange range = RangeOf(c.out_dtype);
      (c.out_min != range.min || c.out_max != range.max) && lacks(QUALM_CAN_CLAMP)) {
    return "clamp other than the range of the output type";
  }

  std::string why = CheckDim("M", c.M, limits.m_max, 1);
  if (why.empty()) why = CheckDim("N", c.N, limits.n_max, limits.n_multiple);
  if (why.empty() && !RowOf(c.op).whole_image)
    why = CheckDim("K", c.K, limits.k_max, limits.k_multiple);
  if (why.empty() && IsCode(c.x.dtype()))
    why = CheckZeroPoints("x", c.x_q, limits.x_zero_point_min, limits.x_zero_point_max);
  if (why.empty() && has_w)
    why = CheckZeroPoints("w", c.w_q, limits.w_zero_point_min, limits.w_zero_point_max);
  if (why.empty() && IsCode(c.out_dtype))
    why = CheckZeroPoints("out", c.out_q, limits.out_zero_point_min, limits.out_zero_point_max);
  return why;
}

namespace {

constexpr StateLimit kDenseRows{"takes dense rows only (no QUALM_CAN_STRIDES)", QUALM_CAN_STRIDES};
// The host makes the rest of the state around a plugin's call.
constexpr StateLimits kAroundACall = std::to_array<StateLimit>(
    {{""},        // align_offset
     {""},        // end_at_guard
     {""},        // poison
     kDenseRows,  // x_row_gap
     kDenseRows,  // y_row_gap
     {"does not run in place (no QUALM_CAN_IN_PLACE)", QUALM_CAN_IN_PLACE},
     {"takes dense weights only (no QUALM_CAN_WEIGHT_STRIDES)", QUALM_CAN_WEIGHT_STRIDES},
     {"takes dense lines of images only (no QUALM_CAN_LINE_STRIDES)", QUALM_CAN_LINE_STRIDES},
     {"does not write over the second operand (no QUALM_CAN_OVER_SECOND)", QUALM_CAN_OVER_SECOND},
     {""},  // shared_inputs
     {""},  // calls
     {"is called by one thread at a time (no QUALM_CAN_CONCURRENT)", QUALM_CAN_CONCURRENT},
     {""},  // watch
     {"is not told how many threads to use (no QUALM_CAN_THREADS)", QUALM_CAN_THREADS},
     {""},    // rounding
     {""},    // flush_denormals
     {""}});  // want_acc

}  // namespace

std::string OutsideLimits(const PluginLimits& limits, const Case& c, const RunContext& context) {
  if (context.in_place && !CanRunInPlace(c.op)) {
    return std::string(Name(c.op)) + " does not run in place";
  }
  return Refused(kAroundACall, context, limits.features);
}

namespace {

// Bit i: the parameter that ForEachParameter visits after i others is told.
uint64_t BitsOf(std::span<const std::string_view> told) {
  thread_local std::span<const std::string_view> known;
  thread_local uint64_t bits = 0;
  if (known.data() == told.data() && known.size() == told.size()) return bits;
  known = told;
  bits = 0;
  const Case any;
  uint64_t bit = 1;
  ForEachParameter(any, [&](const Field& field, const auto& /*value*/) {
    if (std::ranges::find(told, field.name) != told.end()) bits |= bit;
    bit <<= 1;
  });
  return bits;
}

}  // namespace

std::string NotTold(std::span<const std::string_view> told, const Case& c) {
  static const Case without;
  // Every question to a plugin asks this, and few cases have an answer other than "". So first the
  // parameters are compared as bits of a number, without their names.
  uint64_t set = 0, bit = 1;
  ForEachParameter(c, without, [&](const Field& /*field*/, const auto& value, const auto& nothing) {
    set |= value == nothing ? 0 : bit;
    bit <<= 1;
  });
  if ((set & ~BitsOf(told)) == 0) return "";
  std::string missing;
  ForEachParameter(c, without, [&](const Field& field, const auto& value, const auto& nothing) {
    if (!missing.empty() || value == nothing || std::ranges::find(told, field.name) != told.end())
      return;
    missing = field.name == "requant" ? "requantization " + std::string(Name(c.requant))
                                      : std::string(field.name);
  });
  return missing;
}

}  // namespace qualm
