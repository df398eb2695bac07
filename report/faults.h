// SPDX-License-Identifier: Apache-2.0
// Groups the findings that show the same fault, and writes the section of each fault.
#ifndef QUALM_REPORT_FAULTS_H_
#define QUALM_REPORT_FAULTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "report/document.h"
#include "report/output_folder.h"

namespace qualm::report {

// The subject of a failed claim: the numbers, or something that must not have changed them.
enum class Aspect : uint8_t { kNumbers, kEnvironment, kMemory, kVanished };

struct Fault {
  std::string id;  // anchor
  std::string family, op, kind;
  std::string cause;     // "" where none is named
  std::string sentence;  // what is wrong, where the run said it
  Aspect aspect = Aspect::kNumbers;
  bool is_new = false;
  std::string reason;                            // why it is expected or known; "" of a new one
  std::vector<const RecordedFinding*> findings;  // never empty

  std::string Title() const;
  std::vector<std::string> subjects() const;
};

// The run that found the findings has said which of them are one fault (tools/faults.h); here the
// same cause on several instruction sets of a subject becomes one fault. Findings that no run has
// grouped (known ones, and those of documented cases) are one fault for each kind. New faults come
// first.
std::vector<Fault> FaultsOf(const ResultRecord& record);

// For each subject with faults: what is wrong, the worst first, and what to type next. The anchor
// of a subject there.
Blocks SubjectBySubject(const std::vector<Fault>& faults, const OutputFolder& folder);
std::string SubjectAnchor(const std::string& subject);

// A section: a sentence, the smallest case worked through, a picture, the subjects with this fault,
// and the commands that show it again.
Block FaultSection(const Fault& fault, const OutputFolder& folder);

}  // namespace qualm::report

#endif  // QUALM_REPORT_FAULTS_H_
