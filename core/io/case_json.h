// SPDX-License-Identifier: Apache-2.0
// Case files (*.case.json): strict reader for hostile text, writer whose output reads back equal.
// The format is docs/case-format.md and core/io/case.schema.json.
#ifndef QUALM_CORE_IO_CASE_JSON_H_
#define QUALM_CORE_IO_CASE_JSON_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/case.h"

namespace qualm {

inline constexpr int kCaseFormatVersion = 1;
// Elements per tensor that a reader accepts (256 Mi elements). A reader never allocates memory for
// a size that the text only claims.
inline constexpr int64_t kMaxElements = int64_t{1} << 28;
// Bytes of text a reader accepts.
inline constexpr size_t kMaxCaseBytes = size_t{1} << 30;

// A number that a file asks for: "?" in its place.
struct UnknownNumber {
  std::string key;    // as in the file: "a_scale"
  int64_t index = 0;  // in a list
  friend bool operator==(const UnknownNumber&, const UnknownNumber&) = default;
};

struct CaseReading {
  // Every scale that is a decimal with a point or an exponent counts as Printed.
  bool as_printed = false;
  // Takes the unknown numbers of the file, in the order of its keys in the format. In the case
  // 1 stands for a scale, 0 for a zero point, and the end of the range for a bound. Null: a file
  // with unknown numbers is no case.
  std::vector<UnknownNumber>* unknown = nullptr;
  // The folder of the .npy files that the case names. Empty: it may not name any.
  std::string folder = {};
};

// `name` is what error lines begin with. Throws InputError "NAME: FIELD: what, expected what".
Case ParseCase(std::string_view text, std::string_view name, const CaseReading& reading = {});
Case ReadCaseFile(const std::string& path, const CaseReading& reading = {});

// Pretty JSON with trailing newline; floats as hex. ParseCase(CaseToJson(c)) == c for every valid
// case whose parameters without meaning for its op (x_q of a quantize ...) are default and whose
// texts are UTF-8.
std::string CaseToJson(const Case& c);
// The same on one line (pipe messages).
std::string CaseToJsonLine(const Case& c);
// In one step, as WriteTextFile of core/io/text_file.h.
void WriteCaseFile(const Case& c, const std::string& path);

}  // namespace qualm

#endif  // QUALM_CORE_IO_CASE_JSON_H_
