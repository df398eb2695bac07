// SPDX-License-Identifier: Apache-2.0
#include "tools/regressions.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <filesystem>
#include <string_view>

#include "core/io/json_text.h"
#include "core/io/short_path.h"
#include "core/status.h"
#include "core/verdict.h"
#include "tools/session.h"
#include "triage/causes.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 3> kStates{"fixed", "still fails", "fails differently"};

std::string_view StateOf(const Regression& regression) {
  return kStates[static_cast<size_t>(regression.state)];
}

// Is `by` this subject, perhaps of another version? A plugin may lie in another folder by now.
bool IsBy(std::string_view by, std::string_view subject) {
  if (by == subject || by.starts_with(std::string(subject) + " ")) return true;
  constexpr std::string_view kPlugin = "plugin:";
  if (!by.starts_with(kPlugin) || !subject.starts_with(kPlugin)) return false;
  const auto file = [](std::string_view name) { return name.substr(name.find_last_of("/:") + 1); };
  return file(by) == file(subject);
}

// "last product dropped" -> "last-product-dropped".
std::string FileWords(const std::string& text) {
  std::string words;
  for (const char ch : text) {
    if (std::isalnum(static_cast<unsigned char>(ch)) != 0) {
      words += ch;
    } else if (!words.empty() && words.back() != '-') {
      words += '-';
    }
  }
  while (!words.empty() && words.back() == '-') words.pop_back();
  return words;
}

bool IsFolder(const std::string& where) {
  std::error_code ignored;
  return where.ends_with('/') || fs::is_directory(where, ignored);
}

}  // namespace

bool MayHide(const Case& c, const Subject& subject) {
  return !c.property.empty() && (!c.observed || IsBy(c.observed->by, subject.name()));
}

std::string HiddenFailureText() {
  return "If it failed here once and nobody mended it, it needs chance or earlier questions to "
         "fail: see \"Faults that need state or chance\" in docs/campaigns.md.";
}

bool IsReproducerOf(const Case& c, const Subject& subject) {
  return c.observed && !c.property.empty() && IsBy(c.observed->by, subject.name());
}

Regression CompareWithThen(const std::string& file, const Case& c, Subject& subject, bool fails) {
  Regression regression{file, std::string(subject.name()), c.note, Regression::State::kFixed, "",
                        ""};
  if (!fails) return regression;
  regression.state = Regression::State::kStillFails;
  const Outcome outcome = subject.Run(c, RunContext{});
  if (!outcome.ok()) {
    regression.state = Regression::State::kFailsDifferently;
    regression.was = "an answer";
    regression.is = Name(outcome.status);
  } else if (const auto differs = FirstDivergence(c.observed->y, outcome.y)) {
    regression.state = Regression::State::kFailsDifferently;
    regression.was = fmt::format("{} at index {}", differs->expected, differs->index);
    regression.is = differs->actual;
  }
  return regression;
}

std::string RegressionsText(const std::vector<Regression>& regressions) {
  std::string text;
  for (const Regression& regression : regressions) {
    text += fmt::format("{}: {} on {}", StateOf(regression), ShortPath(regression.file),
                        regression.subject);
    if (!regression.is.empty())
      text += fmt::format(": gave {} then, gives {} now", regression.was, regression.is);
    if (!regression.note.empty()) text += "\n  " + OneLine(regression.note);
    text += "\n";
  }
  return text;
}

JsonValue RegressionsJson(const std::vector<Regression>& regressions) {
  JsonList list;
  for (const Regression& regression : regressions) {
    list.Add(JsonObject{{"case", regression.file},
                        {"subject", regression.subject},
                        {"state", StateOf(regression)},
                        {"note", regression.note}});
  }
  return list;
}

std::string RegressionFile(const std::string& where, Op op,
                           const triage::Attribution& attribution) {
  if (!IsFolder(where)) return where + ".case.json";
  const std::string cause = attribution.causes.empty() ? std::string(Name(attribution.kind))
                                                       : triage::NamesOf(attribution.causes, op);
  const fs::path stem = fs::path(where) / FileWords(std::string(Name(op)) + " " + cause);
  for (int number = 1;; ++number) {
    const std::string file =
        stem.string() + (number == 1 ? "" : fmt::format("-{}", number)) + ".case.json";
    if (!fs::exists(file)) return file;
  }
}

void RequireRegressionFile(const std::string& where) {
  if (where.empty()) return;
  if (IsFolder(where)) return RequireFolder("--to-corpus", where);
  const fs::path file = where + ".case.json";
  if (fs::exists(file))
    throw InputError("--to-corpus: " + file.string() +
                     " is there, expected a new name or a folder");
  if (file.has_parent_path()) RequireFolder("--to-corpus", file.parent_path().string());
}

std::string RegressionNote(const std::string& diagnosis, const std::string& verb,
                           const std::string& subject, const std::string& found) {
  return fmt::format("{}. Found by qualm {} on {}, {}.", diagnosis, verb, subject,
                     found.substr(0, 10));
}

}  // namespace qualm::tools
