// SPDX-License-Identifier: Apache-2.0
#include "campaign/state.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "core/content_name.h"
#include "core/io/case_json.h"
#include "core/io/text_file.h"
#include "core/status.h"
#include "fuzz/collector.h"
#include "properties/property.h"

namespace qualm::campaign {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMarker = "qualm-state";
constexpr const char* kMarkerText = "A campaign of qualm fuzz, version 1. docs/campaigns.md\n";
constexpr const char* kFindings = "findings";
constexpr const char* kFolders[] = {"corpus",    kFindings, fuzz::kInbox, fuzz::kHeld,
                                    fuzz::kSeen, "jobs",    "results"};

std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    if (!IsTemporary(name)) names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

std::string TextIn(const fs::path& file) { return fs::exists(file) ? Bytes(file) : ""; }

Fault ReadFault(const fs::path& folder) {
  const std::string file = (folder / "fault.json").string();
  Fault fault;
  fault.row = ReadFaultRowFile(file);
  RequireClaims(fault.row, file);
  fault.found = ReadCaseFile((folder / "case.json").string());
  const fs::path minimized = folder / "minimized.case.json";
  if (fs::exists(minimized)) fault.minimized = ReadCaseFile(minimized.string());
  const std::string text = TextIn(folder / "explanation.txt");
  fault.explanation = text.substr(std::min(text.find('\n'), text.size() - 1) + 1);
  fault.before = TextIn(folder / "before.cases");
  return fault;
}

void WriteFault(const Fault& fault, const fs::path& folder) {
  WriteFolder(folder.string(),
              {{"fault.json", FaultRowToJson(fault.row)},
               {"case.json", CaseToJson(fault.found)},
               {"minimized.case.json", fault.minimized ? CaseToJson(*fault.minimized) : ""},
               {"explanation.txt", fault.Text()},
               {"before.cases", fault.before}});
}

}  // namespace

std::string Bytes(const fs::path& file) {
  return ReadTextFile(file.string(), "campaign", size_t{1} << 28);
}

State::State(std::string where, const fs::path& root) : where_(std::move(where)), root_(root) {
  std::error_code error;
  fs::create_directories(root_, error);
  if (error) {
    throw InputError(where_ + ": cannot make " + root_.string() + ": " + error.message());
  }
  if (!IsState(root_)) {
    if (!NamesIn(root_).empty()) {
      throw InputError(where_ + ": " + root_.string() +
                       " holds other files, expected an empty folder or one of qualm fuzz");
    }
    WriteTextFile((root_ / kMarker).string(), kMarkerText);
  }
  Lock();
  for (const char* folder : kFolders) fs::create_directories(root_ / folder);
  Recover();
}

State::~State() {
  if (lock_ >= 0) ::close(lock_);
}

void State::LeaveLock() {
  ::close(lock_);
  lock_ = -1;
}

