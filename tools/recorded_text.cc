// SPDX-License-Identifier: Apache-2.0
#include "tools/recorded_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "core/io/arrays.h"
#include "core/io/json_text.h"
#include "core/io/npy.h"
#include "core/io/short_path.h"
#include "core/status.h"
#include "models/told.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCase = ".case.json";

std::string WithoutEnding(const std::string& file) {
  return file.ends_with(kCase) ? file.substr(0, file.size() - kCase.size()) : file;
}

std::string CodesText(double codes) {
  return codes >= 100 ? fmt::format("{:.0f}", codes) : fmt::format("{:.2g}", codes);
}

// "0.29 (at most 0.5)", of a part in output codes.
std::string PartText(const triage::ErrorPart& part) {
  if (part.worst == 0) return "0";
  return fmt::format("{} (at most {})", CodesText(part.rms), CodesText(part.worst));
}

std::string WhoseText(const triage::RecordedAnswer& answer) {
  if (answer.outputs == 0) return "no outputs";
  if (answer.exact()) return "exact";
  if (!answer.arithmetic.empty()) return FewNames(answer.arithmetic);
  if (answer.within_digits) return "exact within the printed digits";
  if (answer.is_sums) return *answer.is_sums ? "float32 sums" : "NO FLOAT32 SUMS";
  return answer.undefined ? "no convention defines this case" : "NO KNOWN ARITHMETIC";
}

}  // namespace

std::string AnsweredLayer::name() const {
  return WithoutEnding(fs::path(file).filename().string());
}

std::optional<Tensor> ReferenceOf(const std::string& case_file, const Case& c,
                                  const std::string& option) {
  std::string path = option;
  if (path.empty()) {
    path = WithoutEnding(case_file) + ".reference.npy";
    std::error_code error;
    if (!fs::exists(path, error)) return std::nullopt;
  }
  Tensor reference = ParseNpy(ReadBinaryFile(path, kMaxWeightFile), path);
  try {
    triage::RequireReference(reference, Tensor(c.out_dtype, c.output_shape()).size());
  } catch (const InputError& error) {
    throw InputError(OneLine(path) + ": " + error.what());
  }
  return reference;
}

AnsweredLayer LayerOf(const std::string& file, const std::string& who, const Case& c,
                      const Tensor& y, const Tensor* reference,
                      const triage::PrintedAnswer* digits) {
  triage::RecordedAnswer answer = triage::JudgeRecorded(c, y, digits);
  std::string far = FarText(c, answer);
  return {file,           OneLine(who),      c.op,
          std::move(far), std::move(answer), triage::SplitError(c, y, reference)};
}

std::string FarText(const Case& c, const triage::RecordedAnswer& answer) {
  if (answer.exact()) return "0";
  const bool real = IsFloat(c.out_dtype);
  return CodesText(answer.worst_lsb) + (real ? " ulp" : "");
}

std::string SplitText(const AnsweredLayer& layer) {
  if (!layer.split) return "";
  const triage::ErrorSplit& split = *layer.split;
  std::string text = fmt::format(
      "  error of {} against {}, in output codes (root mean square):\n", layer.who,
      split.has_reference ? "the float32 reference" : "the real result on the same codes");
  // Rounding costs half a code.
  const bool clamps = split.rounding.worst > 0.5;
  text += fmt::format(
      "    {:<24} {}\n",
      clamps ? "quantization and clamp:" : "quantization, expected:", PartText(split.quantization));
  if (split.has_reference) {
    text += fmt::format("      of x, w and earlier layers {}, of the output {}\n",
                        PartText(split.operands), PartText(split.rounding));
  }
  text += fmt::format(
      "    the kernel:              {}{}\n", PartText(split.kernel),
      layer.answer.exact()
          ? ", none"
          : fmt::format(" on {} of {}: {}", split.departing, Plural(split.outputs, "output"),
                        layer.answer.is_wrong()      ? "no known arithmetic gives it"
                        : layer.answer.within_digits ? "none, with other numbers that print so"
                                                     : "not exact, as " + WhoseText(layer.answer)));
  return text + fmt::format("    in all:                  {}\n", PartText(split.total));
}

std::string LayersText(const std::vector<AnsweredLayer>& layers) {
  size_t widest = 5;
  for (const AnsweredLayer& layer : layers) widest = std::max(widest, layer.name().size());
  std::map<std::string, std::vector<const AnsweredLayer*>> by_who;
  std::vector<std::string> order;
  for (const AnsweredLayer& layer : layers) {
    if (!by_who.contains(layer.who)) order.push_back(layer.who);
    by_who[layer.who].push_back(&layer);
  }
  std::string text;
  for (const std::string& who : order) {
    text += fmt::format("{}, layer by layer\n", who);
    text += fmt::format("  {:<{}}  {:>8}  {:>9}  {:>8}  {:>22}  {:<22}  {}\n", "layer", widest,
                        "outputs", "not exact", "at most", "quantization", "kernel error",
                        "whose arithmetic");
    int64_t exact = 0, named = 0, sums = 0, undefined = 0, printed = 0, empty = 0;
    std::vector<std::string> wrong;
    for (const AnsweredLayer* layer : by_who[who]) {
      const triage::RecordedAnswer& answer = layer->answer;
      text += fmt::format("  {:<{}}  {:>8}  {:>9}  {:>8}  {:>22}  {:<22}  {}\n", layer->name(),
                          widest, answer.outputs, answer.departing, layer->far,
                          layer->split ? PartText(layer->split->quantization) : "-",
                          layer->split ? PartText(layer->split->kernel) : "-", WhoseText(answer));
      if (answer.outputs == 0) {
        ++empty;
      } else if (answer.exact()) {
        ++exact;
      } else if (answer.is_wrong()) {
        wrong.push_back(layer->name());
      } else {
        ++(answer.within_digits ? printed
           : answer.is_sums     ? sums
           : answer.undefined   ? undefined
                                : named);
      }
    }
    text += fmt::format("  of {}: {} exact",
                        Plural(static_cast<int64_t>(by_who[who].size()), "layer"), exact);
    if (empty != 0) text += fmt::format(", {} without outputs", empty);
    if (sums != 0) text += fmt::format(", {} float32 sums", sums);
    if (named != 0) text += fmt::format(", {} not exact in a known way", named);
    if (printed != 0) text += fmt::format(", {} exact within the printed digits", printed);
    if (undefined != 0) text += fmt::format(", {} not exact and defined by nobody", undefined);
    text += wrong.empty() ? ".\n"
                          : fmt::format(", {} WRONG: {}.\n", wrong.size(), fmt::join(wrong, ", "));
  }
  return text +
         "Errors are in output codes, root mean square. Quantization is expected to cost what it "
         "costs (values\nbeyond the range of the codes included); a kernel error nothing asks "
         "for. ulp: units in the last\nplace of f32 outputs.\n";
}

JsonValue LayersJson(const std::vector<AnsweredLayer>& layers) {
  JsonList list;
  for (const AnsweredLayer& layer : layers) {
    list.Add(JsonObject{{"file", layer.file},
                        {"by", layer.who},
                        {"op", Name(layer.op)},
                        {"outputs", layer.answer.outputs},
                        {"not_exact", layer.answer.departing},
                        {"worst_lsb", layer.answer.worst_lsb},
                        {"arithmetic", JsonValue::OrNull(layer.answer.arithmetic)},
                        {"wrong", layer.answer.is_wrong()},
                        {"exact_within_printed_digits", layer.answer.within_digits},
                        {"error", models::SplitJson(layer.split)}});
  }
  return list;
}

}  // namespace qualm::tools
