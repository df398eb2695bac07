// SPDX-License-Identifier: Apache-2.0
// Subjects that live in a worker: any plugin by its path, and oneDNN, which is a plugin of ours.
#ifndef QUALM_ADAPTERS_PLUGIN_SUBJECTS_H_
#define QUALM_ADAPTERS_PLUGIN_SUBJECTS_H_

#include <string>

#include "adapters/foreign.h"
#include "adapters/worker.h"
#include "core/case.h"
#include "core/subject.h"

namespace qualm {

// Adds the kind "plugin" (plugin:PATH.so).
void RegisterPluginSubjects();
// Adds the kind "onednn" (onednn, onednn@sse41, onednn@avx2, ...). It is absent, with
// the reason, where the build had no oneDNN.
void RegisterOnednnSubjects();

class PluginSubject : public ForeignSubject {
 public:
  // Starts a worker. Throws Unavailable.
  PluginSubject(std::string name, WorkerOptions options);

  const PluginInfo& info() const override { return worker_.info(); }

 protected:
  std::string CannotSend(const Case& c) const override;
  Outcome Send(const Case& c, const RunContext& context) override;

 private:
  Worker worker_;
};

// Path of a shared object: `file` itself if it has a '/' or is found in the current folder, else
// looked for in $QUALM_PLUGIN_DIR, beside the executable, in ../lib from there, and where modules
// and data are installed. "" if it is nowhere.
std::string FindPlugin(const std::string& file);

}  // namespace qualm

#endif  // QUALM_ADAPTERS_PLUGIN_SUBJECTS_H_
