// SPDX-License-Identifier: Apache-2.0
#include "tools/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>

#include "core/io/case_json.h"
#include "core/io/json_text.h"
#include "core/status.h"
#include "oracles/conventions/convention.h"
#include "oracles/exact/exact.h"
#include "properties/property.h"
#include "triage/triage.h"

namespace qualm::tools {
namespace {

std::vector<std::string>& CommandLine() {
  static std::vector<std::string> words;
  return words;
}

std::string ShellWord(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789@%+=:,./-_") == std::string::npos;
  if (plain) return word;
  if (OneLine(word) != word) {
    // The quotes of bash, zsh and POSIX 2024, so that the line stays one.
    std::string quoted = "$'";
    for (char ch : word) {
      if (static_cast<uint8_t>(ch) < 0x20 || ch == 0x7F) {
        quoted += fmt::format("\\{:03o}", static_cast<uint8_t>(ch));
      } else {
        quoted += ch == '\'' || ch == '\\' ? std::string("\\") + ch : std::string(1, ch);
      }
    }
    return quoted + "'";
  }
  std::string quoted = "'";
  for (char ch : word) quoted += ch == '\'' ? std::string("'\\''") : std::string(1, ch);
  return quoted + "'";
}

}  // namespace

void Out(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    throw InputError("stdout cannot be written");
  }
}

void TellLine(const std::string& text) {
  const std::string line = "qualm: " + OneLine(text) + "\n";
  // Unchecked on purpose: see the header.
  (void)std::fwrite(line.data(), 1, line.size(), stderr);
}

void Alarm(const Finding& finding) {
  if (finding.kind != FindingKind::kCrash && finding.kind != FindingKind::kHang) return;
  static std::mutex mutex;
  static std::set<std::pair<std::string, FindingKind>> told;
  const std::scoped_lock lock(mutex);
  if (!told.emplace(finding.subject, finding.kind).second) return;
  Tell("{} fails {}: {}", finding.subject, finding.full_property(), finding.explanation);
}

void SetCommandLine(int argc, char** argv) { CommandLine().assign(argv, argv + argc); }

namespace {

// "--jobs", "--jobs=2", "-j2": an option whose value does not belong to what is repeated. *next
// says whether the value is the next word.
bool IsVolatile(const std::string& word, bool* next) {
  static const std::set<std::string> kLong{"--json", "--junit", "--jobs",
                                           "--out",  "--plot",  "--output"};
  static const std::set<std::string> kShort{"-j", "-o"};
  const std::string name = word.substr(0, word.find('='));
  *next = name == word;
  if (kLong.contains(name)) return true;
  if (!kShort.contains(word.substr(0, 2))) return false;
  *next = word.size() == 2;
  return true;
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
    command += " " + ShellWord(words[i]);
  }
  if (seed && !has_seed) command += " --seed " + std::to_string(*seed);
  if (!today.empty() && !has_today) command += " --today " + today;
  return command;
}

}  // namespace

std::string CanonicalCommand(std::optional<uint64_t> seed, const std::string& today) {
  return Repeat("qualm", seed, today);
}

void PrintRepeat(const std::string& what, std::optional<uint64_t> seed, const std::string& today) {
  Tell("{}to repeat: {}", what, Repeat(ShellWord(CommandLine().front()), seed, today));
}

void AddSubjectOption(CLI::App& app, CommonOptions& options, bool required) {
  CLI::Option* option = app.add_option("--subject,-s", options.subjects,
                                       "who is judged (repeatable; see qualm list subjects)");
  option->allow_extra_args(false);
  if (required) option->required();
}

void AddOutputOptions(CLI::App& app, CommonOptions& options) {
  app.add_option("--json", options.json, "write the result document to FILE, - for stdout")
      ->check(NotEmpty);
}

void AddJUnitOption(CLI::App& app, CommonOptions& options) {
  app.add_option("--junit", options.junit, "write a JUnit report to FILE, - for stdout")
      ->check(NotEmpty);
}

