// SPDX-License-Identifier: Apache-2.0
// Faults of casts between float types (bench/strange_casts.tsv). bench/strangers builds one plugin
// for each: FAULT is its name; `none` is right.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>

#include "bench/strange_plugin.h"

namespace {

enum Fault {
  none,
  cast_half_up,
  cast_half_cut,
  cast_cut,
  cast_up_is_away,
  cast_up_is_nearest,
  cast_through_f16,
  cast_through_bf16,
  cast_sticky_of_8_bits,
  cast_flush,
  cast_flush_input,
  cast_tie_of_least,
  cast_saturates,
  cast_never_saturates,
  cast_infinity_as_largest,
  cast_ieee_nan_of_fn,
  cast_overflow_one_late,
  cast_minus_zero,
  cast_nan_as_infinity,
  cast_e8m0_cut,
  cast_e8m0_step_low,
  cast_e8m0_bias,
  cast_nibbles,
  cast_tail_of_8,
  cast_last_column,
};
constexpr bool Is(Fault fault) { return fault == FAULT; }

enum Top { kIeee, kAllOnes, kMinusZero, kFinite };
struct Type {
  int bits, exponent, fraction, bias;
  Top top;
  bool has_sign = true;
};

Type TypeOf(int32_t dtype) {
  switch (dtype) {
    case QUALM_F16: return {16, 5, 10, 15, kIeee};
    case QUALM_BF16: return {16, 8, 7, 127, kIeee};
    case QUALM_F8E4M3FN: return {8, 4, 3, 7, kAllOnes};
    case QUALM_F8E5M2: return {8, 5, 2, 15, kIeee};
    case QUALM_F8E4M3FNUZ: return {8, 4, 3, 8, kMinusZero};
    case QUALM_F8E5M2FNUZ: return {8, 5, 2, 16, kMinusZero};
    case QUALM_F6E2M3FN: return {6, 2, 3, 1, kFinite};
    case QUALM_F6E3M2FN: return {6, 3, 2, 3, kFinite};
    case QUALM_F4E2M1FN: return {4, 2, 1, 1, kFinite};
    case QUALM_F8E8M0FNU: return {8, 8, 0, 127, kAllOnes, false};
    default: return {32, 8, 23, 127, kIeee};
  }
}

uint32_t SignBit(const Type& t) { return t.has_sign ? 1u << (t.exponent + t.fraction) : 0; }
uint32_t Largest(const Type& t) {
  const uint32_t all = static_cast<uint32_t>((uint64_t{1} << (t.exponent + t.fraction)) - 1);
  return all - (t.top == kIeee ? 1u << t.fraction : t.top == kAllOnes ? 1u : 0u);
}
uint32_t Nan(const Type& t) {
  if (t.top == kMinusZero) return SignBit(t);
  if (t.top == kFinite) return Largest(t);
  return Largest(t) + 1 + (t.top == kIeee ? (1u << t.fraction) / 2 : 0);
}

double Decode(const Type& t, uint32_t code) {
  const uint32_t magnitude = code & ~SignBit(t);
  if (t.top == kMinusZero && code == SignBit(t)) return std::numeric_limits<double>::quiet_NaN();
  if (t.top == kIeee && magnitude == Largest(t) + 1)
    return code == magnitude ? std::numeric_limits<double>::infinity()
                             : -std::numeric_limits<double>::infinity();
  if (magnitude > Largest(t)) return std::numeric_limits<double>::quiet_NaN();
  const auto field = static_cast<int>(magnitude >> t.fraction);
  const uint32_t digits = magnitude & ((1u << t.fraction) - 1);
  if (t.fraction == 0) return std::ldexp(1.0, field - t.bias);
  double value = field == 0 ? std::ldexp(digits, 1 - t.bias - t.fraction)
                            : std::ldexp(digits + (1u << t.fraction), field - t.bias - t.fraction);
  if (Is(cast_flush_input) && field == 0) value = 0;
  return code == magnitude ? value : -value;
}

// Of |value| in units of the last digit, how many, and whether one more.
bool RoundsUp(double units, bool negative, int32_t rounding, bool is_subnormal) {
  const double whole = std::floor(units), rest = units - whole;
  if (rounding == QUALM_ROUND_UP && Is(cast_up_is_away)) return rest > 0;
  if (rounding == QUALM_ROUND_UP && !Is(cast_up_is_nearest)) return rest > 0 && !negative;
  if (rounding == QUALM_ROUND_TOWARD_ZERO) return false;
  if (Is(cast_cut)) return false;
  if (Is(cast_half_cut)) return rest > 0.5;
  if (Is(cast_half_up) || (Is(cast_tie_of_least) && is_subnormal && whole == 0)) return rest >= 0.5;
  return rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) != 0);
}

