// SPDX-License-Identifier: Apache-2.0
// The parent's side of foreign code: a qualm-worker process with one plugin in it, started with its
// environment already set, watched, and replaced when it dies. Nothing foreign is ever loaded here.
//
// The case in flight is held here while the plugin runs it, and this process survives whatever the
// plugin does. So a crash or a hang is reported with its case, and no file is needed for that.
#ifndef QUALM_ADAPTERS_HOST_WORKER_H_
#define QUALM_ADAPTERS_HOST_WORKER_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adapters/host/child_process.h"
#include "adapters/host/worker_message.h"
#include "core/case.h"
#include "core/executable.h"
#include "core/patience.h"
#include "core/subject.h"

namespace qualm {

struct WorkerOptions {
  std::string plugin;              // path of the shared object
  EnvironmentChanges environment;  // see ChildOptions
  int time_limit_ms = 10'000;      // for loading, and for each run
  // The most memory that it can write: then its allocations fail (not under sanitizers, which
  // cannot live with a limit). With a quarter more at one time it is killed.
  uint64_t memory_limit_bytes = kMemoryLimitBytes;
};

// Not thread-safe: one per thread. Each has its own process.
class Worker {
 public:
  // Starts the worker and loads the plugin. Throws Unavailable, with a sentence that says what to
  // do, if there is no worker executable or the file is no plugin of this version, crashes or
  // hangs while it is loaded.
  explicit Worker(WorkerOptions options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  const PluginInfo& info() const { return info_; }

  // Never throws for what the plugin does. After a crash, a hang or garbage the next call starts a
  // new process.
  Outcome Run(const Case& c, const RunContext& context);

  // The last hang may be the machine's, not the plugin's.
  bool machine_was_busy() const { return patience_.machine_was_busy(); }

  // The last run ended its process, which had taken most of the memory that it may have.
  bool took_its_memory() const { return took_its_memory_; }

  // 0 if none is running.
  pid_t pid() const { return process_ ? process_->pid() : 0; }

 private:
  void Start();
  void Spawn(const std::string& worker_path);
  // The next message. kTimeout once the worker has had its time; kClosed also where the worker has
  // ended and a process that it left behind holds the connection.
  MessageChannel::Result Receive(size_t bytes_max);
  Outcome Ask(const Case& c, const RunContext& context);
  // Ends the process, and says in a sentence how it ended. `dying`: the process is about to end by
  // itself, and is waited for first.
  std::string EndAndReap(bool dying);
  Outcome Failed(MessageChannel::Result result);
  Outcome FromTrap(const Trap& trap);

  WorkerOptions options_;
  PluginInfo info_;
  std::optional<ChildProcess> process_;
  FileDescriptor socket_;
  uint64_t sequence_ = 0;
  std::optional<Mailboxes> mailboxes_;
  int64_t answers_ = 0;          // of this process
  size_t largest_question_ = 0;  // that it was sent, in bytes
  bool took_its_memory_ = false;
  int status_ = 0;     // of the process that ended last, as wait(2) gives it
  std::string taken_;  // of which it had too much, when it was last waited for
  Patience patience_;
  std::optional<MessageChannel> channel_;
  std::vector<uint8_t> payload_;
};

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_WORKER_H_
