// SPDX-License-Identifier: Apache-2.0
#include "core/io/short_path.h"

#include <filesystem>
#include <system_error>

namespace qualm {
namespace {

namespace fs = std::filesystem;

// "" where the folder is gone: then no path is shorter.
std::string Current() {
  std::error_code error;
  const fs::path current = fs::current_path(error);
  return error ? "" : current.string();
}

}  // namespace

std::string ShortPath(const std::string& path, const std::string& current) {
  if (!path.starts_with('/') || !current.starts_with('/')) return path;
  // What ".." means after a symbolic link only the file system knows.
  for (const fs::path& part : fs::path(path)) {
    if (part == "..") return path;
  }
  const std::string relative = fs::path(path).lexically_relative(current).string();
  return relative.empty() || relative.size() >= path.size() ? path : relative;
}
std::string ShortPath(const std::string& path) { return ShortPath(path, Current()); }

std::string ShortProgram(const std::string& path, const std::string& current) {
  const std::string relative = ShortPath(path, current);
  return relative == path || relative.find('/') != std::string::npos ? relative : "./" + relative;
}
std::string ShortProgram(const std::string& path) { return ShortProgram(path, Current()); }

std::string Plural(int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string FewNames(const std::string& names) {
  constexpr size_t kMost = 2;
  size_t end = 0, count = 1;
  for (size_t at = 0; (at = names.find(", ", at)) != std::string::npos; at += 2, ++count) {
    if (count == kMost) end = at;
  }
  if (count <= kMost) return names;
  return names.substr(0, end) + " and " + std::to_string(count - kMost) + " more";
}

}  // namespace qualm
