// SPDX-License-Identifier: Apache-2.0
// The place of the data, previous contents of memory, and earlier questions must not matter.
#include <array>
#include <bit>
#include <string>
#include <utility>

#include "core/rng.h"
#include "oracles/conventions/convention.h"
#include "properties/changes.h"
#include "properties/gen/gen.h"
#include "properties/list.h"
#include "properties/relation.h"

namespace qualm {
namespace {

using relation::Answer;
using relation::Ask;

// Asks again in `context`, expecting the same bits.
std::optional<Verdict> SameBits(const Case& c, Subject& subject, const Tensor& expected,
                                const RunContext& context, const std::string& what,
                                FindingKind kind = FindingKind::kMemory) {
  const Answer again = Ask(subject, c, context);
  if (again.verdict) return again.verdict;
  return relation::ChangedIn(context, c, expected, again.y, subject, what, kind);
}

Verdict AsMemory(Verdict verdict, FindingKind kind = FindingKind::kMemory) {
  if (verdict.failed() && !verdict.kind) verdict.kind = kind;
  return verdict;
}

// Row gaps that differ from case to case and between x and output.
RunContext Strided(const Case& c, bool end_at_guard) {
  const uint64_t hash = relation::Hash(c);
  RunContext context;
  context.end_at_guard = end_at_guard;
  context.x_row_gap = 1 + static_cast<int64_t>(hash % 7);
  context.y_row_gap = 1 + static_cast<int64_t>(hash / 7 % 5);
  return context;
}

// All placements in which a stray access or a modified input would be seen.
Verdict EveryPlacement(const Case& c, Subject& subject) {
  RunContext at_start;
  at_start.end_at_guard = false;
  for (const RunContext& context : {RunContext{}, at_start, Strided(c, true), Strided(c, false)}) {
    const Answer answer = Ask(subject, c, context);
    if (answer.verdict) return *answer.verdict;
  }
  return Verdict::Passed();
}

Verdict NoStrayAccess(const Case& c, Subject& subject) { return EveryPlacement(c, subject); }

Verdict InputsUnmodified(const Case& c, Subject& subject) {
  if (c.x.empty() && c.w.empty()) return Verdict::Vacuous("there is no input to modify");
  for (const RunContext& context : {RunContext{}, Strided(c, true)}) {
    const Answer answer = Ask(subject, c, context);
    if (answer.verdict) return *answer.verdict;
  }
  return Verdict::Passed();
}

Verdict AlignmentAndStride(const Case& c, Subject& subject) {
  const Answer base = Ask(subject, c);
  if (base.verdict) return *base.verdict;
  if (base.y.empty()) return Verdict::Vacuous("the output is empty");
  const uint64_t hash = relation::Hash(c);
  RunContext moved;
  moved.align_offset = 1 + static_cast<int>(hash % 63);
  moved.end_at_guard = false;
  RunContext both = Strided(c, hash % 2 == 0);
  both.align_offset = 4 * (1 + static_cast<int>(hash / 64 % 15));
  for (const RunContext& context : {moved, Strided(c, true), both}) {
    const std::string offset = "at offset " + std::to_string(context.align_offset);
    const std::string what =
        context.x_row_gap == 0
            ? "the result changes " + offset
            : std::string(relation::kChangesWithGaps) + " of " + std::to_string(context.x_row_gap) +
                  " and " + std::to_string(context.y_row_gap) +
                  " between the rows of the input and of the output, " + offset;
    if (auto verdict = SameBits(c, subject, base.y, context, what)) {
      return AsMemory(*verdict);
    }
  }
  return Verdict::Passed();
}

Verdict InPlace(const Case& c, Subject& subject) {
  const Answer base = Ask(subject, c);
  if (base.verdict) return *base.verdict;
  if (base.y.empty()) return Verdict::Vacuous("the output is empty");
  RunContext dense, strided = Strided(c, false);
  dense.in_place = strided.in_place = true;
  for (const RunContext& context : {dense, strided}) {
    if (auto verdict = SameBits(c, subject, base.y, context, "the result changes in place")) {
      return AsMemory(*verdict);
    }
  }
  return Verdict::Passed();
}

Verdict SameBitsTwice(const Case& c, Subject& subject) {
  // Not the default context: a MemoSubject would remember the first answer.
  RunContext context;
  context.poison = 0x5A;
  const Answer first = Ask(subject, c, context);
  if (first.verdict) return *first.verdict;
  if (first.y.empty()) return Verdict::Vacuous("the output is empty");
  const Answer again = Ask(subject, c, context);
  if (again.verdict) return *again.verdict;
  return AsMemory(relation::Difference(c, first.y, again.y, "the second run differs from the first")
                      .value_or(Verdict::Passed()),
                  FindingKind::kNondeterminism);
}

Verdict PoisonIsIrrelevant(const Case& c, Subject& subject) {
  const Answer base = Ask(subject, c);
  if (base.verdict) return *base.verdict;
  if (base.y.empty()) return Verdict::Vacuous("the output is empty");
  for (uint8_t poison : {uint8_t{0x00}, uint8_t{0xFF}, uint8_t{0x7F}}) {
    RunContext context;
    context.poison = poison;
    if (auto verdict = SameBits(
            c, subject, base.y, context,
            "the result depends on what memory held before (" + std::to_string(poison) + ")")) {
      return AsMemory(*verdict);
    }
  }
  return Verdict::Passed();
}

// Same shapes and types, every input different: a cache keyed by shapes would mix the two up.
Case Lookalike(const Case& c) {
  Case other = ProblemOf(c);
  // An observer takes the negated values too. For other operations a larger change is used.
  const uint32_t flip = c.op == Op::kChooseQParams ? 0x80000000u : 0x80400000u;
  const auto change = [flip](Tensor& tensor) {
    for (int64_t i = 0; i < tensor.size(); ++i) {
      if (tensor.dtype() == DType::kF32) {
        float& value = tensor.as<float>()[static_cast<size_t>(i)];
        value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ flip);
      } else {
        MirrorCode(tensor, i);
      }
    }
  };
  change(other.x);
  change(other.w);
  if (other.bias_i32) {
    for (int32_t& bias : *other.bias_i32) bias ^= 0x55;
  }
  return other;
}

// Zero points moved within their types.
QParams Moved(QParams q, DType dtype) {
  if (!IsCode(dtype)) return q;
  const CodeRange range = RangeOf(dtype);
  for (int32_t& z : q.zero_point) {
    if (z < range.min || z > range.max) continue;
    z = range.min + (z - range.min + 37) % (range.max - range.min + 1);
  }
  return q;
}

struct Sibling {
  Case c;
  Tensor promised;  // the output by the subject's contract
};

// The same problem with other zero points: a cache keyed by shapes and scales mixes the two up.
std::optional<Sibling> WithOtherZeroPoints(const Case& c, Subject& subject) {
  const Contract& contract = subject.contract(c.op);
  const Convention* const convention =
      contract.exact() ? nullptr : FindConvention(contract.convention);
  if (!contract.exact() && convention == nullptr) return std::nullopt;
  constexpr std::pair<bool, bool> kBoth{true, true}, kInputs{true, false}, kOutput{false, true};
  for (const auto& [inputs, output] : {kBoth, kOutput, kInputs}) {
    Case other = ProblemOf(c);
    if (inputs) other.x_q = Moved(other.x_q, c.x.dtype());
    if (inputs && HasTwoInputs(c.op)) other.w_q = Moved(other.w_q, c.w.dtype());
    if (output) other.out_q = Moved(other.out_q, c.out_dtype);
    if (other == ProblemOf(c) || !Validate(other).empty()) continue;
    if (convention != nullptr && !convention->cannot_run(other).empty()) continue;
    if (!subject.CannotRun(other).empty()) continue;
    return Sibling{other,
                   convention == nullptr ? relation::ExactOf(other) : convention->run(other).y};
  }
  return std::nullopt;
}

// Asks about the sibling of `c` after `c`. Fails if the subject does not give the promised output,
// and a new instance does.
std::optional<Verdict> MixesUpZeroPoints(const Case& c, Subject& subject,
                                         const RunContext& context) {
  static thread_local relation::NewInstances anew;
  const std::optional<Sibling> sibling = WithOtherZeroPoints(c, subject);
  if (!sibling) return std::nullopt;
  const Answer answer = Ask(subject, sibling->c, context);
  if (answer.verdict) {
    if (answer.skipped()) return std::nullopt;
    return answer.verdict;
  }
  auto failed =
      relation::Difference(c, sibling->promised, answer.y,
                           "after another problem with other zero points, the answer departs "
                           "from the promised one");
  if (!failed) return std::nullopt;
  // A new instance that is wrong too does not show memory: other properties report that.
  if (!anew.Give(subject, sibling->c, sibling->promised)) return std::nullopt;
  return AsMemory(*failed, FindingKind::kNondeterminism);
}

// Asks about `other` and then about `c`. Then asks about `other`, `lookalike` and `c`. The two
// answers to `c` must be equal. `other` has another shape, `lookalike` has the shape of `c`:
// something kept from the problem before (packed weights, a scratch size) would serve the second
// `c` with the data of `lookalike`.
Verdict AnswerIndependentOfHistory(const Case& c, Subject& subject) {
  RunContext context;  // not the default one, which a MemoSubject answers from memory
  context.poison = 0x3C;
  const Case other = gen::Draw(c.op, relation::Hash(c));
  const Case lookalike = Lookalike(c);
  std::string why_none;
  const auto ask_between = [&](const Case& between) -> std::optional<Verdict> {
    const Answer answer = Ask(subject, between, context);
    if (!answer.verdict) return std::nullopt;
    if (answer.skipped()) {
      why_none = answer.verdict->reason;
      return std::nullopt;
    }
    Verdict failed = *answer.verdict;
    failed.reason = "on another problem (" + Describe(between) + "): " + failed.reason;
    return failed;
  };
  if (auto failed = ask_between(other)) return *failed;
  const Answer base = Ask(subject, c, context);
  if (base.verdict) return *base.verdict;
  if (base.y.empty()) return Verdict::Vacuous("the output is empty");
  if (auto failed = ask_between(other)) return *failed;
  why_none.clear();
  if (auto failed = ask_between(lookalike)) return *failed;
  if (!why_none.empty()) return Verdict::Vacuous("no problem of the same shape: " + why_none);
  auto verdict = SameBits(c, subject, base.y, context, "the answer depends on the problem before",
                          FindingKind::kNondeterminism);
  if (verdict) return AsMemory(*verdict, FindingKind::kNondeterminism);
  return MixesUpZeroPoints(c, subject, context).value_or(Verdict::Passed());
}

}  // namespace

