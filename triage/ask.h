// SPDX-License-Identifier: Apache-2.0
// Asking a subject once more.
#ifndef QUALM_TRIAGE_ASK_H_
#define QUALM_TRIAGE_ASK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "core/case.h"
#include "core/subject.h"
#include "core/verdict.h"

namespace qualm::triage {

// Neither poison is the default poison: a MemoSubject then runs the case and does not answer from
// memory.
inline constexpr uint8_t kPoison = 0x3C, kSecondPoison = 0xC3;

// nullopt: the subject fails, or what it gives is no output of the case.
inline std::optional<Tensor> Ask(Subject& subject, const Case& c, const RunContext& context) {
  Outcome outcome = subject.Run(c, context);
  if (!outcome.ok() || !c.HoldsOutput(outcome.y)) return std::nullopt;
  return std::move(outcome.y);
}
inline std::optional<Tensor> Ask(Subject& subject, const Case& c, uint8_t poison = kPoison) {
  RunContext context;
  context.poison = poison;
  return Ask(subject, c, context);
}

// What further questions have shown of a subject.
struct ShownOfSubject {
  FindingKind kind = FindingKind::kUnknown;
  std::string sentence;  // what the subject does: "leaves out the last term of a sum"
  std::string evidence;  // of one output, or how many answers show it
  // In which other size it does not show; "": in each that was asked.
  std::string not_in{};
};

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_ASK_H_
