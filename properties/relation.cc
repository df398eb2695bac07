// SPDX-License-Identifier: Apache-2.0
#include "properties/relation.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "oracles/exact/exact.h"
#include "properties/distinct.h"
#include "properties/property.h"

namespace qualm::relation {

std::optional<Tensor> Shifted(const Tensor& tensor, DType dtype, int32_t shift) {
  const CodeRange range = RangeOf(dtype);
  Tensor shifted(dtype, tensor.shape());
  if (!IsByteCode(tensor.dtype()) || !IsByteCode(dtype)) {
    for (int64_t i = 0; i < tensor.size(); ++i) {
      const int64_t code = int64_t{tensor.IntAt(i)} + shift;
      if (code < range.min || code > range.max) return std::nullopt;
      shifted.SetInt(i, static_cast<int32_t>(code));
    }
    return shifted;
  }
  const CodeRange from = RangeOf(tensor.dtype());
  const std::span<const uint8_t> old = tensor.bytes();
  const std::span<uint8_t> codes = shifted.bytes();
  bool outside = false;
  for (size_t i = 0; i < old.size(); ++i) {
    // The byte of a code: the difference from the lowest code of a type, modulo 256.
    const int64_t code = static_cast<uint8_t>(old[i] - from.min) + int64_t{from.min} + shift;
    outside = outside || code < range.min || code > range.max;
    codes[i] = static_cast<uint8_t>(code);
  }
  if (outside) return std::nullopt;
  return shifted;
}

int32_t ShiftWithin(const Tensor& codes) {
  const CodeRange range = RangeOf(codes.dtype());
  int32_t lowest = range.max, highest = range.min;
  const auto note = [&](int32_t code) {
    lowest = std::min(lowest, code);
    highest = std::max(highest, code);
  };
  if (IsByteCode(codes.dtype()) || IsWideCode(codes.dtype())) {
    codes.VisitElements([&](auto elements) {
      for (const auto code : elements) note(static_cast<int32_t>(code));
    });
  } else {
    for (int64_t i = 0; i < codes.size(); ++i) note(codes.IntAt(i));
  }
  const int32_t up = range.max - highest, down = range.min - lowest;
  return up >= -down ? up : down;
}

std::optional<int32_t> ShiftedInt(int32_t value, int64_t shift) {
  const int64_t sum = int64_t{value} + shift;
  if (sum < INT32_MIN || sum > INT32_MAX) return std::nullopt;
  return static_cast<int32_t>(sum);
}

namespace {

uint64_t HashOf(const Case& c) {
  uint64_t hash = static_cast<uint64_t>(c.op);
  ForEachField(c, [&]<class T>(const Field& /*field*/, const T& value) {
    if constexpr (std::is_same_v<T, int64_t>) {
      hash = MixSeed(hash, static_cast<uint64_t>(value));
    } else if constexpr (std::is_same_v<T, Tensor>) {
      for (uint8_t byte : value.bytes()) hash = (hash ^ byte) * 0x100000001b3u;
      hash = MixSeed(hash, static_cast<uint64_t>(value.size()));
    }
  });
  return hash;
}

}  // namespace

uint64_t Hash(const Case& c) {
  // Most properties of a case ask for the number of that case.
  struct Known {
    Case problem;
    uint64_t hash;
  };
  thread_local Known known{Case(), HashOf(Case())};
  if (!(known.problem == c)) known = {c, HashOf(c)};
  return known.hash;
}

std::vector<int64_t> Permutation(Rng& rng, int64_t count) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.Below(i)]);
  return order;
}

int64_t LowEnd(const Case& c, int64_t channel) {
  return std::min<int64_t>(LowerBound(c, channel), c.out_max);
}

Tensor ExactOf(const Case& c) {
  struct Entry {
    Case problem;
    Tensor y;
  };
  constexpr size_t kRemembered = 8;
  static thread_local std::vector<Entry> recent;
  static thread_local size_t next = 0;
  for (const Entry& entry : recent) {
    if (entry.problem == c) return entry.y;
  }
  const std::optional<Distinct> distinct = DistinctPartsOf(c);
  Entry entry{c, distinct ? distinct->Expanded(exact::Evaluate(distinct->c), c.output_shape())
                          : exact::Evaluate(c)};
  if (recent.size() < kRemembered) {
    recent.push_back(std::move(entry));
    return recent.back().y;
  }
  next = (next + 1) % kRemembered;
  recent[next] = std::move(entry);
  return recent[next].y;
}

Answer Ask(Subject& subject, const Case& c, const RunContext& context) {
  Answer answer;
  if (std::string reason = subject.CannotRun(c); !reason.empty()) {
    answer.verdict = Verdict::Skipped(std::move(reason));
    return answer;
  }
  Outcome outcome = subject.Run(c, context);
  answer.verdict = BadOutcome(outcome);
  if (answer.verdict) return answer;
  if (!c.HoldsOutput(outcome.y)) {
    answer.verdict = Verdict::Failed("the answer has the wrong type or shape");
    answer.verdict->kind = FindingKind::kUnknown;
    return answer;
  }
  answer.y = std::move(outcome.y);
  return answer;
}

bool NewInstances::Give(const Subject& subject, const Case& c, const Tensor& promised) {
  constexpr int kWrong = 3;
  Known& known = known_[{std::string(subject.name()), c.op}];
  if (known.remembers) return true;
  if (known.wrong < kWrong) known.last = SubjectRegistry::Get().MakeAnew(subject);
  // A failure has no y.
  known.remembers = known.last == nullptr || Ask(*known.last, c).y == promised;
  if (!known.remembers) ++known.wrong;
  if (known.wrong < kWrong || known.remembers) known.last.reset();
  return known.remembers;
}

