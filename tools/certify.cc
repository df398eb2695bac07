// SPDX-License-Identifier: Apache-2.0
// qualm certify: can the narrow sums of these weights overflow? A proof or a witness for each
// output channel.
#include "proofs/certify.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <map>
#include <utility>

#include "core/io/case_json.h"
#include "core/io/short_path.h"
#include "core/io/text_file.h"
#include "core/status.h"
#include "oracles/exact/exact.h"
#include "proofs/layer_certificate.h"
#include "report/certify_page.h"
#include "tools/layer_options.h"
#include "tools/session.h"

namespace qualm::tools {
namespace {

using proofs::Proof;
using proofs::Scheme;
using proofs::UnsafeChannel;
using proofs::Witness;

struct Options : LayerOptions {
  std::string witnesses, certificate, verify, page;
};

// How a kernel's answers to the witnesses compare with the exact ones.
struct Asked {
  int64_t asked = 0, wrong = 0;
  std::string skipped;  // why not all were asked
};

// The products that a witness is about, "x1=255*127 + x2=255*127".
std::string Products(const Layer& layer, const Scheme& scheme, const UnsafeChannel& channel,
                     const Witness& witness) {
  const std::vector<int32_t> w = proofs::WeightsOf(layer.layer, channel.n);
  std::string text, terms;
  for (int64_t place = channel.place; place < channel.place + scheme.length; ++place) {
    const auto at = static_cast<size_t>(place);
    const bool inside = at < (scheme.order.empty() ? w.size() : scheme.order.size());
    const int32_t k = !inside                ? proofs::kNoTerm
                      : scheme.order.empty() ? static_cast<int32_t>(place)
                                             : scheme.order[at];
    if (k == proofs::kNoTerm) continue;
    const auto term = static_cast<size_t>(k);
    terms += fmt::format("{}{}", terms.empty() ? "" : ",", k);
    text += fmt::format("{}{}*{}", text.empty() ? "" : " + ", witness.x[term] + scheme.x_plus,
                        w[term] + scheme.w_plus);
  }
  const bool run = scheme.kind == Scheme::Kind::kRuns;
  return fmt::format("{}k=({}): {}", run ? "the run up to " : "", terms, text);
}

std::string WitnessText(const Layer& layer, const Scheme& scheme, const UnsafeChannel& channel,
                        const Witness& witness) {
  const bool whole = scheme.kind == Scheme::Kind::kFloat32;
  return fmt::format(
      "    channel {}: {}{}, the kernel gets {} for {}, wrong by {}\n", channel.n,
      whole ? "a sum that float32 does not hold" : Products(layer, scheme, channel, witness),
      whole || scheme.kind == Scheme::Kind::kRuns ? "" : fmt::format(" = {}", channel.corner),
      witness.got, witness.exact, witness.exact - witness.got);
}

JsonValue WitnessJson(const Witness& witness) {
  return JsonObject{{"x", witness.x}, {"exact", witness.exact}, {"got", witness.got}};
}

class Certify {
 public:
  explicit Certify(const Options& options) : options_(options), session_(options) {}

  int Run() {
    const std::vector<Layer> layers = tools::ReadLayers(options_);
    session_.Open(SubjectNames(options_.subjects, {}), "");
    std::vector<std::string> read;
    for (const Layer& layer : layers) read.push_back(layer.file);
    RequireWritable(options_, {{"--certificate", options_.certificate}, {"--page", options_.page}},
                    read);
    RequireFolder("--witnesses", options_.witnesses);
    // A certificate that does not hold is bad input: nothing is said before that is known.
    if (options_.verify.empty()) session_.Begin();
    for (const Layer& layer : layers) Prove(layer);
    if (!options_.verify.empty()) {
      proofs::RequireSame(options_.verify, certificates_);
      session_.Begin();
    }
    for (const Judged& judged : judged_) Report(judged);
    if (!options_.certificate.empty()) {
      session_.deferred.Try("--certificate", [&] {
        WriteTextFile(options_.certificate, proofs::CertificateText(certificates_));
      });
    }
    if (!options_.page.empty()) {
      session_.deferred.Try("--page", [&] {
        std::vector<report::ProvenLayer> proven;
        for (const auto& [layer, scheme, proof] : judged_) {
          proven.push_back({ShortPath(layer.title()),
                            fmt::format("{}, {}", Describe(layer.layer), RangeText(layer.x)),
                            SchemeText(scheme), proof});
        }
        WriteTextFile(options_.page, report::CertifyPage(proven));
      });
    }
    session_.document.extra.emplace_back("certify", json_);
    return session_.End("no layer has a channel");
  }

