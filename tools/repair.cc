// SPDX-License-Identifier: Apache-2.0
// qualm repair: what can be done about a layer whose 16-bit sums overflow, exact remedies first.
#include "tools/repair.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "core/io/case_json.h"
#include "core/io/npy.h"
#include "core/io/short_path.h"
#include "core/io/text_file.h"
#include "core/status.h"
#include "oracles/exact/exact.h"
#include "proofs/directed.h"
#include "proofs/layer_certificate.h"
#include "tools/layer_options.h"
#include "tools/session.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;
using proofs::Rebuilt;
using proofs::Remedy;
using proofs::Scheme;

struct Options : LayerOptions {
  std::string remedy, out;
  int64_t rows = 256;
  uint64_t seed = 1;
};

JsonValue RemedyJson(const Remedy& remedy) {
  return JsonObject{{"name", remedy.name},
                    {"exact", remedy.exact},
                    {"certified", remedy.certified},
                    {"overhead", remedy.overhead},
                    {"changed_weights", remedy.changed},
                    {"x", RangeJson(remedy.x)},
                    {"effect", remedy.effect}};
}

Tensor OrderOf(const Rebuilt& rebuilt) {
  return Tensor::Of<int32_t>({static_cast<int64_t>(rebuilt.source.size())}, rebuilt.source);
}

// The raw sums of a case whose outputs they are, from a subject that makes s32 or shows what it
// accumulates.
Outcome RawSumsOn(Subject& subject, Case c) {
  RunContext context;
  if (!subject.CannotRun(c).empty()) {
    c.out_dtype = DType::kU8;
    c.out_min = 0;
    c.out_max = 255;
    context.want_acc = true;
  }
  Outcome outcome;
  outcome.status = RunStatus::kSkipped;
  outcome.detail = subject.CannotRun(c);
  if (!outcome.detail.empty()) return outcome;
  outcome = subject.Run(c, context);
  if (!outcome.ok() || !context.want_acc) return outcome;
  if (!outcome.acc) {
    outcome.status = RunStatus::kSkipped;
    outcome.detail = "does not show its sums";
    return outcome;
  }
  outcome.y = *outcome.acc;
  return outcome;
}

Outcome AnswerOf(Subject& subject, const Case& c) {
  const std::string reason = subject.CannotRun(c);
  if (reason.empty()) return subject.Run(c, RunContext{});
  Outcome outcome;
  outcome.status = RunStatus::kSkipped;
  outcome.detail = reason;
  return outcome;
}

template <class Ask>
Comparison CompareBy(const std::string& what, const Case& before, const Case& after, Ask ask) {
  Comparison comparison{what, exact::Evaluate(before).size(), {}, {}, "", after};
  const auto wrong = [&](const Case& c) -> std::optional<int64_t> {
    const Outcome outcome = ask(c);
    comparison.skipped = outcome.detail;
    if (!outcome.ok()) return std::nullopt;
    const Tensor right = exact::Evaluate(c);
    int64_t count = 0;
    for (int64_t i = 0; i < right.size(); ++i) {
      count += outcome.y.BitsAt(i) == right.BitsAt(i) ? 0 : 1;
    }
    return count;
  };
  comparison.wrong_before = wrong(before);
  if (comparison.wrong_before) comparison.wrong_after = wrong(after);
  return comparison;
}

class Repair {
 public:
  explicit Repair(const Options& options) : options_(options), session_(options) {}

  int Run() {
    const std::vector<Layer> layers = tools::ReadLayers(options_);
    session_.Open(SubjectNames(options_.subjects, {}), "");
    RequireWritable(options_, {}, options_.paths);
    RequireFolder("--out", options_.out);
    session_.Begin("", options_.seed);
    for (const Layer& layer : layers) {
      ++session_.totals.cases;
      session_.Print("{}: {}, {}\n", ShortPath(layer.title()), Describe(layer.layer),
                     RangeText(layer.x));
      if (layer.schemes.empty()) {
        session_.totals.Add(Judgement::kPassed);
        session_.Print("  no convention adds this layer in narrow sums\n");
      }
      for (const Scheme& scheme : layer.schemes) {
        // Runs overflow in almost any layer, and no order helps them: only by name.
        const bool asked = !options_.schemes.empty() || !options_.pairing.empty();
        if (asked || scheme.kind != Scheme::Kind::kRuns) Mend(layer, scheme);
      }
    }
    session_.document.extra.emplace_back("repair", json_);
    return session_.End("");
  }

