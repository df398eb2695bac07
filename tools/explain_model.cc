// SPDX-License-Identifier: Apache-2.0
#include "tools/explain_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "core/io/arrays.h"
#include "core/io/case_json.h"
#include "core/io/json_text.h"
#include "core/io/model_file.h"
#include "core/io/model_runtime.h"
#include "core/io/npy.h"
#include "core/io/onnx_graph.h"
#include "core/io/shell_word.h"
#include "core/io/short_path.h"
#include "core/io/text_file.h"
#include "core/slice.h"
#include "core/status.h"
#include "models/run.h"
#include "models/told.h"
#include "oracles/exact/exact.h"
#include "properties/property.h"
#include "report/model_page.h"
#include "tools/progress.h"
#include "tools/recorded_text.h"
#include "tools/session.h"
#include "triage/identify.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;
using models::End;
using models::Judged;
using models::ModelRun;
using models::Row;

// Larger cases are cut to the first output that departs.
constexpr int64_t kMostWritten = int64_t{1} << 16;

// The values of NAME=FILE, each of a name that `known` knows.
template <class Known>
graph::Values ValuesOf(const std::string& option, const std::vector<std::string>& given,
                       const Known& known, const std::string& expected) {
  graph::Values values;
  for (const std::string& text : given) {
    const size_t split = text.rfind('=');
    if (split == std::string::npos || split == 0 || split + 1 == text.size())
      throw InputError(option + ": is " + Shown(text) + ", expected NAME=FILE.npy or NAME=FILE.pb");
    const std::string name = text.substr(0, split), file = text.substr(split + 1);
    if (!known(name)) {
      throw InputError(option + ": the model has no " + expected + " " + Shown(name) +
                       ", expected one of its names");
    }
    const std::string bytes = ReadBinaryFile(file, kMaxWeightFile);
    values[name] = file.ends_with(".pb") ? onnx::ReadTensorProto(bytes, file)
                                         : graph::Value::Of(ParseNpy(bytes, file));
  }
  return values;
}

std::string FarText(const Judged& judged, bool real) {
  return judged.exact() ? "0" : fmt::format("{:.4g}{}", judged.worst_lsb, real ? " ulp" : "");
}

bool IsReal(const Row& row) { return row.shape.starts_with("f32"); }

// What stands behind the shape of a row.
std::string RowText(const Row& row) {
  if (!row.not_run.empty()) return "not run: " + OneLine(row.not_run);
  if (!row.by.empty()) {
    return "ran by " + row.by + ", on exact inputs" +
           (row.no_layer.empty() ? "" : ": " + OneLine(row.no_layer));
  }
  if (row.judged) {
    return fmt::format("{:>9}  {:>8}  {}{}", row.judged->departing,
                       FarText(*row.judged, IsReal(row)), models::WhoseText(*row.judged),
                       row.judged->on_own_inputs ? "" : ", on exact inputs");
  }
  return row.not_judged.empty() ? "" : "not judged: " + OneLine(row.not_judged);
}

std::string OperationText(const Row& row) {
  return row.op                      ? std::string(Name(*row.op))
         : row.layer.node != nullptr ? "-"
                                     : OneLine(row.operators);
}

// Converters of TensorFlow join the names of all that became one operator.
std::string LayerName(const Row& row) {
  const std::string name = OneLine(row.name);
  return name.size() <= 48 ? name : name.substr(0, 45) + "...";
}

