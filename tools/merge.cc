// SPDX-License-Identifier: Apache-2.0
// qualm merge: several campaigns made one.
#include "campaign/merge.h"

#include <filesystem>
#include <memory>

#include "campaign/state.h"
#include "tools/command.h"

namespace qualm::tools {
namespace {

struct Options {
  std::vector<std::string> folders;
  std::string state;
};

int RunMerge(const Options& options) {
  // Before the folder is made: a mistyped name leaves nothing behind.
  campaign::RequireStates(options.folders);
  const campaign::State state("--state", options.state);
  campaign::MergeInto(state, options.folders);
  Out(fmt::format("{}: {} faults, {} failures waiting, {} inputs\n", options.state,
                  state.Rows().size(), state.Inbox().size(), state.CorpusSize()));
  return kClean;
}

}  // namespace

void AddMerge(CLI::App& app, Run* run) {
  auto options = std::make_shared<Options>();
  Verb verb(app, run, "merge", "make several campaigns of qualm fuzz one",
            "Example: qualm merge shard-* --state all && qualm report all");
  verb.Texts("DIR", options->folders, "campaigns; they stay as they are").Required();
  verb.Text("--state", options->state, "campaign to add them to, new or not").Required();
  verb.Does([options] { return RunMerge(*options); });
}

}  // namespace qualm::tools
