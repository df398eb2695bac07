// SPDX-License-Identifier: Apache-2.0
#include "proofs/exhaust.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "core/bulk.h"
#include "core/status.h"
#include "proofs/enclose.h"
#include "proofs/staircase.h"

namespace qualm::proofs {
namespace {

// Inputs of a call: small enough for the second-level cache, large enough that the call is nothing.
constexpr uint64_t kPerBulkCall = uint64_t{1} << 15;
// A foreign process also takes a message for each call.
constexpr uint64_t kPerCall = uint64_t{1} << 18;

// The subject on one range after another, in buffers that are laid out once where it has such.
class Feed {
 public:
  Feed(const Domain& domain, Subject& subject, uint64_t count)
      : domain_(domain), subject_(subject), c_(domain.Shape(count)), count_(count) {
    bulk_ = dynamic_cast<BulkSubject*>(&subject);
    if (const std::string why = subject.CannotRun(c_); !why.empty()) failed_ = "skipped: " + why;
    if (bulk_ != nullptr && failed_.empty()) buffers_ = bulk_->OpenBulk(c_);
  }

  uint64_t count() const { return count_; }
  // "" or why there are no answers.
  const std::string& failed() const { return failed_; }

  // The output for [first, first + count()). Where the answers lie, `poison` lay before: an output
  // that is never written is no answer.
  std::span<const uint8_t> Answers(uint64_t first, uint8_t poison) {
    if (bulk_ == nullptr) {
      domain_.Fill(first, count_, c_.x.bytes(), c_.w.bytes());
      Outcome outcome = subject_.Run(c_, {.poison = poison});
      if (!outcome.ok()) failed_ = std::string(Name(outcome.status)) + ": " + outcome.detail;
      y_ = std::move(outcome.y);
      return y_.bytes();
    }
    domain_.Fill(first, count_, buffers_.x, buffers_.w);
    std::memset(buffers_.y.data(), poison, buffers_.y.size());
    failed_ = bulk_->RunBulk();
    return buffers_.y;
  }

