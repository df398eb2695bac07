// SPDX-License-Identifier: Apache-2.0
#include "adapters/faulty/reference.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cfenv>
#include <climits>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>

#include "adapters/faulty/codes.h"

namespace qualm::faulty {
namespace {

constexpr int64_t kBlockK = 4;  // k per step, as in vpdpbusd

RoundTo CallersRounding() {
  switch (std::fegetround()) {
    case FE_DOWNWARD: return RoundTo::kDown;
    case FE_UPWARD: return RoundTo::kUp;
    case FE_TOWARDZERO: return RoundTo::kTowardZero;
    default: return RoundTo::kNearestEven;
  }
}

// Largest |code - zero_point| of a type.
__int128 Reach(DType dtype, const std::vector<int32_t>& zero_points) {
  const CodeRange range = RangeOf(dtype);
  int64_t reach = 0;
  for (const int64_t zero_point : zero_points) {
    reach = std::max({reach, std::abs(range.min - zero_point), std::abs(range.max - zero_point)});
  }
  return reach;
}

// Both products, aligned, in one mantissa.
std::string CannotAdd(const Case& c) {
  const auto span = [](const QParams& q, DType dtype) {
    const Dyadic scale = FromFloat(q.scale[0]);
    const int bits = BitLength(scale.mantissa) + BitLength(Reach(dtype, q.zero_point));
    return std::pair{scale.exponent, scale.exponent + bits};
  };
  const auto [a_low, a_high] = span(c.x_q, c.x.dtype());
  const auto [b_low, b_high] = span(c.w_q, c.w.dtype());
  if (std::max(a_high, b_high) + 1 - std::min(a_low, b_low) <= kMantissaBits) return "";
  return "the scales of the operands are too far apart for 128-bit arithmetic";
}

std::string CannotSum(const Case& c) {
  if (c.out_dtype == DType::kS32) return "";
  // Eight times the largest sum: some faults enlarge it.
  const __int128 largest =
      8 * c.K * Reach(c.x.dtype(), c.x_q.zero_point) * Reach(c.w.dtype(), c.w_q.zero_point) +
      (int64_t{8} << 31);
  const Dyadic x_scale = FromFloat(c.x_q.scale[0]);
  for (int64_t n = 0; n < c.N; ++n) {
    const Dyadic scale = Product(x_scale, FromFloat(c.w_q.scale_at(n)));
    if (BitLength(largest) + BitLength(scale.mantissa) >= kMantissaBits) {
      return "sums too large for 128-bit arithmetic";
    }
    Dyadic sum;
    if (c.bias && !Sum(Product(FromInt(largest), scale),
                       FromFloat((*c.bias)[static_cast<size_t>(n)]), &sum)) {
      return "bias and x_scale*w_scale too far apart for 128-bit arithmetic";
    }
  }
  return "";
}

// The range of finite values, and scales and biases that no rule has chosen yet.
std::string CannotChoose(const Case& c) {
  if (c.rule != QParamsRule::kObserver) return "only the rule of observers is here";
  if (c.bias) return "scales are chosen and may be too far from the bias for 128-bit arithmetic";
  if (std::ranges::all_of(c.x.as<float>(), [](float x) { return std::isfinite(x); })) return "";
  return "a value is not finite";
}

}  // namespace

std::string CannotCompute(const Case& c) {
  if (HasSums(c.op)) return CannotSum(c);
  if (AddsOperands(c.op)) return CannotAdd(c);
  if (RowOf(c.op).dynamic) return CannotChoose(c);
  if (RowOf(c.op).function) return CannotTabulate(c);
  if (RowOf(c.op).out_q == OutQParams::kFixed) return CannotSoftmax(c);
  if (RowOf(c.op).observer && c.observer.kind == Observer::Kind::kHistogram)
    return "there is no histogram observer here";
  return "";  // at most 66 + 48 bits
}

template <class One>
void Reference::ForColumns(int64_t columns, const One& one) const {
  int64_t j = 0;
  for (; j + kLanes <= columns; j += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      if (Has(Fault::kChunkEdge) && (j + lane + 1) % kChunk == 0) continue;
      one(j + lane);
    }
  }
  if (j == columns) return;
  // The last vector overlaps the one before: equal values are stored twice.
  if (columns >= kLanes || Has(Fault::kOverlappedTail)) j = columns - kLanes;
  for (; j < columns; ++j) one(j);
}

