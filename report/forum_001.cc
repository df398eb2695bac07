// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "core/status.h"
#include "oracles/exact/exact.h"
#include "report/forum_util.h"
#include "report/words.h"

namespace qualm::report {
namespace {

Tensor Clamped(Case c, int32_t most) {
  c.out_max = most;
  return exact::Evaluate(c);
}

Case Doubled(Case c) {
  for (float& x : c.x.as<float>()) x *= 2;
  return c;
}

// The scale and zero point that an observer chooses for these values.
struct Choice {
  double scale = 0;
  int64_t zero_point = 0;
};
Choice ChoiceFor(const Case& c, Observer::Kind kind, bool reduce_range) {
  Case choose;
  choose.op = Op::kChooseQParams;
  choose.M = c.M;
  choose.N = c.N;
  choose.x = Tensor::Of<float>({1, c.M, c.N}, c.x.as<float>());
  choose.out_dtype = DType::kF32;
  choose.observer.kind = kind;
  choose.observer.reduce_range = reduce_range;
  const Tensor chosen = exact::Evaluate(choose);
  return {static_cast<double>(chosen.as<float>()[0]), static_cast<int64_t>(chosen.as<float>()[1])};
}

Blocks WhichClamp(const Case& c) {
  const Tensor& printed = c.observed->y;
  const Tensor whole = Clamped(c, 255), half = Clamped(c, 127);
  Table table{"The thread's values: code = round(x / scale) + zero point, then the clamp",
              {"x", "x / scale + zero point", "printed"},
              {},
              Table::Form::kNumbers};
  const double scale = static_cast<double>(c.out_q.scale_at(0));
  const int32_t zero_point = c.out_q.zero_point_at(0);
  for (int64_t i = 0; i < c.x.size(); ++i) {
    const double x = static_cast<double>(c.x.as<float>()[static_cast<size_t>(i)]);
    table.rows.push_back(
        {Real(x), fmt::format("{:.3f}", x / scale + zero_point), std::to_string(printed.IntAt(i))});
  }
  const Case twice = Doubled(c);
  const Mismatch a = Compare(whole, printed), b = Compare(half, printed);
  const Mismatch far = Compare(Clamped(twice, 255), Clamped(twice, 127));
  const Tensor aten = ConventionCalled("aten@avx2").run(twice).y;
  const Mismatch real = Compare(Clamped(twice, 255), aten);
  int32_t largest = 0;
  for (int64_t i = 0; i < aten.size(); ++i) largest = std::max(largest, aten.IntAt(i));
  return {
      Heading{4, "Which clamp?", ""},
      Paragraph{fmt::format(
          "0..255, the whole range of quint8, whatever reduce_range says. The clamp to 0..255 "
          "gives {} of the {} printed codes, the clamp to 0..127 {}: values inside the "
          "calibrated range cannot tell the two apart. Values beyond it can. With all x doubled, "
          "{} codes are above 127 (the largest is {}), PyTorch's quantize differs from the clamp "
          "to 0..255 in {}, and a clamp to 127 made by hand is wrong in {}.",
          a.outputs - a.wrong, a.outputs, b.outputs - b.wrong, far.wrong, largest, real.wrong,
          far.wrong)},
      table};
}

Blocks WhyHalf(const Case& c) {
  Table table{"What observers choose for the 16 values",
              {"observer", "reduce_range", "scale", "zero point", "largest code of these values"},
              {}};
  const double most = static_cast<double>(*std::ranges::max_element(c.x.as<float>()));
  for (const auto kind : {Observer::Kind::kHistogram, Observer::Kind::kMinMax}) {
    for (const bool reduce : {true, false}) {
      const Choice choice = ChoiceFor(c, kind, reduce);
      table.rows.push_back(
          {std::string(Name(kind)), reduce ? "yes" : "no", Real(choice.scale),
           std::to_string(choice.zero_point),
           fmt::format("{:.1f}", most / choice.scale + static_cast<double>(choice.zero_point))});
    }
  }
  return {
      Heading{4, "Why 0..127?", ""},
      Paragraph{fmt::format(
          "reduce_range changes only what the observer chooses: it takes the calibrated range to "
          "0..127. The layer here has scale {} and zero point {}. The reason is thread 000: FBGEMM "
          "adds two products in 16 bits. With codes up to 127 the worst pair is 2 × 127 × 128 = "
          "{}, which fits; with codes up to 255 it is 2 × 255 × 128 = {}, which does not. An "
          "input outside the calibrated range still gets a code above 127, and can still "
          "saturate: thread 003.",
          Real(static_cast<double>(c.out_q.scale_at(0))), c.out_q.zero_point_at(0),
          Number(2 * 127 * 128), Number(2 * 255 * 128))},
      table};
}

}  // namespace

Blocks Thread001(const ForumCases& cases) {
  const Case c = cases.Read("001-quantize");
  Blocks blocks{
      Question("QuantStub and my own quantize give different codes. Which clamp does PyTorch use, "
               "and why do "
               "the codes lie in 0..127 although the type is quint8?")};
  QUALM_CHECK(c.observed.has_value());
  const Mismatch aten = Compare(exact::Evaluate(c), ConventionCalled("aten@avx2").run(c).y);
  blocks.push_back(
      Paragraph{"The clamp is the type's, 0..255. Your codes end at 127 for another reason: "
                "reduce_range made "
                "the scale twice as wide, so that the largest value that calibration saw gets 127. "
                "By hand:"});
  blocks.push_back(Verbatim{
      fmt::format("code = clamp(round(x / {}) + {}, 0, 255)",
                  Real(static_cast<double>(c.out_q.scale_at(0))), c.out_q.zero_point_at(0)),
      ""});
  blocks.push_back(Paragraph{fmt::format(
      "PyTorch multiplies by 1 / scale in float32 instead of dividing, so a value half way between "
      "two codes may get the other one: of these {} values {} do.",
      aten.outputs, aten.wrong == 0 ? "none" : std::to_string(aten.wrong))});
  Append(blocks, WhichClamp(c));
  Append(blocks, WhyHalf(c));
  return blocks;
}

}  // namespace qualm::report
