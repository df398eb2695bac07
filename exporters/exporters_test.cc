// SPDX-License-Identifier: Apache-2.0
// Each export is compiled and run here, if its tool exists, and must show the finding: EXPECTED the
// exact answer, GOT the answer of the case.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "adapters/registry.h"
#include "core/float_text.h"
#include "core/io/case_json.h"
#include "core/io/text_file.h"
#include "core/status.h"
#include "core/subject.h"
#include "core/text_test_util.h"
#include "exporters/exporter.h"
#include "exporters/text.h"
#include "oracles/exact/exact.h"
#include "properties/adapt.h"
#include "properties/gen/gen.h"
#include "triage/triage.h"

namespace qualm::exporters {
namespace {

namespace fs = std::filesystem;

struct Ran {
  int status = -1;
  std::string output;
};

// A fixture with a folder of its own, which is removed after the test.
class ExportersTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "qualm-exporters-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  Ran Shell(const std::string& command) const {
    const std::string line = "cd '" + folder_.string() + "' && { " + command + " ; } 2>&1";
    Ran run;
    FILE* pipe = popen(line.c_str(), "r");
    std::array<char, 4096> buffer;
    while (const size_t bytes = std::fread(buffer.data(), 1, buffer.size(), pipe))
      run.output.append(buffer.data(), bytes);
    const int status = pclose(pipe);
    run.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    return run;
  }
  bool Has(const std::string& program) const { return Shell("command -v " + program).status == 0; }
  void Write(const std::string& name, const std::string& text) const {
    WriteTextFile((folder_ / name).string(), text);
  }

  // One program of many, each in a namespace of its own; the headers that they include come first.
  void WriteTogether(const std::vector<std::string>& texts, const std::string& headers) const {
    std::string all = headers;
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::string name = "program_" + std::to_string(i);
      Write(name + ".cc", texts[i]);
      all += "namespace " + name + " {\n#include \"" + name + ".cc\"\n}\n";
    }
    Write("all.cc", all);
  }

  // Runs scripts in one Python: it takes long to start, and longer to load PyTorch.
  std::vector<Ran> RunScripts(const std::vector<std::string>& texts,
                              const std::string& python) const {
    for (size_t i = 0; i < texts.size(); ++i) Write("repro" + std::to_string(i) + ".py", texts[i]);
    Write("all.py", R"(import contextlib, io, sys, warnings
warnings.simplefilter('ignore')
for i in range(int(sys.argv[1])):
    name, status = 'repro%d.py' % i, 0
    with contextlib.redirect_stdout(io.StringIO()) as text:
        try:
            exec(compile(open(name).read(), name, 'exec'), {})
        except SystemExit as end:
            status = end.code
        except Exception as error:
            status = repr(error)
    open('out%d' % i, 'w').write('%sSTATUS %s\n' % (text.getvalue(), status))
)");
    const Ran all = Shell(python + " all.py " + std::to_string(texts.size()));
    EXPECT_EQ(all.status, 0) << all.output;
    std::vector<Ran> ran(texts.size());
    for (size_t i = 0; i < texts.size() && all.status == 0; ++i) {
      const std::string path = (folder_ / ("out" + std::to_string(i))).string();
      ran[i].output = ReadTextFile(path, "output", 1 << 20);
      if (ran[i].output.ends_with("STATUS 0\n")) ran[i].status = 0;
      if (ran[i].output.ends_with("STATUS 1\n")) ran[i].status = 1;
    }
    return ran;
  }

  // After WriteTogether: a main that runs the program of its argument.
  void WriteMains(size_t count) const {
    std::ofstream all(folder_ / "all.cc", std::ios::app);
    all << "int main(int, char** arguments) {\n  switch (std::atoi(arguments[1])) {\n";
    for (size_t i = 0; i < count; ++i)
      all << "    case " << i << ": return program_" << i << "::main();\n";
    all << "  }\n  return 99;\n}\n";
  }

  // Compiles the programs in one go, since the headers take most of the time, without a word of the
  // compiler, and runs each.
  void ExpectShownTogether(const std::vector<std::pair<std::string, Case>>& programs,
                           const std::string& headers, const std::string& flags,
                           const std::string& libraries = "") const;

  fs::path folder_;
};

std::string Corpus(const std::string& name) { return QUALM_SOURCE_DIR "/corpus/" + name; }

std::vector<std::string> CaseFiles(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(Corpus(folder)))
    if (entry.path().string().ends_with(".case.json")) files.push_back(entry.path().string());
  std::ranges::sort(files);
  return files;
}

