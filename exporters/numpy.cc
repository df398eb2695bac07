// SPDX-License-Identifier: Apache-2.0
// A script that computes the exact answer from its definition, in Python's own integers and
// fractions. Arrays are lists: it runs wherever Python does.
#include <fmt/format.h>

#include "core/float_format.h"
#include "core/scaled_cast.h"
#include "exporters/evidence.h"

namespace qualm::exporters {
namespace {

constexpr std::string_view kPrelude = R"($head$import math
from decimal import Decimal, getcontext
from fractions import Fraction

nan, inf = math.nan, math.inf


def floats(text):
    return [float.fromhex(word) for word in text.split()]


$constants$

def at(values, n):
    """Of a list with one entry for all, or one per channel."""
    return values[n if len(values) > 1 else 0]


def power(exponent):
    return Fraction(2) ** exponent


def float32(value):
    """The float32 nearest to a fraction or a double, half to even."""
    if not isinstance(value, Fraction):
        if not math.isfinite(value) or value == 0:
            return value
        value = Fraction(value)
    if value == 0:
        return 0.0
    size = abs(value)
    log = size.numerator.bit_length() - size.denominator.bit_length()
    if size < power(log):
        log -= 1
    unit = power(max(log - 23, -149))
    nearest = round(size / unit) * unit
    return math.copysign(float(nearest) if nearest < power(128) else inf, value)


def clamp(code, zero):
    low = max($out_min$, zero) if $relu$ else $out_min$
    return min(max(code, low), $out_max$)


)";

constexpr std::string_view kLinear = R"(def terms(m, n):
    """The codes of x and w that meet in output (m, n)."""
    return [(x[m * K + k], w[n * K + k]) for k in range(K)]


)";
constexpr std::string_view kWindow = R"(def window(m):
    """The positions of the window of output pixel m: (pixel of x, inside the image?)."""
    pixel, image = m % (OH * OW), m // (OH * OW)
    for r in range(R):
        for s in range(S):
            i = pixel // OW * stride_h - pad_top + r * dilation_h
            j = pixel % OW * stride_w - pad_left + s * dilation_w
            if i < H + pad_bottom and j < W + pad_right:  # not beyond the padding
                yield (image * H + i) * W + j, 0 <= i < H and 0 <= j < W


)";
constexpr std::string_view kConv = R"(def terms(m, n):
    """The codes of x and w that meet in output (m, n); padding adds real 0."""
    depth = C // groups
    first = n // (N // groups) * depth
    for tap, (i, inside) in enumerate(window(m)):
        for c in range(depth if inside else 0):
            yield x[i * C + first + c], w[(n * R * S + tap) * depth + c]


)";
constexpr std::string_view kSum = R"(def total(m, n):
    return sum((a - x_zp) * (b - at(w_zp, n)) for a, b in terms(m, n))$bias_i32$


)";
constexpr std::string_view kReal = R"(def real(m, n):
    """The sum in real numbers, whose weights have scales and zero points of their own."""
    value = Fraction($bias$)
    for k in range(K):
        j = $entry$
        value += $x$ * Fraction(w_scale[j]) * (w[n * K + k] - w_zp[j])
    return value


)";
constexpr std::string_view kSumRequantized = R"(def output(m, n):
    return requantized(total(m, n), n)
)";
constexpr std::string_view kSumInteger = R"(def output(m, n):
    return clamp(total(m, n), 0)
)";
constexpr std::string_view kSumFloat = R"(def output(m, n):
    """The sum in real numbers, rounded once to float32."""
    value = float32($value$)
    return max(0.0, value) if relu else value
)";

