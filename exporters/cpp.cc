// SPDX-License-Identifier: Apache-2.0
// C++ that needs nothing but a compiler. The exact answer is computed from its definition in
// 128-bit integers: scales are float32, so their quotients are fractions. The answer given is
// computed too where it is a saturating pair sum, by the instruction that saturates; else it stands
// there as it was recorded.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cmath>
#include <span>

#include "exporters/evidence.h"
#include "oracles/exact/arithmetic/rational.h"
#include "oracles/exact/exact.h"

namespace qualm::exporters {
namespace {

using exact::Integer;
using exact::PowerOfTwo;
using exact::Rational;
using exact::ToRational;

constexpr std::string_view kTooFarApart =
    "room for the scales and sums: they lie too far apart for 128 bits (see numpy)";

// How the value of output (m, n), before it is rounded, follows from integers: the numerator in C++
// and what it is divided by. P, Q and B are lists of one entry, or one per channel.
struct Formula {
  std::string_view text;       // in real numbers
  std::string_view numerator;  // of the value times Q
  std::string_view divisor = "At(Q, n)";
};

struct Fractions {
  std::vector<Rational> P, B;  // factor of the integer, and what is added
};

Formula FormulaOf(const Case& c) {
  switch (c.op) {
    case Op::kRequantize: return {"x * m", "Int(x[m * N + n]) * At(P, n)"};
    case Op::kRescale: return {"x_scale * (x - x_zp) / out_scale", "(x[m * N + n] - x_zp) * P[0]"};
    case Op::kAdd:
    case Op::kSub:
      return {c.op == Op::kAdd ? "(a_scale * (a - a_zp) + b_scale * (b - b_zp)) / out_scale"
                               : "(a_scale * (a - a_zp) - b_scale * (b - b_zp)) / out_scale",
              "(a[m * N + n] - a_zp) * P[0] + (b[m * N + n] - b_zp) * P[1]", "Q[0]"};
    case Op::kMul:
      return {"a_scale * (a - a_zp) * b_scale * (b - b_zp) / out_scale",
              "Int(a[m * N + n] - a_zp) * Int(b[m * N + n] - b_zp) * P[0]"};
    case Op::kConcat:
      return {"scale * (code - zero point) / out_scale, of a and b next to each other",
              "n < NA ? (a[m * NA + n] - a_zp) * P[0]\n"
              "                : (b[m * (N - NA) + n - NA] - b_zp) * P[1]",
              "Q[0]"};
    case Op::kLinear:
    case Op::kConv2d:
    case Op::kDepthwise:
      return {"(sum of (x - x_zp) * (w - w_zp) + bias) * x_scale * w_scale / out_scale",
              "Sum(m, n) * At(P, n) + At(B, n)"};
    case Op::kAvgPool:
    case Op::kGlobalAvgPool:
      return {"sum of x_scale * (x - x_zp) / (count * out_scale)", "Sum(m, n) * P[0]",
              "Q[0] * Count(m)"};
    default: return {};
  }
}

Fractions FractionsOf(const Case& c) {
  const auto ratio = [&](const QParams& q) {
    return Rational(ToRational(q.scale_at(0)) / ToRational(c.out_q.scale_at(0)));
  };
  Fractions result;
  if (c.out_dtype == DType::kS32) return {{1}, {0}};
  switch (c.op) {
    case Op::kAdd:
    case Op::kConcat: return {{ratio(c.x_q), ratio(c.w_q)}, {}};
    case Op::kSub: return {{ratio(c.x_q), -ratio(c.w_q)}, {}};
    case Op::kMul: return {{ratio(c.x_q) * ToRational(c.w_q.scale_at(0))}, {}};
    case Op::kRequantize:
      if (!UsesMultiplier(c)) break;
      for (const float m : c.multiplier) result.P.push_back(ToRational(m));
      return result;
    case Op::kLinear:
    case Op::kConv2d:
    case Op::kDepthwise: break;
    default: return {{ratio(c.x_q)}, {}};
  }
  for (const float scale : c.w_q.scale) result.P.push_back(ratio(c.x_q) * ToRational(scale));
  if (c.bias) {
    for (const float b : *c.bias)
      result.B.push_back(ToRational(b) / ToRational(c.out_q.scale_at(0)));
  } else {
    result.B.emplace_back(0);
  }
  return result;
}

// 128 bits have no literal.
std::string IntText(const Integer& value) {
  const Integer magnitude = abs(value);
  Require(magnitude < Integer(1) << 126,
          "room for the scales: they lie too far apart for 128 bits");
  const std::string sign = value < 0 ? "-" : "";
  if (magnitude <= INT64_MAX) return sign + magnitude.str();
  const Integer low = magnitude & ((Integer(1) << 64) - 1);
  return fmt::format("{}(Int({}) << 64 | Int({}u))", sign, Integer(magnitude >> 64).str(),
                     low.str());
}

std::string IntList(std::string_view name, const std::vector<Integer>& values) {
  std::string text;
  for (const Integer& value : values) text += (text.empty() ? "" : ",\n  ") + IntText(value);
  return fmt::format("const std::vector<Int> {} = {{{}}};\n", name, text);
}

// P, B and Q as integers over one denominator per channel, or over one for all of P.
std::string FractionConstants(const Case& c) {
  const Fractions from = FractionsOf(c);
  const bool common = HasTwoInputs(c.op);
  std::vector<Integer> P, B, Q;
  const size_t count = std::max(from.P.size(), from.B.size());
  for (size_t n = 0; n < count; ++n) {
    const Rational p = from.P[from.P.size() == 1 ? 0 : n];
    const Rational b = from.B.empty() ? Rational(0) : from.B[from.B.size() == 1 ? 0 : n];
    Integer q = lcm(denominator(p), denominator(b));
    if (common) {
      for (const Rational& each : from.P) q = lcm(q, denominator(each));
    }
    P.push_back(numerator(p) * (q / denominator(p)));
    B.push_back(numerator(b) * (q / denominator(b)));
    Q.push_back(q);
  }
  return IntList("P", P) + (from.B.empty() ? "" : IntList("B", B)) + IntList("Q", Q);
}

// No intermediate number leaves 128 bits: |integer| * P + B, times two, and Q.
void RequireRoom(const Case& c) {
  Integer largest = 1;
  for (const __int128 value : exact::IntegersOf(c).values) {
    const Integer magnitude = static_cast<Integer>(value < 0 ? -value : value);
    largest = std::max(largest, magnitude);
  }
  // The second operand of add, sub and concat is not among them.
  if (HasTwoInputs(c.op)) largest = std::max(largest, Integer(1) << 34);
  Integer count = 1;
  if (IsPool(c.op)) count = std::max<int64_t>(c.K, 1);
  const Fractions from = FractionsOf(c);
  Integer p_most = 0, q_most = 1;
  for (const auto* list : {&from.P, &from.B}) {
    for (const Rational& each : *list) q_most = lcm(q_most, denominator(each));
  }
  for (const auto* list : {&from.P, &from.B}) {
    for (const Rational& each : *list)
      p_most = std::max(p_most, Integer(abs(numerator(each)) * q_most / denominator(each)));
  }
  Require(largest * p_most < Integer(1) << 124 && q_most * count < Integer(1) << 124, kTooFarApart);
}

constexpr std::string_view kLinearTerms = R"(
// The k-th codes of x and w that meet in output (m, n).
$code$ Code(int64_t m, int64_t /*n*/, int64_t k) { return x[m * K + k]; }
int Weight(int64_t n, int64_t k) { return w[n * K + k]; }
bool Inside(int64_t /*m*/, int64_t /*k*/) { return true; }
)";

constexpr std::string_view kWindow = R"(
// The pixel of x at position k of the window of output pixel m; -1 in the padding, -2 beyond it.
int64_t PixelOf(int64_t m, int64_t k) {
  const int64_t i = m / OW % OH * stride_h - pad_top + k / S * dilation_h;
  const int64_t j = m % OW * stride_w - pad_left + k % S * dilation_w;
  if (i >= H + pad_bottom || j >= W + pad_right) return -2;
  return i < 0 || i >= H || j < 0 || j >= W ? -1 : (m / (OH * OW) * H + i) * W + j;
}
)";

