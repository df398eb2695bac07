// SPDX-License-Identifier: Apache-2.0
#include "oracles/conventions/definition.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "core/float_text.h"

namespace qualm::conventions {
namespace {

using Kind = Accumulation::Kind;

std::string Text(int64_t value) { return std::to_string(value); }
}  // namespace

std::string ValueText(const Value& v) {
  if (!v.real) return Text(v.integer);
  if (!v.is_wide) return FloatText(v.number);
  std::array<char, 32> text;
  const int length = std::snprintf(text.data(), text.size(), "%a", v.wide);
  return {text.data(), static_cast<size_t>(length)};
}

void Note(Trace* trace, Stage stage, std::string text, std::string value, bool lossy) {
  if (trace == nullptr) return;
  TraceStep entry;
  entry.stage = stage;
  entry.text = std::move(text);
  entry.value = std::move(value);
  entry.lossy = lossy;
  trace->push_back(std::move(entry));
}

namespace {

std::string Substitute(std::string_view text, const Channel& c, int32_t other) {
  const std::pair<std::string_view, std::string> names[] = {
      {"{multiplier}", FloatText(c.multiplier)},
      {"{accumulator_scale}", FloatText(c.accumulator_scale)},
      {"{reciprocal}", FloatText(c.reciprocal)},
      {"{scale}", FloatText(c.scale)},
      {"{bias}", FloatText(c.bias)},
      {"{bias_i32}", Text(c.bias_i32)},
      {"{zero_point}", Text(c.zero_point)},
      {"{low}", Text(c.low)},
      {"{high}", Text(c.high)},
      {"{fixed}", Text(c.fixed.value)},
      {"{shift}", Text(c.fixed.shift)},
      {"{a_scale}", FloatText(c.a_scale)},
      {"{b_scale}", FloatText(c.b_scale)},
      {"{a_zp}", Text(c.a_zero_point)},
      {"{b_zp}", Text(c.b_zero_point)},
      {"{a_fixed}", Text(c.a_fixed.value)},
      {"{b_fixed}", Text(c.b_fixed.value)},
      {"{a_shift}", Text(c.a_fixed.shift)},
      {"{b_shift}", Text(c.b_fixed.shift)},
      {"{b}", Text(other)},
  };
  std::string result(text);
  for (const auto& [name, value] : names) {
    for (size_t at = result.find(name); at != std::string::npos; at = result.find(name)) {
      result.replace(at, name.size(), value);
    }
  }
  return result;
}

// All elements of an integer tensor.
std::vector<int32_t> Integers(const Tensor& tensor) {
  std::vector<int32_t> values(static_cast<size_t>(tensor.size()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = tensor.IntAt(static_cast<int64_t>(i));
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
    for (size_t k = begin; k < end; k += 2) {
      const auto pair =
          static_cast<int32_t>(SumOfPairs(x, w, k, std::min(k + 2, end), 0, 0, trace));
      const int32_t next = Sat16(int64_t{lane} + pair);
      if (next != lane + pair) {
        Note(trace, Stage::kAccumulate,
             "int16 sum at k=" + Text(static_cast<int64_t>(k)) + ": " + Text(lane) + " + " +
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

int64_t SumOf(std::span<const int32_t> values) {
  int64_t sum = 0;
  for (const int32_t value : values) sum += value;
  return sum;
}

}  // namespace

int32_t Accumulate(Accumulation accumulation, std::span<const int32_t> x,
                   std::span<const int32_t> w, Trace* trace) {
  QUALM_CHECK_EQ(x.size(), w.size());
  int64_t sum = 0;
  bool halved = false;
  std::string how = "sum of " + Text(static_cast<int64_t>(x.size())) + " products";
  if (!accumulation.kernel.empty()) how += " (" + std::string(accumulation.kernel) + ")";
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
      how += ", each weight halved, rounded to even, in units of two";
      halved = odd != 0;
      break;
    }
    case Kind::kPairsInto16:
      sum = SumInto16(x, w, trace);
      how += " in saturating int16, spilled every 256";
      break;
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
      how += " in saturating int16 pairs";
      if (x_plus != 0) how += ", x shifted to u8 by 128 and 128*sum(w) taken off";
      if (w_plus != 0) how += ", w shifted to u8 by 128 and 128*sum(x) taken off";
      break;
    }
  }
  const int32_t acc = Wrap32(sum);
  Note(trace, Stage::kAccumulate,
       how + " = " + Text(sum) + (acc != sum ? ", wrapped to int32" : ""), Text(acc),
       acc != sum || halved);
  return acc;
}

int32_t TakeOutZeroPoints(int32_t acc, int32_t x_zp, int32_t w_zp, std::span<const int32_t> x,
                          std::span<const int32_t> w, Accumulation::Offsets offsets) {
  if (offsets == Accumulation::Offsets::kFloat) {
    const auto product = [](int64_t a, int64_t b) { return static_cast<__int128>(a) * b; };
    const __int128 full = acc - product(x_zp, SumOf(w)) - product(w_zp, SumOf(x)) +
                          product(x_zp, w_zp) * static_cast<int64_t>(x.size());
    return ConvertX86(static_cast<float>(std::clamp<__int128>(full, INT32_MIN, INT32_MAX)));
  }
  int64_t x_sum = SumOf(x);
  if (offsets == Accumulation::Offsets::kRowsSigned) {
    x_sum -= 256 * std::count_if(x.begin(), x.end(), [](int32_t code) { return code >= 128; });
  }
  if (offsets == Accumulation::Offsets::kRowsInto16) x_sum = std::min<int64_t>(x_sum, INT16_MAX);
  if (offsets == Accumulation::Offsets::kInSteps) return acc;
  // uint64 arithmetic modulo 2^64 keeps the low 32 bits right whatever the zero points are.
  const auto u = [](int64_t value) { return static_cast<uint64_t>(value); };
  const uint64_t result = u(acc) - u(x_zp) * u(SumOf(w)) - u(w_zp) * u(x_sum) +
                          u(static_cast<int64_t>(x.size())) * u(x_zp) * u(w_zp);
  return Wrap32(static_cast<int64_t>(result));
}

void Apply(std::span<const Step> steps, const Channel& channel, Value& value, Trace* trace) {
  for (const Step& step : steps) {
    const std::string before = trace != nullptr ? ValueText(value) : "";
    value.lossy = false;
    step.apply(value, channel);
    if (trace == nullptr) continue;
    Note(trace, step.stage,
         Substitute(step.text, channel, value.other) + ": " + before + " -> " + ValueText(value),
         ValueText(value), value.lossy);
  }
}

float MultiplyInto(Value& value, float a, float b) {
  const float product = a * b;
  // The float64 product of two float32 numbers is exact.
  if (static_cast<double>(product) != static_cast<double>(a) * static_cast<double>(b)) {
    value.lossy = true;
  }
  value.SetReal(product);
  return product;
}

float AddInto(Value& value, float a, float b) {
  const float sum = a + b;
  const float b_part = sum - a;  // Knuth's two-sum: the rounding error of a + b
  const float error = (a - (sum - b_part)) + (b - b_part);
  if (error != 0.0f) value.lossy = true;
  value.SetReal(sum);
  return sum;
}

namespace step {

void AddBiasI32(Value& v, const Channel& c) {
  const int64_t sum = v.integer + c.bias_i32;
  v.SetInt(Wrap32(sum));
  v.lossy = v.integer != sum || c.bias_rounded;
}
void ToFloat(Value& v, const Channel&) {
  if (v.real) return;  // the zero points were taken out in float32
  const int64_t integer = v.integer;
  v.SetReal(static_cast<float>(integer));
  v.lossy = static_cast<double>(v.number) != static_cast<double>(integer);
}
void TimesMultiplier(Value& v, const Channel& c) { MultiplyInto(v, v.number, c.multiplier); }
void TimesReciprocal(Value& v, const Channel& c) { MultiplyInto(v, v.number, c.reciprocal); }
void AddZeroPointFloat(Value& v, const Channel& c) {
  AddInto(v, v.number, static_cast<float>(c.zero_point));
}
void RoundX86(Value& v, const Channel&) {
  const float before = v.number;
  v.SetInt(ConvertX86(before));
  v.lossy = static_cast<double>(v.integer) != static_cast<double>(RoundNearestEven(before));
}
void RoundArm(Value& v, const Channel&) {
  const float before = v.number;
  v.SetInt(ConvertArm(before));
  v.lossy = static_cast<double>(v.integer) != static_cast<double>(RoundNearestEven(before));
}
void MinHigh(Value& v, const Channel& c) {
  const bool nan = std::isnan(v.number);
  v.SetReal(MinPs(v.number, static_cast<float>(int64_t{c.high} - c.zero_point)));
  v.lossy = nan;
}
void AddZeroPointSat16(Value& v, const Channel& c) {
  // The zero point is broadcast as int16, so its high half is dropped.
  const int32_t zero_point = static_cast<int16_t>(static_cast<uint16_t>(c.zero_point));
  const int64_t full = v.integer + c.zero_point;
  v.SetInt(Sat16(int64_t{Sat16(v.integer)} + zero_point));
  // Saturation is seen only where the clamp would not have hidden it.
  v.lossy =
      std::clamp<int64_t>(full, c.low, c.high) != std::clamp<int64_t>(v.integer, c.low, c.high);
}
void AddZeroPointWrap32(Value& v, const Channel& c) {
  const int64_t full = v.integer + c.zero_point;
  v.SetInt(Wrap32(full));
  v.lossy = v.integer != full;
}
void Clamp(Value& v, const Channel& c) {
  // Lower bound last, as pmaxub after pminub: it wins where the two cross.
  v.SetInt(std::max<int64_t>(std::min<int64_t>(v.integer, c.high), c.low));
}
void TimesCodeMinusZeroPoint(Value& v, const Channel& c) {
  const int64_t full = v.integer - c.zero_point;
  const int32_t difference = Wrap32(full);
  const auto number = static_cast<float>(difference);
  MultiplyInto(v, c.scale, number);
  if (difference != full || static_cast<double>(number) != static_cast<double>(difference)) {
    v.lossy = true;
  }
}

void TimesOther(Value& v, const Channel& c) {
  v.SetInt((v.integer - c.a_zero_point) * (int64_t{v.other} - c.b_zero_point));
}

}  // namespace step

std::string FirstReason(std::initializer_list<std::string> reasons) {
  for (const std::string& reason : reasons) {
    if (!reason.empty()) return reason;
  }
  return "";
}

std::string Require(bool holds, std::string_view reason) {
  return holds ? std::string() : std::string(reason);
}

std::string ZeroPointsAreCodes(const Case& c) {
  const auto inside = [](const QParams& q, DType dtype) {
    const CodeRange range = RangeOf(dtype);
    return std::all_of(q.zero_point.begin(), q.zero_point.end(),
                       [&](int32_t z) { return z >= range.min && z <= range.max; });
  };
  if (IsCode(c.out_dtype) && !inside(c.out_q, c.out_dtype)) {
    return "output zero point must be a code of the output type";
  }
  if (IsCode(c.x.dtype()) && !inside(c.x_q, c.x.dtype())) {
    return "x zero point must be a code of the x type";
  }
  if (HasSums(c.op) && !inside(c.w_q, c.w.dtype())) {
    return "weight zero point must be a code of the weight type";
  }
  if (HasTwoOperands(c.op) && !inside(c.w_q, c.w.dtype())) {
    return "b zero point must be a code of the b type";
  }
  return "";
}

std::string WholeRange(const Case& c) {
  return Require(RangeOf(c.out_dtype) == CodeRange{c.out_min, c.out_max},
                 "the clamp must be the whole range of the output type");
}

bool WeightZeroPointsAre(const Case& c, int32_t zero_point) {
  return std::ranges::all_of(c.w_q.zero_point, [&](int32_t z) { return z == zero_point; });
}

bool IsPlainDepthwise(const Case& c) {
  return IsConv(c.op) && c.window.groups == c.window.in_c && c.window.groups == c.N;
}

void AddExactConvClaims(std::vector<std::string>& satisfies) {
  satisfies.insert(satisfies.end(),
                   {"batch_independence", "depthwise_is_grouped", "dilation_is_zero_stuffed",
                    "groups_are_separate", "one_by_one_is_linear", "padding_is_explicit",
                    "stride_is_subsample"});
}

void SetClamp(Channel& channel, const Case& c) {
  channel.low = static_cast<int32_t>(std::min<int64_t>(LowerBound(c), INT32_MAX));
  channel.high = c.out_max;
}

Channel FixedPointAddChannel(const Case& c, int32_t bits) {
  Channel channel;
  SetClamp(channel, c);
  channel.a_zero_point = c.x_q.zero_point[0];
  channel.b_zero_point = c.w_q.zero_point[0];
  channel.zero_point = c.out_q.zero_point[0];
  channel.a_scale = c.x_q.scale[0] / c.out_q.scale[0];
  channel.b_scale = c.w_q.scale[0] / c.out_q.scale[0];
  channel.fixed.shift = bits - 1 - std::ilogb(std::max(channel.a_scale, channel.b_scale));
  const auto fixed = [&](float scale) {
    return static_cast<int32_t>(RoundNearestEven(std::ldexp(scale, channel.fixed.shift)));
  };
  channel.a_fixed.value = fixed(channel.a_scale);
  channel.b_fixed.value = fixed(channel.b_scale);
  return channel;
}

bool HasExplicitMultiplier(const Case& c) { return !c.multiplier.empty(); }

namespace {

void Store(Tensor& y, int64_t i, const Value& value) {
  if (y.dtype() == DType::kF32) {
    QUALM_CHECK(value.real);
    y.as<float>()[static_cast<size_t>(i)] = value.number;
  } else {
    QUALM_CHECK(!value.real);
    y.SetInt(i, static_cast<int32_t>(value.integer));
  }
}

// The element of x (and of w, of two operands).
Value ElementOf(const Case& c, int64_t index) {
  Value value;
  if (c.x.dtype() == DType::kF32) {
    value.SetReal(c.x.FloatAt(index));
  } else {
    value.SetInt(c.x.IntAt(index));
  }
  if (HasTwoOperands(c.op)) value.other = c.w.IntAt(index);
  return value;
}

Value Input(const Definition& definition, const Case& c, int64_t i, Trace* trace) {
  if (definition.gather) {
    if (const std::optional<Value> gathered = definition.gather(c, i, trace)) return *gathered;
  }
  return ElementOf(c, i);
}

Channel ChannelOf(const Definition& definition, const Case& c, int64_t index) {
  Channel channel = definition.channel(c, index % c.N);
  channel.index = index;
  channel.count = c.M * c.N;
  channel.columns = c.N;
  return channel;
}

// The steps of every element: those of the body, then those of the tail.
class StepsOf {
 public:
  StepsOf(const Definition& definition, const Case& c)
      : body_(definition.body ? definition.body(c) : c.M * c.N),
        steps_(definition.steps(c)),
        tail_(body_ < c.M * c.N ? definition.tail_steps(c) : std::vector<Step>{}) {}
  std::span<const Step> operator()(int64_t index) const { return index < body_ ? steps_ : tail_; }

 private:
  int64_t body_;
  std::vector<Step> steps_, tail_;
};

// kHalvedWeights counts in units of two until the sum is a float32, where there is no wrapping.
int64_t Doubled(const Accumulation& accumulation, int32_t units) {
  return accumulation.kind == Kind::kHalvedWeights ? 2 * int64_t{units} : units;
}

// The operands of one sum, for linear and convolutions.
class Terms {
 public:
  Terms(const Case& c, Accumulation accumulation)
      : case_(c), accumulation_(accumulation), x_codes_(Integers(c.x)), w_codes_(Integers(c.w)) {}

  // Gathers those of output `index`; the spans hold until the next call.
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

  std::span<const int32_t> x() const { return x_; }  // as they are added
  std::span<const int32_t> w() const { return w_; }
  std::span<const int32_t> real_x() const { return real_x_; }  // as the offsets sum them
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
        // Zero points leave with the weights that were multiplied.
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

// The sum after its zero points, ready for the steps.
Value Corrected(const Terms& terms, const Accumulation& accumulation, const Case& c, int64_t index,
                int32_t acc) {
  using Offsets = Accumulation::Offsets;
  const int32_t x_zp = c.x_q.zero_point_at(0);
  const int32_t w_zp = c.w_q.zero_point_at(index % c.N);
  const auto u = [](int64_t number) { return static_cast<uint64_t>(number); };
  const auto wrap = [](uint64_t number) { return Wrap32(static_cast<int64_t>(number)); };
  Value value;
  if (accumulation.offsets == Offsets::kInFloat) {
    const uint64_t w_sum = u(SumOf(terms.real_w()));
    const uint64_t shift = c.x.dtype() == DType::kS8 ? 128 : 0;
    auto sum = static_cast<float>(wrap(u(acc) + shift * w_sum));
    if (shift != 0) sum += static_cast<float>(wrap(-shift * w_sum));
    if (x_zp != 0) sum += static_cast<float>(wrap(-u(x_zp) * w_sum));
    value.SetReal(accumulation.kind == Kind::kHalvedWeights ? 2 * sum : sum);
    return value;
  }
  value.SetInt(Doubled(accumulation, TakeOutZeroPoints(acc, x_zp, w_zp, terms.real_x(),
                                                       terms.real_w(), accumulation.offsets)));
  if (accumulation.offsets != Offsets::kInSteps) return value;
  value.x_offset = wrap(-u(x_zp) * u(SumOf(terms.real_w())));
  value.w_offset = wrap(-u(w_zp) * (u(SumOf(terms.real_x())) -
                                    u(static_cast<int64_t>(terms.real_x().size())) * u(x_zp)));
  return value;
}

ConventionOutput Run(const Definition& definition, const Case& c) {
  ConventionOutput output;
  output.y = Tensor(c.out_dtype, c.output_shape());
  const bool sums = HasSums(c.op) && definition.accumulation;
  if (sums) output.acc = Tensor(DType::kS32, c.output_shape());
  if (output.y.empty()) return output;
  std::vector<Channel> channels;
  channels.reserve(static_cast<size_t>(c.N));
  for (int64_t n = 0; n < c.N; ++n) channels.push_back(ChannelOf(definition, c, n));
  const StepsOf steps(definition, c);
  Accumulation accumulation;
  std::optional<Terms> terms;
  if (sums) {
    accumulation = definition.accumulation(c);
    terms.emplace(c, accumulation);
  }
  for (int64_t i = 0; i < c.M * c.N; ++i) {
    Channel& channel = channels[static_cast<size_t>(i % c.N)];
    channel.index = i;
    Value value;
    if (terms) {
      terms->Select(i);
      const int32_t acc = Accumulate(accumulation, terms->x(), terms->w(), nullptr);
      output.acc->SetInt(i, Wrap32(Doubled(accumulation, acc)));
      value = Corrected(*terms, accumulation, c, i, acc);
    } else {
      value = Input(definition, c, i, nullptr);
    }
    Apply(steps(i), channel, value, nullptr);
    Store(output.y, i, value);
  }
  return output;
}

Value TraceSum(const Definition& definition, const Case& c, int64_t index, Trace& trace) {
  const Accumulation accumulation = definition.accumulation(c);
  Terms terms(c, accumulation);
  terms.Select(index);
  const int32_t acc = Accumulate(accumulation, terms.x(), terms.w(), &trace);
  const int32_t x_zp = c.x_q.zero_point_at(0);
  const int32_t w_zp = c.w_q.zero_point_at(index % c.N);
  const int64_t x_sum = SumOf(terms.real_x()), w_sum = SumOf(terms.real_w());
  const auto count = static_cast<int64_t>(terms.real_x().size());
  const Value value = Corrected(terms, accumulation, c, index, acc);
  if (accumulation.offsets == Accumulation::Offsets::kInSteps) return value;
  const __int128 exact = static_cast<__int128>(acc) - static_cast<__int128>(x_zp) * w_sum -
                         static_cast<__int128>(w_zp) * x_sum +
                         static_cast<__int128>(x_zp) * w_zp * count;
  const __int128 full = accumulation.kind == Kind::kHalvedWeights ? 2 * exact : exact;
  const bool lossy = value.real ? static_cast<double>(full) != static_cast<double>(value.number)
                                : full != value.integer;
  constexpr std::string_view kHow[] = {", wrapped to int32",
                                       ", saturated to int32 and rounded to float32",
                                       ", with the codes of x summed as signed bytes",
                                       ", with the sum of x saturated to int16",
                                       ", term by term in float32",
                                       ""};
  const std::string how(kHow[static_cast<size_t>(accumulation.offsets)]);
  Note(&trace, Stage::kOffset,
       "zero points " + Text(x_zp) + " and " + Text(w_zp) + ": " + Text(acc) + " - " + Text(x_zp) +
           "*" + Text(w_sum) + " - " + Text(w_zp) + "*" + Text(x_sum) + " + " + Text(count) + "*" +
           Text(x_zp) + "*" + Text(w_zp) + " -> " + ValueText(value) + (lossy ? how : "") +
           (accumulation.kind == Kind::kHalvedWeights ? ", doubled" : "") +
           (accumulation.zero_point_stays ? "; that of the weights was lost" : ""),
       ValueText(value), lossy || (accumulation.zero_point_stays && x_zp != 0));
  return value;
}

Trace TraceOf(const Definition& definition, const Case& c, int64_t index) {
  QUALM_CHECK(index >= 0);
  QUALM_CHECK_LT(index, c.M * c.N);
  Trace trace;
  Value value = definition.accumulation && HasSums(c.op) ? TraceSum(definition, c, index, trace)
                                                         : Input(definition, c, index, &trace);
  const StepsOf steps(definition, c);
  Apply(steps(index), ChannelOf(definition, c, index), value, &trace);
  return trace;
}

}  // namespace

void SortVariations(std::vector<std::string>& ids) {
  std::ranges::sort(ids, {}, [](const std::string& id) { return std::pair(id.size(), id); });
  ids.erase(std::ranges::unique(ids).begin(), ids.end());
}

Convention MakeConvention(Definition definition) {
  Convention convention;
  convention.name = definition.name;
  convention.description = definition.description;
  convention.source = definition.source;
  convention.pair_saturates = definition.pair_saturates;
  convention.satisfies = definition.satisfies;
  std::sort(convention.satisfies.begin(), convention.satisfies.end());
  convention.variations = definition.variations;
  SortVariations(convention.variations);
  std::ranges::copy_if(AllOps(), std::back_inserter(convention.ops), [&](Op op) {
    return std::ranges::find(definition.ops, op) != definition.ops.end();
  });
  convention.cannot_run = [reason = definition.cannot_run, ops = convention.ops](const Case& c) {
    if (std::ranges::find(ops, c.op) == ops.end())
      return "this convention has no " + std::string(Name(c.op));
    // A convention has one requantization, which no mode of a case replaces.
    if (c.requant != Requant::kExact)
      return "a model has no requantization mode, the case asks for " +
             std::string(Name(c.requant));
    return reason(c);
  };
  const auto shared = std::make_shared<const Definition>(std::move(definition));
  convention.run = [shared](const Case& c) { return Run(*shared, c); };
  convention.trace = [shared](const Case& c, int64_t index) { return TraceOf(*shared, c, index); };
  return convention;
}

}  // namespace qualm::conventions
