// SPDX-License-Identifier: Apache-2.0
#include "tools/tree.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "core/dot_subject.h"
#include "core/float_text.h"
#include "core/io/json_writer.h"
#include "core/io/text_file.h"
#include "core/status.h"
#include "properties/property.h"
#include "report/sum_tree.h"
#include "tools/session.h"
#include "tools/stop.h"
#include "triage/reveal.h"

namespace qualm::tools {
namespace {

using triage::RevealedSum;

// How the subject failed to answer.
struct NoAnswer {
  Verdict verdict;
};

DotSubject& DotOf(Subject& subject) {
  auto* const dot = dynamic_cast<DotSubject*>(&subject);
  if (dot == nullptr) {
    throw InputError(fmt::format(
        "--tree: {} answers cases, whose products are integers: their sums show no order. Expected "
        "pipe:COMMAND that answers dot (docs/sums.md)",
        subject.name()));
  }
  if (const std::string why = dot->WhyNoDot(); !why.empty()) throw InputError("--tree: " + why);
  return *dot;
}

JsonValue FloatsJson(const std::vector<float>& values) {
  JsonList list;
  for (const float value : values) list.Add(FloatText(value));
  return list;
}

JsonValue TreeJson(const std::string& name, const RevealedSum& sum) {
  const auto text = [](const std::string& value) { return JsonValue::OrNull(value); };
  std::optional<JsonValue> witness;
  if (sum.witness) {
    witness = JsonObject{{"a", FloatsJson(sum.witness->a)},
                         {"b", FloatsJson(sum.witness->b)},
                         {"steps", sum.witness->steps},
                         {"expected", FloatText(sum.witness->expected)},
                         {"actual", FloatText(sum.witness->actual)}};
  }
  return JsonObject{{"of", name},
                    {"products", sum.products},
                    {"questions", sum.questions},
                    {"state", sum.tree       ? "tree"
                              : sum.is_exact ? "exact"
                                             : "none"},
                    {"tree", text(sum.tree ? sum.text() : "")},
                    {"order", text(sum.order)},
                    {"steps", text(sum.steps)},
                    {"compared", sum.compared},
                    {"reason", text(sum.why_no_tree)},
                    {"witness", witness}};
}

std::string WhyUnknown(const RevealedSum& sum) {
  if (!sum.tree && !sum.is_exact) return "no summation tree gives its answers: " + sum.why_no_tree;
  return fmt::format("its order is {}, its steps are none of the known ones",
                     sum.order.empty() ? sum.text() : sum.order);
}

}  // namespace

int RunTree(const CommonOptions& options, const TreeOptions& tree) {
  Session session(options);
  RequireWritable(options, {{"--svg", tree.svg}});
  const std::vector<std::string> names = SubjectNames({tree.subject}, {});
  if (names.size() != 1) {
    throw InputError(
        fmt::format("--tree: {} names {} subjects, expected one", tree.subject, names.size()));
  }
  const std::string& name = names.front();
  const std::unique_ptr<Subject> subject = SubjectRegistry::Get().Make(name);
  DotSubject& dot = DotOf(*subject);
  session.Begin(fmt::format("seed {}; ", tree.seed), tree.seed);
  session.document.subjects.emplace_back(name, subject->contracts().text());

  std::optional<Verdict> failed;
  RevealedSum sum;
  try {
    sum = triage::RevealSum(
        [&](std::span<const float> a, std::span<const float> b) {
          const Outcome outcome = dot.Dot(a, b);
          if (!outcome.ok()) throw NoAnswer{*BadOutcome(outcome)};
          return outcome.y.FloatAt(0);
        },
        {.products = tree.products, .cases = tree.cases, .seed = tree.seed, .stopped = Stopped});
  } catch (const NoAnswer& none) {
    // It offered the question, so a refusal is a failure too.
    failed = none.verdict.failed() ? none.verdict : Verdict::Failed(none.verdict.reason);
  }
  if (!failed) {
    session.Print("{}: {}", name, triage::TextOf(sum));
    session.document.extra.emplace_back("tree", TreeJson(name, sum));
    if (!sum.is_known() && !Stopped()) failed = Verdict::Failed(WhyUnknown(sum));
    if (sum.tree && !tree.svg.empty()) {
      const std::string title = fmt::format("{}: {} products, {}", name, sum.products,
                                            sum.order.empty() ? "no named order" : sum.order);
      session.deferred.Try("--svg", [&] {
        WriteTextFile(tree.svg, report::SumTreePicture(*sum.tree, title).File());
      });
    }
  }
  session.totals.cases = sum.questions;
  session.totals.Add(failed ? Judgement::kFailed : Judgement::kPassed);
  if (failed) {
    session.document.findings.emplace_back("dot", "named_arithmetic", name, *failed);
    session.Print("FINDING: {}\n", failed->reason);
  }
  session.Write();
  return StatusOfStopped(failed ? kFindings : kClean);
}

}  // namespace qualm::tools
