// SPDX-License-Identifier: Apache-2.0
#include "core/executable.h"

#include <limits.h>
#include <unistd.h>

#include <array>
#include <string_view>

namespace qualm {

std::string ExecutableFolder() {
  std::array<char, PATH_MAX> path;
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) return "./";
  const std::string_view text(path.data(), static_cast<size_t>(length));
  return std::string(text.substr(0, text.rfind('/') + 1));
}

std::string InstalledData(const std::string& name, const std::string& in_source_tree) {
  const std::string installed = ExecutableFolder() + QUALM_DATA_FROM_BIN "/" + name;
  return access(installed.c_str(), R_OK) == 0 ? installed : in_source_tree;
}

}  // namespace qualm
