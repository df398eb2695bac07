// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/subject.h"
#include "oracles/exact/exact.h"
#include "properties/property.h"
#include "properties/sweep.h"
#include "report/forum_util.h"
#include "report/pictures.h"
#include "report/words.h"
#include "report/worked.h"
#include "triage/triage.h"

namespace qualm::report {
namespace {

constexpr const char* kAddress =
    "https://discuss.pytorch.org/t/is-there-anything-wrong-with-the-quantization-math/155245";

constexpr const char* kBends = "model:fbgemm@avx2";

struct Sweeps {
  Case base;
  std::vector<int32_t> codes;
  sweep::Result bends, qnnpack, vnni;
};

Sweeps Run(const Case& base) {
  Sweeps sweeps{base, sweep::Codes(base), {}, {}, {}};
  const auto run = [&](const char* name) {
    const auto subject = SubjectRegistry::Get().Make(name);
    return sweep::Run(base, *subject, sweeps.codes);
  };
  sweeps.bends = run(kBends);
  sweeps.qnnpack = run("model:qnnpack");
  sweeps.vnni = run("model:fbgemm@vnni");
  return sweeps;
}

double RealOf(const Case& c, int32_t code) {
  return static_cast<double>(c.x_q.scale_at(0)) * (code - c.x_q.zero_point_at(0));
}
// Output codes for one unit of the integer sum.
double Multiplier(const Case& c) {
  return static_cast<double>(c.x_q.scale_at(0)) * static_cast<double>(c.w_q.scale_at(0)) /
         static_cast<double>(c.out_q.scale_at(0));
}

// The loss of a pair at the first code after its kink, and the further loss at each next code.
struct Loss {
  int64_t first = 0, each = 0;
};
Loss LossOf(const headroom::Kink& kink) {
  const int64_t sum = kink.weight_sum, at = int64_t{kink.last_exact_code} + 1;
  return {sum > 0 ? sum * at - INT16_MAX : -(sum * at) + INT16_MIN, std::abs(sum)};
}

Blocks Where(const Sweeps& sweeps) {
  Table table{
      "Pairs of weights whose products leave 16 bits, and the last input for which they do not",
      {"output", "weights", "values", "their sum", "exact up to code", "real input",
       "in the output"},
      {}};
  std::vector<std::string> back, bent;
  for (const sweep::Curve& curve : sweeps.bends.curves) {
    if (!curve.monotone) back.push_back(std::to_string(curve.n));
    if (curve.monotone && !curve.linear) bent.push_back(std::to_string(curve.n));
    for (const sweep::KinkReport& report : curve.kinks) {
      const headroom::Kink& kink = report.kink;
      const int64_t at = curve.n * sweeps.base.K + kink.k;
      table.rows.push_back(
          {std::to_string(curve.n), fmt::format("w{}, w{}", kink.k, kink.k + 1),
           fmt::format("{}, {}", sweeps.base.w.IntAt(at),
                       kink.k + 1 < sweeps.base.K ? sweeps.base.w.IntAt(at + 1) : 0),
           std::to_string(kink.weight_sum), std::to_string(kink.last_exact_code),
           Real(RealOf(sweeps.base, kink.last_exact_code)), std::string(report.state())});
    }
  }
  return {
      Heading{4, "Where?", ""},
      Paragraph{fmt::format(
          "FBGEMM without VNNI multiplies with vpmaddubsw, which adds two neighbouring products in "
          "16 bits and cuts the sum off at 32,767 or −32,768. With all inputs equal to x that sum "
          "is x × (w_k + w_k+1); beyond x* = ⌊32,767 / (w_k + w_k+1)⌋, or ⌊32,768 / |…|⌋ below, "
          "the curve bends. Here outputs {} bend, and outputs {} even turn back.",
          List(bent), List(back))},
      table};
}

Blocks WhyFew(const Sweeps& sweeps) {
  const int64_t pairs = sweeps.base.N * ((sweeps.base.K + 1) / 2);
  int64_t leave = 0, visible = 0;
  for (const sweep::Curve& curve : sweeps.bends.curves) {
    leave += static_cast<int64_t>(curve.kinks.size());
    visible += std::ranges::count_if(curve.kinks, &sweep::KinkReport::visible);
  }
  return {
      Heading{4, "Why so few kinks?", ""},
      Paragraph{fmt::format(
          "A pair leaves 16 bits for some code up to 255 only if |w_k + w_k+1| is 129 or more: of "
          "the layer's {} pairs {} do. {} of these can be seen; at the others the output is "
          "already cut off at 0 or 255, or the loss is rounded away.",
          pairs, leave, visible)}};
}

Blocks WhyNoJump(const Sweeps& sweeps) {
  const double m = Multiplier(sweeps.base);
  Loss largest;
  for (const sweep::Curve& curve : sweeps.bends.curves) {
    for (const sweep::KinkReport& report : curve.kinks) {
      const Loss loss = LossOf(report.kink);
      largest.first = std::max(largest.first, loss.first);
      largest.each = std::max(largest.each, loss.each);
    }
  }
  return {
      Heading{4, "Why is there no jump?", ""},
      Paragraph{fmt::format(
          "Saturation keeps the largest value, it does not wrap around. At the first code after "
          "a kink a pair has lost at most {} output codes. Each further input code loses as much "
          "as the pair would have added, at most {} output codes. So the curve goes on with "
          "another "
          "slope; where more is lost than the other weights add, it turns back.",
          Real(static_cast<double>(largest.first) * m),
          Real(static_cast<double>(largest.each) * m))}};
}

Blocks WhyTwo(const Sweeps& sweeps) {
  const auto subject = SubjectRegistry::Get().Make(kBends);
  subject->set_contract({});
  const triage::MinimizeResult small =
      triage::Minimize(sweeps.base, *subject, *FindProperty("matches_exact"));
  Blocks blocks{Heading{4, "Why already at K = 2?", ""},
                Paragraph{Text("Because one pair is enough. Minimizing the layer, ") +
                          Code(Describe(sweeps.base)) + ", ends at " +
                          Code(Describe(small.minimized)) + ":"}};
  if (!small.minimized.observed) return blocks;
  const Answer answer{"fbgemm@avx2", small.minimized.observed->y, &ConventionCalled("fbgemm@avx2")};
  blocks.push_back(OperandTable(small.minimized, 0));
  blocks.push_back(StepTable(small.minimized, 0, &answer));
  return blocks;
}

Blocks WhyQnnpackIsStraight(const Sweeps& sweeps) {
  Table table{
      "The same sweep by three arithmetics", {"arithmetic", "bent outputs", "not exact"}, {}};
  for (const sweep::Result* result : {&sweeps.bends, &sweeps.vnni, &sweeps.qnnpack}) {
    int64_t bent = 0, wrong = 0, all = 0;
    for (const sweep::Curve& curve : result->curves) {
      bent += curve.linear && curve.monotone ? 0 : 1;
      all += static_cast<int64_t>(curve.y.size());
      for (size_t i = 0; i < curve.y.size(); ++i) wrong += curve.y[i] == curve.exact[i] ? 0 : 1;
    }
    table.rows.push_back({Code(result->subject),
                          fmt::format("{} of {}", bent, result->curves.size()),
                          fmt::format("{} of {} codes", Number(wrong), Number(all))});
  }
  return {
      Heading{4, "Why is QNNPACK straight?", ""},
      Paragraph{"QNNPACK widens both operands to 16 bits before it multiplies (pmaddwd) and adds "
                "the products in 32 bits. So does FBGEMM where the processor has VNNI (vpdpbusd). "
                "reduce_range only keeps x × (w_k + w_k+1) small."},
      table};
}

// The first curve that turns back, and the first that only bends.
Blocks Pictures(const Sweeps& sweeps) {
  Blocks blocks;
  const auto show = [&](const auto& which, const char* what) {
    const auto curve = std::ranges::find_if(sweeps.bends.curves, which);
    if (curve == sweeps.bends.curves.end()) return;
    const auto n = static_cast<size_t>(curve - sweeps.bends.curves.begin());
    std::vector<SweepKink> kinks;
    for (const sweep::KinkReport& report : curve->kinks)
      kinks.push_back({report.kink, report.kink.last_exact_code, report.visible});
    blocks.push_back(Picture{
        SweepPicture(fmt::format("output {}", n), sweeps.codes, curve->exact,
                     {{"FBGEMM on AVX2", curve->y}, {"QNNPACK", sweeps.qnnpack.curves[n].y}},
                     kinks),
        fmt::format("Output {} {}", n, what), fmt::format("000-output-{}", n)});
  };
  show([](const sweep::Curve& curve) { return !curve.monotone; },
       "turns back. Dashed red: where it bends; grey: where a pair leaves 16 bits and nobody sees "
       "it.");
  show([](const sweep::Curve& curve) { return curve.monotone && !curve.linear; }, "bends.");
  return blocks;
}

}  // namespace

Blocks Thread000(const ForumCases& cases) {
  const Sweeps sweeps = Run(cases.Read("000-linear-sweep"));
  Blocks blocks{
      Question(
          "I wanted to replace the float multiplication that rescales by a bit shift, and my "
          "model of the arithmetic did not agree with PyTorch. So I fed a Linear layer without "
          "a bias inputs whose elements are all equal, from −4 to 4 in steps of 0.01, on "
          "FBGEMM: some outputs are not even monotonic. Is there anything wrong with the "
          "quantization math?"),
      Paragraph{Link("The thread", kAddress) + "."},
      Paragraph{"Not with the math: with the width of the sums. Each output should be a straight "
                "line of the input, rounded; with FBGEMM on AVX2 some bend, and some turn back."}};
  Append(blocks, Where(sweeps));
  Append(blocks, Pictures(sweeps));
  Append(blocks, WhyFew(sweeps));
  Append(blocks, WhyNoJump(sweeps));
  Append(blocks, WhyTwo(sweeps));
  Append(blocks, WhyQnnpackIsStraight(sweeps));
  return blocks;
}

}  // namespace qualm::report
