// SPDX-License-Identifier: Apache-2.0
#include "core/burst.h"

#include <utility>
#include <vector>

namespace qualm {
namespace {

thread_local int bursts = 0;
thread_local std::vector<void (*)()> ends;

}  // namespace

Burst::Burst() { ++bursts; }

Burst::~Burst() {
  if (--bursts != 0) return;
  for (void (*end)() : std::exchange(ends, {})) end();
}

bool Burst::CallAtEnd(void (*end)()) {
  if (bursts == 0) return false;
  ends.push_back(end);
  return true;
}

}  // namespace qualm
