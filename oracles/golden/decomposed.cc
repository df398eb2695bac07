// SPDX-License-Identifier: Apache-2.0
// Recorded operators of PyTorch 2.11 that no case can say yet (torch211_decomposed.jsonl): how PT2E
// chooses scales and zero points, of a tensor and of each token (row); its quantization by tokens
// and by groups of a channel; fake quantization; packed embeddings. Beside them quantize_per_tensor
// on CPU and CUDA (gpu_products.jsonl), whose extreme numbers differ. Read in PyTorch 2.11.0
// torch/ao/quantization/fx/_decomposed.py and torch/ao/quantization/utils.py (determine_qparams).
// Each operation of a tensor is rounded to its type; on CUDA a tensor is divided by a number by
// multiplying with its reciprocal (aten/src/ATen/native/cuda/BinaryDivTrueKernel.cu).
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <string_view>
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
constexpr std::string_view kBytes = "quantized.embedding_bag_byte_prepack";
constexpr std::string_view kNibbles = "quantized.embedding_bag_4bit_prepack";
constexpr std::string_view kPairsOfBits = "quantized.embedding_bag_2bit_prepack";
constexpr std::string_view kPerTensor = "quantize_per_tensor";

// Arithmetic on tensors of one type and device.
class Arithmetic {
 public:
  explicit Arithmetic(const GoldenRecord& record)
      : bf16_(record.Has("x_dtype") && record.Text("x_dtype") == "bfloat16"),
        cuda_(record.Text("device") == "cuda") {}
  // The result of one operation.
  float Rounded(float value) const {
    return bf16_ ? conventions::RoundedTo(DType::kBF16, value) : value;
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

// A row's codes, of 8, 4 or 2 bits, and behind them what they stand for: scale and smallest number,
// float32 of 8 bits, else float16. FBGEMM src/EmbeddingSpMDM.cc and src/QuantUtils.cc
// (FloatOrHalfToFused8BitRowwiseQuantizedSBFloat, FloatOrHalfToFusedNBitRowwiseQuantizedSBHalf).
class PackedRow {
 public:
  PackedRow(std::span<const float> row, int bits) {
    const auto [low, high] = std::ranges::minmax(row);
    const auto most = static_cast<float>((1 << bits) - 1);
    float inverse = 0;
    if (bits == 8) {
      smallest_ = low;
      const float range = high - low;
      scale_ = range / most;
      inverse = most / (range + 1e-8f);
    } else {
      smallest_ = Half(low);
      const float range = high - smallest_;
      scale_ = range == 0 ? 1.0f : Half(range / most);
      if (scale_ == 0 || std::isinf(1.0f / scale_)) scale_ = 1;
      inverse = 1.0f / scale_;
    }
    const int in_byte = 8 / bits;
    bytes_.resize((row.size() + static_cast<size_t>(in_byte) - 1) / static_cast<size_t>(in_byte));
    for (size_t k = 0; k < row.size(); ++k) {
      const float code = std::clamp(RoundNearestEven((row[k] - smallest_) * inverse), 0.0f, most);
      const auto at = static_cast<int>(k);
      bytes_[static_cast<size_t>(at / in_byte)] |=
          static_cast<uint8_t>(static_cast<unsigned>(code) << (at % in_byte * bits));
      reals_.push_back(std::fma(code, scale_, smallest_));
    }
    for (const float number : {scale_, smallest_}) {
      const uint32_t code =
          bits == 8 ? std::bit_cast<uint32_t>(number) : EncodeFloat(DType::kF16, number);
      for (int byte = 0; byte < (bits == 8 ? 4 : 2); ++byte)
        bytes_.push_back(static_cast<uint8_t>(code >> (8 * byte)));
    }
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }
  const std::vector<double>& reals() const { return reals_; }

 private:
  static float Half(float value) { return conventions::RoundedTo(DType::kF16, value); }
  float scale_ = 1, smallest_ = 0;
  std::vector<uint8_t> bytes_;
  std::vector<double> reals_;
};

// Of how many rows the lengths of x and its packed form tell.
int64_t PackedRows(const GoldenRecord& record, int bits) {
  const auto numbers = std::ssize(record.Floats("x")), bytes = std::ssize(record.Ints("packed"));
  const int64_t in_byte = 8 / bits, behind = bits == 8 ? 8 : 4;
  for (int64_t rows = 1; rows <= std::min(numbers, bytes / behind); ++rows) {
    const int64_t columns = numbers / rows;
    if (numbers % rows == 0 && rows * ((columns + in_byte - 1) / in_byte + behind) == bytes)
      return rows;
  }
  Wrong(record, "packed", "expected the codes, scale and smallest number of each row of x");
}

JudgedRecord Embeddings(const GoldenRecord& record) {
  const int bits = record.op == kBytes ? 8 : record.op == kNibbles ? 4 : 2;
  const Rows x = RowsOf(record, PackedRows(record, bits));
  std::vector<double> packed, reals;
  for (int64_t row = 0; row < x.rows; ++row) {
    const PackedRow one(x.Row(row), bits);
    packed.insert(packed.end(), one.bytes().begin(), one.bytes().end());
    reals.insert(reals.end(), one.reals().begin(), one.reals().end());
  }
  JudgedRecord judged{.convention = "torch-decomposed"};
  Add(record, "packed", packed, judged);
  Add(record, "unpacked", reals, judged);
  return judged;
}

// The CPU's codes are FBGEMM's (QuantizeAvx2: numbers above int32 become 2^31 - 128, NaN too, and
// the zero point may then wrap); CUDA's are clamped as floats, NaN to the lowest. CUDA takes the
// scale as float64 on the way back.
JudgedRecord QuantizePerTensor(const GoldenRecord& record) {
  const std::string type = record.Text("dtype");
  if (type != "quint8" && type != "qint8") return {.skipped = record.op + " of " + type};
  const std::vector<float> x = record.Floats("x");
  const double wide_scale = record.Double("scale_double");
  const auto scale = static_cast<float>(wide_scale);
  if (!(scale > 0) || std::isinf(scale)) Wrong(record, "scale_double", "expected a number above 0");
  const float inverse = 1.0f / scale;
  const int32_t low = type == "qint8" ? -128 : 0, high = low + 255;
  const int32_t zero_point = Int32(record, "zp", low, high);
  const bool cpu = record.Text("device") == "cpu";
  std::vector<double> codes, reals, faked;
  for (const float value : x) {
    const float scaled = value * inverse;
    const float clamped = std::clamp(RoundNearestEven(scaled) + static_cast<float>(zero_point),
                                     static_cast<float>(low), static_cast<float>(high));
    const float placed = std::isnan(scaled) ? static_cast<float>(low) : clamped;
    int32_t code = static_cast<int32_t>(placed);
    if (cpu) {
      const float kept = conventions::MinPs(scaled, 2147483520.0f);
      code = std::clamp(conventions::Wrap32(int64_t{conventions::ConvertX86(kept)} + zero_point),
                        low, high);
    }
    codes.push_back(code);
    const auto distance = static_cast<float>(code - zero_point);
    reals.push_back(cpu ? static_cast<double>(distance * scale)
                        : static_cast<double>(distance) * wide_scale);
    faked.push_back(static_cast<double>((placed - static_cast<float>(zero_point)) * scale));
  }
  JudgedRecord judged{.convention = cpu ? "fbgemm" : "torch@cuda"};
  Add(record, "q", codes, judged);
  Add(record, "deq", reals, judged);
  Add(record, "fake_quantize", faked, judged);
  return judged;
}

using Judge = JudgedRecord (*)(const GoldenRecord&);
const std::map<std::string_view, Judge>& Judges() {
  static const std::map<std::string_view, Judge> judges{
      {kPerToken, Tokens},         {kPerTokenAsymmetric, Tokens},
      {kChoice, ChooseOfTensor},   {kSymmetricChoice, ChooseOfTensor},
      {kGroups, GroupsOfChannels}, {kFake, GroupsOfChannels},
      {kBytes, Embeddings},        {kNibbles, Embeddings},
      {kPairsOfBits, Embeddings},  {kPerTensor, QuantizePerTensor}};
  return judges;
}

}  // namespace

bool IsDecomposed(const GoldenRecord& record) { return Judges().contains(record.op); }

JudgedRecord JudgeDecomposed(const GoldenRecord& record) { return Judges().at(record.op)(record); }

}  // namespace qualm::golden
