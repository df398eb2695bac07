// SPDX-License-Identifier: Apache-2.0
// The meaning of choose_qparams is PyTorch's observers, so their convention is the definition
// itself (oracles/exact/observer.h); what ATen and FBGEMM choose is another.
#include "oracles/conventions/observers.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "core/float_text.h"
#include "core/status.h"
#include "oracles/conventions/aten.h"
#include "oracles/conventions/fbgemm.h"
#include "oracles/conventions/primitives.h"
#include "oracles/exact/exact.h"

namespace qualm::conventions {
namespace {

[[noreturn]] void Wrong(const GoldenRecord& record, const char* field, const std::string& what) {
  throw InputError(record.where + ": " + field + ": " + what);
}

Observer ObserverOf(const GoldenRecord& record) {
  Observer o;
  const std::string name = record.Text("observer");
  if (name == "HistogramObserver") {
    o.kind = Observer::Kind::kHistogram;
  } else if (name == "MovingAverageMinMaxObserver") {
    o.kind = Observer::Kind::kMovingAverage;
  } else if (name != "MinMaxObserver" && name != "PerChannelMinMaxObserver") {
    Wrong(record, "observer", "is not known");
  }
  if (record.Has("dtype")) {
    const std::optional<DType> dtype = ParseDType(record.Text("dtype"));
    if (!dtype || !IsCode(*dtype)) Wrong(record, "dtype", "expected u8 or s8");
    o.dtype = *dtype;
  }
  if (record.Has("qscheme")) {
    const std::string scheme = record.Text("qscheme");
    o.symmetric = scheme == "symmetric";
    if (!o.symmetric && scheme != "affine")
      Wrong(record, "qscheme", "expected affine or symmetric");
  }
  const int64_t reduce_range = record.Int("reduce_range");
  if (reduce_range != 0 && reduce_range != 1) Wrong(record, "reduce_range", "expected 0 or 1");
  o.reduce_range = reduce_range == 1;
  const CodeRange range = RangeOf(o.dtype);
  const auto bound = [&](const char* field, int32_t whole) {
    const int64_t value = record.IntOr(field).value_or(whole);
    if (value < range.min || value > range.max) Wrong(record, field, "outside the type");
    return static_cast<int32_t>(value);
  };
  o.quant_min = bound("quant_min", range.min);
  o.quant_max = bound("quant_max", range.max);
  return o;
}

// Rows of one batch (observer_per_channel), else batches of one row.
struct Shown {
  std::vector<std::vector<float>> lists;
  bool per_channel = false;
};

Shown ShownBy(const GoldenRecord& record) {
  if (record.op == "observer") return {record.FloatLists("batches"), false};
  std::vector<float> x = record.Floats("x");
  if (record.op == "observer_quantize") return {{std::move(x)}, false};
  if (record.op != "observer_per_channel") Wrong(record, "op", "observes nothing");
  const std::vector<int64_t> shape = record.Ints("shape");
  if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1 ||
      ElementCount(shape, static_cast<int64_t>(x.size())) != static_cast<int64_t>(x.size()))
    Wrong(record, "shape", "is not that of x");
  Shown shown{{}, true};
  for (auto row = x.begin(); row != x.end(); row += shape[1]) {
    shown.lists.emplace_back(row, row + shape[1]);
  }
  return shown;
}

// A case with the values and parameters of the record, for their checks: lists are filled up with
// their first value, which changes no range.
void Check(const GoldenRecord& record, const Observer& observer, const Shown& shown) {
  Case c;
  c.op = Op::kChooseQParams;
  c.observer = observer;
  // PyTorch's histogram observer lets this pass, as MinMaxObserver does not.
  if (observer.kind == Observer::Kind::kHistogram && observer.dtype == DType::kU8 &&
      observer.symmetric)
    c.observer.reduce_range = false;
  size_t longest = 0;
  for (const auto& list : shown.lists) {
    if (list.empty()) Wrong(record, "x", "must not be empty");
    longest = std::max(longest, list.size());
  }
  std::vector<float> x;
  for (const auto& list : shown.lists) {
    x.insert(x.end(), list.begin(), list.end());
    x.resize(x.size() + longest - list.size(), list.front());
  }
  const auto lists = static_cast<int64_t>(shown.lists.size());
  c.per_channel = shown.per_channel;
  c.M = shown.per_channel ? lists : 1;
  c.N = static_cast<int64_t>(longest);
  c.x = Tensor::Of<float>({shown.per_channel ? 1 : lists, c.M, c.N}, x);
  c.out_dtype = DType::kF32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  if (const std::string error = Validate(c); !error.empty()) {
    throw InputError(record.where + ": " + error);
  }
}

// quantize or dequantize of x with a result for each row.
Tensor RunAten(Op op, const Tensor& x, DType out_dtype,
               const std::vector<exact::ObserverResult>& results) {
  Tensor y(out_dtype, x.shape());
  const int64_t columns = x.shape()[1];
  const Convention& aten = *FindConvention("aten@default");
  for (int64_t m = 0; m < x.shape()[0]; ++m) {
    const exact::ObserverResult& result = results[static_cast<size_t>(m)];
    Case c;
    c.op = op;
    c.M = 1;
    c.N = columns;
    c.x = Tensor(x.dtype(), {1, columns});
    const size_t bytes = c.x.bytes().size();
    std::copy_n(x.bytes().data() + static_cast<size_t>(m) * bytes, bytes, c.x.bytes().data());
    (op == Op::kQuantize ? c.out_q : c.x_q) = {{result.scale}, {result.zero_point}};
    c.out_dtype = out_dtype;
    c.out_min = RangeOf(out_dtype).min;
    c.out_max = RangeOf(out_dtype).max;
    QUALM_CHECK(Validate(c).empty());
    const Tensor row = aten.run(c).y;
    std::ranges::copy(row.bytes(), y.bytes().data() + static_cast<size_t>(m) * row.bytes().size());
  }
  return y;
}

std::string NotObserving(const Case& c) {
  return c.op == Op::kChooseQParams ? "" : "chooses scales and zero points only";
}

// What is chosen from the ends of all values.
std::string NotMinMax(const Case& c) {
  if (std::string reason = NotObserving(c); !reason.empty()) return reason;
  if (c.observer.kind != Observer::Kind::kMinMax) return "min_max only";
  return c.per_channel ? "per tensor only" : "";
}

struct Ends {
  float min = 0, max = 0;
};

Ends EndsOf(const Case& c) {
  const auto values = c.x.as<float>();
  Ends ends{values[0], values[0]};
  for (const float value : values) {
    ends.min = std::min(ends.min, value);
    ends.max = std::max(ends.max, value);
  }
  return ends;
}

template <class Choose>
Convention Choosing(std::string name, std::string description, std::string source, Choose choose) {
  const auto run = [choose](const Case& c) {
    const ChosenQParams chosen = choose(c, EndsOf(c));
    Tensor y(DType::kF32, c.output_shape());
    y.as<float>()[0] = static_cast<float>(chosen.scale);
    y.as<float>()[1] = static_cast<float>(chosen.zero_point);
    return y;
  };
  Convention convention;
  convention.ops = {Op::kChooseQParams};
  convention.name = std::move(name);
  convention.description = std::move(description);
  convention.source = std::move(source);
  convention.run = [run](const Case& c) { return ConventionOutput{run(c), std::nullopt}; };
  convention.trace = [run](const Case& c, int64_t index) {
    const auto [min, max] = EndsOf(c);
    const Tensor y = run(c);
    Trace trace;
    trace.push_back({Stage::kAccumulate,
                     "the values span [" + FloatText(min) + ", " + FloatText(max) + "]",
                     FloatText(max), false});
    for (int64_t i = 0; i <= index; ++i) {
      const std::string value = FloatText(y.FloatAt(i));
      trace.push_back({i == 0 ? Stage::kScale : Stage::kZeroPoint,
                       (i == 0 ? "the scale is " : "the zero point is ") + value, value, false});
    }
    return trace;
  };
  convention.satisfies = {"value_permutation"};
  convention.variations = {"V23"};
  return convention;
}

}  // namespace

