// SPDX-License-Identifier: Apache-2.0
#include "oracles/conventions/accumulation.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/status.h"

namespace qualm::conventions {
namespace {

using Kind = Accumulation::Kind;

std::string Text(int64_t value) { return std::to_string(value); }

// All elements of a tensor of bytes or wider integers: no convention takes packed codes.
std::vector<int32_t> Integers(const Tensor& tensor) {
  std::vector<int32_t> values(static_cast<size_t>(tensor.size()));
  tensor.VisitElements([&](auto elements) {
    std::ranges::transform(elements, values.begin(),
                           [](auto code) { return static_cast<int32_t>(code); });
  });
  return values;
}

std::span<const int32_t> Row(const std::vector<int32_t>& values, int64_t row, int64_t length) {
  return std::span<const int32_t>(values).subspan(static_cast<size_t>(row * length),
                                                  static_cast<size_t>(length));
}

// The pairs of [begin, end), an odd last k paired with 0*0.
int64_t SumOfPairs(std::span<const int32_t> x, std::span<const int32_t> w, size_t begin, size_t end,
                   int32_t x_plus, int32_t w_plus, Trace* trace) {
  int64_t sum = 0;
  for (size_t k = begin; k < end; k += 2) {
    const bool whole = k + 1 < end;
    const int32_t x0 = x[k] + x_plus;
    const int32_t w0 = w[k] + w_plus;
    const int32_t x1 = whole ? x[k + 1] + x_plus : 0;
    const int32_t w1 = whole ? w[k + 1] + w_plus : 0;
    const int32_t pair = SaturatingPair(x0, w0, x1, w1);
    sum += pair;
    if (trace == nullptr) continue;
    const int64_t full = int64_t{x0} * w0 + int64_t{x1} * w1;
    if (pair != full) {
      Note(trace, Stage::kAccumulate,
           "pair k=(" + Text(static_cast<int64_t>(k)) + "," + Text(static_cast<int64_t>(k + 1)) +
               "): " + Text(x0) + "*" + Text(w0) + " + " + Text(x1) + "*" + Text(w1) + " = " +
               Text(int64_t{x0} * w0) + " + " + Text(int64_t{x1} * w1) + " = " + Text(full) +
               " -> " + Text(pair) + ", lost " + Text(full - pair),
           Text(pair), true);
    }
  }
  return sum;
}

// A weight times 0.5, to the nearest integer, ties to even.
int32_t Halved(int32_t w) {
  return static_cast<int32_t>(RoundNearestEven(static_cast<float>(w) / 2));
}

// acc16: saturating int16 sums of saturating pairs, spilled to int32 every 256 k's.
int64_t SumInto16(std::span<const int32_t> x, std::span<const int32_t> w, Trace* trace) {
  constexpr size_t kBlock = 256;
  int64_t sum = 0;
  for (size_t begin = 0; begin < x.size(); begin += kBlock) {
    const size_t end = std::min(x.size(), begin + kBlock);
    int32_t lane = 0;
    for (size_t at = begin; at < end; at += 2) {
      const auto pair =
          static_cast<int32_t>(SumOfPairs(x, w, at, std::min(at + 2, end), 0, 0, trace));
      const int32_t next = Sat16(int64_t{lane} + pair);
      if (next != lane + pair) {
        Note(trace, Stage::kAccumulate,
             "int16 sum at k=" + Text(static_cast<int64_t>(at)) + ": " + Text(lane) + " + " +
                 Text(pair) + " = " + Text(lane + pair) + " -> " + Text(next) + ", lost " +
                 Text(lane + pair - next),
             Text(next), true);
      }
      lane = next;
    }
    sum += lane;
  }
  return sum;
}

// kHalvedWeights counts in units of two until the sum is a float32, where there is no wrapping.
int64_t Doubled(const Accumulation& accumulation, int32_t units) {
  return accumulation.kind == Kind::kHalvedWeights ? 2 * int64_t{units} : units;
}

// How a sum of so many products is taken.
std::string HowText(const Accumulation& accumulation, size_t products) {
  std::string how = "sum of " + Text(static_cast<int64_t>(products)) + " products";
  if (!accumulation.kernel.empty()) how += " (" + std::string(accumulation.kernel) + ")";
  switch (accumulation.kind) {
    case Kind::kExact: return how;
    case Kind::kHalvedWeights:
      return how + ", each weight halved, rounded to even, in units of two";
    case Kind::kPairsInto16: return how + " in saturating int16, spilled every 256";
    case Kind::kPairs: return how + " in saturating int16 pairs";
    case Kind::kPairsXPlus128:
      return how + " in saturating int16 pairs, x shifted to u8 by 128 and 128*sum(w) taken off";
    case Kind::kPairsWPlus128:
      return how + " in saturating int16 pairs, w shifted to u8 by 128 and 128*sum(x) taken off";
  }
  return how;
}

}  // namespace

int64_t SumOf(std::span<const int32_t> codes) {
  int64_t sum = 0;
  for (const int32_t code : codes) sum += code;
  return sum;
}

int32_t Accumulate(const Accumulation& accumulation, std::span<const int32_t> x,
                   std::span<const int32_t> w, Trace* trace) {
  QUALM_CHECK_EQ(x.size(), w.size());
  int64_t sum = 0;
  bool halved = false;
  // int64 holds it: readers bound K at 2^28 elements and one product at 2^16.
  switch (accumulation.kind) {
    case Kind::kExact:
      for (size_t k = 0; k < x.size(); ++k) sum += int64_t{x[k]} * w[k];
      break;
    case Kind::kHalvedWeights: {
      int64_t odd = 0;
      for (size_t k = 0; k < x.size(); ++k) {
        odd += w[k] & 1;
        sum += int64_t{x[k]} * Halved(w[k]);
      }
      halved = odd != 0;
      break;
    }
    case Kind::kPairsInto16: sum = SumInto16(x, w, trace); break;
    case Kind::kPairs:
    case Kind::kPairsXPlus128:
    case Kind::kPairsWPlus128: {
      const int32_t x_plus = accumulation.kind == Kind::kPairsXPlus128 ? 128 : 0;
      const int32_t w_plus = accumulation.kind == Kind::kPairsWPlus128 ? 128 : 0;
      const size_t split = static_cast<size_t>(accumulation.first_block);
      sum = SumOfPairs(x, w, 0, split, x_plus, w_plus, trace) +
            SumOfPairs(x, w, split, x.size(), x_plus, w_plus, trace);
      if (x_plus != 0) sum -= 128 * SumOf(w);
      if (w_plus != 0) sum -= 128 * SumOf(x);
      break;
    }
  }
  const int32_t acc = Wrap32(sum);
  if (trace == nullptr) return acc;  // most sums are not told, and their text costs more than they
  Note(trace, Stage::kAccumulate,
       HowText(accumulation, x.size()) + " = " + Text(sum) +
           (acc != sum ? ", wrapped to int32" : ""),
       Text(acc), acc != sum || halved);
  return acc;
}

Value TakeOutWrapping(const RawSum& sum) { return TakeOutWrapping(sum, SumOf(sum.x)); }

Value TakeOutWrapping(const RawSum& sum, int64_t x_sum) {
  // uint64 arithmetic modulo 2^64 keeps the low 32 bits right whatever the zero points are.
  const auto u = [](int64_t value) { return static_cast<uint64_t>(value); };
  const uint64_t result =
      u(sum.acc) - u(sum.x_zero_point) * u(SumOf(sum.w)) - u(sum.w_zero_point) * u(x_sum) +
      u(static_cast<int64_t>(sum.x.size())) * u(sum.x_zero_point) * u(sum.w_zero_point);
  Value value;
  value.SetInt(Wrap32(static_cast<int64_t>(result)));
  return value;
}

// The operands of one sum, for linear and convolutions.
class Sums::Terms {
 public:
  Terms(const Case& c, Accumulation accumulation)
      : case_(c), accumulation_(accumulation), x_codes_(Integers(c.x)), w_codes_(Integers(c.w)) {}

