// SPDX-License-Identifier: Apache-2.0
// Fuzzing engines: programs that run the fuzz target of an operation on inputs of their own making.
// Failures come back through the fuzz target (fuzz/collector.h, fuzz/watch.h), so a row here only
// says how the engine is started.
#ifndef QUALM_CAMPAIGN_ENGINE_H_
#define QUALM_CAMPAIGN_ENGINE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/op.h"

namespace qualm::campaign {

// One stretch of fuzzing.
struct Stretch {
  Op op = Op::kLinear;
  std::string kept;                 // folder for new inputs, a file each
  std::string scratch;              // folder for anything else that the engine leaves
  std::vector<std::string> inputs;  // folders with inputs to start from
  double seconds = 60;
  int64_t runs = 0;  // 0: as many as there is time for
  uint64_t seed = 1;
};

// One corpus that is to be made smaller.
struct Shrinking {
  Op op = Op::kLinear;
  std::string corpus;   // folder with the inputs
  std::string needed;   // empty folder for copies of the inputs that are needed
  std::string scratch;  // folder for anything else that the engine leaves
};

struct Engine {
  std::string_view name;
  std::string_view program;  // beside the command
  // Options and folders for the program.
  std::vector<std::string> (*arguments)(const Stretch&);
  // Whether the engine chose to end with this exit status, rather than the fuzz target having died.
  bool (*is_good_end)(int exit_status);
  // Options and folders that make a corpus smaller; null for an engine that keeps so few inputs
  // that no corpus needs it.
  std::vector<std::string> (*shrink)(const Shrinking&) = nullptr;

  // The whole command line.
  std::vector<std::string> Command(const Stretch& stretch) const;
  std::vector<std::string> ShrinkCommand(const Shrinking& shrinking) const;
};

// The engine of that name, or for "" the best that this build has. Throws InputError for an unknown
// name, Unavailable where its program is missing.
const Engine& FindEngine(std::string_view name);

}  // namespace qualm::campaign

#endif  // QUALM_CAMPAIGN_ENGINE_H_
