// SPDX-License-Identifier: Apache-2.0
#include "models/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "core/io/json_text.h"
#include "core/rng.h"
#include "core/status.h"
#include "models/cases.h"
#include "models/plain.h"
#include "oracles/accepted.h"
#include "oracles/exact/exact.h"
#include "triage/identify.h"
#include "triage/triage.h"

namespace qualm::models {
namespace {

using graph::Format;
using graph::Graph;
using graph::Node;
using graph::Value;
using graph::Values;

// A cause is looked for where an answer takes at most this many products.
constexpr double kMostToExplain = 1e6;
// Beyond this many, a convention of the runtime itself that gives all outputs ends the search.
constexpr double kMostForAll = 1e7;
// The arithmetic of a group that is not fused: float32 sums in some order, quantized at the end.
constexpr std::string_view kNodeByNode = "torch-decomposed";
constexpr std::string_view kKept = "what the model keeps between calls, which only a runtime knows";

std::string ShapeText(const Value& value) {
  return fmt::format(
      "{} [{}]",
      value.holds_tensor() ? std::string(Name(value.tensor.dtype())) : graph::TypeName(value.type),
      fmt::join(value.shape, ","));
}

double WorkOf(const Case& c) {
  double outputs = 1;
  for (const int64_t size : c.output_shape()) outputs *= static_cast<double>(size);
  return outputs * static_cast<double>(std::max<int64_t>(c.K, 1));
}

bool GivesAll(const triage::ConventionOrExact& one, const std::vector<Case>& cases) {
  return std::ranges::all_of(cases, [&](const Case& c) {
    return !triage::BitEqual(c, c.observed->y, std::span(&one, 1)).empty();
  });
}

// Whether the runtime of models of this format computes so: TensorFlow Lite's has XNNPACK in it.
bool IsOfRuntime(const std::string& convention, std::optional<Format> format) {
  if (!format) return false;
  if (format == Format::kOnnx) return convention.starts_with("onnxruntime");
  return convention.starts_with("tflite") || convention.starts_with("xnnpack2026");
}

// The conventions, of the runtime itself or of all others, that give all outputs of all cases.
std::vector<std::string> ConventionsOf(const std::vector<Case>& cases, std::optional<Format> format,
                                       bool of_runtime) {
  std::vector<std::string> names;
  for (const triage::ConventionOrExact& one : triage::AllConventionsAndExact().subspan(1)) {
    if (IsOfRuntime(one.name, format) == of_runtime && GivesAll(one, cases))
      names.push_back(one.name);
  }
  return names;
}

// The case as a runtime computes it that does not fuse the group: a bias is dequantized too.
Case NodeByNode(const Case& c) {
  if (!c.bias_i32 || c.out_dtype == DType::kS32) return c;
  Case apart = c;
  apart.bias.emplace();
  for (size_t n = 0; n < c.bias_i32->size(); ++n) {
    const float scale = c.x_q.scale[0] * c.w_q.scale_at(static_cast<int64_t>(n));
    apart.bias->push_back(static_cast<float>((*c.bias_i32)[n]) * scale);
  }
  apart.bias_i32.reset();
  return Validate(apart).empty() ? apart : c;
}

// Whether the runtime has left the group as it is; the differing cases become those of its nodes.
bool RunsNodeByNode(Judged* judged) {
  const auto& float32 = triage::FindConventionOrExact(kNodeByNode, "models");
  std::vector<Case> apart;
  for (const Case& c : judged->differing) apart.push_back(NodeByNode(c));
  if (!GivesAll(float32, apart)) return false;
  judged->conventions = {float32.name};
  judged->node_by_node = true;
  judged->differing = std::move(apart);
  return true;
}

std::vector<Tensor> ExactOf(const Cases& cases) {
  std::vector<Tensor> outputs;
  for (const Part& part : cases.parts) outputs.push_back(exact::Evaluate(part.c));
  return outputs;
}

void CountDeparting(const Cases& cases, const std::vector<Tensor>& exact, const Tensor& given,
                    Judged* judged) {
  const Tensor whole = cases.Assembled(exact);
  judged->outputs = whole.size();
  for (int64_t i = 0; i < whole.size(); ++i) {
    if (whole.SameAt(i, given)) continue;
    ++judged->departing;
    judged->worst_lsb = std::max(judged->worst_lsb, DistanceLsb(whole, given, i));
    if (IsCode(whole.dtype())) ++judged->errors[int64_t{given.IntAt(i)} - whole.IntAt(i)];
  }
}

// Asks whether float32 sums of some order give these answers (docs/sums.md).
void JudgeSums(const Cases& cases, const Tensor& given, const std::string& by, Judged* judged) {
  static const Contract sum = ParseContract("sum"), apart = ParseContract("sum+offsets");
  SumGrades grades;
  judged->differing.clear();  // an answer that is accepted is nobody's mistake
  for (const Part& part : cases.parts) {
    const Contract& contract = HasFloatX(part.c) ? sum : apart;
    // The runtime takes zero points of the block as the model has it out of the sum.
    const Accepted accepted =
        !HasFloatX(part.c) && cases.turned
            ? Accepted::Sums(exact::Evaluate(part.c), FloatSums(part.c, Offsets::kApartFromEither))
            : AcceptedBy(contract, part.c);
    grades.Add(*accepted.grades());
    const Tensor y = cases.PieceOf(given, part);
    const std::optional<Divergence> first = accepted.First(y);
    if (!first) continue;
    Case& c = judged->differing.emplace_back(part.c);
    c.contract = contract.text();
    c.observed = Observed{by, y};
    if (judged->diagnosis.empty())
      judged->diagnosis =
          fmt::format("output {} is not {}", first->index, accepted.What(contract, first->index));
    judged->outside_sums = true;
  }
  judged->sums = grades;
}

// Of the cases or, where those do not give the answers, of what may have been computed instead.
void JudgeSumsOrInstead(const Cases& cases, const Tensor& given, const std::string& by,
                        Judged* judged) {
  JudgeSums(cases, given, by, judged);
  if (!judged->outside_sums || cases.instead.empty()) return;
  Cases other = cases;
  other.parts = cases.instead;
  Judged instead;
  JudgeSums(other, given, by, &instead);
  if (instead.outside_sums) return;
  if (cases.instead_is.empty()) {
    CountDeparting(other, ExactOf(other), given, &instead);
    *judged = std::move(instead);
    return;
  }
  judged->outside_sums = false;
  judged->sums = instead.sums;
  judged->instead = cases.instead_is;
  judged->diagnosis = by + " adds float32 sums of " + cases.instead_is;
}

// Splits the error of the parts that have codes with a scale. `reference`: a whole value, or null.
void SplitParts(const Cases& cases, const Tensor& given, const Tensor* reference, Judged* judged) {
  std::vector<triage::ErrorSplit> splits;
  for (const Part& part : cases.parts) {
    std::optional<Tensor> real;
    if (reference != nullptr) real = cases.PieceOf(*reference, part);
    const auto split =
        triage::SplitError(part.c, cases.PieceOf(given, part), real ? &*real : nullptr);
    if (!split) return;
    if (split->outputs != 0) splits.push_back(*split);
  }
  if (!splits.empty()) judged->split = triage::Together(splits);
}

// The likeliest cause of an answer that no convention gives; `subject` is asked further cases.
std::string CauseOf(const Case& c, Subject* subject) {
  if (subject == nullptr) return triage::Attribute(c, c.observed->y).diagnosis;
  const Contracts promised = subject->contracts();
  subject->set_contract(promised.of(c.op));
  Case asked = c;
  asked.observed.reset();
  const triage::Explained explained = triage::ExplainAnswers(asked, {subject});
  subject->set_contracts(promised);
  const triage::Attribution* const told = explained.Of(c.observed->y);
  return told == nullptr ? triage::Attribute(c, c.observed->y).diagnosis : told->diagnosis;
}

// `group`: of float nodes, which a runtime may leave as they are. `format`: of the model, if it is
// a file, and a runtime is judged. `subject`: who is, else null.
Judged Judge(const Cases& cases, const Tensor& given, const std::string& by, bool group,
             std::optional<Format> format, Subject* subject = nullptr) {
  Judged judged;
  const std::vector<Tensor> exact = ExactOf(cases);
  for (size_t i = 0; i < exact.size(); ++i) {
    Tensor y = cases.PieceOf(given, cases.parts[i]);
    if (y == exact[i]) continue;
    Case c = cases.parts[i].c;
    c.observed = Observed{by, std::move(y)};
    judged.differing.push_back(std::move(c));
  }
  CountDeparting(cases, exact, given, &judged);
  if (JudgedBySums(cases.parts.front().c)) {
    JudgeSumsOrInstead(cases, given, by, &judged);
    return judged;
  }
  if (judged.differing.empty()) return judged;
  judged.conventions = ConventionsOf(judged.differing, format, true);
  if (judged.conventions.empty() && group && RunsNodeByNode(&judged)) return judged;
  double work = 0;
  for (const Case& c : judged.differing) work += WorkOf(c);
  if (judged.conventions.empty() || work <= kMostForAll) {
    const std::vector<std::string> others = ConventionsOf(judged.differing, format, false);
    judged.conventions.insert(judged.conventions.end(), others.begin(), others.end());
  }
  if (subject != nullptr) {
    const auto own = std::ranges::find(judged.conventions,
                                       subject->contract(cases.parts.front().c.op).convention);
    if (own != judged.conventions.end()) std::rotate(judged.conventions.begin(), own, own + 1);
  }
  if (!judged.conventions.empty()) return judged;
  const Case& first = judged.differing.front();
  judged.undefined = std::ranges::all_of(
      triage::AllConventionsAndExact().subspan(1), [&](const triage::ConventionOrExact& known) {
        return known.convention->of_no_library || !known.CannotRun(first).empty();
      });
  if (WorkOf(first) <= kMostToExplain) judged.diagnosis = CauseOf(first, subject);
  return judged;
}

class Runner {
 public:
  Runner(const Graph& graph, const ModelOptions& options) : graph_(graph), options_(options) {
    run_.values = options.inputs;
  }

