// SPDX-License-Identifier: Apache-2.0
#include "tools/session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>

#include "core/io/json_text.h"
#include "core/io/shell_word.h"
#include "core/io/short_path.h"
#include "core/io/text_file.h"
#include "core/status.h"
#include "tools/domain_file.h"
#include "tools/stop.h"

namespace qualm::tools {
namespace {

std::vector<std::string>& CommandLine() {
  static std::vector<std::string> words;
  return words;
}

// Is the word an option that a repetition leaves out: "--jobs", "--jobs=2", "-j2"? *next says
// whether its value is the next word.
bool IsVolatile(const std::string& word, bool* next) {
  static const std::set<std::string> kLong{"--json", "--junit", "--sarif",  "--jobs",
                                           "--out",  "--plot",  "--output", "--to-corpus"};
  static const std::set<std::string> kShort{"-j", "-o"};
  const std::string name = word.substr(0, word.find('='));
  *next = name == word;
  if (kLong.contains(name)) return true;
  if (name == "--github") return *next = false, true;  // has no value
  if (!kShort.contains(word.substr(0, 2))) return false;
  *next = word.size() == 2;
  return true;
}

// A word that names a file or a subject, as ShortPath has it.
std::string ShortWord(const std::string& word) {
  std::error_code ignored;
  return std::filesystem::exists(word, ignored) ? ShortPath(word) : ShortSubject(word);
}

std::string Repeat(const std::string& program, std::optional<uint64_t> seed,
                   const std::string& today) {
  std::string command = program;
  const std::vector<std::string>& words = CommandLine();
  bool has_seed = false, has_today = false;
  for (size_t i = 1; i < words.size(); ++i) {
    bool next = false;
    if (IsVolatile(words[i], &next)) {
      if (next) ++i;
      continue;
    }
    const std::string name = words[i].substr(0, words[i].find('='));
    has_seed |= name == "--seed";
    has_today |= name == "--today";
    command += " " + ShellWord(ShortWord(words[i]));
  }
  if (seed && !has_seed) command += " --seed " + std::to_string(*seed);
  if (!today.empty() && !has_today) command += " --today " + today;
  return command;
}

void RequireWritable(const std::string& option, const std::string& path) {
  if (path.empty()) return;
  const auto fail = [&](const std::string& why) {
    throw InputError(option + ": " + path + ": cannot be written (" + why + ")");
  };
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) fail("is a folder");
  if (access(path.c_str(), F_OK) == 0) {
    // Opened for writing a pipe would wait for its reader.
    if (access(path.c_str(), W_OK) != 0) fail(std::strerror(errno));
    return;
  }
  // A file that has no name is gone with this process; not every file system has such files.
  const std::string folder = std::filesystem::path(path).parent_path().string();
  int file = open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  if (file < 0) {
    file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0 && errno == EEXIST) return;  // a link to a file that does not exist yet
    if (file < 0) fail(std::strerror(errno));
    unlink(path.c_str());
  }
  close(file);
}

void RequireApart(const std::vector<std::pair<std::string, std::string>>& written,
                  const std::vector<std::string>& read) {
  const auto same = [](const std::string& a, const std::string& b) {
    std::error_code ignored;
    return a == b || std::filesystem::equivalent(a, b, ignored);
  };
  for (size_t i = 0; i < written.size(); ++i) {
    const auto& [option, path] = written[i];
    std::error_code ignored;
    // A device or a pipe (/dev/null) keeps nothing: it may be written twice.
    const bool keeps =
        !std::filesystem::exists(path, ignored) || std::filesystem::is_regular_file(path, ignored);
    if (path.empty() || !keeps) continue;
    for (size_t j = 0; j < i; ++j) {
      if (same(path, written[j].second)) {
        throw InputError(option + ": " + path + ": is the file of " + written[j].first +
                         " too, expected another one");
      }
    }
    for (const std::string& file : read) {
      if (same(path, file)) {
        throw InputError(option + ": " + path + ": is read by this run, expected another file");
      }
    }
  }
}

