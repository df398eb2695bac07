// SPDX-License-Identifier: Apache-2.0
#include "core/io/short_path.h"

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace qualm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPlugin = "plugin:";

// "" where the folder is gone: then no path is shorter.
std::string Current() {
  std::error_code error;
  const fs::path current = fs::current_path(error);
  return error ? "" : current.string();
}

// The folder of the shell, which keeps it in PWD; `current` where nothing says that it is another.
std::string OfShell(const std::string& current) {
  const char* const pwd = std::getenv("PWD");
  std::error_code error;
  if (pwd == nullptr || pwd[0] != '/' || !fs::is_directory(pwd, error) ||
      fs::equivalent(pwd, current, error) || error)
    return current;
  return pwd;
}

// As the shell's folder sees a relative path.
std::string Whole(const std::string& path, const std::string& current, const std::string& shell) {
  if (shell == current || path.empty() || path.starts_with('/')) return path;
  return (fs::path(current) / path).lexically_normal().string();
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
std::string ShortPath(const std::string& path) {
  const std::string current = Current(), shell = OfShell(current);
  return ShortPath(Whole(path, current, shell), shell);
}

std::string ShortProgram(const std::string& path, const std::string& current) {
  const std::string relative = ShortPath(path, current);
  return relative == path || relative.find('/') != std::string::npos ? relative : "./" + relative;
}
std::string ShortProgram(const std::string& path) {
  const std::string current = Current(), shell = OfShell(current);
  // A name without a slash is looked for in PATH.
  return ShortProgram(path.find('/') == std::string::npos ? path : Whole(path, current, shell),
                      shell);
}

std::string ShortSubject(const std::string& name) {
  if (!name.starts_with(kPlugin)) return name;
  return std::string(kPlugin) + ShortProgram(name.substr(kPlugin.size()));
}
std::string ShortSubject(const std::string& name, const std::string& current) {
  if (!name.starts_with(kPlugin)) return name;
  return std::string(kPlugin) + ShortProgram(name.substr(kPlugin.size()), current);
}

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
