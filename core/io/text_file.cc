// SPDX-License-Identifier: Apache-2.0
#include "core/io/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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

[[noreturn]] void CannotWrite(const std::string& path, const std::string& what) {
  const std::string reason = std::strerror(errno);
  Fail(path, what + " (" + reason + "), expected a writable path");
}

// All of the text; leaves errno where it cannot.
bool WriteAll(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(fd, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    done += static_cast<size_t>(count);
  }
  return true;
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

void WriteTextFile(const std::string& path, const std::string& text) {
  std::error_code ignored;
  const auto type = std::filesystem::symlink_status(path, ignored).type();
  if (type != std::filesystem::file_type::regular &&
      type != std::filesystem::file_type::not_found) {
    // A rename would put a file in the place of a device, a pipe or a link.
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) CannotWrite(path, "cannot be created");
    const bool written = WriteAll(fd, text);
    const int error = errno;
    const bool closed = ::close(fd) == 0;
    if (!written) errno = error;
    if (!written || !closed) CannotWrite(path, "cannot be written");
    return;
  }
  std::string temporary = path + ".XXXXXX";
  const int fd = ::mkstemp(temporary.data());
  if (fd < 0) CannotWrite(path, "cannot be created");
  // mkstemp makes it private; files of results are for everybody.
  const bool written = WriteAll(fd, text) && ::fchmod(fd, 0644) == 0 && ::fsync(fd) == 0;
  if (::close(fd) != 0 || !written || ::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    errno = error;
    CannotWrite(path, "cannot be written");
  }
  // The rename itself is durable only once the folder is.
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const int folder_fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (folder_fd >= 0) {
    ::fsync(folder_fd);
    ::close(folder_fd);
  }
}

}  // namespace qualm