  // Gathers the terms of output `index`; the spans hold until the next call.
  void Select(int64_t index) {
    const int64_t m = index / case_.N, n = index % case_.N;
    if (case_.op == Op::kLinear) {
      x_ = real_x_ = Row(x_codes_, m, case_.K);
      w_ = real_w_ = Row(w_codes_, n, case_.K);
      return;
    }
    if (m != pixel_) {
      taps_ = TapsOf(case_.window, m);
      pixel_ = m;
    }
    Gather(n);
  }

  // The codes that are multiplied and added.
  std::span<const int32_t> x() const { return x_; }
  std::span<const int32_t> w() const { return w_; }
  // The codes whose sums the zero points are multiplied with (RawSum).
  std::span<const int32_t> real_x() const { return real_x_; }
  std::span<const int32_t> real_w() const { return real_w_; }

 private:
  using Padding = Accumulation::Padding;

  void Gather(int64_t n) {
    for (auto* list : {&added_x_, &added_w_, &summed_x_, &summed_w_}) list->clear();
    const Window& v = case_.window;
    const int64_t depth = v.in_c / v.groups;
    const int64_t first = n / (case_.N / v.groups) * depth;
    int64_t k = n * case_.K;
    for (const Tap& tap : taps_) {
      const bool inside = tap.x_row >= 0;
      if (!inside && accumulation_.padding == Padding::kAbsent) {
        for (int64_t c = 0; accumulation_.zero_point_stays && c < depth; ++c) {
          summed_x_.push_back(0);
          summed_w_.push_back(-w_codes_[static_cast<size_t>(k + c)]);
        }
        k += depth;
        continue;
      }
      for (int64_t c = 0; c < depth; ++c, ++k) {
        const int32_t x =
            inside ? x_codes_[static_cast<size_t>(tap.x_row + first + c)] : PaddingCode();
        const int32_t w = w_codes_[static_cast<size_t>(k)];
        added_x_.push_back(x);
        added_w_.push_back(w);
        if (!inside && accumulation_.padding == Padding::kZeroCode) continue;
        if (accumulation_.zero_point_stays) continue;
        summed_x_.push_back(x);
        // The zero-point terms take the weights that were multiplied, so the halved ones.
        summed_w_.push_back(accumulation_.kind == Kind::kHalvedWeights ? Halved(w) : w);
      }
      if (accumulation_.pairs_within_tap && depth % 2 != 0) {
        added_x_.push_back(0);
        added_w_.push_back(0);
      }
    }
    x_ = added_x_;
    w_ = added_w_;
    real_x_ = summed_x_;
    real_w_ = summed_w_;
  }