// The requantization modes of docs/quantization.md, step by step.
constexpr std::string_view kAsFloat32 = R"(def requantized(total, n):
    """FBGEMM's and QNNPACK's: a float32 product, half to even; INT32_MIN beyond int32."""
    total = min(max(total, -2**31), 2**31 - 1)
    product = float32(float32(float(total)) * factor(n))
    fits = math.isfinite(product) and -2**31 <= round(product) < 2**31
    return clamp((round(product) if fits else -2**31) + out_zp, out_zp)


)";
constexpr std::string_view kAsFixedQ31 = R"(def requantized(total, n):
    """gemmlowp's and TFLite's: a multiplier of 31 bits, two roundings, half away from zero."""
    def wrapped(value):
        return (value + 2**31) % 2**32 - 2**31

    total = min(max(total, -2**31), 2**31 - 1)
    fraction, shift = math.frexp(factor(n))
    q = math.floor(Fraction(fraction) * 2**31 + Fraction(1, 2))
    if q == 2**31:
        q, shift = q // 2, shift + 1
    if shift < -31:
        q, shift = 0, 0
    high = math.floor(Fraction(wrapped(total << max(shift, 0)) * q, 2**31) + Fraction(1, 2))
    value = math.floor(Fraction(abs(high), 2**max(-shift, 0)) + Fraction(1, 2))
    return clamp(wrapped((value if high >= 0 else -value) + out_zp), out_zp)


)";
constexpr std::string_view kAsFixedRndnu = R"(def requantized(total, n):
    """XNNPACK's on NEON: a multiplier of 24 bits, one rounding, half up."""
    def saturated(value):
        return min(max(value, -2**31), 2**31 - 1)

    multiplier = factor(n)
    fraction, exponent = math.frexp(multiplier) if multiplier < inf else (0.5, 129)
    q, shift = int(Fraction(fraction) * 2**31), -exponent
    high = saturated(saturated(total) << max(1 - shift, 0)) * q >> 31
    return clamp(math.floor(Fraction(high, 2**max(shift, 1)) + Fraction(1, 2)) + out_zp, out_zp)


)";

constexpr std::string_view kQuantize = R"(def output(m, n):
    value, scale, zero = x[m * N + n], $scale$, $zero$
    if math.isnan(value):
        return clamp(zero, zero)
    if math.isinf(value):
        return clamp(2**40 if value > 0 else -2**40, zero)
    return clamp(round(Fraction(value) / Fraction(scale)) + zero, zero)
)";
constexpr std::string_view kDequantize = R"(def output(m, n):
    return float32(Fraction($scale$) * (x[m * N + n] - $zero$))
)";
constexpr std::string_view kRequantize = R"(def output(m, n):
    factor = $factor$
    return clamp(round(x[m * N + n] * factor) + out_zp, out_zp)
)";
// A value in real numbers, rounded once.
constexpr std::string_view kRounded = R"(def output(m, n):
    value = $value$
    return clamp(round(value / Fraction(out_scale)) + out_zp, $zero$)
)";
constexpr std::string_view kOperands =
    "Fraction(a_scale) * (a[m * N + n] - a_zp) $sign$ Fraction(b_scale) * (b[m * N + n] - b_zp)";
constexpr std::string_view kConcat =
    "(Fraction(a_scale) * (a[m * NA + n] - a_zp) if n < NA else\n"
    "             Fraction(b_scale) * (b[m * (N - NA) + n - NA] - b_zp))";
constexpr std::string_view kMaximum = R"(def output(m, n):
    return clamp(max(x[i * C + n] for i, inside in window(m) if inside), out_zp)
)";
constexpr std::string_view kAverage = R"(def average(m, n):
    codes = [x[i * C + n] - x_zp if inside else 0 for i, inside in window(m)
             if inside or $count_include_pad$]
    return Fraction(sum(codes), len(codes))


)";

constexpr std::string_view kExponential = R"(getcontext().prec = 200


