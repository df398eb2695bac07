// SPDX-License-Identifier: Apache-2.0
// The worker's side of a plugin: loads the shared object, lays each problem out between guard
// pages, calls it, and looks at what it touched. Only qualm-worker links this.
#ifndef QUALM_ADAPTERS_HOST_PLUGIN_HOST_H_
#define QUALM_ADAPTERS_HOST_PLUGIN_HOST_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "adapters/host/arena.h"
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
  // Everything that run() may look at, each in a mapping of its own.
  enum Slot : uint8_t {
    kX,
    kW,
    kXScale,
    kXZeroPoint,
    kWScale,
    kWZeroPoint,
    kOutScale,
    kOutZeroPoint,
    kMultiplier,
    kBias,
    kBiasI32,
    kInputs,  // those before it are inputs
    kY = kInputs,
    kAcc,
    kSlots
  };
  static const std::array<const char*, kSlots> kSlotNames;

  uint8_t* Lay(Slot slot, size_t bytes, size_t element_bytes, const PluginLimits& limits,
               const RunContext& context);
  template <class T>
  const T* LayList(Slot slot, const std::vector<T>& values, const PluginLimits& limits,
                   const RunContext& context);
  qualm_qparams LayQParams(Slot scale_slot, const QParams& q, const PluginLimits& limits,
                           const RunContext& context);
  Outcome Call(const qualm_problem& problem, const RunContext& context);
  // kOk, or what the call damaged.
  Outcome Inspect(const Case& c, const RunContext& context);

  const qualm_plugin* plugin_ = nullptr;
  PluginInfo info_;
  std::array<GuardedBuffer, kSlots> buffers_;
  std::array<size_t, kSlots> bytes_{};
  std::array<bool, kSlots> used_{};
  std::array<std::vector<uint8_t>, kInputs> before_;  // what the inputs held
};

// From now on a SIGSEGV, SIGBUS, SIGFPE or SIGILL first sends a Trap to `fd`, then kills.
void ReportTrapsTo(int fd);

// Body of qualm-worker: `qualm-worker PLUGIN.so TIME_LIMIT_MS MEMORY_LIMIT_BYTES`, connected to its
// parent through kWorkerFd. Returns the exit status.
int WorkerMain(int argc, char** argv);

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_PLUGIN_HOST_H_
