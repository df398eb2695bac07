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

size_t Columns(int terminal) {
  winsize size = {};
  const bool known = ::ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

// Of UTF-8: bytes that continue a character take no column.
size_t Width(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

bool IsToCopy(std::string_view line) {
  const std::string_view text = line.substr(std::min(line.find_first_not_of(' '), line.size()));
  return text.empty() || std::string_view("{}[]\"").find(text.front()) != std::string_view::npos ||
         text.starts_with("qualm ") || text.find(": qualm ") != std::string_view::npos;
}

// The line without its end, and what it takes to be no wider.
std::string WrappedLine(std::string_view line, size_t columns) {
  if (Width(line) <= columns || IsToCopy(line)) return std::string(line);
  const size_t begin = line.find_first_not_of(' ');
  const size_t gap = line.find("  ", begin);
  const size_t second = line.find_first_not_of(' ', gap);
  size_t indent = begin + 2;
  if (gap != std::string_view::npos && second != std::string_view::npos) {
    const size_t at = Width(line.substr(0, second));
    if (at <= columns / 2) indent = at;
  }
  std::string text, row;
  for (size_t at = 0; at < line.size();) {
    // A word with the spaces before it: rows of a table keep theirs.
    const size_t word = std::min(line.find_first_not_of(' ', at), line.size());
    const size_t end = std::min(line.find(' ', word), line.size());
    if (Width(row) + Width(line.substr(at, end - at)) > columns && Width(row) > indent) {
      text += row + "\n";
      row = std::string(indent, ' ');
      at = word;
    }
    row += line.substr(at, end - at);
    at = end;
  }
  return text + row;
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

size_t TextColumns() {
  constexpr size_t kMost = 100;
  static const size_t columns =
      ::isatty(STDOUT_FILENO) == 1 ? std::min(Columns(STDOUT_FILENO), kMost) : 0;
  return columns;
}

std::string Wrapped(const std::string& text, size_t columns) {
  if (columns == 0) return text;
  std::string wrapped;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    wrapped += WrappedLine(std::string_view(text).substr(at, end - at), columns);
    if (end < text.size()) wrapped += '\n';
    at = end + 1;
  }
  return wrapped;
}

bool HasStatusLine() {
  static const bool terminal = ::isatty(STDERR_FILENO) == 1;
  return terminal;
}

void SetStatusLine(const std::string& text) {
  if (!HasStatusLine() || IsQuiet()) return;
  const std::scoped_lock lock(StatusMutex());
  if (text.empty() && Status().empty()) return;
  Status() = text.substr(0, Columns(STDERR_FILENO) - 1);
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