def exponential(v):
    """e^v for v <= 0, to 200 digits; below e^-3000 it changes no rounding."""
    v = max(v, Fraction(-3000))
    return Fraction((Decimal(v.numerator) / Decimal(v.denominator)).exp())


)";
constexpr std::string_view kSoftmax = R"(def output(m, n):
    """QNNPACK's u8lut32norm, exactly: 256 * t / sum of t, rounded half up."""
    row = x[m * N:(m + 1) * N]
    most = min(Fraction(2**32 - 1, N), Fraction(2**23 - 1))
    t = [round(most * exponential(Fraction(x_scale) * (code - max(row)))) for code in row]
    return clamp(min(255, (256 * t[n] + sum(t) // 2) // sum(t)) + out_zp, 0)
)";

// float32, half to even, after each step: the definition itself.
constexpr std::string_view kChoice = R"(quant_min, quant_max = $quant_min$, $quant_max$


def choose(low, high):
    """PyTorch's observers, float32 step by step."""
    first, last = ($reduced$)
    least = float(power(-23))
    if $symmetric$:
        scale = max(float32(max(-low, high) / ((last - first) / 2)), least)
        return scale, $symmetric_zero$
    scale = max(float32(float32(high - low) / (last - first)), least)
    return scale, min(max(first - round(float32(low / scale)), first), last)


)";
constexpr std::string_view kObserve = R"(def observed(rows):
    """The smallest and the largest value of the batches, of these rows of each."""
    low = high = None
    for b in range(batches):
        values = [v for m in rows for v in x[(b * M + m) * N:(b * M + m + 1) * N]]
        if low is None:
            low, high = min(values), max(values)
        else:
            low, high = $next$
    return low, high


columns = [range(m, m + 1) for m in range(M)] if $per_channel$ else [range(M)]
chosen = [choose(min(low, 0.0), max(high, 0.0)) for low, high in map(observed, columns)]
expected = [float(scale) for scale, zero in chosen] + [float(zero) for scale, zero in chosen]
)";

constexpr std::string_view kCodes = R"(

def code(i):
    """The code of x[i] by the scale and zero point that were chosen."""
    scale, zero = chosen[$m$]
    quotient = 0 if scale == inf else round(Fraction(x[i]) / Fraction(scale))
    return float(min(max(quotient + zero, 0), 255))


expected += [code(i) for i in range(len(x))]
)";

constexpr std::string_view kAten = R"(def choose(low, high):
    """ATen's ChooseQuantizationParams: doubles, and float32 where it widens a small range."""
    last = $last$
    least, scale = float32(6.1e-5), (high - low) / last
    single = float32(scale)
    if single == 0 or float32(1 / Fraction(single)) == inf:
        scale = 0.1
    if scale < least:
        if low == 0:
            high = float32(least * last)
        elif high == 0:
            low = -float32(least * last)
        else:
            amplifier = float32(least / float32(scale))
            low, high = float32(low * amplifier), float32(high * amplifier)
        scale = least
    from_low = -abs(low / scale) < last - abs(high / scale)
    zero = -low / scale if from_low else last - high / scale
    return float32(scale), round(min(max(zero, 0), last))


)";
constexpr std::string_view kOnnx = R"(def choose(low, high):
    """ONNX Runtime's DynamicQuantizeLinear, float32 step by step."""
    if low == high:
        return 1.0, 0
    width = float32(high - low)
    if width == inf:
        return width, 0
    scale = max(float32(width / 255), float(power(-149)))
    return scale, round(min(max(-float32(low / scale), 0), 255))


)";
constexpr std::string_view kDynamicLinear = R"(def row(m):
    """Scale, zero point and codes of row m."""
    rows = x[m * K:(m + 1) * K] if $per_row$ else x
    finite = [v for v in rows if math.isfinite(v)] + [0.0]
    scale, zero = choose(min(finite), max(finite))
    scale = min(scale, float(power(128) - power(104)))
    codes = []
    for v in x[m * K:(m + 1) * K]:
        if math.isfinite(v):
            code = round(Fraction(v) / Fraction(scale)) + zero
        else:
            code = zero if math.isnan(v) else 1000 if v > 0 else -1000
        codes.append(min(max(code, $first$), $last_code$))
    return scale, zero, codes


rows = [row(m) for m in range(M)]