  ModelRun Run() {
    RequireWhole();
    ReadState();
    const std::vector<Step> steps = PlanOf(graph_);
    for (size_t i = 0; i < steps.size(); ++i) {
      if (options_.progress) options_.progress(i, 2 * steps.size());
      if (steps[i].is_layer) {
        RunLayer(steps[i].layer);
      } else {
        RunNode(*steps[i].node);
      }
    }
    options_.subject == nullptr ? AskRuntime() : AskSubject();
    if (!run_.by.empty()) JudgeAll();
    for (const graph::Port& port : graph_.outputs()) run_.ends.push_back(EndOf(port.name));
    return std::move(run_);
  }

 private:
  // Every value that a node reads comes from somewhere.
  void RequireWhole() const {
    for (const Node& node : graph_.nodes()) {
      for (const std::string& input : node.inputs) {
        if (input.empty() || run_.values.contains(input) || graph_.MakerOf(input) != nullptr ||
            graph_.FindConstant(input) != nullptr)
          continue;
        graph_.Fail(input, "is read by " + node.op +
                               " and made by nothing, expected an input, an initializer or the "
                               "output of a node");
      }
    }
  }

  // What the model keeps from call to call, as the runtime has it.
  void ReadState() {
    std::vector<std::string> wanted;
    for (const Node& node : graph_.nodes()) {
      if (node.op == "READ_VARIABLE") wanted.push_back(node.Output(0));
    }
    if (wanted.empty() || options_.runtime == nullptr) return;
    for (const auto& [name, value] :
         options_.runtime->Run(graph_, options_.inputs, wanted).values) {
      run_.values[name] = value;
      run_.state_of = options_.runtime->name();
    }
  }
  // A node that keeps or gives what ReadState has read.
  bool IsOfState(const Node& node) const {
    static constexpr std::array<std::string_view, 3> kKeep{"CALL_ONCE", "VAR_HANDLE",
                                                           "ASSIGN_VARIABLE"};
    if (graph_.format() != Format::kTflite) return false;
    return std::ranges::find(kKeep, node.op) != kKeep.end() ||
           (node.op == "READ_VARIABLE" && run_.values.contains(node.Output(0)));
  }

