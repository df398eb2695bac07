// SPDX-License-Identifier: Apache-2.0
#include "core/io/text_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "core/io/json_text.h"
#include "core/status.h"

namespace qualm {
namespace {

namespace fs = std::filesystem;

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

uintmax_t RequireFile(const std::string& path, std::string_view noun) {
  struct stat found = {};
  if (::stat(path.c_str(), &found) != 0) {
    Fail(path, std::string("cannot be opened (") + std::strerror(errno) +
                   "), expected a readable " + std::string(noun) + " file");
  }
  if (!S_ISREG(found.st_mode)) {
    Fail(path, std::string("is ") + (S_ISDIR(found.st_mode) ? "a directory" : "no regular file") +
                   ", expected a " + std::string(noun) + " file");
  }
  return static_cast<uintmax_t>(found.st_size);
}

std::string ReadTextFile(const std::string& path, std::string_view noun, size_t most) {
  const std::string file_of(std::string(noun) + " file");
  // A file whose size is already too large is not read at all.
  if (RequireFile(path, noun) > most) TooLong(path, noun, most);
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) {
    Fail(path, std::string("cannot be opened (") + std::strerror(errno) +
                   "), expected a readable " + file_of);
  }
  // Read piece by piece, because the size may change meanwhile. A short piece is the last one.
  std::string text;
  std::vector<char> piece(size_t{1} << 16);
  size_t count = piece.size();
  while (count == piece.size() && text.size() <= most) {
    count = std::fread(piece.data(), 1, piece.size(), file.get());
    text.append(piece.data(), count);
    // No format here has a zero byte, so whoever reads the text complains about it.
    if (std::memchr(piece.data(), 0, count) != nullptr) break;
  }
  if (std::ferror(file.get()) != 0) {
    Fail(path, "cannot be read to its end, expected a readable " + file_of);
  }
  return text;
}

namespace {

constexpr std::string_view kTemporarySuffix = ".qualm-tmp";

// Throws for the errno of the call that has just failed.
[[noreturn]] void CannotWrite(const std::string& path, const char* what = "cannot be written") {
  Fail(path, std::string(what) + " (" + std::strerror(errno) + "), expected a writable path");
}

// An open file or folder; close leaves errno alone.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { Close(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  bool Close() {
    const int before = errno;
    const bool closed = fd_ < 0 || ::close(std::exchange(fd_, -1)) == 0;
    if (closed) errno = before;
    return closed;
  }

 private:
  int fd_;
};

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    text.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

// Flushes to the disk. A file system that has nothing to sync is no error.
bool Sync(int fd) { return ::fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP; }

// A new name is on the disk only after its folder has been flushed.
void SyncFolder(const fs::path& folder) {
  const Descriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.ok()) Sync(fd.get());
}

