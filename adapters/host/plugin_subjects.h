// SPDX-License-Identifier: Apache-2.0
// Subjects that live in a worker, and where the files that workers and pipes need are found.
#ifndef QUALM_ADAPTERS_HOST_PLUGIN_SUBJECTS_H_
#define QUALM_ADAPTERS_HOST_PLUGIN_SUBJECTS_H_

#include <string>

#include "adapters/host/foreign.h"
#include "adapters/host/worker.h"
#include "core/case.h"
#include "core/subject.h"

namespace qualm {

// Adds the kind "plugin" (plugin:PATH.so).
void RegisterPluginSubjects();

class PluginSubject : public ForeignSubject {
 public:
  // Starts a worker. Throws Unavailable.
  PluginSubject(std::string name, WorkerOptions options);

  const PluginInfo& info() const override { return worker_.info(); }
  bool machine_was_busy() const override { return worker_.machine_was_busy(); }
  bool took_its_memory() const override { return worker_.took_its_memory(); }

 protected:
  std::string CannotSend(const Case& c) const override;
  Outcome RunRaw(const Case& c, const RunContext& context) override;

 private:
  Worker worker_;
};

// Path of a shared object or script of ours: looked for in $QUALM_PLUGIN_DIR, beside the
// executable, in ../lib from there, and where modules and data are installed, never in the current
// folder. "" if it is nowhere.
std::string FindModule(const std::string& file);

// Path of somebody's plugin: `file` itself if it has a '/' or is found in the current folder, else
// as above.
std::string FindPlugin(const std::string& file);

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_PLUGIN_SUBJECTS_H_