  // ---- Values ----

  const Value* Constant(const std::string& name) {
    if (const auto known = constants_.find(name); known != constants_.end()) return &known->second;
    const graph::Stored* const stored = graph_.FindConstant(name);
    if (stored == nullptr) return nullptr;
    Value value;
    if (graph::HeldBy(stored->type) || graph::WidenedBy(stored->type)) {
      value = Value::Of(graph_.Read(name, *stored));
    } else if (stored->type == graph::kInt64 || stored->type == graph::kBool) {
      value = Value::Of(stored->type, stored->dims, graph_.ReadIntegers(name, *stored));
    } else {
      throw NotRun{"its input " + name + " is of " + graph::TypeName(stored->type)};
    }
    CountOf(value.shape);
    return &constants_.emplace(name, std::move(value)).first->second;
  }

  // Ours. Reals that only layers read are made where a layer turns out to be none.
  const Value* Ours(const std::string& name) {
    if (name.empty()) return nullptr;
    if (const auto known = run_.values.find(name); known != run_.values.end())
      return &known->second;
    if (const Value* const constant = Constant(name)) return constant;
    if (const auto lost = lost_.find(name); lost != lost_.end())
      throw NotRun{"behind " + lost->second};
    const Node* const maker = graph_.MakerOf(name);
    if (!IsDequantize(maker)) return nullptr;
    if (!dequantizing_.insert(name).second) return nullptr;  // a graph that feeds itself
    const Lookup ours = [&](const std::string& of) { return Ours(of); };
    try {
      const std::optional<Layer> layer = LayerOfNode(graph_, *maker);
      Keep(*layer, CasesOf(graph_, *layer, ours));
    } catch (const NotRun&) {
      run_.values[name] = RunPlain(graph_, *maker, ours).at(0);
    }
    return &run_.values.at(name);
  }

