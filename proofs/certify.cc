// SPDX-License-Identifier: Apache-2.0
#include "proofs/certify.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <span>
#include <string>

#include "core/slice.h"
#include "core/status.h"
#include "proofs/directed.h"

namespace qualm::proofs {
namespace {

using Kind = Scheme::Kind;

// The range of the operand that the kernel multiplies, which follows from the codes of x.
struct Operand {
  int32_t lo, hi;
  int64_t most(int32_t w) const { return int64_t{w} * (w > 0 ? hi : lo); }
  int64_t least(int32_t w) const { return int64_t{w} * (w > 0 ? lo : hi); }
};
Operand OperandOf(const Scheme& scheme, Codes x) {
  return {x.lo + scheme.x_plus, x.hi + scheme.x_plus};
}

// The largest and smallest corner of the narrow sums of a row, and of the whole sum.
struct Bounds {
  int64_t top = std::numeric_limits<int64_t>::min();
  int64_t bottom = std::numeric_limits<int64_t>::max();
  int64_t least = 0, most = 0;
};

// A row of products two by two; `count` is even. Compilers vectorize the inner loop: int32 holds
// what a block adds up to.
template <class W>
Bounds BoundsOfPairs(const W* w, int64_t count, Operand x) {
  constexpr int64_t kBlock = 1 << 12;
  Bounds bounds;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(count, begin + kBlock);
    int32_t top = INT32_MIN, bottom = INT32_MAX, positive = 0, negative = 0;
    for (int64_t k = begin; k < end; k += 2) {
      const int32_t w0 = w[k], w1 = w[k + 1];
      const int32_t up = std::max(w0, 0) + std::max(w1, 0);
      const int32_t down = w0 + w1 - up;
      top = std::max(top, up * x.hi + down * x.lo);
      bottom = std::min(bottom, up * x.lo + down * x.hi);
      positive += up;
      negative += down;
    }
    bounds.top = std::max<int64_t>(bounds.top, top);
    bounds.bottom = std::min<int64_t>(bounds.bottom, bottom);
    bounds.most += int64_t{positive} * x.hi + int64_t{negative} * x.lo;
    bounds.least += int64_t{positive} * x.lo + int64_t{negative} * x.hi;
  }
  return bounds;
}

// Limits that the corners of a narrow sum must not pass.
struct Limits {
  int64_t low = INT16_MIN, high = INT16_MAX;
  bool Hold(int64_t least, int64_t most) const { return least >= low && most <= high; }
};

// Calls visit(place, least, most) for each narrow sum, with its corners and the place at which it
// begins. The corners of kRuns include the sum that the run already holds.
template <class Visit>
Bounds ForEachSum(const Scheme& scheme, std::span<const int16_t> row, Operand x, Visit visit) {
  Bounds bounds;
  int64_t run_most = 0, run_least = 0;
  const auto size = static_cast<int64_t>(row.size());
  for (int64_t begin = 0; begin < size; begin += scheme.length) {
    int64_t most = 0, least = 0;
    for (int64_t place = begin; place < std::min(begin + scheme.length, size); ++place) {
      const int32_t w = row[static_cast<size_t>(place)];
      most += x.most(w);
      least += x.least(w);
    }
    bounds.most += most;
    bounds.least += least;
    if (scheme.kind == Kind::kRuns) {
      if (begin % scheme.spill == 0) run_most = run_least = 0;
      run_most += most;
      run_least += least;
      // The pair alone or the run with the pair, whichever is farther out.
      most = std::max(most, run_most);
      least = std::min(least, run_least);
    }
    bounds.top = std::max(bounds.top, most);
    bounds.bottom = std::min(bounds.bottom, least);
    visit(begin, least, most);
  }
  return bounds;
}

// float32 holds every multiple of 2^e up to 2^(24+e) and no odd multiple beyond. So a row whose
// weights are multiples of 2^e can go wrong if and only if its sums reach an odd multiple beyond.
// The farthest odd multiple in reach is the corner itself, or the sum that remains when the
// smallest odd weight is taken one step off the corner.
struct FloatCorner {
  int64_t value = 0;     // the farthest odd multiple within reach
  int64_t limit = 0;     // 2^(24+e)
  int64_t step_at = -1;  // the term whose activation is one step off its corner; -1: none
};
FloatCorner FarthestOddSum(std::span<const int16_t> row, Operand x, bool high) {
  uint32_t bits = 0;
  int64_t corner = 0;
  for (const int16_t w : row) {
    bits |= static_cast<uint32_t>(w);
    corner += high ? x.most(w) : x.least(w);
  }
  FloatCorner result;
  if (bits == 0) return {0, 1, -1};
  const int64_t unit = int64_t{1} << std::countr_zero(bits);
  result.limit = unit << 24;
  result.value = std::abs(corner);
  if (corner / unit % 2 != 0) return result;
  int64_t smallest = std::numeric_limits<int64_t>::max();
  for (size_t k = 0; k < row.size() && x.lo < x.hi; ++k) {
    const int64_t size = std::abs(row[k]);
    if (size / unit % 2 == 0 || size >= smallest) continue;
    smallest = size;
    result.step_at = static_cast<int64_t>(k);
  }
  result.value = result.step_at < 0 ? 0 : result.value - smallest;
  return result;
}

// The rows of a layer, with their weights in the order of the scheme.
class Rows {
 public:
  Rows(const Case& layer, const Scheme& scheme)
      : layer_(layer), scheme_(scheme), count_(TermsOf(layer).count()) {
    QUALM_CHECK(IsCode(layer.w.dtype()));
  }

