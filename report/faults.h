// SPDX-License-Identifier: Apache-2.0
// Findings that show the same fault, and what the page says of each fault.
#ifndef QUALM_REPORT_FAULTS_H_
#define QUALM_REPORT_FAULTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "report/document.h"
#include "report/evidence.h"

namespace qualm::report {

// What a failed claim is about: numbers, or what must not have changed them.
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

// Which findings are one fault the run has said that found them (tools/faults.h); here the same
// cause on several instruction sets of a subject is one more time the same. Findings of which no
// run said it (known ones, and those of documented cases) are one fault for each kind. New ones
// first.
std::vector<Fault> FaultsOf(const ResultRecord& record);

// A section: a sentence, the smallest case worked through, a picture, who saw it, how to see it
// again.
Block FaultSection(const Fault& fault, const OutputFolder& folder);

}  // namespace qualm::report

#endif  // QUALM_REPORT_FAULTS_H_
