// SPDX-License-Identifier: Apache-2.0
// What a kernel that is not ours can do of one operation, and why a case is not asked of it.
#ifndef QUALM_ADAPTERS_HOST_PLUGIN_LIMITS_H_
#define QUALM_ADAPTERS_HOST_PLUGIN_LIMITS_H_

#include <cstdint>
#include <string>

#include "core/case.h"
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
};

// "" or what is wrong with the limits themselves: "FIELD is what, expected what".
std::string WrongLimits(const PluginLimits& limits);

// Why the limits rule out a case, "" if they do not.
std::string OutsideLimits(const PluginLimits& limits, const Case& c);
// Why the limits rule out where `context` wants the data and which state it sets around the call,
// "" if they do not.
std::string OutsideLimits(const PluginLimits& limits, const Case& c, const RunContext& context);

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_PLUGIN_LIMITS_H_
