// SPDX-License-Identifier: Apache-2.0
// A whole file as text, for the readers and writers of this folder.
#ifndef QUALM_CORE_IO_TEXT_FILE_H_
#define QUALM_CORE_IO_TEXT_FILE_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace qualm {

// `noun`: what the file should be ("case"), for messages. At most `most` bytes and a piece more
// come back: CheckLength says what is too long. Throws InputError "PATH: file: what, expected
// what".
std::string ReadTextFile(const std::string& path, std::string_view noun, size_t most);

// Throws InputError for a text of more than `most` bytes.
void CheckLength(std::string_view text, std::string_view name, std::string_view noun, size_t most);

// Replaces the file at once: writes a temporary beside it, syncs, renames. What is no ordinary file
// is written to. Throws InputError "PATH: file: what, expected what".
void WriteTextFile(const std::string& path, const std::string& text);

}  // namespace qualm

#endif  // QUALM_CORE_IO_TEXT_FILE_H_
