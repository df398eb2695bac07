// SPDX-License-Identifier: Apache-2.0
// A subject: anything that can run a case. Our own kernels, a named convention, somebody's
// library.
#ifndef QUALM_CORE_SUBJECT_H_
#define QUALM_CORE_SUBJECT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/case.h"
#include "core/contract.h"

namespace qualm {

// The rounding mode of floating-point instructions during the call.
enum class Rounding : uint8_t { kNearest, kDown, kUp, kTowardZero };

// Where the harness puts the data and what state it sets around the call. None of it may change the
// result: the memory and environment properties check that. In process and in a worker each buffer
// has its own mapping between inaccessible pages; programs behind a pipe place data themselves.
struct RunContext {
  // Bytes by which every buffer is moved off 64-byte alignment (0..63); element-aligned.
  int align_offset = 0;
  // true: buffers end exactly at an inaccessible page; false: they begin just after one.
  bool end_at_guard = true;
  // Fill of outputs, slack, stride gaps and scratch before the call.
  uint8_t poison = 0xA5;
  // Elements added to the row stride of x (and of w in operations with two inputs) and of the
  // output; the gaps must stay untouched. Gaps of 256 MiB and more are address space without
  // memory. Images (NHWC) are rows of channels: the gap lies between any two pixels.
  int64_t x_row_gap = 0;
  int64_t y_row_gap = 0;
  // The output is written over x, with x's row stride; y_row_gap then does not matter. Only for
  // operations that CanRunInPlace; skipped by subjects that cannot do it.
  bool in_place = false;
  // A subject that cannot do one of the fields below skips the case, and so does a run of an
  // operation to which the field does not apply (WhyNotLaid in adapters/host/placement.h).
  //
  // Elements between the weights of one output channel and those of the next, and between the lines
  // of an image, whose pixels are dense then.
  int64_t w_row_gap = 0;
  int64_t x_line_gap = 0;
  // The output is written over the second operand.
  bool over_w = false;
  // Both operands, which must be equal, are one buffer.
  bool shared_inputs = false;
  // The layer is packed once and run this many times; the last answer counts.
  int calls = 1;
  // This many threads call the packed layer at once. If an answer differs from the first caller's,
  // the deviating answer is returned.
  int callers = 1;
  // Look for what the call leaves behind: control word, signal mask, memory.
  bool watch = false;
  // Threads that a subject may use, >= 1. A subject without threads skips a run with more than one.
  int threads = 1;
  Rounding rounding = Rounding::kNearest;
  bool flush_denormals = false;  // FTZ and DAZ
  // Ask for the raw accumulators too (linear and convolutions; before zero-point correction and
  // bias; taps in the padding add nothing).
  bool want_acc = false;
  friend bool operator==(const RunContext&, const RunContext&) = default;
};

// The members of a run context. A member that is added to RunContext and not named here does not
// compile.
template <class Context>
constexpr auto StatesOf(Context& context) {
  auto& [align_offset, end_at_guard, poison, x_row_gap, y_row_gap, in_place, w_row_gap, x_line_gap,
         over_w, shared_inputs, calls, callers, watch, threads, rounding, flush_denormals,
         want_acc] = context;
  return std::tie(align_offset, end_at_guard, poison, x_row_gap, y_row_gap, in_place, w_row_gap,
                  x_line_gap, over_w, shared_inputs, calls, callers, watch, threads, rounding,
                  flush_denormals, want_acc);
}
inline constexpr size_t kRunStates =
    std::tuple_size_v<decltype(StatesOf(std::declval<const RunContext&>()))>;

// The limit of a subject on one member of RunContext, for values other than the default.
struct StateLimit {
  std::string_view refusal;  // "": the subject takes any value
  uint32_t feature = 0;      // a subject with this feature takes any value
};
// One limit for each member of RunContext, in the order of the members.
using StateLimits = std::array<StateLimit, kRunStates>;

// The refusal of the first member of `context` that may not differ from its default; "" if none.
std::string Refused(const StateLimits& limits, const RunContext& context, uint32_t features = 0);

enum class RunStatus : uint8_t {
  kOk,
  kSkipped,         // cannot do this case: `detail` says why
  kRefused,         // returned an error for a valid case it declared itself able to do
  kCrashed,         // signal or exit: `detail` names it
  kHung,            // ran past the time limit
  kTouchedOutside,  // wrote (or read, where a guard page saw it) outside its buffers
  kModifiedInput,
  kGarbage,     // answer of the wrong size, or no answer in the protocol
  kLeftBehind,  // changed what belongs to the caller (RunContext::watch)
};
std::string_view Name(RunStatus status);

struct Outcome {
  RunStatus status = RunStatus::kOk;
  std::string detail;         // one sentence unless kOk
  Tensor y;                   // valid if kOk
  std::optional<Tensor> acc;  // s32, like y, where asked for and the subject can show it
  bool ok() const { return status == RunStatus::kOk; }
};

// Derive from BasicSubject, which answers what most subjects answer, or from ForwardingSubject
// (core/forwarding_subject.h), which asks another subject. Every function here is pure, so that a
// forwarding that forgets one does not compile.
class Subject {
 public:
  virtual ~Subject() = default;

