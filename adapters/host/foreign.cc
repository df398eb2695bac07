// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/foreign.h"

#include <array>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>

#include "core/contract.h"
#include "core/memory_limit.h"
#include "core/status.h"

namespace qualm {
namespace {

// What costs seconds each time, and how often it may happen in this process to a subject.
enum class Costly : uint8_t { kHang, kMemory, kFile };
struct CostlyRow {
  const char* what;
  int most;
};
constexpr std::array<CostlyRow, 3> kCostly{
    {{"hung", 3}, {"took all its memory", 10}, {"filled a file", 3}}};

// By name of the subject, over all its instances.
std::mutex counts_mutex;
std::atomic<bool> any_counts = false;  // most subjects never do, and are asked often
using Counts = std::array<int, kCostly.size()>;
std::map<std::string, Counts>& AllCounts() {
  static std::map<std::string, Counts> counts;
  return counts;
}

void Count(const std::string& name, Costly costly) {
  const std::scoped_lock lock(counts_mutex);
  ++AllCounts()[name][static_cast<size_t>(costly)];
  any_counts = true;
}

std::string GivenUp(const std::string& name) {
  if (!any_counts) return "";
  const std::scoped_lock lock(counts_mutex);
  const auto at = AllCounts().find(name);
  if (at == AllCounts().end()) return "";
  for (size_t i = 0; i < kCostly.size(); ++i) {
    const auto& [what, most] = kCostly[i];
    if (at->second[i] >= most) {
      return "given up: it " + std::string(what) + " " + std::to_string(most) +
             " times in this run";
    }
  }
  return "";
}

}  // namespace

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

uint64_t MemoryLimitBytes(uint64_t standard) {
  const char* text = std::getenv(kMemoryLimitVariable);
  return text == nullptr ? standard : ParseMemoryLimit(text, kMemoryLimitVariable);
}

void SetNames(SubjectKind& kind, std::vector<std::string> names) {
  kind.expand = [names, all = kind.kind + "@all"](const std::string& pattern) {
    return pattern == all ? names : std::vector<std::string>{};
  };
  kind.names = [names = std::move(names)] { return names; };
}

void ForeignSubject::RequireInstructionSet(std::string_view wanted, std::string_view library,
                                           std::string_view forced) const {
  if (wanted.empty() || InstructionSet() == wanted) return;
  throw Unavailable("subject '" + name_ + "': " + std::string(library) + " uses " +
                    InstructionSet() + " instead: this CPU, or this " + std::string(library) +
                    ", has no " + std::string(forced));
}

void ForeignSubject::AdoptContract() {
  try {
    set_contracts(ParseContracts(info().contract));
  } catch (const InputError&) {
    throw Unavailable(
        "subject '" + name_ + "': its contract '" + info().contract + "' is none, " +
        (info().contract.starts_with("model:")
             ? std::string("because no convention here describes this arithmetic")
             : "expected " + std::string(kContractForms) + ", and OP=CONTRACT for one operation"));
  }
}

std::string ForeignSubject::CannotRun(const Case& c) const {
  const std::optional<PluginLimits>& limits = info().limits[static_cast<size_t>(c.op)];
  if (!limits) return info().name + " does not offer " + std::string(Name(c.op));
  if (std::string why = GivenUp(name_); !why.empty()) return why;
  if (std::string why = CannotSend(c); !why.empty()) return why;
  const std::string why = OutsideLimits(*limits, c);
  if (!why.empty()) return info().name + " does not offer " + why;
  return limits->w_formats != 0 ? WhyNotInFormats(limits->w_formats, c) : "";
}

Case ForeignSubject::Inside(const Case& c) const {
  const std::optional<PluginLimits>& limits = info().limits[static_cast<size_t>(c.op)];
  return limits && limits->w_formats != 0 ? InsideFormats(limits->w_formats, c) : c;
}

Outcome ForeignSubject::Run(const Case& c, const RunContext& context) {
  if (std::string why = CannotRun(c); !why.empty()) return Skipped(std::move(why));
  return Confirmed(RunRaw(c, context), c, context);
}

Outcome ForeignSubject::Confirmed(Outcome outcome, const Case& c, const RunContext& context) {
  if (outcome.detail.starts_with(kFilledAFile)) Count(name_, Costly::kFile);
  const bool ended = outcome.status == RunStatus::kCrashed || outcome.status == RunStatus::kHung ||
                     outcome.status == RunStatus::kLeftBehind;
  if (ended && took_its_memory()) {
    Count(name_, Costly::kMemory);
    if (outcome.status == RunStatus::kCrashed && outcome.detail.find("memory") == std::string::npos)
      outcome.detail += ", when it had taken most of the memory that it may have (see --memory)";
  }
  if (outcome.status != RunStatus::kHung) return outcome;
  if (machine_was_busy()) outcome = RunRaw(c, context);
  if (outcome.status == RunStatus::kHung) Count(name_, Costly::kHang);
  return outcome;
}

std::string ForeignSubject::InstructionSet() const {
  return info().instruction_set.empty() ? "unknown" : info().instruction_set;
}

std::string ForeignSubject::Version() const {
  return info().version.empty() ? info().name : info().name + " " + info().version;
}

std::string ForeignSubject::domain_text() const {
  std::string text;
  for (const Op op : AllOps()) {
    std::istringstream entries(info().domains[static_cast<size_t>(op)]);
    for (std::string entry; std::getline(entries, entry, ';');) {
      if (entry.find_first_not_of(' ') != std::string::npos)
        text += std::string(Name(op)) + " " + entry + "\n";
    }
  }
  return text;
}

Outcome Skipped(std::string why) { return Bad(RunStatus::kSkipped, std::move(why)); }

}  // namespace qualm