  // A row that a fast loop may read where it lies: s8 weights, their own order, whole pairs.
  const int8_t* InPlace(int64_t n) const {
    const bool plain = scheme_.kind == Kind::kPairs && scheme_.order.empty() &&
                       scheme_.w_plus == 0 && layer_.w.dtype() == DType::kS8 && count_ % 2 == 0;
    return plain ? layer_.w.as<int8_t>().data() + n * count_ : nullptr;
  }

  std::span<const int16_t> Ordered(int64_t n) {
    const bool natural = scheme_.order.empty();
    const size_t places = natural ? static_cast<size_t>(count_) : scheme_.order.size();
    const uint8_t* const w = layer_.w.bytes().data() + n * count_;
    const bool is_signed = layer_.w.dtype() == DType::kS8;
    // An odd row ends with a product 0.
    row_.assign(places + places % 2, 0);
    for (size_t place = 0; place < places; ++place) {
      const int32_t k = natural ? static_cast<int32_t>(place) : scheme_.order[place];
      if (k == kNoTerm) continue;
      const int32_t code = is_signed ? static_cast<int8_t>(w[k]) : w[k];
      row_[place] = static_cast<int16_t>(code + scheme_.w_plus);
    }
    return row_;
  }

  int64_t count() const { return count_; }

