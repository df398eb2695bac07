// SPDX-License-Identifier: Apache-2.0
// Causes that come in families: the same mistake with blocks, lanes, counters or words of several
// lengths. A row for each length, made by a loop.
#ifndef QUALM_TRIAGE_CAUSE_FAMILIES_H_
#define QUALM_TRIAGE_CAUSE_FAMILIES_H_

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "triage/causes.h"
#include "triage/stages.h"

namespace qualm::triage {

// The operation adds products of codes.
inline bool SumsOfCodes(const Case& c) { return HasSums(c) || RowOf(c.op).dynamic; }
// Several blocks of weights in a row.
inline bool HasBlocks(const Case& c) { return c.w_block != 0 && c.N > 0 && RowBlocks(c) > 1; }

// Sets `where`; whether its value has changed.
template <class T>
bool Replace(T& where, T value) {
  const bool changes = where != value;
  where = std::move(value);
  return changes;
}

// Each entry from another place; whether that changes the list.
template <class T>
bool Reindex(std::vector<T>& list, const auto& from) {
  const std::vector<T> old = list;
  int64_t n = 0;
  for (T& entry : list) entry = old[static_cast<size_t>(from(n++, std::ssize(old)))];
  return list != old;
}

template <class T>
bool Reindex(std::optional<std::vector<T>>& list, const auto& from) {
  return list && Reindex(*list, from);
}
template <class From>
bool ReindexScales(Case& c, const From& from) {
  bool changes = Reindex(c.multiplier, from);
  for (QParams* q : {&c.x_q, &c.w_q, &c.out_q}) changes |= Reindex(q->scale, from);
  return changes;
}

// Rows of `columns` codes are laid out at one stride and read at another: filled up with code 0 to
// `whole` codes each and read at a stride of `columns`, or the reverse. The code that is read for
// one of them; -1 for code 0, as for what lies behind the last row.
inline int64_t AtOtherStride(int64_t row, int64_t term, int64_t columns, int64_t whole,
                             bool filled) {
  if (!filled) return row * whole + term;
  const int64_t at = row * columns + term;
  return at % whole < columns ? at / whole * columns + at % whole : -1;
}

// A value beyond int32 as cvtps2dq and cvttss2si convert it.
inline double HugeBecomesMinimum(double value) {
  return std::abs(value) < 0x1p31 ? value : -0x1p31;
}
inline double KeepLowByte(DType dtype, double code) {
  const auto whole = static_cast<int64_t>(std::clamp(code, -0x1p62, 0x1p62));
  return dtype == DType::kS8 ? static_cast<int8_t>(whole) : static_cast<uint8_t>(whole);
}
// What C makes of a float that it converts to an integer of 8 bits, on x86: rounded by kRound to an
// int32, and then the low byte.
template <auto kRound>
bool CastAsInC(Stages& s) {
  s.codes.round = kRound;
  s.codes.convert = HugeBecomesMinimum;
  s.codes.narrow = KeepLowByte;
  return true;
}

template <class Narrow>
int64_t Wrapped(int64_t value) {
  return static_cast<Narrow>(static_cast<std::make_unsigned_t<Narrow>>(value));
}

template <class Narrow>
int64_t Saturated(int64_t value) {
  return std::clamp<int64_t>(value, std::numeric_limits<Narrow>::min(),
                             std::numeric_limits<Narrow>::max());
}

// Adds products in lanes of 16 bits, which are emptied into the sum after `every` additions.
struct Lanes {
  int64_t step = 1;  // products that are added before they come to a lane, saturating if two
  size_t lanes = 1;
  int64_t every = 0;  // 0: at the end alone
  bool wraps = false;

  std::string text() const {
    return fmt::format("{} int16 {} that {}{}", lanes, lanes == 1 ? "lane" : "lanes",
                       wraps ? "wrap" : "saturate",
                       every == 0 ? "" : fmt::format(", emptied every {} additions", every));
  }
};

inline int64_t AddInLanes(const Lanes& how, DType x_dtype, Codes x, Codes w) {
  // vpmaddubsw wants one operand unsigned.
  const int32_t shift = how.step == 2 && x_dtype == DType::kS8 ? 128 : 0;
  std::array<int32_t, 32> lanes{};
  int64_t sum = 0, weights = 0, additions = 0;
  const auto count = std::ssize(x);
  const auto spill = [&] {
    for (int32_t& lane : std::span(lanes).first(how.lanes)) sum += std::exchange(lane, 0);
  };
  for (int64_t k = 0; k < count; k += how.step) {
    int64_t narrow = 0;  // x may be any int32: a cause is asked about cases that it does not fit
    for (int64_t i = k; i < std::min(k + how.step, count); ++i) {
      const auto at = static_cast<size_t>(i);
      weights += w[at];
      narrow += (int64_t{x[at]} + shift) * w[at];
    }
    if (how.step == 2) narrow = std::clamp<int64_t>(narrow, INT16_MIN, INT16_MAX);
    int32_t& lane = lanes[static_cast<size_t>(k / how.step) % how.lanes];
    narrow += lane;
    lane = static_cast<int32_t>(how.wraps ? Wrapped<int16_t>(narrow) : Saturated<int16_t>(narrow));
    ++additions;
    if (how.every != 0 && additions % (how.every * static_cast<int64_t>(how.lanes)) == 0) spill();
  }
  spill();
  return sum - int64_t{shift} * weights;
}

std::vector<Cause> CausesOfFamilies();
// The same mistake at another operand, along another axis or at another step (cause_variants.cc).
std::vector<Cause> CausesOfVariants();
// The causes of stage kPlace: rows and columns in which another cause acts.
std::vector<Cause> Places();

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_CAUSE_FAMILIES_H_
