// SPDX-License-Identifier: Apache-2.0
#include "triage/passes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/scaled_cast.h"
#include "core/slice.h"
#include "oracles/exact/exact.h"
#include "oracles/headroom/headroom.h"
#include "triage/triage.h"

namespace qualm::triage {
namespace {

void Parameters(const Case& c, const Visit& visit) {
  const auto offer = [&](const auto& edit) {
    Case simpler = ProblemOf(c);
    edit(simpler);
    return visit(simpler);
  };
  const CodeRange range = RangeOf(c.out_dtype);
  const auto drop_bias = [](Case& s) { s.bias.reset(), s.bias_i32.reset(); };
  const auto drop_clamp = [](Case& s) { OpenClamp(&s); };
  if ((c.bias || c.bias_i32) && (c.relu || IsClamped(c)) && offer([&](Case& s) {
        drop_bias(s);
        drop_clamp(s);
        s.relu = false;
      }))
    return;
  if (c.requant != Requant::kExact && offer([](Case& s) { s.requant = Requant::kExact; })) return;
  if ((c.bias || c.bias_i32) && offer(drop_bias)) return;
  if (c.relu && offer([](Case& s) { s.relu = false; })) return;
  if (IsClamped(c) && offer(drop_clamp)) return;
  if (c.out_min != range.min && offer([&](Case& s) { s.out_min = range.min; })) return;
  if (c.out_max != range.max && offer([&](Case& s) { s.out_max = range.max; })) return;
  if (c.function != Function::kRelu && offer([](Case& s) {
        s.function = Function::kRelu;
        s.negative_slope = Case().negative_slope;
      }))
    return;
  if (BitsOf(c.w.dtype()) < 8 && offer([](Case& s) { s.w = InBytes(s.w); })) return;
  if (!c.per_channel) return;
  for (int64_t n = 0; n < std::min<int64_t>(c.N, 4); ++n) {
    if (visit(slice::WithParamsOf(c, n, false))) return;
  }
}

// Parameters of a choice of scales that only change together.
void ObserverParameters(const Case& c, const Visit& visit) {
  if (!RowOf(c.op).qparams) return;
  const auto offer = [&](const auto& edit) {
    Case simpler = ProblemOf(c);
    edit(simpler.observer);
    return simpler.observer != c.observer && visit(simpler);
  };
  if (offer([](Observer& o) { o = {}; })) return;
  const auto open_range = [](Observer& o) {
    o.quant_min = RangeOf(o.dtype).min;
    o.quant_max = RangeOf(o.dtype).max;
  };
  if (offer([&](Observer& o) {
        o.dtype = DType::kU8;
        open_range(o);
      }))
    return;
  offer(open_range);
}

void Outputs(const Case& c, const Visit& visit) {
  if (HasWindow(c.op)) return WindowOutputs(c, visit);
  const auto offer = [&](Case (*cut)(const Case&, slice::Places)) {
    return [&, cut](const std::vector<int64_t>& keep) { return visit(cut(c, keep)); };
  };
  if (c.N > 1 && Shrink(c.N, offer(slice::Channels))) return;
  if (c.M > 1 && Shrink(c.M, offer(slice::Rows))) return;
  const bool has_batches = RowOf(c.op).layout == Layout::kBatches;
  if (has_batches && c.x.shape()[0] > 1) Shrink(c.x.shape()[0], offer(slice::Batches));
}

bool IsZero(const Tensor& tensor, int64_t i) { return tensor.BitsAt(i) == 0; }

// Sets every code other than 0 (with `zeros_too` every code) to `code`.
void ReplaceCodes(Tensor& tensor, int32_t code, bool zeros_too = false) {
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (zeros_too || !IsZero(tensor, i)) tensor.SetInt(i, code);
  }
}

Case WithoutZeroPoints(Case c) {
  for (QParams* q : {&c.x_q, &c.w_q, &c.out_q}) {
    q->zero_point.assign(q->zero_point.size(), 0);
  }
  return c;
}

void Terms(const Case& c, const Visit& visit) {
  if (HasWindow(c.op)) return WindowTerms(c, visit);
  if (c.K == 0) return;
  if (c.bias_i32) {
    // Boldest for overflows of int32: a bias at the end of int32, and one product of 1 or -1.
    for (const auto& [product, end] : {std::pair{1, INT32_MAX}, std::pair{-1, INT32_MIN}}) {
      if (product < RangeOf(c.w.dtype()).min) break;
      Case simpler = slice::Terms(c, std::array{int64_t{0}});
      ReplaceCodes(simpler.x, 1, true);
      ReplaceCodes(simpler.w, product, true);
      simpler.bias_i32->assign(c.bias_i32->size(), end);
      if (visit(WithoutZeroPoints(std::move(simpler)))) return;
    }
  }
  if (c.bias_i32 && c.M == 1) {
    // Boldest for ties: the bias takes over the part of the terms, so that all sums stay the
    // same.
    const std::vector<__int128> sums = exact::CorrectedSums(c);
    Case simpler = slice::Terms(c, std::array{int64_t{0}});
    for (Tensor* tensor : {&simpler.x, &simpler.w}) std::ranges::fill(tensor->bytes(), 0);
    for (QParams* q : {&simpler.x_q, &simpler.w_q}) std::ranges::fill(q->zero_point, 0);
    bool fits = true;
    for (size_t n = 0; n < sums.size(); ++n) {
      fits = fits && sums[n] >= INT32_MIN && sums[n] <= INT32_MAX;
      (*simpler.bias_i32)[n] = static_cast<int32_t>(sums[n]);
    }
    if (fits && visit(simpler)) return;
  }
  // Boldest for 16-bit sums: one saturating pair of products, without all other terms.
  if (c.K > 2) {
    for (int64_t n = 0; n < c.N; ++n) {
      for (int64_t m = 0; m < c.M; ++m) {
        std::vector<headroom::Pair> pairs = headroom::SaturatingPairs(c, m, n);
        std::sort(pairs.begin(), pairs.end(), [](const headroom::Pair& a, const headroom::Pair& b) {
          return std::abs(a.lost()) > std::abs(b.lost());
        });
        pairs.resize(std::min<size_t>(pairs.size(), 3));
        for (const headroom::Pair& pair : pairs) {
          // No product saturates alone, so that the pair has both.
          if (visit(slice::Terms(c, std::array{pair.k, pair.k + 1}))) return;
        }
      }
      if (c.M * c.N > 64) break;
    }
  }
  Shrink(c.K, [&](const std::vector<int64_t>& keep) { return visit(slice::Terms(c, keep)); });
}

// Boldest for sums that have to be large: fewer terms, with codes at the ends of their types. Each
// is offered twice: with a last product of 1*1, which shows whether a float32 sum loses its last
// bit, and without. Of a window, the taps are the terms.
void LongSums(const Case& c, const Visit& visit) {
  const bool has_terms = HasWindow(c.op) ? c.N == 1 && c.op != Op::kMaxPool : HasWeights(c.op);
  const int64_t shortest = HasWindow(c.op) ? 2 : 16;
  if (!has_terms || !IsCode(c.x.dtype())) return;
  const std::optional<Case> line = LineOf(c);
  if (HasWindow(c.op) && !line) return;
  // A tap of a line has the products of all its channels.
  const int64_t count = line ? line->window.kernel_h : c.K;
  const CodeRange x = RangeOf(c.x.dtype()), w = RangeOf(c.w.dtype());
  for (int64_t power = shortest; power < count; power *= 2) {
    for (const int64_t terms : {power, power + 1, power + power / 2}) {
      if (terms >= count) continue;
      const std::vector<int64_t> first = slice::Range(0, terms);
      const Case shorter =
          WithoutZeroPoints(line ? LineTaps(*line, first) : slice::Terms(c, first));
      for (const auto& [x_code, w_code] :
           {std::pair{x.max, w.max},
            std::pair{x.min != 0 ? x.min : x.max, w.min != 0 ? w.min : w.max}}) {
        for (const bool odd : {true, false}) {
          Case simpler = shorter;
          const int64_t products = terms * (line ? line->window.in_c : 1);
          for (int64_t i = 0; i < simpler.x.size(); ++i)
            simpler.x.SetInt(i, odd && i % products == products - 1 ? 1 : x_code);
          for (int64_t i = 0; i < simpler.w.size(); ++i)
            simpler.w.SetInt(i, odd && i % products == products - 1 ? 1 : w_code);
          if (visit(simpler)) return;
        }
      }
    }
  }
}

// In long tensors a single code is tried once for each pair of its value and its factor's value:
// one of hundreds of equal products is as good as another.
void ZeroCodes(const Case& c, const Visit& visit) {
  constexpr int64_t kLong = 128, kMostBlocks = 64;
  for (Tensor Case::* field : {&Case::x, &Case::w}) {
    const Tensor& tensor = c.*field;
    const Tensor& other = field == &Case::x ? c.w : c.x;
    std::set<std::pair<uint32_t, uint32_t>> seen;
    for (int64_t block = tensor.size(); block >= 1; block /= 2) {
      if (tensor.size() / block > kMostBlocks) block = 1;
      for (int64_t from = 0; from < tensor.size(); from += block) {
        const int64_t to = std::min(tensor.size(), from + block);
        if (tensor.size() > kLong && block == 1) {
          const uint32_t factor = other.size() == tensor.size() ? other.BitsAt(from) : 0;
          if (!seen.insert({tensor.BitsAt(from), factor}).second) continue;
        }
        bool changes = false;
        Case simpler = ProblemOf(c);
        for (int64_t i = from; i < to; ++i) {
          changes |= !IsZero(tensor, i);
          (simpler.*field).SetBits(i, 0);
        }
        if (changes && visit(simpler)) return;
      }
    }
  }
}

// Round pairs of codes (x, w), small ones first.
std::vector<std::pair<int32_t, int32_t>> RoundCodes(const Case& c) {
  constexpr std::array kMagnitudes{1, 2, 16, 100, 127, 128, 129, 130, 132, 140, 255};
  const auto codes = [&](const Tensor& tensor) {
    std::vector<int32_t> list;
    for (int32_t magnitude : kMagnitudes) {
      for (int32_t code : {magnitude, -magnitude}) {
        const CodeRange range = RangeOf(tensor.dtype());
        if (code >= range.min && code <= range.max) list.push_back(code);
      }
    }
    return list;
  };
  std::vector<std::pair<int32_t, int32_t>> pairs;
  for (int32_t x : codes(c.x)) {
    for (int32_t w : c.w.empty() ? std::vector<int32_t>{0} : codes(c.w)) pairs.emplace_back(x, w);
  }
  std::ranges::sort(pairs, {}, [](const std::pair<int32_t, int32_t>& p) {
    return std::tuple(std::abs(p.first) + std::abs(p.second), p.second < 0, p.first < 0, p.first);
  });
  return pairs;
}

// One code for every nonzero x and one for every nonzero w: ten different codes are hard to read
// and rarely matter. First with all zero points 0.
void UniformCodes(const Case& c, const Visit& visit) {
  if (!IsCode(c.x.dtype())) return;
  const std::vector<std::pair<int32_t, int32_t>> pairs = RoundCodes(c);
  for (bool zero_points : {true, false}) {
    for (const auto& [x, w] : pairs) {
      Case simpler = ProblemOf(c);
      ReplaceCodes(simpler.x, x);
      ReplaceCodes(simpler.w, w);
      if (zero_points) simpler = WithoutZeroPoints(std::move(simpler));
      if (simpler != ProblemOf(c) && visit(simpler)) return;
    }
  }
}

void ZeroPointsToZero(const Case& c, const Visit& visit) {
  constexpr std::array<QParams Case::*, 3> kAll{&Case::x_q, &Case::w_q, &Case::out_q};
  const auto offer = [&](std::span<QParams Case::* const> fields, const auto& edit) {
    Case simpler = ProblemOf(c);
    for (QParams Case::* field : fields) {
      for (int32_t& zero_point : (simpler.*field).zero_point) zero_point = edit(zero_point);
    }
    return simpler != ProblemOf(c) && visit(simpler);
  };
  const auto zero = [](int32_t) { return 0; };
  if (offer(kAll, zero)) return;
  if (c.op == Op::kMaxPool) {  // its input and output have the same parameters
    if (!offer(kAll, [](int32_t z) { return z / 2; }))
      offer(kAll, [](int32_t z) { return z - (z > 0 ? 1 : z < 0 ? -1 : 0); });
    return;
  }
  const size_t channels = std::min<size_t>(c.w_q.zero_point.size(), 64);
  for (size_t n = 0; channels > 1 && n < channels; ++n) {
    Case simpler = ProblemOf(c);
    simpler.w_q.zero_point[n] = 0;
    if (c.w_q.zero_point[n] != 0 && visit(simpler)) return;
  }
  for (size_t i = 0; i < kAll.size(); ++i) {
    if (offer(std::span(&kAll[i], 1), zero)) return;
  }
  for (size_t i = 0; i < kAll.size(); ++i) {
    const std::span<QParams Case::* const> one(&kAll[i], 1);
    if (offer(one, [](int32_t z) { return z / 2; })) return;
    if (offer(one, [](int32_t z) { return z - (z > 0 ? 1 : z < 0 ? -1 : 0); })) return;
  }
}

// The float with its mantissa cut to `bits` bits.
float ShortMantissa(float value, int bits) {
  const uint32_t mask = ~((uint32_t{1} << (23 - bits)) - 1);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & mask);
}