// A case whose answer is its observed output, or the answer of `subject`.
struct Found {
  Case c;
  Finding finding;
};
Found FoundOf(Case c) {
  Verdict verdict = Verdict::Passed();
  if (c.observed) {
    if (const auto divergence = FirstDivergence(exact::Evaluate(c), c.observed->y)) {
      const triage::Attribution cause = triage::Attribute(c, c.observed->y);
      verdict = Verdict::Failed(cause.diagnosis, divergence);
      verdict.kind = cause.kind;
    }
  }
  const std::string by = c.observed ? c.observed->by : "nobody";
  Finding finding(c, "matches_exact", by, verdict);
  return {std::move(c), std::move(finding)};
}
Found FoundOf(const std::string& file) { return FoundOf(ReadCaseFile(file)); }
// With the answer of the subject, if it gives one.
Found FoundOf(Case c, Subject& subject, const std::string& name) {
  const Outcome outcome = subject.Run(c, RunContext{});
  c.observed.reset();
  if (outcome.ok()) c.observed = Observed{name, outcome.y};
  return FoundOf(std::move(c));
}

std::string Text(std::string_view kind, const Found& found) {
  return Export(kind, found.c, found.finding, {.qualm = "0.1"}).front().second;
}

// The numbers behind a word at the begin of a line, as elements of the output.
std::vector<std::string> NumbersBehind(const std::string& output, const std::string& word) {
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(word + " ")) continue;
    std::istringstream words(line.substr(word.size()));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {"no line " + word};
}
std::vector<std::string> ElementsOf(const Tensor& y) {
  std::vector<std::string> words;
  for (int64_t i = 0; i < y.size(); ++i) {
    const std::string word = ElementText(y, i);
    words.push_back(word.starts_with("nan") ? FloatText(NAN) : word);  // languages print one NaN
  }
  return words;
}
// Floats as qualm writes them, whatever language printed them.
std::vector<std::string> Normal(std::vector<std::string> words, DType dtype) {
  if (!IsFloat(dtype)) return words;
  for (std::string& word : words) word = FloatText(std::strtof(word.c_str(), nullptr));
  return words;
}

void ExpectNumbersShown(const Ran& run, const Case& c, const std::string& what) {
  const Tensor expected = exact::Evaluate(c);
  const Tensor& got = c.observed->y;
  EXPECT_EQ(Normal(NumbersBehind(run.output, "EXPECTED"), c.out_dtype), ElementsOf(expected))
      << what << "\n"
      << run.output.substr(0, 2000);
  EXPECT_EQ(Normal(NumbersBehind(run.output, "GOT"), c.out_dtype), ElementsOf(got))
      << what << "\n"
      << run.output.substr(0, 2000);
}
void ExpectShown(const Ran& run, const Case& c, const std::string& what) {
  ExpectNumbersShown(run, c, what);
  EXPECT_EQ(run.status, exact::Evaluate(c) == c.observed->y ? 0 : 1) << what;
}

// Documented cases with an answer, and documented cases that a convention answers.
std::vector<Found> DocumentedCases() {
  std::vector<Found> cases;
  for (const char* folder : {"forum", "regressions"}) {
    for (const std::string& file : CaseFiles(folder)) {
      Case c = ReadCaseFile(file);
      if (c.observed) cases.push_back(FoundOf(std::move(c)));
    }
  }
  const std::string name = "model:fbgemm@avx2";
  const auto fbgemm = SubjectRegistry::Get().Make(name);
  for (const char* file : {"forum/000-linear-sweep.case.json", "forum/003-conv1.case.json"})
    cases.push_back(FoundOf(ReadCaseFile(Corpus(file)), *fbgemm, name));
  return cases;
}

// Drawn cases that are not long, answered exactly.
std::vector<Case> SmallCases(Op op, size_t count) {
  std::vector<Case> cases;
  for (uint64_t seed = 1; seed < 400 && cases.size() < count; ++seed) {
    Case c = gen::Draw(op, seed);
    if (c.x.size() > 2000 || c.w.size() > 2000 || c.M * c.N == 0 || c.M * c.N > 500) continue;
    c.observed = Observed{"exact", exact::Evaluate(c)};
    if (!c.observed->y.empty()) cases.push_back(std::move(c));
  }
  return cases;
}

// The exporters' text, or "" where the kind cannot express the case.
std::string TextOrNothing(std::string_view kind, const Found& found) {
  try {
    return Text(kind, found);
  } catch (const InputError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with(std::string(kind) + " lacks "))
        << error.what();
    return "";
  }
}

// Drawn cases in blocks, answered exactly: weights, or x too, beside reals, with a scale chosen for
// x; elements of a row.
std::vector<Case> SmallCasesInBlocks(size_t of_each) {
  std::vector<Case> cases;
  const auto add = [&](std::optional<Case> c, size_t& count) {
    if (!c || c->x.size() > 2000 || c->w.size() > 2000 || c->M * c->N == 0 || count == of_each)
      return;
    ++count;
    c->observed = Observed{"exact", exact::Evaluate(*c)};
    cases.push_back(*std::move(c));
  };
  size_t weights = 0, both = 0, reals = 0;
  uint64_t seed = 0;
  for (const Case& drawn : SmallCases(Op::kLinear, 120)) {
    add(gen::InBlocks(drawn, ++seed), weights);
    add(gen::XInBlocks(drawn, seed), both);
    add(gen::WithFloatX(drawn, seed), reals);
  }
  for (const Op op : {Op::kDynamicLinear, Op::kQuantize, Op::kDequantize}) {
    size_t count = 0;
    for (const Case& drawn : SmallCases(op, 120))
      add(op == Op::kDynamicLinear ? gen::InBlocks(drawn, ++seed)
                                   : gen::ElementsInBlocks(drawn, ++seed),
          count);
    EXPECT_GE(count, std::min<size_t>(of_each, 5)) << Name(op);
  }
  EXPECT_GE(std::min({weights, both, reals}), std::min<size_t>(of_each, 5));
  return cases;
}

