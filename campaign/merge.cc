// SPDX-License-Identifier: Apache-2.0
#include "campaign/merge.h"

#include <algorithm>
#include <utility>

#include "core/content_name.h"
#include "core/io/text_file.h"
#include "core/op.h"
#include "core/status.h"
#include "fuzz/collector.h"

namespace qualm::campaign {
namespace {

namespace fs = std::filesystem;

// Calls `take` with each file or folder that is no temporary.
template <class Take>
void ForEachIn(const fs::path& folder, const Take& take) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (!IsTemporary(entry.path().filename().string())) take(entry.path());
  }
}

void CopyInbox(const fs::path& from, const fs::path& to) {
  ForEachIn(from, [&](const fs::path& folder) {
    const fs::path there = to / folder.filename();
    if (fs::exists(there)) return;
    NamedTexts files;
    ForEachIn(folder, [&](const fs::path& file) {
      files.emplace_back(file.filename().string(), Bytes(file));
    });
    WriteFolder(there.string(), files);
  });
}

}  // namespace

void AddInputsOf(const State& state, const fs::path& folder) {
  for (const Op op : AllOps()) {
    ForEachIn(folder / "corpus" / std::string(Name(op)),
              [&](const fs::path& file) { state.AddInput(Bytes(file), op); });
  }
}

void RequireStates(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    if (IsState(folder)) continue;
    throw InputError(folder + ": is no campaign, expected a --state folder of qualm fuzz");
  }
}

void MergeInto(const State& state, const std::vector<std::string>& folders) {
  RequireStates(folders);
  std::vector<Fault> faults;
  for (const std::string& folder : folders) {
    std::ranges::move(ReadFaults(folder), std::back_inserter(faults));
  }
  state.Take(faults);
  for (const fs::path root : folders) {
    AddInputsOf(state, root);
    for (const char* waiting : {fuzz::kInbox, fuzz::kHeld}) {
      CopyInbox(root / waiting, state.root() / fuzz::kInbox);
    }
    ForEachIn(root / fuzz::kSeen, [&](const fs::path& file) {
      WriteTextFile((state.root() / fuzz::kSeen / file.filename()).string(), "");
    });
    ForEachIn(root / "results", [&](const fs::path& file) {
      const std::string text = Bytes(file);
      WriteTextFile((state.root() / "results" / (ContentName(text) + ".json")).string(), text);
    });
  }
}

}  // namespace qualm::campaign