bool SmallerCode(const Case& c, Tensor Case::* field, int64_t i, const Visit& visit) {
  const Tensor& tensor = c.*field;
  Case simpler = ProblemOf(c);
  if (tensor.dtype() == DType::kF32) {
    const float value = tensor.FloatAt(i);
    for (float candidate :
         {1.0f, -1.0f, std::trunc(value), ShortMantissa(value, 0), ShortMantissa(value, 2),
          ShortMantissa(value, 6), ShortMantissa(value, 12), value * 0.5f}) {
      (simpler.*field).as<float>()[static_cast<size_t>(i)] = candidate;
      if (std::bit_cast<uint32_t>(candidate) != std::bit_cast<uint32_t>(value) && visit(simpler))
        return true;
    }
    return false;
  }
  const int64_t value = tensor.IntAt(i);
  for (int64_t candidate :
       {value / 2, value - value / 4, value - value / 16, value - (value > 0 ? 1 : -1), -value}) {
    if (candidate == value || candidate < RangeOf(tensor.dtype()).min ||
        candidate > RangeOf(tensor.dtype()).max)
      continue;
    (simpler.*field).SetInt(i, static_cast<int32_t>(candidate));
    if (visit(simpler)) return true;
  }
  return false;
}

void Codes(const Case& c, const Visit& visit) {
  for (Tensor Case::* field : {&Case::x, &Case::w}) {
    const int64_t count = std::min<int64_t>((c.*field).size(), 64);
    for (int64_t i = 0; i < count; ++i) {
      if (!IsZero(c.*field, i) && SmallerCode(c, field, i, visit)) return;
    }
  }
}