 private:
  const Case& layer_;
  const Scheme& scheme_;
  int64_t count_;
  std::vector<int16_t> row_;
};

Bounds BoundsOf(Rows& rows, const Scheme& scheme, int64_t n, Operand x) {
  if (const int8_t* row = rows.InPlace(n)) return BoundsOfPairs(row, rows.count(), x);
  const std::span<const int16_t> row = rows.Ordered(n);
  if (scheme.kind == Kind::kPairs) {
    return BoundsOfPairs(row.data(), static_cast<int64_t>(row.size()), x);
  }
  return ForEachSum(scheme, row, x, [](int64_t, int64_t, int64_t) {});
}

bool HasNarrowSums(const Scheme& scheme) {
  return scheme.kind != Kind::kExact && scheme.kind != Kind::kFloat32;
}

// Describes the unsafe sums of a row that has some: their number, and the worst of them.
UnsafeChannel Describe(Rows& rows, const Scheme& scheme, int64_t n, Operand x) {
  UnsafeChannel channel{.n = n};
  const Limits limits;
  int64_t worst = 0;
  ForEachSum(scheme, rows.Ordered(n), x, [&](int64_t place, int64_t least, int64_t most) {
    if (limits.Hold(least, most)) return;
    ++channel.sums;
    const int64_t above = most - limits.high, below = limits.low - least;
    if (std::max(above, below) <= worst) return;
    worst = std::max(above, below);
    channel.place = place;
    channel.corner = above >= below ? most : least;
  });
  return channel;
}

std::optional<UnsafeChannel> FloatChannel(Rows& rows, int64_t n, Operand x) {
  for (const bool high : {true, false}) {
    const FloatCorner corner = FarthestOddSum(rows.Ordered(n), x, high);
    if (corner.value <= corner.limit) continue;
    return UnsafeChannel{n, 1, 0, high ? corner.value : -corner.value};
  }
  return std::nullopt;
}

// The places of the products in one narrow sum; with kRuns from the begin of its run.
std::pair<int64_t, int64_t> PlacesOf(const Scheme& scheme, int64_t place) {
  return {scheme.kind == Kind::kRuns ? place / scheme.spill * scheme.spill : place,
          place + scheme.length};
}

int64_t ExactSum(const Scheme& scheme, const std::vector<int32_t>& x,
                 const std::vector<int32_t>& w) {
  int64_t sum = 0;
  for (size_t k = 0; k < x.size(); ++k) {
    sum += int64_t{x[k] + scheme.x_plus} * (w[k] + scheme.w_plus);
  }
  return sum;
}

// The code of x that leads to the largest or the smallest product with weight w.
int32_t CornerCode(const Scheme& scheme, Codes x, int32_t w, bool high) {
  return (w + scheme.w_plus > 0) == high ? x.hi : x.lo;
}

}  // namespace

Codes WithPadding(const Case& layer, Codes x) {
  if (!IsConv(layer.op)) return x;
  // Kernels hold the zero point in a byte, whether it is a code or not.
  const auto byte = static_cast<uint8_t>(static_cast<uint32_t>(layer.x_q.zero_point_at(0)));
  const int32_t zero_point = layer.x.dtype() == DType::kU8 ? byte : static_cast<int8_t>(byte);
  return {std::min({x.lo, 0, zero_point}), std::max({x.hi, 0, zero_point})};
}

std::vector<int32_t> WeightsOf(const Case& layer, int64_t n) {
  const int64_t count = TermsOf(layer).count();
  std::vector<int32_t> w(static_cast<size_t>(count));
  for (int64_t k = 0; k < count; ++k) w[static_cast<size_t>(k)] = layer.w.IntAt(n * count + k);
  return w;
}

Proof Certify(const Case& layer, const Scheme& scheme, Codes x, const Progress& progress) {
  const Operand operand = OperandOf(scheme, x);
  const Limits limits;
  Rows rows(layer, scheme);
  Proof proof;
  proof.channels = layer.N;
  const auto places = static_cast<int64_t>(scheme.order.empty() ? static_cast<size_t>(rows.count())
                                                                : scheme.order.size());
  proof.sums = (places + scheme.length - 1) / scheme.length * layer.N;
  const int64_t step = std::max<int64_t>(1, layer.N / 100);
  for (int64_t n = 0; n < layer.N; ++n) {
    const Bounds bounds = BoundsOf(rows, scheme, n, operand);
    proof.least = std::min(proof.least, bounds.least);
    proof.most = std::max(proof.most, bounds.most);
    std::optional<UnsafeChannel> channel;
    if (scheme.kind == Kind::kFloat32) {
      channel = FloatChannel(rows, n, operand);
    } else if (HasNarrowSums(scheme) && !limits.Hold(bounds.bottom, bounds.top)) {
      channel = Describe(rows, scheme, n, operand);
    }
    if (channel) {
      proof.unsafe_sums += channel->sums;
      proof.unsafe.push_back(*channel);
    }
    if (progress && (n + 1) % step == 0) {
      progress(static_cast<double>(n + 1) / static_cast<double>(layer.N));
    }
  }
  return proof;
}

