// SPDX-License-Identifier: Apache-2.0
// Linear layers as people write them, each with one mistake, as plugins. bench/strangers compiles
// this file once for each FAULT and records qualm's diagnosis. Nothing here knows how qualm names
// causes. Without a fault the layer is exact.
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "bench/strange_plugin.h"

namespace {

enum Fault : uint8_t {
  kNone,
  kBiasPerBlock,
  kCrossTermPerBlock,
  kColumnTermPerBlock,
  kPanelStride,
  kCounterOf8Bits,
  kFloatSum,
  kPairsIntoWrappingInt16,
  kLanesOfInt16,
  kPairsUnlessFirstRowIsLarge,
  kLastTermLostForSmallWeights,
  kWeightOffsetOf16Bits,
  kZeroPointsExchanged,
  kCountOf8Bits,
  kShiftNotTakenOut,
  kZeroPointOfChannel0,
  kCrossTermForgotten,
  kCrossTermSign,
  kColumnSumOf16Bits,
  kRowSumSaturates,
  kColumnSumWithoutTail,
  kBiasModulo8,
  kBiasOf16Bits,
  kBiasLostInTail,
  kMultiplierOf16Bits,
  kMultiplierOf12Bits,
  kRoundedTwice,
  kHalfAddedAndCut,
  kFloatRequantization,
  kZeroPointInInt16,
  kResultInInt16,
  kFloorOfMinus127,
  kRowOfNextChunk,
  kTailOfRowsRepeats,
  kStaleColumnSums,
  kLeavesRounding
};
#ifndef FAULT
#define FAULT kNone
#endif
constexpr Fault kFault = FAULT;
constexpr bool Has(Fault fault) { return kFault == fault; }

using Wide = __int128;
using Real = __float128;

constexpr int64_t kFar = int64_t{1} << 40;

struct Layer {
  const qualm_problem& p;
  int64_t M, N, K;
  int32_t zx;

  explicit Layer(const qualm_problem& problem)
      : p(problem),
        M(problem.y->dims[0]),
        N(problem.y->dims[1]),
        K(problem.x->dims[1]),
        zx(problem.x_q.zero_point[0]) {}

