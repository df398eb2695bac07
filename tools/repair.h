// SPDX-License-Identifier: Apache-2.0
// A layer before and after its repair, on subjects that saturate: for repair and audit.
#ifndef QUALM_TOOLS_REPAIR_H_
#define QUALM_TOOLS_REPAIR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/io/json_writer.h"
#include "core/subject.h"
#include "proofs/repair.h"

namespace qualm::tools {

// One line: cost, whether it is certified, effect.
std::string RemedyText(const proofs::Remedy& remedy);

// The outputs of a subject for a layer before and after its repair, against exact results.
struct Comparison {
  std::string what;  // "its own rows"
  int64_t outputs = 0;
  std::optional<int64_t> wrong_before, wrong_after;  // nullopt: the subject skipped it
  std::string skipped;
  Case after;

  std::string Text(const Subject& subject) const;
  JsonValue Json(const Subject& subject) const;
};
// Compares the rows of the layer, if it has any, and the raw sums of `rows` rows that aim at the
// sums that were unsafe.
std::vector<Comparison> Compare(const Case& layer, const proofs::Remedy& remedy, proofs::Codes x,
                                int64_t rows, uint64_t seed, Subject& subject);

// The first remedy that is exact and certified, or of that name if it is not ""; nullptr: none.
const proofs::Remedy* Chosen(const std::vector<proofs::Remedy>& remedies,
                             const std::string& name = "");

// An entry of the block "repair" of result documents.
JsonValue RepairJson(const std::string& layer, const proofs::Scheme& scheme, proofs::Codes x,
                     const std::vector<proofs::Remedy>& remedies, const proofs::Remedy* taken,
                     const JsonValue& subjects);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_REPAIR_H_