std::vector<Property> MemoryProperties() {
  constexpr std::string_view kTurn = "placement";  // they share the runs with gaps
  return {
      {"no_stray_access",
       "Nothing outside the buffers is read or written, wherever they lie and with gaps between "
       "rows.",
       EveryOp(), true, NoStrayAccess, kInTurn, kTurn},
      {"inputs_unmodified", "Inputs hold the same bytes after the call as before.", EveryOp(), true,
       InputsUnmodified, kInTurn, kTurn},
      {"alignment_and_stride",
       "Any alignment of the buffers and any row stride gives the same bits.", EveryOp(), true,
       AlignmentAndStride, kInTurn, kTurn},
      {"in_place", "Writing the output over x gives the same bits.", OpsWhere(CanRunInPlace), true,
       InPlace, kInTurn, kTurn},
      {"same_bits_twice", "Running the same case twice gives the same bits.", EveryOp(), true,
       SameBitsTwice, kInTurn},
      {"poison_is_irrelevant",
       "What output, slack and scratch memory held before the call does not matter.", EveryOp(),
       true, PoisonIsIrrelevant, kInTurn},
      {"answer_independent_of_history",
       "The answer to B does not depend on having answered A in between.", EveryOp(), true,
       AnswerIndependentOfHistory, kSeldom},
  };
}

}  // namespace qualm