constexpr std::string_view kConvTerms = R"(
// Term k of output (m, n) is a position of the window and a channel of the group.
bool Inside(int64_t m, int64_t k) { return PixelOf(m, k / (C / groups)) >= 0; }
int Code(int64_t m, int64_t n, int64_t k) {
  const int64_t depth = C / groups, pixel = PixelOf(m, k / depth);
  return pixel < 0 ? int(x_zp) : x[pixel * C + n / (N / groups) * depth + k % depth];
}
int Weight(int64_t n, int64_t k) { return w[n * K + k]; }
)";

constexpr std::string_view kSum = R"(
// Padding adds real 0.
Int Sum(int64_t m, int64_t n) {
  Int sum = $bias$;
  for (int64_t k = 0; k < K; ++k) {
    if (Inside(m, k)) sum += Int(Code(m, n, k) - x_zp) * (Weight(n, k) - Int(At(w_zp, n)));
  }
  return sum;
}
)";

// Sums of reals, where x has none of the codes, blocks have scales of their own, or the output is
// the float32 next to the sum.
constexpr std::string_view kReal = R"(
// Each float32 is an integer over a power of two.
Int Whole(float value, int shift) { return Int(std::ldexp(double(value), shift)); }

// The sum of x * w and the bias in real numbers, times 2^($x_shift$ + $w_shift$). Padding adds 0.
Int Sum(int64_t m, int64_t n) {
  Int sum = $bias$;
  for (int64_t k = 0; k < K; ++k) {
    if (!Inside(m, k)) continue;
    const int64_t j = $entry$;  // of the weight's scale and zero point
    sum += $x$ * Whole(w_scale[j], $w_shift$) * (Weight(n, k) - Int(w_zp[j]));
  }
  return sum;
}
)";

