// SPDX-License-Identifier: Apache-2.0
#include "tools/plot.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "core/io/json_text.h"
#include "core/status.h"
#include "tools/command.h"

namespace qualm::tools {
namespace {

// A file in memory: nothing to clean up, even if this process is killed.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view text = "") : fd_(memfd_create("qualm-plot", MFD_CLOEXEC)) {
    // If writing fails, the script is incomplete, and gnuplot reports that.
    const ssize_t ignored = write(fd_, text.data(), text.size());
    (void)ignored;
    lseek(fd_, 0, SEEK_SET);
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  int fd() const { return fd_; }
  std::string Text() const {
    struct stat status = {};
    fstat(fd_, &status);
    std::string text(static_cast<size_t>(status.st_size), '\0');
    const ssize_t count = pread(fd_, text.data(), text.size(), 0);
    text.resize(count < 0 ? 0 : static_cast<size_t>(count));
    return text;
  }

 private:
  int fd_;
};

// The drawing that gnuplot writes to its stdout.
std::string RunGnuplot(std::string_view text) {
  const MemoryFile script(text), drawn, log;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, script.fd(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, drawn.fd(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, log.fd(), STDERR_FILENO);
  std::string program = "gnuplot";
  char* arguments[] = {program.data(), nullptr};
  pid_t child = 0;
  const int error = posix_spawnp(&child, "gnuplot", &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    throw Unavailable("gnuplot: not installed (package gnuplot-nox), needed for plots");
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
  }
  if (status != 0) {
    const std::string words = log.Text();
    throw Unavailable("gnuplot: failed: " + OneLine(words.substr(0, words.find('\n', 1))));
  }
  if (drawn.Text().empty()) throw Unavailable("gnuplot: drew nothing");
  return drawn.Text();
}

// gnuplot takes '...' strings; underscores would become subscripts.
std::string Quoted(std::string text) {
  std::replace(text.begin(), text.end(), '\'', ' ');
  return "'" + text + "'";
}

// Subjects with the same curves share a line: "native@avx3_dl and 6 more".
struct Line {
  std::vector<std::string> names;
  const sweep::Result* result = nullptr;
  std::string title() const {
    if (names.size() == 1) return names.front();
    if (names.size() == 2) return names[0] + ", " + names[1];
    return fmt::format("{} and {} more", names.front(), names.size() - 1);
  }
};

std::string_view KindOf(std::string_view name) { return name.substr(0, name.find_first_of("@:")); }

std::vector<Line> Lines(const std::vector<sweep::Result>& results) {
  std::vector<Line> lines;
  for (const sweep::Result& result : results) {
    if (result.curves.empty()) continue;
    const auto same = std::find_if(lines.begin(), lines.end(), [&](const Line& line) {
      if (KindOf(line.names.front()) != KindOf(result.subject)) return false;
      for (size_t n = 0; n < result.curves.size(); ++n) {
        if (line.result->curves[n].y != result.curves[n].y) return false;
      }
      return true;
    });
    if (same != lines.end()) {
      same->names.push_back(result.subject);
    } else {
      lines.push_back({{result.subject}, &result});
    }
  }
  return lines;
}

// A subject that bends anywhere adds in saturating pairs: its predicted kinks are worth drawing on
// every output, the latent ones too.
bool Bends(const Line& line) {
  return std::any_of(line.result->curves.begin(), line.result->curves.end(),
                     [](const sweep::Curve& curve) { return !curve.linear; });
}

std::vector<sweep::KinkReport> Kinks(const std::vector<Line>& lines, size_t n) {
  for (const Line& line : lines) {
    if (Bends(line)) return line.result->curves[n].kinks;
  }
  return {};
}

}  // namespace

std::string SweepSvg(const Case& base, const std::vector<sweep::Result>& results) {
  const std::vector<Line> lines = Lines(results);
  if (lines.empty()) throw InputError("--plot: no subject could run the sweep");
  const std::vector<int32_t>& codes = lines.front().result->codes;
  const size_t outputs = lines.front().result->curves.size();
  const size_t columns = outputs > 1 ? 2 : 1;
  const size_t rows = (outputs + columns - 1) / columns;

  std::string data;
  for (size_t i = 0; i < codes.size(); ++i) {
    data += fmt::format("{}", codes[i]);
    for (size_t n = 0; n < outputs; ++n) {
      data += fmt::format(" {}", lines.front().result->curves[n].exact[i]);
      for (const Line& line : lines) data += fmt::format(" {}", line.result->curves[n].y[i]);
    }
    data += "\n";
  }

  std::string script = "$data << end_of_data\n" + data + "end_of_data\n";
  script += fmt::format(
      "set terminal svg size 1200,{} dynamic font 'sans,12' noenhanced background 'white'\n"
      "set multiplot layout {},{}\n"
      "set grid lc rgb '#dddddd'\nset key outside bottom center horizontal samplen 2\n"
      "set xlabel 'input code (every element)'\nset ylabel 'output code'\n",
      340 * rows, rows, columns);
  script += fmt::format("set xrange [{}:{}]\n", codes.front(), codes.back() + 1);
  constexpr const char* kColours[] = {"#1b7837", "#d73027", "#4575b4", "#fdae61",
                                      "#762a83", "#a6761d", "#666666", "#e7298a"};
  const size_t per_output = lines.size() + 1;
  for (size_t n = 0; n < outputs; ++n) {
    script += fmt::format("set title 'output {}'\nunset arrow\nunset label\n", n);
    double height = 0.97;
    for (const sweep::KinkReport& report : Kinks(lines, n)) {
      const int32_t code = report.kink.last_exact_code - (base.x.dtype() == DType::kS8 ? 128 : 0);
      script += fmt::format(
          "set arrow from {0},graph 0 to {0},graph 1 nohead dt 2 lc rgb '{1}'\n"
          "set label 'k=({2},{3}) after {0}{5}' at {0},graph {4:.2f} right offset -0.4,0 font "
          "'sans,9' tc rgb '{1}'\n",
          code, report.visible ? "#d73027" : "#999999", report.kink.k, report.kink.k + 1, height,
          report.visible ? "" : " (latent)");
      height = height < 0.5 ? 0.97 : height - 0.08;
    }
    const size_t first = 2 + n * per_output;
    script +=
        fmt::format("plot $data using 1:{} with lines lw 5 lc rgb '#cccccc' title 'exact'", first);
    for (size_t i = 0; i < lines.size(); ++i) {
      script += fmt::format(", $data using 1:{} with lines lw {} dt {} lc rgb '{}' title {}",
                            first + 1 + i, i % 2 == 0 ? 2 : 1.5, 1 + i % 4,
                            kColours[i % std::size(kColours)], Quoted(lines[i].title()));
    }
    script += "\n";
  }
  script += "unset multiplot\n";
  return RunGnuplot(script);
}

}  // namespace qualm::tools