void ExportersTest::ExpectShownTogether(const std::vector<std::pair<std::string, Case>>& programs,
                                        const std::string& headers, const std::string& flags,
                                        const std::string& libraries) const {
  std::vector<std::string> texts;
  for (const auto& [text, c] : programs) texts.push_back(text);
  WriteTogether(texts, headers);
  WriteMains(texts.size());
  const Ran built = Shell("c++ -std=c++17 -O0 " + flags + " all.cc " + libraries + " -o all");
  ASSERT_EQ(built.status, 0) << built.output.substr(0, 4000);
  EXPECT_EQ(built.output, "");
  for (size_t i = 0; i < programs.size(); ++i) {
    const Case& c = programs[i].second;
    ExpectShown(Shell("./all " + std::to_string(i)), c, Describe(c));
  }
}

class Cpp : public ExportersTest {
 protected:
  Ran Compile(const std::string& text) const {
    Write("repro.cc", text);
    return Shell("c++ -std=c++17 -Wall -Wextra -Werror -O0 repro.cc -o repro && ./repro");
  }
};

constexpr const char* kHeadersOfCpp =
    "#ifdef __x86_64__\n#include <immintrin.h>\n#endif\n#include <algorithm>\n#include <cmath>\n"
    "#include <cstdint>\n#include <cstdio>\n#include <cstdlib>\n#include <vector>\n";

// One of each operation, with and without the instruction, compiles alone; the others together.
TEST_F(Cpp, DocumentedCasesCompileAloneAndShowTheFinding) {
  if (!Has("c++")) GTEST_SKIP() << "no c++ here";
  std::set<std::pair<Op, bool>> alone;
  int pairs = 0;
  std::vector<std::pair<std::string, Case>> together;
  for (const Found& found : DocumentedCases()) {
    std::string text = TextOrNothing("cpp", found);
    if (text.empty()) continue;
    const bool of_pairs = text.find("_mm_maddubs_epi16") != std::string::npos;
    pairs += of_pairs ? 1 : 0;
    if (alone.emplace(found.c.op, of_pairs).second) {
      ExpectShown(Compile(text), found.c, Describe(found.c));
    } else {
      together.emplace_back(std::move(text), found.c);
    }
  }
  EXPECT_GE(alone.size(), 8u);
  EXPECT_GE(together.size(), 15u);
  EXPECT_GE(pairs, 4);
  ExpectShownTogether(together, kHeadersOfCpp, "-w");
}

TEST_F(Cpp, DrawnCasesOfEveryOperationAreComputedExactly) {
  if (!Has("c++")) GTEST_SKIP() << "no c++ here";
  std::vector<std::pair<std::string, Case>> programs;
  for (const Op op : AllOps()) {
    for (const Case& c : SmallCases(op, 4)) {
      std::string text = TextOrNothing("cpp", FoundOf(c));
      if (!text.empty()) programs.emplace_back(std::move(text), c);
    }
  }
  EXPECT_GE(programs.size(), 40u);
  ExpectShownTogether(programs, kHeadersOfCpp, "-w");
}

TEST_F(Cpp, CasesInBlocksAreComputedExactly) {
  if (!Has("c++")) GTEST_SKIP() << "no c++ here";
  std::vector<std::pair<std::string, Case>> programs;
  std::map<std::string, int> written;
  for (const Case& c : SmallCasesInBlocks(8)) {
    std::string text = TextOrNothing("cpp", FoundOf(c));
    if (text.empty()) continue;
    const std::string kind = std::string(Name(c.op)) +
                             (HasFloatX(c)     ? " f32"
                              : c.x_block != 0 ? " x"
                                               : "") +
                             (c.out_dtype == DType::kF32 ? "" : " codes");
    if (++written[kind] == 1) {
      ExpectShown(Compile(text), c, Describe(c));
    } else {
      programs.emplace_back(std::move(text), c);
    }
  }
  for (const char* kind :
       {"linear", "linear codes", "linear f32", "linear x", "quantize x codes", "dequantize x"})
    EXPECT_GE(written[kind], 1) << kind;
  ExpectShownTogether(programs, kHeadersOfCpp, "-w");
}

class Python : public ExportersTest {
 protected:
  Ran RunScript(const std::string& text) const {
    Write("repro.py", text);
    return Shell("python3 repro.py");
  }
};