  // Theirs, and where they gave none for what the model gets or holds, ours.
  const Value* Theirs(const std::string& name, bool* all) {
    if (const auto known = recorded_.find(name); known != recorded_.end()) return &known->second;
    const bool given =
        options_.inputs.contains(name) || graph_.FindConstant(name) != nullptr || IsConstant(name);
    if (!given) *all = false;
    return Ours(name);
  }
  // Made of initializers alone, by a node that moves them.
  bool IsConstant(const std::string& name, int depth = 0) const {
    if (graph_.FindConstant(name) != nullptr) return true;
    const Node* const maker = graph_.MakerOf(name);
    return maker != nullptr && depth < 8 &&
           std::ranges::all_of(
               maker->inputs,
               [&](const auto& in) { return in.empty() || IsConstant(in, depth + 1); });
  }

  // ---- Our own run ----

  // The outputs of a layer, exact unless `outputs` are others.
  void Keep(const Layer& layer, const Cases& cases,
            const std::optional<std::vector<Tensor>>& outputs = std::nullopt) {
    run_.values[layer.out.codes] = Value::Of(cases.Assembled(outputs ? *outputs : ExactOf(cases)));
    for (const auto& [name, value] : cases.besides) {
      if (!name.empty()) run_.values[name] = value;
    }
  }

  void RunLayer(const Layer& layer) {
    Row row;
    row.name = layer.name();
    row.operators = layer.operators();
    row.value = layer.out.codes;
    row.layer = layer;
    try {
      const Cases cases =
          CasesOf(graph_, layer, [&](const std::string& name) { return Ours(name); });
      Keep(layer, cases, answers_ ? AnswersTo(layer, cases) : std::nullopt);
      row.op = cases.parts.empty() ? std::nullopt : std::optional(cases.parts.front().c.op);
      row.shape = ShapeText(run_.values.at(layer.out.codes));
      run_.rows.push_back(std::move(row));
      return;
    } catch (const NotRun& reason) {
      row.not_run = reason.why;
    }
    // Node by node, as a runtime that does not fuse them.
    if (layer.inside.size() > 1 && !row.not_run.starts_with("behind ")) {
      for (const Node* const node : layer.inside) {
        const std::optional<Layer> alone = LayerOfNode(graph_, *node);
        if (IsDequantize(node)) continue;
        alone ? RunLayer(*alone) : RunNode(*node, node == layer.node ? row.not_run : "");
      }
      return;
    }
    if (row.not_run.starts_with("behind ")) return Lose(std::move(row), *layer.inside.back());
    // No case can say it; MaxPool is a layer of codes alone.
    const bool of_codes = layer.kind == Kind::kMaxPool && layer.refused.empty();
    RunNode(*layer.node, of_codes ? "" : row.not_run);
  }

  // `reason`: why the node is no layer although its operator is one.
  void RunNode(const Node& node, const std::string& reason = "") {
    if (IsOfState(node)) return;
    Row row;
    row.name = node.name.empty() ? node.Output(0) : node.name;
    row.operators = node.op;
    row.value = node.Output(0);
    try {
      const std::vector<Value> outputs =
          RunPlain(graph_, node, [&](const std::string& name) { return Ours(name); });
      for (size_t i = 0; i < outputs.size(); ++i) {
        const std::string name = node.Output(static_cast<int>(i));
        if (!name.empty()) run_.values[name] = outputs[i];
      }
      ++run_.moves;
      return;
    } catch (const NotRun& plain) {
      row.not_run = !reason.empty() ? reason : node.op == "READ_VARIABLE" ? kKept : plain.why;
      row.no_layer = reason;
    }
    for (const std::string& input : node.inputs) {
      const auto lost = lost_.find(input);
      if (lost != lost_.end()) row.not_run = "behind " + lost->second;
    }
    if (!row.not_run.starts_with("behind ") && AskForNode(node, &row)) {
      row.not_run.clear();
      run_.rows.push_back(std::move(row));
      return;
    }
    Lose(std::move(row), node);
  }

