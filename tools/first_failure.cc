// SPDX-License-Identifier: Apache-2.0
// first_failure OP CASES SEED: the cases of `qualm check --subject native@all --op OP --seed SEED`,
// judged in the same way, but only up to the first that fails. scripts/mutate runs it on kernels
// that were broken on purpose. The line it prints is "failed CASE PROPERTY SUBJECT", cases counted
// from 1, or "passed CASES". Exit status: 0 passed, 1 failed, 2 bad usage. A case without an end is
// ended by SIGALRM: with garbage for a multiplier the exact comparison takes years.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "adapters/registry.h"
#include "core/op.h"
#include "core/status.h"
#include "core/subject.h"
#include "properties/engine.h"
#include "properties/gen/gen.h"
#include "tools/command.h"

namespace {

constexpr unsigned kSecondsForOneCase = 60;  // which takes milliseconds

int Run(qualm::Op op, int64_t cases, uint64_t seed) {
  qualm::RegisterAllSubjects();
  const auto owned = qualm::MakeSubjects(qualm::SubjectRegistry::Get().Expand("native@all"), "");
  std::vector<qualm::Subject*> subjects;
  for (const auto& subject : owned) subjects.push_back(subject.get());
  qualm::CheckResult result;
  for (int64_t i = 0; i < cases; ++i) {
    const qualm::Case c = qualm::gen::Draw(op, qualm::CaseSeed(seed, op, i));
    alarm(kSecondsForOneCase);
    qualm::CheckCase(c, subjects, "*", result);
    if (result.findings.empty()) continue;
    const qualm::Finding& finding = result.findings.front();
    fmt::print("failed {} {} {}\n", i + 1, finding.full_property(), finding.subject);
    return 1;
  }
  fmt::print("passed {}\n", cases);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4) {
    const std::optional<qualm::Op> op = qualm::ParseOp(argv[1]);
    const auto cases = qualm::tools::ParseInteger<int64_t>(argv[2]);
    const auto seed = qualm::tools::ParseInteger<uint64_t>(argv[3]);
    if (op && cases && *cases > 0 && seed) {
      try {
        return Run(*op, *cases, *seed);
      } catch (const std::exception& error) {
        fmt::print(stderr, "first_failure: {}\n", error.what());
        return 2;
      }
    }
  }
  fmt::print(stderr, "usage: first_failure OP CASES SEED\n");
  return 2;
}
