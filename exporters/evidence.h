// SPDX-License-Identifier: Apache-2.0
// The case, answer and cause that an exporter writes about. Internal to exporters/.
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

  // The answer and who gave it; throws CannotExpress if the case has no answer.
  const Observed& answer() const;
};

// Thrown if a kind cannot express the case; the caller adds the name of the kind.
class CannotExpress : public InputError {
 public:
  using InputError::InputError;
};
inline void Require(bool holds, std::string_view lacks) {
  if (!holds) throw CannotExpress("lacks " + std::string(lacks));
}

// "linear M=1 N=1 K=2 u8*s8->u8 per-tensor: output 0 is 129, the answer is 128".
std::string Headline(const Evidence& evidence);
// The head of a program as comments: the headline, who answered, the cause, how to run it.
std::string Head(const Evidence& evidence, std::string_view mark, std::string_view how_to_run);

// Every cause of the answer is the saturating pair sum of vpmaddubsw; the rest is exact.
bool IsPairSaturation(const Evidence& evidence);

// The values that make libraries use the subject's instruction set: ONEDNN_MAX_CPU_ISA,
// ATEN_CPU_CAPABILITY, FBGEMM_ENABLE_INSTRUCTIONS. All are "" if the set is not known.
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
std::string WriteXnnpack2024(const Evidence& evidence);
NamedTexts WriteOnnx(const Evidence& evidence);

}  // namespace qualm::exporters

#endif  // QUALM_EXPORTERS_EVIDENCE_H_
