// SPDX-License-Identifier: Apache-2.0
#include "models/told.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>

#include "core/io/short_path.h"
#include "triage/identify.h"

namespace qualm::models {
namespace {

JsonValue PartJson(const triage::ErrorPart& part) {
  return JsonObject{{"rms", part.rms}, {"worst", part.worst}};
}

JsonValue RowJson(const Row& row, const std::vector<std::string>& files) {
  JsonObject json{{"name", row.name},
                  {"operators", row.operators},
                  {"op", row.op ? JsonValue(Name(*row.op)) : JsonValue(std::nullopt)},
                  {"value", row.value},
                  {"output", JsonValue::OrNull(row.shape)},
                  {"ran_by", JsonValue::OrNull(row.by)},
                  {"no_layer", JsonValue::OrNull(row.no_layer)},
                  {"not_run", JsonValue::OrNull(row.not_run)},
                  {"not_judged", JsonValue::OrNull(row.not_judged)}};
  if (!row.judged) return json;
  const Judged& judged = *row.judged;
  json.Add("outputs", judged.outputs);
  json.Add("not_exact", judged.departing);
  json.Add("worst_lsb", judged.worst_lsb);
  json.Add("arithmetic", judged.conventions);
  json.Add("whose", WhoseText(judged));
  json.Add("wrong", judged.is_wrong());
  if (judged.split) json.Add("error", SplitJson(judged.split));
  if (judged.sums) {
    json.Add("sums", JsonObject{{"window", judged.sums->window},
                                {"bound", judged.sums->bound},
                                {"undecided", judged.sums->undecided}});
  }
  json.Add("on_own_inputs", judged.on_own_inputs);
  json.Add("explanation", JsonValue::OrNull(judged.diagnosis));
  json.Add("cases", files);
  return json;
}

}  // namespace

std::string WhoseText(const Judged& judged) {
  if (judged.sums) {
    const std::string kind = judged.outside_sums      ? "NO FLOAT32 SUMS: "
                             : judged.instead.empty() ? "float32 sums: "
                                                      : "float32 sums of " + judged.instead + ": ";
    return kind + judged.sums->text();
  }
  if (judged.exact()) return "exact";
  if (judged.node_by_node) return "float32, node by node (" + judged.conventions[0] + ")";
  if (!judged.conventions.empty()) return FewNames(triage::ConventionsText(judged.conventions));
  return judged.undefined ? "no convention defines this case" : "NO KNOWN ARITHMETIC";
}

std::string WhyNotJudged(const Row& row) {
  if (row.judged) return "";
  if (!row.not_run.empty()) return "not run: " + row.not_run;
  if (!row.by.empty()) return "ran by " + row.by;
  return row.not_judged.empty() ? "exact, compared with nobody" : "not judged: " + row.not_judged;
}

std::string SumText(const ModelRun& run) {
  int64_t layers = 0, exact = 0, sums = 0, named = 0, undefined = 0, lost = 0, ran = 0,
          unjudged = 0;
  std::vector<std::string> wrong;
  for (const Row& row : run.rows) {
    if (!row.op) {
      ++(row.by.empty() ? lost : ran);
      continue;
    }
    ++layers;
    if (!row.judged) {
      ++unjudged;
      continue;
    }
    if (row.judged->exact()) {
      ++exact;
    } else if (row.judged->right()) {
      ++sums;
    } else if (row.judged->is_wrong()) {
      wrong.push_back(OneLine(row.name));
    } else {
      ++(row.judged->undefined ? undefined : named);
    }
  }
  std::string text = "of " + Plural(layers, "layer");
  if (!run.by.empty()) text += fmt::format(": {} exact", exact);
  if (sums != 0) text += fmt::format(", {} float32 sums", sums);
  if (named != 0) text += fmt::format(", {} not exact in a known way", named);
  if (undefined != 0) text += fmt::format(", {} not exact and defined by nobody", undefined);
  if (!wrong.empty()) text += fmt::format(", {} WRONG: {}", wrong.size(), fmt::join(wrong, ", "));
  if (unjudged != 0 && !run.by.empty()) text += fmt::format(", {} not judged", unjudged);
  if (lost != 0) text += fmt::format("; {} not run", Plural(lost, "node"));
  if (ran != 0) text += fmt::format("; {} ran by the runtime", Plural(ran, "node"));
  return text + ".";
}

std::vector<std::string> NotesOf(const ModelRun& run) {
  std::vector<std::string> notes;
  for (const std::string& name : run.changed) {
    notes.push_back(run.by + " gives another " + OneLine(name) +
                    " where the values between layers are not shown, because it fuses more");
  }
  if (!run.unanswered.empty()) {
    notes.push_back(fmt::format("of the {} that {} did not answer the exact outputs go on",
                                Plural(std::ssize(run.unanswered), "layer"), run.by));
  }
  if (!run.state_of.empty()) {
    notes.push_back("what the model keeps from call to call is as " + run.state_of +
                    " has it in a first call");
  }
  return notes;
}

std::vector<size_t> WorstFirst(const ModelRun& run) {
  std::vector<size_t> order;
  for (size_t i = 0; i < run.rows.size(); ++i) {
    if (run.rows[i].judged) order.push_back(i);
  }
  const auto badness = [&](size_t i) {
    const Judged& judged = *run.rows[i].judged;
    const auto& split = judged.split;
    const double total = split ? split->total.rms / split->signal.rms : 0;
    return std::tuple(judged.is_wrong() || judged.outside_sums, split ? split->kernel.rms : 0.0,
                      judged.right() ? 0.0 : judged.worst_lsb, std::isfinite(total) ? total : 0.0,
                      -static_cast<int64_t>(i));  // else in the order of the graph
  };
  std::ranges::sort(order, std::greater<>(), badness);
  return order;
}

JsonValue SplitJson(const std::optional<triage::ErrorSplit>& split) {
  if (!split) return std::nullopt;
  return JsonObject{{"reference", split->has_reference ? "given" : "operands"},
                    {"quantization", PartJson(split->quantization)},
                    {"operands", PartJson(split->operands)},
                    {"rounding", PartJson(split->rounding)},
                    {"kernel", PartJson(split->kernel)},
                    {"total", PartJson(split->total)},
                    {"sqnr_db", split->sqnr_db()},
                    {"cosine", split->cosine()}};
}

JsonValue ModelJson(const ModelRun& run, const std::string& path,
                    const std::vector<std::string>& inputs,
                    const std::vector<std::vector<std::string>>& files) {
  JsonList rows, ends;
  for (size_t i = 0; i < run.rows.size(); ++i) rows.Add(RowJson(run.rows[i], files[i]));
  for (const End& end : run.ends) {
    ends.Add(JsonObject{{"name", end.name},
                        {"output", JsonValue::OrNull(end.shape)},
                        {"compared", end.theirs},
                        {"elements", end.elements},
                        {"differ", end.departing},
                        {"worst", end.worst}});
  }
  return JsonObject{{"file", path},
                    {"by", JsonValue::OrNull(run.by)},
                    {"refused", JsonValue::OrNull(run.refused)},
                    {"changed_by_showing", run.changed},
                    {"inputs", inputs},
                    {"moves", run.moves},
                    {"layers", rows},
                    {"outputs", ends}};
}

}  // namespace qualm::models