 private:
  void Mend(const Layer& layer, const Scheme& scheme) {
    if (proofs::IsSafe(layer.layer, scheme, layer.x)) {
      session_.totals.Add(Judgement::kPassed);
      session_.Print("  {}: safe, nothing to repair\n", SchemeText(scheme));
      return;
    }
    const std::vector<Remedy> remedies = proofs::Repair(layer.layer, scheme, layer.x);
    std::string text = fmt::format("  {}: unsafe\n", SchemeText(scheme));
    for (const Remedy& remedy : remedies) text += RemedyText(remedy);
    session_.Print("{}", text);
    const Remedy* const chosen = Chosen(remedies, options_.remedy);
    JsonList subjects;
    if (chosen == nullptr) {
      Verdict verdict = Verdict::Failed(options_.remedy.empty()
                                            ? "no exact remedy"
                                            : "no certified remedy called " + options_.remedy);
      verdict.kind = FindingKind::kPairSaturation;
      session_.totals.Add(Judgement::kFailed);
      session_.document.findings.emplace_back(Name(layer.layer.op), "repairable",
                                              layer.title() + ": " + scheme.name, verdict,
                                              layer.file);
      session_.Print("    {}\n", verdict.reason);
    } else {
      session_.totals.Add(Judgement::kPassed);
      const Case repaired = proofs::Apply(*chosen->rebuilt, layer.layer);
      Write(layer, scheme, *chosen, repaired);
      for (const auto& subject : session_.subjects) {
        Prove(layer, scheme, *chosen, *subject, subjects);
      }
    }
    json_.Add(RepairJson(layer.title(), scheme, layer.x, remedies, chosen, subjects));
  }

  void Write(const Layer& layer, const Scheme& scheme, const Remedy& remedy, const Case& repaired) {
    if (options_.out.empty()) return;
    const std::string stem = (fs::path(options_.out) / (layer.stem() + "." + scheme.name)).string();
    session_.deferred.Try("--out", [&] {
      MakeFolder("--out", options_.out);
      WriteTextFile(stem + ".weights.npy", NpyOf(repaired.w));
      WriteTextFile(stem + ".order.npy", NpyOf(OrderOf(*remedy.rebuilt)));
      WriteCaseFile(repaired, stem + ".case.json");
      Scheme same = proofs::SchemeFor(scheme, repaired);
      const proofs::Proof proof = proofs::Certify(repaired, same, remedy.x);
      WriteTextFile(stem + ".certificate.json",
                    proofs::CertificateText(std::vector{
                        proofs::CertificateOf(layer.name, repaired, same, remedy.x, proof)}));
    });
    session_.Print("    {}: written to {}.*\n", remedy.name, stem);
  }

  void Prove(const Layer& layer, const Scheme& scheme, const Remedy& remedy, Subject& subject,
             JsonList& list) {
    for (const Comparison& comparison :
         Compare(layer.layer, remedy, layer.x, options_.rows, options_.seed, subject)) {
      session_.Print("    {}\n", comparison.Text(subject));
      list.Add(comparison.Json(subject));
      const bool failed = remedy.exact && comparison.wrong_after.value_or(0) > 0;
      session_.totals.Add(!comparison.wrong_after ? Judgement::kSkipped
                          : failed                ? Judgement::kFailed
                                                  : Judgement::kPassed);
      if (!failed) continue;
      const Verdict verdict =
          Verdict::Failed(fmt::format("{} by {}: {} of {} outputs are not exact", scheme.name,
                                      remedy.name, *comparison.wrong_after, comparison.outputs));
      session_.document.findings.emplace_back(comparison.after, "repaired_is_exact", subject.name(),
                                              verdict, layer.file);
    }
  }

  const Options& options_;
  Session session_;
  JsonList json_;
};

}  // namespace

std::string RemedyText(const Remedy& remedy) {
  const std::string cost = remedy.exact
                               ? fmt::format("exact, {:+.3g} % multiplies", 100 * remedy.overhead)
                               : "changes results";
  return fmt::format("    {}: {}, {}; {}\n", remedy.name, cost,
                     remedy.certified ? "certified" : "NOT enough", remedy.effect);
}

