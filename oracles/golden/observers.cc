// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/status.h"
#include "oracles/conventions/convention.h"
#include "oracles/golden/records.h"

namespace qualm::golden {
namespace {

bool IsVersion2(const GoldenRecord& record) { return record.backend.starts_with("pytorch-2"); }

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
    const int64_t value = record.Has(field) ? record.Int(field) : whole;
    if (value < range.min || value > range.max) Wrong(record, field, "outside the type");
    return static_cast<int32_t>(value);
  };
  o.quant_min = bound("quant_min", range.min);
  o.quant_max = bound("quant_max", range.max);
  return o;
}

// The values that the record's observer saw: batches, or (observer_per_channel) the rows of x.
struct Shown {
  std::vector<std::vector<float>> lists;  // of each channel all batches, then those of the next
  bool per_channel = false;
  size_t batches = 1;  // per channel
};

// Batches of rows, each a channel.
Shown RowsOfBatches(const GoldenRecord& record) {
  const std::vector<std::vector<float>> batches = record.FloatLists("batches");
  if (batches.empty()) Wrong(record, "batches", "must not be empty");
  const auto rows = record.Floats("scale").size();
  Shown shown{{}, true, batches.size()};
  for (size_t row = 0; row < rows; ++row) {
    for (const std::vector<float>& batch : batches) {
      const size_t columns = batch.size() / rows;
      if (columns == 0 || columns * rows != batch.size())
        Wrong(record, "batches", "do not have a row for each scale");
      const auto begin = batch.begin() + static_cast<ptrdiff_t>(row * columns);
      shown.lists.emplace_back(begin, begin + static_cast<ptrdiff_t>(columns));
    }
  }
  return shown;
}

Shown ShownBy(const GoldenRecord& record) {
  if (record.op == "observer") return {record.FloatLists("batches"), false};
  if (record.op == "observer_per_channel" && record.Has("batches")) return RowsOfBatches(record);
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

// Passes the values and parameters of the record through the checks of a case. A case has rows of
// one length: a shorter list is filled up with its first value, which changes no range.
void Check(const GoldenRecord& record, const Observer& observer, const Shown& shown) {
  Case c;
  c.op = Op::kChooseQParams;
  c.observer = observer;
  // A case refuses reduce_range for symmetric u8, as MinMaxObserver does; the histogram observer
  // takes it.
  if (observer.kind == Observer::Kind::kHistogram && observer.dtype == DType::kU8 &&
      observer.symmetric)
    c.observer.reduce_range = false;
  // A case asks more of the batches of a histogram than PyTorch 2 does, because 1.13 fails there.
  if (IsVersion2(record)) c.observer.kind = Observer::Kind::kMinMax;
  size_t longest = 0;
  for (const auto& list : shown.lists) {
    if (list.empty()) Wrong(record, "x", "must not be empty");
    const auto is_far = [](float x) { return std::isfinite(x) && std::abs(x) > 0x1p100f; };
    if (IsVersion2(record) && std::ranges::any_of(list, is_far))
      Wrong(record, "batches", "beyond 2^100");
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
  OpenClamp(&c);
  if (const std::string error = Validate(c); !error.empty()) {
    throw InputError(record.where + ": " + error);
  }
}

// ATen's quantize or dequantize of x, each row with its own result.
Tensor RunAten(Op op, const Tensor& x, DType out_dtype,
               const std::vector<exact::ObserverResult>& results) {
  Tensor y(out_dtype, x.shape());
  const int64_t columns = x.shape()[1];
  const Convention& aten = *FindConvention("aten@default");
  for (int64_t m = 0; m < x.shape()[0]; ++m) {
    const exact::ObserverResult& result = results[static_cast<size_t>(m)];
    Case c = CaseOver(op, Tensor(x.dtype(), {1, columns}), out_dtype);
    const size_t bytes = c.x.bytes().size();
    std::copy_n(x.bytes().data() + static_cast<size_t>(m) * bytes, bytes, c.x.bytes().data());
    (op == Op::kQuantize ? c.out_q : c.x_q) = {{result.scale}, {result.zero_point}};
    QUALM_CHECK(Validate(c).empty());
    const Tensor row = aten.run(c).y;
    std::ranges::copy(row.bytes(), y.bytes().data() + static_cast<size_t>(m) * row.bytes().size());
  }
  return y;
}

}  // namespace

std::vector<exact::ObserverResult> ObserveRecord(const GoldenRecord& record) {
  const Observer observer = ObserverOf(record);
  const Shown shown = ShownBy(record);
  if (shown.lists.empty()) Wrong(record, "batches", "must not be empty");
  Check(record, observer, shown);
  const std::vector<std::span<const float>> spans(shown.lists.begin(), shown.lists.end());
  const auto observe = IsVersion2(record) ? exact::ObserveHistogram2 : exact::Observe;
  if (!shown.per_channel) return {observe(observer, spans)};
  std::vector<exact::ObserverResult> results;
  for (size_t first = 0; first < spans.size(); first += shown.batches)
    results.push_back(observe(observer, std::span(spans).subspan(first, shown.batches)));
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

}  // namespace qualm::golden
