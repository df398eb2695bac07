// SPDX-License-Identifier: Apache-2.0
// plugin:PATH.so: anybody's kernels behind the C interface of adapters/qualm_plugin.h.
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "adapters/limits.h"
#include "adapters/plugin_subjects.h"
#include "core/contract.h"
#include "core/status.h"

namespace qualm {
namespace {

constexpr std::string_view kPrefix = "plugin:";

// Bytes of everything that a run sends and receives.
uint64_t ProblemBytes(const Case& c) {
  const auto outputs = static_cast<uint64_t>(c.M) * static_cast<uint64_t>(c.N);
  const uint64_t lists = c.multiplier.size() + c.w_q.scale.size() + c.w_q.zero_point.size() +
                         c.out_q.scale.size() + c.out_q.zero_point.size() +
                         2 * static_cast<uint64_t>(c.N);
  return c.x.bytes().size() + c.w.bytes().size() + 8 * outputs + 4 * lists + 4096;
}

}  // namespace

std::string FindPlugin(const std::string& file) {
  const auto readable = [](const std::string& path) { return access(path.c_str(), R_OK) == 0; };
  // dlopen searches the system's folders for a name without a '/'.
  if (file.find('/') != std::string::npos) return readable(file) ? file : "";
  if (readable("./" + file)) return "./" + file;
  if (const char* folder = std::getenv("QUALM_PLUGIN_DIR")) {
    if (const std::string path = std::string(folder) + "/" + file; readable(path)) return path;
  }
  for (const std::string_view folder : {"", "../lib/", QUALM_MODULES_FROM_BIN "/"}) {
    const std::string path = ExecutableFolder() + std::string(folder) + file;
    if (readable(path)) return path;
  }
  return "";
}

PluginSubject::PluginSubject(std::string name, WorkerOptions options)
    : name_(std::move(name)), worker_(std::move(options)) {
  try {
    set_contract(ParseContract(info().contract));
  } catch (const InputError&) {
    throw Unavailable("subject '" + name_ + "': its contract '" + info().contract +
                      "' is none, expected exact or model:NAME");
  }
}

namespace {

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

void CountHang(const std::string& name) {
  const std::scoped_lock lock(hangs_mutex);
  ++Hangs()[name];
}

}  // namespace

std::string PluginSubject::CannotRun(const Case& c) const {
  const std::optional<PluginLimits>& limits = info().limits[static_cast<size_t>(c.op)];
  if (!limits) return info().name + " does not offer " + std::string(Name(c.op));
  if (std::string why = GivenUp(name_); !why.empty()) return why;
  if (ProblemBytes(c) > kMessageBytesMax)
    return "larger than the worker takes (" + std::to_string(kMessageBytesMax >> 20) + " MiB)";
  // Not in the interface: a library requantizes in the one way it has.
  if (c.requant != Requant::kExact)
    return "plugins have no requantization " + std::string(Name(c.requant));
  const std::string why = OutsideLimits(*limits, c);
  return why.empty() ? "" : info().name + " does not offer " + why;
}

Outcome PluginSubject::Run(const Case& c, const RunContext& context) {
  if (std::string why = CannotRun(c); !why.empty()) {
    Outcome skipped;
    skipped.status = RunStatus::kSkipped;
    skipped.detail = std::move(why);
    return skipped;
  }
  Outcome outcome = worker_.Run(c, context);
  if (outcome.status == RunStatus::kHung) CountHang(name_);
  return outcome;
}

std::string PluginSubject::InstructionSet() const {
  return info().instruction_set.empty() ? "unknown" : info().instruction_set;
}

std::string PluginSubject::Version() const {
  return info().version.empty() ? info().name : info().name + " " + info().version;
}

namespace {

// QUALM_TIME_LIMIT_MS, for what is slow and for tests that wait for hangs.
int TimeLimitMs() {
  const char* text = std::getenv("QUALM_TIME_LIMIT_MS");
  if (text == nullptr) return WorkerOptions{}.time_limit_ms;
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

}  // namespace

void RegisterPluginSubjects() {
  SubjectKind kind;
  kind.kind = "plugin";
  kind.help = "plugin:PATH.so  a shared object with the C interface of adapters/qualm_plugin.h";
  kind.names = [] { return std::vector<std::string>{}; };  // any path: none to list
  kind.make = [](const std::string& name) -> std::unique_ptr<Subject> {
    if (!name.starts_with(kPrefix) || name.size() == kPrefix.size()) return nullptr;
    const std::string file = name.substr(kPrefix.size());
    WorkerOptions options;
    options.time_limit_ms = TimeLimitMs();
    options.plugin = FindPlugin(file);
    if (options.plugin.empty()) throw Unavailable("subject '" + name + "': no such file");
    return std::make_unique<PluginSubject>(name, std::move(options));
  };
  SubjectRegistry::Get().Add(std::move(kind));
}

}  // namespace qualm
