// SPDX-License-Identifier: Apache-2.0
#include "triage/recorded.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <span>
#include <string>

#include "core/contract.h"
#include "core/status.h"
#include "oracles/accepted.h"
#include "oracles/exact/exact.h"
#include "triage/identify.h"
#include "triage/triage.h"

namespace qualm::triage {
namespace {

// Sums the squares of one part, of at least one output.
class Part {
 public:
  void Add(double error) {
    squares_ += error * error;
    worst_ = std::max(worst_, std::abs(error));
    ++count_;
  }
  ErrorPart Take() const { return {std::sqrt(squares_ / static_cast<double>(count_)), worst_}; }

 private:
  double squares_ = 0, worst_ = 0;
  int64_t count_ = 0;
};

bool HasCodes(const Case& c) { return IsCode(c.out_dtype); }

// "p/q" as the nearest double or nearly so; nullopt for a value that is no fraction. Products of
// codes, zero points and float32 scales stay far below the largest double.
std::optional<double> FractionOf(const std::string& text) {
  if (text.find_first_not_of("-0123456789/") != std::string::npos) return std::nullopt;
  const size_t slash = text.find('/');
  const double p = std::strtod(text.substr(0, slash).c_str(), nullptr);
  const double q =
      slash == std::string::npos ? 1 : std::strtod(text.substr(slash + 1).c_str(), nullptr);
  return p / q;
}

// Sums of products: the same case with a float32 output.
Tensor SumReference(const Case& c) {
  Case real = ProblemOf(c);
  real.requant = Requant::kExact;
  real.out_dtype = DType::kF32;
  real.out_q = {};
  OpenClamp(&real);
  return exact::Evaluate(real);
}

double RealOf(const Case& c, int64_t i, double code) {
  const int64_t column = i % c.output_shape().back();
  return static_cast<double>(c.out_q.scale_at(column)) * (code - c.out_q.zero_point_at(column));
}

// The real values that outputs are rounded from; empty where there are none.
std::vector<double> RealValues(const Case& c) {
  std::vector<double> values;
  if (!HasCodes(c)) return values;
  const bool sums = c.op == Op::kLinear || IsConv(c.op);
  if (sums || c.op == Op::kQuantize) {
    const Tensor real = sums ? SumReference(c) : c.x;
    for (int64_t i = 0; i < real.size(); ++i) {
      const double value = real.FloatAt(i);
      if (!std::isfinite(value)) return {};
      // A fused relu is part of the operation, and no loss.
      values.push_back(c.relu ? std::max(value, 0.0) : value);
    }
    return values;
  }
  // These say their values in steps of the output.
  const int64_t outputs = Tensor(c.out_dtype, c.output_shape()).size();
  for (int64_t i = 0; i < outputs; ++i) {
    const std::optional<double> steps = FractionOf(exact::RealValueText(c, i));
    if (!steps) return {};
    const int64_t column = i % c.output_shape().back();
    const double value = *steps * static_cast<double>(c.out_q.scale_at(column));
    values.push_back(c.relu ? std::max(value, 0.0) : value);
  }
  return values;
}

}  // namespace

void RequireReference(const Tensor& reference, int64_t outputs) {
  if (reference.dtype() != DType::kF32 || reference.size() != outputs) {
    throw InputError("reference: has " + std::to_string(reference.size()) + " elements of " +
                     std::string(Name(reference.dtype())) + ", expected " +
                     std::to_string(outputs) + " of f32, one for each output");
  }
  const std::span<const float> values = reference.as<float>();
  const auto endless = std::ranges::find_if_not(values, [](float v) { return std::isfinite(v); });
  if (endless != values.end()) {
    throw InputError("reference: element " + std::to_string(endless - values.begin()) +
                     " is not finite, expected a number");
  }
}

std::optional<ErrorSplit> SplitError(const Case& c, const Tensor& y, const Tensor* reference) {
  if (!HasOutQParams(c.op)) return std::nullopt;
  const std::vector<double> real = RealValues(c);
  if (real.empty() || y.size() != static_cast<int64_t>(real.size())) return std::nullopt;
  if (reference != nullptr) RequireReference(*reference, y.size());
  const Tensor exact = exact::Evaluate(c);
  ErrorSplit split;
  split.has_reference = reference != nullptr;
  split.outputs = y.size();
  Part operands, rounding, quantization, kernel, total, signal, answer;
  for (int64_t i = 0; i < y.size(); ++i) {
    const auto step = static_cast<double>(c.out_q.scale_at(i % c.output_shape().back()));
    const double value = real[static_cast<size_t>(i)];
    const double wanted = reference == nullptr ? value : reference->FloatAt(i);
    operands.Add((value - wanted) / step);
    rounding.Add((RealOf(c, i, exact.IntAt(i)) - value) / step);
    quantization.Add((RealOf(c, i, exact.IntAt(i)) - wanted) / step);
    kernel.Add(y.IntAt(i) - exact.IntAt(i));
    total.Add((RealOf(c, i, y.IntAt(i)) - wanted) / step);
    signal.Add(wanted / step);
    answer.Add(RealOf(c, i, y.IntAt(i)) / step);
    if (y.IntAt(i) != exact.IntAt(i)) ++split.departing;
  }
  split.operands = operands.Take();
  split.rounding = rounding.Take();
  split.quantization = quantization.Take();
  split.kernel = kernel.Take();
  split.total = total.Take();
  split.signal = signal.Take();
  split.answer = answer.Take();
  return split;
}

double ErrorSplit::sqnr_db() const {
  return total.rms == 0 ? HUGE_VAL : 20 * std::log10(signal.rms / total.rms);
}

// |reference - answer|^2 = |reference|^2 + |answer|^2 - 2 reference * answer.
double ErrorSplit::cosine() const {
  const double product =
      (signal.rms * signal.rms + answer.rms * answer.rms - total.rms * total.rms) / 2;
  return std::clamp(product / (signal.rms * answer.rms), -1.0, 1.0);
}

ErrorSplit Together(const std::vector<ErrorSplit>& splits) {
  ErrorSplit all = splits.front();
  all.departing = all.outputs = 0;
  for (const ErrorSplit& one : splits) {
    all.departing += one.departing;
    all.outputs += one.outputs;
  }
  for (ErrorPart ErrorSplit::* const part :
       {&ErrorSplit::operands, &ErrorSplit::rounding, &ErrorSplit::quantization,
        &ErrorSplit::kernel, &ErrorSplit::total, &ErrorSplit::signal, &ErrorSplit::answer}) {
    double squares = 0, worst = 0;
    for (const ErrorSplit& one : splits) {
      squares += (one.*part).rms * (one.*part).rms * static_cast<double>(one.outputs);
      worst = std::max(worst, (one.*part).worst);
    }
    all.*part = {std::sqrt(squares / static_cast<double>(all.outputs)), worst};
  }
  return all;
}

namespace {

// RecordedAnswer::is_sums
std::optional<bool> IsSums(const Case& c, const Tensor& y) {
  if (c.contract.empty()) return std::nullopt;
  const Contract contract = ParseContract(c.contract);
  if (!contract.sum || !WhyNotJudged(contract, c).empty()) return std::nullopt;
  const Accepted right = AcceptedBy(contract, c);
  if (right.First(y)) return false;
  return right.undecided() == y.size() ? std::nullopt : std::optional(true);
}

void FindNearest(const Case& c, const Tensor& y, RecordedAnswer& answer) {
  int64_t least = answer.departing;
  for (const ConventionOrExact& known : AllConventionsAndExact().subspan(1)) {
    if (known.convention->of_no_library || !known.CannotRun(c).empty()) continue;
    const Tensor given = known.Run(c);
    int64_t departing = 0;
    for (int64_t i = 0; i < given.size(); ++i) departing += given.SameAt(i, y) ? 0 : 1;
    if (departing >= least) continue;
    least = answer.not_nearest = departing;
    answer.nearest = known.name;
    answer.first_not_nearest = FirstDivergence(given, y);
  }
}

}  // namespace

RecordedAnswer JudgeRecorded(const Case& c, const Tensor& y, const PrintedAnswer* digits) {
  const Tensor exact = exact::Evaluate(c);
  RecordedAnswer answer;
  answer.outputs = exact.size();
  answer.first = FirstDivergence(exact, y);
  if (!answer.first) return answer;
  for (int64_t i = 0; i < exact.size(); ++i) {
    if (exact.SameAt(i, y)) continue;
    ++answer.departing;
    answer.worst_lsb = std::max(answer.worst_lsb, DistanceLsb(exact, y, i));
  }
  const std::vector<std::string> names = BitEqual(c, y, AllConventionsAndExact().subspan(1));
  answer.arithmetic = ConventionsText(names);
  answer.undefined =
      std::ranges::all_of(AllConventionsAndExact().subspan(1), [&](const ConventionOrExact& known) {
        return known.convention->of_no_library || !known.CannotRun(c).empty();
      });
  // Other numbers that print so are likelier than a rounding that no library has.
  const bool of_library = std::ranges::any_of(
      names, [](const std::string& name) { return !FindConvention(name)->of_no_library; });
  const auto within = [](const PrintedAnswer& examined) {
    return examined.verdict == PrintedAnswer::Verdict::kWithin;
  };
  if (names.empty()) answer.is_sums = IsSums(c, y);
  answer.within_digits = !of_library && !answer.is_sums.value_or(false) &&
                         within(digits != nullptr ? *digits : ExaminePrinted(c, y));
  if (answer.within_digits) answer.arithmetic.clear();
  if (answer.is_wrong() && !answer.is_sums) FindNearest(c, y, answer);
  return answer;
}

}  // namespace qualm::triage