 private:
  struct Judged {
    const Layer& layer;
    Scheme scheme;
    Proof proof;
  };

  void Prove(const Layer& layer) {
    ++session_.totals.cases;
    std::vector<Scheme> schemes = layer.schemes;
    if (schemes.empty()) {  // its accumulators are bounded all the same
      Scheme exact;
      exact.kind = Scheme::Kind::kExact;
      exact.name = "int32";
      schemes.push_back(std::move(exact));
    }
    for (Scheme& scheme : schemes) {
      Proof proof = proofs::Certify(layer.layer, scheme, layer.x, Bar(layer));
      certificates_.push_back(
          proofs::CertificateOf(layer.name, layer.layer, scheme, layer.x, proof));
      judged_.push_back({layer, std::move(scheme), std::move(proof)});
    }
  }

  void Report(const Judged& judged) {
    const auto& [layer, scheme, proof] = judged;
    if (&layer != last_) {
      session_.Print("{}: {}, {}\n", ShortPath(layer.title()), Describe(layer.layer),
                     RangeText(layer.x));
      if (layer.schemes.empty()) session_.Print("  no convention adds this layer in narrow sums\n");
      last_ = &layer;
    }
    const auto unsafe = static_cast<int64_t>(proof.unsafe.size());
    session_.totals.verdicts[Judgement::kFailed] += unsafe;
    session_.totals.verdicts[Judgement::kPassed] += proof.channels - unsafe;
    std::string text = fmt::format("  {}: ", SchemeText(scheme));
    if (proof.safe()) {
      text += fmt::format("safe, proven for {} channels and {} sums", proof.channels, proof.sums);
    } else {
      text += fmt::format("UNSAFE in {} of {} channels, {} of {} sums", proof.unsafe.size(),
                          proof.channels, proof.unsafe_sums, proof.sums);
    }
    text += fmt::format("; accumulators in {}..{}\n", proof.least, proof.most);
    std::map<std::string, Asked> asked;
    JsonList channels;
    constexpr size_t kShown = 4;
    size_t shown = 0;
    for (const UnsafeChannel& channel : proof.unsafe) {
      const std::optional<Witness> witness =
          proofs::WitnessOf(layer.layer, scheme, layer.x, channel);
      // Long: a code for each term.
      if (!options_.json.empty()) {
        channels.Add(
            JsonObject{{"channel", channel.n},
                       {"sums", channel.sums},
                       {"corner", channel.corner},
                       {"witness", witness ? WitnessJson(*witness) : JsonValue(std::nullopt)}});
      }
      if (++shown <= kShown && witness) text += WitnessText(layer, scheme, channel, *witness);
      const bool first = channel.n == proof.unsafe[0].n;
      const bool wanted = first || !options_.witnesses.empty() || !session_.subjects.empty();
      if (witness && wanted) Ask(layer, scheme, *witness, first, asked);
    }
    if (shown > kShown) text += fmt::format("    and {} more\n", shown - kShown);
    JsonList answers;
    for (const auto& [subject, of] : asked) {
      text += fmt::format("    {}: wrong on {} of {} witnesses{}\n", subject, of.wrong, of.asked,
                          of.skipped.empty() ? "" : "; skipped others: " + of.skipped);
      answers.Add(JsonObject{{"subject", subject},
                             {"asked", of.asked},
                             {"wrong", of.wrong},
                             {"skipped", JsonValue::OrNull(of.skipped)}});
    }
    if (!proof.fits_int32()) {
      text += "    the accumulators do not fit int32\n";
      Verdict verdict = Verdict::Failed(
          fmt::format("accumulators in {}..{} do not fit int32", proof.least, proof.most));
      verdict.kind = FindingKind::kInt32Overflow;
      session_.totals.Add(Judgement::kFailed);
      session_.document.findings.emplace_back(Name(layer.layer.op), "accumulators_fit",
                                              layer.title(), verdict, layer.file);
    }
    session_.Print("{}", text);
    json_.Add(JsonObject{{"layer", layer.title()},
                         {"scheme", scheme.name},
                         {"conventions", scheme.conventions},
                         {"x", RangeJson(layer.x)},
                         {"channels", proof.channels},
                         {"sums", proof.sums},
                         {"unsafe_sums", proof.unsafe_sums},
                         {"accumulators", std::array{proof.least, proof.most}},
                         {"unsafe", channels},
                         {"asked", answers}});
  }

