// SPDX-License-Identifier: Apache-2.0
// qualm exhaust: every input of an operation, with a certificate that anyone can check again.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>

#include "core/float_text.h"
#include "core/io/case_json.h"
#include "core/io/certificate_json.h"
#include "core/io/text_file.h"
#include "core/status.h"
#include "proofs/run.h"
#include "tools/command.h"
#include "tools/ops.h"
#include "tools/progress.h"
#include "tools/session.h"
#include "tools/stop.h"

namespace qualm::tools {
namespace {

struct Options : CommonOptions {
  std::vector<std::string> cases;
  std::string op;
  // Parameters in place of a case; "" where not given.
  std::string scale, x_scale, w_scale, multiplier, dtype = "u8", function, weights;
  std::optional<int64_t> zero_point, x_zero_point, w_zero_point, out_min, out_max;
  bool relu = false;

  std::string scales, zero_points;
  bool full = false, each = false, intervals = false;
  int64_t full_every = 0, per_call = 0;
  int jobs = 1;
  std::string shard, state, output, worst, verify;
  std::vector<std::string> merge;
};

float ReadScale(const std::string& option, const std::string& text) {
  const std::optional<float> value = ParseFloatText(text);
  if (!value || !std::isfinite(*value) || *value <= 0)
    throw InputError(option + ": '" + text + "' is no scale, expected a float32 above 0");
  return *value;
}

std::vector<int32_t> ReadIntegers(const std::string& option, const std::string& text) {
  std::vector<int32_t> values;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const auto value = ParseInteger<int32_t>(std::string_view(text).substr(at, end - at));
    if (!value) throw InputError(option + ": '" + text + "' is no list, expected W,W,...");
    values.push_back(*value);
    at = end + 1;
  }
  return values;
}

// Rows of two weights.
Tensor ReadWeights(const std::string& text) {
  const std::vector<int32_t> values = ReadIntegers("--weights", text);
  const bool fit = std::ranges::all_of(values, [](int32_t v) { return v >= -128 && v <= 127; });
  if (values.size() % 2 != 0 || !fit)
    throw InputError("--weights: '" + text + "' are no pairs of s8 codes, expected W,W[,W,W...]");
  Tensor weights(DType::kS8, {static_cast<int64_t>(values.size()) / 2, 2});
  for (size_t i = 0; i < values.size(); ++i) weights.SetInt(static_cast<int64_t>(i), values[i]);
  return weights;
}

// The problem that the options describe.
Case CaseOf(const Options& options) {
  const Op op = OpNamed(options.op, "--op");
  const OpRow& row = RowOf(op);
  const std::optional<DType> codes = ParseDType(options.dtype);
  const auto takes = [&](const DTypeList& types) { return types.contains(*codes); };
  if (!codes || !IsCode(*codes) || IsSmallCode(*codes) ||
      (!takes(row.x_types) && !takes(row.out_types))) {
    throw InputError(
        "--dtype: is '" + options.dtype +
        "', expected u8 or s8; of quantize, dequantize and requantize also s16 or u16");
  }
  Case c;
  c.op = op;
  c.M = c.N = 1;
  c.x = Tensor(row.x_types.contains(*codes) ? *codes : row.x_types.front(), {0});
  c.out_dtype = row.out_types.contains(*codes) ? *codes : row.out_types.front();
  if (HasSums(op)) {
    c.K = 2;
    c.w = Tensor(DType::kS8, {0});
    if (options.weights.empty()) c.out_dtype = DType::kS32;
  }
  if (!options.weights.empty()) {
    c.w = ReadWeights(options.weights);
    c.N = c.w.shape()[0];
  }
  const auto set = [](QParams& q, const char* option, const std::string& scale,
                      const std::optional<int64_t>& zero_point) {
    if (!scale.empty()) q.scale = {ReadScale(option, scale)};
    if (zero_point) q.zero_point = {static_cast<int32_t>(*zero_point)};
  };
  set(c.x_q, "--x-scale", options.x_scale, options.x_zero_point);
  set(c.w_q, "--w-scale", options.w_scale, options.w_zero_point);
  // The only scale of dequantize is that of x.
  set(HasOutQParams(op) ? c.out_q : c.x_q, "--scale", options.scale, options.zero_point);
  if (!options.multiplier.empty()) c.multiplier = {ReadScale("--multiplier", options.multiplier)};
  const CodeRange range = RangeOf(c.out_dtype);
  c.out_min = static_cast<int32_t>(options.out_min.value_or(range.min));
  c.out_max = static_cast<int32_t>(options.out_max.value_or(range.max));
  c.relu = options.relu;
  if (!options.function.empty()) {
    const std::optional<Function> function = Parse<Function>(options.function);
    if (!function) throw InputError("--function: '" + options.function + "' is no function");
    c.function = *function;
  }
  return c;
}

// A:B, both included.
std::pair<std::string, std::string> ReadRange(const std::string& option, const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos)
    throw InputError(option + ": '" + text + "' is no range, expected FIRST:LAST");
  return {text.substr(0, colon), text.substr(colon + 1)};
}