fs::path FolderOf(const fs::path& path) {
  const fs::path folder = path.parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

fs::path TemporaryOf(const fs::path& path) {
  return FolderOf(path) / ("." + path.filename().string() + std::string(kTemporarySuffix));
}

bool Lock(int fd, int how) {
  while (::flock(fd, how) != 0) {
    if (errno != EINTR) return errno != EWOULDBLOCK;  // a file system without locks: nobody has one
  }
  return true;
}

// Whether `path` still names the open file or folder.
bool IsStill(int fd, const fs::path& path) {
  struct stat open_one = {}, named = {};
  return ::fstat(fd, &open_one) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

// Opens the temporary (`open` makes it if it is missing) and locks it. Waits for another writer of
// the same file; uses what a killed writer left behind. Negative if opening fails.
template <class Open>
int OpenLocked(const fs::path& temporary, const Open& open) {
  for (;;) {
    const int fd = open();
    if (fd < 0 || (Lock(fd, LOCK_EX) && IsStill(fd, temporary))) return fd;
    ::close(fd);
  }
}

bool Link(const Descriptor& unnamed, const fs::path& to) {
  const std::string from = "/proc/self/fd/" + std::to_string(unnamed.get());
  return ::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

// Gives the file its name, and replaces whatever has that name now.
bool Publish(const Descriptor& unnamed, const fs::path& path) {
  if (Link(unnamed, path)) return true;
  const fs::path temporary = TemporaryOf(path);
  while (errno == EEXIST) {
    // A link replaces nothing, a rename does. The text is whole already, so another writer of the
    // same file may take this temporary for its own. The kernel links a file whose last name is
    // gone no second time (ENOENT): then the caller writes the text again, into a named file.
    if (::unlink(temporary.c_str()) != 0 && errno != ENOENT) return false;
    if (!Link(unnamed, temporary)) continue;
    if (::rename(temporary.c_str(), path.c_str()) == 0) return true;
    if (errno != ENOENT) {
      const int error = errno;
      ::unlink(temporary.c_str());
      errno = error;
      return false;
    }
    errno = EEXIST;
  }
  return false;
}

// Writes the text into a file without a name, which disappears with this process. Not ok() if the
// file system of `folder` has no such files. Throws in the name of `path`.
Descriptor Unnamed(const fs::path& folder, const fs::path& path, mode_t mode,
                   std::string_view text) {
  Descriptor fd(::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666));
  if (fd.ok() && !(WriteAll(fd.get(), text) && (mode == 0 || ::fchmod(fd.get(), mode) == 0) &&
                   Sync(fd.get()))) {
    CannotWrite(path);
  }
  return fd;
}

void WriteNamed(const fs::path& path, mode_t mode, std::string_view text) {
  const fs::path temporary = TemporaryOf(path);
  for (;;) {
    Descriptor fd(OpenLocked(temporary, [&] {
      return ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    }));
    if (!fd.ok()) CannotWrite(path, "cannot be created");
    const bool written = ::ftruncate(fd.get(), 0) == 0 && WriteAll(fd.get(), text) &&
                         (mode == 0 || ::fchmod(fd.get(), mode) == 0) && Sync(fd.get());
    if (written && ::rename(temporary.c_str(), path.c_str()) == 0) return;
    // Publish takes the temporary of another writer away, locked or not: begin again.
    if (written && errno == ENOENT) continue;
    const int error = errno;
    ::unlink(temporary.c_str());
    errno = error;
    CannotWrite(path);
  }
}

// Writes into a path that cannot be replaced because it is no regular file (a device, a pipe).
void WriteThrough(const std::string& path, std::string_view text) {
  Descriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd.ok()) CannotWrite(path, "cannot be created");
  if (!WriteAll(fd.get(), text) || !fd.Close()) CannotWrite(path);
}

// The path that a chain of symbolic links ends at, even if nothing exists there yet.
fs::path Followed(fs::path path) {
  std::error_code error;
  for (int links = 0; links < 40 && fs::is_symlink(path, error); ++links) {
    path = path.parent_path() / fs::read_symlink(path, error);
  }
  return path;
}

// A process that was writing there may add a file meanwhile: then once more.
void RemoveAll(const fs::path& path) {
  constexpr int kTries = 8;
  std::error_code error;
  for (int i = 0; i < kTries; ++i) {
    fs::remove_all(path, error);
    if (!error) return;
  }
}

int OpenFolder(const fs::path& folder) {
  return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

// Makes or empties the temporary folder, and locks it.
Descriptor LockedFolder(const fs::path& temporary) {
  Descriptor lock(OpenLocked(temporary, [&] {
    for (;;) {
      if (::mkdir(temporary.c_str(), 0777) != 0 && errno != EEXIST) return -1;
      const int fd = OpenFolder(temporary);
      if (fd >= 0 || errno != ENOENT) return fd;  // ENOENT: somebody has just deleted it
    }
  }));
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(temporary, ignored)) RemoveAll(entry.path());
  return lock;
}

// Links what is in the earlier folder, and not among `files`, into the new folder, without copying.
void KeepOthers(const fs::path& earlier, const fs::path& folder, const NamedTexts& files) {
  using Options = fs::copy_options;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(earlier, error)) {
    const std::string name = entry.path().filename().string();
    const auto is_it = [&](const auto& file) { return file.first == name; };
    if (std::ranges::any_of(files, is_it) || IsTemporary(name)) continue;
    fs::copy(entry.path(), folder / name,
             Options::recursive | Options::create_hard_links | Options::copy_symlinks, error);
    if (error) Fail(entry.path().string(), "cannot be kept (" + error.message() + ")");
  }
}

}  // namespace

