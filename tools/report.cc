// SPDX-License-Identifier: Apache-2.0
#include "tools/report.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <vector>

#include "core/io/text_file.h"
#include "core/status.h"
#include "tools/command.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHead =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>qualm report</title>";
constexpr const char* kStyle = R"(
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
pre { background: #8881; padding: .8rem; overflow-x: auto; white-space: pre-wrap; font-size: .85rem; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { border: 1px solid #8886; padding: .25rem .6rem; text-align: left; vertical-align: top; }
svg { max-width: 100%; height: auto; background: #fff; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #8886; }
summary { cursor: pointer; }
)";

// "" where there is no such file.
std::string ReadAll(const fs::path& path) {
  constexpr size_t kMost = size_t{1} << 28;
  if (!fs::exists(path)) return "";
  std::string text = ReadTextFile(path.string(), "report", kMost);
  CheckLength(text, path.string(), "report", kMost);
  return text;
}

std::string Escape(const std::string& text) {
  std::string escaped;
  for (char ch : text) {
    switch (ch) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      default: escaped += ch;
    }
  }
  return escaped;
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t from = 0;
  while (from <= text.size()) {
    const size_t to = std::min(text.find(separator, from), text.size());
    parts.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

std::string Table(const std::string& tsv) {
  std::string html = "<table>\n";
  bool head = true;
  for (const std::string& line : Split(tsv, '\n')) {
    if (line.empty()) continue;
    html += "<tr>";
    for (const std::string& cell : Split(line, '\t')) {
      html += fmt::format("<{0}>{1}</{0}>", head ? "th" : "td", Escape(cell));
    }
    html += "</tr>\n";
    head = false;
  }
  return html + "</table>\n";
}

// The picture alone: an XML declaration or doctype inside HTML is an error.
std::string InlineSvg(const std::string& svg) {
  const size_t start = svg.find("<svg");
  return start == std::string::npos ? "" : svg.substr(start);
}

std::string Section(const fs::path& stem) {
  const std::string text = ReadAll(stem.string() + ".txt");
  const size_t line_end = std::min(text.find('\n'), text.size());
  std::string html = fmt::format("<h2>{}</h2>\n", Escape(text.substr(0, line_end)));
  const std::string body = text.substr(std::min(line_end + 1, text.size()));
  if (!body.empty()) html += "<pre>" + Escape(body) + "</pre>\n";
  if (fs::exists(stem.string() + ".tsv")) html += Table(ReadAll(stem.string() + ".tsv"));
  if (fs::exists(stem.string() + ".svg")) html += InlineSvg(ReadAll(stem.string() + ".svg")) + "\n";
  return html;
}

std::string FindingHtml(const fs::path& folder) {
  std::string html = fmt::format("<h3>{}</h3>\n<pre>{}</pre>\n", Escape(folder.filename().string()),
                                 Escape(ReadAll(folder / "explanation.txt")));
  for (const char* name : {"minimized.case.json", "case.json"}) {
    if (!fs::exists(folder / name)) continue;
    html += fmt::format("<details><summary>{}</summary><pre>{}</pre></details>\n", name,
                        Escape(ReadAll(folder / name)));
  }
  return html;
}

}  // namespace

std::string BuildReport(const std::string& folder) {
  const fs::path root(folder);
  std::set<fs::path> stems, findings;
  std::error_code error;
  if (fs::is_directory(root / "sections", error)) {
    for (const auto& entry : fs::directory_iterator(root / "sections")) {
      if (entry.path().extension() == ".txt")
        stems.insert(entry.path().parent_path() / entry.path().stem());
    }
  }
  if (fs::is_directory(root / "findings", error)) {
    for (const auto& entry : fs::directory_iterator(root / "findings")) {
      if (entry.is_directory() && !IsTemporary(entry.path().filename().string())) {
        findings.insert(entry.path());
      }
    }
  }
  if (stems.empty() && findings.empty()) {
    throw InputError(folder +
                     ": holds neither sections/ nor findings/, expected an output folder of "
                     "qualm audit or check");
  }
  std::string html =
      std::string(kHead) +
      fmt::format(
          "<meta name=\"viewport\" content=\"width=device-width\"><style>{}</style></head><body>\n"
          "<h1>qualm report</h1>\n",
          kStyle);
  for (const fs::path& stem : stems) html += Section(stem);
  if (!findings.empty()) html += "<h2>Findings</h2>\n";
  for (const fs::path& finding : findings) html += FindingHtml(finding);
  html += "</body></html>\n";
  const std::string path = (root / "index.html").string();
  const std::string before = ReadAll(path);
  if (!before.empty() && !before.starts_with(kHead)) {
    throw InputError(path + ": is there and no report of qualm, expected another folder");
  }
  WriteTextFile(path, html);
  return path;
}

void AddReport(CLI::App& app, Run* run) {
  auto folder = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand("report", "rebuild the HTML report of an output folder");
  verb->footer("Example: qualm report build/report");
  verb->add_option("DIR", *folder, "output folder of qualm audit or check")->required();
  verb->callback([folder, run] {
    *run = [folder] {
      Out(BuildReport(*folder) + "\n");
      return static_cast<int>(kClean);
    };
  });
}

}  // namespace qualm::tools