uint32_t EncodePowerOfTwo(double value, int32_t rounding, bool saturates, const Type& t) {
  if (!(value > 0)) return saturates ? 0 : Nan(t);
  if (std::isinf(value)) return saturates ? Largest(t) : Nan(t);
  int field = std::ilogb(value) + t.bias;
  const double units = std::ldexp(value, t.bias - field);
  if (rounding == QUALM_ROUND_UP ? units > 1
                                 : rounding == QUALM_ROUND_NEAREST_EVEN &&
                                       (Is(cast_half_cut) ? units > 1.5 : units >= 1.5))
    field += Is(cast_e8m0_cut) || Is(cast_cut) ? 0 : 1;
  if (Is(cast_e8m0_step_low) && units == 1 && field > 0) --field;
  if (Is(cast_e8m0_bias)) ++field;
  if (field < 0) return 0;
  if (field > static_cast<int>(Largest(t)))
    return saturates || rounding == QUALM_ROUND_TOWARD_ZERO ? Largest(t) : Nan(t);
  return static_cast<uint32_t>(field);
}

uint32_t Encode(double value, int32_t rounding, int32_t overflow, const Type& t) {
  if (std::isnan(value)) {
    if (Is(cast_nan_as_infinity) && t.top == kIeee) return Largest(t) + 1;
    return Nan(t);
  }
  if (Is(cast_saturates)) overflow = QUALM_OVERFLOW_SATURATE;
  if (Is(cast_never_saturates)) overflow = QUALM_OVERFLOW_INFINITY;
  const bool saturates = overflow == QUALM_OVERFLOW_SATURATE || t.top == kFinite;
  if (t.fraction == 0) return EncodePowerOfTwo(value, rounding, saturates, t);
  const bool negative = std::signbit(value);
  const uint32_t sign = negative ? SignBit(t) : 0;
  const double a = std::fabs(value);
  const uint32_t infinity = t.top == kIeee ? (Largest(t) + 1) | sign : Nan(t);
  if (std::isinf(a))
    return saturates || Is(cast_infinity_as_largest) ? Largest(t) | sign : infinity;
  uint32_t code = 0;
  if (a > 0) {
    const int least = 1 - t.bias;
    int exponent = std::ilogb(a);
    const bool is_subnormal = exponent < least;
    if (is_subnormal) exponent = least;
    double units = std::ldexp(a, t.fraction - exponent);
    // The bits behind the last digit are kept in 8 bits: what lies below is forgotten.
    if (Is(cast_sticky_of_8_bits)) units = std::ldexp(std::floor(std::ldexp(units, 8)), -8);
    double whole = std::floor(units);
    if (RoundsUp(units, negative, rounding, is_subnormal)) ++whole;
    if (Is(cast_flush) && is_subnormal && whole < std::ldexp(1.0, t.fraction)) whole = 0;
    const int64_t steps = int64_t{exponent + t.bias - 1} << t.fraction;
    const int64_t wide = steps + static_cast<int64_t>(whole);
    int64_t largest = Largest(t);
    if (Is(cast_ieee_nan_of_fn) && t.top == kAllOnes)
      largest = (largest >> t.fraction << t.fraction) - 1;
    // What rounds to the largest value is below its upper neighbour's middle; here all below that.
    if (Is(cast_overflow_one_late) && wide == largest + 1) return Largest(t) | sign;
    if (wide > largest) {
      const bool inward =
          rounding == QUALM_ROUND_TOWARD_ZERO || (rounding == QUALM_ROUND_UP && negative);
      if (inward || saturates) return Largest(t) | sign;
      return overflow == QUALM_OVERFLOW_NAN ? Nan(t) : infinity;
    }
    code = static_cast<uint32_t>(wide);
  }
  if (code == 0 && (t.top == kMinusZero || Is(cast_minus_zero))) return 0;
  return code | sign;
}

