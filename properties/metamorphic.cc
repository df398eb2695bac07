// SPDX-License-Identifier: Apache-2.0
// Changes to a case that must not change its answer, or change it in a known way. No oracle: the
// subject is compared with itself.
#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "core/rng.h"
#include "core/slice.h"
#include "oracles/exact/exact.h"
#include "properties/list.h"
#include "properties/relation.h"

namespace qualm {
namespace {

using relation::Answer;
using relation::Ask;
using relation::SameAnswer;

// Summands that can move on their own: all of linear and dynamic_linear, the input channels of a
// group for convolutions, the pixels of an image for global_avg_pool.
int64_t MovableTerms(const Case& c) { return IsConv(c.op) ? c.window.in_c / c.window.groups : c.K; }

Case WithTerms(const Case& c, const std::vector<int64_t>& terms, int32_t x_code = 0,
               int32_t w_code = 0) {
  if (HasWeights(c.op)) return slice::Terms(c, terms, x_code, w_code);
  Case follow_up = ProblemOf(c);
  const int64_t depth = c.window.in_c;
  for (int64_t i = 0; i < c.x.size(); ++i) {
    const int64_t pixel = i / depth;
    const int64_t from = pixel / c.K * c.K + terms[static_cast<size_t>(pixel % c.K)];
    follow_up.x.SetInt(i, c.x.IntAt(from * depth + i % depth));
  }
  return follow_up;
}

Verdict KPermutation(const Case& c, Subject& subject) {
  if (c.M == 0 || c.N == 0) return Verdict::Vacuous("the output is empty");
  Rng rng(relation::Hash(c));
  const Case permuted = WithTerms(c, relation::Permutation(rng, MovableTerms(c)));
  if (permuted.x == c.x && permuted.w == c.w) {
    return Verdict::Vacuous("the permutation changes nothing");
  }
  return SameAnswer(c, permuted, subject, "permuting the terms changes the output");
}

Verdict ZeroTermAppend(const Case& c, Subject& subject) {
  if (c.M == 0 || c.N == 0) return Verdict::Vacuous("the output is empty");
  const CodeRange x_range = RangeOf(c.x.dtype());
  const CodeRange w_range = RangeOf(c.w.dtype());
  const int32_t zx = c.x_q.zero_point_at(0);
  const int32_t zw = c.w_q.zero_point_at(0);
  const bool x_is_code = zx >= x_range.min && zx <= x_range.max;
  bool w_is_code = zw >= w_range.min && zw <= w_range.max;
  for (int64_t n = 1; n < c.N; ++n) w_is_code = w_is_code && c.w_q.zero_point_at(n) == zw;
  if (!x_is_code && !w_is_code) return Verdict::Vacuous("no zero point is a code");
  // One term before, which shifts all pairs by one, and one behind. One factor is real 0, the other
  // as large as can be; if both zero points are codes, the two take turns.
  std::vector<int64_t> terms = slice::Range(0, MovableTerms(c));
  terms.insert(terms.begin(), -1);
  terms.push_back(-1);
  const bool zero_in_x = x_is_code && (!w_is_code || relation::Hash(c) % 2 == 0);
  const Case appended =
      zero_in_x ? WithTerms(c, terms, zx, relation::Hash(c) % 4 < 2 ? w_range.max : w_range.min)
                : WithTerms(c, terms, x_range.max, zw);
  return SameAnswer(c, appended, subject, "terms that are real 0 change the output");
}

// One way to move codes and zero point together; the answer moves by y_shift codes.
struct Shift {
  Case follow_up;
  int32_t y_shift = 0;
  std::string what;
};

// Moves codes of `tensor`, for which there is room, and the zero points of `q` in `c`; false where
// a zero point leaves int32.
bool Move(Case& c, Tensor Case::* tensor, QParams Case::* q, DType dtype, int32_t by) {
  c.*tensor = *relation::Shifted(c.*tensor, dtype, by);
  for (int32_t& zero : (c.*q).zero_point) {
    const auto moved_zero = relation::ShiftedInt(zero, by);
    if (!moved_zero) return false;
    zero = *moved_zero;
  }
  return true;
}

int32_t ToOther(DType dtype) { return RangeOf(OtherSign(dtype)).min - RangeOf(dtype).min; }

// Shifts codes within their type, if there are any, by as much as fits, in the direction with more
// room.
void AddShiftWithin(const Case& c, Tensor Case::* tensor, QParams Case::* q,
                    const std::string& name, std::vector<Shift>& shifts) {
  const Tensor& codes = c.*tensor;
  if (codes.empty()) return;
  const int32_t by = relation::ShiftWithin(codes);
  if (by == 0) return;
  Shift shift{ProblemOf(c), 0, "shifting " + name + " and its zero point by " + std::to_string(by)};
  if (Move(shift.follow_up, tensor, q, codes.dtype(), by)) shifts.push_back(std::move(shift));
}

// Shifts codes by half of their range, into the type of the other sign.
void AddShiftOfType(const Case& c, Tensor Case::* tensor, QParams Case::* q,
                    const std::string& name, std::vector<Shift>& shifts) {
  const DType dtype = (c.*tensor).dtype();
  if ((c.*tensor).empty()) return;
  Shift shift{ProblemOf(c), 0,
              "shifting " + name + " and its zero point by " + std::to_string(ToOther(dtype))};
  if (Move(shift.follow_up, tensor, q, OtherSign(dtype), ToOther(dtype)))
    shifts.push_back(std::move(shift));
}

bool MoveOutput(Shift& shift) {
  Case& c = shift.follow_up;
  shift.y_shift = ToOther(c.out_dtype);
  c.out_dtype = OtherSign(c.out_dtype);
  c.out_min += shift.y_shift;
  c.out_max += shift.y_shift;
  for (int32_t& zero : c.out_q.zero_point) {
    const auto moved_zero = relation::ShiftedInt(zero, shift.y_shift);
    if (!moved_zero) return false;
    zero = *moved_zero;
  }
  return true;
}

void AddShifts(const Case& c, std::vector<Shift>& shifts) {
  if (c.op == Op::kSoftmax) AddShiftWithin(c, &Case::x, &Case::x_q, "x", shifts);
  // Input and output have one type. max_pool: both zero points move together. softmax: the type
  // fixes the zero point of the output.
  if (c.op == Op::kMaxPool || c.op == Op::kSoftmax) {
    Shift shift{ProblemOf(c), 0, "shifting both types and zero points by 128"};
    if (Move(shift.follow_up, &Case::x, &Case::x_q, OtherSign(c.x.dtype()), ToOther(c.x.dtype())) &&
        MoveOutput(shift))
      shifts.push_back(std::move(shift));
    return;
  }
  const bool two = HasTwoInputs(c.op);
  if (IsCode(c.x.dtype())) {
    AddShiftWithin(c, &Case::x, &Case::x_q, "x", shifts);
    if (!two) AddShiftOfType(c, &Case::x, &Case::x_q, "x", shifts);
  }
  AddShiftWithin(c, &Case::w, &Case::w_q, "w", shifts);
  if (HasWeights(c.op)) AddShiftOfType(c, &Case::w, &Case::w_q, "w", shifts);
  if (two) {  // operands have one type
    const DType dtype = c.x.dtype();
    Shift shift{ProblemOf(c), 0, "shifting both operands and their zero points by 128"};
    if (Move(shift.follow_up, &Case::x, &Case::x_q, OtherSign(dtype), ToOther(dtype)) &&
        Move(shift.follow_up, &Case::w, &Case::w_q, OtherSign(dtype), ToOther(dtype)))
      shifts.push_back(std::move(shift));
  }
  // If fixed_q31 overflows, another zero point makes it wrap elsewhere.
  const bool wraps = c.requant == Requant::kFixedQ31 && exact::RequantMayOverflow(c);
  if (IsCode(c.out_dtype) && !wraps) {
    Shift shift{ProblemOf(c), 0,
                "shifting the output type and zero point by " +
                    std::to_string(std::abs(ToOther(c.out_dtype)))};
    if (MoveOutput(shift)) shifts.push_back(std::move(shift));
  }
}

Verdict ZeroPointShift(const Case& c, Subject& subject) {
  if (c.M == 0 || c.N == 0) return Verdict::Vacuous("the output is empty");
  std::vector<Shift> shifts;
  AddShifts(c, shifts);
  if (shifts.empty()) return Verdict::Vacuous("no shift keeps all codes in their type");
  const Answer base = Ask(subject, c);
  if (base.verdict) return *base.verdict;
  std::string why_none;
  int judged = 0;
  for (const Shift& shift : shifts) {
    const Answer actual = Ask(subject, shift.follow_up);
    if (actual.skipped()) {
      why_none = actual.verdict->reason;
      continue;
    }
    if (actual.verdict) return *actual.verdict;
    ++judged;
    const Tensor expected =
        shift.y_shift == 0 ? base.y
                           : *relation::Shifted(base.y, shift.follow_up.out_dtype, shift.y_shift);
    if (auto failed = relation::Difference(shift.follow_up, expected, actual.y,
                                           shift.what + " changes the result")) {
      return *failed;
    }
  }
  return judged == 0 ? Verdict::Skipped(why_none) : Verdict::Passed();
}

bool Double(float& value) {
  value *= 2.0f;
  return std::isfinite(value);
}

// The two modes with a float32 multiplier round x_scale*w_scale first. A denormal product has fewer
// bits than twice that product.
bool FloatProductsAreNormal(const Case& c) {
  if (c.requant != Requant::kFloat32 && c.requant != Requant::kFixedRndnu) return true;
  return std::ranges::all_of(c.w_q.scale, [&](float scale) {
    return std::isnormal(c.x_q.scale[0] * scale) && std::isfinite(2 * c.x_q.scale[0] * scale);
  });
}

Verdict Gauge(const Case& c, Subject& subject) {
  if (c.M == 0 || c.N == 0) return Verdict::Vacuous("the output is empty");
  if (!c.multiplier.empty()) return Verdict::Vacuous("the multiplier is given, not a quotient");
  if (!FloatProductsAreNormal(c))
    return Verdict::Vacuous("a product of scales is no normal float32");
  if (c.function != Function::kRelu && c.function != Function::kLeakyRelu)
    return Verdict::Vacuous("the function has a scale of its own");
  Case doubled = ProblemOf(c);
  bool finite = true;
  const auto twice = [&](float& value) { finite = Double(value) && finite; };
  if (c.op == Op::kQuantize) {
    // Infinities and NaN stay what they are; a finite x must stay finite.
    for (float& x : doubled.x.as<float>()) {
      if (std::isfinite(x)) twice(x);
    }
  } else {
    twice(doubled.x_q.scale[0]);
    // For mul double one scale; for add, sub and concat double both.
    if (HasTwoInputs(c.op) && RowOf(c.op).combine != Combine::kProduct) twice(doubled.w_q.scale[0]);
  }
  if (c.out_dtype == DType::kF32) {
    // No output scale to double: halve the weights' instead, where that loses no bit.
    for (float& scale : doubled.w_q.scale) {
      const float half = scale * 0.5f;
      if (half * 2.0f != scale) return Verdict::Vacuous("a scale cannot be halved");
      scale = half;
    }
  } else {
    for (float& scale : doubled.out_q.scale) twice(scale);
    if (doubled.bias) {
      for (float& bias : *doubled.bias) twice(bias);
    }
  }
  if (!finite) return Verdict::Vacuous("a doubled value overflows");
  return SameAnswer(c, doubled, subject, "a common factor 2 of the scales changes the output");
}

// The last slice (the tail), and another slice that depends on the case.
std::vector<int64_t> TwoOf(const Case& c, int64_t count) {
  const auto other = static_cast<int64_t>(relation::Hash(c) % static_cast<uint64_t>(count));
  std::vector<int64_t> chosen{count - 1};
  if (other != count - 1) chosen.push_back(other);
  return chosen;
}

Verdict RowIndependence(const Case& c, Subject& subject) {
  if (c.M < 2 || c.N == 0) return Verdict::Vacuous("fewer than 2 rows");
  if (RowsShareQParams(c)) return Verdict::Vacuous("all rows choose one scale");
  const Answer whole = Ask(subject, c);
  if (whole.verdict) return *whole.verdict;
  for (int64_t row : TwoOf(c, c.M)) {
    const auto differs = relation::CompareAlone(
        c, whole.y, slice::Rows(c, std::span(&row, 1)), subject,
        [&](int64_t n) { return row * c.N + n; }, "a row differs from the same row alone");
    if (differs) return *differs;
  }
  return Verdict::Passed();
}

Verdict RowOrder(const Case& c, Subject& subject) {
  if (c.N == 0) return Verdict::Vacuous("the output is empty");
  Rng rng(relation::Hash(c));
  const std::vector<int64_t> rows = relation::Permutation(rng, c.M);
  const Case permuted = slice::Rows(c, rows);
  if (permuted.x == c.x) return Verdict::Vacuous("the permutation changes nothing");
  const Answer before = Ask(subject, c);
  if (before.verdict) return *before.verdict;
  const Answer after = Ask(subject, permuted);
  if (after.verdict) return *after.verdict;
  for (int64_t i = 0; i < c.M * c.N; ++i) {
    const int64_t from = rows[static_cast<size_t>(i / c.N)] * c.N + i % c.N;
    if (after.y.SameAt(i, before.y, from)) continue;
    return relation::FailedAt(permuted, before.y, from, after.y, i,
                              "a row changes when the rows change places");
  }
  return Verdict::Passed();
}

// 0, or a magnitude that leaves room for products and roundings.
bool IsModerate(float value) {
  return value == 0.0f || (std::abs(value) >= 0x1p-60f && std::abs(value) <= 0x1p60f);
}
bool AreModerate(std::span<const float> values) { return std::ranges::all_of(values, IsModerate); }

Verdict WeightScaleDoubling(const Case& c, Subject& subject) {
  if (c.M == 0 || c.N == 0) return Verdict::Vacuous("the output is empty");
  Case doubled = ProblemOf(c);
  for (float& scale : doubled.w_q.scale) scale *= 2;
  if (doubled.bias) {
    for (float& bias : *doubled.bias) bias *= 2;
  }
  const bool moderate =
      AreModerate(c.x.as<float>()) && AreModerate(c.w_q.scale) && (!c.bias || AreModerate(*c.bias));
  if (!moderate) return Verdict::Vacuous("a number is beyond 2^60 or below 2^-60");
  const Answer base = Ask(subject, c);
  if (base.verdict) return *base.verdict;
  if (!AreModerate(base.y.as<float>()))
    return Verdict::Vacuous("an output is beyond 2^60 or below 2^-60");
  Tensor expected = base.y;
  for (float& value : expected.as<float>()) value *= 2;
  return relation::Expect(doubled, expected, subject,
                          "doubling the scales of w and the bias does not double the output");
}

Verdict BatchIndependence(const Case& c, Subject& subject) {
  const int64_t batch = c.window.batch;
  if (batch < 2 || c.M == 0 || c.N == 0) return Verdict::Vacuous("fewer than 2 images");
  const Answer whole = Ask(subject, c);
  if (whole.verdict) return *whole.verdict;
  for (int64_t image : TwoOf(c, batch)) {
    const int64_t size = whole.y.size() / batch;
    const auto differs = relation::CompareAlone(
        c, whole.y, slice::Batches(c, std::span(&image, 1)), subject,
        [&](int64_t i) { return image * size + i; }, "an image differs from the same image alone");
    if (differs) return *differs;
  }
  return Verdict::Passed();
}

Verdict ColumnIndependence(const Case& c, Subject& subject) {
  if (c.N < 2 || c.M == 0) return Verdict::Vacuous("fewer than 2 columns");
  const Answer whole = Ask(subject, c);
  if (whole.verdict) return *whole.verdict;
  for (int64_t column : TwoOf(c, c.N)) {
    const auto differs = relation::CompareAlone(
        c, whole.y, slice::Channels(c, std::span(&column, 1)), subject,
        [&](int64_t m) { return m * c.N + column; }, "a column differs from the same column alone");
    if (differs) return *differs;
  }
  return Verdict::Passed();
}

Verdict PerChannelEqualsPerTensor(const Case& c, Subject& subject) {
  if (c.M == 0 || c.N == 0) return Verdict::Vacuous("the output is empty");
  return SameAnswer(slice::WithParamsOf(c, 0, false), slice::WithParamsOf(c, 0, true), subject,
                    "equal parameters per channel differ from the same per tensor");
}

}  // namespace

std::vector<Property> MetamorphicProperties() {
  return {
      {"k_permutation",
       "Permuting the K terms of x and w together (convolutions: the input channels of each group; "
       "global_avg_pool: the pixels of each image) changes nothing.",
       {Op::kLinear, Op::kConv2d, Op::kGlobalAvgPool, Op::kDynamicLinear},
       false,
       KPermutation},
      {"zero_term_append",
       "Terms with x = zx, or with w = zw, before and behind the others change nothing, where that "
       "zero point is a code; for convolutions: such input channels in every group.",
       {Op::kLinear, Op::kConv2d},
       false,
       ZeroTermAppend},
      {"zero_point_shift",
       "Adding a number to all codes of x, or of w, and to their zero point changes nothing while "
       "all stay in their type. Moving x or w to the other 8-bit type, their codes and zero point "
       "by 128, changes nothing (operations with two inputs: both together). Moving the type, the "
       "clamp and the zero point of the output by 128 moves its codes by 128 (max_pool and "
       "softmax: input and output together).",
       OpsWhere([](Op op) { return IsOnElements(op) && op != Op::kCast; }), false, ZeroPointShift},
      {"gauge",
       "Doubling the scales of input (of add, sub and concat: of both) and output (and a float "
       "bias; x itself for quantize) changes nothing where all stay finite; for f32 outputs "
       "halving the weights' scales instead. Tables: of relu and leaky_relu.",
       OpsWhere(HasOutQParams), false, Gauge},
      {"row_independence",
       "A row computed alone has the same bits as among others; of dynamic_linear where each row "
       "chooses a scale of its own.",
       OpsWhere([](Op op) { return IsOnElements(op) && !HasWindow(op); }), false, RowIndependence},
      {"row_order",
       "Permuting the rows of x permutes the rows of the output.",
       {Op::kDynamicLinear},
       false,
       RowOrder},
      {"weight_scale_doubling",
       "Doubling the scales of w, and the bias, doubles the output exactly, where no number but 0 "
       "is beyond 2^60 or below 2^-60.",
       {Op::kDynamicLinear},
       false,
       WeightScaleDoubling},
      {"batch_independence", "An image computed alone has the same bits as among others.",
       OpsWhere(HasWindow), false, BatchIndependence},
      {"column_independence",
       "A column (an output channel) computed alone has the same bits as among others.",
       EveryOpOnColumns(), false, ColumnIndependence},
      {"per_channel_equals_per_tensor",
       "Equal parameters in every channel give the same bits as the parameters per tensor.",
       OpsWhere(HasChannelList), false, PerChannelEqualsPerTensor},
  };
}

}  // namespace qualm
