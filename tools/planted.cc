// SPDX-License-Identifier: Apache-2.0
// planted OP SEED COUNT [--unseen] [--cases N]: is what `qualm check` says of a kernel true? Of
// COUNT kernels, each with a mistake from the catalogue under a condition that is drawn too. The
// row that is told first is a rule: its causes where its condition holds, exact elsewhere. The rule
// is held to the kernel on further drawn cases, so that no word is compared.
//
// --unseen: the mistake is taken out of the catalogue first, as one that nobody thought of.
//
// Prints a line for each kernel and the totals:
//   right     the rule gives every answer
//   wide      it departs where the kernel is exact, and gives all that the kernel does wrong
//   narrow    it is exact where the kernel departs, and gives all else
//   some      its causes, "in some cases"
//   other     it gives another answer: false
//   shown     an experiment's sentence, which names no cause: to be read
//   unknown   no cause is named
//   not found
// Exit status: 0, or 2 for bad usage.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/registry.h"
#include "core/case.h"
#include "core/op.h"
#include "core/rng.h"
#include "core/subject.h"
#include "oracles/exact/exact.h"
#include "properties/engine.h"
#include "properties/gen/gen.h"
#include "properties/test_subject.h"
#include "tools/command.h"
#include "tools/faults.h"
#include "tools/findings.h"
#include "tools/verb.h"
#include "triage/causes.h"

namespace qualm::tools {
namespace {

// Where kernels take another loop.
struct Where {
  const char* text;
  bool (*holds)(const Case& c);
};
bool AnyNot0(const QParams& q) {
  return std::ranges::any_of(q.zero_point, [](int32_t zero_point) { return zero_point != 0; });
}
constexpr Where kWheres[] = {
    {"M is 1", [](const Case& c) { return c.M == 1; }},
    {"M is more than 1", [](const Case& c) { return c.M > 1; }},
    {"M is odd", [](const Case& c) { return c.M % 2 != 0; }},
    {"N % 4 is not 0", [](const Case& c) { return c.N % 4 != 0; }},
    {"N is 8 or more", [](const Case& c) { return c.N >= 8; }},
    {"N is less than 8", [](const Case& c) { return c.N < 8; }},
    {"N % 16 is 0", [](const Case& c) { return c.N % 16 == 0; }},
    {"K is 16 or more", [](const Case& c) { return c.K >= 16; }},
    {"K is 65 or more", [](const Case& c) { return c.K >= 65; }},
    {"K is less than 16", [](const Case& c) { return c.K < 16; }},
    {"K % 4 is not 0", [](const Case& c) { return c.K % 4 != 0; }},
    {"K % 8 is 0", [](const Case& c) { return c.K % 8 == 0; }},
    {"K is odd", [](const Case& c) { return c.K % 2 != 0; }},
    {"x is s8", [](const Case& c) { return c.x.dtype() == DType::kS8; }},
    {"x is u8", [](const Case& c) { return c.x.dtype() == DType::kU8; }},
    {"the output is s8", [](const Case& c) { return c.out_dtype == DType::kS8; }},
    {"the output is u8", [](const Case& c) { return c.out_dtype == DType::kU8; }},
    {"there is a bias", [](const Case& c) { return c.bias || c.bias_i32; }},
    {"there is no bias", [](const Case& c) { return !c.bias && !c.bias_i32; }},
    {"there is a relu", [](const Case& c) { return c.relu; }},
    {"per channel", [](const Case& c) { return c.per_channel; }},
    {"per tensor", [](const Case& c) { return !c.per_channel; }},
    {"x has a zero point", [](const Case& c) { return AnyNot0(c.x_q); }},
    {"x has no zero point", [](const Case& c) { return !AnyNot0(c.x_q); }},
    {"w has a zero point", [](const Case& c) { return AnyNot0(c.w_q); }},
    {"the output has a zero point", [](const Case& c) { return AnyNot0(c.out_q); }},
    {"stride", [](const Case& c) { return c.window.stride_h > 1 || c.window.stride_w > 1; }},
    {"no stride", [](const Case& c) { return c.window.stride_h == 1 && c.window.stride_w == 1; }},
    {"dilation", [](const Case& c) { return c.window.dilation_h > 1 || c.window.dilation_w > 1; }},
    {"padding", [](const Case& c) { return c.window.has_padding(); }},
    {"groups", [](const Case& c) { return c.window.groups > 1; }},
    {"a kernel of 1x1",
     [](const Case& c) { return c.window.kernel_h == 1 && c.window.kernel_w == 1; }},
    {"two images", [](const Case& c) { return c.window.batch > 1; }},
};

struct Mistake {
  triage::Hypothesis causes;
  std::vector<const Where*> where;