void State::Lock() {
  const std::string file = (root_ / kMarker).string();
  lock_ = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (lock_ < 0) {
    throw InputError(where_ + ": " + file + ": cannot be opened (" + std::strerror(errno) + ")");
  }
  // The children of a campaign that was killed a moment ago may hold it a little longer.
  constexpr int kTries = 40;
  for (int i = 0; i < kTries; ++i) {
    if (::flock(lock_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  throw InputError(where_ + ": " + root_.string() +
                   " is used by another campaign, expected one campaign per folder");
}

void State::Recover() const {
  for (const char* folder : kFolders) RemoveTemporaries((root_ / folder).string());
  for (const std::string& name : NamesIn(root_ / fuzz::kHeld)) fuzz::HandOver(root_, name);
  for (const Op op : AllOps()) {
    for (const std::string& job : NamesIn(root_ / "jobs")) {
      TakeInputs(root_ / "jobs" / job / std::string(Name(op)), op);
    }
  }
  // What the killed campaign started may still write there: the folder loses its name first.
  RemoveFolder((root_ / "jobs").string());
  fs::create_directory(root_ / "jobs");
  Take({});
}

void State::TakeHeld() const {
  for (const std::string& name : NamesIn(root_ / fuzz::kHeld)) {
    const int holder = fuzz::HolderOf(name);
    const bool alive = holder > 0 && (::kill(holder, 0) == 0 || errno != ESRCH);
    if (!alive) fuzz::HandOver(root_, name);
  }
}

fs::path State::Corpus(Op op) const {
  const fs::path folder = root_ / "corpus" / std::string(Name(op));
  fs::create_directories(folder);
  return folder;
}

fs::path State::Finding(const std::string& fingerprint) const {
  return root_ / kFindings / fingerprint;
}

std::vector<std::string> State::Inbox() const { return NamesIn(root_ / fuzz::kInbox); }

void RequireClaims(const FaultRow& row, const std::string& file) {
  const auto is_claim = [&](const std::string& claim) {
    const Property* property = FindProperty(claim);
    return property != nullptr && property->about(row.op);
  };
  if (!row.properties.empty() && std::ranges::all_of(row.properties, is_claim)) return;
  throw InputError(file + ": properties: is no list of claims about " + std::string(Name(row.op)) +
                   ", expected those of this qualm");
}

bool IsState(const fs::path& folder) { return fs::exists(folder / kMarker); }

std::vector<Fault> ReadFaults(const fs::path& root) {
  std::vector<Fault> faults;
  for (const std::string& name : NamesIn(root / kFindings)) {
    faults.push_back(ReadFault(root / kFindings / name));
  }
  return faults;
}

std::vector<Fault> State::Faults() const { return ReadFaults(root_); }

std::vector<FaultRow> State::Rows() const {
  std::vector<FaultRow> rows;
  for (const std::string& name : NamesIn(root_ / kFindings)) {
    const fs::path file = Finding(name) / "fault.json";
    try {
      rows.push_back(ReadFaultRowFile(file.string()));
    } catch (const InputError&) {
      if (fs::exists(file)) throw;  // else it has moved meanwhile
    }
  }
  return rows;
}

int64_t State::CorpusSize(Op op) const {
  return static_cast<int64_t>(NamesIn(root_ / "corpus" / std::string(Name(op))).size());
}

int64_t State::CorpusSize() const {
  int64_t size = 0;
  for (const Op op : AllOps()) size += CorpusSize(op);
  return size;
}

void State::Take(const std::vector<Fault>& faults) const {
  const std::vector<Fault> before = Faults();
  std::vector<Fault> all = before;
  all.insert(all.end(), faults.begin(), faults.end());
  Settle(before, OnePerFault(std::move(all)));
}

void State::Replace(const std::string& earlier, const Fault& fault) const {
  const std::vector<Fault> before = Faults();
  std::vector<Fault> all = before;
  std::erase_if(all, [&](const Fault& other) { return other.row.fingerprint() == earlier; });
  all.push_back(fault);
  Settle(before, OnePerFault(std::move(all)));
}

void State::Settle(const std::vector<Fault>& before, const std::vector<Fault>& after) const {
  for (const Fault& fault : after) {
    const std::string name = fault.row.fingerprint();
    if (std::ranges::find(before, fault) == before.end() || !fs::exists(Finding(name))) {
      WriteFault(fault, Finding(name));
    }
  }
  for (const std::string& name : NamesIn(root_ / kFindings)) {
    const auto has_name = [&](const Fault& fault) { return fault.row.fingerprint() == name; };
    if (std::ranges::none_of(after, has_name)) RemoveFolder(Finding(name).string());
  }
}

void State::TakeInputs(const fs::path& folder, Op op) const {
  const fs::path corpus = Corpus(op);
  for (const std::string& name : NamesIn(folder)) {
    const std::string bytes = TextIn(folder / name);
    // One rename: an input that is cut short by a kill is still an input, all bytes are.
    fs::rename(folder / name, corpus / ContentName(bytes));
  }
}

void State::AddInput(std::string_view bytes, Op op) const {
  const fs::path file = Corpus(op) / ContentName(bytes);
  if (!fs::exists(file)) WriteTextFile(file.string(), bytes);
}

Shrunk State::KeepInputs(Op op, const std::set<std::string>& names) const {
  const fs::path corpus = Corpus(op);
  const std::vector<std::string> all = NamesIn(corpus);
  Shrunk shrunk{static_cast<int64_t>(all.size()), static_cast<int64_t>(all.size())};
  for (const std::string& name : all) {
    // Somebody may have put an input there under a name of their own.
    if (names.contains(name) || names.contains(ContentName(TextIn(corpus / name)))) continue;
    if (fs::remove(corpus / name)) --shrunk.after;
  }
  return shrunk;
}

uint64_t State::NextStretch() const {
  const fs::path file = root_ / "stretches";
  const std::string text = TextIn(file);
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  WriteTextFile(file.string(), std::to_string(number + 1) + "\n");
  return number;
}

}  // namespace qualm::campaign