TEST_F(Python, DocumentedCasesShowTheFinding) {
  if (!Has("python3")) GTEST_SKIP() << "no python3 here";
  std::vector<Found> shown;
  std::vector<std::string> texts;
  for (Found& found : DocumentedCases()) {
    std::string text = TextOrNothing("numpy", found);
    if (text.empty()) continue;
    texts.push_back(std::move(text));
    shown.push_back(std::move(found));
  }
  EXPECT_GE(shown.size(), 20u);
  const std::vector<Ran> ran = RunScripts(texts, "python3");
  for (size_t i = 0; i < shown.size(); ++i) ExpectShown(ran[i], shown[i].c, Describe(shown[i].c));
}

// The scripts are a third form of the exact meaning.
TEST_F(Python, DrawnCasesOfEveryOperationAreComputedExactly) {
  if (!Has("python3")) GTEST_SKIP() << "no python3 here";
  std::vector<Case> cases;
  std::vector<std::string> texts;
  for (const Op op : AllOps()) {
    const size_t before = texts.size();
    for (Case& c : SmallCases(op, op == Op::kCast ? 60 : 12)) {  // of many types
      std::string text = TextOrNothing("numpy", FoundOf(c));
      if (text.empty()) continue;
      texts.push_back(std::move(text));
      cases.push_back(std::move(c));
    }
    EXPECT_GE(texts.size() - before, 5u) << Name(op);
  }
  const auto add = [&](std::optional<Case> c) {
    if (!c || c->w.size() > 2000) return;
    c->observed = Observed{"exact", exact::Evaluate(*c)};
    std::string text = TextOrNothing("numpy", FoundOf(*c));
    if (text.empty()) return;
    texts.push_back(std::move(text));
    cases.push_back(*std::move(c));
  };
  const size_t before = texts.size();
  for (Case& c : SmallCasesInBlocks(20)) add(std::move(c));
  EXPECT_GE(texts.size() - before, 60u);
  const size_t casts = texts.size();
  uint64_t seed = 0;
  for (const Case& drawn : SmallCases(Op::kCast, 120)) add(gen::WithCastScales(drawn, ++seed));
  EXPECT_GE(texts.size() - casts, 15u);
  const std::vector<Ran> ran = RunScripts(texts, "python3");
  for (size_t i = 0; i < cases.size(); ++i) ExpectShown(ran[i], cases[i], Describe(cases[i]));
}

class NativeTest : public ExportersTest {};

// All tests are one program here: GoogleTest's headers take seconds.
TEST_F(NativeTest, DrawnCasesOfEachOperationPass) {
  std::vector<std::string> texts;
  std::vector<Case> cases;
  std::string headers =
      "#include <gtest/gtest.h>\n#include <algorithm>\n#include <cmath>\n"
      "#include <cstdint>\n#include <cstdio>\n#include <cstring>\n"
      "#include <vector>\n";
  const auto add = [&](const Case& c, std::string text) {
    const size_t header = text.find("#include <qualm/"), suite = text.find("TEST(");
    ASSERT_NE(header, std::string::npos);
    ASSERT_NE(suite, std::string::npos);
    headers += text.substr(header, text.find('\n', header) + 1 - header);
    text.replace(suite, text.find(',', suite) - suite,
                 fmt::format("TEST(Number{}End", texts.size()));
    cases.push_back(c);
    texts.push_back(std::move(text));
  };
  for (const Op op : AllOps()) {
    if (op == Op::kCast) continue;  // refused
    const Case c = SmallCases(op, 1).at(0);
    add(c, Text("gtest", FoundOf(c)));
  }
  // Those in blocks as the subject answers them, which has the same kernels.
  const auto of_4 = SubjectRegistry::Get().Make("native+nbits4"),
             of_8 = SubjectRegistry::Get().Make("native+nbits8"),
             others = SubjectRegistry::Get().Make("native");
  std::map<std::string, int> written;
  for (const Case& c : SmallCasesInBlocks(20)) {
    Subject& subject = c.op != Op::kLinear ? *others : BitsOf(c.w.dtype()) == 4 ? *of_4 : *of_8;
    const Found found = FoundOf(c, subject, "native");
    const std::string text = TextOrNothing("gtest", found);
    EXPECT_EQ(text.empty(), !found.c.observed) << Describe(c);
    if (text.empty() || ++written[std::string(Name(c.op)) + (HasFloatX(c) ? " f32" : "")] > 6)
      continue;
    add(found.c, text);
  }
  for (const char* kind : {"linear", "linear f32", "quantize", "dequantize"})
    EXPECT_GE(written[kind], 3) << kind;
  WriteTogether(texts, headers);
  const Ran built = Shell("ln -sfn '" QUALM_SOURCE_DIR "' qualm && " QUALM_CXX
                          " -std=c++20 -Wall -Wextra -Werror -O0 -I. -Iqualm all.cc " QUALM_KERNELS
                          " -lgtest -lgtest_main -lpthread -o all");
  ASSERT_EQ(built.status, 0) << built.output.substr(0, 4000);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Ran ran = Shell(fmt::format("./all --gtest_filter=Number{}End.*", i));
    ExpectNumbersShown(ran, cases[i], Describe(cases[i]));
    EXPECT_EQ(ran.status, 0) << Describe(cases[i]) << "\n" << ran.output.substr(0, 2000);
  }
}

