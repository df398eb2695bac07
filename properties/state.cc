// SPDX-License-Identifier: Apache-2.0
// The answer must not depend on what a subject keeps of a layer, on several callers of one layer,
// on operands that share memory, on strides; and a call must leave nothing behind.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "core/slice.h"
#include "oracles/conventions/convention.h"
#include "properties/changes.h"
#include "properties/list.h"
#include "properties/relation.h"

namespace qualm {
namespace {

using relation::Answer;
using relation::Ask;

Verdict As(FindingKind kind, Verdict verdict) {
  verdict.kind = kind;
  return verdict;
}

constexpr int kThreads = 3;

// The case with one thing changed, and its output by the subject's contract; nullopt if nothing
// changes or the subject cannot run the case.
struct Changed {
  std::string what;
  Case c;
  Tensor promised;
};
std::optional<Changed> Apply(size_t change, const Case& c, const Convention* convention,
                             const Subject& subject) {
  Changed changed{"", ProblemOf(c), {}};
  changed.what = ApplyChange(change, changed.c);
  if (changed.c == ProblemOf(c) || !Validate(changed.c).empty()) return std::nullopt;
  if (convention != nullptr && !convention->cannot_run(changed.c).empty()) return std::nullopt;
  if (!subject.CannotRun(changed.c).empty()) return std::nullopt;
  changed.promised =
      convention == nullptr ? relation::ExactOf(changed.c) : convention->run(changed.c).y;
  if (changed.promised.empty()) return std::nullopt;
  return changed;
}

// Asks about `c`, then `c` with one thing changed, then `c` again. A layer that was kept under a
// key without this thing gives the old answer, which only tells where the new one is another. Two
// such changes are tried, or, where none is met, two of any; the case decides which.
Verdict OneThingChanged(const Case& c, Subject& subject) {
  static thread_local relation::NewInstances anew;
  const Contract& contract = subject.contract(c.op);
  const Convention* const convention =
      contract.exact() ? nullptr : FindConvention(contract.convention);
  if (!contract.exact() && convention == nullptr) return Verdict::Vacuous("nothing is promised");
  RunContext context;  // not the default one, which a MemoSubject answers from memory
  context.poison = 0x3C;
  const Answer base = Ask(subject, c, context);
  if (base.verdict) return *base.verdict;
  if (base.y.empty()) return Verdict::Vacuous("the output is empty");
  int tried = 0;
  const auto ask_changed = [&](const Changed& changed) -> std::optional<Verdict> {
    const Answer answer = Ask(subject, changed.c, context);
    if (answer.skipped()) return std::nullopt;
    if (answer.verdict) return *answer.verdict;
    ++tried;
    const std::string what =
        "asked with only " + changed.what + " changed, the answer departs from the promised one";
    auto failed = relation::Difference(changed.c, changed.promised, answer.y, what);
    // A new instance that is wrong too does not show memory: other properties report that.
    if (failed && anew.Give(subject, changed.c, changed.promised))
      return As(FindingKind::kNondeterminism, *failed);
    const Answer again = Ask(subject, c, context);
    if (again.verdict) return *again.verdict;
    failed = relation::Changed(c, base.y, again.y,
                               "the first problem, asked again after one with " + changed.what +
                                   " changed, gets another answer");
    if (!failed) return std::nullopt;
    return As(FindingKind::kNondeterminism,
              relation::AnswersByChance(c, subject).value_or(*failed));
  };
  const size_t changes = ChangesOf(c);
  const uint64_t first = relation::Hash(c) % changes;
  constexpr int kTried = 2, kLookedAt = 4;
  for (const bool must_tell : {true, false}) {
    int looked_at = 0;
    for (size_t i = 0; i < changes && tried < kTried; ++i) {
      if (must_tell && looked_at == kLookedAt) break;
      const std::optional<Changed> changed = Apply((first + i) % changes, c, convention, subject);
      if (!changed) continue;
      ++looked_at;
      if (must_tell && changed->promised == base.y) continue;
      if (auto failed = ask_changed(*changed)) return *failed;
    }
    if (tried > 0) return Verdict::Passed();
  }
  return Verdict::Vacuous("nothing can be changed alone");
}

// All these contexts must give the same bits. Passed if the subject takes one of them.
Verdict SameIn(const Case& c, Subject& subject, std::span<const RunContext> contexts,
               const std::string& what, FindingKind kind) {
  const Answer base = Ask(subject, c);
  if (base.verdict) return *base.verdict;
  if (base.y.empty()) return Verdict::Vacuous("the output is empty");
  std::string why_none = "no context";
  int judged = 0;
  for (const RunContext& context : contexts) {
    const Answer answer = Ask(subject, c, context);
    if (answer.skipped()) {
      why_none = answer.verdict->reason;
      continue;
    }
    if (answer.verdict) return *answer.verdict;
    if (auto failed = relation::ChangedIn(context, c, base.y, answer.y, subject, what, kind))
      return *failed;
    ++judged;
  }
  return judged == 0 ? Verdict::Skipped(why_none) : Verdict::Passed();
}

Verdict PackedOnce(const Case& c, Subject& subject) {
  RunContext context;
  context.calls = 3;
  return SameIn(c, subject, {&context, 1}, "the third run of what was packed once differs",
                FindingKind::kNondeterminism);
}

Verdict ConcurrentCalls(const Case& c, Subject& subject) {
  RunContext context;
  context.callers = 3;
  return SameIn(c, subject, {&context, 1}, "several callers of one layer change the result",
                FindingKind::kNondeterminism);
}

// Turns the elements of each row of x: row i by i / `period`. Rows that were copies of one differ
// then, so that a thread that reads the row of another one reads something else.
void TurnRows(int64_t rows, int64_t period, Tensor& x) {
  if (x.empty()) return;
  const Tensor before = x;
  const int64_t row = x.size() / rows;
  for (int64_t i = period; i < rows; ++i) {
    const int64_t by = i / period % row;
    x.CopyFrom(before, i * row + by, row - by, i * row);
    x.CopyFrom(before, i * row, by, i * row + row - by);
  }
}

// The case with its rows, or images, repeated until each of some threads has work for longer than
// it takes to start the next thread. Else they run one after another, and nothing that they share
// is used by two of them at once.
Case WithWorkForThreads(const Case& c) {
  constexpr int64_t kMostRows = 300;
  const int64_t most_work = int64_t{1} << (HasSums(c) ? 18 : 16);  // products take less time
  if (RowOf(c.op).layout == Layout::kBatches) return ProblemOf(c);
  const int64_t rows = HasWindow(c.op) ? c.window.batch : c.M;
  if (rows == 0) return ProblemOf(c);
  // An output is as dear as many products.
  const int64_t work = std::max<int64_t>(1, c.M / rows * c.N * (c.K + 16));
  // Mostly no multiple of the threads: nobody's share is the whole number of rows by them. And even
  // and odd ones: a kernel may take two rows at a time.
  const auto more = static_cast<int64_t>(relation::Hash(c) % (2 * kThreads));
  const int64_t wanted = std::min(kMostRows, most_work / work) / kThreads * kThreads + 1 + more;
  if (wanted <= rows) return ProblemOf(c);
  std::vector<int64_t> places = slice::Range(0, wanted);
  for (int64_t& place : places) place %= rows;
  Case many = HasWindow(c.op) ? slice::Batches(c, places) : slice::Rows(c, places);
  TurnRows(wanted, rows, many.x);
  return Validate(many).empty() ? many : ProblemOf(c);
}

// Both answers are given in one state, which the number of the case decides: a thread that a kernel
// starts itself, or has kept, need not compute as the caller's does.
Verdict SeveralThreads(const Case& c, Subject& subject) {
  const uint64_t number = relation::Hash(c);
  constexpr std::array kRoundings{Rounding::kNearest, Rounding::kDown, Rounding::kUp,
                                  Rounding::kTowardZero};
  RunContext one;
  one.rounding = kRoundings[number % kRoundings.size()];
  one.flush_denormals = number / kRoundings.size() % 2 != 0;
  one.poison = 0x3C;  // not a run that a MemoSubject answers from memory
  RunContext several = one;
  several.threads = number % 4 == 0 ? 2 : kThreads;
  const Case many = WithWorkForThreads(c);
  const Answer answer = Ask(subject, many, several);
  if (answer.skipped()) return Verdict::Vacuous(answer.verdict->reason);
  if (answer.verdict) return *answer.verdict;
  const Answer base = Ask(subject, many, one);
  if (base.verdict) return *base.verdict;
  if (base.y.empty()) return Verdict::Vacuous("the output is empty");
  if (answer.y == base.y) return Verdict::Passed();
  if (auto chance = relation::AnswersByChance(many, subject, one)) return *chance;
  const char* const how = relation::AnswersByChance(many, subject, several) ? ", not" : ",";
  return As(FindingKind::kNondeterminism,
            *relation::Difference(many, base.y, answer.y,
                                  std::string("several threads change the result") + how +
                                      " the same way each time (asked for " +
                                      std::to_string(many.M) + " rows at once)"));
}

Verdict LayerStrides(const Case& c, Subject& subject) {
  const auto gap = static_cast<int64_t>(1 + relation::Hash(c) % 7);
  std::vector<RunContext> contexts;
  for (const bool at_guard : {true, false}) {
    RunContext context;
    context.end_at_guard = at_guard;
    context.w_row_gap = gap;
    if (HasWeights(c.op)) contexts.push_back(context);
    context.w_row_gap = 0;
    context.x_line_gap = gap;
    if (HasWindow(c.op)) contexts.push_back(context);
  }
  return SameIn(c, subject, contexts,
                std::string(relation::kChangesWithGaps) + " of " + std::to_string(gap),
                FindingKind::kMemory);
}

// Distances between rows that 32 bits do not hold, neither in elements nor in bytes: row 1 lies
// beyond int32, row 2 beyond uint32. Each row costs pages, so only cases of few rows are asked.
Verdict FarRows(const Case& c, Subject& subject) {
  constexpr int64_t kStride = (int64_t{1} << 31) + 64;
  constexpr int64_t kMostRows = 8;
  std::vector<RunContext> contexts;
  const auto add = [&](int64_t RunContext::* gap, int64_t rows, int64_t columns) {
    if (rows < 2 || rows > kMostRows) return;
    RunContext context;
    context.*gap = kStride - columns;
    contexts.push_back(context);
  };
  const auto add_rows = [&](int64_t RunContext::* gap, const std::vector<int64_t>& shape) {
    if (shape.back() == 0) return;
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
    add(gap, rows, shape.back());
  };
  add_rows(&RunContext::x_row_gap, c.x.shape());
  add_rows(&RunContext::y_row_gap, c.output_shape());
  if (HasWeights(c.op)) add(&RunContext::w_row_gap, c.N, c.K);
  // Without a window there are 0 lines.
  add(&RunContext::x_line_gap, c.window.batch * c.window.in_h, c.window.in_w * c.window.in_c);
  if (contexts.empty())
    return Verdict::Vacuous("no tensor has from 2 to " + std::to_string(kMostRows) + " rows");
  return SameIn(c, subject, contexts, "the result changes with rows that lie 2^31 elements apart",
                FindingKind::kMemory);
}

Verdict AliasedOperands(const Case& c, Subject& subject) {
  RunContext over_second;
  over_second.over_w = true;
  const Verdict over =
      SameIn(c, subject, {&over_second, 1},
             "the result changes when it is written over the second operand", FindingKind::kMemory);
  if (over.failed()) return over;
  Case twice = ProblemOf(c);
  twice.w = c.x;
  RunContext shared;
  shared.shared_inputs = true;
  RunContext all_one = shared;
  all_one.in_place = true;
  const std::array<RunContext, 2> contexts{shared, all_one};
  const Verdict one =
      SameIn(twice, subject, contexts, "the result changes when both operands are one buffer",
             FindingKind::kMemory);
  return one.judgement == Judgement::kSkipped ? over : one;
}

Verdict LeavesNothingBehind(const Case& c, Subject& subject) {
  RunContext context;
  context.watch = true;
  return Ask(subject, c, context).verdict.value_or(Verdict::Passed());
}

}  // namespace

std::vector<Property> StateProperties() {
  return {
      {"one_thing_changed",
       "With one thing changed - a scale, a zero point, the multiplier, the bias, the clamp, the "
       "number of rows or any parameter - the answer is the promised one, and after it the first "
       "one is given again.",
       EveryOp(), true, OneThingChanged, kInTurn},
      {"packed_once", "A layer packed once gives the same bits however often it runs.",
       OpsWhere(HasWeights), true, PackedOnce, 2},
      {"concurrent_calls", "A layer that several threads call at once gives the same bits.",
       OpsWhere(HasWeights), true, ConcurrentCalls, 2 * kSeldom},
      {"several_threads",
       "A kernel that may use several threads gives the same bits, in any rounding mode and with "
       "denormals flushed too.",
       EveryOp(), true, SeveralThreads, 2 * kSeldom},
      {"layer_strides",
       "Gaps between the rows of weights and between the lines of images change nothing.",
       OpsWhere([](Op op) { return HasWeights(op) || HasWindow(op); }), true, LayerStrides, 2},
      {"far_rows",
       "Rows, weights, pixels and lines of images that lie 2^31 elements apart give the same bits.",
       EveryOp(), true, FarRows, 4 * kSeldom},  // each row costs a call of the system
      {"aliased_operands",
       "Operands that are one buffer, and an output over the second of them, give the same bits.",
       OpsWhere(HasTwoOperands), true, AliasedOperands, 2},
      {"leaves_nothing_behind",
       "A call leaves the floating-point control word and the signal mask as they were, and keeps "
       "no memory for each call.",
       EveryOp(), true, LeavesNothingBehind, 2 * kSeldom},  // counting the heap takes 100 calls
  };
}

}  // namespace qualm
