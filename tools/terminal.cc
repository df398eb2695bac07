// SPDX-License-Identifier: Apache-2.0
#include "tools/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>

namespace qualm::tools {
namespace {

struct Paint {
  std::string_view words, colour;
};
constexpr std::array<Paint, 9> kPaints{{{"FINDING:", "1;31"},
                                        {"NOT OK:", "1;31"},
                                        {"still fails:", "1;31"},
                                        {"fails differently:", "1;31"},
                                        {"OK:", "1;32"},
                                        {"fixed:", "1;32"},
                                        {"expected:", "33"},
                                        {"known:", "33"},
                                        {"suppressed:", "33"}}};

std::mutex& StatusMutex() {
  static std::mutex mutex;
  return mutex;
}
std::string& Status() {
  static std::string status;
  return status;
}
bool& Quiet() {
  static bool quiet = false;
  return quiet;
}

// Errors of writing are ignored: a run whose stderr is closed has the same result.
void ToStderr(std::string_view text) { (void)std::fwrite(text.data(), 1, text.size(), stderr); }

size_t Columns() {
  winsize size = {};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

constexpr std::string_view kErase = "\r\x1b[K";

}  // namespace

bool HasColour() {
  const char* const no = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && (no == nullptr || *no == '\0') && terminal != nullptr &&
         std::string_view(terminal) != "dumb";
}

std::string Painted(const std::string& text) {
  std::string painted;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    const auto* const paint = std::ranges::find_if(
        kPaints, [&](const Paint& one) { return line.starts_with(one.words); });
    if (paint == kPaints.end()) {
      painted += line;
    } else {
      painted += "\x1b[" + std::string(paint->colour) + "m" + std::string(paint->words) + "\x1b[0m";
      painted += line.substr(paint->words.size());
    }
    if (end < text.size()) painted += '\n';
    at = end + 1;
  }
  return painted;
}

bool HasStatusLine() {
  static const bool terminal = ::isatty(STDERR_FILENO) == 1;
  return terminal;
}

void SetStatusLine(const std::string& text) {
  if (!HasStatusLine() || IsQuiet()) return;
  const std::scoped_lock lock(StatusMutex());
  if (text.empty() && Status().empty()) return;
  Status() = text.substr(0, Columns() - 1);
  ToStderr(kErase);
  ToStderr(Status());
  (void)std::fflush(stderr);
}

void WriteAboveStatus(const std::string& line) {
  const std::scoped_lock lock(StatusMutex());
  if (Status().empty()) return ToStderr(line);
  ToStderr(kErase);
  ToStderr(line);
  ToStderr(Status());
}

bool WriteToStdout(const std::string& text) {
  const std::scoped_lock lock(StatusMutex());
  const bool shown = !Status().empty();
  if (shown) ToStderr(kErase);
  bool good = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!shown) return good;
  good &= std::fflush(stdout) == 0;             // before the line below it
  if (!text.ends_with('\n')) Status().clear();  // until it is set again
  ToStderr(Status());
  (void)std::fflush(stderr);
  return good;
}

void EraseStatusLine() { SetStatusLine(""); }

void SetQuiet() { Quiet() = true; }
bool IsQuiet() { return Quiet(); }

}  // namespace qualm::tools
