// SPDX-License-Identifier: Apache-2.0
#include "exporters/exporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

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

bool AllFinite(const Tensor& reals) {
  for (int64_t i = 0; i < reals.size(); ++i)
    if (!std::isfinite(reals.FloatAt(i))) return false;
  return true;
}

NamedTexts Export(std::string_view kind, const Case& c, const Finding& finding,
                  const Environment& environment) {
  const Row& row = RowOfKind(kind);
  try {
    Require(c.x.size() + c.w.size() <= kMostNumbers,
            fmt::format("room: the case has {} numbers, expected at most {} (see qualm minimize)",
                        c.x.size() + c.w.size(), kMostNumbers));
    const bool as_text = kind == "case" || kind == "issue";
    Require(c.op != Op::kCast || kind == "numpy" || as_text, "casts between float types");
    // What states the definition itself computes with the numbers, whatever their type. Our kernels
    // take them as bytes.
    const bool by_numbers = kind == "numpy" || kind == "cpp" || kind == "gtest";
    const bool adds_reals = (kind == "numpy" || kind == "onnx") && c.op == Op::kLinear;
    Require(BitsOf(c.w.dtype()) >= 8 || by_numbers || as_text || (adds_reals && HasFloatX(c)),
            "weights of fewer than 8 bits");
    Require(!HasWideCodes(c) || kind == "numpy" || kind == "cpp" || as_text, kOfWideCodes);
    Require(!HasFloatX(c) || adds_reals || as_text, kOfFloatX);
    Require(!HasFloatX(c) || as_text || AllFinite(c.x), "x that is infinite or NaN");
    Require(c.w_block == 0 || adds_reals || as_text, kInBlocks);
    Case shown = c;
    if (by_numbers) shown.w = InBytes(c.w);
    const Evidence evidence{shown, finding, environment, exact::Evaluate(c)};
    if (row.exporter.folder) return row.write_folder(evidence);
    return {{std::string(row.file), row.write(evidence)}};
  } catch (const CannotExpress& error) {
    throw InputError(fmt::format("{} {}", kind, error.what()));
  }
}

}  // namespace qualm::exporters