constexpr std::string_view kAverage = R"(
Int Sum(int64_t m, int64_t n) {
  Int sum = 0;
  for (int64_t k = 0; k < R * S; ++k)
    if (PixelOf(m, k) >= 0) sum += x[PixelOf(m, k) * C + n] - x_zp;
  return sum;
}
Int Count(int64_t m) {
  Int count = 0;
  for (int64_t k = 0; k < R * S; ++k) count += PixelOf(m, k) >= ($count_include_pad$ ? -1 : 0);
  return count;
}
)";

constexpr std::string_view kMaximum = R"(
// The largest code of the window; padding never wins.
Out Expected(int64_t m, int64_t n) {
  int64_t largest = INT64_MIN;
  for (int64_t k = 0; k < R * S; ++k)
    if (PixelOf(m, k) >= 0) largest = std::max<int64_t>(largest, x[PixelOf(m, k) * C + n]);
  return Clamp(largest, out_zp);
}
)";

constexpr std::string_view kNearest = R"(
// The integer nearest to numerator / divisor, half to even; divisor > 0.
Int Nearest(Int numerator, Int divisor) {
  Int quotient = numerator / divisor, rest = numerator % divisor;
  if (rest < 0) rest += divisor, --quotient;
  return quotient + (2 * rest > divisor || (2 * rest == divisor && quotient % 2 != 0));
}
)";
constexpr std::string_view kFraction = R"(
// $text$
// is a fraction, numerator / divisor, rounded once.
Out Expected(int64_t m, int64_t n) {
  const Int numerator = $numerator$;
  return Clamp(Nearest(numerator, $divisor$) + $zero$, $zero$);
}
)";

constexpr std::string_view kFloat = R"(
// The float32 nearest to Sum(m, n) / 2^$shift$, half to even.
Out Expected(int64_t m, int64_t n) {
  const Int sum = Sum(m, n), magnitude = sum < 0 ? -sum : sum;
  int drop = std::min(std::max(0, $shift$ - 149), 126);  // 2^-149 is the last bit of denormals
  while (drop < 126 && magnitude >> drop >= 1 << 24) ++drop;
  const float size = std::ldexp(float(Nearest(magnitude, Int(1) << drop)), drop - ($shift$));
  const float value = sum < 0 ? -size : size;
  return relu ? std::max(0.0f, value) : value;
}
)";

// The double is the float32 quotient or product to 53 bits: it is on the side of a tie that the
// exact value is on, and on it only where that is.
constexpr std::string_view kQuantize = R"(
// x / out_scale: as a double it lies on the same side of every tie as the exact quotient.
Out Expected(int64_t m, int64_t n) {
  const double value = double(x[m * N + n]) / $scale$;
  const int64_t zero = $zero$;
  if (std::isnan(value)) return Clamp(zero, zero);
  const double far = 4294967296.0 * 2;
  return Clamp(Int(std::nearbyint(std::fmax(-far, std::fmin(far, value)))) + zero, zero);
}
)";
constexpr std::string_view kDequantize = R"(
// x_scale * (x - x_zp), rounded once: the product is exact in double.
Out Expected(int64_t m, int64_t n) {
  return float(double($scale$) * double(x[m * N + n] - $zero$));
}
)";