bool IsSafe(const Case& layer, const Scheme& scheme, Codes x) {
  const Operand operand = OperandOf(scheme, x);
  Rows rows(layer, scheme);
  for (int64_t n = 0; n < layer.N; ++n) {
    if (scheme.kind == Kind::kFloat32 && FloatChannel(rows, n, operand)) return false;
    if (!HasNarrowSums(scheme)) continue;
    const Bounds bounds = BoundsOf(rows, scheme, n, operand);
    if (!Limits().Hold(bounds.bottom, bounds.top)) return false;
  }
  return true;
}

std::optional<Witness> WitnessOf(const Case& layer, const Scheme& scheme, Codes x,
                                 const UnsafeChannel& channel) {
  const std::vector<int32_t> w = WeightsOf(layer, channel.n);
  const bool high = channel.corner > 0;
  Witness witness;
  witness.n = channel.n;
  const auto attempt = [&](auto rest) {
    witness.x.assign(w.size(), 0);
    for (size_t k = 0; k < w.size(); ++k) witness.x[k] = rest(w[k]);
    auto [begin, end] = PlacesOf(scheme, channel.place);
    if (scheme.kind == Kind::kFloat32) end = static_cast<int64_t>(w.size());
    for (int64_t place = begin; place < end; ++place) {
      const auto at = static_cast<size_t>(place);
      if (at >= (scheme.order.empty() ? w.size() : scheme.order.size())) break;
      const int32_t k = scheme.order.empty() ? static_cast<int32_t>(place) : scheme.order[at];
      if (k == kNoTerm) continue;
      const auto term = static_cast<size_t>(k);
      witness.x[term] = CornerCode(scheme, x, w[term], high);
    }
    if (scheme.kind == Kind::kFloat32) {
      Rows rows(layer, scheme);
      const int64_t step =
          FarthestOddSum(rows.Ordered(channel.n), OperandOf(scheme, x), high).step_at;
      if (step >= 0) {
        int32_t& code = witness.x[static_cast<size_t>(step)];
        code += code == x.hi ? -1 : 1;
      }
    }
    witness.exact = ExactSum(scheme, witness.x, w);
    witness.got = Simulate(scheme, witness.x, w);
    return witness.exact != witness.got;
  };
  const int32_t zero = std::clamp(-scheme.x_plus, x.lo, x.hi);
  if (attempt([&](int32_t) { return zero; })) return witness;
  if (attempt([&](int32_t each) { return CornerCode(scheme, x, each, high); })) return witness;
  if (attempt([&](int32_t each) { return CornerCode(scheme, x, each, !high); })) return witness;
  return std::nullopt;
}

Case WitnessCase(const Case& layer, const Witness& witness) {
  const std::array<int64_t, 1> channel{witness.n};
  Case c = RawSumsOf(slice::Channels(layer, channel), 1);
  for (size_t k = 0; k < witness.x.size(); ++k) {
    c.x.SetInt(static_cast<int64_t>(k), witness.x[k]);
  }
  // With this output scale the kernel's sum and the exact sum lie on two sides of half a code if
  // they have one sign. So the two round to different codes.
  const std::vector<int32_t> w = WeightsOf(layer, witness.n);
  int64_t raw = 0;
  for (size_t k = 0; k < w.size(); ++k) raw += int64_t{witness.x[k]} * w[k];
  const int64_t wrong = raw - (witness.exact - witness.got);
  const int64_t both =
      (raw < 0) == (wrong < 0) ? std::abs(raw + wrong) : std::max(std::abs(raw), std::abs(wrong));
  c.out_q.scale = {static_cast<float>(std::max<int64_t>(both, 1))};
  c.out_dtype = DType::kU8;
  c.out_min = 0;
  c.out_max = 255;
  c.out_q.zero_point = {128};
  c.property = "matches_exact";
  c.note = "channel " + std::to_string(witness.n) + ": the exact sum is " + std::to_string(raw) +
           ", the narrow sums give " + std::to_string(wrong);
  return c;
}

}  // namespace qualm::proofs