int64_t Reference::Finish(const Case& c, int64_t rounded, int32_t zero_point) const {
  int64_t low = c.out_min;
  if (c.relu) {
    low = std::max<int64_t>(low, Has(Fault::kReluClampZero) ? 0 : zero_point);
  }
  int64_t code = rounded + zero_point;
  if (Has(Fault::kTruncatingNarrow) && IsCode(c.out_dtype)) {
    // Vector code rounds to lanes of int32, which saturate, before it drops the upper bits.
    code = std::clamp<int64_t>(rounded, INT32_MIN, INT32_MAX) + zero_point;
    code = c.out_dtype == DType::kU8 ? static_cast<int64_t>(static_cast<uint8_t>(code))
                                     : static_cast<int64_t>(static_cast<int8_t>(code));
  }
  return std::min<int64_t>(std::max(code, low), c.out_max);
}

int64_t Reference::Nearest(const Dyadic& value, const Dyadic& per, RoundTo rule, bool odd) const {
  const int64_t rounded = RoundQuotient(value, per, rule, odd);
  if (!Has(Fault::kOneTie) || rounded != 0) return rounded;
  return RoundQuotient(value, per, RoundTo::kNearestAway, odd) == 1 ? 1 : 0;
}

int64_t Reference::QuantizeOne(float x, float scale, int32_t zero_point, RoundTo rule,
                               const Case& c) const {
  if (std::isnan(x)) return Finish(c, Has(Fault::kNanOrder) ? -kHuge : 0, zero_point);
  int64_t rounded = 0;
  if (std::isinf(x)) {
    rounded = x < 0 ? -kHuge : kHuge;
  } else if (Has(Fault::kReciprocal)) {
    const float product = x * (1.0f / scale);
    const auto huge = static_cast<float>(kHuge);
    // 0 times infinity is NaN, which cvtps2dq converts to -2^31.
    rounded = std::isnan(product)
                  ? std::numeric_limits<int32_t>::min()
                  : static_cast<int64_t>(std::nearbyint(std::clamp(product, -huge, huge)));
  } else {
    rounded = Nearest(FromFloat(x), FromFloat(scale), rule);
  }
  if (Has(Fault::kClampAfterConversion) && rounded > std::numeric_limits<int32_t>::max()) {
    rounded = std::numeric_limits<int32_t>::min();  // cvtps2dq's "integer indefinite"
  }
  return Finish(c, rounded, zero_point);
}

void Reference::Quantize(const Placed& p) {
  const Case& c = *p.problem;
  for (int64_t m = 0; m < c.M; ++m) {
    const float* const x = Row<float>(p.x, m, p.x_stride);
    uint8_t* const y = OutputRow(p, m);
    const int64_t tail = c.N - c.N % kLanes;
    const int64_t head = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(x) % 32 / sizeof(float));
    ForColumns(c.N, [&](int64_t j) {
      RoundTo rule = RoundTo::kNearestEven;
      if (Has(Fault::kTailRoundsAway) && j >= tail) rule = RoundTo::kNearestAway;
      if (Has(Fault::kAlignmentHead) && j < head) rule = RoundTo::kNearestAway;
      if (Has(Fault::kCallerRounding)) rule = CallersRounding();
      y[j] = static_cast<uint8_t>(
          QuantizeOne(x[j], ListAt(p.scale, j), ListAt(p.zero_point, j), rule, c));
    });
  }
}

void Reference::Dequantize(const Placed& p) {
  const Case& c = *p.problem;
  for (int64_t m = 0; m < c.M; ++m) {
    const uint8_t* const q = Row<uint8_t>(p.x, m, p.x_stride);
    auto* const y = reinterpret_cast<float*>(OutputRow(p, m));
    ForColumns(c.N, [&](int64_t j) {
      int64_t difference = int64_t{CodeAt(q, c.x.dtype(), j)} - int64_t{ListAt(p.zero_point, j)};
      if (Has(Fault::kDifferenceInt8) && c.x.dtype() == DType::kS8) {
        difference = std::clamp<int64_t>(difference, -128, 127);
      }
      y[j] = RoundToFloat(Product(FromInt(difference), FromFloat(ListAt(p.scale, j))));
    });
  }
}