constexpr std::string_view kPairs = R"(
// The products of u8 codes and s8 weights as a kernel without VNNI adds them: vpmaddubsw adds two
// products in an int16 and saturates. Only then are the zero points taken out.
__attribute__((target("ssse3"))) Int SumOfPairs(int64_t m, int64_t n) {
  Int sum = $bias$, x_sum = 0, w_sum = 0;
  for (int64_t k = 0; k < K; k += 2) {
    alignas(16) uint8_t codes[16] = {};
    alignas(16) int8_t weights[16] = {};
    for (int64_t i = k; i < std::min(k + 2, K); ++i) {
      codes[i - k] = uint8_t(Code(m, n, i) + kShift);
      weights[i - k] = int8_t(Weight(n, i));
      x_sum += Code(m, n, i);
      w_sum += Weight(n, i);
    }
    const __m128i pairs = _mm_maddubs_epi16(_mm_load_si128(reinterpret_cast<__m128i*>(codes)),
                                            _mm_load_si128(reinterpret_cast<__m128i*>(weights)));
    sum += int16_t(_mm_extract_epi16(pairs, 0));
  }
  return sum - (x_zp + kShift) * w_sum - At(w_zp, n) * x_sum + Int(K) * x_zp * At(w_zp, n);
}
Out Got(int64_t m, int64_t n) {
  const Int numerator = SumOfPairs(m, n) * At(P, n) + At(B, n);
  return Clamp(Nearest(numerator, At(Q, n)) + $zero$, $zero$);
}
)";

constexpr std::string_view kProgram = R"($head$$include$#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

using Int = __int128;
using Out = $out$;

$constants$$fractions$
template <class List>
auto At(const List& list, int64_t n) {  // one entry for all, or one per channel
  return list[list.size() == 1 ? 0 : n];
}
$clamp$$terms$$expected$$got$
void Print(const char* name, Out (*value)(int64_t, int64_t)) {
  std::printf("%-8s", name);
  for (int64_t m = 0; m < M; ++m) {
    for (int64_t n = 0; n < N; ++n) std::printf(" $format$", value(m, n));
  }
  std::printf("\n");
}

}  // namespace

int main() {
  Print("EXPECTED", Expected);
  Print("GOT", Got);
  for (int64_t m = 0; m < M; ++m) {
    for (int64_t n = 0; n < N; ++n) {
      if ($differ$) return 1;
    }
  }
  return 0;
}
)";

constexpr std::string_view kClampCode = R"(
Out Clamp(Int code, int64_t zero) {
  const Int low = relu ? std::max(out_min, zero) : out_min;
  return Out(std::min<Int>(out_max, std::max(low, code)));
}
)";

constexpr std::string_view kRecorded = R"(
// As it was answered. Call a kernel here to see what it answers.
$recorded$Out Got(int64_t m, int64_t n) { return recorded[m * N + n]; }
)";

void RequireExpressible(const Case& c) {
  const bool line = !FormulaOf(c).text.empty() || c.op == Op::kQuantize ||
                    c.op == Op::kDequantize || c.op == Op::kMaxPool;
  Require(line, fmt::format("plain integers for {} (see numpy)", Name(c.op)));
  Require(c.requant == Requant::kExact,
          fmt::format("the requantization mode {} (see numpy)", Name(c.requant)));
  if (c.op == Op::kDequantize) {
    for (const int32_t z : c.x_q.zero_point)
      Require(std::abs(int64_t{z}) < int64_t{1} << 28, "a double for zero points beyond 2^28");
  }
}

// The sum has no one factor P / Q, or is no integer.
bool IsRealSum(const Case& c) {
  return HasSums(c.op) && (c.w_block != 0 || HasFloatX(c) || c.out_dtype == DType::kF32);
}

// Of a real sum: x times 2^x, w times 2^w are integers, and so is the output's scale times 2^out.
struct Shifts {
  int x = 0, w = 0, out = 0;
};