// Into the file, or to stdout for "-".
void WriteTo(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  if (path != "-") return WriteTextFile(path, text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw InputError("stdout cannot be written");
}

// The runner reads annotations from stdout, and a summary from the file that it names.
void TellGithub(const ResultDocument& document) {
  Out(ToGithubAnnotations(document));
  const char* const summary = std::getenv("GITHUB_STEP_SUMMARY");
  if (summary == nullptr || *summary == '\0') return;
  std::ofstream file(summary, std::ios::app);
  file << ToMarkdownSummary(document) << "\n" << std::flush;
  if (!file) throw InputError(std::string(summary) + ": cannot be written");
}

// Which folders of the path are not there, the innermost first.
std::vector<std::filesystem::path> MissingOf(const std::string& path) {
  std::error_code error;
  std::vector<std::filesystem::path> missing;
  for (std::filesystem::path at = std::filesystem::absolute(path);
       !std::filesystem::exists(at, error); at = at.parent_path()) {
    missing.push_back(at);
  }
  return missing;
}

}  // namespace

void SetCommandLine(int argc, char** argv) { CommandLine().assign(argv, argv + argc); }

void AddToCommandLine(const std::vector<std::string>& words) {
  CommandLine().insert(CommandLine().end(), words.begin(), words.end());
}

void RequireFolder(const std::string& option, const std::string& path) {
  if (path.empty()) return;
  namespace fs = std::filesystem;
  const auto fail = [&](const std::string& why) {
    throw InputError(option + ": " + path + ": cannot be made or written (" + why + ")");
  };
  std::error_code error;
  const std::vector<fs::path> missing = MissingOf(path);
  // Tried, since some file systems only say so then, and taken back: a run may find nothing.
  fs::create_directories(path, error);
  if (error) fail(error.message());
  const bool writable = access(path.c_str(), W_OK) == 0;
  const std::string why = std::strerror(errno);
  for (const fs::path& made : missing) fs::remove(made, error);
  if (!writable) fail(why);
}

std::string FolderOrTemporary(const std::string& option, const std::string& path) {
  try {
    RequireFolder(option, path);
    return path;
  } catch (const InputError& error) {
    std::error_code none;
    const std::vector<std::filesystem::path> missing = MissingOf(path);
    const std::filesystem::path there =
        missing.empty() ? std::filesystem::path(path) : missing.back().parent_path();
    if (!std::filesystem::is_directory(there, none)) throw;  // it names a file: the wrong word
    std::string made =
        (std::filesystem::temp_directory_path(none) / "qualm-findings-XXXXXX").string();
    if (none || mkdtemp(made.data()) == nullptr) throw;
    rmdir(made.c_str());  // a run may find nothing
    TellLine(fmt::format("{}; what this run finds goes to {}", error.what(), made));
    return made;
  }
}

void RequireWritable(const CommonOptions& options,
                     const std::vector<std::pair<std::string, std::string>>& more,
                     const std::vector<std::string>& read) {
  std::vector<std::pair<std::string, std::string>> written = more;
  std::string on_stdout;
  for (const auto& [option, path] : {std::pair{"--json", &options.json},
                                     {"--junit", &options.junit},
                                     {"--sarif", &options.sarif}}) {
    if (*path != "-") {
      written.emplace_back(option, *path);
      continue;
    }
    if (!on_stdout.empty()) {
      throw InputError(fmt::format(
          "{}: stdout takes one document, expected a file for this or for {}", option, on_stdout));
    }
    on_stdout = option;
  }
  if (options.github && options.quiet_stdout())
    throw InputError("--github: prints to stdout, which is taken by a document");
  for (const auto& [option, path] : written) RequireWritable(option, path);
  RequireApart(written, read);
}

