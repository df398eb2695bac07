// SPDX-License-Identifier: Apache-2.0
// Golden records (*.jsonl): outputs recorded from real libraries (corpus/golden/README.md).
// A line may come from anybody, so the reader is as strict as the case reader.
#ifndef QUALM_CORE_IO_GOLDEN_H_
#define QUALM_CORE_IO_GOLDEN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/case.h"

namespace qualm {

// One record: its identity, its fields as typed values, and how to see it as a Case.
class GoldenRecord {
 public:
  std::string id, backend, isa, op;  // isa "" if null or missing
  int64_t line = 0;                  // 1-based in its file
  // The output of a product of floats whose steps a judge shall write down; -1: none.
  int64_t tell = -1;

  bool Has(const std::string& field) const;     // present and not null
  int64_t Int(const std::string& field) const;  // InputError if absent or no integer
  std::string Text(const std::string& field) const;
  float Float(const std::string& field) const;                // float32 text or number
  double Double(const std::string& field) const;              // float64 text
  std::vector<int64_t> Ints(const std::string& field) const;  // scalar counts as one entry
  std::vector<float> Floats(const std::string& field) const;
  // A list of integers, or the bit patterns of a list of float32.
  std::vector<int64_t> Patterns(const std::string& field) const;
  std::vector<std::string> Texts(const std::string& field) const;              // list of strings
  std::vector<std::vector<float>> FloatLists(const std::string& field) const;  // list of lists

  std::string where;  // "FILE:LINE: id" for messages

  struct Value;  // parsed JSON subset
  std::map<std::string, std::shared_ptr<const Value>> fields;
};

// Reads one line. Throws InputError.
GoldenRecord ParseGoldenLine(std::string_view text, std::string_view file, int64_t line);

// Calls `visit` for each non-empty line of a file. A record whose `bits_in` names an input_set of a
// line above gets its field `bits`. Throws InputError at the first malformed line.
void ForEachGoldenRecord(const std::string& path,
                         const std::function<void(const GoldenRecord&)>& visit);

}  // namespace qualm

#endif  // QUALM_CORE_IO_GOLDEN_H_
