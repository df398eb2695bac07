// SPDX-License-Identifier: Apache-2.0
// Runs a model, each quantized layer by the exact oracle, and judges what somebody else's software
// gave for it, layer by layer.
#ifndef QUALM_MODELS_RUN_H_
#define QUALM_MODELS_RUN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/io/model_graph.h"
#include "core/io/model_runtime.h"
#include "core/subject.h"
#include "core/verdict.h"
#include "models/plan.h"
#include "oracles/conventions/float_sums.h"
#include "triage/recorded.h"

namespace qualm::models {

// An output of a layer that somebody gave, against the exact one.
struct Judged {
  // The inputs of the layer are theirs too, so that nothing of earlier layers is in it.
  bool on_own_inputs = false;
  int64_t outputs = 0, departing = 0;
  double worst_lsb = 0;  // codes; ulps of float
  // Names of the conventions that give all outputs, those of the runtime's own first.
  std::vector<std::string> conventions;
  bool node_by_node = false;  // that of float32, because the group is not fused
  // Of a layer of f32 x, which no convention defines: what decided about how many outputs, and
  // whether one is refused (docs/sums.md).
  std::optional<SumGrades> sums;
  bool outside_sums = false;
  std::string instead;     // what they computed that the model does not permit (Cases::instead_is)
  bool undefined = false;  // no convention of a library defines the case
  std::string diagnosis;   // of an answer that no convention gives: one sentence, "" if too large
  std::vector<Case> differing;  // with what they gave as `observed`
  // Of codes, where it was asked for: what of the distance to the real results, or to the
  // reference, is quantization and what the kernel; and how often the answer is how many codes off.
  std::optional<triage::ErrorSplit> split;
  std::map<int64_t, int64_t> errors;

  bool exact() const { return departing == 0; }
  // What is asked of the layer: exact outputs, of f32 x float32 sums.
  bool right() const { return sums ? !outside_sums && instead.empty() : exact(); }
  bool is_wrong() const { return !right() && conventions.empty() && !undefined && instead.empty(); }
};

struct Row {
  std::string name;        // of the layer, or of a node that is none
  std::string operators;   // "DequantizeLinear, Conv, QuantizeLinear"
  std::string value;       // that it makes
  std::optional<Op> op;    // of a layer
  std::string shape;       // "u8 [1,8,16,16]"
  std::string by;          // who ran a node that is no layer
  std::string no_layer;    // why a node is none although its operator is quantized
  std::string not_run;     // why it was not
  std::string not_judged;  // why what they gave was not
  std::optional<Judged> judged;
  Layer layer;
};

// A value that the model gives, and what they gave.
struct End {
  std::string name;
  std::string shape;
  bool known = false;  // ours
  bool theirs = false;
  int64_t elements = 0, departing = 0;
  double worst = 0;  // codes; the largest difference of float
  bool real = false;
};

struct ModelOptions {
  graph::Values inputs;
  graph::Values recorded;  // what somebody gave for values of the graph
  std::string by;          // who: "recorded"
  // Runs the nodes that are no layers, and gives its own values. May be null.
  graph::ModelRuntime* runtime = nullptr;
  // Answers the layers in place of the runtime, each on what it gave for those before. May be null.
  Subject* subject = nullptr;
  // Each layer's error in parts (Judged::split), which takes as long as the exact run.
  bool split = false;
  // With `split`: float32 outputs of a model before it was quantized, by the names of its values.
  graph::Values reference;
  // Told which row is looked at, of how many. May be null.
  std::function<void(size_t, size_t)> progress = nullptr;
};

// A layer to which the subject gave no answer that counts.
struct Unanswered {
  std::string why;  // one line
  Case c;           // of which it did not
  Outcome outcome;  // skipped, or what it did
};

struct ModelRun {
  std::vector<Row> rows;
  std::map<std::string, Unanswered, std::less<>> unanswered;  // by the values of their layers
  std::vector<End> ends;
  graph::Values values;  // ours
  int64_t moves = 0;     // nodes that are no layers, run here
  std::string by;        // who is judged, "" for nobody
  std::string refused;   // why the runtime did not run the model
  std::string state_of;  // the runtime whose values are those that the model keeps between calls
  // Outputs that the runtime gives otherwise where values between layers are not shown: it fuses
  // more then.
  std::vector<std::string> changed;
};

// Throws InputError "NAME: FIELD: what, expected what" for a broken model, and for a recorded value
// of another type or shape than the layer makes.
ModelRun RunModel(const graph::Graph& graph, const ModelOptions& options);

// What somebody gave for one case, its `observed`, as the row of a layer, with the error in parts.
// `reference`: float32, its outputs before they were quantized, in their order; or null. Throws
// InputError "FIELD: what, expected what".
Row RecordedRow(const std::string& name, const std::string& operators, const Case& c,
                const Tensor* reference);

// The value as the input of the graph takes it: int64 comes as int32, which qualm's arrays have.
// Throws InputError "NAME: FIELD: what, expected what" for another type or shape.
void FitInput(const graph::Graph& graph, const graph::Port& port, const std::string& field,
              graph::Value* value);

// Random values for the inputs that are not given: codes of every value; reals in the range of the
// QuantizeLinear that reads them, scales 2^-8 to 2^-4, else -1 to 1; integers 0 and 1. Sizes that
// the model leaves open are 1 for the first axis, else 8. Says in `*told`, line by line, what was
// drawn.
graph::Values DrawInputs(const graph::Graph& graph, const graph::Values& given, uint64_t seed,
                         std::vector<std::string>* told);

}  // namespace qualm::models

#endif  // QUALM_MODELS_RUN_H_
