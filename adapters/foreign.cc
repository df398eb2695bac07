// SPDX-License-Identifier: Apache-2.0
#include "adapters/foreign.h"

#include <charconv>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "adapters/qualm_plugin.h"
#include "core/contract.h"
#include "core/status.h"

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
  if (multiple > 1 && dim % multiple != 0) {
    return std::string(name) + " = " + std::to_string(dim) + " is no multiple of " +
           std::to_string(multiple);
  }
  return "";
}

// Hangs of each subject in this process, whatever its instances: they cost seconds each.
constexpr int kMostHangs = 3;
std::mutex hangs_mutex;
std::map<std::string, int>& Hangs() {
  static std::map<std::string, int> hangs;
  return hangs;
}

std::string GivenUp(const std::string& name) {
  const std::scoped_lock lock(hangs_mutex);
  const auto at = Hangs().find(name);
  if (at == Hangs().end() || at->second < kMostHangs) return "";
  return "given up: it hung " + std::to_string(kMostHangs) + " times in this run";
}

}  // namespace

std::string OutsideLimits(const PluginLimits& limits, const Case& c) {
  const bool has_w = HasW(c.op);
  const Window& v = c.window;
  const auto lacks = [&](uint32_t feature) { return (limits.features & feature) == 0; };
  if (!Has(limits.x_dtypes, c.x.dtype())) return "x of type " + std::string(Name(c.x.dtype()));
  if (has_w && !Has(limits.w_dtypes, c.w.dtype()))
    return "w of type " + std::string(Name(c.w.dtype()));
  if (!Has(limits.out_dtypes, c.out_dtype))
    return "output of type " + std::string(Name(c.out_dtype));
  if (c.bias && lacks(QUALM_CAN_BIAS_F32)) return "float bias";
  if (c.bias_i32 && lacks(QUALM_CAN_BIAS_I32)) return "int32 bias";
  if (c.relu && lacks(QUALM_CAN_RELU)) return "fused relu";
  if (c.per_channel && lacks(QUALM_CAN_PER_CHANNEL)) return "parameters per channel";
  if ((c.M == 0 || c.N == 0) && lacks(QUALM_CAN_EMPTY)) return "empty output";
  if (HasSums(c.op) && c.K == 0 && lacks(QUALM_CAN_EMPTY_K)) return "K = 0";
  if ((v.dilation_h != 1 || v.dilation_w != 1) && lacks(QUALM_CAN_DILATION)) return "dilation";
  if (c.op == Op::kConv2d && v.groups != 1 && lacks(QUALM_CAN_GROUPS)) return "groups";
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
  if (why.empty() && c.op != Op::kGlobalAvgPool)
    why = CheckDim("K", c.K, limits.k_max, limits.k_multiple);
  if (why.empty() && IsCode(c.x.dtype()))
    why = CheckZeroPoints("x", c.x_q, limits.x_zero_point_min, limits.x_zero_point_max);
  if (why.empty() && has_w)
    why = CheckZeroPoints("w", c.w_q, limits.w_zero_point_min, limits.w_zero_point_max);
  if (why.empty() && IsCode(c.out_dtype))
    why = CheckZeroPoints("out", c.out_q, limits.out_zero_point_min, limits.out_zero_point_max);
  return why;
}

int TimeLimitMs(int standard) {
  const char* text = std::getenv("QUALM_TIME_LIMIT_MS");
  if (text == nullptr) return standard;
  constexpr int kMost = 3'600'000;
  const std::string_view digits(text);
  int limit = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), limit);
  if (error != std::errc() || end != digits.data() + digits.size() || limit < 1 || limit > kMost) {
    throw InputError("QUALM_TIME_LIMIT_MS: '" + std::string(digits) +
                     "' is no time limit, expected milliseconds in 1.." + std::to_string(kMost));
  }
  return limit;
}

void ForeignSubject::AdoptContract() {
  try {
    set_contract(ParseContract(info().contract));
  } catch (const InputError&) {
    throw Unavailable("subject '" + name_ + "': its contract '" + info().contract +
                      "' is none, expected exact or model:NAME");
  }
}

std::string ForeignSubject::CannotRun(const Case& c) const {
  const std::optional<PluginLimits>& limits = info().limits[static_cast<size_t>(c.op)];
  if (!limits) return info().name + " does not offer " + std::string(Name(c.op));
  if (std::string why = GivenUp(name_); !why.empty()) return why;
  if (std::string why = CannotSend(c); !why.empty()) return why;
  const std::string why = OutsideLimits(*limits, c);
  return why.empty() ? "" : info().name + " does not offer " + why;
}

Outcome ForeignSubject::Run(const Case& c, const RunContext& context) {
  if (std::string why = CannotRun(c); !why.empty()) return Skipped(std::move(why));
  Outcome outcome = Send(c, context);
  if (outcome.status == RunStatus::kHung) CountHang();
  return outcome;
}

std::string ForeignSubject::InstructionSet() const {
  return info().instruction_set.empty() ? "unknown" : info().instruction_set;
}

std::string ForeignSubject::Version() const {
  return info().version.empty() ? info().name : info().name + " " + info().version;
}

void ForeignSubject::CountHang() const {
  const std::scoped_lock lock(hangs_mutex);
  ++Hangs()[name_];
}

Outcome Skipped(std::string why) {
  Outcome outcome;
  outcome.status = RunStatus::kSkipped;
  outcome.detail = std::move(why);
  return outcome;
}

}  // namespace qualm