 private:
  const Domain& domain_;
  Subject& subject_;
  Case c_;
  uint64_t count_;
  BulkSubject* bulk_ = nullptr;
  BulkSubject::Buffers buffers_;
  Tensor y_;
  std::string failed_;
};

int64_t ValueOf(DType dtype, const uint8_t* at) {
  if (dtype == DType::kU8) return *at;
  if (dtype == DType::kS8) return static_cast<int8_t>(*at);
  if (IsWideCode(dtype)) {
    uint16_t code = 0;
    std::memcpy(&code, at, sizeof code);
    return dtype == DType::kS16 ? static_cast<int16_t>(code) : code;
  }
  int32_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return dtype == DType::kF32 ? int64_t{static_cast<uint32_t>(value)} : value;
}

// Place of a float among all floats in rising order, both zeros at one place.
int64_t PlaceOf(int64_t bits) { return bits >> 31 == 0 ? bits : 0x8000'0000 - bits; }

Wrong WrongOf(const Domain& domain, uint64_t number, int64_t expected, int64_t actual) {
  const bool real = domain.problem().out_dtype == DType::kF32;
  const int64_t distance = real ? PlaceOf(expected) - PlaceOf(actual) : expected - actual;
  return {number, expected, actual, static_cast<uint64_t>(distance < 0 ? -distance : distance),
          domain.IsNan(number)};
}

// Whether all elements of `size` bytes are the first one.
bool AllAlike(std::span<const uint8_t> bytes, size_t size) {
  // Compared with itself one element further on: memcmp is as fast as the memory.
  return std::memcmp(bytes.data(), bytes.data() + size, bytes.size() - size) == 0;
}

// Each of the answers should be `value`.
void CompareRun(const Domain& domain, uint64_t first, int32_t value,
                std::span<const uint8_t> answers, Tally& tally) {
  const DType dtype = domain.problem().out_dtype;
  const size_t size = SizeOf(dtype);
  if (answers.empty() || (ValueOf(dtype, &answers[0]) == value && AllAlike(answers, size))) return;
  for (size_t i = 0; i < answers.size(); i += size) {
    const int64_t actual = ValueOf(dtype, &answers[i]);
    if (actual != value) tally.Add(WrongOf(domain, first + i / size, value, actual));
  }
}

// Calls visit(first, last, value) for each run of equal values inside [first, last).
template <class Visit>
void ForEachRun(const std::vector<Steps>& ranges, uint64_t first, uint64_t last,
                const Visit& visit) {
  for (size_t r = 0; r < ranges.size(); ++r) {
    const Steps& steps = ranges[r];
    const uint64_t end = r + 1 < ranges.size() ? ranges[r + 1].front().start : UINT64_MAX;
    if (end <= first || steps.front().start >= last) continue;
    auto step =
        std::ranges::upper_bound(steps, std::max(first, steps.front().start), {}, &Step::start);
    for (--step; step != steps.end() && step->start < last; ++step) {
      const auto next = std::next(step);
      visit(std::max(first, step->start),
            std::min({last, end, next == steps.end() ? UINT64_MAX : next->start}), step->value);
    }
  }
}

// A subject that answers with the bytes it found would look right where they are.
uint8_t PoisonFor(const std::vector<Steps>& ranges, uint64_t first) {
  int32_t value = 0;
  ForEachRun(ranges, first, first + 1, [&](uint64_t, uint64_t, int32_t v) { value = v; });
  return static_cast<uint8_t>(~value);
}

void CompareEach(const Domain& domain, uint64_t first, std::span<const uint8_t> expected,
                 std::span<const uint8_t> answers, Tally& tally) {
  if (std::memcmp(expected.data(), answers.data(), answers.size()) == 0) return;
  const DType dtype = domain.problem().out_dtype;
  const size_t bytes = SizeOf(dtype);
  for (size_t i = 0; i < answers.size(); i += bytes) {
    const int64_t wanted = ValueOf(dtype, &expected[i]), actual = ValueOf(dtype, &answers[i]);
    if (wanted != actual) tally.Add(WrongOf(domain, first + i / bytes, wanted, actual));
  }
}

// Where a subject that has these steps departs from the expected ones.
void CompareSteps(const Domain& domain, const Steps& expected, const Steps& actual, uint64_t last,
                  Tally& tally) {
  const std::vector<Steps> ranges{actual};
  for (size_t i = 0; i < expected.size(); ++i) {
    const uint64_t end = i + 1 < expected.size() ? expected[i + 1].start : last + 1;
    ForEachRun(ranges, expected[i].start, end, [&](uint64_t a, uint64_t b, int32_t value) {
      if (value != expected[i].value)
        tally.Add(WrongOf(domain, a, expected[i].value, value), b - a);
    });
  }
}

}  // namespace

void Tally::Add(const Wrong& found, uint64_t times) {
  wrong += times;
  if (found.nan) wrong_nan += times;
  const auto order = [](const Wrong& w) { return std::pair(w.nan, w.number); };
  if (!first || order(found) < order(*first)) first = found;
  const auto goodness = [](const Wrong& w) { return std::tuple(w.nan, ~w.distance, w.number); };
  if (!worst || goodness(found) < goodness(*worst)) worst = found;
}

void Tally::Merge(const Tally& other) {
  const uint64_t sum = wrong + other.wrong, sum_nan = wrong_nan + other.wrong_nan;
  if (other.first) Add(*other.first);
  if (other.worst) Add(*other.worst);
  wrong = sum;
  wrong_nan = sum_nan;
  judged += other.judged;
  asked += other.asked;
  falls += other.falls;
  if (failed.empty()) failed = other.failed;
}

bool HasSteps(const Domain& domain) {
  return !domain.Rising().empty() && IsCode(domain.problem().out_dtype);
}

Tally BySteps(const Domain& domain, Reference& reference, Subject& subject, bool intervals) {
  Tally tally;
  auto* const enclosing = intervals ? dynamic_cast<EnclosingSubject*>(&subject) : nullptr;
  if (intervals && (enclosing == nullptr || enclosing->Evaluates(domain.problem()).empty())) {
    tally.failed =
        fmt::format("the arithmetic of {} is not known here, expected --full", subject.name());
    return tally;
  }
  const std::vector<Steps>& expected = reference.StepsOfRanges();
  const Ask ask = [&](std::span<const uint64_t> numbers) {
    std::vector<int32_t> values(numbers.size());
    if (!tally.failed.empty()) return values;
    const Outcome outcome = subject.Run(domain.At(numbers), {});
    if (!outcome.ok()) {
      tally.failed = std::string(Name(outcome.status)) + ": " + outcome.detail;
      return values;
    }
    for (size_t i = 0; i < values.size(); ++i) values[i] = outcome.y.IntAt(static_cast<int64_t>(i));
    return values;
  };
  if (intervals) tally.failed = reference.WhyNotShown();
  if (!tally.failed.empty()) return tally;
  const auto ranges = domain.Rising();
  for (size_t r = 0; r < ranges.size(); ++r) {
    const auto& [first, last] = ranges[r];
    const auto guess = [&](int32_t n) {
      const auto step = std::ranges::lower_bound(expected[r], n, {}, &Step::value);
      return step == expected[r].end() ? last : step->start;
    };
    const FoundSteps found = FindPieces(ask, first, last, guess, 64);
    if (!tally.failed.empty()) return tally;
    tally.asked += found.asked;
    tally.falls += found.falls;
    if (found.fall) {
      tally.failed = fmt::format(
          "falls from {} at {} to {} at {}: only the full sweep speaks for it", found.fall->value_a,
          domain.TextOf(found.fall->a), found.fall->value_b, domain.TextOf(found.fall->b));
      return tally;
    }
    if (intervals) {
      tally.failed =
          WhyNotEnclosed(domain, found.steps, last, [&](uint32_t first_bits, uint32_t last_bits) {
            return enclosing->Enclose(domain.problem(), first_bits, last_bits);
          });
      if (!tally.failed.empty()) return tally;
    }
    tally.judged += last - first + 1;
    CompareSteps(domain, expected[r], found.steps, last, tally);
  }
  return tally;
}

Tally InFull(const Domain& domain, Reference& reference, Subject& subject, Range range,
             const FullOptions& options) {
  const bool bulk = dynamic_cast<BulkSubject*>(&subject) != nullptr;
  const bool by_steps = !options.each && HasSteps(domain);
  const DType dtype = domain.problem().out_dtype;
  const uint64_t granule = domain.granule();
  const uint64_t wanted = options.per_call != 0 ? options.per_call : bulk ? kPerBulkCall : kPerCall;
  const uint64_t per_call = std::max<uint64_t>(1, wanted / granule) * granule;

  Tally tally;
  std::optional<Feed> feed;
  std::vector<uint8_t> expected;
  static const std::vector<Steps> kNone;
  const std::vector<Steps>& steps = by_steps ? reference.StepsOfRanges() : kNone;
  for (uint64_t at = range.first; at < range.last;) {
    const uint64_t count =
        std::min(domain.inputs() == Inputs::kQuads ? granule : per_call, range.last - at);
    if (!feed || feed->count() != count) feed.emplace(domain, subject, count);
    if (!by_steps) {
      expected.resize(count * SizeOf(dtype));
      reference.Each(at, count, expected);
    }
    const uint8_t poison =
        by_steps ? PoisonFor(steps, at) : static_cast<uint8_t>(~expected.front());
    std::span<const uint8_t> answers;
    if (feed->failed().empty()) answers = feed->Answers(at, poison);
    if (!feed->failed().empty()) {
      tally.failed = feed->failed();
      return tally;
    }
    if (by_steps) {
      ForEachRun(steps, at, at + count, [&](uint64_t a, uint64_t b, int32_t value) {
        const size_t size = SizeOf(dtype);
        CompareRun(domain, a, value, answers.subspan((a - at) * size, (b - a) * size), tally);
      });
    } else {
      CompareEach(domain, at, expected, answers, tally);
    }
    at += count;
    tally.judged += count;
    tally.asked += count;
    if (options.progress && !options.progress(tally, at - range.first)) break;
  }
  return tally;
}

}  // namespace qualm::proofs