namespace {

// How many places a shift by 32 to 39 falls short where its count is taken modulo 32. Multipliers
// that are powers of two need nothing but a shift; smaller ones give 0 without one.
int WrappedShift(const Case& c, float scale) {
  int exponent = 0;
  double multiplier = scale;
  if (c.multiplier.empty()) multiplier *= double{c.x_q.scale[0]} / c.out_q.scale[0];
  const double mantissa = std::frexp(multiplier, &exponent);
  const int shift = 1 - exponent;
  return mantissa == 0.5 && shift >= 32 && shift < 40 ? 32 : 0;
}

}  // namespace

void Reference::Requantize(const Placed& p) {
  const Case& c = *p.problem;
  const int32_t zero_point = p.zero_point[0];
  const bool odd = Has(Fault::kZeroPointBeforeRounding) && zero_point % 2 != 0;
  for (int64_t m = 0; m < c.M; ++m) {
    const int32_t* const acc = Row<int32_t>(p.x, m, p.x_stride);
    uint8_t* const y = OutputRow(p, m);
    ForColumns(c.N, [&](int64_t j) {
      const int64_t lane_of_tail = j - (c.N - c.N % kLanes);
      if (Has(Fault::kHalfTail) && lane_of_tail >= kLanes / 2) return;
      Dyadic value = Product(FromInt(acc[j]), FromFloat(ListAt(p.scale, j)));
      Dyadic per{1, 0};
      if (c.multiplier.empty()) {
        value = Product(value, FromFloat(c.x_q.scale[0]));
        per = FromFloat(c.out_q.scale[0]);
      }
      if (Has(Fault::kPowerShiftWraps)) value.exponent += WrappedShift(c, ListAt(p.scale, j));
      y[j] =
          static_cast<uint8_t>(Finish(c, Nearest(value, per, RequantizeRule(), odd), zero_point));
    });
  }
}

// Sum of x*w over k, without zero points.
int64_t Reference::RawSum(const Placed& p, const uint8_t* x, const uint8_t* w) const {
  const Case& c = *p.problem;
  const bool u8s8 = c.x.dtype() == DType::kU8 && c.w.dtype() == DType::kS8;
  const bool s8s8 = c.x.dtype() == DType::kS8 && c.w.dtype() == DType::kS8;
  const auto term = [&](int64_t k) {
    const DType as = Has(Fault::kU8AsS8) ? DType::kS8 : c.x.dtype();
    return CodeAt(x, as, k) * CodeAt(w, c.w.dtype(), k);
  };
  const auto pair = [&](int64_t k) {
    const int32_t sum = term(k) + (k + 1 < c.K ? term(k + 1) : 0);
    if (Has(Fault::kPairSaturation) && u8s8) return std::clamp(sum, -32768, 32767);
    if (Has(Fault::kS8PairWraps) && s8s8) return static_cast<int32_t>(static_cast<int16_t>(sum));
    return sum;
  };
  int64_t sum = 0;
  const int64_t rest = c.K % kBlockK;
  const int64_t full = c.K - rest;
  for (int64_t k = 0; k < full; k += kBlockK) sum += int64_t{pair(k)} + pair(k + 2);
  if (rest > (Has(Fault::kKTail) ? 1 : 0)) {
    for (int64_t k = full; k < c.K; k += 2) sum += pair(k);
  }
  if (Has(Fault::kKZero) && c.K == 0) sum += term(0);  // do { } while
  if (Has(Fault::kKOverRead) && rest != 0) {
    for (int64_t k = c.K; k < full + kBlockK; ++k) {  // a whole block is loaded, the rest masked
      (void)*const_cast<const volatile uint8_t*>(x + k);
      (void)*const_cast<const volatile uint8_t*>(w + k);
    }
  }
  return sum;
}

