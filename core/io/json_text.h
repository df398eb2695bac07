// SPDX-License-Identifier: Apache-2.0
// Text checks that JSON libraries leave out, shared by the readers and writers of this folder.
#ifndef QUALM_CORE_IO_JSON_TEXT_H_
#define QUALM_CORE_IO_JSON_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace qualm {

// Bytes (1..4) of the well-formed UTF-8 character at `at` < text.size(); 0 if there is none
// (overlong, surrogate, beyond U+10FFFF, stray or missing continuation byte).
size_t Utf8Length(std::string_view text, size_t at);

// "" if the whole text can be handed to the JSON parser, else "byte N: what, expected what".
// nlohmann::json skips a byte-order mark, takes a NUL byte for the end of the text, and does not
// look at the bytes inside comments.
std::string CheckJsonBytes(std::string_view text);

// JSON string literal with quotes, printable ASCII and valid UTF-8 as they are, everything else
// escaped; invalid UTF-8 becomes U+FFFD.
std::string JsonQuote(std::string_view text);

// Does a JSON string stand for a float32: hex, inf, nan? Decimals are JSON numbers.
bool SpellsFloat(std::string_view text);

// A piece of somebody's input for a one-line message: quoted, cut after 40 bytes.
std::string Shown(std::string_view text);

// `text` on one line: control characters become '?'. For file names inside messages.
std::string OneLine(std::string_view text);

}  // namespace qualm

#endif  // QUALM_CORE_IO_JSON_TEXT_H_
