// SPDX-License-Identifier: Apache-2.0
#include "report/output_folder.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "core/io/case_json.h"
#include "core/io/fault_row.h"
#include "core/io/text_file.h"
#include "core/status.h"

namespace qualm::report {
namespace {

namespace fs = std::filesystem;

// "" where there is no such file.
std::string TextIn(const fs::path& path) {
  constexpr size_t kMost = size_t{1} << 28;
  if (!fs::exists(path)) return "";
  std::string text = ReadTextFile(path.string(), "report", kMost);
  CheckLength(text, path.string(), "report", kMost);
  return text;
}

std::optional<Case> CaseIn(const fs::path& path) {
  if (!fs::exists(path)) return std::nullopt;
  return ReadCaseFile(path.string());
}

// The text between `left` and the next `right`, "" where it does not hold them in this order.
std::string Between(const std::string& text, const std::string& left, const std::string& right) {
  const size_t from = text.find(left);
  if (from == std::string::npos) return "";
  const size_t to = text.find(right, from + left.size());
  return to == std::string::npos ? "" : text.substr(from + left.size(), to - from - left.size());
}

// The line of triage::FindingText that says what happened: after the head and " at index".
std::string SentenceOf(const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    if (line.starts_with("  ") && !line.starts_with("  at index ")) return line.substr(2);
  }
  return text.substr(0, text.find('\n'));
}

// A folder alone, as a finding: triage::FindingText begins "FINDING: OP.CLAIM fails on S [KIND]".
void AddFindingsOf(const fs::path& folder, const Evidence& evidence, ResultRecord& record) {
  RecordedFinding finding;
  finding.fingerprint = folder.filename().string();
  finding.explanation = SentenceOf(evidence.explanation);
  if (fs::exists(folder / "fault.json")) {
    const FaultRow row = ReadFaultRowFile((folder / "fault.json").string());
    finding.op = Name(row.op);
    finding.subject = row.subject;
    finding.kind = Name(row.kind);
    if (!row.explanation.empty()) finding.explanation = row.explanation;
    finding.fault = finding.fingerprint;
    if (const auto why = record.known_faults.find(finding.fault); why != record.known_faults.end())
      finding.known = why->second;
    finding.cause = row.cause;
    finding.sentence = finding.explanation;
    for (const std::string& claim : row.properties) {
      finding.claim = claim.substr(claim.find('.') + 1);
      record.findings.push_back(finding);
    }
    return;
  }
  const std::string& text = evidence.explanation;
  finding.op = evidence.found ? std::string(Name(evidence.found->op)) : Between(text, ": ", ".");
  finding.claim = Between(text, finding.op + ".", " fails on ");
  finding.subject = Between(text, " fails on ", " [");
  finding.kind = Between(text, " [", "]");
  finding.expected_by_contract = text.starts_with("expected: ");
  if (finding.subject.empty()) finding.subject = finding.fingerprint;
  record.findings.push_back(std::move(finding));
}

bool IsYounger(const fs::path& file, const fs::path& than) {
  std::error_code error;
  const auto written = fs::last_write_time(file, error);
  return error || written > fs::last_write_time(than, error);
}

}  // namespace

OutputFolder ReadOutputFolder(const std::string& folder) {
  const fs::path root(folder);
  OutputFolder read;
  read.place = folder;
  std::error_code error;
  const bool has_findings = fs::is_directory(root / "findings", error);
  const bool has_result = fs::exists(root / "result.json", error);
  if (!has_findings && !has_result) {
    throw InputError(folder +
                     ": holds neither result.json nor findings/, expected an output folder of "
                     "qualm audit, check or fuzz");
  }
  if (has_result) read.record = ReadResultFile((root / "result.json").string());
  if (!has_findings) return read;
  std::set<std::string> recorded;
  for (const RecordedFinding& finding : read.record.findings) recorded.insert(finding.fingerprint);
  std::set<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(root / "findings")) {
    if (entry.is_directory() && !IsTemporary(entry.path().filename().string()))
      folders.insert(entry.path());
  }
  for (const fs::path& path : folders) {
    const std::string name = path.filename().string();
    const Evidence& evidence =
        read.evidence[name] = {CaseIn(path / "case.json"), CaseIn(path / "minimized.case.json"),
                               TextIn(path / "explanation.txt")};
    if (recorded.contains(name)) continue;
    const bool campaign = fs::exists(path / "fault.json");
    if (has_result && !campaign && !IsYounger(path / "case.json", root / "result.json")) {
      read.earlier.push_back(name);
    } else {
      AddFindingsOf(path, evidence, read.record);
    }
  }
  return read;
}

}  // namespace qualm::report