std::string TableText(const ModelRun& run) {
  size_t name = 5, operation = 9, shape = 6;
  for (const Row& row : run.rows) {
    name = std::max(name, LayerName(row).size());
    operation = std::max(operation, OperationText(row).size());
    shape = std::max(shape, row.shape.size());
  }
  std::string text = run.by.empty()
                         ? "exact, layer by layer\n"
                         : fmt::format("{}, layer by layer, each on its own inputs\n", run.by);
  text += fmt::format("  {:<{}}  {:<{}}  {:<{}}{}\n", "layer", name, "operation", operation,
                      "output", run.by.empty() ? 0 : shape,
                      run.by.empty() ? "" : "  not exact   at most  whose arithmetic");
  for (const Row& row : run.rows) {
    std::string line = fmt::format("  {:<{}}  {:<{}}  {:<{}}  {}", LayerName(row), name,
                                   OperationText(row), operation, row.shape, shape, RowText(row));
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text + "  " + models::SumText(run) + "\n";
}

std::string EndText(const End& end, const std::string& by) {
  if (!end.known) return fmt::format("  output {}: not known\n", OneLine(end.name));
  std::string text = fmt::format("  output {}: {}", OneLine(end.name), end.shape);
  if (!end.theirs) return text + "\n";
  if (end.departing == 0) return text + ", end to end the same bits as " + by + "\n";
  return text + fmt::format(", end to end {} of {} differ from {}, by {:.4g}{} at most\n",
                            end.departing, end.elements, by, end.worst, end.real ? "" : " codes");
}

std::string FileName(size_t number, const std::string& name, size_t part, size_t parts) {
  std::string text = OneLine(name);
  std::ranges::replace_if(
      text, [](char ch) { return ch == '/' || ch == ' ' || ch == ':' || ch == '\\' || ch == '\''; },
      '_');
  while (text.starts_with('.') || text.starts_with('_')) text.erase(0, 1);
  return fmt::format("{:03}-{}{}.case.json", number, text.substr(0, 80),
                     parts == 1 ? "" : fmt::format("-{}", part + 1));
}

// Why no layer was judged.
std::string WhyNothing(const ModelRun& run, const std::string& absent) {
  if (!absent.empty() && run.by.empty()) return absent + " (--no-runtime: exact results alone)";
  if (!run.refused.empty()) return "the runtime does not run this model: " + run.refused;
  for (const Row& row : run.rows) {
    if (!row.not_judged.empty()) return OneLine(row.not_judged);
    if (!row.no_layer.empty()) return OneLine(row.no_layer);
    if (!row.not_run.empty()) return OneLine(row.not_run);
  }
  return "no layer of the model is one that qualm knows";
}

// The case as a file has it: cut to one output where it is large.
Case Written(const Case& c, const Row& row) {
  Case file = c;
  const std::optional<Divergence> first = FirstDivergence(exact::Evaluate(c), c.observed->y);
  if (c.observed->y.size() > kMostWritten && first) {
    file = slice::OneOutput(c, first->index);
    Tensor y(c.out_dtype, file.output_shape());
    if (y.size() == 1) {
      y.SetBits(0, c.observed->y.BitsAt(first->index));
      file.observed = Observed{c.observed->by, std::move(y)};
    }
  }
  file.note = OneLine(row.name) + ": " + OneLine(row.operators);
  return file;
}

}  // namespace

void AddModelOptions(Verb& verb, ModelOptions& options) {
  verb.Texts(
      "--input", options.inputs,
      "NAME=FILE.npy or .pb (a TensorProto), an input of the model (repeatable; default: random)");
  verb.Texts(
      "--observed", options.observed,
      "NAME=FILE.npy or .pb, what somebody's runtime gave for a value of the model (repeatable)");
  verb.Seed(options.seed);
  verb.Text("--runtime", options.runtime,
            "of an .onnx: onnxruntime (the default), onnxruntime@npm (where that is absent); of a "
            ".tflite: tflite (the default, with XNNPACK), tflite@builtin, tflite@reference");
  verb.Text("--page", options.page,
            "FILE.html, the layers of a model as a page: each error in parts, histograms");
  verb.Flag("--no-runtime", options.no_runtime, "do not ask a runtime about a model");
}

