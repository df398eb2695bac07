// SPDX-License-Identifier: Apache-2.0
// The declared limits of somebody else's kernel, and the reasons why a case is not given to it.
#ifndef QUALM_ADAPTERS_HOST_PLUGIN_LIMITS_H_
#define QUALM_ADAPTERS_HOST_PLUGIN_LIMITS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "adapters/host/block_formats.h"
#include "core/case.h"
#include "core/io/pipe_json.h"
#include "core/subject.h"

namespace qualm {

// Limits of one operation; fields and their meaning as in qualm_capability
// (adapters/qualm_plugin.h).
struct PluginLimits {
  uint32_t x_dtypes = 0;
  uint32_t w_dtypes = 0;
  uint32_t out_dtypes = 0;
  uint32_t features = 0;
  int64_t m_max = 0;
  int64_t n_max = 0;
  int64_t k_max = 0;
  int64_t n_multiple = 0;
  int64_t k_multiple = 0;
  int32_t x_zero_point_min = 0;
  int32_t x_zero_point_max = 0;
  int32_t w_zero_point_min = 0;
  int32_t w_zero_point_max = 0;
  int32_t out_zero_point_min = 0;
  int32_t out_zero_point_max = 0;
  int32_t read_slack_bytes = 0;
  int32_t alignment_bytes = 0;
  FormatSet w_formats = 0;

  // Linear, quantize or dequantize of these formats, and of nothing else.
  void TakeFormats(FormatSet formats, Op op = Op::kLinear);
};

// Every case that can be told at all.
PluginLimits AllCases();

// No flag of plugins: programs and Python functions may say that their choose_qparams gives codes.
inline constexpr uint32_t kCanGiveCodes = uint32_t{1} << 31;

// The flag QUALM_CAN_... of a feature that programs and Python functions declare by its name.
uint32_t FeatureBit(PipeFeature feature);

// "" or that a zero point is no code of the type of its tensor: what is meant where no range is
// stated.
std::string BeyondCodes(std::string_view field, const QParams& q, DType dtype);

// "" or what is wrong with the limits themselves: "FIELD is what, expected what".
std::string WrongLimits(const PluginLimits& limits);

// Why the limits rule out a case, "" if they do not.
std::string OutsideLimits(const PluginLimits& limits, const Case& c);
// The reason why the limits rule out the places of the data or the state around the call that
// `context` asks for, "" if they do not.
std::string OutsideLimits(const PluginLimits& limits, const Case& c, const RunContext& context);

// The parameters of a case that the C interface of plugins has a field for; plugin_host.cc fills
// the fields.
inline constexpr std::array<std::string_view, 19> kToldToPlugins{
    "multiplier",   "bias",         "bias_i32",
    "relu",         "ceil_mode",    "count_include_pad",
    "function",     "symmetric",    "negative_slope",
    "reduce_range", "dtype",        "quant_min",
    "quant_max",    "qparams_rule", "x_gran",
    "w_block",      "x_block",      "rounding",
    "overflow"};
// The parameters that a program behind a pipe and a C++ function (adapters/function_subject.h) are
// told: docs/pipe.md lists the keys.
inline constexpr std::array<std::string_view, 22> kToldWithCases = [] {
  std::array<std::string_view, 22> told{"observer", "averaging_constant", "codes"};
  for (size_t i = 0; i < kToldToPlugins.size(); ++i) told[3 + i] = kToldToPlugins[i];
  return told;
}();
// The first parameter that is not the default and that the code of others is never told, "" if
// there is none. Code that is older than the parameter would be judged wrong for ignoring it, so a
// new parameter is refused until its interface tells it. `told` is one of the lists above, or
// another that lives as long as the program: what it tells is remembered by its address.
std::string NotTold(std::span<const std::string_view> told, const Case& c);

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_PLUGIN_LIMITS_H_
