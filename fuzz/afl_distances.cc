// SPDX-License-Identifier: Apache-2.0
// AFL++ does not look at the counters of feedback.h. Here each counter gets an edge of its own in
// AFL++'s map, and is reported there after each input. The linker puts our function in front of the
// fuzz target (--wrap). Part of op_afl only, which scripts/afl builds.
#include <cstddef>
#include <cstdint>
#include <span>

#include "fuzz/feedback.h"

namespace {

constexpr size_t kEdges = 2048;
// Instrumented code keeps the numbers of its edges in this section, and AFL++ fills all of it in
// when the program starts. A number is 0 until then.
__attribute__((section("__sancov_guards"), used)) uint32_t edges[kEdges];

}  // namespace

extern "C" {

void __sanitizer_cov_trace_pc_guard(uint32_t* edge);                  // AFL++'s
int __real_LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);  // op_fuzz.cc
int __wrap_LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int __wrap_LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  qualm::fuzz::ClearDistances();
  const int result = __real_LLVMFuzzerTestOneInput(data, size);
  const std::span<volatile uint8_t> counters = qualm::fuzz::DistanceCounters();
  for (size_t i = 0; i < counters.size() && i < kEdges; ++i) {
    if (counters[i] != 0) __sanitizer_cov_trace_pc_guard(&edges[i]);
  }
  return result;
}
}