// The least s for which every value * 2^s is an integer.
int ShiftOf(std::span<const float> values) {
  int shift = INT_MIN;
  for (const float value : values) {
    if (value == 0) continue;
    int exponent = 0;
    float fraction = std::frexp(value, &exponent);
    for (; fraction != std::trunc(fraction); fraction *= 2) --exponent;
    shift = std::max(shift, -exponent);
  }
  return shift == INT_MIN ? 0 : shift;
}

Shifts ShiftsOf(const Case& c) {
  const auto reals = [](const Tensor& x) { return std::span(x.as<float>()); };
  Shifts shifts{HasFloatX(c) ? ShiftOf(reals(c.x)) : ShiftOf(c.x_q.scale), ShiftOf(c.w_q.scale),
                c.out_dtype == DType::kF32 ? 0 : ShiftOf(c.out_q.scale)};
  if (c.bias) shifts.x = std::max(shifts.x, ShiftOf(*c.bias) - shifts.w);
  return shifts;
}

// No intermediate number of a real sum leaves 128 bits.
void RequireRoomForReals(const Case& c, const Shifts& shifts) {
  const auto most = [](const auto& values, int shift) {
    Rational size = 0;
    for (const auto value : values) size = std::max(size, Rational(abs(ToRational(value))));
    return Rational(size * PowerOfTwo(shift));
  };
  const auto most_of = [](const Tensor& codes, const std::vector<int32_t>& zero_points) {
    int64_t size = 0;
    for (const int64_t zero : zero_points) {
      const CodeRange range = RangeOf(codes.dtype());
      size = std::max({size, std::abs(range.min - zero), std::abs(range.max - zero)});
    }
    return Rational(size);
  };
  const Rational x = HasFloatX(c) ? most(c.x.as<float>(), shifts.x)
                                  : most(c.x_q.scale, shifts.x) * most_of(c.x, c.x_q.zero_point);
  const Rational w = most(c.w_q.scale, shifts.w) * most_of(c.w, c.w_q.zero_point);
  Rational sum = std::max<int64_t>(c.K, 1) * x * w;
  if (c.bias) sum += most(*c.bias, shifts.x + shifts.w);
  if (c.bias_i32) sum += PowerOfTwo(31) * most(c.x_q.scale, shifts.x) * most(c.w_q.scale, shifts.w);
  Rational divisor = 1;
  if (c.out_dtype != DType::kF32) {
    const int up = shifts.out - shifts.x - shifts.w;
    sum *= PowerOfTwo(std::max(up, 0));
    divisor = most(c.out_q.scale, shifts.out) * PowerOfTwo(std::max(-up, 0));
  }
  Require(sum < PowerOfTwo(124) && divisor < PowerOfTwo(124), kTooFarApart);
}

std::string RealSum(const Case& c) {
  const Shifts shifts = ShiftsOf(c);
  RequireRoomForReals(c, shifts);
  const auto entry = [&](std::string_view row, size_t entries) {
    if (c.w_block != 0) return fmt::format("{} * {} + k / {}", row, RowBlocks(c), c.w_block);
    return std::string(entries == 1 ? "0" : row);
  };
  const std::string i = c.x_block == 0 ? "" : "[" + entry("m", c.x_q.scale.size()) + "]";
  const std::string whole = fmt::format("Whole(x_scale{}, {})", i, shifts.x);
  const std::string x = HasFloatX(c) ? fmt::format("Whole(Code(m, n, k), {})", shifts.x)
                                     : fmt::format("Int(Code(m, n, k) - x_zp{}) * {}", i, whole);
  std::string bias = "0";
  if (c.bias) bias = fmt::format("Whole(bias[n], {})", shifts.x + shifts.w);
  if (c.bias_i32)
    bias = fmt::format("bias_i32[n] * {} * Whole(At(w_scale, n), {})", whole, shifts.w);
  return Fill(kReal, {{"bias", bias},
                      {"entry", entry("n", c.w_q.scale.size())},
                      {"x", x},
                      {"x_shift", std::to_string(shifts.x)},
                      {"w_shift", std::to_string(shifts.w)}});
}