std::vector<Convention> ObserverConventions() {
  Convention torch;
  torch.name = "observers@torch";
  torch.description = "PyTorch's min-max, moving average and histogram observers";
  torch.source = "PyTorch 1.13.1 torch/ao/quantization/observer.py";
  torch.ops = {Op::kChooseQParams};
  torch.cannot_run = NotObserving;
  torch.run = [](const Case& c) { return ConventionOutput{exact::Evaluate(c), std::nullopt}; };
  torch.trace = [](const Case& c, int64_t index) { return exact::Derive(c, index); };
  torch.satisfies = {"matches_exact",      "targets_agree",         "value_permutation",
                     "zero_append",        "symmetric_negation",    "doubling",
                     "rows_are_tensors",   "zero_is_representable", "range_is_covered",
                     "reduce_range_halves"};

  Convention aten =
      Choosing("observers@aten", "ATen's choice for dynamic quantization, scale rounded to float32",
               "PyTorch 1.13.1 aten/src/ATen/native/quantized/cpu/QuantUtils.h",
               [](const Case& c, Ends ends) {
                 return AtenChooseQParams(ends.min, ends.max, c.observer.reduce_range);
               });
  aten.cannot_run = [](const Case& c) {
    if (std::string reason = NotMinMax(c); !reason.empty()) return reason;
    if (c.observer.symmetric) return std::string("affine only");
    const bool whole = c.observer.quant_min == 0 && c.observer.quant_max == 255;
    return whole ? std::string() : std::string("codes 0..255 only");
  };

  // Symmetric: preserve_sparsity, which is its name for it.
  Convention fbgemm = Choosing("observers@fbgemm", "FBGEMM's ChooseQuantizationParams",
                               "FBGEMM src/QuantUtils.cc @ 71d6f8b", [](const Case& c, Ends ends) {
                                 const CodeRange codes = exact::observer::Codes(c.observer);
                                 return FbgemmChooseQParams(ends.min, ends.max, codes.min,
                                                            codes.max, c.observer.symmetric, false);
                               });
  fbgemm.cannot_run = NotMinMax;
  return {std::move(torch), std::move(aten), std::move(fbgemm)};
}

