// SPDX-License-Identifier: Apache-2.0
#include "campaign/job.h"

#include <algorithm>
#include <fstream>
#include <iterator>
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
                        {{{"QUALM_FUZZ_SUBJECT", aim.subject},
                          {"QUALM_FUZZ_CONTRACT", aim.contract},
                          {"QUALM_FUZZ_DOMAIN", TheDomain().Text()},
                          {"QUALM_FUZZ_PROPERTIES", aim.properties},
                          {"QUALM_FUZZ_STATE", state.string()},
                          {"QUALM_FUZZ_ARTIFACTS", folder.string()},
                          {"QUALM_FUZZ_WATCH", (folder / "watch").string()},
                          {"QUALM_FUZZ_CANARY", canary ? "on" : ""}},
                         (folder / "log").string(),
                         ""});
}

}  // namespace

std::string LastWords(const std::string& log) {
  std::ifstream file(log, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  constexpr size_t kMost = 400;
  // What an engine or a sanitizer says begins here; a message of the program stands in the line
  // before. A list of frames and the bytes of the input come after it.
  for (const char* mark : {"== ERROR: ", "==ERROR: "}) {
    const size_t at = text.find(mark);
    if (at == std::string::npos) continue;
    const size_t line = text.rfind('\n', at);
    if (line == std::string::npos || line == 0) return text.substr(0, kMost);
    const size_t before = text.rfind('\n', line - 1);
    return text.substr(before == std::string::npos ? 0 : before + 1, kMost);
  }
  return text.substr(text.size() - std::min(text.size(), kMost));
}

Job::Job(const Engine& engine, const Aim& aim, Stretch stretch, const fs::path& folder,
         const fs::path& state, bool canary)
    : aim_(aim),
      folder_(folder),
      watch_(fuzz::MappedWatch::Create((folder / "watch").string())),
      process_(Begin(engine, aim, std::move(stretch), folder, state, canary)) {}

Case Job::LastCase() const { return fuzz::DecodeCase(aim_.op, fuzz::LastInput(page())); }

}  // namespace qualm::campaign