std::string TermsOf(const Case& c) {
  const std::string bias = c.bias_i32 ? "bias_i32[n]" : "0";
  if (HasSums(c.op)) {
    const std::string terms = c.op == Op::kLinear
                                  ? Fill(kLinearTerms, {{"code", HasFloatX(c) ? "float" : "int"}})
                                  : std::string(kWindow) + std::string(kConvTerms);
    return terms + (IsRealSum(c) ? RealSum(c) : Fill(kSum, {{"bias", bias}}));
  }
  if (!IsPool(c.op)) return "";
  if (c.op == Op::kMaxPool) return std::string(kWindow);
  return std::string(kWindow) +
         Fill(kAverage, {{"count_include_pad", c.window.count_include_pad ? "true" : "false"}});
}

// The real sum, rounded once to the output.
std::string RealExpected(const Case& c) {
  const Shifts shifts = ShiftsOf(c);
  const int up = shifts.out - shifts.x - shifts.w;
  if (c.out_dtype == DType::kF32)
    return std::string(kNearest) + Fill(kFloat, {{"shift", std::to_string(-up)}});
  const auto moved = [](std::string number, int bits) {
    return bits <= 0 ? number : fmt::format("{} * (Int(1) << {})", number, bits);
  };
  return std::string(kNearest) +
         Fill(kFraction, {{"text", "(sum of x * w + bias) / out_scale, in real numbers,"},
                          {"numerator", moved("Sum(m, n)", up)},
                          {"divisor", moved(fmt::format("Whole(out_scale, {})", shifts.out), -up)},
                          {"zero", "out_zp"}});
}

std::string ExpectedOf(const Case& c, const std::string& zero) {
  const auto entry = [&](std::string_view list) {
    return c.x_block == 0 ? fmt::format("At({}, n)", list)
                          : fmt::format("{}[m * {} + n / {}]", list, ElementBlocks(c), c.x_block);
  };
  switch (c.op) {
    case Op::kQuantize:
      return Fill(kQuantize, {{"scale", entry("out_scale")}, {"zero", entry("out_zp")}});
    case Op::kDequantize:
      return Fill(kDequantize, {{"scale", entry("x_scale")}, {"zero", entry("x_zp")}});
    case Op::kMaxPool: return std::string(kMaximum);
    default: break;
  }
  if (IsRealSum(c)) return RealExpected(c);
  const Formula formula = FormulaOf(c);
  return std::string(kNearest) + Fill(kFraction, {{"text", std::string(formula.text)},
                                                  {"numerator", std::string(formula.numerator)},
                                                  {"divisor", std::string(formula.divisor)},
                                                  {"zero", zero}});
}

}  // namespace

std::string WriteCpp(const Evidence& evidence) {
  const Case& c = evidence.c;
  RequireExpressible(c);
  const bool fractions = !FormulaOf(c).text.empty() && !IsRealSum(c);
  if (fractions) RequireRoom(c);
  const bool pairs = !IsRealSum(c) && IsPairSaturation(evidence);
  const bool floats = c.out_dtype == DType::kF32;
  const std::string zero = c.out_dtype == DType::kS32 ? "0" : "out_zp";
  std::string got =
      Fill(kRecorded, {{"recorded", List(Language::kCpp, "recorded", evidence.answer().y)}});
  if (pairs) {
    got = fmt::format("\nconst int kShift = {};  // {}\n", c.x.dtype() == DType::kS8 ? 128 : 0,
                      "vpmaddubsw takes u8 codes; s8 ones are moved by 128") +
          Fill(kPairs, {{"bias", c.bias_i32 ? "bias_i32[n]" : "0"}, {"zero", zero}});
  }
  return Fill(
      kProgram,
      {{"head", Head(evidence, "//", "c++ -std=c++17 -O1 repro.cc -o repro && ./repro")},
       {"include", pairs ? "#include <immintrin.h>\n" : ""},
       {"out", std::string(TypeIn(Language::kCpp, c.out_dtype))},
       {"constants", Constants(Language::kCpp, c)},
       {"fractions", fractions ? "// " + std::string(FormulaOf(c).text) +
                                     "\n// is (integer * P + B) / Q.\n" + FractionConstants(c)
                               : ""},
       {"clamp", floats ? "" : std::string(kClampCode)},
       {"terms", TermsOf(c)},
       {"expected", ExpectedOf(c, zero)},
       {"got", got},
       {"format", floats ? "%a" : "%d"},
       {"differ", floats ? "std::signbit(Got(m, n)) != std::signbit(Expected(m, n)) ||\n"
                           "          !(Got(m, n) == Expected(m, n))"
                         : "Got(m, n) != Expected(m, n)"}});
}

}  // namespace qualm::exporters