bool IsTemporary(std::string_view name) {
  return name.starts_with('.') && name.ends_with(kTemporarySuffix);
}

void WriteTextFile(const std::string& path, std::string_view text) {
  struct stat there = {};
  const bool exists = ::stat(path.c_str(), &there) == 0;
  // Somebody may hold the file open through /dev or /proc (/dev/stdout), so it is not replaced.
  const bool held = path.starts_with("/dev/") || path.starts_with("/proc/");
  if (exists && (held || !S_ISREG(there.st_mode))) return WriteThrough(path, text);
  const fs::path file = Followed(path);
  const mode_t mode = exists ? there.st_mode & 07777 : 0;
  const Descriptor unnamed = Unnamed(FolderOf(file), file, mode, text);
  if (!unnamed.ok() || !Publish(unnamed, file)) WriteNamed(file, mode, text);
  SyncFolder(FolderOf(file));
}

void WriteFolder(const std::string& path, const NamedTexts& files) {
  const fs::path temporary = TemporaryOf(path);
  // The texts are written before the temporary folder is made, so that it exists only for a moment.
  std::vector<Descriptor> unnamed;
  for (const auto& [name, text] : files) unnamed.push_back(Unnamed(FolderOf(path), path, 0, text));
  const Descriptor lock = LockedFolder(temporary);
  if (!lock.ok()) CannotWrite(path, "cannot be created");
  // The earlier folder is locked too, because it will get the name of the temporary folder.
  const Descriptor earlier(OpenFolder(path));
  if (earlier.ok()) Lock(earlier.get(), LOCK_EX);
  try {
    for (size_t i = 0; i < files.size(); ++i) {
      const auto& [name, text] = files[i];
      if (text.empty() || (unnamed[i].ok() && Link(unnamed[i], temporary / name))) continue;
      WriteNamed(temporary / name, 0, text);
    }
    if (earlier.ok()) KeepOthers(path, temporary, files);
    Sync(lock.get());
    const unsigned how = earlier.ok() ? RENAME_EXCHANGE : RENAME_NOREPLACE;
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), how) == 0) {
      if (earlier.ok()) RemoveAll(temporary);  // what was at `path`, still locked
    } else {
      if (errno != EINVAL) CannotWrite(path);
      // A file system that cannot exchange: for a moment the name is missing. The earlier folder
      // steps aside whole: a kill amid deleting it would leave half of it under the name.
      const fs::path aside = TemporaryOf(path + ".earlier");
      RemoveAll(aside);
      if (earlier.ok() && ::rename(path.c_str(), aside.c_str()) != 0) CannotWrite(path);
      if (::rename(temporary.c_str(), path.c_str()) != 0) CannotWrite(path);
      RemoveAll(aside);
    }
  } catch (...) {
    RemoveAll(temporary);
    throw;
  }
  SyncFolder(FolderOf(path));
}

void RemoveFolder(const std::string& path) {
  const fs::path temporary = TemporaryOf(path);
  const Descriptor lock = LockedFolder(temporary);
  const Descriptor earlier(OpenFolder(path));
  if (earlier.ok()) Lock(earlier.get(), LOCK_EX);  // it gets the name of the temporary
  if (lock.ok() && earlier.ok()) ::rename(path.c_str(), temporary.c_str());
  RemoveAll(temporary);
}

void RemoveTemporaries(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (IsTemporary(entry.path().filename().string())) found.push_back(entry.path());
  }
  for (const fs::path& path : found) {
    const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (fd.ok() && Lock(fd.get(), LOCK_EX | LOCK_NB) && IsStill(fd.get(), path)) RemoveAll(path);
  }
}

}  // namespace qualm