// ---- Libraries, where they are.

// The reason why the exporter cannot express the case, "" if it can.
std::string WhyNot(std::string_view kind, const Case& c, const std::string& subject) {
  return Refusal([&] { Export(kind, c, Finding(c, "matches_exact", subject, Verdict::Passed())); });
}

// Cases of each operation that `subject` and the exporter can do, answered by the subject.
struct Shown {
  Case c;
  NamedTexts files;
};
std::vector<Shown> ShownBy(Subject& subject, const std::string& name, std::string_view kind,
                           size_t of_each) {
  std::vector<Shown> shown;
  for (const Op op : AllOps()) {
    size_t written = 0;
    for (const Case& c : SmallCases(op, 120)) {
      if (written == of_each) break;
      const auto why_not = [&](const Case& adapted) {
        const std::string reason = subject.CannotRun(adapted);
        return reason.empty() ? WhyNot(kind, adapted, name) : reason;
      };
      const std::optional<Case> adapted = AdaptTo(why_not, c);
      if (!adapted) continue;
      Found found = FoundOf(*adapted, subject, name);
      if (!found.c.observed || found.c.observed->y.empty()) continue;
      shown.push_back({found.c, Export(kind, found.c, found.finding)});
      ++written;
    }
  }
  for (const char* file : {"regressions/linear-pair-sum-saturates", "forum/000-linear-sweep",
                           "forum/000-linear-points", "forum/003-conv1"}) {
    Case documented = ReadCaseFile(Corpus(std::string(file) + ".case.json"));
    if (!subject.CannotRun(documented).empty() || !WhyNot(kind, documented, name).empty()) continue;
    Found found = FoundOf(std::move(documented), subject, name);
    shown.push_back({found.c, Export(kind, found.c, found.finding)});
  }
  return shown;
}

size_t OpsOf(const std::vector<Shown>& shown) {
  std::set<Op> ops;
  for (const Shown& each : shown) ops.insert(each.c.op);
  return ops.size();
}

// nullptr, with the reason, where the subject is absent.
std::unique_ptr<Subject> Make(const std::string& name, std::string* why) {
  try {
    return SubjectRegistry::Get().Make(name);
  } catch (const std::exception& error) {
    *why = error.what();
    return nullptr;
  }
}

class Libraries : public ExportersTest {
 protected:
  std::string why_;
};

TEST_F(Libraries, OnednnAnswersWhatTheSubjectAnswers) {
  const auto subject = Make("onednn@avx2", &why_);
  if (!subject) GTEST_SKIP() << why_;
  const std::vector<Shown> shown = ShownBy(*subject, "onednn@avx2", "onednn", 3);
  EXPECT_GE(OpsOf(shown), 10u);
  std::vector<std::pair<std::string, Case>> programs;
  for (const Shown& each : shown) programs.emplace_back(each.files.front().second, each.c);
  ExpectShownTogether(
      programs,
      "#include <algorithm>\n#include <cmath>\n#include <cstdint>\n"
      "#include <cstdio>\n#include <cstdlib>\n#include <cstring>\n"
      "#include <oneapi/dnnl/dnnl.hpp>\n#include <unordered_map>\n#include <vector>\n",
      "-Wall -Wextra", "-ldnnl");
}

TEST_F(Libraries, XnnpackAnswersWhatTheSubjectAnswers) {
  const auto subject = Make("xnnpack", &why_);
  if (!subject) GTEST_SKIP() << why_;
  const char* const kind = subject->Version().ends_with("of 2024") ? "xnnpack2024" : "xnnpack";
  std::vector<Shown> shown = ShownBy(*subject, "xnnpack", kind, 3);
  EXPECT_GE(OpsOf(shown), 12u);
  for (const Shown& each : shown) {
    Write("repro.c", each.files.front().second);
    const Ran built = Shell(
        "cc -Wall -Wno-unused-const-variable -Werror repro.c -lXNNPACK -lpthreadpool -lcpuinfo -lm "
        "-o repro");
    ASSERT_EQ(built.status, 0) << built.output.substr(0, 4000);
    ExpectShown(Shell("./repro"), each.c, Describe(each.c));
  }
}

// Many scripts in one Python: it takes seconds to load PyTorch.
class Pytorch : public Libraries, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Engines, Pytorch, testing::Values("torch@onednn+avx2", "torch@qnnpack"),
                         [](const auto& engine) {
                           return std::string(engine.param).substr(6, 7) == "qnnpack" ? "qnnpack"
                                                                                      : "onednn";
                         });
