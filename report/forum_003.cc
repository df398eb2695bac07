// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "oracles/exact/exact.h"
#include "proofs/certify.h"
#include "proofs/repair.h"
#include "report/forum_util.h"
#include "report/pictures.h"
#include "report/words.h"

namespace qualm::report {
namespace {

constexpr const char* kAvx2 = "fbgemm@avx2";

// Two weights whose products meet in 16 bits, and the largest sum that they can make.
struct Pair {
  int64_t k = 0;
  int32_t w0 = 0, w1 = 0;
  int64_t worst = 0;
};

std::vector<Pair> UnsafePairs(const Case& layer, int64_t n, proofs::Codes x) {
  const std::vector<int32_t> w = proofs::WeightsOf(layer, n);
  std::vector<Pair> pairs;
  for (size_t k = 0; k < w.size(); k += 2) {
    const int32_t w0 = w[k], w1 = k + 1 < w.size() ? w[k + 1] : 0;
    // The sum is largest where each input is at the end that its weight asks for.
    const auto corner = [&](bool high) {
      const auto term = [&](int64_t v) { return (v > 0) == high ? v * x.hi : v * x.lo; };
      return term(w0) + term(w1);
    };
    const int64_t most = corner(true), least = corner(false);
    if (most > INT16_MAX || least < INT16_MIN)
      pairs.push_back({static_cast<int64_t>(k), w0, w1, most > -least ? most : least});
  }
  std::ranges::sort(pairs, std::ranges::greater(), [](const Pair& p) { return std::abs(p.worst); });
  return pairs;
}

Blocks WhichWeights(const Case& layer, const Case& all_codes, const proofs::Scheme& scheme,
                    proofs::Codes x) {
  const proofs::Proof proof = proofs::Certify(layer, scheme, x);
  Blocks blocks{Heading{4, "Which weights?", ""}};
  std::vector<std::string> channels;
  for (const proofs::UnsafeChannel& unsafe : proof.unsafe)
    channels.push_back(std::to_string(unsafe.n));
  const auto wrong = [&](const Case& c) {
    const Mismatch mismatch = Compare(exact::Evaluate(c), ConventionCalled(kAvx2).run(c).y);
    return fmt::format("{} of {} outputs are wrong, by up to {} codes", mismatch.wrong,
                       mismatch.outputs, mismatch.worst);
  };
  blocks.push_back(Paragraph{fmt::format(
      "For inputs from {} to {} the layer adds {} pairs of products in 16 bits; {} of them can "
      "leave 16 bits, all in output channel {} of {}. For the other channels that is proved "
      "impossible. On an image with codes like the thread's, {}; on one with codes from 0 to 255, "
      "and other weights of the same kind, {}.",
      x.lo, x.hi, Number(proof.sums), proof.unsafe_sums, List(channels), proof.channels,
      wrong(layer), wrong(all_codes))});
  for (const proofs::UnsafeChannel& unsafe : proof.unsafe) {
    constexpr size_t kMost = 4;
    const std::vector<Pair> pairs = UnsafePairs(layer, unsafe.n, x);
    Table table{fmt::format("Channel {}: the worst {} of its {} pairs that can leave 16 bits "
                            "(−32,768 to 32,767)",
                            unsafe.n, std::min(kMost, pairs.size()), pairs.size()),
                {"weights", "values", "largest sum"},
                {},
                Table::Form::kNumbers};
    for (size_t i = 0; i < std::min(kMost, pairs.size()); ++i) {
      table.rows.push_back({fmt::format("w{}, w{}", pairs[i].k, pairs[i].k + 1),
                            fmt::format("{}, {}", pairs[i].w0, pairs[i].w1),
                            Number(pairs[i].worst)});
    }
    blocks.push_back(std::move(table));
  }
  const Tensor exact = exact::Evaluate(all_codes),
               theirs = ConventionCalled(kAvx2).run(all_codes).y;
  if (Svg map = MismatchMap(exact, theirs); !map.empty())
    blocks.push_back(Picture{std::move(map),
                             "FBGEMM on AVX2, the image with all codes: a row is an output pixel.",
                             "003-places"});
  if (Svg histogram = ErrorHistogram(exact, theirs); !histogram.empty())
    blocks.push_back(Picture{std::move(histogram), "How far those outputs are off.", "003-errors"});
  return blocks;
}

// The layer as reduce_range makes it, steps of the input 255/127 times as wide, on the real inputs
// of `layer` times a factor.
Case Reduced(const Case& layer, double factor) {
  Case c = ProblemOf(layer);
  const double scale = static_cast<double>(layer.x_q.scale_at(0));
  const int32_t zero_point = layer.x_q.zero_point_at(0);
  const double wide = scale * 255 / 127;
  const auto zero_there = static_cast<int32_t>(std::lround(zero_point * 127.0 / 255));
  c.x_q.scale = {static_cast<float>(wide)};
  c.x_q.zero_point = {zero_there};
  for (uint8_t& code : c.x.as<uint8_t>()) {
    const double real = factor * scale * (code - zero_point);
    const auto there = static_cast<int64_t>(std::lround(real / wide)) + zero_there;
    code = static_cast<uint8_t>(std::clamp<int64_t>(there, 0, 255));
  }
  return c;
}

// The image of the thread's test was larger than the images of its calibration.
Blocks WhyAHandful(const Case& layer) {
  Table table{"The image with all codes as reduce_range quantizes it, FBGEMM on AVX2",
              {"inputs", "largest code", "wrong outputs", "by at most"},
              {}};
  Mismatch twice;
  for (const double factor : {1.0, 1.5, 2.0, 3.0}) {
    const Case c = Reduced(layer, factor);
    const Mismatch wrong = Compare(exact::Evaluate(c), ConventionCalled(kAvx2).run(c).y);
    if (factor == 2) twice = wrong;
    int32_t largest = 0;
    for (int64_t i = 0; i < c.x.size(); ++i) largest = std::max(largest, c.x.IntAt(i));
    table.rows.push_back(
        {factor == 1 ? "as calibrated" : fmt::format("{:g} times as large", factor),
         std::to_string(largest), fmt::format("{} of {}", wrong.wrong, wrong.outputs),
         wrong.wrong == 0 ? "–" : fmt::format("{} codes", wrong.worst)});
  }
  return {Heading{4, "Why does a handful still overflow with reduce_range?", ""},
          Paragraph{fmt::format(
              "reduce_range only chooses a scale: what calibration has seen gets codes up to 127, "
              "and with these no pair can leave 16 bits. An input at run time may be larger: "
              "quantize clamps to 255, not to 127 (thread 001). With inputs twice as large as in "
              "calibration, {} of {} outputs of this layer "
              "are wrong again, by up to {} codes.",
              twice.wrong, twice.outputs, twice.worst)},
          table};
}

Blocks WhatBesides(const Case& layer, const proofs::Scheme& scheme, proofs::Codes x) {
  Table table{
      "What can be done, cheapest exact remedy first; “proved” means that no input can "
      "overflow any more",
      {"remedy", "same results", "extra multiplications", "proved", "what it changes"},
      {}};
  const std::vector<proofs::Remedy> remedies = proofs::Repair(layer, scheme, x);
  for (const proofs::Remedy& remedy : remedies) {
    table.rows.push_back(
        {remedy.name, remedy.exact ? "yes" : "no", fmt::format("{:.1f} %", 100 * remedy.overhead),
         remedy.certified ? Cell("proved", Tone::kGood) : Cell("no", Tone::kBad), remedy.effect});
  }
  Blocks blocks{Heading{4, "What besides reduce_range?", ""}};
  const auto exact_one = std::ranges::find_if(remedies, [](const proofs::Remedy& remedy) {
    return remedy.exact && remedy.certified && remedy.rebuilt.has_value();
  });
  if (exact_one != remedies.end()) {
    const Case repaired = proofs::Apply(*exact_one->rebuilt, layer);
    const Mismatch after =
        Compare(exact::Evaluate(repaired), ConventionCalled(kAvx2).run(repaired).y);
    const bool same = exact::Evaluate(repaired) == exact::Evaluate(layer);
    blocks.push_back(Paragraph{
        fmt::format("Yes: “{}”. No two large weights meet in one 16-bit sum any more; the layer "
                    "computes {} as before, and FBGEMM on AVX2 then gets {} of {} outputs wrong "
                    "instead of {}. reduce_range makes the steps of the input twice as coarse, and "
                    "inputs beyond the calibrated range still overflow.",
                    exact_one->name, same ? "exactly the same outputs" : "other outputs",
                    after.wrong, after.outputs,
                    Compare(exact::Evaluate(layer), ConventionCalled(kAvx2).run(layer).y).wrong)});
  }
  blocks.push_back(std::move(table));
  blocks.push_back(Verbatim{"qualm repair corpus/forum/003-conv1.case.json", "copy the command"});
  return blocks;
}

}  // namespace

Blocks Thread003(const ForumCases& cases) {
  const Case layer = cases.Read("003-conv1"), all_codes = cases.Read("003-conv1-all-codes");
  const proofs::Codes x = proofs::WithPadding(layer, {0, 255});
  const proofs::Scheme scheme = proofs::SchemeOf(kAvx2, layer);
  Blocks blocks{Question(
      "One channel of my quantized convolution is far off on FBGEMM. reduce_range makes it better, "
      "but "
      "a handful of values still overflows. Which weights saturate, and are there any fixes beyond "
      "reduce_range?")};
  blocks.push_back(Paragraph{
      "Large weights of one channel that stand next to each other, because FBGEMM adds products "
      "two "
      "by two in 16 bits. reduce_range does not mend that: inputs larger than calibration has seen "
      "still overflow. Another order of the channel's weights does, and changes no result."});
  Append(blocks, WhichWeights(layer, all_codes, scheme, x));
  Append(blocks, WhyAHandful(all_codes));
  Append(blocks, WhatBesides(layer, scheme, x));
  return blocks;
}

Blocks RepairedOnSubjects(const std::vector<RecordedRepair>& repairs) {
  if (repairs.empty()) return {};
  Table table{fmt::format("This layer as it was and repaired by “{}”, on the subjects of this run "
                          "that get it wrong",
                          repairs.front().remedy),
              {"subject", "asked", "outputs", "wrong as it was", "wrong when repaired"},
              {}};
  for (const RecordedRepair& row : repairs) {
    table.rows.push_back(
        {row.subject, row.rows, Number(row.outputs), Number(row.wrong_before),
         Cell(Number(row.wrong_after), row.wrong_after == 0 ? Tone::kGood : Tone::kBad)});
  }
  return {table};
}

}  // namespace qualm::report