  // As on the command line: "native@avx2", "model:fbgemm@avx2", "onednn@avx2",
  // "faulty:pair-saturation".
  virtual std::string_view name() const = 0;
  // What the subject promises unless --contract overrides it: of each operation, and of one.
  const Contracts& contracts() const { return contracts_; }
  const Contract& contract(Op op) const { return contracts_.of(op); }
  // The contract of a subject that promises the same for all operations, as the subjects that
  // triage gets do; throws InputError if there are several.
  const Contract& contract() const;
  void set_contract(Contract contract) { contracts_ = {std::move(contract), {}}; }
  void set_contracts(const Contracts& contracts) { contracts_ = contracts.Over({Contract{}, {}}); }

  // "" if this subject can run the case, else the reason (unsupported op, type, zero point ...).
  virtual std::string CannotRun(const Case& c) const = 0;

  // The case, brought among those that its user means (properties/domain.h); most subjects take it
  // as it is.
  virtual Case Inside(const Case& c) const { return c; }

  // Whether there are cases of the operation that the subject can run.
  virtual bool Offers(Op op) const = 0;

  // Runs the case once. Never throws for anything the thing under test does.
  virtual Outcome Run(const Case& c, const RunContext& context) = 0;

  // Runs cases that do not depend on each other: element i is what Run(cases[i], context) answers.
  // BasicSubject runs the cases one by one. A pipe sends the next case while its child works.
  virtual std::vector<Outcome> RunMany(std::span<const Case> cases, const RunContext& context) = 0;

  // The other instruction sets of the same kernels, for targets_agree; empty if there are none.
  virtual std::vector<std::string> Siblings() const = 0;

  // Instruction set really executed ("AVX3_DL", "avx2", "scalar"): for hazard coverage.
  virtual std::string InstructionSet() const = 0;

  // Whether a new instance may be asked what this one is asked: false where that is dear and cannot
  // tell anything.
  virtual bool MayBeMadeAnew() const { return true; }

  // Version of the thing under test, "" if it is ours.
  virtual std::string Version() const = 0;

 private:
  Contracts contracts_{Contract{}, {}};
};

// While this lives, the subject promises for all operations what it promises for one.
class Narrowed {
 public:
  Narrowed(Subject& subject, Op op) : subject_(subject), all_(subject.contracts()) {
    subject.set_contract(all_.of(op));
  }
  ~Narrowed() { subject_.set_contracts(all_); }
  Narrowed(const Narrowed&) = delete;
  Narrowed& operator=(const Narrowed&) = delete;

 private:
  Subject& subject_;
  const Contracts all_;
};

// A subject that offers every operation, runs one case at a time, has no siblings, and tells no
// instruction set or version.
class BasicSubject : public Subject {
 public:
  bool Offers(Op /*op*/) const override { return true; }
  std::vector<Outcome> RunMany(std::span<const Case> cases, const RunContext& context) override {
    return Subject::RunMany(cases, context);
  }
  std::vector<std::string> Siblings() const override { return {}; }
  std::string InstructionSet() const override { return "unknown"; }
  std::string Version() const override { return ""; }
};

// Whether the row speaks of this claim of the subject under `contract`. The row names the subject,
// or it names the promised convention, and then the subject must be of the row's library.
bool Concerns(const ExpectedDivergence& row, const Subject& subject, const Contract& contract,
              std::string_view op, std::string_view claim);

// Whether the row speaks of this failure of `c`, told in `sentence`: of its words and of its case.
bool Fits(const ExpectedDivergence& row, const Case& c, std::string_view sentence);

// The list of subject kinds. Filled by RegisterAllSubjects() (adapters/registry.h) in each
// executable's main; nothing registers itself.
struct SubjectKind {
  std::string kind;        // "native", "model", "onednn", "faulty", "plugin", "pipe"
  std::string help;        // one line
  std::string why_absent;  // "" if usable here, else why it is absent and how to get it
  // All complete names, for `qualm list subjects` and nearest-name hints.
  std::function<std::vector<std::string>()> names;
  // Makes the subject called `name` ("KIND[:NAME][@VARIANT[+SWITCH]...]"); nullptr if the part
  // after the kind is unknown; throws Unavailable if it cannot be had here.
  std::function<std::unique_ptr<Subject>(const std::string& name)> make;
  // Names that "KIND@all" or "model:*" stand for.
  std::function<std::vector<std::string>(const std::string& pattern)> expand;
  // If not empty, `qualm list` prints this text and does not make the subject, which takes seconds.
  std::string when_listed = {};
};

class SubjectRegistry {
 public:
  static SubjectRegistry& Get();

  void Add(SubjectKind kind);
  void AddExpectedDivergence(ExpectedDivergence row) { expected_.push_back(std::move(row)); }

  std::span<const SubjectKind> kinds() const { return kinds_; }
  std::span<const ExpectedDivergence> expected() const { return expected_; }
  // No departure is expected from now on.
  void ForgetExpected() { expected_.clear(); }

  // "native@all" -> {"native@AVX3_DL", ...}; an ordinary name -> itself.
  // Throws InputError (with the nearest name) if unknown.
  std::vector<std::string> Expand(const std::string& name) const;
  // Throws InputError if unknown, Unavailable if absent here. A new instance per call: one thread
  // each.
  std::unique_ptr<Subject> Make(const std::string& name) const;
  // A new instance of the same subject, which has been asked nothing; nullptr if the registry did
  // not make `subject`, or cannot or may not make it again.
  std::unique_ptr<Subject> MakeAnew(const Subject& subject) const;

 private:
  std::vector<SubjectKind> kinds_;
  std::vector<ExpectedDivergence> expected_;
};

}  // namespace qualm

#endif  // QUALM_CORE_SUBJECT_H_
