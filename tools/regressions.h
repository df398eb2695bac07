// SPDX-License-Identifier: Apache-2.0
// The life of a case that failed: written with a name and a reason, and replayed until the fault is
// fixed.
#ifndef QUALM_TOOLS_REGRESSIONS_H_
#define QUALM_TOOLS_REGRESSIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/io/json_writer.h"
#include "core/subject.h"
#include "triage/triage.h"

namespace qualm::tools {

// A case that a subject once failed, and its state today.
struct Regression {
  enum class State : uint8_t { kFixed, kStillFails, kFailsDifferently };
  std::string file, subject, note;
  State state = State::kFixed;
  std::string was, is;  // where it fails differently
};

// Whether the case is a reproducer (it names the claim that it breaks) of this very subject.
bool IsReproducerOf(const Case& c, const Subject& subject);
// For a reproducer of `subject`. `fails`: whether the claim fails today.
Regression CompareWithThen(const std::string& file, const Case& c, Subject& subject, bool fails);
// Whether the subject may have failed the claim of the file: it did, or the file does not say who.
bool MayHide(const Case& c, const Subject& subject);
// Where the failure hides that does not show now: one sentence for people.
std::string HiddenFailureText();
// "still fails: FILE on SUBJECT", and the note of the case below it.
std::string RegressionsText(const std::vector<Regression>& regressions);
JsonValue RegressionsJson(const std::vector<Regression>& regressions);

// The file that --to-corpus WHERE means: WHERE.case.json, which must not be there; in a folder a
// new name made of the operation and the cause, "linear-last-product-dropped.case.json".
std::string RegressionFile(const std::string& where, Op op, const triage::Attribution& attribution);
// Throws InputError where no such file can be written.
void RequireRegressionFile(const std::string& where);
// The note of a case: what is wrong, which subject was asked, and when ("2026-11-23T02:40:00Z").
std::string RegressionNote(const std::string& diagnosis, const std::string& verb,
                           const std::string& subject, const std::string& found);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_REGRESSIONS_H_