  static int32_t At(const qualm_tensor& t, int64_t row, int64_t k) {
    const int64_t at = row * t.strides[0] + k;
    return t.dtype == QUALM_U8 ? static_cast<const uint8_t*>(t.data)[at]
                               : static_cast<const int8_t*>(t.data)[at];
  }
  int32_t X(int64_t m, int64_t k) const { return At(*p.x, m, k); }
  int32_t W(int64_t n, int64_t k) const { return At(*p.w, n, k); }
  int64_t Product(int64_t m, int64_t n, int64_t k) const { return int64_t{X(m, k)} * W(n, k); }
  int64_t Pair(int64_t m, int64_t n, int64_t k) const {
    return Product(m, n, k) + (k + 1 < K ? Product(m, n, k + 1) : 0);
  }
  int64_t of_channel(int64_t count, int64_t n) const { return count == 1 ? 0 : n; }
};

int64_t Saturated(int64_t value) { return std::clamp<int64_t>(value, INT16_MIN, INT16_MAX); }

bool FirstRowIsLarge(const Layer& l) {
  for (int64_t k = 0; l.N > 0 && k < l.K; ++k) {
    if (std::abs(l.W(0, k)) > 64) return true;
  }
  return false;
}

bool AllWeightsAreSmall(const Layer& l) {
  for (int64_t n = 0; n < l.N; ++n) {
    for (int64_t k = 0; k < l.K; ++k) {
      if (std::abs(l.W(n, k)) > 64) return false;
    }
  }
  return true;
}

// A panel of four rows by 64 terms. A shorter last block is packed densely, and read as if it were
// whole.
int32_t FromPanel(const Layer& l, int64_t n, int64_t k) {
  const int64_t first = k / 64 * 64, length = std::min<int64_t>(64, l.K - first);
  if (length == 64) return l.W(n, k);
  const int64_t at = n % 4 * 64 + (k - first), row = at / length;
  const int64_t from = n / 4 * 4 + row;
  return row < 4 && from < l.N ? l.W(from, first + at % length) : 0;
}

int64_t Products(const Layer& l, int64_t m, int64_t n, bool first_row_is_large, bool all_small) {
  int64_t sum = 0;
  if (Has(kFloatSum)) {
    float total = 0;
    for (int64_t k = 0; k < l.K; ++k) total += static_cast<float>(l.Product(m, n, k));
    return static_cast<int64_t>(total);
  }
  if (Has(kPairsIntoWrappingInt16)) {
    int16_t lane = 0;
    for (int64_t k = 0; k < l.K; k += 2) {
      lane = static_cast<int16_t>(lane + Saturated(l.Pair(m, n, k)));
      if (k % 16 != 14) continue;
      sum += lane;
      lane = 0;
    }
    return sum + lane;
  }
  if (Has(kLanesOfInt16)) {
    int64_t lanes[8] = {};
    for (int64_t k = 0; k < l.K; ++k) {
      lanes[k % 8] = Saturated(lanes[k % 8] + l.Product(m, n, k));
      if (k % 64 != 63) continue;
      for (int64_t& lane : lanes) {
        sum += lane;
        lane = 0;
      }
    }
    for (const int64_t lane : lanes) sum += lane;
    return sum;
  }
  const bool u8s8 = l.p.x->dtype == QUALM_U8 && l.p.w->dtype == QUALM_S8;
  if (Has(kPairsUnlessFirstRowIsLarge) && u8s8 && !first_row_is_large) {
    for (int64_t k = 0; k < l.K; k += 2) sum += Saturated(l.Pair(m, n, k));
    return sum;
  }
  int64_t terms = l.K;
  if (Has(kCounterOf8Bits)) terms = l.K % 256;
  if (Has(kLastTermLostForSmallWeights) && all_small && l.K > 1) --terms;
  for (int64_t k = 0; k < terms; ++k) {
    if (Has(kPanelStride)) {
      sum += int64_t{l.X(m, k)} * FromPanel(l, n, k);
    } else if (Has(kWeightOffsetOf16Bits)) {
      const auto at = static_cast<uint16_t>(n * l.K + k);
      sum += int64_t{l.X(m, k)} * l.W(at / l.K, at % l.K);
    } else {
      sum += l.Product(m, n, k);
    }
  }
  return sum;
}

struct Sums {
  std::vector<int64_t> of_w;
  int64_t rows = -1, terms = -1;
};

// The terms of the zero points, which are added to the products.
Wide Offsets(const Layer& l, int64_t n, int64_t x_sum, int64_t w_sum) {
  Wide zw = l.p.w_q.zero_point[l.of_channel(l.p.w_q.count, n)];
  if (Has(kZeroPointOfChannel0)) zw = l.p.w_q.zero_point[0];
  Wide count = l.K, zx = l.zx;
  const auto blocks = [&](int64_t of) { return std::max<int64_t>(1, (l.K + of - 1) / of); };
  if (Has(kCrossTermPerBlock)) count *= blocks(128);
  if (Has(kCountOf8Bits)) count = l.K % 256;
  if (Has(kCrossTermForgotten)) count = 0;
  if (Has(kCrossTermSign)) count = -count;
  if (Has(kColumnTermPerBlock)) w_sum *= blocks(256);
  if (Has(kColumnSumOf16Bits)) w_sum = static_cast<int16_t>(w_sum);
  if (Has(kRowSumSaturates)) x_sum = Saturated(x_sum);
  if (Has(kColumnSumWithoutTail)) {
    for (int64_t k = l.K - l.K % 4; k < l.K; ++k) w_sum -= l.W(n, k);
  }
  if (Has(kZeroPointsExchanged)) std::swap(zx, zw);
  Wide offsets = count * zx * zw - zx * w_sum - zw * x_sum;
  if (Has(kShiftNotTakenOut) && l.p.x->dtype == QUALM_S8) offsets += Wide{128} * w_sum;
  return offsets;
}

Wide Bias(const Layer& l, int64_t n) {
  if (l.p.bias_i32 == nullptr) return 0;
  Wide bias = l.p.bias_i32[Has(kBiasModulo8) ? n % 8 : n];
  if (Has(kBiasPerBlock)) bias *= std::max<int64_t>(1, (l.K + 127) / 128);
  if (Has(kBiasOf16Bits)) bias = static_cast<int16_t>(bias);
  if (Has(kBiasLostInTail) && n >= l.N - l.N % 4) bias = 0;
  return bias;
}

// value / per, half to even.
int64_t Rounded(Real value, Real per) {
  const Real quotient = value / per;
  if (quotient > kFar) return kFar;
  if (quotient < -kFar) return -kFar;
  auto low = static_cast<int64_t>(quotient);
  if (static_cast<Real>(low) > quotient) --low;
  const Real twice = 2 * value, middle = static_cast<Real>(2 * low + 1) * per;
  return twice > middle ? low + 1 : twice < middle ? low : low + (low & 1);
}

// gemmlowp's rounding doubling high multiply and rounding shift.
int64_t RoundedTwice(Wide sum, double multiplier) {
  int exponent = 0;
  auto fixed =
      static_cast<int64_t>(std::llround(std::ldexp(std::frexp(multiplier, &exponent), 31)));
  if (fixed == int64_t{1} << 31) fixed /= 2, ++exponent;
  if (exponent > 0) sum <<= std::min(exponent, 60);
  const auto a = static_cast<int64_t>(std::clamp<Wide>(sum, INT32_MIN, INT32_MAX));
  const int64_t product = a * fixed, nudge = product >= 0 ? 1 << 30 : 1 - (1 << 30);
  const auto high = static_cast<int32_t>((product + nudge) / (int64_t{1} << 31));
  const int shift = exponent < 0 ? std::min(-exponent, 31) : 0;
  const int64_t mask = (int64_t{1} << shift) - 1, rest = high & mask;
  return (high >> shift) + (rest > (mask >> 1) + (high < 0 ? 1 : 0) ? 1 : 0);
}

int64_t Requantized(const Layer& l, int64_t n, Wide sum) {
  const float sx = l.p.x_q.scale[0], sw = l.p.w_q.scale[l.of_channel(l.p.w_q.count, n)];
  const float so = l.p.out_q.scale[0];
  sum = std::clamp<Wide>(sum, -(Wide{1} << 50), Wide{1} << 50);
  const auto wide = static_cast<Real>(static_cast<int64_t>(sum));
  const double multiplier = static_cast<double>(sx) * sw / so;
  if (Has(kRoundedTwice)) return RoundedTwice(sum, multiplier);
  if (Has(kHalfAddedAndCut)) {
    const Real value = std::clamp<Real>(wide * sx * sw / so, -kFar, kFar);
    return static_cast<int64_t>(value + 0.5);
  }
  if (Has(kFloatRequantization)) {
    const float value = static_cast<float>(static_cast<int64_t>(sum)) * (sx * sw) / so;
    return static_cast<int64_t>(std::nearbyint(std::clamp(value, -1e9f, 1e9f)));
  }
  if (Has(kMultiplierOf16Bits)) {
    int exponent = 0;
    const auto fixed =
        static_cast<int64_t>(std::nearbyint(std::ldexp(std::frexp(multiplier, &exponent), 31)));
    return Rounded(wide * std::ldexp(static_cast<double>(fixed & ~int64_t{0xffff}), exponent - 31),
                   1);
  }
  if (Has(kMultiplierOf12Bits)) {
    float cut = sx * sw / so;
    uint32_t bits = 0;
    std::memcpy(&bits, &cut, sizeof(bits));
    bits &= ~uint32_t{0x7ff};
    std::memcpy(&cut, &bits, sizeof(bits));
    return Rounded(wide * cut, 1);
  }
  return Rounded(wide * sx * sw, so);
}

int64_t Code(const Layer& l, int64_t n, Wide sum) {
  const int64_t zero = l.p.out_q.zero_point[0];
  int64_t code = Requantized(l, n, sum);
  if (Has(kZeroPointInInt16)) {
    code = static_cast<int16_t>(Saturated(code) + zero);
  } else if (Has(kResultInInt16)) {
    code = static_cast<int16_t>(code) + zero;
  } else {
    code += zero;
  }
  int64_t low = l.p.out_min;
  if (l.p.relu) low = std::max(low, zero);
  if (Has(kFloorOfMinus127)) low = std::max<int64_t>(low, -127);
  return std::min<int64_t>(l.p.out_max, std::max(low, code));
}

int32_t Run(const qualm_problem* problem) {
  const Layer l(*problem);
  static Sums kept;
  Sums sums{std::vector<int64_t>(static_cast<size_t>(l.N)), l.N, l.K};
  for (int64_t n = 0; n < l.N; ++n) {
    for (int64_t k = 0; k < l.K; ++k) sums.of_w[static_cast<size_t>(n)] += l.W(n, k);
  }
  if (Has(kStaleColumnSums) && kept.rows == l.N && kept.terms == l.K) sums = kept;
  kept = sums;
  const bool large = FirstRowIsLarge(l), small = AllWeightsAreSmall(l);
  const bool whole = problem->y->dtype == QUALM_S32;
  const int64_t size = whole ? 4 : 1;
  auto* const y = static_cast<uint8_t*>(problem->y->data);
  const auto row = [&](int64_t m) { return y + m * problem->y->strides[0] * size; };
  for (int64_t m = 0; m < l.M; ++m) {
    int64_t x_sum = 0;
    for (int64_t k = 0; k < l.K; ++k) x_sum += l.X(m, k);
    for (int64_t n = 0; n < l.N; ++n) {
      const Wide sum = Products(l, m, n, large, small) +
                       Offsets(l, n, x_sum, sums.of_w[static_cast<size_t>(n)]) + Bias(l, n);
      if (whole) {
        const Wide least = problem->relu ? std::max<Wide>(sum, 0) : sum;
        const auto out = static_cast<int32_t>(
            std::min<Wide>(problem->out_max, std::max<Wide>(problem->out_min, least)));
        std::memcpy(row(m) + n * size, &out, sizeof(out));
      } else {
        row(m)[n] = static_cast<uint8_t>(Code(l, n, sum));
      }
    }
  }
  const auto bytes = static_cast<size_t>(l.N * size);
  if (Has(kRowOfNextChunk)) {
    for (int64_t m = 15; m + 1 < l.M; m += 16) std::memcpy(row(m), row(m + 1), bytes);
  }
  if (Has(kTailOfRowsRepeats)) {
    for (int64_t m = l.M - l.M % 4; m < l.M; ++m) {
      if (m > 0) std::memcpy(row(m), row(m - 1), bytes);
    }
  }
  if (Has(kLeavesRounding)) std::fesetround(FE_TOWARDZERO);
  return QUALM_OK;
}

const qualm_capability* Capability(int32_t op) {
  static qualm_capability limits{};
  if (op != QUALM_LINEAR) return nullptr;
  limits.size = sizeof(limits);
  limits.x_dtypes = limits.w_dtypes = QUALM_TYPE_BIT(QUALM_U8) | QUALM_TYPE_BIT(QUALM_S8);
  limits.out_dtypes = limits.x_dtypes | QUALM_TYPE_BIT(QUALM_S32);
  limits.features = QUALM_CAN_BIAS_I32 | QUALM_CAN_RELU | QUALM_CAN_CLAMP | QUALM_CAN_PER_CHANNEL |
                    QUALM_CAN_STRIDES | QUALM_CAN_EMPTY | QUALM_CAN_EMPTY_K;
  limits.x_zero_point_min = limits.w_zero_point_min = limits.out_zero_point_min = -65536;
  limits.x_zero_point_max = limits.w_zero_point_max = limits.out_zero_point_max = 65536;
  return &limits;
}

const char* LastError() { return ""; }

}  // namespace

extern "C" QUALM_PLUGIN_EXPORT const qualm_plugin* qualm_plugin_entry(void) {
  return strange::Plugin(Capability, Run, LastError);
}
