// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a line of golden records: an InputError on one line, or a record. A field of
// the record reads as some type, or asking for it throws an InputError; so does judging the record.
// Traps at anything else.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/io/golden.h"
#include "fuzz/reads_or_refuses.h"
#include "oracles/golden/judge.h"

using namespace qualm;
using fuzz::ReadsOrRefuses;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ReadsOrRefuses([&] {
    GoldenRecord record = ParseGoldenLine({reinterpret_cast<const char*>(data), size}, "fuzz", 1);
    for (const auto& field : record.fields) {
      const std::string& name = field.first;
      if (!record.Has(name)) continue;
      ReadsOrRefuses([&] { record.Int(name); });
      ReadsOrRefuses([&] { record.Text(name); });
      ReadsOrRefuses([&] { record.Float(name); });
      ReadsOrRefuses([&] { record.Double(name); });
      ReadsOrRefuses([&] { record.Ints(name); });
      ReadsOrRefuses([&] { record.Floats(name); });
      ReadsOrRefuses([&] { record.FloatLists(name); });
      ReadsOrRefuses([&] { record.Patterns(name); });
      ReadsOrRefuses([&] { record.Texts(name); });
    }
    record.tell = static_cast<int64_t>(size % 3);
    ReadsOrRefuses([&] { JudgeGolden(record); });
    ReadsOrRefuses([&] { GoldenArithmetics(record); });
  });
  return 0;
}