std::vector<std::string> SubjectNames(const std::vector<std::string>& named,
                                      const std::vector<std::string>& defaults) {
  const SubjectRegistry& registry = SubjectRegistry::Get();
  std::vector<std::string> names;
  // By the name a plugin is opened, so it starts from the folder of this process.
  std::error_code ignored;
  const std::string current = std::filesystem::current_path(ignored).string();
  const auto add = [&](const std::string& name) {
    const std::string shown = ShortSubject(name, current);
    if (std::find(names.begin(), names.end(), shown) == names.end()) names.push_back(shown);
  };
  for (const std::string& pattern : named) {
    for (const std::string& name : registry.Expand(pattern)) add(name);
  }
  if (!named.empty()) return names;
  std::set<std::string> told;  // a library that is absent is told once, not once per name
  for (const std::string& pattern : defaults) {
    try {
      for (const std::string& name : registry.Expand(pattern)) {
        MakeSubjects({name}, "");  // also refuses one that follows no convention known here
        add(name);
      }
    } catch (const Unavailable& error) {
      const std::string_view why = error.what();
      if (told.emplace(why.substr(why.find("': ") + 1)).second) Tell("left out: {}", why);
    } catch (const InputError&) {
      Tell("left out: this build has no subject '{}'", pattern);
    }
  }
  return names;
}

void Deferred::Try(const std::function<void()>& work) {
  try {
    work();
  } catch (const InputError& error) {
    if (error_.empty()) error_ = error.what();
  }
}

void Deferred::Try(const std::string& option, const std::function<void()>& work) {
  Try([&] {
    try {
      work();
    } catch (const InputError& error) {
      throw InputError(option + ": " + error.what());
    } catch (const Unavailable& error) {
      throw InputError(option + ": " + error.what());
    }
  });
}

void Deferred::Throw() const {
  if (!error_.empty()) throw InputError(error_);
}

std::string TotalsLine(const Totals& totals) {
  return fmt::format(
      "{} case{}; claims: {} passed, {} failed, {} expected, {} skipped, {} vacuous, {} not "
      "applicable",
      totals.cases, totals.cases == 1 ? "" : "s", totals.of(Judgement::kPassed),
      totals.of(Judgement::kFailed), totals.of(Judgement::kExpected),
      totals.of(Judgement::kSkipped), totals.of(Judgement::kVacuous),
      totals.of(Judgement::kNotApplicable));
}

Session::Session(const CommonOptions& options) : options_(options) {
  SetDomain(DomainOf(options));
  StopOnSignals();
}

void Session::Open(const std::vector<std::string>& names, const std::string& contract) {
  subjects = MakeSubjects(names, contract);
  for (const auto& subject : subjects)
    document.subjects.emplace_back(subject->name(), subject->contracts().text());
}

std::vector<Subject*> Session::pointers() const {
  std::vector<Subject*> list;
  for (const auto& subject : subjects) list.push_back(subject.get());
  return list;
}

void Session::Begin(const std::string& what, std::optional<uint64_t> seed) {
  document.seed = seed;
  Tell("{}to repeat: {}", what,
       Repeat(ShellWord(ShortProgram(CommandLine().front())), seed, known.today()));
}

void Session::Complete() {
  document.command = Repeat("qualm", document.seed, known.today());
  document.totals["cases"] = totals.cases;
  for (Judgement judgement :
       {Judgement::kPassed, Judgement::kFailed, Judgement::kExpected, Judgement::kSkipped,
        Judgement::kVacuous, Judgement::kNotApplicable}) {
    document.totals[std::string(Name(judgement))] = totals.of(judgement);
  }
  document.known = known.MarksOf(document.findings);
  document.seconds = stopwatch.seconds();
}

void Session::Write(const std::string& copy) {
  Complete();
  if (!copy.empty()) deferred.Try([&] { WriteTextFile(copy, ResultToJson(document)); });
  deferred.Try("--json", [&] { WriteTo(options_.json, ResultToJson(document)); });
  deferred.Try("--junit", [&] { WriteTo(options_.junit, ToJUnit(tests)); });
  deferred.Try("--sarif", [&] { WriteTo(options_.sarif, ToSarif(document, QUALM_VERSION)); });
  if (options_.github) deferred.Try("--github", [&] { TellGithub(document); });
  deferred.Throw();
}

bool Session::Judged(const std::string& why) const {
  if (Stopped() || totals.judged() != 0) return true;
  TellLine(fmt::format("nothing was judged{}{}", why.empty() ? "" : ": ", why));
  return false;
}

int Session::End(const std::string& why, const std::string& copy) {
  Write(copy);
  if (!Judged(why)) return kBadInput;
  return StatusOfStopped(known.AnyNew(document.findings) ? kFindings : kClean);
}

}  // namespace qualm::tools
