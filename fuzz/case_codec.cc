// SPDX-License-Identifier: Apache-2.0
#include "fuzz/case_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

namespace qualm::fuzz {
namespace {

constexpr uint8_t kPerChannel = 1u << 0;
constexpr uint8_t kRelu = 1u << 1;
constexpr int kBiasShift = 2;
constexpr int kOutShift = 4;
constexpr uint8_t kOtherX = 1u << 6;
constexpr uint8_t kOtherW = 1u << 7;
constexpr uint8_t kClamp = 1u << 0;
constexpr uint8_t kQuotient = 1u << 1;

constexpr std::array<DType, 4> kOutTypes{DType::kU8, DType::kS8, DType::kS32, DType::kF32};

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint8_t Byte() { return at_ < bytes_.size() ? bytes_[at_++] : uint8_t{0}; }
  uint32_t Word() {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word |= static_cast<uint32_t>(Byte()) << (8 * i);
    return word;
  }
  int32_t Int() { return static_cast<int32_t>(Word()); }
  int64_t Dim(int64_t limit) { return (int64_t{Byte()} + 1) % (limit + 1); }

 private:
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
};

class Writer {
 public:
  void Byte(uint8_t byte) { bytes_.push_back(byte); }
  void Word(uint32_t word) {
    for (int i = 0; i < 4; ++i) Byte(static_cast<uint8_t>(word >> (8 * i)));
  }
  void Int(int32_t value) { Word(static_cast<uint32_t>(value)); }
  void Dim(int64_t dim, int64_t limit) { Byte(static_cast<uint8_t>((dim + limit) % (limit + 1))); }
  std::vector<uint8_t> Take() { return std::move(bytes_); }

 private:
  std::vector<uint8_t> bytes_;
};

// Keeps every finite pattern as it is; inf and NaN lose the lowest exponent bit.
float FiniteFrom(uint32_t bits) {
  if ((bits & 0x7F800000) == 0x7F800000) bits &= ~uint32_t{0x00800000};
  return std::bit_cast<float>(bits);
}

// Keeps every scale as it is; 0 reads as 1.
float ScaleFrom(uint32_t bits) {
  const float scale = FiniteFrom(bits & 0x7FFFFFFF);
  return scale > 0 ? scale : 1.0f;
}

uint32_t BitsOf(float value) { return std::bit_cast<uint32_t>(value); }

void ReadElements(Reader& reader, Tensor& tensor) {
  if (SizeOf(tensor.dtype()) == 1) {
    for (uint8_t& byte : tensor.bytes()) byte = reader.Byte();
    return;
  }
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const uint32_t word = reader.Word();
    std::memcpy(tensor.bytes().data() + 4 * i, &word, 4);
  }
}

void WriteElements(Writer& writer, const Tensor& tensor) {
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (SizeOf(tensor.dtype()) == 1) {
      writer.Byte(tensor.bytes()[static_cast<size_t>(i)]);
    } else {
      writer.Word(tensor.BitsAt(i));
    }
  }
}

QParams ReadQParams(Reader& reader) {
  const float scale = ScaleFrom(reader.Word());
  return {{scale}, {reader.Int()}};
}

// The tensor-wide slot of the header; whatever stands there does not matter per channel.
void WriteQParams(Writer& writer, const QParams& q) {
  writer.Word(q.scale.size() == 1 ? BitsOf(q.scale[0]) : 0);
  writer.Int(q.zero_point.size() == 1 ? q.zero_point[0] : 0);
}

// The operand whose parameters may come per channel.
QParams& ChannelQParams(Case& c) {
  switch (c.op) {
    case Op::kQuantize: return c.out_q;
    case Op::kDequantize: return c.x_q;
    default: return c.w_q;
  }
}

DType OutType(Op op, unsigned choice) {
  switch (op) {
    case Op::kDequantize: return DType::kF32;
    case Op::kQuantize:
    case Op::kRequantize: return kOutTypes[choice % 2];
    default: return kOutTypes[choice % 4];
  }
}

bool ByMultiplier(const Case& c) {
  if (c.op != Op::kRequantize) return false;
  if (!c.multiplier.empty()) return true;
  return c.per_channel && c.N == 0 && c.x_q == QParams{} && c.w_q == QParams{};
}

// Requantize keeps its multiplier in w_q between header and channels.
void MoveMultiplier(Case& c) {
  c.multiplier = std::move(c.w_q.scale);
  c.w_q = QParams{};
  c.x_q = QParams{};
}

// Parameters without a meaning for the op stay default, so that equal problems compare equal.
void DropMeaningless(Case& c) {
  if (c.op == Op::kQuantize) c.x_q = c.w_q = QParams{};
  if (c.op == Op::kDequantize) c.w_q = c.out_q = QParams{};
}

void ReadBias(Reader& reader, unsigned choice, Case& c) {
  if (choice == 1 && c.out_dtype != DType::kS32) {
    c.bias.emplace();
    for (int64_t n = 0; n < c.N; ++n) c.bias->push_back(FiniteFrom(reader.Word()));
  } else if (choice == 2) {
    c.bias_i32.emplace();
    for (int64_t n = 0; n < c.N; ++n) c.bias_i32->push_back(reader.Int());
  }
}

