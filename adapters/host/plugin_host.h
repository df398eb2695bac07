// SPDX-License-Identifier: Apache-2.0
// The worker's side of a plugin: loads the shared object, lays each problem out between guard
// pages, calls the plugin, and checks the memory afterwards. Only qualm-worker links this.
#ifndef QUALM_ADAPTERS_HOST_PLUGIN_HOST_H_
#define QUALM_ADAPTERS_HOST_PLUGIN_HOST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "adapters/host/placement.h"
#include "adapters/host/traces.h"
#include "adapters/host/worker_message.h"
#include "adapters/qualm_plugin.h"
#include "core/case.h"
#include "core/subject.h"

namespace qualm {

class PluginHost {
 public:
  // Throws Unavailable with a sentence if the file is no plugin of this ABI version.
  explicit PluginHost(const std::string& path);

  const PluginInfo& info() const { return info_; }

  // A crash inside ends the process: the parent sees that.
  Outcome Run(const Case& c, const RunContext& context);

 private:
  qualm_qparams LayQParams(Placement::Slot scale_slot, const QParams& q);
  Outcome CallOften(const qualm_problem& problem, const RunContext& context);
  Outcome CallTogether(const qualm_problem& problem, const RunContext& context);
  Outcome CallBesideOthers(const qualm_problem& problem, const RunContext& context);
  Outcome Call(const qualm_problem& problem, const RunContext& context);
  // What run() answered, or what it did instead. May be called by several threads at once; the
  // plugin is asked for its last error only in OutcomeOf.
  using Answer = std::variant<int32_t, Outcome>;
  Answer Ask(const qualm_problem& problem, const RunContext& context);
  Outcome OutcomeOf(Answer given);
  // Bytes behind a tensor that the plugin may read.
  size_t SlackOf(const qualm_problem& problem) const;

  qualm_plugin plugin_{};
  PluginInfo info_;
  Placement placement_;
  std::optional<ProcessState> state_;  // before the first call
};

// From now on a SIGSEGV, SIGBUS, SIGFPE or SIGILL first sends a Trap to `fd` and wakes the reader
// of `mailbox`, then kills.
void ReportTrapsTo(int fd, Mailbox* mailbox);

// Body of qualm-worker: `qualm-worker PLUGIN.so TIME_LIMIT_MS MEMORY_LIMIT_BYTES`, connected to its
// parent through kWorkerFd. Returns the exit status.
int WorkerMain(int argc, char** argv);

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_PLUGIN_HOST_H_