def output(m, n):
    """sum * scale * w_scale + bias, rounded once to float32."""
    scale, zero, codes = rows[m]
    total = sum((codes[k] - zero) * Fraction(w_scale[j]) * (w[n * K + k] - w_zp[j])
                for k, j in ((k, $entry$) for k in range(K)))
    value = float32(total * Fraction(scale)$bias$)
    return max(0.0, value) if relu else value
)";

// The types by their fields, as docs/quantization.md has them.
constexpr std::string_view kCast = R"(class Type:
    """A float type. `top` says what its highest patterns mean: 'ieee', 'all_ones' (NaN alone),
    'minus_zero' (-0 is NaN) or 'finite'."""

    def __init__(self, exponent, fraction, bias, top, sign):
        self.exponent, self.fraction, self.bias, self.top, self.sign = exponent, fraction, bias, top, sign
        self.sign_bit = 1 << exponent + fraction
        highest = self.sign_bit - 1 - {'ieee': 1 << fraction, 'all_ones': 1}.get(top, 0)
        self.lowest, self.largest = (self.value(code) for code in (0, highest))

    def value(self, code):
        """What a bit pattern means."""
        negative, code = self.sign and code & self.sign_bit, code % self.sign_bit
        high, low = code >> self.fraction, code % (1 << self.fraction)
        value = math.ldexp((1 << self.fraction) + low, high - self.bias - self.fraction)
        if high == 0 and self.fraction:
            value = math.ldexp(low, 1 - self.bias - self.fraction)
        if high == (1 << self.exponent) - 1 and self.top == 'ieee':
            value = nan if low else inf
        if self.top == 'all_ones' and code == self.sign_bit - 1 or \
           self.top == 'minus_zero' and negative and code == 0:
            value = nan
        return -value if negative else value

    def rounded(self, value):
        """A fraction as the next number of so many digits, as if exponents went on."""
        log = abs(value).numerator.bit_length() - abs(value).denominator.bit_length()
        if abs(value) < power(log):
            log -= 1
        digit = power(max(log, (1 if self.fraction else 0) - self.bias) - self.fraction)
        digits = abs(value) / digit
        whole = $whole$
        if self.fraction == 0:  # and no zero
            whole = max(whole, 1)
        return (whole if value > 0 else -whole) * digit


$types$saturates = $saturates$


def beyond(negative, there):
    """What stands for a number beyond the ends of the type, or for an infinity."""
    if saturates:
        return to.lowest if negative and not to.sign else -to.largest if negative else to.largest
    return math.copysign(there, -1 if negative else 1) if to.top == 'ieee' else nan


def output(m, n):
    value = $value$
    negative = math.copysign(1, value) < 0
    if math.isnan(value):
        return to.largest if to.top == 'finite' else nan
    if math.isinf(value):
        return beyond(negative, inf)
    if to.fraction == 0 and value <= 0:
        return beyond(True, $overflow$)
    if value != 0:
        value = to.rounded(Fraction(value)$scaled$)
    if value == 0:
        return -0.0 if negative and to.sign and to.top != 'minus_zero' else 0.0
    if value < 0 and not to.sign:
        return beyond(True, $overflow$)
    if abs(value) > to.largest:
        return $beyond$
    return float(value)
)";

constexpr std::string_view kMain = R"(

expected = [output(m, n) for m in range(M) for n in range(N)]
)";
constexpr std::string_view kEnd = R"($observed$

def show(name, values):
    print(name.ljust(8), *(v.hex() if isinstance(v, float) else v for v in values))


def same(a, b):
    return a == b and math.copysign(1, a) == math.copysign(1, b) or a != a and b != b


show('EXPECTED', expected)
$compare$)";
constexpr std::string_view kCompare = R"(show('GOT', got)
differ = [i for i in range(len(expected)) if not same(expected[i], got[i])]
for i in differ:
    print('index %d: expected %s, got %s' % (i, expected[i], got[i]))
raise SystemExit(1 if differ else 0)
)";