// The sum of K codes, which a zero point is multiplied with.
int64_t Reference::CodeSum(const Case& c, const uint8_t* codes, DType dtype) const {
  int64_t sum = 0;
  if (!Has(Fault::kCodeSumLanes) || dtype != DType::kS8) {
    for (int64_t k = 0; k < c.K; ++k) sum += CodeAt(codes, dtype, k);
    return sum;
  }
  constexpr int64_t kVectors = 257;  // 256 codes of -128 are the last that an int16 holds
  std::array<int16_t, kLanes> lanes{};
  for (int64_t k = 0; k < c.K; ++k) {
    int16_t& lane = lanes[static_cast<size_t>(k % kLanes)];
    lane = static_cast<int16_t>(lane + CodeAt(codes, dtype, k));
    if ((k + 1) % (kVectors * kLanes) == 0) {
      sum = std::accumulate(lanes.begin(), lanes.end(), sum);
      lanes.fill(0);
    }
  }
  return std::accumulate(lanes.begin(), lanes.end(), sum);
}

// sum_k (x - zx)(w - zw_n) + bias_i32, from the raw sum and the sums of x and w.
__int128 Reference::CorrectedSum(const Placed& p, int64_t m, int64_t n) {
  const Case& c = *p.problem;
  const int64_t x_stride = Has(Fault::kStrideIgnored) ? c.K : p.x_stride;
  const uint8_t* x = Row<uint8_t>(p.x, m, x_stride);
  if (Has(Fault::kRowOffsetU32)) x = Row<uint8_t>(p.x, static_cast<uint32_t>(m * x_stride), 1);
  const uint8_t* const w =
      Row<uint8_t>(p.w, n, Has(Fault::kWeightStrideIgnored) ? c.K : p.w_stride);
  __int128 sum = RawSum(p, x, w);

  int64_t row_of_sum = m;
  if (Has(Fault::kRowSumOfRow0)) row_of_sum = 0;
  if (Has(Fault::kRowIndexU8)) row_of_sum = m % 256;
  const uint8_t* const x_of_sum = Row<uint8_t>(p.x, row_of_sum, x_stride);
  const __int128 row_sum = CodeSum(c, x_of_sum, c.x.dtype());
  const __int128 column_sum = column_sums_[static_cast<size_t>(n)];

  __int128 zx = c.x_q.zero_point[0];
  if (Has(Fault::kNegatedZeroPointInt8) && c.x.dtype() == DType::kS8 && zx == -128) zx = 128;
  __int128 zw = ListAt(p.zero_point, n);
  if (Has(Fault::kWeightZeroPointInt8) && c.w.dtype() == DType::kU8 && zw >= 128 && zw <= 255) {
    zw -= 256;
  }
  if (Has(Fault::kZeroPointTermFloat)) {
    sum -= static_cast<__int128>(static_cast<float>(zx) * static_cast<float>(column_sum));
  } else if (Has(Fault::kNegatedTermInt32) && zx * column_sum == INT32_MIN && zx != INT32_MIN) {
    sum += INT32_MIN;  // its own negative
  } else {
    sum -= zx * column_sum;
  }
  sum -= zw * row_sum;
  const int64_t terms =
      Has(Fault::kPaddedKZeroPoints) ? (c.K + kBlockK - 1) / kBlockK * kBlockK : c.K;
  sum += terms * zx * zw;
  // The first panel of four channels clears its bias after the first block.
  const bool every_block = Has(Fault::kBiasPerBlockOfK) && n >= 4 && c.K > 256;
  const int64_t biases = every_block ? (c.K + 255) / 256 : 1;
  if (!p.bias_i32.empty()) sum += biases * p.bias_i32[static_cast<size_t>(n)];
  return Has(Fault::kInt32Wraps) ? static_cast<int32_t>(static_cast<uint32_t>(sum)) : sum;
}

int64_t Reference::ParametersOf(const Case& c, int64_t n) const {
  if (Has(Fault::kScaleIndex)) return n % kLanes;
  if (Has(Fault::kChannelIndexU8)) return n % 256;
  const int64_t of_group = c.N / c.window.groups;
  if (Has(Fault::kGroupScaleIndex)) return n % of_group;
  if (Has(Fault::kGroupBlockScale)) return n % (8 * of_group);
  return n;
}

namespace {
// The power of two above |value|.
int Magnitude(const Dyadic& value) {
  return value.mantissa == 0 ? INT_MIN : BitLength(value.mantissa) + value.exponent;
}
}  // namespace