  int32_t PaddingCode() const {
    if (accumulation_.padding == Padding::kZeroCode) return 0;
    const auto byte = static_cast<uint8_t>(static_cast<uint32_t>(case_.x_q.zero_point_at(0)));
    return case_.x.dtype() == DType::kU8 ? byte : static_cast<int8_t>(byte);
  }

  const Case& case_;
  Accumulation accumulation_;
  std::vector<int32_t> x_codes_, w_codes_;
  int64_t pixel_ = -1;
  std::vector<Tap> taps_;
  std::vector<int32_t> added_x_, added_w_, summed_x_, summed_w_;
  std::span<const int32_t> x_, w_, real_x_, real_w_;
};

Sums::Sums(const Case& c, const Accumulation& accumulation)
    : case_(c), accumulation_(accumulation), terms_(std::make_unique<Terms>(c, accumulation)) {}
Sums::~Sums() = default;

Sums::Sum Sums::At(int64_t index, Trace* trace) {
  terms_->Select(index);
  const int32_t acc = Accumulate(accumulation_, terms_->x(), terms_->w(), trace);
  const RawSum sum{acc,
                   case_.x_q.zero_point_at(0),
                   case_.w_q.zero_point_at(index % case_.N),
                   case_.x.dtype() == DType::kS8,
                   terms_->real_x(),
                   terms_->real_w()};
  Value value = accumulation_.take_out(sum);
  const bool halved = accumulation_.kind == Kind::kHalvedWeights;
  if (halved && value.real) value.SetReal(2 * value.number);
  if (halved && !value.real) value.SetInt(2 * value.integer);
  if (trace != nullptr && !accumulation_.lossy_how.empty()) {
    const int32_t x_zp = sum.x_zero_point, w_zp = sum.w_zero_point;
    const int64_t x_sum = SumOf(sum.x), w_sum = SumOf(sum.w);
    const auto count = static_cast<int64_t>(sum.x.size());
    const __int128 exact = static_cast<__int128>(acc) - static_cast<__int128>(x_zp) * w_sum -
                           static_cast<__int128>(w_zp) * x_sum +
                           static_cast<__int128>(x_zp) * w_zp * count;
    const __int128 full = halved ? 2 * exact : exact;
    const bool lossy = value.real ? static_cast<double>(full) != static_cast<double>(value.number)
                                  : full != value.integer;
    Note(trace, Stage::kOffset,
         "zero points " + Text(x_zp) + " and " + Text(w_zp) + ": " + Text(acc) + " - " +
             Text(x_zp) + "*" + Text(w_sum) + " - " + Text(w_zp) + "*" + Text(x_sum) + " + " +
             Text(count) + "*" + Text(x_zp) + "*" + Text(w_zp) + " -> " + ValueText(value) +
             (lossy ? std::string(accumulation_.lossy_how) : "") + (halved ? ", doubled" : "") +
             (accumulation_.zero_point_stays ? "; that of the weights was lost" : ""),
         ValueText(value), lossy || (accumulation_.zero_point_stays && x_zp != 0));
  }
  return {Wrap32(Doubled(accumulation_, acc)), value};
}

}  // namespace qualm::conventions
