// SPDX-License-Identifier: Apache-2.0
#include "adapters/function_subject.h"

#include <algorithm>

#include "core/status.h"

namespace qualm {

FunctionSubject::FunctionSubject(std::string name, Op op, PluginLimits limits, Function function)
    : name_(std::move(name)), op_(op), limits_(limits), function_(std::move(function)) {
  if (name_.empty() || name_.find_first_of(":@") != std::string::npos) {
    throw InputError("subject '" + name_ + "': is no name, expected one without ':' and '@'");
  }
  if (const std::string wrong = WrongLimits(limits_); !wrong.empty()) {
    throw InputError("subject '" + name_ + "': " + wrong);
  }
}

std::string FunctionSubject::CannotRun(const Case& c) const {
  if (c.op != op_) return name_ + " does not offer " + std::string(Name(c.op));
  if (const std::string missing = NotTold(kToldWithCases, c); !missing.empty())
    return name_ + " has no " + missing;
  const std::string why = OutsideLimits(limits_, c);
  return why.empty() ? "" : name_ + " does not offer " + why;
}

Outcome FunctionSubject::Run(const Case& c, const RunContext& context) {
  if (std::string why = OutsideLimits(limits_, c, context); !why.empty()) {
    return {RunStatus::kSkipped, name_ + " " + why, {}, std::nullopt};
  }
  return InProcessSubject::Run(c, context);
}

std::string FunctionSubject::Execute(const Placed& placed, const RunContext& /*context*/) {
  function_(placed);
  return "";
}

// The limits decide the rest (Run). A function is one call: it packs no layer.
std::string FunctionSubject::CannotRunAs(const Case& /*c*/, const RunContext& context) const {
  return context.calls > 1 || context.callers > 1 ? "packs afresh for each call" : "";
}

BufferNeeds FunctionSubject::Needs() const {
  return {static_cast<size_t>(std::max(limits_.read_slack_bytes, 0)),
          static_cast<size_t>(std::max(limits_.alignment_bytes, 1))};
}

}  // namespace qualm