  // Nobody computes the node: what it makes is not known, nor what follows from that.
  void Lose(Row row, const Node& node) {
    const bool behind = row.not_run.starts_with("behind ");
    const std::string cause = behind ? row.not_run.substr(7) : row.name;
    for (const std::string& output : node.outputs) {
      if (!output.empty()) lost_[output] = cause;
    }
    // A node that only moves what is lost anyway is worth no line.
    if (!behind || row.layer.node != nullptr || !row.no_layer.empty())
      run_.rows.push_back(std::move(row));
  }

  bool AskForNode(const Node& node, Row* row) {
    if (options_.runtime == nullptr) return false;
    Values inputs;
    try {
      for (const std::string& input : node.inputs) {
        // A node of TensorFlow Lite keeps its constants, of whatever type they are.
        if (input.empty() ||
            (graph_.format() == Format::kTflite && graph_.FindConstant(input) != nullptr))
          continue;
        const Value* const value = Ours(input);
        if (value == nullptr) return false;
        inputs[input] = *value;
      }
    } catch (const NotRun& reason) {
      row->not_run += " (" + reason.why + ")";
      return false;
    }
    const auto answer = options_.runtime->RunNode(graph_, node, inputs);
    if (!answer.error.empty()) {
      row->not_run += ", and " + options_.runtime->name() + " refuses it: " + answer.error;
      return false;
    }
    for (const std::string& name : node.outputs) {
      const auto at = answer.values.find(name);
      if (name.empty() || at == answer.values.end()) continue;
      run_.values[name] = at->second;
      if (name == row->value) row->shape = ShapeText(at->second);
    }
    row->by = options_.runtime->name();
    return run_.values.contains(row->value);
  }

  // ---- Their run ----

  // The layers by the subject, one after another. Of one that it does not answer the exact output
  // goes on.
  void AskSubject() {
    ModelOptions options = options_;
    options.recorded.clear();
    options.progress = nullptr;
    Runner chain(graph_, options);
    chain.ReadState();
    chain.answers_ = true;
    for (const Step& step : PlanOf(graph_)) {
      step.is_layer ? chain.RunLayer(step.layer) : chain.RunNode(*step.node);
    }
    recorded_ = std::move(chain.run_.values);
    run_.unanswered = std::move(chain.run_.unanswered);
    run_.by = options_.subject->name();
  }

  // nullopt where it does not answer: run_.unanswered says why.
  std::optional<std::vector<Tensor>> AnswersTo(const Layer& layer, const Cases& cases) {
    std::vector<Tensor> outputs;
    for (const Part& part : cases.parts) {
      Outcome outcome;
      outcome.detail = options_.subject->CannotRun(part.c);
      outcome.status = RunStatus::kSkipped;
      if (outcome.detail.empty()) outcome = options_.subject->Run(part.c, RunContext{});
      if (outcome.ok()) {
        outputs.push_back(std::move(outcome.y));
        continue;
      }
      const bool skipped = outcome.status == RunStatus::kSkipped;
      const std::string why = skipped ? std::string(options_.subject->name()) + " does not run it"
                                      : std::string(Name(outcome.status));
      run_.unanswered[layer.out.codes] = {OneLine(why + ": " + outcome.detail), part.c, outcome};
      return std::nullopt;
    }
    return outputs;
  }

