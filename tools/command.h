// SPDX-License-Identifier: Apache-2.0
// What every verb of the command line shares: options, subjects, the result document, exit status.
#ifndef QUALM_TOOLS_COMMAND_H_
#define QUALM_TOOLS_COMMAND_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/io/result_json.h"
#include "core/subject.h"
#include "properties/engine.h"
#include "properties/sweep.h"

namespace CLI {
class App;
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

  // With --json - the document is all that goes to stdout.
  bool quiet_stdout() const { return json == "-"; }
};
void AddSubjectOption(CLI::App& app, CommonOptions& options, bool required);
void AddOutputOptions(CLI::App& app, CommonOptions& options);
void AddContractOption(CLI::App& app, CommonOptions& options);

// Expands patterns ("native@all"), drops repetitions, keeps the order. A subject named on the
// command line must be had (Unavailable otherwise); of `defaults` those that cannot be had are left
// out, with the reason on stderr.
std::vector<std::string> SubjectNames(const std::vector<std::string>& named,
                                      const std::vector<std::string>& defaults);
// Makes them, with --contract applied.
std::vector<std::unique_ptr<Subject>> MakeSubjects(const std::vector<std::string>& names,
                                                   const std::string& contract);
std::vector<Subject*> Pointers(const std::vector<std::unique_ptr<Subject>>& subjects);

// Does a row of adapters/contracts.cc declare this finding of `subject`?
bool IsDeclared(const Finding& finding, const Contract& contract);

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
std::vector<Finding> Triage(std::vector<Finding> raw, const std::string& out,
                            const std::string& contract, Deferred& deferred);

// Fills totals of a document from counted verdicts.
void SetTotals(ResultDocument& document, const Totals& totals);
// Writes --json and --junit; tries both before it throws.
void WriteResults(const CommonOptions& options, const ResultDocument& document,
                  const std::vector<JUnitTest>& tests);
void WriteFile(const std::string& path, const std::string& text);

// "3 findings; 1000 cases, 20000 passed, ..." for people.
std::string TotalsLine(const Totals& totals);
std::string FindingText(const Finding& finding);

// One subject's sweep in a few lines: where it bends, which pairs bend it.
std::string SweepSummary(const sweep::Result& result);

// "60s", "10m", "8h", or plain seconds; more than 0.
void AddDuration(CLI::App& app, const std::string& name, double& seconds, const std::string& help);

void AddSeed(CLI::App& app, uint64_t& seed);

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A verb adds its options to a subcommand of `app` and stores the work to do in *run.
using Run = std::function<int()>;
void AddCheck(CLI::App& app, Run* run);
void AddSweep(CLI::App& app, Run* run);
void AddReplay(CLI::App& app, Run* run);
void AddMinimize(CLI::App& app, Run* run);
void AddExplain(CLI::App& app, Run* run);
void AddList(CLI::App& app, Run* run);
void AddAudit(CLI::App& app, Run* run);
void AddReport(CLI::App& app, Run* run);

// The command line as it was given.
void SetCommandLine(int argc, char** argv);
// What repeats this run: without the options that say where results go and how many threads find
// them. Adds --seed where a verb draws cases and none was given.
std::string CanonicalCommand(std::optional<uint64_t> seed = std::nullopt);
// Says so on stderr before the run starts, in the words that were used to start this program.
void PrintRepeat(const std::string& what, std::optional<uint64_t> seed = std::nullopt);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_COMMAND_H_
