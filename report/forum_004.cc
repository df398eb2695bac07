// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "oracles/exact/exact.h"
#include "report/forum_util.h"
#include "report/words.h"
#include "report/worked.h"

namespace qualm::report {
namespace {

constexpr const char* kAddress =
    "https://discuss.pytorch.org/t/"
    "implement-inference-of-quantized-network-with-primitive-operations/"
    "141369";

// The addition of every pair of codes.
Case EveryPair(Case c) {
  std::vector<uint8_t> a, b;
  for (int i = 0; i < 256; ++i) {
    for (int j = 0; j < 256; ++j) {
      a.push_back(static_cast<uint8_t>(i));
      b.push_back(static_cast<uint8_t>(j));
    }
  }
  c.N = 256 * 256;
  c.x = Tensor::Of<uint8_t>({1, c.N}, a);
  c.w = Tensor::Of<uint8_t>({1, c.N}, b);
  c.expected.reset();
  c.observed.reset();
  return c;
}

Blocks TheFormula(const Case& c) {
  const Tensor exact = exact::Evaluate(c);
  const Tensor& printed = c.observed->y;
  Table table{"The 18 pairs of the thread",
              {"a", "b", "real sum", "exact code", "printed", "a + b, clamped"},
              {},
              Table::Form::kNumbers};
  int64_t added_right = 0;
  for (int64_t i = 0; i < exact.size(); ++i) {
    const int32_t a = c.x.IntAt(i), b = c.w.IntAt(i), added = std::min(a + b, 255);
    added_right += added == printed.IntAt(i) ? 1 : 0;
    const double sum = static_cast<double>(c.x_q.scale_at(0)) * (a - c.x_q.zero_point_at(0)) +
                       static_cast<double>(c.w_q.scale_at(0)) * (b - c.w_q.zero_point_at(0));
    table.rows.push_back({std::to_string(a), std::to_string(b), Real(sum),
                          std::to_string(exact.IntAt(i)), std::to_string(printed.IntAt(i)),
                          std::to_string(added)});
  }
  const Mismatch mismatch = Compare(exact, printed);
  return {
      Heading{4, "The exact formula", ""},
      Verbatim{
          "code = round((a_scale·(a − a_zero_point) + b_scale·(b − b_zero_point)) / out_scale)\n"
          "       + out_zero_point, clamped to 0..255",
          ""},
      Paragraph{fmt::format(
          "A code counts steps: real value = scale × (code − zero point). Codes of different "
          "scales "
          "cannot be added; the real values can. Here a_scale = {}, b_scale = "
          "{}, out_scale = {}, with zero points {}, {} and {}. The formula gives {} of the {} "
          "printed codes; adding the codes gives {}.",
          Real(static_cast<double>(c.x_q.scale_at(0))),
          Real(static_cast<double>(c.w_q.scale_at(0))),
          Real(static_cast<double>(c.out_q.scale_at(0))), c.x_q.zero_point_at(0),
          c.w_q.zero_point_at(0), c.out_q.zero_point_at(0), mismatch.outputs - mismatch.wrong,
          mismatch.outputs, added_right)},
      table};
}

// The answer to pieces of 16 codes, which fill no vector.
Tensor InPieces(const Case& all, const Convention& aten) {
  std::vector<uint8_t> y;
  for (int64_t i = 0; i < all.N; i += 16) {
    Case piece = all;
    piece.N = 16;
    for (Tensor* const operand : {&piece.x, &piece.w}) {
      const auto codes = operand->as<uint8_t>().subspan(static_cast<size_t>(i), 16);
      *operand = Tensor::Of<uint8_t>({1, 16}, std::vector<uint8_t>(codes.begin(), codes.end()));
    }
    const Tensor part = aten.run(piece).y;
    const auto codes = part.as<uint8_t>();
    y.insert(y.end(), codes.begin(), codes.end());
  }
  return Tensor::Of<uint8_t>({1, all.N}, y);
}

// Of one version of PyTorch. This many codes fill whole vectors of 64.
struct BothWays {
  BothWays(const Case& all, const Convention& version)
      : c(all),
        aten(version),
        exact(exact::Evaluate(all)),
        body(aten.run(all).y),
        tail(InPieces(all, aten)),
        differ(Compare(body, tail)) {}
  const Case& c;
  const Convention& aten;
  Tensor exact, body, tail;
  Mismatch differ;
};

struct Versions {
  explicit Versions(const Case& all)
      : old(all, ConventionCalled("aten@avx2")),
        newer(all, ConventionCalled("torch2.13-aten@avx2")) {}
  BothWays old, newer;
};

// What each arithmetic gives of all pairs that is not exact.
std::vector<std::pair<std::string, Mismatch>> Departures(const Versions& ways) {
  const auto of = [&](const Tensor& y) { return Compare(ways.old.exact, y); };
  return {{"PyTorch 1.13 (ATen), vector body", of(ways.old.body)},
          {"PyTorch 1.13 (ATen), scalar tail", of(ways.old.tail)},
          {"PyTorch 2.13 (FBGEMM's build), vector body", of(ways.newer.body)},
          {"PyTorch 2.13 (FBGEMM's build), scalar tail", of(ways.newer.tail)},
          {"QNNPACK", of(ConventionCalled("qnnpack").run(ways.old.c).y)}};
}

Blocks BodyAndTail(const Case& c) {
  const Case all = EveryPair(c);
  Case ties = all;  // every other sum lies half way between two codes
  ties.w_q.scale = ties.x_q.scale;
  ties.out_q.scale = {2 * ties.x_q.scale_at(0)};
  const Versions of_thread(all), of_ties(ties);
  Table table{
      "All 65,536 pairs of codes; with the thread's scales, and with b_scale = a_scale, out_scale "
      "= 2 · a_scale, which put every other sum half way between two codes",
      {"arithmetic", "not exact, thread's scales", "not exact, half way", "largest error, codes"},
      {}};
  const auto thread = Departures(of_thread), half_way = Departures(of_ties);
  for (size_t i = 0; i < thread.size(); ++i) {
    const Mismatch &here = thread[i].second, &there = half_way[i].second;
    table.rows.push_back({thread[i].first, Number(here.wrong), Number(there.wrong),
                          std::to_string(std::max(here.worst, there.worst))});
  }
  Blocks blocks{
      Heading{4, "Where vector body and scalar tail differ", ""},
      Paragraph{fmt::format(
          "ATen adds blocks of 64 codes with vector instructions, which take scale × code and the "
          "scaled zero point in one fused step that rounds once. What is left over goes through "
          "scalar code, which subtracts the zero point first and then rounds the product. So the "
          "place of a pair in its tensor can decide which of two codes it gets. With the thread's "
          "scales the two differ on {} of the 65,536 pairs of codes (PyTorch 1.13 as Debian builds "
          "it), with scales that put every other sum half way between two codes on {}. In the "
          "wheels of 2.13 the scalar code adds the zero point before it rounds: the two differ on "
          "{} and {}.",
          Number(of_thread.old.differ.wrong), Number(of_ties.old.differ.wrong),
          Number(of_thread.newer.differ.wrong), Number(of_ties.newer.differ.wrong))},
      table};
  const BothWays& shown = of_thread.old.differ.wrong > 0 ? of_thread.old : of_ties.old;
  const int64_t i = shown.differ.first;
  if (i < 0) return blocks;
  blocks.push_back(Paragraph{fmt::format(
      "The first pair on which they differ in 1.13, a = {} and b = {}: {} in the body, {} in the "
      "tail, {} exactly.",
      all.x.IntAt(i), all.w.IntAt(i), shown.body.IntAt(i), shown.tail.IntAt(i),
      shown.exact.IntAt(i))});
  blocks.push_back(OperandTable(shown.c, i));
  for (const bool body : {true, false}) {
    const Answer answer{body ? "vector body" : "scalar tail", body ? shown.body : shown.tail,
                        body ? &shown.aten : &ConventionCalled("aten@default")};
    if (answer.y.IntAt(i) != shown.exact.IntAt(i)) blocks.push_back(StepTable(shown.c, i, &answer));
  }
  return blocks;
}

}  // namespace

Blocks Thread004(const ForumCases& cases) {
  const Case c = cases.Read("004-add");
  QUALM_CHECK(c.observed.has_value());
  Blocks blocks{
      Question("I want to implement a quantized network in C, and start with the addition of "
               "two tensors. I expected out.int_repr() to be x1.int_repr() + x2.int_repr(), "
               "perhaps clamped. It is not. What is the formula?"),
      Paragraph{Link("The thread", kAddress) + "."}};
  Append(blocks, TheFormula(c));
  Append(blocks, BodyAndTail(c));
  return blocks;
}

}  // namespace qualm::report
