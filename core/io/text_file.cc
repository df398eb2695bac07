// SPDX-License-Identifier: Apache-2.0
#include "core/io/text_file.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "core/io/json_text.h"
#include "core/status.h"

namespace qualm {
namespace {

[[noreturn]] void Fail(std::string_view name, const std::string& what) {
  throw InputError(OneLine(name) + ": file: " + what);
}

[[noreturn]] void TooLong(std::string_view name, std::string_view noun, size_t most) {
  Fail(name, "is longer than " + std::to_string(most) + " bytes, expected a shorter " +
                 std::string(noun));
}

}  // namespace

void CheckLength(std::string_view text, std::string_view name, std::string_view noun, size_t most) {
  if (text.size() > most) TooLong(name, noun, most);
}

std::string ReadTextFile(const std::string& path, std::string_view noun, size_t most) {
  const std::string file_of(std::string(noun) + " file");
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    Fail(path, "is a directory, expected a " + file_of);
  }
  // A file that says it is too long is not read at all; a pipe says nothing.
  const uintmax_t size = std::filesystem::file_size(path, ignored);
  if (!ignored && size > most) TooLong(path, noun, most);
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) {
    Fail(path, std::string("cannot be opened (") + std::strerror(errno) +
                   "), expected a readable " + file_of);
  }
  // Piece by piece: a size may also change under us. A short piece is the last one.
  std::string text;
  std::vector<char> piece(size_t{1} << 16);
  size_t count = piece.size();
  while (count == piece.size() && text.size() <= most && std::feof(file.get()) == 0 &&
         std::ferror(file.get()) == 0) {
    count = std::fread(piece.data(), 1, piece.size(), file.get());
    text.append(piece.data(), count);
    // No format here has such a byte, so whoever reads the text complains about it; and some of
    // what can be opened never ends (/dev/zero).
    if (std::memchr(piece.data(), 0, count) != nullptr) break;
  }
  if (std::ferror(file.get()) != 0) {
    Fail(path, "cannot be read to its end, expected a readable " + file_of);
  }
  return text;
}

}  // namespace qualm