Certificate::Scales ReadScales(const std::string& text) {
  constexpr std::string_view kBinade = "binade:";
  if (text.starts_with(kBinade)) {
    int exponent = 0;
    const float scale = ReadScale("--scales", text.substr(kBinade.size()));
    const float low = std::ldexp(1.0f, (std::frexp(scale, &exponent), exponent - 1));
    if (low < std::numeric_limits<float>::min())
      throw InputError("--scales: '" + text + "' is denormal, expected FIRST:LAST there");
    return {low, std::bit_cast<float>(std::bit_cast<uint32_t>(low) | 0x7F'FFFF), 1};
  }
  const auto [first, rest] = ReadRange("--scales", text);
  const size_t colon = std::min(rest.find(':'), rest.size());
  Certificate::Scales scales{ReadScale("--scales", first),
                             ReadScale("--scales", rest.substr(0, colon)), 1};
  if (colon < rest.size()) {
    const auto stride = ParseInteger<int32_t>(std::string_view(rest).substr(colon + 1));
    if (!stride || *stride < 1)
      throw InputError("--scales: '" + text + "' has no stride, expected FIRST:LAST:STRIDE");
    scales.stride = *stride;
  }
  if (scales.last < scales.first)
    throw InputError("--scales: '" + text + "' ends before it begins");
  return scales;
}

Certificate::ZeroPoints ReadZeroPoints(const std::string& text, const Case& c) {
  if (text == "all") {
    const CodeRange range = RangeOf(IsCode(c.out_dtype) ? c.out_dtype : c.x.dtype());
    return {range.min, range.max};
  }
  const auto [first, last] = ReadRange("--zero-points", text);
  const auto from = ParseInteger<int32_t>(first), to = ParseInteger<int32_t>(last);
  if (!from || !to || *to < *from)
    throw InputError("--zero-points: '" + text + "' is no range, expected all or FIRST:LAST");
  return {*from, *to};
}

// The domain and the method to judge by, without the subject.
Certificate PlanOf(const Options& options) {
  Certificate plan;
  std::vector<Case> problems;
  if (options.cases.empty()) {
    if (options.op.empty()) throw InputError("--op: is missing, expected an operation or a CASE");
    problems = {CaseOf(options)};
  }
  for (const std::string& path : options.cases) {
    const Case c = ReadCaseFile(path);
    try {
      const Op op = options.op.empty() ? c.op : OpNamed(options.op, "--op");
      for (Case& problem : proofs::ProblemsFor(c, op)) problems.push_back(std::move(problem));
    } catch (const InputError& error) {
      throw InputError(path + ": " + error.what());
    }
  }
  if (!options.scales.empty()) plan.scales = ReadScales(options.scales);
  if (!options.zero_points.empty())
    plan.zero_points = ReadZeroPoints(options.zero_points, problems.front());
  plan.per_call = options.per_call;
  plan.qualm = QUALM_VERSION;
  proofs::Plan(problems,
               options.each        ? Certificate::Method::kEach
               : options.intervals ? Certificate::Method::kIntervals
               : options.full      ? Certificate::Method::kFull
                                   : Certificate::Method::kSteps,
               &plan);
  return plan;
}

void FillIn(Certificate* plan, const Subject& subject) {
  plan->subject = subject.name();
  plan->version = subject.Version();
  plan->instruction_set = subject.InstructionSet();
}

auto ShownIn(Progress& progress) {
  return [&progress](int64_t done, int64_t all, int64_t wrong) {
    progress.Show(static_cast<double>(done) / static_cast<double>(std::max<int64_t>(all, 1)),
                  fmt::format("{} of {}, {} wrong", done, all, wrong));
  };
}

std::optional<Finding> FindingOfCertificate(const Certificate& c) {
  if (!c.worst) return std::nullopt;
  const proofs::Domain domain(proofs::ProblemAt(c, c.worst->set));
  const auto [alone, at] = domain.Alone(static_cast<uint64_t>(c.worst->number));
  Verdict verdict = Verdict::Failed(fmt::format("{} of {} outputs are wrong", c.wrong, c.judged));
  const auto shown = [&](int64_t value) {
    return domain.problem().out_dtype == DType::kF32
               ? FloatText(std::bit_cast<float>(static_cast<uint32_t>(value)))
               : fmt::format("{}", value);
  };
  verdict.divergence = Divergence{at, shown(c.worst->expected), shown(c.worst->actual),
                                  static_cast<double>(c.worst->distance)};
  Case wrong = alone;
  wrong.contract = c.contract;
  return Finding(wrong, c.contract == "exact" ? "matches_exact" : "matches_model", c.subject,
                 verdict);
}

// The kind of a failure that is the subject's own, if `failed` (Tally::failed) is such a failure.
std::optional<FindingKind> KindOf(const std::string& failed) {
  const auto is = [&](RunStatus status) {
    return failed.starts_with(std::string(Name(status)) + ": ");
  };
  if (is(RunStatus::kCrashed)) return FindingKind::kCrash;
  if (is(RunStatus::kHung)) return FindingKind::kHang;
  if (is(RunStatus::kRefused) || is(RunStatus::kGarbage)) return FindingKind::kUnknown;
  const bool memory = is(RunStatus::kTouchedOutside) || is(RunStatus::kModifiedInput) ||
                      failed.starts_with("wrote outside");
  return memory ? std::optional(FindingKind::kMemory) : std::nullopt;
}

// The part of [0, whole) that a shard judges.
struct Part {
  int64_t first = 0, last = INT64_MAX;
};
Part PartOf(const std::string& shard, const Certificate& plan) {
  if (shard.empty()) return {};
  const size_t slash = std::min(shard.find('/'), shard.size());
  const auto index = ParseInteger<int64_t>(std::string_view(shard).substr(0, slash));
  const auto count =
      ParseInteger<int64_t>(std::string_view(shard).substr(std::min(slash + 1, shard.size())));
  if (!index || !count || *index < 0 || *index >= *count || *count > 1 << 20)
    throw InputError("--shard: '" + shard + "' is no shard, expected I/N with 0 <= I < N");
  const bool single = proofs::SetsOf(plan) == 1;
  if (single && proofs::TakesSteps(plan))
    throw InputError("--shard: a few hundred questions are no work to share, expected --full");
  const int64_t granule =
      single ? static_cast<int64_t>(proofs::Domain(proofs::ProblemAt(plan, 0)).granule()) : 1;
  const int64_t granules = plan.whole / granule;
  return {granules * *index / *count * granule, granules * (*index + 1) / *count * granule};
}

// Continues the work that an earlier run left in the state file.
void Continue(const std::string& path, Certificate* plan) {
  if (path.empty() || !std::filesystem::exists(path)) return;
  Certificate earlier = ReadCertificateFile(path);
  if (!proofs::SamePlan(earlier, *plan))
    throw InputError(path +
                     ": is the state of another run, expected one of this subject, problem "
                     "and method");
  *plan = std::move(earlier);
}

proofs::RunOptions RunOptionsOf(const Options& options, const Subject& subject) {
  proofs::RunOptions run;
  run.jobs = options.jobs;
  run.full_every = options.full_every;
  run.make = [name = std::string(subject.name())] { return SubjectRegistry::Get().Make(name); };
  run.stop = [] { return Stopped(); };
  return run;
}

// Judges one subject; "" or the reason why it could not be judged.
std::string JudgeOne(const Options& options, const Subject& subject, const Part& part,
                     Certificate* certificate) {
  proofs::RunOptions run = RunOptionsOf(options, subject);
  run.first = part.first;
  run.last = part.last;
  const Stopwatch stopwatch;
  Progress progress("judging: ");
  double saved = 0;
  if (!options.state.empty()) {
    run.save = [&](const Certificate& so_far) {
      if (stopwatch.seconds() - saved < 5) return;
      saved = stopwatch.seconds();
      WriteTextFile(options.state, CertificateToJson(so_far));
    };
  }
  run.progress = ShownIn(progress);
  const std::string failed = proofs::Exhaust(certificate, run);
  if (!options.state.empty()) WriteTextFile(options.state, CertificateToJson(*certificate));
  Tell("{}: {:.3f} s", subject.name(), stopwatch.seconds());
  return failed;
}

void Report(Session& session, const Options& options, const Certificate& certificate,
            JsonList& blocks) {
  session.Print("{}", proofs::SummaryOf(certificate));
  session.totals.Add(certificate.wrong == 0 ? Judgement::kPassed : Judgement::kFailed);
  if (auto finding = FindingOfCertificate(certificate)) {
    if (!options.worst.empty()) {
      session.deferred.Try("--worst", [&] { WriteCaseFile(finding->test_case, options.worst); });
      finding->case_file = options.worst;
    }
    session.document.findings.push_back(std::move(*finding));
  }
  if (!options.output.empty()) {
    session.deferred.Try("--output",
                         [&] { WriteTextFile(options.output, CertificateToJson(certificate)); });
  }
  blocks.Add(CertificateJson(certificate));
}

int RunMerge(const Options& options) {
  Session session(options);
  RequireWritable(options, {{"--output", options.output}}, options.merge);
  Certificate merged = ReadCertificateFile(options.merge.front());
  for (size_t i = 1; i < options.merge.size(); ++i) {
    try {
      merged = proofs::Merged(merged, ReadCertificateFile(options.merge[i]));
    } catch (const InputError& error) {
      const std::string what = error.what();
      throw InputError(what.starts_with(options.merge[i]) ? what : options.merge[i] + ": " + what);
    }
  }
  JsonList blocks;
  Report(session, options, merged, blocks);
  session.document.extra.emplace_back("exhaust", blocks);
  return session.End("");
}

// A certificate is about one library on one instruction set; another one is refused in one line.
// Who wrote it is told: all is judged again, so that what holds holds for this program too.
void RequireFits(const std::string& path, const Certificate& certificate, const Certificate& here) {
  const auto require = [&](const char* field, const std::string& was, const std::string& is) {
    if (was != is)
      throw InputError(
          fmt::format("{}: {}: is '{}', expected '{}', which is here", path, field, was, is));
  };
  const auto tell = [&](const char* field, const std::string& was, const std::string& is) {
    if (was != is) Tell("{}: {}: is '{}', here it is '{}'", path, field, was, is);
  };
  require("version", certificate.version, here.version);
  require("instruction_set", certificate.instruction_set, here.instruction_set);
  tell("qualm", certificate.qualm, here.qualm);
  tell("compiler", certificate.compiler, here.compiler);
}

int RunVerify(const Options& options) {
  Session session(options);
  const Certificate certificate = ReadCertificateFile(options.verify);
  session.Open({certificate.subject}, certificate.contract);
  const Subject& subject = *session.subjects.front();
  Certificate here = certificate;
  here.qualm = QUALM_VERSION;
  here.compiler = proofs::Compiler();
  FillIn(&here, subject);
  RequireFits(options.verify, certificate, here);
  here.judged = here.asked = here.wrong = here.wrong_nan = 0;
  here.first.reset();
  here.worst.reset();
  here.covered.clear();
  try {
    if (proofs::WholeOf(certificate) != certificate.whole)
      throw InputError(fmt::format("whole: is {}, expected {}", certificate.whole,
                                   proofs::WholeOf(certificate)));
  } catch (const InputError& error) {
    throw InputError(options.verify + ": " + error.what());
  }
  session.Begin();
  StopOnSignals();
  Progress progress("judging: ");
  std::string failed;
  for (const auto& [first, last] : certificate.covered) {
    proofs::RunOptions run = RunOptionsOf(options, subject);
    run.first = first;
    run.last = last;
    run.progress = ShownIn(progress);
    if (failed.empty()) failed = proofs::Exhaust(&here, run);
  }
  here.monotone = certificate.monotone;
  here.qualm = certificate.qualm;
  here.compiler = certificate.compiler;
  here.asked = certificate.asked;  // a search may take another way
  const bool holds = failed.empty() && here == certificate;
  session.Print("{}{}: {}\n", proofs::SummaryOf(here), options.verify,
                holds            ? "holds"
                : failed.empty() ? fmt::format("does not hold: {} wrong outputs were certified",
                                               certificate.wrong)
                                 : "could not be checked: " + failed);
  session.totals.Add(holds ? Judgement::kPassed : Judgement::kFailed);
  if (!holds) {
    session.document.findings.emplace_back(
        here.problems[0], "certificate_holds", certificate.subject,
        Verdict::Failed(failed.empty() ? "the certificate does not hold" : failed));
  }
  JsonList blocks;
  blocks.Add(CertificateJson(here));
  session.document.extra.emplace_back("exhaust", blocks);
  return session.End("");
}

int RunExhaust(const Options& options) {
  if (!options.verify.empty()) return RunVerify(options);
  if (!options.merge.empty()) return RunMerge(options);
  Session session(options);
  if (options.subjects.empty()) throw InputError("--subject: is missing, expected one");
  Certificate plan = PlanOf(options);
  const Op op = plan.problems[0].op;
  session.Open(SubjectNames(options.subjects, {}),
               options.contract == "own" ? "" : ContractFor(options, op, Contract{}).text());
  const bool files = !options.output.empty() || !options.state.empty() || !options.worst.empty();
  if (files && session.subjects.size() > 1)
    throw InputError("--output, --state, --worst: name one file, expected one --subject");
  RequireWritable(options, {{"--output", options.output}, {"--worst", options.worst}},
                  options.cases);
  std::vector<Certificate> certificates;
  for (const auto& subject : session.subjects) {
    Certificate& certificate = certificates.emplace_back(plan);
    certificate.contract = subject->contract(op).text();
    FillIn(&certificate, *subject);
    Continue(options.state, &certificate);
  }
  const Part part = PartOf(options.shard, plan);
  session.Begin();
  StopOnSignals();
  session.totals.cases = 1;
  JsonList blocks;
  std::string why;
  for (size_t i = 0; i < certificates.size(); ++i) {
    Certificate& certificate = certificates[i];
    const auto& subject = session.subjects[i];
    const std::string failed = JudgeOne(options, *subject, part, &certificate);
    if (failed.empty()) {
      Report(session, options, certificate, blocks);
      continue;
    }
    why = failed;
    session.Print("{}: {}\n", subject->name(), failed);
    const std::optional<FindingKind> kind = KindOf(failed);
    session.totals.Add(kind ? Judgement::kFailed : Judgement::kSkipped);
    if (!kind) continue;
    Verdict verdict = Verdict::Failed(failed);
    verdict.kind = kind;
    session.document.findings.emplace_back(certificate.problems[0], "answers_every_input",
                                           subject->name(), verdict);
  }
  session.document.extra.emplace_back("exhaust", blocks);
  return session.End(why);
}

}  // namespace

void AddExhaust(CLI::App& app, Run* run) {
  auto options = std::make_shared<Options>();
  Verb verb(app, run, "exhaust",
            "every input of an operation: a proof, or the inputs that are wrong",
            "Example: qualm exhaust --op quantize --scale 0x1.99999ap-5 --zero-point 3 --subject "
            "native@all --full");
  const auto text = [&](const char* name, std::string& value, const char* help) {
    return verb.Text(name, value, help);
  };
  const auto integer = [&](const char* name, std::optional<int64_t>& value, const char* help) {
    verb.Integer(name, [&value](int64_t read) { value = read; }, INT32_MIN, INT32_MAX, help);
  };
  verb.Texts("CASE", options->cases,
             "cases that give the parameters; with --op those of a part of them");
  AddSubjectOption(verb, *options, false);
  text("--op", options->op,
       "quantize, dequantize, requantize, rescale, add, sub, mul, table; linear with two weights "
       "for each channel, or over all weights");
  text("--scale", options->scale, "of the output; of dequantize: of x");
  integer("--zero-point", options->zero_point, "likewise");
  text("--x-scale", options->x_scale, "of x, or of a");
  integer("--x-zero-point", options->x_zero_point, "likewise");
  text("--w-scale", options->w_scale, "of w, or of b");
  integer("--w-zero-point", options->w_zero_point, "likewise");
  text("--multiplier", options->multiplier, "of requantize");
  text("--weights", options->weights, "of linear: W,W for each channel, e.g. 127,127,-128,1");
  text("--function", options->function, "of table: relu, hardswish, sigmoid, ...");
  text("--dtype", options->dtype,
       "of codes: u8 or s8; of quantize, dequantize and requantize also s16 or u16");
  integer("--out-min", options->out_min, "lower clamp");
  integer("--out-max", options->out_max, "upper clamp");
  verb.Flag("--relu", options->relu, "fused relu");
  text("--scales", options->scales,
       "each float32 scale of binade:S or of FIRST:LAST[:STRIDE]: the multiplier of requantize, "
       "the scale of the output of quantize, else that of x");
  text("--zero-points", options->zero_points, "each zero point of FIRST:LAST, or all");
  verb.Flag("--full", options->full, "ask every input, not only those beside a step");
  verb.Flag("--each", options->each,
            "ask every input, and compute what to expect of each by itself");
  verb.Flag("--intervals", options->intervals,
            "take the steps, and show them by evaluating the subject's arithmetic on intervals");
  verb.Integer("--full-every", options->full_every, 1, int64_t{1} << 40,
               "with --scales: judge every N-th parameter set in full too");
  verb.Integer("--per-call", options->per_call, 1, int64_t{1} << 28,
               "outputs of one call of the subject");
  verb.Integer("--jobs,-j", options->jobs, 1, 256, "threads");
  text("--shard", options->shard, "I/N: the I-th of N equal parts; --merge joins them");
  text("--state", options->state, "file that a run which was stopped continues from");
  text("--output,-o", options->output, "write the certificate into this file");
  text("--worst", options->worst, "write the worst wrong input into this file, as a case");
  text("--verify", options->verify, "check a certificate again");
  verb.Texts("--merge", options->merge, "join the certificates of shards").TakesMany();
  AddOutputOptions(verb, *options);
  text("--contract", options->contract,
       "judge against exact (the default), model:NAME, or own: what each subject promises; "
       "OP=CONTRACT for one operation (repeatable)")
      .Joined();
  verb.Does([options] { return RunExhaust(*options); });
}

}  // namespace qualm::tools