std::string NotEmpty(const std::string& value) {
  return value.empty() ? "is empty, expected a value" : "";
}

namespace {

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
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0 && errno == EEXIST) return;  // a link to what is not there yet
  if (file < 0) fail(std::strerror(errno));
  close(file);
  unlink(path.c_str());
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
    // What takes what is written and keeps nothing (/dev/null) may take it twice.
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

}  // namespace

void RequireFolder(const std::string& option, const std::string& path) {
  if (path.empty()) return;
  namespace fs = std::filesystem;
  const auto fail = [&](const std::string& why) {
    throw InputError(option + ": " + path + ": cannot be made or written (" + why + ")");
  };
  std::error_code error;
  std::vector<fs::path> missing;  // the innermost first
  for (fs::path at = fs::absolute(path); !fs::exists(at, error); at = at.parent_path()) {
    missing.push_back(at);
  }
  // Tried, since some file systems only say so then, and taken back: a run may find nothing.
  fs::create_directories(path, error);
  if (error) fail(error.message());
  const bool writable = access(path.c_str(), W_OK) == 0;
  const std::string why = std::strerror(errno);
  for (const fs::path& made : missing) fs::remove(made, error);
  if (!writable) fail(why);
}

void RequireWritable(const CommonOptions& options,
                     const std::vector<std::pair<std::string, std::string>>& more,
                     const std::vector<std::string>& read) {
  if (options.json == "-" && options.junit == "-") {
    throw InputError("--junit: stdout takes one document, expected a file for this or for --json");
  }
  std::vector<std::pair<std::string, std::string>> written = more;
  if (options.json != "-") written.emplace_back("--json", options.json);
  if (options.junit != "-") written.emplace_back("--junit", options.junit);
  for (const auto& [option, path] : written) RequireWritable(option, path);
  RequireApart(written, read);
}

void AddContractOption(CLI::App& app, CommonOptions& options) {
  app.add_option("--contract", options.contract,
                 "judge against exact or model:NAME instead of each subject's own contract")
      ->check(NotEmpty);
}

std::vector<std::string> SubjectNames(const std::vector<std::string>& named,
                                      const std::vector<std::string>& defaults) {
  const SubjectRegistry& registry = SubjectRegistry::Get();
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const std::string& pattern : named) {
    for (const std::string& name : registry.Expand(pattern)) add(name);
  }
  if (!named.empty()) return names;
  for (const std::string& pattern : defaults) {
    try {
      for (const std::string& name : registry.Expand(pattern)) {
        registry.Make(name);
        add(name);
      }
    } catch (const Unavailable& error) {
      Tell("left out: {}", error.what());
    } catch (const InputError&) {
      Tell("left out: this build has no subject '{}'", pattern);
    }
  }
  return names;
}

std::vector<std::unique_ptr<Subject>> MakeSubjects(const std::vector<std::string>& names,
                                                   const std::string& contract) {
  std::optional<Contract> wanted;
  if (!contract.empty()) {
    wanted = ParseContract(contract);
    if (!wanted->exact() && FindConvention(wanted->convention) == nullptr) {
      throw InputError("--contract: there is no model '" + wanted->convention +
                       "' (see qualm list subjects)");
    }
  }
  std::vector<std::unique_ptr<Subject>> subjects;
  for (const std::string& name : names) {
    subjects.push_back(SubjectRegistry::Get().Make(name));
    if (wanted) subjects.back()->set_contract(*wanted);
    const Contract& contract_of = subjects.back()->contract();
    if (!contract_of.exact() && FindConvention(contract_of.convention) == nullptr) {
      // A plugin may promise anything.
      throw Unavailable("subject '" + name + "': its contract: there is no model '" +
                        contract_of.convention + "' (see qualm list subjects)");
    }
  }
  return subjects;
}

const Property& PropertyOf(const std::string& name, Op op, const std::string& where) {
  const Property* property = FindProperty(name);
  if (property == nullptr) {
    throw InputError(where + ": unknown property '" + name + "' (see qualm list properties)");
  }
  const size_t dot = name.find('.');
  const bool other_op = dot != std::string::npos && ParseOp(name.substr(0, dot)) != op;
  if (other_op || !property->about(op)) {
    throw InputError(where + ": " + name + " says nothing about " + std::string(Name(op)));
  }
  return *property;
}

