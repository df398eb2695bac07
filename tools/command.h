// SPDX-License-Identifier: Apache-2.0
// The parts that all verbs share: options, text for people, exit status.
#ifndef QUALM_TOOLS_COMMAND_H_
#define QUALM_TOOLS_COMMAND_H_

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "properties/property.h"
#include "properties/sweep.h"
#include "tools/terminal.h"
#include "tools/verb.h"

namespace qualm::tools {

enum ExitStatus : int { kClean = 0, kFindings = 1, kBadInput = 2, kUnavailable = 3 };

// Options that most verbs take.
struct CommonOptions {
  std::vector<std::string> subjects;
  std::string json;  // file, "-" for stdout, "" for none
  std::string junit;
  std::string sarif;
  bool github = false;
  std::string contract;  // overrides each subject's own (ParseContracts)
  std::string domain;    // a file of ranges and shapes (tools/domain_file.h), "" for none
  std::string shapes;    // a file of shapes, one on a line, "" for none
  std::string emit;      // an exporter, "" for none
  std::string output;    // where the export goes, "" for stdout

  // With --json -, --junit -, --sarif - or an exporter without a file, nothing but the document
  // goes to stdout.
  bool quiet_stdout() const {
    return json == "-" || junit == "-" || sarif == "-" || (!emit.empty() && output.empty());
  }
};
void AddSubjectOption(Verb& verb, CommonOptions& options, bool required);
void AddOutputOptions(Verb& verb, CommonOptions& options);
// --junit, --sarif and --github: what CI servers show.
void AddReportOptions(Verb& verb, CommonOptions& options);
void AddContractOption(Verb& verb, CommonOptions& options);
// --domain and --shapes, of verbs that draw or shrink cases; Session opens its subjects in them.
void AddDomainOptions(Verb& verb, CommonOptions& options);
// Whether --contract says something of the operation.
bool NamesContract(const CommonOptions& options, Op op);
// The contract of --contract for the operation, `otherwise` where it says nothing.
Contract ContractFor(const CommonOptions& options, Op op, const Contract& otherwise);

// The property called `name`, "CLAIM" or "OP.CLAIM", if it speaks of `op`; InputError "WHERE: ..."
// if there is none.
const Property& PropertyOf(const std::string& name, Op op, const std::string& where);
// Makes the folder, and those above it; InputError "OPTION: cannot make ..." where that fails.
void MakeFolder(const std::string& option, const std::string& path);

// Case files and recordings below `path`, sorted, so that the order does not depend on the file
// system; `path` itself if it is a file. Throws InputError where there are none.
std::vector<std::string> CaseFilesOf(const std::string& path);

// One subject's sweep in a few lines: where it bends, which pairs bend it.
std::string SweepSummary(const sweep::Result& result);

// --skip GLOB: properties to leave out.
void AddSkip(Verb& verb, std::vector<std::string>& skip);
// Leaves the properties of --skip out of the glob; InputError if a pattern leaves out nothing.
void AddSkipped(const std::vector<std::string>& skip, std::string& glob);

// Prints text for people to stdout, in colour on a terminal; throws InputError if the text cannot
// be written.
void Out(const std::string& text);
// "qualm: ..." on one line of stderr; Tell says nothing under --quiet. Errors of writing are
// ignored: a run whose stderr is closed has the same result.
void TellLine(const std::string& text);
template <class... Args>
void Tell(fmt::format_string<Args...> format, Args&&... args) {
  if (IsQuiet()) return;
  TellLine(fmt::format(format, std::forward<Args>(args)...));
}

// A verb adds its options to a subcommand of `app` and stores the work to do in *run.
void AddCheck(CLI::App& app, Run* run);
void AddSweep(CLI::App& app, Run* run);
void AddReplay(CLI::App& app, Run* run);
void AddMinimize(CLI::App& app, Run* run);
void AddExplain(CLI::App& app, Run* run);
void AddIdentify(CLI::App& app, Run* run);
void AddCertify(CLI::App& app, Run* run);
void AddRepair(CLI::App& app, Run* run);
void AddExhaust(CLI::App& app, Run* run);
void AddHazards(CLI::App& app, Run* run);
void AddList(CLI::App& app, Run* run);
void AddAudit(CLI::App& app, Run* run);
void AddReport(CLI::App& app, Run* run);
void AddFuzz(CLI::App& app, Run* run);
void AddMerge(CLI::App& app, Run* run);
void AddNew(CLI::App& app, Run* run);
void AddDoctor(CLI::App& app, Run* run);
void AddShell(CLI::App& app, Run* run);  // completion, man

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_COMMAND_H_
