// SPDX-License-Identifier: Apache-2.0
// Tells the tests of this folder which fields of a case a mutation changed.
#ifndef QUALM_FUZZ_TEST_UTIL_H_
#define QUALM_FUZZ_TEST_UTIL_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/io/case_json.h"
#include "core/rng.h"

namespace qualm::fuzz {

inline std::vector<Op> EveryOp() { return {AllOps().begin(), AllOps().end()}; }

inline std::string Text(const Case& c) { return CaseToJson(c); }

inline std::vector<uint8_t> AnyBytes(Rng& rng, size_t size) {
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Next());
  return bytes;
}

// Which fields of a case were seen to change. A parameter counts for every operation that has it.
class FieldsSeen {
 public:
  // `after` is a mutation of `before`, or a crossing of `before` and `other`. In a crossing a field
  // counts only if its value is that of `other` and not that of `before`.
  void See(const Case& before, const Case& after, const Case* other = nullptr) {
    std::set<std::string> changed, taken;
    Differences(before, after, changed);
    if (other != nullptr) Differences(*other, after, taken);
    for (const std::string& field : changed) {
      if (!taken.contains(field)) unseen_.erase(field), seen_.insert(field);
    }
  }
  const std::set<std::string>& unseen() const { return unseen_; }

 private:
  void Differences(const Case& a, const Case& b, std::set<std::string>& differ) {
    ForEachField(a, b, [&](const Field& field, const auto& in_a, const auto& in_b) {
      if (field.name == "op" || (field.has != nullptr && !(RowOf(a.op).*field.has))) return;
      std::string name(field.name);
      if (field.has != nullptr) name += " of " + std::string(Name(a.op));
      if (!seen_.contains(name)) unseen_.insert(name);
      if (!(in_a == in_b)) differ.insert(name);
    });
  }

  std::set<std::string> seen_, unseen_;
};

}  // namespace qualm::fuzz

#endif  // QUALM_FUZZ_TEST_UTIL_H_
