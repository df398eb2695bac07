// SPDX-License-Identifier: Apache-2.0
// What every verb of the command line shares: options, subjects, the result document, exit status.
#ifndef QUALM_TOOLS_COMMAND_H_
#define QUALM_TOOLS_COMMAND_H_

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/io/result_json.h"
#include "core/subject.h"
#include "properties/engine.h"
#include "properties/property.h"
#include "properties/sweep.h"
#include "tools/known.h"
#include "triage/triaged.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace qualm::tools {

enum ExitStatus : int { kClean = 0, kFindings = 1, kBadInput = 2, kUnavailable = 3 };

// Options that most verbs take.
struct CommonOptions {
  std::vector<std::string> subjects;
  std::string json;  // file, "-" for stdout, "" for none
  std::string junit;
  std::string contract;  // overrides each subject's own
  std::string command;   // canonical: repeats the run; without --json, --junit, --jobs, --out

  // With --json - or --junit - the document is all that goes to stdout.
  bool quiet_stdout() const { return json == "-" || junit == "-"; }
};
void AddSubjectOption(CLI::App& app, CommonOptions& options, bool required);
void AddOutputOptions(CLI::App& app, CommonOptions& options);
void AddJUnitOption(CLI::App& app, CommonOptions& options);
void AddContractOption(CLI::App& app, CommonOptions& options);
// Throws InputError where --json, --junit or one of `more` (option, path) cannot be written, where
// two of them are one file, or where one is among the case files that are `read`; before anything
// is judged. What is there already stays as it is.
void RequireWritable(const CommonOptions& options,
                     const std::vector<std::pair<std::string, std::string>>& more = {},
                     const std::vector<std::string>& read = {});
// Throws InputError where the folder that findings would go to cannot be made or written. Leaves
// nothing behind.
void RequireFolder(const std::string& option, const std::string& path);
// For CLI::Option::check: an empty name is a mistake, not the absence of one.
std::string NotEmpty(const std::string& value);

// Expands patterns ("native@all"), drops repetitions, keeps the order. A subject named on the
// command line must be had (Unavailable otherwise); of `defaults` those that cannot be had are left
// out, with the reason on stderr.
std::vector<std::string> SubjectNames(const std::vector<std::string>& named,
                                      const std::vector<std::string>& defaults);
// Makes them, with --contract applied.
std::vector<std::unique_ptr<Subject>> MakeSubjects(const std::vector<std::string>& names,
                                                   const std::string& contract);
// The property called `name`, "CLAIM" or "OP.CLAIM", if it speaks of `op`; InputError "WHERE: ..."
// if there is none.
const Property& PropertyOf(const std::string& name, Op op, const std::string& where);
std::vector<Subject*> Pointers(const std::vector<std::unique_ptr<Subject>>& subjects);

// What is wrong with the expected output of a case file, if it has one that is not the exact one.
std::optional<Finding> WrongExpected(const Case& c, const std::string& file);

// What may go wrong while results are written. What was found is told first, then this is thrown.
class Deferred {
 public:
  void Try(const std::function<void()>& work);  // keeps the first InputError
  void Throw() const;                           // throws it, if there is one

 private:
  std::string error_;
};

// Attributes, deduplicates by fingerprint, minimizes one of each and writes it all below `out`:
// OUT/findings/<fingerprint>/{case.json, minimized.case.json, explanation.txt}. Each finding is on
// disk before work on the next begins. `out` empty: nothing is written or minimized. A folder that
// cannot be written does not lose the finding.
// What is known already is neither minimized nor written: its evidence is elsewhere. Once `stop`
// says so, findings are written as they are.
std::vector<Finding> Triage(std::vector<Finding> raw, const std::string& out,
                            const std::string& contract, const KnownFindings& known,
                            Deferred& deferred, const std::function<bool()>& stop);

// Fills totals of a document from counted verdicts.
void SetTotals(ResultDocument& document, const Totals& totals);
// Writes --json and --junit; tries both before it throws.
void WriteResults(const CommonOptions& options, const ResultDocument& document,
                  const std::vector<JUnitTest>& tests);
void WriteFile(const std::string& path, const std::string& text);

// Was anything judged? Says on stderr if not, and why where `why` is not empty.
bool JudgedSomething(const Totals& totals, const std::string& why);

// "3 findings; 1000 cases, 20000 passed, ..." for people.
std::string TotalsLine(const Totals& totals);
// `label`: what it is, instead of "expected" or "FINDING".
using triage::FindingText;

// One subject's sweep in a few lines: where it bends, which pairs bend it.
std::string SweepSummary(const sweep::Result& result);

// "60s", "10m", "8h", or plain seconds; more than 0.
void AddDuration(CLI::App& app, const std::string& name, double& seconds, const std::string& help);

void AddSeed(CLI::App& app, uint64_t& seed);

// Decimal digits, with '-' before them where T has a sign; nullopt for anything else, beyond T too.
template <class T>
std::optional<T> ParseInteger(std::string_view text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}
// An integer in least..most. CLI11 alone reads 010 as 8 and wraps what is too large.
CLI::Option* AddInteger(CLI::App& app, const std::string& names,
                        const std::function<void(int64_t)>& store, int64_t least, int64_t most,
                        const std::string& help);
template <class T>
CLI::Option* AddInteger(CLI::App& app, const std::string& names, T& value, int64_t least,
                        int64_t most, const std::string& help) {
  return AddInteger(
      app, names, [&value](int64_t read) { value = static_cast<T>(read); }, least, most, help);
}

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Text for people, to stdout; throws InputError where that cannot be written.
void Out(const std::string& text);
template <class... Args>
void Print(fmt::format_string<Args...> format, Args&&... args) {
  Out(fmt::format(format, std::forward<Args>(args)...));
}
// "qualm: ..." on one line of stderr. What goes wrong there is nobody's concern: a run without a
// terminal has the same result.
void TellLine(const std::string& text);
template <class... Args>
void Tell(fmt::format_string<Args...> format, Args&&... args) {
  TellLine(fmt::format(format, std::forward<Args>(args)...));
}
// Says once per subject that it crashed or hung, while the run goes on. Any thread.
void Alarm(const Finding& finding);

// A verb adds its options to a subcommand of `app` and stores the work to do in *run.
using Run = std::function<int()>;
void AddCheck(CLI::App& app, Run* run);
void AddSweep(CLI::App& app, Run* run);
void AddReplay(CLI::App& app, Run* run);
void AddMinimize(CLI::App& app, Run* run);
void AddExplain(CLI::App& app, Run* run);
void AddIdentify(CLI::App& app, Run* run);
void AddList(CLI::App& app, Run* run);
void AddAudit(CLI::App& app, Run* run);
void AddReport(CLI::App& app, Run* run);

// The command line as it was given.
void SetCommandLine(int argc, char** argv);
// What repeats this run: without the options that say where results go and how many threads find
// them. Adds --seed where a verb draws cases and none was given, and --today where the date
// matters.
std::string CanonicalCommand(std::optional<uint64_t> seed = std::nullopt,
                             const std::string& today = "");
// Says so on stderr before the run starts, in the words that were used to start this program.
void PrintRepeat(const std::string& what, std::optional<uint64_t> seed = std::nullopt,
                 const std::string& today = "");

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_COMMAND_H_