  void AskRuntime() {
    recorded_ = options_.recorded;
    run_.by = options_.recorded.empty() ? "" : options_.by;
    if (options_.runtime == nullptr) return;
    // What the rows read and make. More outputs would keep the runtime from fusing nodes.
    std::set<std::string> wanted;
    const auto want = [&](const std::string& name) {
      if (!name.empty() && !IsConstant(name) && !options_.inputs.contains(name) &&
          graph_.MakerOf(name) != nullptr)
        wanted.insert(name);
    };
    for (const Row& row : run_.rows) {
      if (row.layer.node == nullptr || !row.op) continue;
      want(row.value);
      for (const Operand& operand : row.layer.operands) {
        want(operand.codes);
        want(operand.scale);
        want(operand.zero_point);
      }
      want(row.layer.out.scale);
      want(row.layer.out.zero_point);
    }
    std::vector<std::string> outputs = Outputs(), more;
    for (const std::string& name : outputs) wanted.erase(name);
    more.assign(wanted.begin(), wanted.end());
    outputs.insert(outputs.end(), more.begin(), more.end());
    const auto answer = options_.runtime->Run(graph_, options_.inputs, outputs);
    if (!answer.error.empty()) {
      run_.refused = answer.error;
      return;
    }
    if (!more.empty()) {
      const auto plain = options_.runtime->Run(graph_, options_.inputs, Outputs());
      for (const auto& [name, value] : plain.values) {
        const auto shown = answer.values.find(name);
        if (shown != answer.values.end() && shown->second != value) run_.changed.push_back(name);
        whole_[name] = value;
      }
    }
    // What somebody recorded goes before what is computed now.
    for (const auto& [name, value] : answer.values) recorded_.try_emplace(name, value);
    if (run_.by.empty()) run_.by = options_.runtime->name();
  }

  std::vector<std::string> Outputs() const {
    std::vector<std::string> names;
    for (const graph::Port& port : graph_.outputs()) names.push_back(port.name);
    return names;
  }

  void JudgeAll() {
    for (size_t i = 0; i < run_.rows.size(); ++i) {
      Row& row = run_.rows[i];
      if (options_.progress) options_.progress(run_.rows.size() + i, 2 * run_.rows.size());
      const auto given = recorded_.find(row.value);
      if (row.layer.node == nullptr || !row.op || given == recorded_.end()) continue;
      if (const auto none = run_.unanswered.find(row.value); none != run_.unanswered.end()) {
        row.not_judged = none->second.why;
        continue;
      }
      const bool of_user = options_.recorded.contains(row.value);
      try {
        bool all = true;
        const Cases cases =
            CasesOf(graph_, row.layer, [&](const std::string& name) { return Theirs(name, &all); });
        const Value& theirs = given->second;
        if (!theirs.holds_tensor() || theirs.tensor.dtype() != cases.dtype ||
            theirs.shape != cases.shape) {
          const std::string what = fmt::format("is {}, expected {} [{}]", ShapeText(theirs),
                                               Name(cases.dtype), fmt::join(cases.shape, ","));
          if (of_user) graph_.Fail("--observed " + row.value, what);
          row.not_judged = what;
          continue;
        }
        if (!all && !of_user) {
          row.not_judged = "their inputs of it are not known";
          continue;
        }
        const bool group = row.layer.inside.size() > 1 && row.layer.result == Result::kCodes;
        const std::string& by = of_user ? options_.by : run_.by;
        row.judged = options_.subject != nullptr
                         ? Judge(cases, theirs.tensor, by, false, std::nullopt, options_.subject)
                         : Judge(cases, theirs.tensor, by, group, graph_.format());
        row.judged->on_own_inputs = all;
        if (options_.split)
          SplitParts(cases, theirs.tensor, ReferenceOf(row.layer, cases), &*row.judged);
      } catch (const NotRun& reason) {
        row.not_judged = reason.why;
      }
    }
  }

  // What the model computed there before it was quantized: quantizers keep the name of a value for
  // the reals that are quantized, or add to it.
  const Tensor* ReferenceOf(const Layer& layer, const Cases& cases) const {
    std::vector<std::string> names{layer.out.codes};
    if (!layer.inside.empty() && layer.inside.back()->Is("QuantizeLinear"))
      names.push_back(layer.inside.back()->Input(0));
    constexpr std::string_view kAdded = "_quantized";
    if (layer.out.codes.ends_with(kAdded))
      names.push_back(layer.out.codes.substr(0, layer.out.codes.size() - kAdded.size()));
    for (const std::string& name : names) {
      const auto at = options_.reference.find(name);
      if (at == options_.reference.end() || !at->second.holds_tensor()) continue;
      const Tensor& real = at->second.tensor;
      if (real.dtype() != DType::kF32 || at->second.shape != cases.shape) continue;
      if (std::ranges::all_of(real.as<float>(), [](float v) { return std::isfinite(v); }))
        return &real;
    }
    return nullptr;
  }