int RunExplainGraph(const CommonOptions& common, const ModelOptions& options,
                    const std::string& path) {
  Session session(common);
  const std::vector<std::string> names = SubjectNames(common.subjects, {});
  if (names.size() > 1) {
    throw InputError(fmt::format("--subject: are {}, expected one to answer the layers of a model",
                                 names.size()));
  }
  if (!names.empty() && !options.observed.empty()) {
    throw InputError(
        "--observed: is what somebody gave, expected no --subject, which is asked for it");
  }
  const graph::ModelFile file_of_model = graph::ReadModelFile(path);
  const graph::Graph& graph = *file_of_model.graph;
  models::ModelOptions run_options;
  const auto is_input = [&](const std::string& name) {
    return std::ranges::find(graph.inputs(), name, &graph::Port::name) != graph.inputs().end();
  };
  run_options.inputs = ValuesOf("--input", options.inputs, is_input, "input");
  for (const graph::Port& port : graph.inputs()) {
    const auto given = run_options.inputs.find(port.name);
    if (given != run_options.inputs.end()) models::FitInput(graph, port, "--input", &given->second);
  }
  run_options.recorded = ValuesOf(
      "--observed", options.observed,
      [&](const std::string& name) { return graph.MakerOf(name) != nullptr; }, "value");
  run_options.by = "observed";
  std::vector<std::string> told;
  run_options.inputs = models::DrawInputs(graph, run_options.inputs, options.seed, &told);
  std::unique_ptr<graph::ModelRuntime> runtime;
  std::string absent;
  if (!options.no_runtime) {
    try {
      runtime = graph::MakeModelRuntime(graph.format(), options.runtime);
    } catch (const Unavailable& reason) {
      absent = reason.what();
    }
  }
  run_options.runtime = runtime.get();
  session.Open(names, "");
  if (!names.empty()) run_options.subject = session.subjects.front().get();
  run_options.split = !common.json.empty() || !options.page.empty();
  RequireFolder("--output", common.output);
  RequireWritable(common, {{"--page", options.page}}, {path});
  auto progress = std::make_unique<StepProgress>("explaining: ");
  run_options.progress = [&](size_t at, size_t of) {
    progress->At(static_cast<double>(at) / static_cast<double>(std::max<size_t>(of, 1)),
                 fmt::format("step {} of {}", at + 1, of));
  };
  const ModelRun run = models::RunModel(graph, run_options);
  progress.reset();
  session.Begin("", told.empty() ? std::nullopt : std::optional(options.seed));

  std::vector<std::vector<std::string>> files(run.rows.size());
  if (!common.output.empty()) MakeFolder("--output", common.output);
  std::string details;
  for (size_t i = 0; i < run.rows.size(); ++i) {
    const Row& row = run.rows[i];
    ++session.totals.cases;
    if (const auto none = run.unanswered.find(row.value);
        none != run.unanswered.end() && row.op && !row.judged) {
      const std::optional<Verdict> bad = BadOutcome(none->second.outcome);
      session.totals.Add(bad->judgement);
      if (bad->failed())
        session.document.findings.emplace_back(none->second.c, "matches_exact", run.by, *bad, path);
    }
    if (!row.judged) continue;
    session.totals.Add(row.judged->right() ? Judgement::kPassed : Judgement::kFailed);
    const std::vector<Case>& differing = row.judged->differing;
    for (size_t part = 0; part < differing.size(); ++part) {
      const Case& c = differing[part];
      std::string file = path;
      if (!common.output.empty()) {
        file = (fs::path(common.output) / FileName(i, row.name, part, differing.size())).string();
        WriteCaseFile(Written(c, row), file);
        files[i].push_back(file);
      }
      const std::string whose =
          row.judged->conventions.empty()
              ? "no known arithmetic gives it"
              : "the arithmetic of " + triage::ConventionsText(row.judged->conventions);
      session.document.findings.emplace_back(
          c, "matches_exact", run.by,
          Verdict::Failed(row.judged->diagnosis.empty() ? whose : row.judged->diagnosis,
                          FirstDivergence(exact::Evaluate(c), c.observed->y)),
          file);
    }
    if (row.judged->right()) continue;
    if (!row.judged->diagnosis.empty())
      details += fmt::format("  {}: {}\n", OneLine(row.name), row.judged->diagnosis);
    if (!files[i].empty())
      details += fmt::format("  {}: qualm explain {}{}\n", OneLine(row.name),
                             ShellWord(ShortPath(files[i].front())),
                             names.empty() ? "" : " --subject " + ShellWord(names.front()));
  }

  session.Print("{}: {}\n", ShortPath(path),
                fmt::format("{} in the graph", Plural(std::ssize(graph.nodes()), "node")));
  for (const std::string& line : told)
    session.Print("  input {} (--seed {})\n", line, options.seed);
  if (!absent.empty() && names.empty()) session.Print("  exact results alone: {}\n", absent);
  if (!run.refused.empty())
    session.Print("  {} does not run this model: {}\n", runtime->name(), run.refused);
  session.Print("{}", TableText(run));
  for (const End& end : run.ends) session.Print("{}", EndText(end, run.by));
  const std::vector<std::string> notes = models::NotesOf(run);
  for (const std::string& note : notes) session.Print("  note: {}\n", note);
  session.Print("{}", details);
  if (!options.page.empty()) {
    std::vector<std::string> said;
    for (const std::string& line : told)
      said.push_back(fmt::format("input {} (--seed {})", line, options.seed));
    if (!absent.empty() && names.empty()) said.push_back("exact results alone: " + absent);
    said.insert(said.end(), notes.begin(), notes.end());
    WriteTextFile(options.page, report::ModelPage(run, path, said));
    session.Print("  page: {}\n", ShellWord(ShortPath(options.page)));
  }
  session.document.extra.emplace_back("model", models::ModelJson(run, path, told, files));
  session.Write();
  // Exact results alone are what --no-runtime asks for.
  const bool asks = !options.no_runtime || !options.observed.empty() || !names.empty();
  if (asks && !session.Judged(WhyNothing(run, absent))) return kBadInput;
  return session.document.findings.empty() ? kClean : kFindings;
}

}  // namespace qualm::tools