std::vector<Subject*> Pointers(const std::vector<std::unique_ptr<Subject>>& subjects) {
  std::vector<Subject*> pointers;
  for (const auto& subject : subjects) pointers.push_back(subject.get());
  return pointers;
}

std::optional<Finding> WrongExpected(const Case& c, const std::string& file) {
  if (!c.expected) return std::nullopt;
  const auto divergence = FirstDivergence(exact::Evaluate(c), *c.expected);
  if (!divergence) return std::nullopt;
  return Finding(
      c, "matches_exact", "expected",
      Verdict::Failed("the expected output in the file is not the exact one", divergence), file);
}

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) throw InputError(path + ": cannot be written");
}

void Deferred::Try(const std::function<void()>& work) {
  try {
    work();
  } catch (const InputError& error) {
    if (error_.empty()) error_ = error.what();
  }
}

void Deferred::Throw() const {
  if (!error_.empty()) throw InputError(error_);
}

namespace {

std::string MakeFolder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw InputError("--out: cannot make " + folder.string() + ": " + error.message());
  return folder.string();
}

// A finding, and the subject that it was made with.
class OwnTriaged {
 public:
  OwnTriaged(Finding finding, const std::string& contract, const KnownFindings& known)
      : subject_(Make(finding.subject, contract)),
        triaged_(std::move(finding), *subject_,
                 [&known](const Finding& candidate) { return !known.IsNew(candidate); }) {}

  triage::Triaged* operator->() { return &triaged_; }

  void Write(const std::string& out) {
    Finding& finding = triaged_.finding();
    const std::filesystem::path folder(
        MakeFolder(std::filesystem::path(out) / "findings" / finding.fingerprint()));
    Case written = finding.test_case;
    written.property = finding.full_property();
    finding.case_file = (folder / "case.json").string();
    WriteCaseFile(written, finding.case_file);
    const std::string explanation = triaged_.Text();
    if (triaged_.small()) {
      finding.case_file = (folder / "minimized.case.json").string();
      WriteCaseFile(triaged_.small()->minimized, finding.case_file);
    }
    WriteFile((folder / "explanation.txt").string(), explanation);
  }

 private:
  static std::unique_ptr<Subject> Make(const std::string& name, const std::string& contract) {
    std::unique_ptr<Subject> subject = SubjectRegistry::Get().Make(name);
    if (!contract.empty()) subject->set_contract(ParseContract(contract));
    return subject;
  }

  std::unique_ptr<Subject> subject_;
  triage::Triaged triaged_;
};

}  // namespace

std::vector<Finding> Triage(std::vector<Finding> raw, const std::string& out,
                            const std::string& contract, const KnownFindings& known,
                            Deferred& deferred, const std::function<bool()>& stop) {
  std::vector<Finding> kept;
  // One that is not declared outweighs one of the same fingerprint that is.
  const auto have = [&](const Finding& finding) {
    for (Finding& other : kept) {
      if (other.fingerprint() != finding.fingerprint()) continue;
      other.expected_by_contract &= finding.expected_by_contract;
      return true;
    }
    return false;
  };
  for (Finding& finding : raw) {
    OwnTriaged triaged(std::move(finding), contract, known);
    if (triaged->sure() && have(triaged->finding())) continue;
    const auto is_known = [&] {
      return !triaged->finding().expected_by_contract && !known.IsNew(triaged->finding());
    };
    if (!out.empty() && !(triaged->sure() && is_known())) {
      if (!stop()) triaged->Minimize({.stop = stop});
      if (have(triaged->finding())) continue;
      if (!is_known()) deferred.Try([&] { triaged.Write(out); });
    } else if (have(triaged->finding())) {
      continue;
    }
    kept.push_back(triaged->finding());
  }
  return kept;
}

