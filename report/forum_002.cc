// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <map>

#include "core/status.h"
#include "oracles/exact/exact.h"
#include "report/forum_util.h"
#include "report/words.h"
#include "report/worked.h"
#include "triage/identify.h"
#include "triage/triage.h"

namespace qualm::report {
namespace {

constexpr const char* kAddress =
    "https://discuss.pytorch.org/t/understanding-quantized-linear-layer/154000";

std::string Codes(const Tensor& y) {
  std::vector<std::string> codes;
  for (int64_t i = 0; i < y.size(); ++i) codes.push_back(std::to_string(y.IntAt(i)));
  return List(codes);
}

// The layer on every pair of input codes.
Case EveryInput(Case c) {
  std::vector<uint8_t> x;
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      x.push_back(static_cast<uint8_t>(a));
      x.push_back(static_cast<uint8_t>(b));
    }
  }
  c.M = 256 * 256;
  c.x = Tensor::Of<uint8_t>({c.M, 2}, x);
  c.expected.reset();
  c.observed.reset();
  return c;
}

Blocks TheFormula(const Case& c, const Case& by_hand) {
  const Tensor exact = exact::Evaluate(c);
  Blocks blocks{
      Heading{4, "The right formula", ""},
      Verbatim{
          "sum  = Σ (x − x_zero_point) · (w − w_zero_point)\n"
          "code = round(sum · x_scale · w_scale / out_scale) + out_zero_point, clamped to 0..255",
          ""},
      Paragraph{
          fmt::format("It gives {} here, and the library printed {}. Each zero point belongs to "
                      "its own tensor. The numbers computed by hand, {}, are what comes out "
                      "when the weights' zero point is subtracted from x: that is, bit for "
                      "bit, {}.",
                      Codes(exact), Codes(c.observed->y), Codes(by_hand.observed->y),
                      triage::BitEqualConventions(by_hand, by_hand.observed->y))}};
  blocks.push_back(Heading{4, "Output 0, worked out", ""});
  blocks.push_back(OperandTable(c, 0));
  blocks.push_back(StepTable(c, 0, nullptr));
  return blocks;
}

// The wrong outputs of one arithmetic.
struct Misses {
  int64_t here = 0, worst_here = 0;      // with the thread's output scale
  int64_t around = 0, worst_around = 0;  // with output scales near it
  friend auto operator<=>(const Misses&, const Misses&) = default;
};

Blocks TheOneThatRemains(const Case& c) {
  constexpr int kScales = 16;
  const Case all = EveryInput(c);
  std::vector<Case> around;
  for (int i = 1; i <= kScales; ++i) {
    around.push_back(all);
    around.back().out_q.scale = {all.out_q.scale_at(0) * (1 + static_cast<float>(i) / kScales)};
  }
  const Tensor exact = exact::Evaluate(all);
  std::vector<Tensor> exact_around;
  for (const Case& other : around) exact_around.push_back(exact::Evaluate(other));
  // Arithmetics with the same wrong outputs share a row.
  std::map<Misses, std::vector<std::string>> rows;
  for (const Convention& convention : AllConventions()) {
    const bool by_hand =
        convention.of_no_library || convention.name.find("w_zp_from_x") != std::string::npos;
    const bool variant = convention.name.find('+') != std::string::npos;
    if (by_hand || variant || !convention.cannot_run(all).empty()) continue;
    const Mismatch here = Compare(exact, convention.run(all).y);
    Misses misses{here.wrong, here.worst, 0, 0};
    for (size_t i = 0; i < around.size() && here.worst <= 1; ++i) {
      const Mismatch near = Compare(exact_around[i], convention.run(around[i]).y);
      misses.around += near.wrong;
      misses.worst_around = std::max(misses.worst_around, near.worst);
    }
    rows[misses].push_back(convention.name);
  }
  const std::string outputs = Number(exact.size());
  Table table{
      fmt::format("This layer on all 65,536 inputs, and with {} output scales up to twice as "
                  "large: outputs that are not the exact ones, and by how many codes at most",
                  kScales),
      {"arithmetic", "of " + outputs, "by", fmt::format("of {}", Number(kScales * exact.size())),
       "by"},
      {}};
  for (const auto& [misses, names] : rows) {
    const bool saturates = misses.worst_here > 1;
    table.rows.push_back({Subjects(names), Number(misses.here), std::to_string(misses.worst_here),
                          saturates ? "not asked" : Number(misses.around),
                          saturates ? "–" : std::to_string(misses.worst_around)});
  }
  return {
      Heading{4, "The ±1 that remains", ""},
      Paragraph{"Each library makes x_scale · w_scale / out_scale one float32 number (or a "
                "fixed-point one) first. Where the exact value lies next to the middle between two "
                "codes, the other code comes out: an error of 1, on few inputs. An error of more "
                "than 1 has another reason: a pair of products left 16 bits (thread 000)."},
      table};
}

}  // namespace

Blocks Thread002(const ForumCases& cases) {
  const Case c = cases.Read("002-linear-2x2"), by_hand = cases.Read("002-linear-by-hand");
  QUALM_CHECK(c.observed.has_value() && by_hand.observed.has_value());
  Blocks blocks{
      Question(fmt::format(
          "I try to understand the quantized Linear layer by computing one of 2 × 2 weights by "
          "hand. "
          "I get {}, PyTorch prints {}. With the zero points taken from where they belong I come "
          "closest, but a few values still mismatch. Could there be rounding errors?",
          Codes(by_hand.observed->y), Codes(c.observed->y))),
      Paragraph{Link("The thread", kAddress) + "."}};
  Append(blocks, TheFormula(c, by_hand));
  Append(blocks, TheOneThatRemains(c));
  return blocks;
}

}  // namespace qualm::report
