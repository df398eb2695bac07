// SPDX-License-Identifier: Apache-2.0
// Lists the instruction sets that this build and this CPU have, and says which one a thread uses.
// No result depends on it: every kernel gives the same bits on all of them.
#include "kernels/targets.h"

#include <cstdio>
#include <cstdlib>

#include "hwy/targets.h"
#include "kernels/common/dispatch.h"

namespace qualm::kernels {
namespace {

struct Target {
  int64_t bit;
  size_t index;
};

size_t TableIndex(int64_t bit) {
#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
  (void)bit;  // a single target: Highway makes tables of one entry
  return 0;
#else
  hwy::ChosenTarget chosen;
  chosen.Update(bit);
  return chosen.GetIndex();
#endif
}

const std::vector<Target>& Targets() {
  static const std::vector<Target> targets = [] {
    std::vector<Target> result;
    for (int64_t bit : hwy::SupportedAndGeneratedTargets()) {
      result.push_back({bit, TableIndex(bit)});
    }
    return result;
  }();
  return targets;
}

// Position in Targets(); 0 is the best one.
thread_local int64_t current = 0;

}  // namespace

namespace internal {

size_t TargetIndex() { return Targets()[static_cast<size_t>(current)].index; }
int64_t TargetBit() { return Targets()[static_cast<size_t>(current)].bit; }

}  // namespace internal

const std::vector<std::string>& SupportedTargets() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const Target& target : Targets()) result.emplace_back(hwy::TargetName(target.bit));
    return result;
  }();
  return names;
}

ScopedTarget::ScopedTarget(std::string_view name) : previous_(current) {
  if (name.empty()) {
    current = 0;
    return;
  }
  const std::vector<std::string>& names = SupportedTargets();
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) {
      current = static_cast<int64_t>(i);
      return;
    }
  }
  std::fprintf(stderr, "ScopedTarget: \"%.*s\" is not compiled in or not supported by this CPU\n",
               static_cast<int>(name.size()), name.data());
  std::abort();
}

ScopedTarget::~ScopedTarget() { current = previous_; }

}  // namespace qualm::kernels
