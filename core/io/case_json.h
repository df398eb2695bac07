// SPDX-License-Identifier: Apache-2.0
// Case files (*.case.json): strict reader for hostile text, writer whose output reads back equal.
// The format is docs/case-format.md and core/io/case.schema.json.
#ifndef QUALM_CORE_IO_CASE_JSON_H_
#define QUALM_CORE_IO_CASE_JSON_H_

#include <string>
#include <string_view>

#include "core/case.h"

namespace qualm {

inline constexpr int kCaseFormatVersion = 1;
// Elements per tensor that a reader accepts (256 Mi elements). A reader never allocates memory for
// a size that the text only claims.
inline constexpr int64_t kMaxElements = int64_t{1} << 28;
// Bytes of text a reader accepts.
inline constexpr size_t kMaxCaseBytes = size_t{1} << 30;

// `name` is what error lines begin with. Throws InputError "NAME: FIELD: what, expected what".
Case ParseCase(std::string_view text, std::string_view name);
Case ReadCaseFile(const std::string& path);

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
