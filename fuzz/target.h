// SPDX-License-Identifier: Apache-2.0
// A fuzz target of one operation: bytes become a case, distances go to the engine, every property
// judges. docs/embedding.md shows a target of somebody else's kernel.
#ifndef QUALM_FUZZ_TARGET_H_
#define QUALM_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>

#include "fuzz/case_codec.h"
#include "fuzz/check_all.h"
#include "fuzz/feedback.h"
#include "fuzz/mutator.h"
#include "fuzz/watch.h"

// The functions that libFuzzer (AFL++, standalone_main.cc) calls, except LLVMFuzzerInitialize. On a
// failure CheckAll writes a .case.json, then traps, or in a campaign goes on.
#define QUALM_FUZZ_OPERATION(op)                                                                 \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {                      \
    ::qualm::fuzz::NoteInput(data, size);                                                        \
    const ::qualm::Case test_case = ::qualm::fuzz::DecodeCase(op, {data, size});                 \
    ::qualm::fuzz::ReportDistances(test_case);                                                   \
    ::qualm::fuzz::CheckAll(test_case);                                                          \
    return 0;                                                                                    \
  }                                                                                              \
  extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,         \
                                            unsigned seed) {                                     \
    return ::qualm::fuzz::MutateBytes(op, data, size, size_max, seed);                           \
  }                                                                                              \
  extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* a, size_t a_size, const uint8_t* b, \
                                              size_t b_size, uint8_t* out, size_t out_size_max,  \
                                              unsigned seed) {                                   \
    return ::qualm::fuzz::CrossBytes(op, a, a_size, b, b_size, out, out_size_max, seed);         \
  }                                                                                              \
  static_assert(true, "a semicolon follows")

// The whole target of a subject of one's own. `make` gives a std::unique_ptr<qualm::Subject>
// (qualm::MakeSubject of adapters/function_subject.h makes one of a function).
#define QUALM_FUZZ_TARGET(op, make)                                      \
  QUALM_FUZZ_OPERATION(op);                                              \
  extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) { \
    ::qualm::fuzz::OpenChecker(make);                                    \
    return 0;                                                            \
  }                                                                      \
  static_assert(true, "a semicolon follows")

#endif  // QUALM_FUZZ_TARGET_H_
