// SPDX-License-Identifier: Apache-2.0
// Recorded operators of PyTorch 2.11 that no case can say yet (torch211_decomposed.jsonl): how PT2E
// chooses scales and zero points, of a tensor and of each token (row); its quantization by tokens
// and by groups of a channel; fake quantization. Read in PyTorch 2.11.0
// torch/ao/quantization/fx/_decomposed.py and torch/ao/quantization/utils.py (determine_qparams).
// Each operation of a tensor is rounded to its type; on CUDA a tensor is divided by a number by
// multiplying with its reciprocal (aten/src/ATen/native/cuda/BinaryDivTrueKernel.cu).
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/float_format.h"
#include "oracles/conventions/primitives.h"
#include "oracles/golden/records.h"

namespace qualm::golden {
namespace {

using conventions::RoundNearestEven;

constexpr std::string_view kPerToken = "decomposed.choose_qparams_per_token";
constexpr std::string_view kPerTokenAsymmetric = "decomposed.choose_qparams_per_token_asymmetric";
constexpr std::string_view kChoice = "decomposed.choose_qparams";
constexpr std::string_view kSymmetricChoice = "decomposed.choose_qparams_symmetric";
constexpr std::string_view kGroups = "decomposed.quantize_per_channel_group";
constexpr std::string_view kFake = "fake_quantize_per_channel_affine";

// Arithmetic on tensors of one type and device.
class Arithmetic {
 public:
  explicit Arithmetic(const GoldenRecord& record)
      : bf16_(record.Has("x_dtype") && record.Text("x_dtype") == "bfloat16"),
        cuda_(record.Text("device") == "cuda") {}
  // The result of one operation.
  float Rounded(float value) const {
    if (!bf16_) return value;
    return static_cast<float>(DecodeFloat(DType::kBF16, EncodeFloat(DType::kBF16, value)));
  }
  // A tensor over a number.
  float Over(float value, float number) const {
    const float reciprocal = 1.0f / number;
    return Rounded(cuda_ ? value * reciprocal : value / number);
  }