std::string Comparison::Text(const Subject& subject) const {
  const std::string who = fmt::format("{}, {}: ", subject.name(), what);
  if (!wrong_after) return who + "skipped, " + skipped;
  return who + fmt::format("the original is wrong in {} of {} outputs, repaired in {}",
                           *wrong_before, outputs, *wrong_after);
}

JsonValue Comparison::Json(const Subject& subject) const {
  return JsonObject{{"subject", subject.name()},  {"what", what},
                    {"outputs", outputs},         {"wrong_before", wrong_before},
                    {"wrong_after", wrong_after}, {"skipped", JsonValue::OrNull(skipped)}};
}

const Remedy* Chosen(const std::vector<Remedy>& remedies, const std::string& name) {
  const auto chosen = std::ranges::find_if(remedies, [&](const Remedy& remedy) {
    return remedy.rebuilt && remedy.certified &&
           (name.empty() ? remedy.exact : remedy.name == name);
  });
  return chosen == remedies.end() ? nullptr : &*chosen;
}

JsonValue RepairJson(const std::string& layer, const Scheme& scheme, proofs::Codes x,
                     const std::vector<Remedy>& remedies, const Remedy* taken,
                     const JsonValue& subjects) {
  JsonList list;
  for (const Remedy& remedy : remedies) list.Add(RemedyJson(remedy));
  return JsonObject{{"layer", layer},
                    {"scheme", scheme.name},
                    {"x", RangeJson(x)},
                    {"remedies", list},
                    {"taken", taken == nullptr ? JsonValue(std::nullopt) : taken->name},
                    {"subjects", subjects}};
}

std::vector<Comparison> Compare(const Case& layer, const Remedy& remedy, proofs::Codes x,
                                int64_t rows, uint64_t seed, Subject& subject) {
  std::vector<Comparison> comparisons;
  const Case problem = ProblemOf(layer);
  if (!Tensor(layer.out_dtype, layer.output_shape()).empty()) {
    const Case after = proofs::Apply(*remedy.rebuilt, problem);
    if (remedy.exact) QUALM_CHECK(exact::Evaluate(after) == exact::Evaluate(problem));
    comparisons.push_back(CompareBy("its own rows", problem, after,
                                    [&](const Case& c) { return AnswerOf(subject, c); }));
  }
  const Case before = proofs::Directed(layer, x, rows, seed);
  // The sums without zero points are the original's; the raw ones, which the kernel makes, need not
  // be, since a channel that is read twice has two weights.
  Case with_zero_points = before;
  with_zero_points.x_q = layer.x_q;
  with_zero_points.w_q = layer.w_q;
  with_zero_points.per_channel = layer.per_channel;
  const Case rebuilt = proofs::Apply(*remedy.rebuilt, with_zero_points);
  if (remedy.exact) {
    QUALM_CHECK(exact::CorrectedSums(rebuilt) == exact::CorrectedSums(with_zero_points));
  }
  Case after = proofs::RawSumsOf(rebuilt, rows);
  after.x = rebuilt.x;
  comparisons.push_back(CompareBy(fmt::format("raw sums of {} directed rows", rows), before, after,
                                  [&](const Case& c) { return RawSumsOn(subject, c); }));
  return comparisons;
}

void AddRepair(CLI::App& app, Run* run) {
  auto options = std::make_shared<Options>();
  Verb verb(app, run, "repair", "permute, split or edit weights so that no 16-bit sum can overflow",
            "Example: qualm repair corpus/forum/003-conv1.case.json --scheme fbgemm@avx2 "
            "--subject model:fbgemm@avx2 --out repaired");
  AddLayerOptions(verb, *options);
  AddSubjectOption(verb, *options, false);
  verb.Text("--remedy", options->remedy,
            "which remedy is written and tried (default: the cheapest exact one)");
  verb.Text("--out", options->out,
            "folder for the weights, the order of channels, the case and the certificate");
  verb.Integer("--rows", options->rows, 1, 1 << 16, "drawn rows for each subject");
  verb.Seed(options->seed);
  verb.Does([options] { return Repair(*options).Run(); });
}

}  // namespace qualm::tools