uint32_t Load(const uint8_t* data, const Type& t, int64_t at) {
  if (t.bits >= 8) {
    uint32_t code = 0;
    std::memcpy(&code, data + at * t.bits / 8, static_cast<size_t>(t.bits / 8));
    return code;
  }
  uint32_t code = 0;
  for (int bit = 0; bit < t.bits; ++bit) {
    const int64_t from = at * t.bits + bit;
    code |= static_cast<uint32_t>(data[from / 8] >> from % 8 & 1) << bit;
  }
  return code;
}

void Store(uint8_t* data, const Type& t, int64_t at, uint32_t code) {
  if (t.bits >= 8) {
    std::memcpy(data + at * t.bits / 8, &code, static_cast<size_t>(t.bits / 8));
    return;
  }
  if (Is(cast_nibbles) && t.bits == 4) at ^= 1;
  for (int bit = 0; bit < t.bits; ++bit) {
    const int64_t to = at * t.bits + bit;
    const auto mask = static_cast<uint8_t>(1u << to % 8);
    data[to / 8] =
        static_cast<uint8_t>((data[to / 8] & ~mask) | ((code >> bit & 1) != 0 ? mask : 0));
  }
}

// These are in kernels that have no other rounding.
constexpr bool kNearestAlone = Is(cast_half_up) || Is(cast_half_cut) || Is(cast_cut) ||
                               Is(cast_sticky_of_8_bits) || Is(cast_tie_of_least) ||
                               Is(cast_tail_of_8);

int32_t Run(const qualm_problem* p) {
  if (kNearestAlone && p->rounding != QUALM_ROUND_NEAREST_EVEN) return QUALM_UNSUPPORTED;
  const Type from = TypeOf(p->x->dtype), to = TypeOf(p->y->dtype);
  const Type f16 = TypeOf(QUALM_F16), bf16 = TypeOf(QUALM_BF16);
  const int64_t M = p->y->dims[0], N = p->y->dims[1];
  auto* const y = static_cast<uint8_t*>(p->y->data);
  // Elements of less than a byte are one stream, whose last bits are 0.
  if (to.bits < 8) std::memset(y, 0, static_cast<size_t>((M * N * to.bits + 7) / 8));
  if (Is(cast_nibbles) && to.bits == 4 && M * N % 2 != 0) return QUALM_UNSUPPORTED;
  for (int64_t m = 0; m < M; ++m) {
    for (int64_t n = 0; n < N; ++n) {
      double value = Decode(
          from, Load(static_cast<const uint8_t*>(p->x->data), from, m * p->x->strides[0] + n));
      const auto through = [&](const Type& t) {
        value = Decode(t, Encode(value, QUALM_ROUND_NEAREST_EVEN, QUALM_OVERFLOW_INFINITY, t));
      };
      if (to.bits < 16 && Is(cast_through_f16)) through(f16);
      if (to.bits < 16 && Is(cast_through_bf16)) through(bf16);
      int32_t rounding = p->rounding;
      if (Is(cast_tail_of_8) && n >= N / 8 * 8) rounding = QUALM_ROUND_TOWARD_ZERO;
      uint32_t code = Encode(value, rounding, p->overflow, to);
      if (Is(cast_last_column) && n + 1 == N && N % 2 != 0) code = 0;
      Store(y, to, m * p->y->strides[0] + n, code);
    }
  }
  return QUALM_OK;
}

const qualm_capability* Capability(int32_t op) {
  static qualm_capability limits{};
  if (op != QUALM_CAST) return nullptr;
  limits.size = sizeof(limits);
  for (const int32_t dtype :
       {QUALM_F32, QUALM_F16, QUALM_BF16, QUALM_F8E4M3FN, QUALM_F8E5M2, QUALM_F8E4M3FNUZ,
        QUALM_F8E5M2FNUZ, QUALM_F6E2M3FN, QUALM_F6E3M2FN, QUALM_F4E2M1FN, QUALM_F8E8M0FNU})
    limits.x_dtypes |= QUALM_TYPE_BIT(dtype);
  limits.out_dtypes = limits.x_dtypes;
  limits.features = QUALM_CAN_STRIDES | QUALM_CAN_EMPTY;
  return &limits;
}

const char* LastError() { return ""; }

}  // namespace

extern "C" QUALM_PLUGIN_EXPORT const qualm_plugin* qualm_plugin_entry(void) {
  return strange::Plugin(Capability, Run, LastError);
}
