// SPDX-License-Identifier: Apache-2.0
// Well-known ways in which a kernel departs from the exact result. Attribution replays a failing
// case with each of them and looks for the smallest set of causes that gives the subject's
// answer.
#ifndef QUALM_TRIAGE_CAUSES_H_
#define QUALM_TRIAGE_CAUSES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/case.h"
#include "core/contract.h"
#include "core/verdict.h"
#include "oracles/conventions/convention.h"

namespace qualm::triage {

struct Stages;

// Where in the computation a cause acts. Two causes of one stage exclude each other.
enum class CauseStage : uint8_t {
  kOperands,
  kGeometry,
  kPadding,
  kTail,
  kAccumulate,
  kXZeroPoint,  // a wrong zero point of x
  kWZeroPoint,
  kOffset,  // the zero-point terms of a sum
  kBias,
  kIndex,
  kScale,
  kRound,
  kClamp,
  kConvention,  // the whole computation is that of a named convention, to which other causes may be
                // added
  kPlace        // where another cause acts: in some columns, in some rows
};

struct Cause {
  CauseStage stage;
  FindingKind kind;
  std::string name;
  std::string sentence;                        // what the subject does: "ignores the relu"
  std::function<bool(const Case&)> applies;    // to the case as it was given
  std::function<bool(Stages& stages)> change;  // edits the case or sets a hook; false: no change
  // What it takes to choose this cause out of all, in bits: few for what many kernels do. Together
  // the causes take the whole code space and no more (causes_test), so that chance matches do not
  // pay.
  double bits = kBitsOfMistake;
  // One of a family of causes that differ in a number, such as the length of a block. Tried only if
  // no other cause explains an answer.
  bool of_family = false;
  const Convention* convention = nullptr;  // of stage kConvention alone
  // Means the same of weights in blocks: it edits codes, zero points or what follows the sum. Of
  // such cases all other causes leave the output as it is.
  bool knows_blocks = false;
  // Whether another cause does the same to a case, and is looked for in the place of this one.
  bool (*repeats)(const Case&) = nullptr;
  // Of a place: it may hold all outputs of a case, so that other cases have to tell of it.
  bool may_hold_all = false;
  // What it gives of a row depends on other rows.
  bool minds_other_rows = false;
  bool IsLookedFor(const Case& c) const { return repeats == nullptr || !repeats(c); }

  static constexpr double kBitsOfMistake = 8, kBitsOfFamily = 12, kBitsOfRare = 15,
                          kBitsOfPlace = 9, kBitsOfConvention = 6;
  // Says something about numbers, not about places: rounding, overflow, saturation, zero points,
  // clamp.
  bool is_arithmetic() const;

  // Name and sentence with the operation's words: input and weights, or operands a and b.
  std::string NameFor(Op op) const;
  std::string SentenceFor(Op op) const;
};

// What it takes to choose these causes out of all, in bits.
double BitsOf(std::span<const Cause* const> causes);

// The likelier cause first: where several give the same output, the first one is named.
std::span<const Cause> AllCauses();
// Each named convention as a cause: the subject computes as that library does.
std::span<const Cause> KnownArithmetic();
// Whether the one is the other in some terms of a sum alone.
bool IsInSomeTerms(const Cause& some, const Cause& whole);
// The causes of stage kPlace, which mean nothing without another cause.
std::span<const Cause> AllPlaces();
// The cause that NameFor gives this name for an operation with an input and weights.
const Cause& CauseNamed(std::string_view name);

// "a + b", in the words of the operation; and back, empty if a name is unknown. (Names as in the
// table, with their braces, are understood too: older campaigns wrote them.)
std::string NamesOf(std::span<const Cause* const> causes, Op op);
std::vector<const Cause*> CausesNamed(std::string_view names, Op op);

// The convention that a contract promises, nullptr for the exact meaning; and the one by whose
// contract the file of a case says that it was judged.
const Convention* ModelOf(const Contract& contract);
const Convention* ModelOf(const Case& c);
// The right output under a convention; the exact output if `model` is null or refuses the case.
Tensor RightOutput(const Case& c, const Convention* model);

// The output with these causes, at most one of each stage; those that do not apply or change
// nothing are left out, nullopt if that leaves none. With a `model` its computation is changed
// instead of the exact one: by causes that edit the case or move a sum. For all other causes the
// result is nullopt.
std::optional<Tensor> Counterfactual(const Case& c, std::span<const Cause* const> causes,
                                     const Convention* model = nullptr);
std::optional<Tensor> Counterfactual(const Case& c, const Cause& cause,
                                     const Convention* model = nullptr);

// The outputs of the case, by row and column, in which a cause of stage kPlace lets other causes
// act; null if the place does not apply.
std::function<bool(int64_t row, int64_t column)> PlaceIn(const Case& c, const Cause& place);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_CAUSES_H_
