// SPDX-License-Identifier: Apache-2.0
// The beginning and the end of every verb that judges: the subjects, the command that repeats the
// run, the result document, the exit status.
#ifndef QUALM_TOOLS_SESSION_H_
#define QUALM_TOOLS_SESSION_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/float_text.h"
#include "core/io/result_json.h"
#include "core/subject.h"
#include "properties/engine.h"
#include "tools/command.h"
#include "tools/known.h"
#include "tools/stop.h"

namespace qualm::tools {

// Throws InputError if an output path (--json, --junit, or the path of an option in `more`) cannot
// be written, equals another output path, or equals an input in `read`. Call it before anything is
// judged. Leaves existing files as they are.
void RequireWritable(const CommonOptions& options,
                     const std::vector<std::pair<std::string, std::string>>& more = {},
                     const std::vector<std::string>& read = {});
// Throws InputError if the folder of findings cannot be made or written. Leaves nothing
// behind.
void RequireFolder(const std::string& option, const std::string& path);
// The folder of findings, or, where it cannot be made or written, one among the temporary files,
// and a line says so: a run is not lost for want of a folder, nor what it finds. InputError where
// a file bears its name.
std::string FolderOrTemporary(const std::string& option, const std::string& path);

// Expands patterns ("native@all"), drops repetitions, keeps the order. A subject named on the
// command line must exist (Unavailable otherwise); a missing one of `defaults` is left out, with
// the reason on stderr.
std::vector<std::string> SubjectNames(const std::vector<std::string>& named,
                                      const std::vector<std::string>& defaults);

// Errors that may occur while results are written. The run tells first what it found, then throws.
class Deferred {
 public:
  void Try(const std::function<void()>& work);  // keeps the first InputError
  // As Try, and also keeps Unavailable. The message begins with OPTION.
  void Try(const std::string& option, const std::function<void()>& work);
  bool failed() const { return !error_.empty(); }
  void Throw() const;  // throws the error that was kept, if there is one

 private:
  std::string error_;
};

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The command line as it was given.
void SetCommandLine(int argc, char** argv);
// Adds options that the environment gave, because a repetition has to name them.
void AddToCommandLine(const std::vector<std::string>& words);

// "1000 cases; claims: 20000 passed, ..." for people.
std::string TotalsLine(const Totals& totals);

// One run of a verb.
class Session {
 public:
  // From here on an interrupt ends the run with the results so far (stop.h), and every subject is
  // in the domain that the options name. Throws InputError where that is wrong.
  explicit Session(const CommonOptions& options);

  // Makes the subjects, gives them the contract if it is not "", and lists them in the document.
  void Open(const std::vector<std::string>& names, const std::string& contract);
  std::vector<Subject*> pointers() const;

  // Says on stderr, after `what`, which command repeats the run. That command is part of the
  // document, without the options that say where results go and how many threads find them. The
  // command includes the seed if the verb draws cases, and --today if the date matters.
  void Begin(const std::string& what = "", std::optional<uint64_t> seed = std::nullopt);

  // Text for people: with decimals beside hex floats, in lines that a terminal shows whole. With
  // --json - or --junit - only the document goes to stdout.
  template <class... Args>
  void Print(fmt::format_string<Args...> format, Args&&... args) const {
    if (options_.quiet_stdout()) return;
    const std::string text = WithDecimals(fmt::format(format, std::forward<Args>(args)...));
    Out(Wrapped(text, TextColumns()));
  }
  // A file, byte for byte, where Print would print.
  void PrintFile(const std::string& text) const {
    if (!options_.quiet_stdout()) Out(text);
  }

  // Puts totals, known findings and the time so far into the document.
  void Complete();
  // Completes the document and writes --json, --junit and `copy`, a second file for the
  // document. Throws what was deferred.
  void Write(const std::string& copy = "");
  // True if anything was judged or the run was interrupted. Otherwise prints that nothing was
  // judged, and `why` if that is not empty.
  bool Judged(const std::string& why) const;
  // Write and the usual exit status: 2 if nothing was judged, 1 if there is a new finding, else 0.
  int End(const std::string& why, const std::string& copy = "");

  Stopwatch stopwatch;
  ResultDocument document;
  Totals totals;
  std::vector<JUnitTest> tests;
  KnownFindings known;
  Deferred deferred;
  std::vector<std::unique_ptr<Subject>> subjects;

 private:
  const CommonOptions& options_;
};

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_SESSION_H_
