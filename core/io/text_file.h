// SPDX-License-Identifier: Apache-2.0
// A whole file as text: read with a bound, written so that nobody ever finds half of it.
#ifndef QUALM_CORE_IO_TEXT_FILE_H_
#define QUALM_CORE_IO_TEXT_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qualm {

// The size of the file. Throws InputError "PATH: file: what, expected what" where there is none,
// and for what is no file: opening a pipe would wait for its writer, and some devices never end.
uintmax_t RequireFile(const std::string& path, std::string_view noun);

// `noun`: what the file should be ("case"), for messages. At most `most` bytes and a piece more
// come back: CheckLength says what is too long. Throws InputError "PATH: file: what, expected
// what".
std::string ReadTextFile(const std::string& path, std::string_view noun, size_t most);

// Throws InputError for a text of more than `most` bytes.
void CheckLength(std::string_view text, std::string_view name, std::string_view noun, size_t most);

// Puts `text` into the file in one step: whatever happens (a kill, a full disk), a reader finds the
// earlier text or the new one, whole. Links are followed; devices and pipes are written to. Throws
// InputError "PATH: file: what (why), expected a writable path".
void WriteTextFile(const std::string& path, std::string_view text);

// Puts the files NAME -> TEXT into the folder `path` in one step, likewise: a folder of this name
// is there with all of them or not at all. An earlier folder is replaced; other files in it stay.
// An empty text stands for no such file. The folder that `path` lies in exists.
using NamedTexts = std::vector<std::pair<std::string, std::string>>;
void WriteFolder(const std::string& path, const NamedTexts& files);

// Deletes the folder in one step, likewise. Nothing happens where there is none.
void RemoveFolder(const std::string& path);

// Is this a name of what a writer that was killed may leave behind (".NAME.qualm-tmp")? No reader
// takes such a file or folder for a result.
bool IsTemporary(std::string_view name);
// Deletes these in `folder`, except those of writers that still run.
void RemoveTemporaries(const std::string& folder);

}  // namespace qualm

#endif  // QUALM_CORE_IO_TEXT_FILE_H_
