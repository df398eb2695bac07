// SPDX-License-Identifier: Apache-2.0
#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "core/io/text_file.h"
#include "core/status.h"
#include "report/faults.h"
#include "report/forum.h"
#include "report/html.h"
#include "report/overview.h"
#include "report/words.h"

namespace qualm::report {
namespace {

namespace fs = std::filesystem;

Blocks NewFaults(const std::vector<Fault>& faults, const OutputFolder& folder) {
  Blocks blocks;
  for (const Fault& fault : faults) {
    if (fault.is_new) blocks.push_back(FaultSection(fault, folder));
  }
  if (blocks.empty()) return {};
  blocks.insert(blocks.begin(), Heading{2, "New faults", "new"});
  return blocks;
}

Blocks KnownDepartures(const std::vector<Fault>& faults, const OutputFolder& folder) {
  std::vector<std::pair<std::string, std::vector<const Fault*>>> by_reason;
  for (const Fault& fault : faults) {
    if (fault.is_new) continue;
    auto at = std::ranges::find(by_reason, fault.reason, [](const auto& row) { return row.first; });
    if (at == by_reason.end()) at = by_reason.insert(at, {fault.reason, {}});
    at->second.push_back(&fault);
  }
  if (by_reason.empty()) return {};
  Blocks blocks{
      Heading{2, "Known departures", "known"},
      Paragraph{"Each reason with the faults that it explains. These do not fail the run."}};
  for (const auto& [reason, list] : by_reason) {
    std::vector<std::string> subjects, ops;
    Blocks inside;
    for (const Fault* fault : list) {
      for (std::string& name : fault->subjects()) subjects.push_back(std::move(name));
      if (std::ranges::find(ops, fault->op) == ops.end()) ops.push_back(fault->op);
      inside.push_back(FaultSection(*fault, folder));
    }
    Text summary = Strong(Subjects(subjects)) + fmt::format(" in {}: ", List(ops));
    blocks.push_back(Fold{summary + WithUpstreamLinks(reason), "", std::move(inside)});
  }
  return blocks;
}

std::string PageOf(const OutputFolder& folder, const std::vector<Fault>& faults,
                   const std::string& corpus) {
  Blocks rest = SubjectBySubject(faults, folder);
  Append(rest, NewFaults(faults, folder));
  Append(rest, KnownDepartures(faults, folder));
  Append(rest, QuietDeclarations(folder.record));
  if (folder.record.has_documented_cases) Append(rest, ForumSections(corpus, folder.record));
  Append(rest, AgreementOf(folder.record));
  Append(rest, HazardMatrix(folder.record));
  Append(rest, CourseOf(folder.record));
  Append(rest, RunsOf(folder));
  return Html(FirstScreen(folder.record, faults), rest);
}

std::string PathOfPage(const std::string& folder) {
  return (fs::path(folder) / "index.html").string();
}

}  // namespace

void RequireOurPage(const std::string& folder) {
  const std::string path = PathOfPage(folder);
  if (!fs::exists(path)) return;
  const std::string before = ReadTextFile(path, "report", size_t{1} << 28);
  if (!before.empty() && !before.starts_with(kHtmlHead))
    throw InputError(path + ": is there and no report of qualm, expected another folder");
}

BuiltReport BuildReport(const std::string& folder, const std::string& corpus) {
  const OutputFolder read = ReadOutputFolder(folder);
  const std::vector<Fault> faults = FaultsOf(read.record);
  RequireOurPage(folder);
  const std::string path = PathOfPage(folder);
  WriteTextFile(path, PageOf(read, faults, corpus));
  return {path, VerdictSentence(faults, read.record.missing)};
}

}  // namespace qualm::report
