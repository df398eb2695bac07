// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/pipe.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/finding.h"
#include "core/status.h"

namespace qualm {
namespace {

constexpr std::string_view kPrefix = "pipe:";

PluginLimits LimitsOf(const PipeOp& op) {
  // Where the child states no range of zero points, the codes of each tensor's type are the range:
  // CannotSend checks it.
  const CodeRange any{INT32_MIN, INT32_MAX};
  PluginLimits limits{.x_dtypes = static_cast<uint32_t>(op.x.to_ulong()),
                      .w_dtypes = static_cast<uint32_t>(op.w.to_ulong()),
                      .out_dtypes = static_cast<uint32_t>(op.out.to_ulong()),
                      .m_max = op.m_max,
                      .n_max = op.n_max,
                      .k_max = op.k_max,
                      .n_multiple = op.n_multiple,
                      .k_multiple = op.k_multiple,
                      .x_zero_point_min = op.x_zp.value_or(any).min,
                      .x_zero_point_max = op.x_zp.value_or(any).max,
                      .w_zero_point_min = op.w_zp.value_or(any).min,
                      .w_zero_point_max = op.w_zp.value_or(any).max,
                      .out_zero_point_min = op.out_zp.value_or(any).min,
                      .out_zero_point_max = op.out_zp.value_or(any).max};
  for (size_t i = 0; i < kPipeFeatureCount; ++i) {
    if (op.features[i]) limits.features |= FeatureBit(static_cast<PipeFeature>(i));
  }
  if (op.w_formats != 0) limits.TakeFormats(op.w_formats);
  return limits;
}

PluginInfo InfoOf(const PipeHello& hello) {
  PluginInfo info;
  info.name = CleanText(hello.name);
  info.version = CleanText(hello.version);
  info.contract = CleanContract(hello.contract);
  info.instruction_set = CleanText(hello.instruction_set);
  for (size_t op = 0; op < kOpCount; ++op) {
    if (!hello.ops[op]) continue;
    info.limits[op] = LimitsOf(*hello.ops[op]);
    info.domains[op] = hello.ops[op]->domain;
  }
  return info;
}

// Most bytes that a number of the type takes in a list.
size_t BytesPerValue(DType dtype) {
  switch (dtype) {
    case DType::kU2:
    case DType::kS2:
    case DType::kU4:
    case DType::kS4:
    case DType::kU8:
    case DType::kS8: return 6;  // "-128, "
    case DType::kU16:
    case DType::kS16: return 8;
    case DType::kS32: return 13;
    default: break;
  }
  return 22;  // "-0x1.fffffep-126" with quotes, ", "
}

std::string TooLong(const PipeOp& op, const Case& c) {
  size_t outputs = 1;
  for (const int64_t dim : c.output_shape()) outputs *= static_cast<size_t>(dim);
  constexpr size_t kRest = 4096;
  const size_t request = static_cast<size_t>(c.x.size()) * BytesPerValue(c.x.dtype()) +
                         static_cast<size_t>(c.w.size()) * BytesPerValue(c.w.dtype()) +
                         ListedValues(c) * BytesPerValue(DType::kF32) + kRest;
  // Padded to whole super-blocks, in base64: at most two characters for each code.
  const size_t packed =
      op.w_formats == 0 ? 0 : static_cast<size_t>((c.M + c.N) * (c.K + 256)) * 2 + kRest;
  const size_t answer = outputs * BytesPerValue(c.out_dtype) + kRest;
  if (std::max(request + packed, answer) <= kPipeLineBytesMax) return "";
  return "longer than a line of a pipe may be (" + std::to_string(kPipeLineBytesMax >> 20) +
         " MiB)";
}

// The child places its data itself, so alignment, guard pages and poison do not matter.
constexpr StateLimits kThroughAPipe =
    std::to_array<StateLimit>({{""},                                             // align_offset
                               {""},                                             // end_at_guard
                               {""},                                             // poison
                               {"a pipe has no strides"},                        // x_row_gap
                               {"a pipe has no strides"},                        // y_row_gap
                               {"nothing runs in place through a pipe"},         // in_place
                               {"a pipe has no strides"},                        // w_row_gap
                               {"a pipe has no strides"},                        // x_line_gap
                               {"places its operands itself"},                   // over_w
                               {"places its operands itself"},                   // shared_inputs
                               {"is asked one case at a time"},                  // calls
                               {"is asked one case at a time"},                  // callers
                               {"is a process of its own"},                      // watch
                               {"is not told how many threads to use"},          // threads
                               {"has a floating-point environment of its own"},  // rounding
                               {"has a floating-point environment of its own"},  // flush_denormals
                               {""}});                                           // want_acc

// The same outcome, with one clean line for the reason that the child gave.
Outcome Cleaned(Outcome outcome) {
  if (outcome.status != RunStatus::kSkipped && outcome.status != RunStatus::kRefused)
    return outcome;
  outcome.detail = CleanText(outcome.detail);
  if (outcome.detail.empty()) outcome.detail = "gave no reason";
  return outcome;
}

}  // namespace

PipeSubject::PipeSubject(std::string name, PipeOptions options) : ForeignSubject(std::move(name)) {
  options.time_limit_ms = TimeLimitMs(options.time_limit_ms);
  options.memory_limit_bytes = MemoryLimitBytes(options.memory_limit_bytes);
  try {
    child_ = std::make_unique<PipeChild>(std::move(options));
  } catch (const Unavailable& error) {
    throw Unavailable("subject '" + std::string(this->name()) + "': " + error.what());
  }
  info_ = InfoOf(child_->hello());
  AdoptContract();
}

const PipeOp& PipeSubject::Offered(Op op) const {
  return *child_->hello().ops[static_cast<size_t>(op)];
}

PipeChild::Question PipeSubject::QuestionOf(const Case& c, const RunContext& context) const {
  const bool has_acc = Offered(c.op).features[static_cast<size_t>(PipeFeature::kAcc)];
  const FormatSet formats = Offered(c.op).w_formats;
  return {.problem = &c,
          .want_acc = context.want_acc && has_acc,
          .format = formats == 0 ? nullptr : &FormatFor(formats, c)};
}

std::string PipeSubject::CannotSend(const Case& c) const {
  if (const std::string missing = NotTold(kToldWithCases, c); !missing.empty())
    return "pipes have no " + missing;
  const PipeOp& op = Offered(c.op);
  std::string why;
  if (!op.x_zp) why = BeyondCodes("x", c.x_q, c.x.dtype());
  if (why.empty() && HasW(c.op) && !op.w_zp && op.w_formats == 0)
    why = BeyondCodes("w", c.w_q, c.w.dtype());
  if (why.empty() && !op.out_zp) why = BeyondCodes("out", c.out_q, c.out_dtype);
  if (RowOf(c.op).rule && !op.rules[static_cast<size_t>(c.rule)])
    why = "qparams_rule " + std::string(Name(c.rule));
  if (!why.empty()) return info_.name + " does not offer " + why;
  return TooLong(op, c);
}

Outcome PipeSubject::RunRaw(const Case& c, const RunContext& context) {
  if (std::string why = Refused(kThroughAPipe, context); !why.empty())
    return Skipped(std::move(why));
  const PipeChild::Question question = QuestionOf(c, context);
  return Cleaned(std::move(child_->Ask({&question, 1}).front()));
}

std::string PipeSubject::WhyNoDot() const {
  return child_->hello().dot ? "" : info_.name + " does not offer dot (docs/pipe.md)";
}

Outcome PipeSubject::Dot(std::span<const float> a, std::span<const float> b) {
  const PipeChild::Question question{.problem = &DotAnswer(), .want_acc = false, .a = a, .b = b};
  return Cleaned(std::move(child_->Ask({&question, 1}).front()));
}

std::vector<Outcome> PipeSubject::RunMany(std::span<const Case> cases, const RunContext& context) {
  std::vector<Outcome> outcomes(cases.size());
  size_t at = 0;
  while (at < cases.size()) {
    // Asked again after every answer that ended the child: the subject may be given up by now.
    std::vector<PipeChild::Question> questions;
    std::vector<size_t> places;
    for (size_t i = at; i < cases.size(); ++i) {
      std::string why = CannotRun(cases[i]);
      if (why.empty()) why = Refused(kThroughAPipe, context);
      if (why.empty()) {
        questions.push_back(QuestionOf(cases[i], context));
        places.push_back(i);
      } else {
        outcomes[i] = Skipped(std::move(why));
      }
    }
    std::vector<Outcome> answers = child_->Ask(questions);
    for (size_t i = 0; i < answers.size(); ++i) {
      outcomes[places[i]] = Confirmed(Cleaned(std::move(answers[i])), cases[places[i]], context);
    }
    at = answers.size() < places.size() ? places[answers.size()] : cases.size();
  }
  return outcomes;
}

void RegisterPipeSubjects() {
  SubjectKind kind;
  kind.kind = "pipe";
  kind.help =
      "pipe:COMMAND  a program that reads cases and writes results, one JSON line each; run by "
      "/bin/sh";
  kind.names = [] { return std::vector<std::string>{}; };  // any command: none to list
  kind.make = [](const std::string& name) -> std::unique_ptr<Subject> {
    if (!name.starts_with(kPrefix) || name.size() == kPrefix.size()) return nullptr;
    PipeOptions options;
    options.command = ShellCommand(name.substr(kPrefix.size()));
    auto subject = std::make_unique<PipeSubject>(name, std::move(options));
    SetLastingName(name, "pipe-" + subject->Version());
    return subject;
  };
  SubjectRegistry::Get().Add(std::move(kind));
}

}  // namespace qualm
