// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as the text of a summation tree: an InputError on one line, or a contract that is
// read again from its own text as the same, and whose sums can be computed. Traps at anything else.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/reads_or_refuses.h"
#include "oracles/conventions/tree_contract.h"

using namespace qualm;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::ReadsOrRefuses([&] {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const conventions::TreeContract contract = conventions::ParseTreeContract(text);
    const std::string again = contract.text();
    QUALM_CHECK(conventions::ParseTreeContract(again).text() == again);
    const int64_t parts = contract.order ? 64 : LeavesOf(contract.tree);
    const std::vector<float> ones(static_cast<size_t>(parts), 1.0f);
    QUALM_CHECK(conventions::SumBy(contract, ones, ones) == static_cast<float>(parts));
  });
  return 0;
}