  // Keeps the witness, and asks the subjects for it. The first one of a layer is the finding.
  void Ask(const Layer& layer, const Scheme& scheme, const Witness& witness, bool first,
           std::map<std::string, Asked>& asked) {
    const Case c = proofs::WitnessCase(layer.layer, witness);
    std::string file;
    if (!options_.witnesses.empty()) {
      file = (std::filesystem::path(options_.witnesses) /
              fmt::format("{}.{}.{}.case.json", layer.stem(), scheme.name, witness.n))
                 .string();
      session_.deferred.Try("--witnesses", [&] {
        MakeFolder("--witnesses", options_.witnesses);
        WriteCaseFile(c, file);
      });
    }
    if (first) {
      Verdict verdict = Verdict::Failed(c.note);
      verdict.kind = FindingKind::kPairSaturation;
      session_.document.findings.emplace_back(c, "narrow_sums_fit",
                                              layer.title() + ": " + scheme.name, verdict, file);
    }
    // No subject adds in float32 alone.
    if (scheme.kind == Scheme::Kind::kFloat32) return;
    for (const auto& subject : session_.subjects) {
      Asked& of = asked[std::string(subject->name())];
      const std::string reason = subject->CannotRun(c);
      const Outcome outcome = reason.empty() ? subject->Run(c, RunContext{}) : Outcome{};
      if (!reason.empty() || !outcome.ok()) {
        of.skipped = reason.empty() ? outcome.detail : reason;
        continue;
      }
      ++of.asked;
      of.wrong += outcome.y == exact::Evaluate(c) ? 0 : 1;
    }
  }

  // A line on stderr every second.
  proofs::Progress Bar(const Layer& layer) const {
    return [title = layer.title(), stopwatch = Stopwatch(), next = 1.0](double share) mutable {
      if (stopwatch.seconds() < next) return;
      next = stopwatch.seconds() + 1;
      constexpr size_t kWidth = 20;
      const auto done = static_cast<size_t>(share * kWidth);
      Tell("{}: [{}{}] {:.0f} %, {:.0f} s left", title, std::string(done, '#'),
           std::string(kWidth - done, '.'), 100 * share, stopwatch.seconds() * (1 - share) / share);
    };
  }

  const Options& options_;
  Session session_;
  std::vector<Judged> judged_;
  const Layer* last_ = nullptr;  // that was named to people
  std::vector<JsonValue> certificates_;
  JsonList json_;
};

}  // namespace

void AddCertify(CLI::App& app, Run* run) {
  auto options = std::make_shared<Options>();
  Verb verb(app, run, "certify",
            "can 16-bit sums of these weights overflow? A proof or a witness per channel",
            "Example: qualm certify corpus/forum/003-conv1.case.json --subject model:fbgemm@avx2");
  AddLayerOptions(verb, *options);
  AddSubjectOption(verb, *options, false);
  verb.Text("--witnesses", options->witnesses, "folder for a case file of each witness");
  verb.Text("--certificate", options->certificate, "write what was proven to FILE");
  verb.Text("--page", options->page, "FILE.html, the unsafe channels of each layer as a page");
  verb.Text("--verify", options->verify,
            "prove again, and refuse a certificate that says something else");
  verb.Does([options] { return Certify(*options).Run(); });
}

}  // namespace qualm::tools