void Reference::StoreLinear(const Placed& p, __int128 sum, int64_t n, uint8_t* to) const {
  const Case& c = *p.problem;
  if (c.out_dtype == DType::kS32) {
    if (Has(Fault::kOutputNotCleared)) {
      int32_t old;
      std::memcpy(&old, to, sizeof(old));
      sum += old;
    }
    constexpr __int128 kMost = int64_t{1} << 40;
    StoreInt(c.out_dtype, Finish(c, static_cast<int64_t>(std::clamp(sum, -kMost, kMost)), 0), to);
    return;
  }
  const float w_scale = ListAt(p.scale, ParametersOf(c, n));
  const float x_scale = c.x_q.scale[0];
  Dyadic scale = Product(FromFloat(x_scale), FromFloat(w_scale));
  if (Has(Fault::kScaleInFloat) && std::isfinite(x_scale * w_scale)) {
    scale = FromFloat(x_scale * w_scale);
  }
  Dyadic real = Product(FromInt(sum), scale);
  if (!p.bias.empty()) {
    const Dyadic bias = FromFloat(p.bias[static_cast<size_t>(n)]);
    const int64_t units = RoundQuotient(bias, scale, RoundTo::kNearestEven);
    const auto narrow = static_cast<int32_t>(static_cast<uint32_t>(units));
    if (Has(Fault::kBiasWraps) && units != narrow) {
      real = Product(FromInt(sum + narrow), scale);
    } else {
      // CannotCompute has made sure of it for the parameters of the channel, not for parameters
      // that a fault takes from elsewhere.
      if (!Sum(real, bias, &real)) {
        QUALM_CHECK(Has(Fault::kStaleScales) || Has(Fault::kStaleBias) || ParametersOf(c, n) != n);
        real = Magnitude(bias) > Magnitude(real) ? bias : real;
      }
    }
  }
  if (c.out_dtype == DType::kF32) {
    float value = RoundToFloat(real);
    if (c.relu && !(value > 0)) value = 0.0f;
    std::memcpy(to, &value, sizeof(value));
    return;
  }
  const int32_t zero_point = c.out_q.zero_point[0];
  if (Has(Fault::kMultiplierInDouble) && p.bias.empty()) {
    const double multiplier = static_cast<double>(x_scale) * w_scale / c.out_q.scale[0];
    StoreInt(c.out_dtype, Finish(c, RoundedProduct(sum, multiplier), zero_point), to);
    return;
  }
  const bool odd = Has(Fault::kZeroPointBeforeRounding) && zero_point % 2 != 0;
  const int64_t rounded = RoundQuotient(real, FromFloat(c.out_q.scale[0]), RequantizeRule(), odd);
  StoreInt(c.out_dtype, Finish(c, rounded, zero_point), to);
}

namespace {

// Memory that all callers share: another one may have written between the two.
int64_t ThroughSharedScratch(int64_t sum) {
  static std::atomic<int64_t> scratch;
  scratch = sum;
  std::this_thread::yield();
  return scratch;
}

}  // namespace

void Reference::Linear(const Placed& p) {
  const Case& c = *p.problem;
  if (!(Has(Fault::kStaleScratch) && ran_)) scratch_ = 0;
  const bool packed_before = column_sums_.size() == static_cast<size_t>(c.N) &&
                             column_sums_of_k_ == c.K && Has(Fault::kStaleColumnSums);
  if (!packed_before) {
    column_sums_.assign(static_cast<size_t>(c.N), 0);
    column_sums_of_k_ = c.K;
    for (int64_t n = 0; n < c.N; ++n) {
      const uint8_t* const w = Row<uint8_t>(p.w, n, p.w_stride);
      column_sums_[static_cast<size_t>(n)] = CodeSum(c, w, c.w.dtype());
    }
  }
  const auto size = static_cast<int64_t>(SizeOf(c.out_dtype));
  for (int64_t m = 0; m < c.M; ++m) {
    uint8_t* const y = OutputRow(p, m);
    for (int64_t n = 0; n < c.N; ++n) {
      if (Has(Fault::kHalfTail) && n - (c.N - c.N % kLanes) >= kLanes / 2) continue;
      // Three columns left over: two are stored, the vector is shifted by two, one is stored. With
      // the shift before the first store, lanes 2 and 3 land in columns 0 and 1; 3 is padding.
      const int64_t column_of_tail = n - (c.N - c.N % 4);
      const bool shifted = Has(Fault::kStoreOrder) && c.M >= 2 && m == c.M - 1 && c.N % 4 == 3 &&
                           (column_of_tail == 0 || column_of_tail == 1);
      if (shifted && column_of_tail == 1) {
        std::memset(y + n * size, 0, static_cast<size_t>(size));
        continue;
      }
      const int64_t from = shifted ? n + 2 : n;
      __int128 sum = CorrectedSum(p, m, from);
      if (Has(Fault::kSharedScratch)) sum = ThroughSharedScratch(static_cast<int64_t>(sum));
      // An accumulator that is cleared when the layer is packed.
      if (Has(Fault::kStaleScratch) && m == 0 && n == 0)
        sum = scratch_ += static_cast<int64_t>(sum);
      StoreLinear(p, sum, from, y + n * size);
    }
  }
  if (Has(Fault::kInputShiftedInPlace) && c.x.dtype() == DType::kS8) {
    // s8 as u8 with a zero point moved by 128, and never moved back.
    for (int64_t m = 0; m < c.M; ++m) {
      auto* const x = const_cast<uint8_t*>(Row<uint8_t>(p.x, m, p.x_stride));
      for (int64_t k = 0; k < c.K; ++k) x[k] ^= 0x80;
    }
  }
}

