// SPDX-License-Identifier: Apache-2.0
// What a subject keeps of an earlier problem and computes the next one with.
#ifndef QUALM_TRIAGE_KEPT_H_
#define QUALM_TRIAGE_KEPT_H_

#include <optional>
#include <string>

#include "core/case.h"
#include "core/subject.h"
#include "triage/where.h"

namespace qualm::triage {

struct KeptFromBefore {
  std::string text;  // "the subject goes on with the bias of an earlier problem"
  std::string evidence;
  Shows shows;  // whether a problem, asked after one with other such things, shows it
};

// Asks problems that differ in one thing one after the other, the problem `c` and some of its types
// that are drawn: a subject that keeps this thing gives the answer of the first to the second.
// Named is what it gives it of each time it is wrong. nullopt where it gives no such answers.
std::optional<KeptFromBefore> FindKept(const Case& c, Subject& subject);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_KEPT_H_