// In the logarithm: log2 of the C library would decide next to the root of two.
float NearestPowerOfTwo(double value) {
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);  // in [1/2, 1)
  if (mantissa < std::numbers::sqrt2 / 2) --exponent;
  return std::ldexp(1.0f, std::clamp(exponent, -126, 127));
}

bool IsPowerOfTwo(float value) {
  int exponent = 0;
  return std::frexp(value, &exponent) == 0.5f;
}

void Scales(const Case& c, const Visit& visit) {
  const auto offer = [&](float x, float w, float out) {
    Case simpler = ProblemOf(c);
    simpler.x_q.scale.assign(c.x_q.scale.size(), x);
    simpler.w_q.scale.assign(c.w_q.scale.size(), w);
    simpler.out_q.scale.assign(c.out_q.scale.size(), out);
    return simpler != ProblemOf(c) && visit(simpler);
  };
  if (c.out_q.scale.empty() || c.x_q.scale.empty() || c.w_q.scale.empty()) return;
  // Of a cast the numbers may take the scales in.
  if (IsScaledCast(c) && c.x.dtype() == DType::kF32 && visit(WithQuotients(ProblemOf(c), nullptr)))
    return;
  const float x = c.x_q.scale[0], w = c.w_q.scale[0], out = c.out_q.scale[0];
  const double ratio = static_cast<double>(out) / (static_cast<double>(x) * w);
  if (offer(1, 1, 1)) return;
  if (offer(1, 1, NearestPowerOfTwo(ratio))) return;
  if (offer(1, 1, NearestPowerOfTwo(ratio) * 2)) return;
  if (offer(1, 1, NearestPowerOfTwo(ratio) / 2)) return;
  if (c.op == Op::kLinear && !IsPowerOfTwo(out)) {
    // With the given codes no power of two fails as an output scale; with round codes one may.
    for (float power : {NearestPowerOfTwo(ratio), NearestPowerOfTwo(ratio) * 2}) {
      for (const auto& [x_code, w_code] : RoundCodes(c)) {
        Case simpler = ProblemOf(c);
        ReplaceCodes(simpler.x, x_code);
        ReplaceCodes(simpler.w, w_code);
        simpler.x_q.scale.assign(c.x_q.scale.size(), 1.0f);
        simpler.w_q.scale.assign(c.w_q.scale.size(), 1.0f);
        simpler.out_q.scale.assign(c.out_q.scale.size(), power);
        if (visit(simpler)) return;
      }
    }
  }
  const auto normal = static_cast<float>(std::clamp(ratio, 0x1p-126, 0x1p127));
  for (int bits : {1, 2, 4, 8, 12, 23}) {
    if (offer(1, 1, ShortMantissa(normal, bits))) return;
  }
  const size_t channels = std::min<size_t>(c.w_q.scale.size(), 64);
  for (size_t n = 0; channels > 1 && n < channels; ++n) {
    for (float scale : {1.0f, 2.0f, ShortMantissa(c.w_q.scale[n], 0)}) {
      Case simpler = ProblemOf(c);
      simpler.w_q.scale[n] = scale;
      if (scale != c.w_q.scale[n] && visit(simpler)) return;
    }
  }
  const auto one = [&](QParams Case::* q, float scale) {
    Case simpler = ProblemOf(c);
    (simpler.*q).scale.assign((c.*q).scale.size(), scale);
    return simpler != ProblemOf(c) && visit(simpler);
  };
  if (one(&Case::x_q, 1) || one(&Case::out_q, 1)) return;
  for (int bits : {0, 1, 2, 4, 8, 12}) {
    if (one(&Case::x_q, ShortMantissa(x, bits))) return;
    if (channels == 1 && one(&Case::w_q, ShortMantissa(w, bits))) return;
    if (one(&Case::out_q, ShortMantissa(out, bits))) return;
  }
  const auto multiplied = [&](const auto& edit) {
    Case simpler = ProblemOf(c);
    for (float& m : simpler.multiplier) m = edit(m);
    return simpler != ProblemOf(c) && visit(simpler);
  };
  if (multiplied([](float) { return 1.0f; })) return;
  for (int bits : {0, 1, 2, 4, 8, 12}) {
    if (multiplied([bits](float m) { return ShortMantissa(m, bits); })) return;
  }
}

