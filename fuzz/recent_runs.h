// SPDX-License-Identifier: Apache-2.0
// What a subject was asked lately. What it remembers of earlier calls is found by asking these
// again: the questions of properties too, because a cache keeps those as well.
#ifndef QUALM_FUZZ_RECENT_RUNS_H_
#define QUALM_FUZZ_RECENT_RUNS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/forwarding_subject.h"
#include "core/subject.h"

namespace qualm::fuzz {

class RecentRuns : public ForwardingSubject {
 public:
  // Of each operation: libraries keep a cache for each, and claims seldom ask another operation.
  static constexpr size_t kRuns = 512;
  // Bytes of x and w. Longer runs are not remembered.
  static constexpr size_t kMostBytes = 4096;

  using ForwardingSubject::ForwardingSubject;
  Outcome Run(const Case& c, const RunContext& context) override;
  std::vector<Outcome> RunMany(std::span<const Case> cases, const RunContext& context) override;

  // The last runs, oldest first, a line of JSON each. One run with several states of the caller
  // (RunContext) counts as several.
  std::string Lines() const;

 private:
  struct Noted {
    uint64_t at = 0;  // how many were noted before
    Case problem;
  };
  struct OfOperation {
    std::vector<Noted> last;  // the next goes to place noted % kRuns
    uint64_t noted = 0;
  };
  void Note(const Case& c);

  std::map<Op, OfOperation> runs_;
  uint64_t noted_ = 0;
};

// What Lines() wrote. Throws InputError, which names `origin`.
std::vector<Case> ParseRuns(const std::string& lines, const std::string& origin);

}  // namespace qualm::fuzz

#endif  // QUALM_FUZZ_RECENT_RUNS_H_