  End EndOf(const std::string& name) {
    End end;
    end.name = name;
    const bool asked = std::ranges::any_of(run_.rows, [](const Row& row) { return !!row.judged; });
    const auto ours = run_.values.find(name);
    // As the runtime gives it where nothing between layers is shown.
    const bool plain = whole_.contains(name) && !options_.recorded.contains(name);
    const auto theirs = plain ? whole_.find(name) : recorded_.find(name);
    end.known = ours != run_.values.end();
    end.theirs = plain || theirs != recorded_.end();
    if (end.known) end.shape = ShapeText(ours->second);
    if (options_.subject != nullptr && !asked) end.theirs = false;  // all of it is exact
    if (!end.known || !end.theirs || !ours->second.holds_tensor() ||
        ours->second.shape != theirs->second.shape || ours->second.type != theirs->second.type) {
      end.theirs = false;
      return end;
    }
    const Tensor &a = ours->second.tensor, &b = theirs->second.tensor;
    end.real = IsFloat(a.dtype());
    end.elements = a.size();
    for (int64_t i = 0; i < a.size(); ++i) {
      if (a.SameAt(i, b)) continue;
      ++end.departing;
      const double distance = std::abs(a.ValueAt(i) - b.ValueAt(i));
      end.worst = std::max(end.worst, std::isnan(distance) ? HUGE_VAL : distance);
    }
    return end;
  }