  bool Holds(const Case& c) const {
    return std::ranges::all_of(where, [&](const Where* each) { return each->holds(c); });
  }
  Tensor Answer(const Case& c) const {
    const Tensor right = exact::Evaluate(c);
    return Holds(c) ? triage::Counterfactual(c, causes).value_or(right) : right;
  }
  std::string Text(Op op) const {
    std::string text = triage::NamesOf(causes, op);
    for (const Where* each : where) text += fmt::format(", where {}", each->text);
    return text;
  }
};

// Cases of an operation that an exact kernel may be asked.
std::vector<Case> Drawn(Op op, uint64_t seed, int64_t count) {
  constexpr int64_t kLargest = 1 << 18;  // products and outputs
  TestSubject exact;
  std::vector<Case> cases;
  for (int64_t i = 0; std::ssize(cases) < count; ++i) {
    Case c = gen::Draw(op, CaseSeed(seed, op, i));
    if (exact.CannotRun(c).empty() && c.M * c.N * std::max<int64_t>(c.K, 1) <= kLargest)
      cases.push_back(std::move(c));
  }
  return cases;
}

// A mistake that shows in some of `cases`, and under its condition in fewer than without.
std::optional<Mistake> Draw(Rng& rng, const std::vector<Case>& cases) {
  constexpr int kLeast = 4;
  Mistake mistake;
  const auto all = triage::AllCauses();
  // Families are many, and their members alike.
  const bool of_family = rng.Below(2) != 0;
  do mistake.causes = {&all[rng.Below(all.size())]};
  while (mistake.causes.front()->of_family != of_family);
  const auto places = triage::AllPlaces();
  if (rng.Below(4) == 0) mistake.causes.push_back(&places[rng.Below(places.size())]);
  const auto shows = [&](const Case& c) { return mistake.Answer(c) != exact::Evaluate(c); };
  const auto count = [&] { return std::ranges::count_if(cases, shows); };
  auto shown = count();
  if (shown < kLeast) return std::nullopt;
  const uint64_t wheres = rng.Below(4) == 0 ? 2 : rng.Below(4) != 0;
  for (uint64_t i = 0; i < wheres; ++i) {
    mistake.where.push_back(&kWheres[rng.Below(std::size(kWheres))]);
    const auto narrowed = count();
    if (narrowed < kLeast || narrowed == shown) return std::nullopt;
    shown = narrowed;
  }
  return mistake;
}

struct Told {
  std::string verdict, sentence;
  size_t rows = 0;
};

const Mistake* planted;  // by the subject "planted"
void Register() {
  const auto make = [](const std::string&) -> std::unique_ptr<Subject> {
    return std::make_unique<TestSubject>(
        [](const Case& c, const RunContext&) { return TestSubject::Good(planted->Answer(c)); },
        "planted");
  };
  const auto names = [] { return std::vector<std::string>{"planted"}; };
  SubjectRegistry::Get().Add(
      {"planted", "a mistake", "", names, make, [names](const std::string&) { return names(); }});
}

Told Judge(const Mistake& mistake, Op op, int64_t cases, const std::vector<Case>& held_to) {
  planted = &mistake;
  CheckOptions options;
  options.subjects = {"planted"};
  options.ops = {op};
  options.cases = cases;
  const std::string out = std::filesystem::temp_directory_path() /
                          fmt::format("qualm-planted-{}", static_cast<long>(getpid()));
  const KnownFindings known;
  Deferred deferred;
  FindingsFolder folder(out);
  folder.Connect(options, known);
  CheckResult result = Check(options);
  const std::vector<Finding> findings =
      folder.Triage(std::move(result.findings), "", known, deferred, [] { return false; });
  const std::vector<FaultOfRun> faults = FaultsOf(findings, folder.diagnoses(), known, result);
  std::filesystem::remove_all(out);
  if (faults.empty()) return {"not found", "", 0};
  const Diagnosed& told = faults.front().best;
  Told row{"", told.sentence, faults.size()};
  const bool some = told.where.text == "in some cases";
  if (told.causes.empty()) {
    row.verdict = told.of_subject ? "shown" : "unknown";
    return row;
  }
  int64_t wide = 0, narrow = 0, other = 0;
  for (const Case& c : held_to) {
    const Tensor right = exact::Evaluate(c), is = mistake.Answer(c);
    const Tensor said =
        told.where.holds(c) ? triage::Counterfactual(c, told.causes).value_or(right) : right;
    if (said == is) continue;
    ++(is == right ? wide : said == right ? narrow : other);
  }
  row.verdict = other > 0                ? "other"
                : wide > 0 && narrow > 0 ? "other"
                : wide > 0               ? (some ? "some" : "wide")
                : narrow > 0             ? "narrow"
                                         : "right";
  if (wide + narrow + other > 0)
    row.sentence += fmt::format(" ({} wide, {} narrow, {} other)", wide, narrow, other);
  return row;
}

int Plant(int argc, char** argv) {
  std::vector<std::string> words;
  bool unseen = false;
  std::optional<int64_t> cases = 300;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--unseen")
      unseen = true;
    else if (word == "--cases" && i + 1 < argc)
      cases = ParseInteger<int64_t>(argv[++i]);
    else
      words.emplace_back(word);
  }
  const bool three = words.size() == 3;
  words.resize(3);
  const std::optional<Op> named = ParseOp(words[0]);
  const auto seed_given = ParseInteger<uint64_t>(words[1]);
  const auto count_given = ParseInteger<int64_t>(words[2]);
  if (!three || !named || !seed_given || !count_given || !cases)
    throw InputError("usage: planted OP SEED COUNT [--unseen] [--cases N]");
  const Op op = *named;
  const uint64_t seed = *seed_given;
  const int64_t count = *count_given;
  RegisterAllSubjects();
  Register();
  constexpr int64_t kHeldTo = 400;
  const std::vector<Case> before = Drawn(op, seed + 1000, 100),
                          after = Drawn(op, seed + 2000, kHeldTo);
  Rng rng(seed);
  std::map<std::string, int> totals;
  for (int64_t done = 0; done < count;) {
    const std::optional<Mistake> mistake = Draw(rng, before);
    if (!mistake) continue;
    ++done;
    Mistake made = *mistake;
    triage::Cause copy = *made.causes.front();
    auto* listed = const_cast<triage::Cause*>(made.causes.front());
    if (unseen) {
      made.causes.front() = &copy;
      listed->applies = [](const Case&) { return false; };
    }
    const Told told = Judge(made, op, *cases, after);
    if (unseen) listed->applies = copy.applies;
    ++totals[told.verdict];
    if (told.rows > 1) ++totals["more than one row"];
    fmt::print("{:10} {} | {}{}\n", told.verdict, made.Text(op), told.sentence,
               told.rows > 1 ? fmt::format(" [{} rows]", told.rows) : "");
    std::fflush(stdout);
  }
  for (const auto& [verdict, times] : totals) fmt::print("{}: {}\n", verdict, times);
  return 0;
}

}  // namespace
}  // namespace qualm::tools

int main(int argc, char** argv) {
  try {
    return qualm::tools::Plant(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "planted: {}\n", error.what());
    return 2;
  }
}