std::vector<exact::ObserverResult> ObserveRecord(const GoldenRecord& record) {
  const Observer observer = ObserverOf(record);
  const Shown shown = ShownBy(record);
  if (shown.lists.empty()) Wrong(record, "batches", "must not be empty");
  Check(record, observer, shown);
  const std::vector<std::span<const float>> spans(shown.lists.begin(), shown.lists.end());
  if (!shown.per_channel) return {exact::Observe(observer, spans)};
  std::vector<exact::ObserverResult> results;
  for (const std::span<const float>& row : spans) {
    results.push_back(exact::Observe(observer, std::span(&row, 1)));
  }
  return results;
}

Tensor QuantizeRecord(const GoldenRecord& record,
                      const std::vector<exact::ObserverResult>& results) {
  const std::vector<float> x = record.Floats("x");
  const auto rows = static_cast<int64_t>(results.size());
  return RunAten(Op::kQuantize, Tensor::Of<float>({rows, static_cast<int64_t>(x.size()) / rows}, x),
                 ObserverOf(record).dtype, results);
}

Tensor DequantizeRecord(const Tensor& codes, const std::vector<exact::ObserverResult>& results) {
  return RunAten(Op::kDequantize, codes, DType::kF32, results);
}

}  // namespace qualm::conventions
