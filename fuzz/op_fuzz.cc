// SPDX-License-Identifier: Apache-2.0
// The fuzz target of every operation. The program reads the operation from its own name (the build
// makes a link OP_fuzz and OP_replay for each operation) or from --op=OP.
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "adapters/registry.h"
#include "core/op.h"
#include "fuzz/check_all.h"
#include "fuzz/target.h"

namespace {

using qualm::Op;

Op operation = Op::kLinear;  // LLVMFuzzerInitialize sets it before the first input

std::string EveryName() {
  std::string names;
  for (const Op op : qualm::AllOps()) names += (names.empty() ? "" : ", ") + std::string(Name(op));
  return names;
}

// Tools that copy a fuzz target append to its name: linear_fuzz_asan is linear too.
std::optional<Op> OpInName(std::string_view program) {
  const std::string_view name = program.substr(program.rfind('/') + 1);
  for (const Op op : qualm::AllOps()) {
    const std::string own(Name(op));
    if (name.starts_with(own + "_fuzz") || name.starts_with(own + "_replay")) return op;
  }
  return std::nullopt;
}

Op OpOf(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with("--op=")) continue;
    const std::string name(argument.substr(argument.find('=') + 1));
    if (const std::optional<Op> op = qualm::ParseOp(name)) return *op;
    std::fprintf(stderr, "qualm: --op: '%s' is no operation, expected one of %s\n", name.c_str(),
                 EveryName().c_str());
    std::exit(2);
  }
  if (const std::optional<Op> op = OpInName(argv[0])) return *op;
  std::fprintf(stderr,
               "qualm: '%s' names no operation, expected a program OP_fuzz, or --op=OP, of %s\n",
               argv[0], EveryName().c_str());
  std::exit(2);
}

}  // namespace

QUALM_FUZZ_OPERATION(operation);

// libFuzzer starts itself again (-fork, -jobs) by argv[0] and with the same --op: a new process
// finds the same operation.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  operation = OpOf(*argc, *argv);
  qualm::RegisterAllSubjects();
  qualm::fuzz::OpenChecker();
  return 0;
}