std::string FunctionText(Function function) {
  switch (function) {
    case Function::kRelu: return "return max(v, 0)";
    case Function::kLeakyRelu: return "return v if v >= 0 else Fraction(negative_slope) * v";
    case Function::kHardSwish: return "return v * min(max(v + 3, 0), 6) / 6";
    case Function::kSigmoid:
      return "e = exponential(-abs(v))\n    return 1 / (1 + e) if v >= 0 else e / (1 + e)";
    case Function::kTanh: break;
  }
  return "e = exponential(-2 * abs(v))\n    return (1 - e) / (1 + e) * (1 if v >= 0 else -1)";
}

// factor(n) and requantized(total, n) of the mode of the case.
std::string Mode(const Case& c) {
  const bool q31 = c.requant == Requant::kFixedQ31;
  std::string factor = "at(multiplier, n)";
  if (c.op != Op::kRequantize || !UsesMultiplier(c)) {
    factor = q31 ? "x_scale * at(w_scale, n) / out_scale"  // in doubles
                 : "float32(float32(x_scale * at(w_scale, n)) / out_scale)";
  }
  return Fill("def factor(n):\n    return $factor$\n\n\n", {{"factor", factor}}) +
         std::string(q31                                 ? kAsFixedQ31
                     : c.requant == Requant::kFixedRndnu ? kAsFixedRndnu
                                                         : kAsFloat32);
}

std::string Rounded(std::string_view value, std::string_view zero = "out_zp") {
  return Fill(kRounded, {{"value", std::string(value)}, {"zero", std::string(zero)}});
}

// The entry of w_scale, or of x_scale in such blocks, that term k of a row has.
std::string EntryOf(const Case& c, std::string_view row) {
  if (c.w_block != 0) return fmt::format("{} * {} + k // {}", row, RowBlocks(c), c.w_block);
  return c.w_q.scale.size() == 1 ? "0" : std::string(row);
}

std::string Sums(const Case& c) {
  if (c.w_block != 0 || HasFloatX(c)) {
    const std::string i = c.x_block != 0 ? "[" + EntryOf(c, "m") + "]" : "";
    const std::string x = HasFloatX(c)
                              ? "Fraction(x[m * K + k])"
                              : Fill("Fraction(x_scale$i$) * (x[m * K + k] - x_zp$i$)", {{"i", i}});
    return Fill(kReal, {{"bias", c.bias ? "bias[n]" : "0"}, {"entry", EntryOf(c, "n")}, {"x", x}}) +
           (c.out_dtype == DType::kF32 ? Fill(kSumFloat, {{"value", "real(m, n)"}})
                                       : Rounded("real(m, n)"));
  }
  std::string text(c.op == Op::kLinear ? kLinear : kWindow);
  if (c.op != Op::kLinear) text += kConv;
  text += Fill(kSum, {{"bias_i32", c.bias_i32 ? " + bias_i32[n]" : ""}});
  if (c.out_dtype == DType::kS32) return text + std::string(kSumInteger);
  if (c.requant != Requant::kExact) return text + Mode(c) + std::string(kSumRequantized);
  const std::string value =
      fmt::format("total(m, n) * Fraction(x_scale) * Fraction(at(w_scale, n)){}",
                  c.bias ? " + Fraction(bias[n])" : "");
  return text + (c.out_dtype == DType::kF32 ? Fill(kSumFloat, {{"value", value}}) : Rounded(value));
}

std::string TypeText(DType dtype) {
  const FloatFormat& f = InfoOf(dtype).floating;
  constexpr std::string_view kTops[] = {"ieee", "all_ones", "minus_zero", "finite"};
  return fmt::format("Type({}, {}, {}, '{}', {})  # {}\n", f.exponent_bits, f.fraction_bits, f.bias,
                     kTops[static_cast<size_t>(f.top)], f.has_sign ? "True" : "False", Name(dtype));
}

