// SPDX-License-Identifier: Apache-2.0
// Subjects that live in a worker: any plugin by its path, and the libraries that plugins of ours
// call: oneDNN, XNNPACK, gemmlowp.
#ifndef QUALM_ADAPTERS_HOST_PLUGIN_SUBJECTS_H_
#define QUALM_ADAPTERS_HOST_PLUGIN_SUBJECTS_H_

#include <string>
#include <string_view>
#include <vector>

#include "adapters/host/foreign.h"
#include "adapters/host/worker.h"
#include "core/case.h"
#include "core/subject.h"

namespace qualm {

// Adds the kind "plugin" (plugin:PATH.so).
void RegisterPluginSubjects();
// Add the kinds "onednn" (onednn, onednn@sse41, onednn@avx2, ...), "xnnpack", "gemmlowp", "ruy" and
// "fbgemm", absent, with the reason, where the build had no such library.
void RegisterOnednnSubjects();
void RegisterXnnpackSubjects();
void RegisterGemmlowpSubjects();
void RegisterRuySubjects();
void RegisterFbgemmSubjects();

// A kind whose names are modules of ours.
struct ModuleKind {
  struct Name {
    std::string_view name;  // "gemmlowp", "gemmlowp@sse4"; the first says whether the kind is there
    std::string_view module;  // "qualm_gemmlowp.so"
    // That the worker's environment is to force, and the plugin then reports; "" leaves the choice.
    std::string_view instruction_set = {};
    std::string_view variable = {}, value = {};
  };
  std::string_view kind;
  std::string_view library;  // as people write it: "oneDNN"
  std::string_view help;
  std::string_view install;  // what the build lacked: "gemmlowp (libgemmlowp-dev)"
  bool by_bootstrap = true;  // scripts/bootstrap installs it
  std::vector<Name> names;
};
void RegisterModuleSubjects(ModuleKind module);

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

// Path of a shared object or script of ours: looked for in $QUALM_PLUGIN_DIR, beside the
// executable, in ../lib from there, and where modules and data are installed, never in the current
// folder. "" if it is nowhere.
std::string FindModule(const std::string& file);

// Path of somebody's plugin: `file` itself if it has a '/' or is found in the current folder, else
// as above.
std::string FindPlugin(const std::string& file);

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_PLUGIN_SUBJECTS_H_
