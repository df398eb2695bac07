// SPDX-License-Identifier: Apache-2.0
// Joins codes of two scales, each rescaled, near ties; traps when a property fails.
#include <cstddef>
#include <cstdint>

#include "fuzz/case_codec.h"
#include "fuzz/check_all.h"
#include "fuzz/feedback.h"
#include "fuzz/mutator.h"

using namespace qualm;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Case test_case = fuzz::DecodeCase(Op::kConcat, {data, size});
  fuzz::ReportDistances(test_case);
  fuzz::CheckAll(test_case);  // writes a .case.json, then traps, on failure
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned seed) {
  return fuzz::MutateBytes(Op::kConcat, data, size, size_max, seed);
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* a, size_t a_size, const uint8_t* b,
                                            size_t b_size, uint8_t* out, size_t out_size_max,
                                            unsigned seed) {
  return fuzz::CrossBytes(Op::kConcat, a, a_size, b, b_size, out, out_size_max, seed);
}
