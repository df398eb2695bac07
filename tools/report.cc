// SPDX-License-Identifier: Apache-2.0
// qualm report: writes the page of an output folder again, from the files in it.
#include "tools/report.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <set>

#include "core/executable.h"
#include "core/io/short_path.h"
#include "core/io/text_file.h"
#include "core/status.h"
#include "report/faults.h"
#include "report/forum.h"
#include "report/page.h"
#include "tools/command.h"

namespace qualm::tools {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostRuns = 200;  // of a history

JsonValue HistoryJson(const std::vector<RecordedRun>& runs) {
  JsonList list;
  for (const RecordedRun& run : runs) {
    JsonObject json{{"date", run.date},   {"commit", run.commit}, {"seconds", run.seconds},
                    {"cases", run.cases}, {"faults", run.faults}, {"known", run.known}};
    if (run.inputs > 0) json.Add("inputs", run.inputs);
    list.Add(json);
  }
  return list;
}

std::string ResultOf(const std::string& folder) {
  return (fs::path(folder) / "result.json").string();
}

}  // namespace

void RequireReportFolder(const std::string& option, const std::string& folder) {
  try {
    report::RequireOurPage(folder);
    if (!fs::exists(ResultOf(folder))) return;
    const std::string text = ReadTextFile(ResultOf(folder), "result", size_t{1} << 28);
    if (text.find("\"qualm.result/1\"") == std::string::npos) {
      throw InputError(ResultOf(folder) +
                       ": is there and no result of qualm, expected another folder");
    }
  } catch (const InputError& error) {
    throw InputError(option + ": " + error.what());
  }
}

std::optional<ResultRecord> RunBefore(const std::string& folder) {
  if (!fs::exists(ResultOf(folder))) return std::nullopt;
  try {
    return ReadResultFile(ResultOf(folder));
  } catch (const InputError& error) {
    Tell("nothing is compared with the run before: {}", error.what());
    return std::nullopt;
  }
}

JsonValue ChangeJson(const ResultRecord& before, const std::vector<Finding>& findings) {
  std::set<std::string> then, now;
  for (const RecordedFinding& finding : before.findings) then.insert(finding.fingerprint);
  for (const Finding& finding : findings) now.insert(finding.fingerprint());
  std::vector<std::string> appeared, gone;
  std::ranges::set_difference(now, then, std::back_inserter(appeared));
  std::ranges::set_difference(then, now, std::back_inserter(gone));
  return JsonObject{{"date", before.run.date}, {"appeared", appeared}, {"gone", gone}};
}

report::BuiltReport WriteReport(const std::string& folder, ResultDocument document,
                                const std::optional<ResultRecord>& before, int64_t inputs) {
  // The history counts as faults what the page shows as faults.
  const ResultRecord record = ParseResult(ResultToJson(document), "result");
  const std::vector<report::Fault> faults = report::FaultsOf(record);
  RecordedRun run{record.run.date, record.run.commit, record.seconds};
  const auto cases = record.totals.find("cases");
  run.cases = cases == record.totals.end() ? 0 : cases->second;
  run.faults = std::ranges::count_if(faults, &report::Fault::is_new);
  run.known = static_cast<int64_t>(faults.size()) - run.faults;
  const auto excused = static_cast<int64_t>(record.known_faults.size());
  run.faults += record.campaign_faults - excused;
  run.known += excused;
  run.inputs = inputs;
  std::vector<RecordedRun> history;
  if (before) history = before->history;
  history.push_back(run);
  if (history.size() > kMostRuns)
    history.erase(history.begin(), history.end() - static_cast<int64_t>(kMostRuns));
  document.extra.emplace_back("history", HistoryJson(history));
  MakeFolder("--out", folder);
  WriteTextFile(ResultOf(folder), ResultToJson(document));
  return report::BuildReport(folder, CorpusFolder());
}

std::string CorpusFolder() { return InstalledData("corpus", QUALM_CORPUS_DIR); }

void AddReport(CLI::App& app, Run* run) {
  auto folder = std::make_shared<std::string>();
  auto forum = std::make_shared<bool>(false);
  Verb verb(app, run, "report", "rebuild the HTML report of an output folder",
            "Example: qualm report build/report");
  verb.Text("DIR", *folder, "output folder of qualm audit, check or fuzz").Required();
  verb.Flag("--forum", *forum, "write the answers to forum threads into DIR/forum.md instead");
  verb.Does([folder, forum] {
    if (*forum) {
      report::WriteForumPage(CorpusFolder(), *folder);
      return static_cast<int>(kClean);
    }
    Out(ShortPath(report::BuildReport(*folder, CorpusFolder()).path) + "\n");
    return static_cast<int>(kClean);
  });
}

}  // namespace qualm::tools
