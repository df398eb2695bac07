// SPDX-License-Identifier: Apache-2.0
#include "exporters/exporter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/io/case_json.h"
#include "core/io/json_text.h"
#include "exporters/evidence.h"
#include "oracles/exact/exact.h"
#include "triage/causes.h"
#include "triage/triage.h"

namespace qualm::exporters {
namespace {

// More numbers are no reproducer that anybody reads, and compilers take minutes for them.
constexpr int64_t kMostNumbers = 1 << 16;

struct Row {
  Exporter exporter;
  std::string_view file = {};  // "" for a folder
  std::string (*write)(const Evidence&) = nullptr;
  NamedTexts (*write_folder)(const Evidence&) = nullptr;
};

std::string WriteCase(const Evidence& evidence) { return CaseToJson(evidence.c); }

constexpr std::array kRows{
    Row{{"case", "the case file itself"}, "case.json", WriteCase},
    Row{{"cpp", "C++ that compiles alone: the exact answer in integers, and the answer given"},
        "repro.cc",
        WriteCpp},
    Row{{"gtest", "a GoogleTest of our own kernels, for find_package(qualm)"},
        "repro_test.cc",
        WriteGTest},
    Row{{"numpy", "a Python script with integers and fractions alone; needs no package"},
        "repro.py",
        WriteNumpy},
    Row{{"pytorch", "a PyTorch script that sets engine and instruction set, and runs the operator"},
        "repro.py",
        WritePytorch},
    Row{.exporter = {"onnx", "an ONNX model with inputs and the exact output", true},
        .write_folder = WriteOnnx},
    Row{{"onednn", "C++ against oneDNN 2.x or 3.x"}, "repro.cc", WriteOnednn},
    Row{{"xnnpack", "C against XNNPACK of 2022"}, "repro.c", WriteXnnpack},
    Row{{"xnnpack2024", "C against XNNPACK of 2024"}, "repro.c", WriteXnnpack2024},
    Row{{"issue", "the text of an issue, in Markdown"}, "issue.md", WriteIssue},
};

const Row& RowOfKind(std::string_view kind) {
  for (const Row& row : kRows) {
    if (row.exporter.kind == kind) return row;
  }
  std::string kinds;
  for (const Row& row : kRows)
    kinds += (kinds.empty() ? "" : ", ") + std::string(row.exporter.kind);
  throw InputError(fmt::format("there is no exporter '{}', expected one of {}",
                               OneLine(std::string(kind)), kinds));
}

bool AllFinite(const Tensor& reals) {
  for (int64_t i = 0; i < reals.size(); ++i)
    if (!std::isfinite(reals.FloatAt(i))) return false;
  return true;
}

bool IsText(std::string_view kind) { return kind == "case" || kind == "issue"; }
// What states the definition itself computes with the numbers, whatever their type. Our kernels
// take them as bytes, but for weights in blocks.
bool TakesNumbers(std::string_view kind) {
  return kind == "numpy" || kind == "cpp" || kind == "gtest";
}
Case ShownBy(std::string_view kind, const Case& c) {
  Case shown = c;
  if (kind == "numpy" || kind == "cpp") shown.w = InBytes(c.w);
  return shown;
}

// Kinds that do not say otherwise refuse what came later than they.
void RequireTaken(std::string_view kind, const Case& c) {
  if (IsText(kind)) return;
  Require(c.op != Op::kCast || kind == "numpy", "casts between float types");
  const bool adds_reals = (TakesNumbers(kind) || kind == "onnx") && c.op == Op::kLinear;
  Require(BitsOf(c.w.dtype()) >= 8 || TakesNumbers(kind) || (adds_reals && HasFloatX(c)),
          "weights of fewer than 8 bits");
  Require(!HasElementBlocks(c) || TakesNumbers(kind), kElementsInBlocks);
  Require(!HasSmallCodes(c) || kind == "numpy", kOfSmallCodes);
  Require(!HasWideCodes(c) || kind == "numpy" || kind == "cpp", kOfWideCodes);
  Require(!HasFloatX(c) || adds_reals, kOfFloatX);
  Require(!HasFloatX(c) || AllFinite(c.x), "x that is infinite or NaN");
  Require(c.w_block == 0 || adds_reals || TakesNumbers(kind), kInBlocks);
}

}  // namespace

std::span<const Exporter> AllExporters() {
  static const auto exporters = [] {
    std::array<Exporter, kRows.size()> list;
    std::ranges::transform(kRows, list.begin(), &Row::exporter);
    return list;
  }();
  return exporters;
}

const Observed& Evidence::answer() const {
  Require(c.observed.has_value(), "an answer: name a subject, or a case with `observed`");
  return *c.observed;
}

std::string Headline(const Evidence& evidence) {
  const Case& c = evidence.c;
  std::string text = Describe(c);
  if (!c.observed) return text;
  const std::optional<Divergence> first = FirstDivergence(evidence.expected, c.observed->y);
  if (!first) return text + ": every output is exact";
  return text + fmt::format(": output {} is {}, the answer is {}", first->index, first->expected,
                            first->actual);
}

std::string Head(const Evidence& evidence, std::string_view mark, std::string_view how_to_run) {
  const Finding& finding = evidence.finding;
  std::string text = Headline(evidence) + "\n";
  if (evidence.c.observed) text += "answered by " + evidence.c.observed->by + "\n";
  if (!finding.explanation.empty())
    text += fmt::format("{} [{}]\n", finding.explanation, Name(finding.kind));
  if (!evidence.environment.qualm.empty())
    text += "written by qualm " + evidence.environment.qualm + "\n";
  return Comment(mark, text + std::string(how_to_run));
}

bool IsPairSaturation(const Evidence& evidence) {
  const Case& c = evidence.c;
  if (!HasSums(c) || !c.observed || evidence.expected == c.observed->y) return false;
  // Such a kernel reads the code of real 0 in the padding.
  const CodeRange codes = RangeOf(c.x.dtype());
  const int32_t zero = c.x_q.zero_point_at(0);
  if (c.window.has_padding() && (zero < codes.min || zero > codes.max)) return false;
  return triage::Counterfactual(c, triage::CauseNamed("pair saturation")) == c.observed->y;
}

NamedTexts Export(std::string_view kind, const Case& c, const Finding& finding,
                  const Environment& environment) {
  const Row& row = RowOfKind(kind);
  if (c.x.size() + c.w.size() > kMostNumbers) {
    throw InputError(fmt::format(
        "{} lacks room: the case has {} numbers, expected at most {} (see qualm minimize)", kind,
        c.x.size() + c.w.size(), kMostNumbers));
  }
  const Tensor expected = exact::Evaluate(c);
  const auto written = [&](const Row& by) {
    RequireTaken(by.exporter.kind, c);
    const Case shown = ShownBy(by.exporter.kind, c);
    const Evidence evidence{shown, finding, environment, expected};
    if (by.exporter.folder) return by.write_folder(evidence);
    return NamedTexts{{std::string(by.file), by.write(evidence)}};
  };
  try {
    return written(row);
  } catch (const CannotExpress& error) {
    // The case file and the text of an issue are no program to run, and can always be had.
    std::vector<std::string_view> can;
    for (const Row& other : kRows) {
      if (IsText(other.exporter.kind)) continue;
      try {
        written(other);
        can.push_back(other.exporter.kind);
      } catch (const CannotExpress&) {
        continue;  // one more that cannot
      }
    }
    throw InputError(fmt::format(
        "{} {}{}", kind, error.what(),
        can.empty() ? "" : fmt::format("; {} can write this case", fmt::join(can, ", "))));
  }
}

}  // namespace qualm::exporters