TEST_P(Pytorch, AnswersWhatTheSubjectAnswers) {
  const auto subject = Make(GetParam(), &why_);
  if (!subject) GTEST_SKIP() << why_;
  const std::vector<Shown> shown = ShownBy(*subject, GetParam(), "pytorch", 2);
  EXPECT_GE(OpsOf(shown), 10u);
  std::vector<std::string> texts;
  for (const Shown& each : shown) texts.push_back(each.files.front().second);
  const std::vector<Ran> ran = RunScripts(texts, TorchPython());
  for (size_t i = 0; i < shown.size(); ++i) ExpectShown(ran[i], shown[i].c, Describe(shown[i].c));
}

// Reads the folders as anybody would who knows the layout, and runs each model.
constexpr char kRunModels[] = R"(
import fs from 'node:fs';
import {createRequire} from 'node:module';
const [packages, count] = process.argv.slice(2);
const ort = createRequire(packages + '/package.json')('onnxruntime-node');
const NAME = {1: 'float32', 2: 'uint8', 3: 'int8', 6: 'int32'};
const ARRAY = {1: Float32Array, 2: Uint8Array, 3: Int8Array, 6: Int32Array};
function tensor(file) {
  const bytes = fs.readFileSync(file);
  let at = 0, name = '', type = 0, raw = Buffer.alloc(0);
  const dims = [];
  const varint = () => { let v = 0, s = 1; for (;;) { const b = bytes[at++]; v += (b & 127) * s; if (b < 128) return v; s *= 128; } };
  while (at < bytes.length) {
    const key = varint();
    if ((key & 7) === 0) { const v = varint(); if (key >> 3 === 1) dims.push(v); else type = v; continue; }
    const length = varint(), field = bytes.subarray(at, at += length);
    if (key >> 3 === 8) name = field.toString(); else raw = Buffer.from(field);
  }
  const Array = ARRAY[type];
  return {name, type, dims, data: new Array(raw.buffer.slice(raw.byteOffset, raw.byteOffset + raw.length))};
}
const hex = v => typeof v === 'number' && !Number.isInteger(v) ? String(v) : Object.is(v, -0) ? '-0.0' : String(v);
const line = (word, data) => word + ' ' + Array.from(data, hex).join(' ').replaceAll('Infinity', 'inf').replaceAll('NaN', 'nan') + '\n';
for (let i = 0; i < Number(count); ++i) {
  const folder = 'model' + i + '/test_data_set_0/';
  let text = '';
  try {
    const session = await ort.InferenceSession.create(fs.readFileSync('model' + i + '/model.onnx'),
        {graphOptimizationLevel: 'disabled', intraOpNumThreads: 1, interOpNumThreads: 1, logSeverityLevel: 4});
    const feeds = {};
    for (let k = 0; fs.existsSync(folder + 'input_' + k + '.pb'); ++k) {
      const {name, type, dims, data} = tensor(folder + 'input_' + k + '.pb');
      feeds[name] = new ort.Tensor(NAME[type], data, dims);
    }
    const expected = tensor(folder + 'output_0.pb');
    const {y} = await session.run(feeds);
    text = line('EXPECTED', expected.data) + line('GOT', y.data);
    text += y.dims.join() === expected.dims.join() ? '' : 'DIMS ' + y.dims + ' not ' + expected.dims + '\n';
  } catch (error) { text = String(error) + '\n'; }
  fs.writeFileSync('out' + i, text);
}
)";

// The layout of images in ONNX: [batch, channels, H, W].
Tensor ChannelsFirst(const Tensor& y) {
  if (y.shape().size() != 4) return y;
  const auto& s = y.shape();
  Tensor to(y.dtype(), {s[0], s[3], s[1], s[2]});
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t channel = i % s[3], pixel = i / s[3] % (s[1] * s[2]),
                  image = i / s[3] / (s[1] * s[2]);
    to.SetInt((image * s[3] + channel) * s[1] * s[2] + pixel, y.IntAt(i));
  }
  return to;
}

std::string OnnxruntimeFolder() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string xdg = variable("XDG_CACHE_HOME"), own = variable("QUALM_CACHE_DIR");
  const std::string cache = xdg.empty() ? variable("HOME") + "/.cache" : xdg;
  return (own.empty() ? cache + "/qualm" : own) + "/onnxruntime-node";
}

class Onnx : public Libraries {
 protected:
  // Has ONNX itself check the models, if its package is installed.
  void ExpectChecked(size_t count) const {
    const std::string python = "/usr/bin/python3";
    if (Shell(python + " -c 'import onnx.checker'").status != 0) {
      std::cout << "not checked by the package onnx: " << python << " does not have it\n";
      return;
    }
    const Ran ran = Shell(python + " -c 'import onnx\nfor i in range(" + std::to_string(count) +
                          "): onnx.checker.check_model(onnx.load(\"model%d/model.onnx\" % i), "
                          "full_check=True)'");
    EXPECT_EQ(ran.status, 0) << ran.output;
  }

