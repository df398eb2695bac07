// SPDX-License-Identifier: Apache-2.0
#include "report/forum.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "core/io/case_json.h"
#include "core/io/text_file.h"
#include "core/status.h"
#include "report/forum_util.h"
#include "report/markdown.h"

namespace qualm::report {
namespace {

namespace fs = std::filesystem;

struct Thread {
  std::string_view number, title, needs;  // the case that stands for all of the thread
  Blocks (*answer)(const ForumCases& cases);
};
constexpr std::array<Thread, 5> kThreads{{
    {"000", "a quantized Linear layer is not monotonic", "000-linear-sweep", Thread000},
    {"001", "which clamp does quantize use, and why do codes end at 127?", "001-quantize",
     Thread001},
    {"002", "the formula of a quantized Linear layer", "002-linear-2x2", Thread002},
    {"003", "a quantized convolution is wrong in one channel", "003-conv1", Thread003},
    {"004", "how are two quantized tensors added?", "004-add", Thread004},
}};

std::string TitleOf(const Thread& thread) {
  return fmt::format("Thread {}: {}", thread.number, thread.title);
}

constexpr const char* kAbout =
    "Questions that people asked on the PyTorch forum. The numbers are computed from the cases in "
    "corpus/forum and the arithmetic of each library as qualm knows it (docs/backends.md).";

}  // namespace

std::string ForumCases::PathOf(const std::string& name) const {
  return (fs::path(corpus_) / "forum" / (name + ".case.json")).string();
}
bool ForumCases::Has(const std::string& name) const { return fs::exists(PathOf(name)); }
Case ForumCases::Read(const std::string& name) const { return ReadCaseFile(PathOf(name)); }

Blocks ForumSections(const std::string& corpus, const ResultRecord& run) {
  const ForumCases cases(corpus);
  Blocks blocks;
  for (const Thread& thread : kThreads) {
    if (!cases.Has(std::string(thread.needs))) continue;
    Blocks answer = thread.answer(cases);
    if (thread.number == "003") Append(answer, RepairedOnSubjects(run.repairs));
    blocks.push_back(
        Fold{Strong(TitleOf(thread)), fmt::format("thread-{}", thread.number), std::move(answer)});
  }
  if (blocks.empty()) return {};
  Blocks all{Heading{2, "Five questions from the forum", "forum"}, Paragraph{kAbout}};
  Append(all, std::move(blocks));
  return all;
}

void WriteForumPage(const std::string& corpus, const std::string& folder) {
  const ForumCases cases(corpus);
  MarkdownPage page("forum");
  page.Add(
      {Heading{1, "Five questions from the forum, answered", ""}, Paragraph{kAbout},
       Paragraph{Text("Made by ") + Code("qualm report --forum docs") +
                 "; a test keeps it current. Words: " + Link("glossary", "glossary.md") + "."}});
  for (const Thread& thread : kThreads) {
    page.Add({Heading{2, TitleOf(thread), ""}});
    page.Add(thread.answer(cases));
  }
  fs::create_directories(fs::path(folder) / "forum");
  for (const auto& [name, svg] : page.pictures())
    WriteTextFile((fs::path(folder) / "forum" / name).string(), svg);
  WriteTextFile((fs::path(folder) / "forum.md").string(), page.text());
}

const Convention& ConventionCalled(const std::string& name) {
  const Convention* convention = FindConvention(name);
  QUALM_CHECK(convention != nullptr);
  return *convention;
}

Mismatch Compare(const Tensor& exact, const Tensor& other) {
  Mismatch mismatch;
  mismatch.outputs = exact.size();
  for (int64_t i = 0; i < exact.size(); ++i) {
    const int64_t error = std::llabs(int64_t{other.IntAt(i)} - exact.IntAt(i));
    if (error == 0) continue;
    if (mismatch.first < 0) mismatch.first = i;
    ++mismatch.wrong;
    mismatch.worst = std::max(mismatch.worst, error);
  }
  return mismatch;
}

std::string Real(double value) { return fmt::format("{:.6g}", value); }

Block Question(const std::string& text) { return Paragraph{Strong("Asked:") + (" " + text)}; }

}  // namespace qualm::report