void SetTotals(ResultDocument& document, const Totals& totals) {
  document.totals["cases"] = totals.cases;
  for (Judgement judgement :
       {Judgement::kPassed, Judgement::kFailed, Judgement::kExpected, Judgement::kSkipped,
        Judgement::kVacuous, Judgement::kNotApplicable}) {
    document.totals[std::string(Name(judgement))] = totals.of(judgement);
  }
}

void WriteResults(const CommonOptions& options, const ResultDocument& document,
                  const std::vector<JUnitTest>& tests) {
  Deferred deferred;
  const auto write = [&](const char* option, const std::string& path, const std::string& text) {
    deferred.Try([&] {
      try {
        WriteFile(path, text);
      } catch (const InputError& error) {
        throw InputError(std::string(option) + ": " + error.what());
      }
    });
  };
  const auto show = [&](const char* option, const std::string& text) {
    deferred.Try([&] {
      if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
          std::fflush(stdout) != 0) {
        throw InputError(std::string(option) + ": stdout cannot be written");
      }
    });
  };
  if (options.json == "-") {
    show("--json", ResultToJson(document));
  } else if (!options.json.empty()) {
    write("--json", options.json, ResultToJson(document));
  }
  if (options.junit == "-") {
    show("--junit", ToJUnit(tests));
  } else if (!options.junit.empty()) {
    write("--junit", options.junit, ToJUnit(tests));
  }
  deferred.Throw();
}

void AddDuration(CLI::App& app, const std::string& name, double& seconds, const std::string& help) {
  app.add_option(name, seconds, help)
      ->transform(
          CLI::AsNumberWithUnit(std::map<std::string, double>{{"s", 1}, {"m", 60}, {"h", 3600}},
                                CLI::AsNumberWithUnit::CASE_SENSITIVE))
      ->check([](const std::string& value) {
        const double read = std::strtod(value.c_str(), nullptr);
        return read > 0 && read < 1e9 ? std::string()
                                      : "is not more than 0 or too long, expected e.g. 60s";
      });
}

void AddSeed(CLI::App& app, uint64_t& seed) {
  app.add_option_function<std::string>(
         "--seed",
         [&seed](const std::string& text) {
           const std::optional<uint64_t> read = ParseInteger<uint64_t>(text);
           if (!read) {
             throw CLI::ValidationError(
                 "--seed", "'" + text + "' is no seed, expected an integer in 0..2^64-1");
           }
           seed = *read;
         },
         "seed of the drawn cases")
      ->type_name("INT");
}

CLI::Option* AddInteger(CLI::App& app, const std::string& names,
                        const std::function<void(int64_t)>& store, int64_t least, int64_t most,
                        const std::string& help) {
  const std::string name = names.substr(0, names.find(','));
  return app
      .add_option_function<std::string>(
          names,
          [=](const std::string& text) {
            const std::optional<int64_t> read = ParseInteger<int64_t>(text);
            if (!read || *read < least || *read > most) {
              const std::string range = most == INT64_MAX ? fmt::format("from {} on", least)
                                                          : fmt::format("in {}..{}", least, most);
              throw CLI::ValidationError(name, "is '" + text + "', expected an integer " + range);
            }
            store(*read);
          },
          help)
      ->type_name("INT");
}

bool JudgedSomething(const Totals& totals, const std::string& why) {
  if (totals.of(Judgement::kPassed) + totals.of(Judgement::kFailed) +
          totals.of(Judgement::kExpected) !=
      0)
    return true;
  Tell("nothing was judged{}{}", why.empty() ? "" : ": ", why);
  return false;
}

std::string TotalsLine(const Totals& totals) {
  return fmt::format(
      "{} cases: {} passed, {} failed, {} expected, {} skipped, {} vacuous, {} not applicable",
      totals.cases, totals.of(Judgement::kPassed), totals.of(Judgement::kFailed),
      totals.of(Judgement::kExpected), totals.of(Judgement::kSkipped),
      totals.of(Judgement::kVacuous), totals.of(Judgement::kNotApplicable));
}

}  // namespace qualm::tools