  void ExpectModelsShow(const std::string& subject_name, const std::string& emulator,
                        size_t of_each, size_t ops) {
    const auto subject = Make(subject_name, &why_);
    if (!subject) GTEST_SKIP() << why_;
    const std::vector<Shown> shown = ShownBy(*subject, subject_name, "onnx", of_each);
    EXPECT_GE(OpsOf(shown), ops);
    ExpectModelsShow(shown, emulator);
  }
  void ExpectModelsShow(const std::vector<Shown>& shown, const std::string& emulator) {
    for (size_t i = 0; i < shown.size(); ++i) {
      const std::string model = "model" + std::to_string(i) + "/";
      fs::create_directories(folder_ / model / "test_data_set_0");
      for (const auto& [name, text] : shown[i].files) Write(model + name, text);
    }
    ExpectChecked(shown.size());
    Write("run.mjs", kRunModels);
    const Ran ran = Shell(emulator + "$(command -v node) run.mjs '" + OnnxruntimeFolder() + "' " +
                          std::to_string(shown.size()));
    ASSERT_EQ(ran.status, 0) << ran.output;
    for (size_t i = 0; i < shown.size(); ++i) {
      const Case& c = shown[i].c;
      const std::string out =
          ReadTextFile((folder_ / ("out" + std::to_string(i))).string(), "output", 1 << 20);
      EXPECT_EQ(Normal(NumbersBehind(out, "EXPECTED"), c.out_dtype),
                ElementsOf(ChannelsFirst(exact::Evaluate(c))))
          << Describe(c) << "\n"
          << out;
      EXPECT_EQ(Normal(NumbersBehind(out, "GOT"), c.out_dtype),
                ElementsOf(ChannelsFirst(c.observed->y)))
          << Describe(c) << "\n"
          << out;
      EXPECT_EQ(out.find("DIMS"), std::string::npos) << Describe(c) << "\n" << out;
    }
  }
};

TEST_F(Onnx, RuntimeAnswersWhatTheSubjectAnswers) { ExpectModelsShow("onnxruntime", "", 3, 11); }

// A linear of small integers as reals, with scales that are powers of two: any order of additions
// is exact. Without zero points of its own it has those that MatMulNBits takes for granted.
Case FewBits(DType w, int64_t K, int32_t block, bool own_zero_points, bool bias) {
  Case c;
  c.M = 2;
  c.N = 3;
  c.K = K;
  c.per_channel = true;
  c.w_block = block;
  c.out_dtype = DType::kF32;
  c.out_min = RangeOf(c.out_dtype).min;
  c.out_max = RangeOf(c.out_dtype).max;
  c.x = Tensor(DType::kF32, {c.M, K});
  c.w = Tensor(w, {c.N, K});
  const CodeRange range = RangeOf(w);
  const int32_t codes = range.max - range.min + 1;
  for (int64_t i = 0; i < c.x.size(); ++i)
    c.x.as<float>()[static_cast<size_t>(i)] = static_cast<float>(i * 7 % 11 - 5);
  for (int64_t i = 0; i < c.w.size(); ++i)
    c.w.SetInt(i, range.min + static_cast<int32_t>(i * 5 % codes));
  c.w_q = {{}, {}};
  for (int64_t i = 0; i < c.N * RowBlocks(c); ++i) {
    c.w_q.scale.push_back(std::ldexp(1.0f, -static_cast<int>(i % 5)));
    c.w_q.zero_point.push_back(own_zero_points ? range.min + static_cast<int32_t>(i * 3 % codes)
                                               : range.min + codes / 2);
  }
  if (bias) c.bias = {1.0f, -2.0f, 0.5f};
  c.observed = Observed{"exact", exact::Evaluate(c)};
  return c;
}

TEST_F(Onnx, LinearsOfFewBitsAreMatMulNBits) {
  if (!Make("onnxruntime", &why_)) GTEST_SKIP() << why_;
  std::vector<Shown> shown;
  for (const DType w : {DType::kU4, DType::kS4, DType::kU8, DType::kS8}) {
    for (const auto& [K, block] : {std::pair{40, 16}, {100, 48}, {33, 0}, {32, 32}}) {
      for (const bool more : {false, true}) {
        const Case c = FewBits(w, K, block, more, more);
        ASSERT_EQ(Validate(c), "");
        shown.push_back({c, Export("onnx", c, FoundOf(c).finding)});
      }
    }
  }
  ExpectModelsShow(shown, "");
  EXPECT_EQ(WhyNot("onnx", FewBits(DType::kU4, 40, 24, false, false), "native"),
            "onnx lacks blocks that are no multiple of 16; cpp, numpy can write this case");
}

// The documented pair saturates there: an emulated processor without VNNI.
TEST_F(Onnx, RuntimeWithoutVnniShowsThePair) {
  ExpectModelsShow("onnxruntime@avx2", "$(command -v qemu-x86_64) -cpu Haswell ", 0, 1);
}