// The entry of a list that element (m, n) of a quantize, dequantize or cast has.
std::string OfElement(const Case& c, std::string_view list) {
  return c.x_block == 0 ? fmt::format("at({}, n)", list)
                        : fmt::format("{}[m * {} + n // {}]", list, ElementBlocks(c), c.x_block);
}

std::string CastText(const Case& c) {
  const bool finite = !HasNan(c.out_dtype), reals = c.x.dtype() == DType::kF32;
  std::string whole, beyond = "beyond(negative, $overflow$)";
  const std::string overflow = c.overflow == FloatOverflow::kNan ? "nan" : "inf";
  switch (c.rounding) {
    case FloatRounding::kNearestEven:
      // Half way between two powers of two lies to the larger.
      whole = "round(digits) if self.fraction else math.floor(digits + Fraction(1, 2))";
      break;
    case FloatRounding::kTowardZero:
      whole = "math.floor(digits)";
      beyond = "math.copysign(to.largest, value)";
      break;
    case FloatRounding::kUp:
      whole = "math.ceil(digits) if value > 0 else math.floor(digits)";
      beyond = "-to.largest if value < 0 else " + beyond;
      break;
  }
  return Fill(
      kCast,
      {{"whole", whole},
       {"types", (reals ? "" : "of = " + TypeText(c.x.dtype())) + "to = " + TypeText(c.out_dtype)},
       {"saturates", c.overflow == FloatOverflow::kSaturate || finite ? "True" : "False"},
       {"value", reals ? "x[m * N + n]" : "of.value(x[m * N + n])"},
       {"scaled", IsScaledCast(c) ? fmt::format(" * Fraction({}) / Fraction({})",
                                                OfElement(c, "x_scale"), OfElement(c, "out_scale"))
                                  : ""},
       {"overflow", overflow},
       {"beyond", Fill(beyond, {{"overflow", overflow}})}});
}

std::string Choice(const Case& c) {
  const Observer& o = c.observer;
  const bool whole = CodeRange{o.quant_min, o.quant_max} == RangeOf(o.dtype);
  std::string zero = "0";
  if (o.dtype == DType::kU8) zero = whole ? "128" : "(first + last) // 2";
  return Fill(kChoice, {{"quant_min", std::to_string(o.quant_min)},
                        {"quant_max", std::to_string(o.quant_max)},
                        {"reduced", o.reduce_range ? "quant_min // 2, quant_max // 2"
                                                   : "quant_min, quant_max"},
                        {"symmetric", o.symmetric ? "True" : "False"},
                        {"symmetric_zero", zero}});
}

// `choose`, for a range that holds 0.
std::string Rule(const Case& c) {
  switch (c.rule) {
    case QParamsRule::kAten:
      return Fill(kAten, {{"last", c.observer.reduce_range ? "127" : "255"}});
    case QParamsRule::kOnnx: return std::string(kOnnx);
    case QParamsRule::kObserver: break;
    default: throw CannotExpress("lacks MX scales");
  }
  return Choice(c);
}

std::string ChooseQParams(const Case& c) {
  const bool average = c.observer.kind == Observer::Kind::kMovingAverage;
  Require(c.observer.kind != Observer::Kind::kHistogram, "the histogram observer");
  const std::string next =
      average
          ? "[float32(old + float32(averaging_constant * float32(new - old)))\n"
            "                         for old, new in ((low, min(values)), (high, max(values)))]"
          : "min(low, *values), max(high, *values)";
  return (average ? Number(Language::kPython, "averaging_constant", c.observer.averaging_constant)
                  : "") +
         Rule(c) +
         Fill(kObserve, {{"next", next}, {"per_channel", c.per_channel ? "True" : "False"}}) +
         (c.codes ? Fill(kCodes, {{"m", c.per_channel ? "i // N % M" : "0"}}) : "");
}