void SetClamp(bool given, int32_t out_min, int32_t out_max, Case& c) {
  const CodeRange range = RangeOf(c.out_dtype);
  c.out_min = range.min;
  c.out_max = range.max;
  if (!given || c.out_dtype == DType::kF32) return;
  out_min = std::clamp(out_min, range.min, range.max);
  out_max = std::clamp(out_max, range.min, range.max);
  c.out_min = std::min(out_min, out_max);
  c.out_max = std::max(out_min, out_max);
}

}  // namespace

Case DecodeCase(Op op, std::span<const uint8_t> bytes) {
  Reader reader(bytes);
  const bool linear = op == Op::kLinear;
  Case c;
  c.op = op;
  c.M = reader.Dim(kMaxM);
  c.N = reader.Dim(kMaxN);
  const int64_t k = reader.Dim(kMaxK);
  c.K = linear ? k : 0;
  const unsigned flags = reader.Byte();
  const unsigned form = reader.Byte();
  c.per_channel = (flags & kPerChannel) != 0;
  c.relu = (flags & kRelu) != 0 && op != Op::kDequantize;
  c.out_dtype = OutType(op, (flags >> kOutShift) & 3);
  const int32_t out_min = reader.Int();
  const int32_t out_max = reader.Int();
  SetClamp((form & kClamp) != 0, out_min, out_max, c);
  c.x_q = ReadQParams(reader);
  c.w_q = ReadQParams(reader);
  c.out_q = ReadQParams(reader);

  DType x_dtype = (flags & kOtherX) != 0 ? DType::kS8 : DType::kU8;
  if (op == Op::kQuantize) x_dtype = DType::kF32;
  if (op == Op::kRequantize) x_dtype = DType::kS32;
  c.x = Tensor(x_dtype, {c.M, linear ? c.K : c.N});
  ReadElements(reader, c.x);
  if (linear) {
    c.w = Tensor((flags & kOtherW) != 0 ? DType::kU8 : DType::kS8, {c.N, c.K});
    ReadElements(reader, c.w);
  }
  if (c.per_channel) {
    QParams& q = ChannelQParams(c);
    q = {{}, {}};
    for (int64_t n = 0; n < c.N; ++n) {
      q.scale.push_back(ScaleFrom(reader.Word()));
      q.zero_point.push_back(reader.Int());
    }
  }
  if (op == Op::kRequantize && (form & kQuotient) == 0) MoveMultiplier(c);
  if (linear) ReadBias(reader, (flags >> kBiasShift) & 3, c);
  DropMeaningless(c);
  return c;
}

std::optional<std::vector<uint8_t>> EncodeCase(const Case& c) {
  if (c.M > kMaxM || c.N > kMaxN || c.K > kMaxK || !Validate(c).empty()) return std::nullopt;
  const Case problem = ProblemOf(c);
  Case stored = problem;
  if (ByMultiplier(c)) {
    stored.w_q.scale = c.multiplier;
    stored.w_q.zero_point.assign(c.multiplier.size(), 0);
  }
  Writer writer;
  writer.Dim(c.M, kMaxM);
  writer.Dim(c.N, kMaxN);
  writer.Dim(c.K, kMaxK);
  const auto out = static_cast<size_t>(std::find(kOutTypes.begin(), kOutTypes.end(), c.out_dtype) -
                                       kOutTypes.begin());
  unsigned flags = static_cast<unsigned>(out) << kOutShift;
  if (c.per_channel) flags |= kPerChannel;
  if (c.relu) flags |= kRelu;
  if (c.bias) flags |= 1u << kBiasShift;
  if (c.bias_i32) flags |= 2u << kBiasShift;
  if (c.x.dtype() == DType::kS8) flags |= kOtherX;
  if (c.op == Op::kLinear && c.w.dtype() == DType::kU8) flags |= kOtherW;
  writer.Byte(static_cast<uint8_t>(flags));
  const CodeRange range = RangeOf(c.out_dtype);
  const bool clamp = c.out_min != range.min || c.out_max != range.max;
  unsigned form = clamp ? kClamp : 0u;
  if (c.op == Op::kRequantize && !ByMultiplier(c)) form |= kQuotient;
  writer.Byte(static_cast<uint8_t>(form));
  writer.Int(clamp ? c.out_min : 0);
  writer.Int(clamp ? c.out_max : 0);
  WriteQParams(writer, stored.x_q);
  WriteQParams(writer, stored.w_q);
  WriteQParams(writer, stored.out_q);
  WriteElements(writer, c.x);
  if (c.op == Op::kLinear) WriteElements(writer, c.w);
  if (c.per_channel) {
    const QParams& q = ChannelQParams(stored);
    for (size_t n = 0; n < q.scale.size(); ++n) {
      writer.Word(BitsOf(q.scale[n]));
      writer.Int(q.zero_point[n]);
    }
  }
  if (c.bias) {
    for (const float value : *c.bias) writer.Word(BitsOf(value));
  }
  if (c.bias_i32) {
    for (const int32_t value : *c.bias_i32) writer.Int(value);
  }
  std::vector<uint8_t> bytes = writer.Take();
  // What the layout has no room for (parameters without meaning) is seen here, whatever it is.
  if (!(DecodeCase(c.op, bytes) == problem)) return std::nullopt;
  return bytes;
}

}  // namespace qualm::fuzz