  const Graph& graph_;
  ModelOptions options_;
  bool answers_ = false;  // layers are the subject's, not exact
  ModelRun run_;
  Values constants_;
  Values recorded_;
  Values whole_;  // outputs of the runtime where nothing else is shown
  std::map<std::string, std::string, std::less<>> lost_;  // value -> the row that was not run
  std::set<std::string> dequantizing_;
};

// The range, in reals, of the codes of the layer that quantizes the value.
std::optional<std::pair<double, double>> RangeOfReader(const Graph& graph,
                                                       const std::vector<Step>& plan,
                                                       const std::string& name) {
  for (const Step& one : plan) {
    const Layer& layer = one.layer;
    if (!one.is_layer || layer.kind != Kind::kQuantize || layer.operands[0].codes != name) continue;
    const graph::Stored* const scale = graph.FindConstant(layer.out.scale);
    const graph::Stored* const zero = graph.FindConstant(layer.out.zero_point);
    if (scale == nullptr || scale->type != graph::kFloat) continue;
    if (zero != nullptr && !graph::HeldBy(zero->type)) continue;
    const Tensor scales = graph.Read(layer.out.scale, *scale);
    const Tensor zeros =
        zero == nullptr ? Tensor(DType::kU8, {1}) : graph.Read(layer.out.zero_point, *zero);
    if (scales.size() != 1 || zeros.size() != 1 || !IsCode(zeros.dtype())) continue;
    const CodeRange codes = RangeOf(zeros.dtype());
    const double step = scales.ValueAt(0);
    if (!(step > 0) || !std::isfinite(step)) continue;
    return std::pair(step * (codes.min - zeros.IntAt(0)), step * (codes.max - zeros.IntAt(0)));
  }
  return std::nullopt;
}

}  // namespace

ModelRun RunModel(const Graph& graph, const ModelOptions& options) {
  return Runner(graph, options).Run();
}

Row RecordedRow(const std::string& name, const std::string& operators, const Case& c,
                const Tensor* reference) {
  if (!c.observed) throw InputError("observed: is missing, expected what somebody gave");
  Cases cases;
  cases.parts.push_back({c, {}});
  cases.parts[0].c.observed.reset();
  cases.dtype = c.out_dtype;
  cases.shape = c.output_shape();
  Row row;
  row.name = row.value = name;
  row.operators = operators;
  row.op = c.op;
  const Observed& given = *c.observed;
  row.shape = ShapeText(Value::Of(given.y));
  row.judged = Judge(cases, given.y, given.by, false, std::nullopt);
  row.judged->on_own_inputs = true;
  if (reference != nullptr) triage::RequireReference(*reference, given.y.size());
  SplitParts(cases, given.y, reference, &*row.judged);
  return row;
}

void FitInput(const Graph& graph, const graph::Port& port, const std::string& field, Value* value) {
  if (port.type == graph::kInt64 && value->type == graph::kInt32) {
    std::vector<int64_t> integers;
    for (int64_t i = 0; i < value->tensor.size(); ++i) integers.push_back(value->tensor.IntAt(i));
    *value = Value::Of(graph::kInt64, value->shape, std::move(integers));
  }
  const auto shape_fits = [&] {
    if (!port.shape) return true;
    if (port.shape->size() != value->shape.size()) return false;
    for (size_t i = 0; i < value->shape.size(); ++i) {
      if ((*port.shape)[i] >= 0 && (*port.shape)[i] != value->shape[i]) return false;
    }
    return true;
  };
  if (value->type == port.type && shape_fits()) return;
  std::string shape;
  if (port.shape) {
    for (const int64_t size : *port.shape)
      shape += (shape.empty() ? " [" : ",") + (size < 0 ? "?" : std::to_string(size));
    shape += shape.empty() ? " []" : "]";
  }
  graph.Fail(field + " " + port.name,
             fmt::format("is {} [{}], expected {}{}", graph::TypeName(value->type),
                         fmt::join(value->shape, ","), graph::TypeName(port.type), shape));
}

Values DrawInputs(const Graph& graph, const Values& given, uint64_t seed,
                  std::vector<std::string>* told) {
  Values values = given;
  const std::vector<Step> plan = PlanOf(graph);
  std::set<std::string> scales;
  for (const Step& one : plan) {
    for (const Operand& operand : one.layer.operands) scales.insert(operand.scale);
    scales.insert(one.layer.out.scale);
  }
  uint64_t number = 0;
  for (const graph::Port& port : graph.inputs()) {
    const uint64_t own = MixSeed(seed, number++);
    if (values.contains(port.name) || graph.FindConstant(port.name) != nullptr) continue;
    if (!port.shape) {
      graph.Fail(port.name,
                 "has no shape in the model, expected --input " + OneLine(port.name) + "=FILE.npy");
    }
    std::vector<int64_t> shape = *port.shape;
    std::string open;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] >= 0) continue;
      shape[i] = i == 0 ? 1 : 8;
      open += (open.empty() ? ", open sizes are " : ", ") + std::to_string(shape[i]);
    }
    int64_t count = 0;
    try {
      count = CountOf(shape);
    } catch (const NotRun& reason) {
      graph.Fail(port.name, reason.why + ", expected fewer");
    }
    Rng rng(own);
    std::string kind;
    Value value;
    const std::optional<DType> held = graph::HeldBy(port.type);
    if (held == DType::kF32) {
      const auto range = RangeOfReader(graph, plan, port.name);
      const bool is_scale = !range && scales.contains(port.name);
      const auto [low, high] =
          range.value_or(is_scale ? std::pair(0x1p-8, 0x1p-4) : std::pair(-1.0, 1.0));
      Tensor x(DType::kF32, shape);
      for (float& element : x.as<float>()) {
        constexpr int64_t kSteps = int64_t{1} << 24;
        element = static_cast<float>(
            low + (high - low) * static_cast<double>(rng.Between(0, kSteps)) / kSteps);
      }
      kind = fmt::format("{:.4g} to {:.4g}{}", low, high,
                         range      ? ", the range of its QuantizeLinear"
                         : is_scale ? ", as it is a scale"
                                    : "");
      value = Value::Of(std::move(x));
    } else if (held && IsCode(*held)) {
      Tensor x(*held, shape);
      const CodeRange codes = RangeOf(*held);
      for (int64_t i = 0; i < count; ++i)
        x.SetInt(i, static_cast<int32_t>(rng.Between(codes.min, codes.max)));
      kind = "all codes";
      value = Value::Of(std::move(x));
    } else if (port.type == graph::kInt32) {
      Tensor x(DType::kS32, shape);
      for (int64_t i = 0; i < count; ++i) x.SetInt(i, static_cast<int32_t>(rng.Between(0, 1)));
      kind = "0 and 1";
      value = Value::Of(std::move(x));
    } else if (graph::SizeOfType(port.type) != 0) {
      std::vector<int64_t> integers;
      for (int64_t i = 0; i < count; ++i) integers.push_back(rng.Between(0, 1));
      kind = "0 and 1";
      value = Value::Of(port.type, shape, std::move(integers));
    } else {
      graph.Fail(port.name,
                 "is of " + graph::TypeName(port.type) +
                     ", expected float, int8, uint8, int16, uint16, int32, int64 or bool");
    }
    told->push_back(
        fmt::format("{}: {}, random, {}{}", OneLine(port.name), ShapeText(value), kind, open));
    values[port.name] = std::move(value);
  }
  return values;
}

}  // namespace qualm::models
