// SPDX-License-Identifier: Apache-2.0
#include "oracles/conventions/variation_facts.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/status.h"
#include "oracles/exact/dynamic_linear.h"
#include "oracles/exact/exact.h"
#include "oracles/exact/observer.h"

namespace qualm::variations {
namespace {

bool IsOneOfItsCodes(const QParams& q, DType dtype) {
  const CodeRange range = RangeOf(dtype);
  return std::ranges::all_of(q.zero_point,
                             [&](int32_t z) { return z >= range.min && z <= range.max; });
}

// An operand that is no code has the zero point 0, and the int32 sums of a requantize any.
bool ZeroPointsAreCodes(const Case& c) {
  return IsOneOfItsCodes(c.x_q, c.x.dtype()) &&
         (!HasW(c.op) || IsOneOfItsCodes(c.w_q, c.w.dtype())) &&
         IsOneOfItsCodes(c.out_q, c.out_dtype);
}

// Which of the scales of a choose_qparams output `index` is, belongs to or was made with.
int64_t ChosenColumn(const Case& c, int64_t index) {
  const int64_t columns = ChosenCount(c), value = index - 2 * columns;
  return value < 0 ? index % columns : exact::ColumnOfValue(c, value);
}

// The linear that a dynamic_linear is once its rows have codes.
std::optional<Case> ChosenLinear(const Case& c) {
  if (!RowOf(c.op).dynamic) return std::nullopt;
  QUALM_CHECK(RowsShareQParams(c));
  const exact::ChosenQParams chosen = exact::ChosenFor(c, exact::FiniteRange(c.x.as<float>()));
  return exact::SumsCaseOf(c, exact::Evaluate(exact::QuantizeOf(c, 0, c.M, chosen)), chosen);
}

}  // namespace

float OutputScale(const Facts& f) {
  return IsCode(f.c->out_dtype) ? f.c->out_q.scale_at(f.channel) : 1.0f;
}

bool HasProductOfScales(Op op) {
  return HasSums(op) || RowOf(op).combine == Combine::kProduct || RowOf(op).multiplier;
}

float ProductOfScales(const Case& c, int64_t channel) {
  return c.x_q.scale_at(channel) * c.w_q.scale_at(channel);
}

bool IsFloat(long double value) {
  return static_cast<long double>(static_cast<float>(value)) == value;
}

bool IsPowerOfTwo(float value) {
  int exponent = 0;
  return std::frexp(value, &exponent) == 0.5f;
}

bool DividesExactly(long double value, float divisor) {
  const auto quotient = static_cast<float>(value / divisor);
  return std::isnormal(quotient) && static_cast<long double>(quotient) * divisor == value;
}

FactsOf::FactsOf(const Case& c)
    : given_(c),
      chosen_linear_(ChosenLinear(c)),
      c_(chosen_linear_ ? *chosen_linear_ : c),
      are_codes_(ZeroPointsAreCodes(c_)) {
  if (RowOf(c_.op).layout == Layout::kBatches || RowOf(c_.op).cast) {
    chosen_ = exact::Evaluate(c_);
  } else {
    outputs_.emplace(c_);
  }
}

std::vector<Facts> FactsOf::All() const {
  const int64_t count = ElementCount(c_.output_shape(), std::numeric_limits<int64_t>::max());
  std::vector<Facts> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(At(i));
  return all;
}

Facts FactsOf::At(int64_t index) const {
  const int64_t m = index / c_.N, n = index % c_.N;
  Facts f;
  f.c = &c_;
  f.given = &given_;
  f.index = index;
  f.channel = n;
  f.zero_points_are_codes = are_codes_;
  const exact::Real real = outputs_ ? outputs_->RealAt(m, n) : exact::Real{};
  f.real = real.value;
  f.real_is_exact = real.is_exact;
  const OpRow& row = RowOf(c_.op);
  if (row.cast) {  // the value that it is rounded to
    f.real = chosen_.ValueAt(index);
    f.real_is_exact = true;
    f.terms = std::abs(f.real);
    return f;
  }
  switch (row.layout) {
    case Layout::kProducts:
    case Layout::kConv:
      AddTerms(&f);
      AddProducts(&f);
      return f;
    case Layout::kPool:
      AddTerms(&f);
      if (row.out_q == OutQParams::kOwn) AddAverage(&f);
      return f;
    case Layout::kColumns:
      AddTerms(&f);
      f.largest_operand = f.terms * static_cast<double>(OutputScale(f));
      return f;
    case Layout::kBatches:
      f.real = static_cast<double>(chosen_.FloatAt(index));
      f.real_is_exact = true;
      f.chosen_scale = static_cast<double>(chosen_.FloatAt(ChosenColumn(c_, index)));
      AddRealNumber(&f);
      return f;
    case Layout::kElements: break;
  }
  if (HasTwoOperands(c_.op)) {
    AddTerms(&f);
    AddOperands(&f);
  } else if (row.function) {
    AddRealNumber(&f);
    // MLAS computes a sigmoid as 1/2 and an odd function.
    if (c_.function == Function::kSigmoid) f.products = f.multiplier;
    f.is_linear = c_.function == Function::kRelu || c_.function == Function::kLeakyRelu;
    f.largest_operand = std::abs(static_cast<double>(c_.x.IntAt(index)) - c_.x_q.zero_point[0]) *
                        static_cast<double>(c_.x_q.scale[0]);
  } else if (row.out_q == OutQParams::kFixed) {  // softmax: 256 * t / sum t
    f.is_linear = false;
    f.terms = f.products = f.real;
    f.sum = static_cast<double>(outputs_->integers().counts[static_cast<size_t>(m)]);
    f.multiplier = 1;
    f.exact_multiplier = 1;
  } else if (!row.x_qparams) {
    AddRealNumber(&f);
  } else {
    AddTerms(&f);
    if (c_.op == Op::kRescale) f.largest_operand = f.terms * static_cast<double>(OutputScale(f));
  }
  return f;
}

void FactsOf::AddTerms(Facts* f) const {
  const exact::Scaled scaled = outputs_->ScaledAt(f->index / c_.N, f->index % c_.N);
  const auto sum = std::abs(static_cast<long double>(scaled.integer));
  f->sum = static_cast<double>(sum);
  f->exact_multiplier = exact::MultiplierOf(scaled.line);
  f->multiplier = static_cast<double>(f->exact_multiplier);
  f->terms = f->products =
      static_cast<double>(sum * f->exact_multiplier + std::abs(exact::OffsetOf(scaled.line)));
}

void FactsOf::AddRealNumber(Facts* f) const {
  const long double out = OutputScale(*f);
  f->terms = f->products = std::abs(f->real);
  f->sum = static_cast<double>(static_cast<long double>(f->terms) * out);
  f->exact_multiplier = 1 / out;
  f->multiplier = static_cast<double>(f->exact_multiplier);
}

void FactsOf::AddProducts(Facts* f) const {
  const double x_scale = static_cast<double>(c_.x_q.scale_at(0));
  const double w_scale = static_cast<double>(c_.w_q.scale_at(f->channel));
  double products = 0;
  ForEachProduct(*f, [&](int64_t x_code, int64_t w_code) {
    const double x = std::abs(static_cast<double>(x_code) - c_.x_q.zero_point_at(0));
    const double w = std::abs(static_cast<double>(w_code) - c_.w_q.zero_point_at(f->channel));
    products += x * w;
    f->largest_operand = std::max({f->largest_operand, x * x_scale, w * w_scale});
  });
  f->products = products * f->multiplier;
  if (!c_.bias) return;
  const auto bias = static_cast<double>(std::abs((*c_.bias)[static_cast<size_t>(f->channel)]));
  f->products += bias / OutputScale(*f);
  f->bias_units = bias / (x_scale * w_scale);
}

void FactsOf::AddOperands(Facts* f) const {
  const auto out = static_cast<double>(OutputScale(*f));
  double products = 0;
  // Adds the codes to the products, and gives the operand.
  const auto add = [&](const Tensor& codes, const QParams& q) {
    const double code = codes.IntAt(f->index), zero_point = q.zero_point[0];
    const auto scale = static_cast<double>(q.scale[0]);
    products += scale / out * (std::abs(code) + std::abs(zero_point));
    return scale * std::abs(code - zero_point);
  };
  const double x = add(c_.x, c_.x_q), w = add(c_.w, c_.w_q);
  // oneDNN divides the first operand by the scale of the output before it multiplies.
  f->largest_operand = std::max({x, w, x / out});
  if (!AddsOperands(c_.op)) return;
  f->products = products;
  f->sum = 0;  // no accumulator: each operand has a scale of its own
  f->multiplier = 1;
}

void FactsOf::AddAverage(Facts* f) const {
  const int64_t m = f->index / c_.N;
  f->count = outputs_->integers().counts[static_cast<size_t>(m)];
  f->is_linear = IsPowerOfTwo(static_cast<float>(f->count));
  double sum = 0;
  for (const Tap& tap : TapsOf(c_.window, m)) {
    if (tap.x_row < 0) continue;
    sum +=
        std::abs(static_cast<double>(c_.x.IntAt(tap.x_row + f->channel)) - c_.x_q.zero_point_at(0));
  }
  f->terms = f->products = sum * f->multiplier;
}

}  // namespace qualm::variations