Placed Reference::WithKept(const Placed& p, Case& changed) {
  Placed now = p;
  std::vector<uint8_t> weights;
  for (int64_t n = 0; n < p.problem->N; ++n) {
    const uint8_t* const row = Row<uint8_t>(p.w, n, p.w_stride);
    weights.insert(weights.end(), row, row + p.problem->K);
  }
  const bool same = weights == kept_weights_ && kept_.N == p.problem->N &&
                    kept_.per_channel == p.problem->per_channel &&
                    kept_.out_dtype == p.problem->out_dtype;
  changed = Case{};
  if (!same) {
    kept_ = *p.problem;
    kept_weights_ = std::move(weights);
    kept_scale_.assign(p.scale.begin(), p.scale.end());
    kept_bias_.assign(p.bias.begin(), p.bias.end());
    kept_bias_i32_.assign(p.bias_i32.begin(), p.bias_i32.end());
    return now;
  }
  changed = *p.problem;
  if (Has(Fault::kStaleScales)) {
    changed.x_q.scale = kept_.x_q.scale;
    changed.out_q.scale = kept_.out_q.scale;
    now.scale = kept_scale_;
  }
  if (Has(Fault::kStaleBias) && p.bias_i32.size() == kept_bias_i32_.size() &&
      p.bias.size() == kept_bias_.size()) {
    now.bias = kept_bias_;
    now.bias_i32 = kept_bias_i32_;
  }
  if (Has(Fault::kStaleClamp)) {
    changed.out_min = kept_.out_min;
    changed.out_max = kept_.out_max;
    changed.relu = kept_.relu;
  }
  now.problem = &changed;
  return now;
}

void Reference::Run(const Placed& placed, bool again) {
  ran_ = again;
  if (Has(Fault::kStaleScales) || Has(Fault::kStaleBias) || Has(Fault::kStaleClamp)) {
    Case changed;
    return Linear(WithKept(placed, changed));
  }
  if (Has(Fault::kLineStrideIgnored) && placed.x_line_stride != 0) {
    Placed dense = placed;
    dense.x_line_stride = placed.problem->window.in_w * placed.x_stride;
    return Compute(dense);
  }
  Compute(placed);
}

void Reference::Compute(const Placed& placed) {
  const OpRow& row = RowOf(placed.problem->op);
  switch (row.layout) {
    case Layout::kProducts: return row.dynamic ? DynamicLinear(placed) : Linear(placed);
    case Layout::kConv: return Conv(placed);
    case Layout::kPool: return Pool(placed);
    case Layout::kColumns: return Concat(placed);
    case Layout::kBatches: return ChooseQParams(placed);
    case Layout::kElements: break;
  }
  if (HasTwoOperands(row.op)) return TwoOperands(placed);
  if (row.multiplier) return Requantize(placed);
  if (row.function) return Table(placed);
  if (row.out_q == OutQParams::kFixed) return Softmax(placed);
  if (!row.x_qparams) return Quantize(placed);
  if (row.out_q == OutQParams::kNone) return Dequantize(placed);
  QUALM_CHECK(row.op == Op::kRescale);
  Rescale(placed);
}

}  // namespace qualm::faulty
