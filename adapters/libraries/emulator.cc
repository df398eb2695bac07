// SPDX-License-Identifier: Apache-2.0
// Older processors for libraries that no variable holds to an older instruction set.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "adapters/libraries/libraries.h"
#include "core/status.h"

namespace qualm {

std::string FindProgram(std::string_view name) {
  const char* const path = std::getenv("PATH");
  std::string_view folders = path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path;
  while (!folders.empty()) {
    const size_t end = std::min(folders.find(':'), folders.size());
    const std::string program = std::string(folders.substr(0, end)) + "/" + std::string(name);
    if (end != 0 && access(program.c_str(), X_OK) == 0) return program;
    folders.remove_prefix(std::min(end + 1, folders.size()));
  }
  return "";
}

void Emulate(const LibraryName& name, PipeOptions& options) {
  std::string emulator = FindProgram("qemu-x86_64");
  if (emulator.empty()) emulator = FindProgram("qemu-x86_64-static");
  if (emulator.empty())
    throw Unavailable("subject '" + std::string(name.name) +
                      "': there is no qemu-x86_64 in PATH: run scripts/bootstrap "
                      "--with-libraries");
  options.command.insert(options.command.begin(), {emulator, "-cpu", std::string(name.processor)});
  // Emulation is some 30 times slower, and more on a busy machine.
  options.start_limit_ms = 300'000;
  options.time_limit_ms = 120'000;
}

}  // namespace qualm
