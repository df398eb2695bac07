// SPDX-License-Identifier: Apache-2.0
// plugin:PATH.so: anybody's kernels behind the C interface of adapters/qualm_plugin.h.
//
// The way of a case, file by file: plugin.cc (PluginSubject::RunRaw) -> worker.cc (Worker::Run:
// this process still; sends it to qualm-worker) -> plugin_host.cc, inside qualm-worker: Serve
// receives it, PluginHost::Run lays it between guard pages, PluginHost::Ask calls the plugin's
// run(). What goes back is an Outcome; the messages of both directions are those of
// worker_message.h.
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "adapters/host/plugin_limits.h"
#include "adapters/host/plugin_subjects.h"
#include "core/finding.h"
#include "core/status.h"

namespace qualm {
namespace {

constexpr std::string_view kPrefix = "plugin:";

// Bytes of everything that a run sends and receives.
uint64_t ProblemBytes(const Case& c) {
  const auto outputs = static_cast<uint64_t>(c.M) * static_cast<uint64_t>(c.N);
  return c.x.bytes().size() + c.w.bytes().size() + 8 * outputs + 4 * ListedValues(c) + 4096;
}

bool IsReadable(const std::string& path) { return access(path.c_str(), R_OK) == 0; }

}  // namespace

std::string FindModule(const std::string& file) {
  if (const char* folder = std::getenv("QUALM_PLUGIN_DIR")) {
    if (std::string path = std::string(folder) + "/" + file; IsReadable(path)) return path;
  }
  for (const std::string_view folder :
       {"", "../lib/", QUALM_MODULES_FROM_BIN "/", QUALM_DATA_FROM_BIN "/"}) {
    if (std::string path = ExecutableFolder() + std::string(folder) + file; IsReadable(path))
      return path;
  }
  return "";
}

std::string FindPlugin(const std::string& file) {
  // dlopen searches the system's folders for a name without a '/'.
  if (file.find('/') != std::string::npos) return IsReadable(file) ? file : "";
  return IsReadable("./" + file) ? "./" + file : FindModule(file);
}

PluginSubject::PluginSubject(std::string name, WorkerOptions options)
    : ForeignSubject(std::move(name)), worker_(std::move(options)) {
  AdoptContract();
}

std::string PluginSubject::CannotSend(const Case& c) const {
  if (ProblemBytes(c) > kMessageBytesMax)
    return "larger than the worker takes (" + std::to_string(kMessageBytesMax >> 20) + " MiB)";
  // Plugins are older than these rules, and say nothing of rules.
  const std::string missing = IsMx(c.rule) ? std::string(kOfMxScales) : NotTold(kToldToPlugins, c);
  return missing.empty() ? "" : "plugins have no " + missing;
}

Outcome PluginSubject::RunRaw(const Case& c, const RunContext& context) {
  return worker_.Run(c, context);
}

void RegisterPluginSubjects() {
  SubjectKind kind;
  kind.kind = "plugin";
  kind.help = "plugin:PATH.so  a shared object with the C interface of adapters/qualm_plugin.h";
  kind.names = [] { return std::vector<std::string>{}; };  // any path: none to list
  kind.make = [](const std::string& name) -> std::unique_ptr<Subject> {
    if (!name.starts_with(kPrefix) || name.size() == kPrefix.size()) return nullptr;
    const std::string file = name.substr(kPrefix.size());
    WorkerOptions options;
    options.time_limit_ms = TimeLimitMs(options.time_limit_ms);
    options.memory_limit_bytes = MemoryLimitBytes(options.memory_limit_bytes);
    options.plugin = FindPlugin(file);
    if (options.plugin.empty()) throw Unavailable("subject '" + name + "': no such file");
    auto subject = std::make_unique<PluginSubject>(name, std::move(options));
    SetLastingName(name, "plugin-" + subject->Version());
    return subject;
  };
  SubjectRegistry::Get().Add(std::move(kind));
}

}  // namespace qualm