std::string DynamicLinear(const Case& c) {
  const CodeRange codes = RangeOf(c.observer.dtype);
  return Rule(c) +
         Fill(kDynamicLinear, {{"per_row", c.x_gran == Granularity::kRow ? "True" : "False"},
                               {"first", std::to_string(codes.min)},
                               {"last_code", std::to_string(codes.max)},
                               {"entry", EntryOf(c, "n")},
                               {"bias", c.bias ? " + Fraction(bias[n])" : ""}});
}

// The answer; codes of small floats as the numbers that they are.
std::string Got(const Tensor& y) {
  const bool codes = IsFloat(y.dtype()) && y.dtype() != DType::kF32;
  return List(Language::kPython, "got", y) +
         (codes ? "got = [to.value(code) for code in got]\n" : "");
}

std::string Operation(const Case& c) {
  switch (c.op) {
    case Op::kQuantize:
      return Fill(kQuantize,
                  {{"scale", OfElement(c, "out_scale")}, {"zero", OfElement(c, "out_zp")}});
    case Op::kDequantize:
      return Fill(kDequantize,
                  {{"scale", OfElement(c, "x_scale")}, {"zero", OfElement(c, "x_zp")}});
    case Op::kRequantize:
      if (c.requant != Requant::kExact)
        return Mode(c) + "def output(m, n):\n    return requantized(x[m * N + n], n)\n";
      return Fill(kRequantize,
                  {{"factor", UsesMultiplier(c) ? "Fraction(at(multiplier, n))"
                                                : "Fraction(x_scale) * Fraction(at(w_scale, n)) / "
                                                  "Fraction(out_scale)"}});
    case Op::kRescale: return Rounded("Fraction(x_scale) * (x[m * N + n] - x_zp)");
    case Op::kAdd: return Rounded(Fill(kOperands, {{"sign", "+"}}));
    case Op::kSub: return Rounded(Fill(kOperands, {{"sign", "-"}}));
    case Op::kMul: return Rounded(Fill(kOperands, {{"sign", "*"}}));
    case Op::kConcat: return Rounded(kConcat);
    case Op::kLinear:
    case Op::kConv2d:
    case Op::kDepthwise: return Sums(c);
    case Op::kMaxPool: return std::string(kWindow) + std::string(kMaximum);
    case Op::kAvgPool:
    case Op::kGlobalAvgPool:
      return std::string(kWindow) +
             Fill(kAverage,
                  {{"count_include_pad", c.window.count_include_pad ? "True" : "False"}}) +
             Rounded("Fraction(x_scale) * average(m, n)");
    case Op::kTable:
      return (c.function == Function::kLeakyRelu
                  ? Number(Language::kPython, "negative_slope", c.negative_slope)
                  : "") +
             std::string(kExponential) +
             fmt::format("def function(v):\n    {}\n\n\n", FunctionText(c.function)) +
             Rounded("function(Fraction(x_scale) * (x[m * N + n] - x_zp))", "0");
    case Op::kSoftmax: return std::string(kExponential) + std::string(kSoftmax);
    case Op::kChooseQParams: return ChooseQParams(c);
    case Op::kDynamicLinear: return DynamicLinear(c);
    case Op::kCast: return CastText(c);
  }
  return "";
}

}  // namespace

std::string WriteNumpy(const Evidence& evidence) {
  const Case& c = evidence.c;
  const bool clamps = RowOf(c.op).clamp && c.out_dtype != DType::kF32;
  const Observed* const observed = c.observed ? &*c.observed : nullptr;
  return Fill(kPrelude, {{"head", Head(evidence, "#", "python3 repro.py")},
                         {"constants", Constants(Language::kPython, c)},
                         {"out_min", clamps ? "out_min" : "-inf"},
                         {"out_max", clamps ? "out_max" : "inf"},
                         {"relu", RowOf(c.op).relu ? "relu" : "False"}}) +
         Operation(c) + std::string(c.op == Op::kChooseQParams ? "" : kMain) +
         Fill(kEnd, {{"observed", observed != nullptr ? Got(observed->y) : ""},
                     {"compare", observed != nullptr ? std::string(kCompare) : ""}});
}

}  // namespace qualm::exporters
