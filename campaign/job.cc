// SPDX-License-Identifier: Apache-2.0
#include "campaign/job.h"

#include <utility>
#include <vector>

#include "fuzz/case_codec.h"
#include "properties/domain.h"

namespace qualm::campaign {
namespace {

namespace fs = std::filesystem;

Process Begin(const Engine& engine, const Aim& aim, Stretch stretch, const fs::path& folder,
              const fs::path& state, bool canary) {
  stretch.op = aim.op;
  stretch.kept = (folder / std::string(Name(aim.op))).string();
  stretch.scratch = folder.string();
  fs::create_directories(stretch.kept);
  return Process::Start(engine.Command(stretch),
                        {{"QUALM_FUZZ_SUBJECT", aim.subject},
                         {"QUALM_FUZZ_CONTRACT", aim.contract},
                         {"QUALM_FUZZ_DOMAIN", TheDomain().Text()},
                         {"QUALM_FUZZ_PROPERTIES", aim.properties},
                         {"QUALM_FUZZ_STATE", state.string()},
                         {"QUALM_FUZZ_ARTIFACTS", folder.string()},
                         {"QUALM_FUZZ_WATCH", (folder / "watch").string()},
                         {"QUALM_FUZZ_CANARY", canary ? "on" : ""}},
                        (folder / "log").string());
}

}  // namespace

Job::Job(const Engine& engine, const Aim& aim, Stretch stretch, const fs::path& folder,
         const fs::path& state, bool canary)
    : aim_(aim),
      folder_(folder),
      watch_(fuzz::MappedWatch::Create((folder / "watch").string())),
      process_(Begin(engine, aim, std::move(stretch), folder, state, canary)) {}

Case Job::LastCase() const { return fuzz::DecodeCase(aim_.op, fuzz::LastInput(page())); }

}  // namespace qualm::campaign