 private:
  bool bf16_, cuda_;
};

struct Rows {
  int64_t rows, columns;
  std::vector<float> values;
  std::span<const float> Row(int64_t row) const {
    return std::span(values).subspan(static_cast<size_t>(row * columns),
                                     static_cast<size_t>(columns));
  }
};
// x, of so many rows.
Rows RowsOf(const GoldenRecord& record, int64_t rows) {
  Rows x{rows, 0, record.Floats("x")};
  const auto count = static_cast<int64_t>(x.values.size());
  if (rows < 1 || count == 0 || count % rows != 0)
    Wrong(record, "x", "expected rows of one length");
  if (std::ranges::any_of(x.values, [](float value) { return !std::isfinite(value); }))
    Wrong(record, "x", "must be finite");
  x.columns = count / rows;
  return x;
}

// A recorded list beside what was computed.
void Add(const GoldenRecord& record, const std::string& field, const std::vector<double>& computed,
         JudgedRecord& judged) {
  const std::vector<float> recorded = record.Floats(field);
  RequireEntries(record, field, recorded.size(), std::ssize(computed));
  JudgedRecord::Output output{field, Tensor::Of<float>({std::ssize(recorded)}, recorded), {}};
  output.computed = Tensor(DType::kF32, {std::ssize(computed)});
  for (size_t i = 0; i < computed.size(); ++i)
    output.computed.as<float>()[i] = static_cast<float>(computed[i]);
  judged.outputs.push_back(std::move(output));
}

struct Choice {
  float scale, zero_point;
};

Choice ChooseSymmetric(std::span<const float> row, const Arithmetic& in) {
  float largest = 0;
  for (const float value : row) largest = std::max(largest, std::abs(value));
  return {in.Over(std::max(largest, in.Rounded(1e-5f)), 127), 0};
}

// The zero point follows from the end of the range where it is the more exact.
Choice ChooseAsymmetric(std::span<const float> row, const Arithmetic& in) {
  float low = 0, high = 0;
  for (const float value : row) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const float scale = std::max(in.Over(in.Rounded(high - low), 255), 0x1p-23f);
  const float below = in.Rounded(low / scale), above = in.Rounded(high / scale);
  const float error = in.Rounded(in.Rounded(-128 + below) + in.Rounded(127 + above));
  const float zero_point = error > 0 ? in.Rounded(-128 - below) : in.Rounded(127 - above);
  return {scale, RoundNearestEven(std::clamp(zero_point, -128.0f, 127.0f)) + 0.0f};  // no -0
}

// A scale of float64, which the asymmetric choice has, takes the tensors to float64.
JudgedRecord Tokens(const GoldenRecord& record) {
  const std::vector<int64_t> shape = record.Ints("shape");
  if (shape.size() != 2) Wrong(record, "shape", "expected two dimensions");
  const std::string type = record.Text("x_dtype");
  if (type != "float32" && type != "bfloat16") return {.skipped = record.op + " of " + type};
  const Rows x = RowsOf(record, shape[0]);
  const Arithmetic in(record);
  const bool symmetric = record.op == kPerToken;
  std::vector<double> scales, zero_points, codes, reals;
  for (int64_t row = 0; row < x.rows; ++row) {
    const auto values = x.Row(row);
    const Choice choice = symmetric ? ChooseSymmetric(values, in) : ChooseAsymmetric(values, in);
    scales.push_back(choice.scale);
    zero_points.push_back(choice.zero_point);
    const float inverse = in.Rounded(1.0f / choice.scale);
    const double wide_scale = choice.scale, wide_inverse = 1.0 / wide_scale;
    for (const float value : values) {
      const double moved = symmetric ? static_cast<double>(in.Rounded(value * inverse))
                                     : RoundNearestEven(static_cast<double>(value) * wide_inverse +
                                                        static_cast<double>(choice.zero_point));
      const double code = std::clamp(RoundNearestEven(moved), -128.0, 127.0) + 0.0;  // no -0
      codes.push_back(code);
      const auto distance = static_cast<float>(code - static_cast<double>(choice.zero_point));
      reals.push_back(symmetric ? static_cast<double>(in.Rounded(distance * choice.scale))
                                : static_cast<double>(distance) * wide_scale);
    }
  }
  JudgedRecord judged{.convention = "torch-decomposed"};
  Add(record, "scale", scales, judged);
  Add(record, "zp", zero_points, judged);
  Add(record, "q", codes, judged);
  Add(record, "deq", reals, judged);
  return judged;
}

JudgedRecord ChooseOfTensor(const GoldenRecord& record) {
  const Rows x = RowsOf(record, 1);
  const Arithmetic in(record);
  const std::string type = record.Text("dtype");
  if (type != "int8" && type != "uint8") return {.skipped = record.op + " of " + type};
  const int32_t low = Int32(record, "quant_min", -255, 255),
                high = Int32(record, "quant_max", -255, 255);
  if (low >= high) Wrong(record, "quant_min", "must be less than quant_max");
  const auto epsilon = static_cast<float>(record.Double("eps"));
  float smallest = 0, largest = 0;
  for (const float value : x.values) {
    smallest = std::min(smallest, value);
    largest = std::max(largest, value);
  }
  const auto codes = static_cast<float>(high - low);
  Choice choice{};
  if (record.op == kSymmetricChoice) {
    choice.scale = std::max(in.Over(std::max(-smallest, largest), codes / 2), epsilon);
    choice.zero_point = type == "uint8" ? 128 : 0;
  } else {
    choice.scale = std::max(in.Over(largest - smallest, codes), epsilon);
    const float zero_point = static_cast<float>(low) - RoundNearestEven(smallest / choice.scale);
    choice.zero_point = std::clamp(zero_point, static_cast<float>(low), static_cast<float>(high));
  }
  JudgedRecord judged{.convention = "torch-decomposed"};
  Add(record, "scale", {static_cast<double>(choice.scale)}, judged);
  Add(record, "zp", {static_cast<double>(choice.zero_point)}, judged);
  return judged;
}

// x times the reciprocal of its scale, which the elements of a group, or of a channel, share.
JudgedRecord GroupsOfChannels(const GoldenRecord& record) {
  const std::vector<float> scales = record.Floats("scale");
  const Rows x = RowsOf(record, std::ssize(scales));  // a group as a row
  if (record.op == kGroups && x.columns != record.Int("group"))
    Wrong(record, "group", "expected a scale for each group");
  if (record.Has("zp") &&
      std::ranges::any_of(record.Ints("zp"), [](int64_t zero) { return zero != 0; }))
    return {.skipped = record.op + " with a zero point"};
  const auto low = static_cast<float>(Int32(record, "quant_min", -255, 255)),
             high = static_cast<float>(Int32(record, "quant_max", -255, 255));
  if (low >= high) Wrong(record, "quant_min", "must be less than quant_max");
  std::vector<double> codes, reals;
  for (int64_t row = 0; row < x.rows; ++row) {
    const float scale = scales[static_cast<size_t>(row)], inverse = 1.0f / scale;
    for (const float value : x.Row(row)) {
      const float code = std::clamp(RoundNearestEven(value * inverse), low, high) + 0.0f;  // no -0
      codes.push_back(static_cast<double>(code));
      reals.push_back(static_cast<double>(code * scale));
    }
  }
  JudgedRecord judged{.convention = "torch-decomposed"};
  if (record.op == kFake) {
    Add(record, "y", reals, judged);
  } else {
    Add(record, "q", codes, judged);
    Add(record, "deq", reals, judged);
  }
  return judged;
}

}  // namespace

bool IsDecomposed(const GoldenRecord& record) {
  return record.op == kPerToken || record.op == kPerTokenAsymmetric || record.op == kChoice ||
         record.op == kSymmetricChoice || record.op == kGroups || record.op == kFake;
}

JudgedRecord JudgeDecomposed(const GoldenRecord& record) {
  if (record.op == kChoice || record.op == kSymmetricChoice) return ChooseOfTensor(record);
  return record.op == kGroups || record.op == kFake ? GroupsOfChannels(record) : Tokens(record);
}

}  // namespace qualm::golden
