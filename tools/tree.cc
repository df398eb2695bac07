// SPDX-License-Identifier: Apache-2.0
#include "tools/tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
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
#include "triage/reveal_linear.h"

namespace qualm::tools {
namespace {

using triage::RevealedSum;

// How the subject failed to answer.
struct NoAnswer {
  Verdict verdict;
};

// One sum that is asked for.
struct SumAsked {
  std::string form;  // name of the LinearForm; "" of products of two lists of floats
  std::string text;  // for people
  std::function<RevealedSum()> reveal;
};

float ValueOf(const Outcome& outcome) {
  if (!outcome.ok()) throw NoAnswer{*BadOutcome(outcome)};
  return outcome.y.FloatAt(0);
}

// The forms of linear that the subject takes, or those that are named; none, and why, where it
// takes none.
std::pair<std::vector<const triage::LinearForm*>, std::string> FormsOf(
    const Subject& subject, const std::vector<std::string>& named) {
  std::vector<const triage::LinearForm*> forms;
  if (named.empty()) {
    for (const triage::LinearForm& form : triage::LinearForms()) forms.push_back(&form);
  }
  for (const std::string& name : named) forms.push_back(&triage::FindLinearForm(name));
  std::string why;
  std::erase_if(forms, [&](const triage::LinearForm* form) {
    const std::string cannot = subject.CannotRun(triage::ProbeOf(*form));
    if (!cannot.empty() && !named.empty())
      throw InputError(
          fmt::format("--tree: {} does not take {}: {}", subject.name(), form->name, cannot));
    if (why.empty()) why = cannot;
    return !cannot.empty();
  });
  // Who takes all codes is asked nothing about some of them, unless by name.
  const std::vector<const triage::LinearForm*> taken = forms;
  std::erase_if(forms, [&](const triage::LinearForm* form) {
    return named.empty() && std::ranges::any_of(taken, [&](const triage::LinearForm* other) {
             return triage::Covers(*other, *form);
           });
  });
  return {forms, why};
}

std::vector<SumAsked> SumsOf(Subject& subject, const TreeOptions& tree) {
  triage::RevealOptions options{.products = tree.products == 0 ? 64 : tree.products,
                                .cases = tree.cases,
                                .seed = tree.seed,
                                .stopped = Stopped};
  auto* const dot = dynamic_cast<DotSubject*>(&subject);
  const std::string no_dot = dot == nullptr ? "it is no pipe:COMMAND" : dot->WhyNoDot();
  if (no_dot.empty() && tree.forms.empty()) {
    return {{"", "", [dot, options] {
               return triage::RevealSum(
                   [&](std::span<const float> a, std::span<const float> b) {
                     return ValueOf(dot->Dot(a, b));
                   },
                   options);
             }}};
  }
  // Our own kernels add blocks in float32 where no other contract is wanted.
  subject.set_contract(ParseContract("sum"));
  const auto [forms, no_form] = FormsOf(subject, tree.forms);
  if (forms.empty()) {
    throw InputError(fmt::format(
        "--tree: {} adds integers, which show no order: expected a program that answers dot ({}), "
        "or a linear of blocks ({}); docs/sums.md",
        subject.name(), no_dot, no_form));
  }
  std::vector<SumAsked> sums;
  for (const triage::LinearForm* form : forms) {
    if (tree.products == 0) options.products = 8 * form->size();
    triage::RequireBlocks(*form, options.products);
    options.takes = [&subject](const Case& c) { return subject.CannotRun(c).empty(); };
    sums.push_back({std::string(form->name),
                    fmt::format("{}, {} in blocks of {}", form->name, form->text, form->size()),
                    [form, options, &subject] {
                      return triage::RevealLinear(
                          *form,
                          [&](const Case& c) { return ValueOf(subject.Run(c, RunContext{})); },
                          options);
                    }});
  }
  return sums;
}

JsonValue FloatsJson(const std::vector<float>& values) {
  JsonList list;
  for (const float value : values) list.Add(FloatText(value));
  return list;
}

JsonValue TreeJson(const std::string& name, const SumAsked& asked, const RevealedSum& sum) {
  const auto text = [](const std::string& value) { return JsonValue::OrNull(value); };
  std::vector<std::vector<int64_t>> parts;
  std::vector<int64_t> minima;
  for (const conventions::SumPart& part : sum.parts) {
    if (part.minima()) minima.push_back(std::ssize(parts));
    parts.push_back(part.products);
  }
  std::optional<JsonValue> witness;
  if (sum.witness) {
    witness = JsonObject{{"a", FloatsJson(sum.witness->a)},
                         {"b", FloatsJson(sum.witness->b)},
                         {"steps", sum.witness->steps},
                         {"expected", FloatText(sum.witness->expected)},
                         {"actual", FloatText(sum.witness->actual)}};
  }
  return JsonObject{{"of", name},
                    {"form", text(asked.form)},
                    {"parts", parts},
                    {"minima", minima},
                    {"products", sum.products},
                    {"questions", sum.questions},
                    {"state", sum.tree         ? "tree"
                              : sum.is_exact   ? "exact"
                              : sum.is_known() ? "known"
                                               : "none"},
                    {"tree", text(sum.tree ? sum.text() : "")},
                    {"order", text(sum.order)},
                    {"steps", text(sum.steps)},
                    {"compared", sum.compared},
                    {"contract", text(sum.contract ? sum.contract->text() : "")},
                    {"reason", text(sum.why_no_tree)},
                    {"witness", witness}};
}

std::string WhyUnknown(const RevealedSum& sum) {
  if (!sum.tree && !sum.is_exact) return "no summation tree was found: " + sum.why_no_tree;
  return fmt::format("its order is {}, its steps are none of the known ones",
                     sum.order.empty() ? sum.text() : sum.order);
}

}  // namespace

int RunTree(const CommonOptions& options, const TreeOptions& tree) {
  Session session(options);
  RequireWritable(options, {{"--svg", tree.svg}, {"--output", tree.out}});
  const std::vector<std::string> names = SubjectNames({tree.subject}, {});
  if (names.size() != 1) {
    throw InputError(
        fmt::format("--tree: {} names {} subjects, expected one", tree.subject, names.size()));
  }
  const std::string& name = names.front();
  const std::unique_ptr<Subject> subject = SubjectRegistry::Get().Make(name);
  const std::vector<SumAsked> sums = SumsOf(*subject, tree);
  for (const auto& [option, file] : {std::pair("--svg", tree.svg), {"--output", tree.out}}) {
    if (sums.size() == 1 || file.empty()) continue;
    throw InputError(fmt::format("{}: {} takes several forms, expected one: --tree {} {}", option,
                                 name, name, sums.front().form));
  }
  session.Begin(fmt::format("seed {}; ", tree.seed), tree.seed);
  session.document.subjects.emplace_back(name, subject->contracts().text());

  std::vector<JsonValue> trees;
  bool any_failed = false;
  for (const SumAsked& asked : sums) {
    std::optional<Verdict> failed;
    try {
      const RevealedSum sum = asked.reveal();
      session.Print("{}: {}{}", name, asked.text.empty() ? "" : asked.text + ": ",
                    triage::TextOf(sum));
      if (Stopped())
        session.Print("{}",
                      "  stopped: fewer random sums were compared, and an order may have a "
                      "name that sums of other lengths would show\n");
      trees.push_back(TreeJson(name, asked, sum));
      session.totals.cases += sum.questions;
      if (!sum.is_known() && !Stopped()) failed = Verdict::Failed(WhyUnknown(sum));
      if (!tree.out.empty() && !failed) {
        session.deferred.Try("--output", [&] {
          if (!sum.contract) throw InputError("no contract can say this sum");
          WriteTextFile(tree.out, sum.contract->text() + "\n");
        });
      }
      if (sum.tree && !tree.svg.empty()) {
        const std::string title = fmt::format("{}: {} {}, {}", name, sum.products,
                                              sum.parts.empty() ? "products" : "parts",
                                              sum.order.empty() ? "no named order" : sum.order);
        session.deferred.Try("--svg", [&] {
          WriteTextFile(tree.svg, report::SumTreePicture(*sum.tree, title).File());
        });
      }
    } catch (const NoAnswer& none) {
      // It offered the question, so a refusal is a failure too.
      failed = none.verdict.failed() ? none.verdict : Verdict::Failed(none.verdict.reason);
    }
    session.totals.Add(failed ? Judgement::kFailed : Judgement::kPassed);
    if (!failed) continue;
    any_failed = true;
    session.document.findings.emplace_back(asked.form.empty() ? "dot" : "linear",
                                           "named_arithmetic", name, *failed);
    session.Print("FINDING: {}{}\n", asked.form.empty() ? "" : asked.form + ": ", failed->reason);
  }
  if (sums.front().form.empty()) {
    if (!trees.empty()) session.document.extra.emplace_back("tree", trees.front());
  } else {
    session.document.extra.emplace_back("trees", trees);
  }
  session.Write();
  return StatusOfStopped(any_failed ? kFindings : kClean);
}

}  // namespace qualm::tools
