// SPDX-License-Identifier: Apache-2.0
// What an exporter is given. Internal to exporters/.
#ifndef QUALM_EXPORTERS_EVIDENCE_H_
#define QUALM_EXPORTERS_EVIDENCE_H_

#include <string>
#include <string_view>

#include "core/status.h"
#include "exporters/exporter.h"
#include "exporters/text.h"

namespace qualm::exporters {

struct Evidence {
  const Case& c;
  const Finding& finding;
  const Environment& environment;
  Tensor expected;  // exact

  // Who answered, and what; throws CannotExpress where the case has no answer.
  const Observed& answer() const;
};

// The kind is named by the caller.
class CannotExpress : public InputError {
 public:
  using InputError::InputError;
};
inline void Require(bool holds, std::string_view lacks) {
  if (!holds) throw CannotExpress("lacks " + std::string(lacks));
}

// "linear M=1 N=1 K=2 u8*s8->u8 per-tensor: output 0 is 129, the answer is 128".
std::string Headline(const Evidence& evidence);
// What stands at the head of a program: the headline, who answered, the cause, how to run it.
std::string Head(const Evidence& evidence, std::string_view mark, std::string_view how_to_run);

// Every cause of the answer is the saturating pair sum of vpmaddubsw; the rest is exact.
bool IsPairSaturation(const Evidence& evidence);

// How libraries are told the instruction set that the subject used: ONEDNN_MAX_CPU_ISA,
// ATEN_CPU_CAPABILITY, FBGEMM_ENABLE_INSTRUCTIONS. All are "" where it is not known.
struct InstructionSet {
  std::string_view name, onednn, aten, fbgemm;
};
const InstructionSet& InstructionSetOf(const Evidence& evidence);

std::string WriteCpp(const Evidence& evidence);
std::string WriteGTest(const Evidence& evidence);
std::string WriteNumpy(const Evidence& evidence);
std::string WriteIssue(const Evidence& evidence);
std::string WriteOnednn(const Evidence& evidence);
std::string WritePytorch(const Evidence& evidence);
std::string WriteXnnpack(const Evidence& evidence);
NamedTexts WriteOnnx(const Evidence& evidence);

}  // namespace qualm::exporters

#endif  // QUALM_EXPORTERS_EVIDENCE_H_