void Biases(const Case& c, const Visit& visit) {
  for (size_t i = 0; c.bias && i < c.bias->size(); ++i) {
    for (float value :
         {0.0f, 1.0f, ShortMantissa((*c.bias)[i], 0), ShortMantissa((*c.bias)[i], 4)}) {
      Case simpler = ProblemOf(c);
      (*simpler.bias)[i] = value;
      if (value != (*c.bias)[i] && visit(simpler)) return;
    }
  }
  for (size_t i = 0; c.bias_i32 && i < c.bias_i32->size(); ++i) {
    const int64_t old = (*c.bias_i32)[i];
    for (int64_t value : {int64_t{0}, old / 2, old - old / 16, old - (old > 0 ? 1 : -1)}) {
      Case simpler = ProblemOf(c);
      (*simpler.bias_i32)[i] = static_cast<int32_t>(value);
      if (value != old && visit(simpler)) return;
    }
  }
}

// Every parameter that is not the simplest, one by one: so a parameter without a pass of its own is
// shrunk too. (Reduction drops candidates that an earlier pass offered.)
void AnyParameter(const Case& c, const Visit& visit) {
  for (const Case& simpler : slice::WithOneParameterOf(c, SimplestParameters(c))) {
    if (visit(simpler)) return;
  }
}

constexpr Pass kPasses[] = {
    Parameters, WindowParameters, ObserverParameters, AnyParameter,     Outputs, LongSums, Terms,
    WindowLine, ZeroCodes,        UniformCodes,       ZeroPointsToZero, Scales,  Codes,    Biases};

}  // namespace

Case SimplestParameters(const Case& c) {
  Case simplest;
  const CodeRange range = RangeOf(c.observer.dtype);
  simplest.observer.quant_min = range.min;
  simplest.observer.quant_max = range.max;
  return simplest;
}

std::span<const Pass> AllPasses() { return kPasses; }

}  // namespace qualm::triage