Verdict SameAnswer(const Case& c, const Case& follow_up, Subject& subject,
                   const std::string& what) {
  const Answer expected = Ask(subject, c);
  if (expected.verdict) return *expected.verdict;
  return Expect(follow_up, expected.y, subject, what);
}

Verdict Expect(const Case& c, const Tensor& expected, Subject& subject, const std::string& what) {
  const Answer actual = Ask(subject, c);
  if (actual.verdict) return *actual.verdict;
  return Difference(c, expected, actual.y, what).value_or(Verdict::Passed());
}

std::optional<Verdict> CompareAlone(const Case& c, const Tensor& whole, const Case& part,
                                    Subject& subject,
                                    const std::function<int64_t(int64_t i)>& place,
                                    const std::string& what) {
  const Answer alone = Ask(subject, part);
  if (alone.verdict) return alone.verdict;
  for (int64_t i = 0; i < alone.y.size(); ++i) {
    if (!alone.y.SameAt(i, whole, place(i))) return FailedAt(c, alone.y, i, whole, place(i), what);
  }
  return std::nullopt;
}

namespace {

// "[m,n]"
std::string PlaceText(const Case& c, int64_t i) {
  const int64_t columns = std::max<int64_t>(1, c.output_shape().back());
  return "[" + std::to_string(i / columns) + "," + std::to_string(i % columns) + "]";
}

}  // namespace

Verdict FailedAt(const Case& c, int64_t i, const std::string& expected, const std::string& actual,
                 double distance_lsb, const std::string& what) {
  return Verdict::Failed(
      what + ": expected " + expected + " at output " + PlaceText(c, i) + ", got " + actual,
      Divergence{i, expected, actual, distance_lsb});
}

Verdict FailedAt(const Case& c, const Tensor& expected, int64_t from, const Tensor& actual,
                 int64_t i, const std::string& what) {
  return FailedAt(c, i, ElementText(expected, from), ElementText(actual, i),
                  DistanceLsb(expected, from, actual, i), what);
}

std::optional<Verdict> Difference(const Case& c, const Tensor& expected, const Tensor& actual,
                                  const std::string& what) {
  const std::optional<Divergence> first = FirstDivergence(expected, actual);
  if (!first) return std::nullopt;
  return FailedAt(c, first->index, first->expected, first->actual, first->distance_lsb, what);
}

std::optional<Verdict> Changed(const Case& c, const Tensor& before, const Tensor& after,
                               const std::string& what) {
  const std::optional<Divergence> first = FirstDivergence(before, after);
  if (!first) return std::nullopt;
  Verdict verdict = Verdict::Failed(what + ": first " + first->expected + " at output " +
                                        PlaceText(c, first->index) + ", then " + first->actual,
                                    *first);
  if (ExactOf(c).SameAt(first->index, after, first->index))
    std::swap(verdict.divergence->expected, verdict.divergence->actual);
  return verdict;
}

std::optional<Verdict> AnswersByChance(const Case& c, Subject& subject, const RunContext& context) {
  constexpr int kTimes = 6;
  RunContext fresh = context;  // not one from which a MemoSubject answers
  fresh.poison = 0x3C;
  const Answer first = Ask(subject, c, fresh);
  for (int i = 1; i < kTimes && !first.verdict; ++i) {
    const Answer again = Ask(subject, c, fresh);
    if (again.verdict) return std::nullopt;
    auto differs =
        Changed(c, first.y, again.y, "the same question, asked again, gets another answer");
    if (!differs) continue;
    differs->kind = FindingKind::kNondeterminism;
    return differs;
  }
  return std::nullopt;
}

// Whether two answers differ at most in outputs that hold what their memory held before.
bool SameButUnwritten(const Tensor& a, uint8_t poison_a, const Tensor& b, uint8_t poison_b) {
  const std::span<const std::byte> left = std::as_bytes(a.bytes()),
                                   right = std::as_bytes(b.bytes());
  for (size_t i = 0; i < left.size(); ++i) {
    if (left[i] != right[i] && (left[i] != std::byte{poison_a} || right[i] != std::byte{poison_b}))
      return false;
  }
  return true;
}

std::optional<Verdict> ChangedIn(const RunContext& context, const Case& c, const Tensor& base,
                                 const Tensor& actual, Subject& subject, const std::string& what,
                                 FindingKind kind) {
  if (base == actual) return std::nullopt;
  if (auto chance = AnswersByChance(c, subject)) return chance;
  RunContext fresh;  // not one from which a MemoSubject answers
  fresh.poison = 0x3C;
  const Answer again = Ask(subject, c, fresh);
  if (!again.verdict && !SameButUnwritten(base, RunContext{}.poison, again.y, fresh.poison)) {
    auto differs =
        Changed(c, base, again.y, "the same question, asked after others, gets another answer");
    differs->kind = FindingKind::kNondeterminism;
    return differs;
  }
  const char* const how = AnswersByChance(c, subject, context)   ? ", not the same way each time"
                          : kind == FindingKind::kNondeterminism ? ", the same way each time"
                                                                 : "";
  auto differs = Difference(c, base, actual, what + how);
  if (differs) differs->kind = kind;
  return differs;
}

}  // namespace qualm::relation