// ---- Text that would get out.

constexpr char kHostile[] =
    "x */ \"quoted\" `code` ``` \\\n#error line\r\xE2\x80\xAE right to left $head$ ''' \"\"\" ?\?/";

TEST_F(Cpp, HostileNamesStayInTheirComment) {
  if (!Has("c++")) GTEST_SKIP() << "no c++ here";
  Found found = FoundOf(Corpus("regressions/linear-pair-sum-saturates.case.json"));
  found.c.observed->by = found.finding.subject = found.finding.explanation = kHostile;
  const Ran run = Compile(Text("cpp", found));
  ExpectShown(run, found.c, "hostile");
}

TEST_F(Python, HostileNamesStayInTheirComment) {
  if (!Has("python3")) GTEST_SKIP() << "no python3 here";
  Found found = FoundOf(Corpus("regressions/linear-pair-sum-saturates.case.json"));
  found.c.observed->by = found.finding.subject = found.finding.explanation = kHostile;
  ExpectShown(RunScript(Text("numpy", found)), found.c, "hostile");
}

TEST(Text, CodeAndFencesAreLongerThanWhatIsInThem) {
  EXPECT_EQ(Code("a"), "`a`");
  EXPECT_EQ(Code("a``b"), "``` a``b ```");
  EXPECT_EQ(Fence("c", "```\nint x;"), "````c\n```\nint x;\n````\n");
  EXPECT_EQ(Comment("//", "a\\\nb\n"), "// a?\n// b\n");
  EXPECT_EQ(Plain("a\xE2\x80\xAE"
                  "b\t?\?/"),
            "a?\?\?b?\?\?\?");
}

TEST(Issue, SaysWhatIsExpectedWhatIsAnsweredAndWhy) {
  Found found = FoundOf(Corpus("regressions/linear-pair-sum-saturates.case.json"));
  found.c.observed->by = found.finding.subject = kHostile;
  const std::string text = Text("issue", found);
  const Tensor expected = exact::Evaluate(found.c);
  EXPECT_NE(text.find("## Expected\n\n`" + ElementText(expected, 0)), std::string::npos) << text;
  EXPECT_NE(text.find("## Actual\n\n`" + ElementText(found.c.observed->y, 0)), std::string::npos);
  EXPECT_NE(text.find("_mm_maddubs_epi16"), std::string::npos);
  EXPECT_NE(text.find("32767"), std::string::npos) << text;
  EXPECT_LT(text.size(), 65'536u);
}

TEST(Issue, TellsOfACrashWithoutAnAnswer) {
  Found found = FoundOf(Corpus("regressions/linear-pair-sum-saturates.case.json"));
  found.c.observed.reset();
  found.finding.kind = FindingKind::kCrash;
  found.finding.explanation = "the subject ended by SIGSEGV";
  const std::string text = Text("issue", found);
  EXPECT_TRUE(text.starts_with("# linear u8*s8->u8: matches_exact fails (crash)\n")) << text;
  EXPECT_NE(text.find("## Actual\n\n`the subject ended by SIGSEGV`"), std::string::npos) << text;
}

TEST(Export, RefusesWhatItCannotSay) {
  const Found found = FoundOf(Corpus("regressions/linear-pair-sum-saturates.case.json"));
  EXPECT_THROW(Text("perl", found), InputError);
  Found silent = found;
  silent.c.observed.reset();
  silent.finding.explanation.clear();
  EXPECT_THROW(Text("issue", silent), InputError);
  Found long_one = found;
  long_one.c.K = 70'000;
  long_one.c.x = Tensor(DType::kU8, {1, 70'000});
  long_one.c.w = Tensor(DType::kS8, {1, 70'000});
  EXPECT_THROW(Text("cpp", long_one), InputError);
  Found packed = found;
  packed.c.w = Tensor(DType::kS4, packed.c.w.shape());
  EXPECT_THROW(Text("onnx", packed), InputError);
  EXPECT_NE(Text("issue", packed), "");
  Found wide = found;
  wide.c = CaseOver(Op::kDequantize, Tensor(DType::kS16, {1, 2}), DType::kF32);
  wide.c.observed = Observed{"a kernel", Tensor(DType::kF32, {1, 2})};
  for (const char* kind : {"onnx", "onednn", "xnnpack", "pytorch", "gtest"})
    EXPECT_THROW(Text(kind, wide), InputError) << kind;
  for (const char* kind : {"numpy", "cpp", "issue"}) EXPECT_NE(Text(kind, wide), "") << kind;
  // Who can is named.
  Found cast = found;
  cast.c = gen::Draw(Op::kCast, 1);
  EXPECT_EQ(Refusal([&] { Text("cpp", cast); }),
            "cpp lacks casts between float types; numpy can write this case");
}

}  // namespace
}  // namespace qualm::exporters

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  qualm::RegisterAllSubjects();
  return RUN_ALL_TESTS();
}
