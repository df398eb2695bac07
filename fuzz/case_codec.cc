// SPDX-License-Identifier: Apache-2.0
#include "fuzz/case_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "fuzz/fit.h"

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
constexpr int kRequantShift = 2;
// All four bits, so that most bytes are exact cases, also those few edits away: fewer subjects run
// the others. Two of the bits belong to pools, which have no requantization.
constexpr uint8_t kOtherRequant = 0xFu << 4;
constexpr uint8_t kCeilMode = 1u << 4;
constexpr uint8_t kCountIncludePad = 1u << 5;
constexpr uint8_t kSymmetric = 1u << 0;
constexpr uint8_t kReduceRange = 1u << 1;
constexpr uint8_t kSignedCodes = 1u << 2;

// The dimension 0: rare among random bytes, most of which would otherwise be empty cases.
constexpr uint8_t kNoneByte = 255;

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
  int64_t Dim(int64_t limit) {
    const int64_t byte = Byte();
    return byte == kNoneByte || limit == 0 ? 0 : 1 + byte % limit;
  }

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
  void Dim(int64_t dim, int64_t limit) {
    const int64_t none = limit == 0 ? 0 : kNoneByte;
    Byte(static_cast<uint8_t>(dim == 0 ? none : dim - 1));
  }
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

bool ByMultiplier(const Case& c) {
  if (c.op != Op::kRequantize) return false;
  if (!c.multiplier.empty()) return true;
  return c.per_channel && c.N == 0 && c.x_q == QParams{} && c.w_q == QParams{};
}

// The dimensions that the first three bytes hold.
Limits DimsOf(const Case& c) {
  const Window& v = c.window;
  if (IsConv(c.op)) return {v.batch, c.N / v.groups, v.in_c / v.groups};
  if (IsPool(c.op)) return {v.batch, c.N, 0};
  if (c.op == Op::kConcat) return {c.M, c.N, c.x.shape()[1]};
  if (c.op == Op::kChooseQParams) return {c.M, c.N, c.x.shape()[0]};
  return {c.M, c.N, c.K};
}

// One byte of the window: value = lowest + byte mod (number of values).
struct WindowByte {
  int64_t Window::* field;
  int64_t lowest;
  int64_t highest;
};
std::array<WindowByte, 11> WindowBytes(Op op) {
  return {{{&Window::kernel_h, 1, MaxKernel(op)},
           {&Window::kernel_w, 1, MaxKernel(op)},
           {&Window::stride_h, 1, kMaxStep},
           {&Window::stride_w, 1, kMaxStep},
           {&Window::pad_top, 0, kMaxPad},
           {&Window::pad_bottom, 0, kMaxPad},
           {&Window::pad_left, 0, kMaxPad},
           {&Window::pad_right, 0, kMaxPad},
           {&Window::dilation_h, 1, kMaxStep},
           {&Window::dilation_w, 1, kMaxStep},
           {&Window::groups, 1, kMaxChannels}}};
}

// Window, N and what follows from them.
void ReadWindow(Reader& reader, const Limits& dims, Case& c) {
  Window& v = c.window;
  v.batch = dims.m;
  v.in_h = reader.Dim(MaxImage(c.op));
  v.in_w = reader.Dim(MaxImage(c.op));
  for (const WindowByte& byte : WindowBytes(c.op)) {
    v.*byte.field = byte.lowest + reader.Byte() % (byte.highest - byte.lowest + 1);
  }
  if (c.op == Op::kConv2d) v.groups = (v.groups - 1) % kMaxGroups + 1;
  if (IsPool(c.op)) v.groups = 1;
  c.N = dims.n * v.groups;
  v.in_c = IsPool(c.op) ? c.N : v.groups * (c.op == Op::kDepthwise ? 1 : dims.k);
  FitWindow(&c);
}

void WriteWindow(Writer& writer, const Case& c) {
  writer.Dim(c.window.in_h, MaxImage(c.op));
  writer.Dim(c.window.in_w, MaxImage(c.op));
  for (const WindowByte& byte : WindowBytes(c.op)) {
    const int64_t value = c.window.*byte.field;
    // The kernel of global_avg_pool follows from the image and may be larger.
    writer.Byte(static_cast<uint8_t>(value > byte.highest ? 0 : value - byte.lowest));
  }
}

void ReadObserver(Reader& reader, Observer& o) {
  o.kind = static_cast<Observer::Kind>(reader.Byte() % 3);
  const unsigned flags = reader.Byte();
  o.symmetric = (flags & kSymmetric) != 0;
  o.reduce_range = (flags & kReduceRange) != 0;
  o.dtype = (flags & kSignedCodes) != 0 ? DType::kS8 : DType::kU8;
  o.quant_min = reader.Int();
  o.quant_max = reader.Int();
  o.averaging_constant = FiniteFrom(reader.Word());
}

void WriteObserver(Writer& writer, const Observer& o) {
  writer.Byte(static_cast<uint8_t>(o.kind));
  unsigned flags = o.symmetric ? kSymmetric : 0u;
  if (o.reduce_range) flags |= kReduceRange;
  if (o.dtype == DType::kS8) flags |= kSignedCodes;
  writer.Byte(static_cast<uint8_t>(flags));
  writer.Int(o.quant_min);
  writer.Int(o.quant_max);
  writer.Word(BitsOf(o.averaging_constant));
}

// What only some operations have, behind the header.
void ReadOwnFields(Reader& reader, const Limits& dims, Case& c) {
  if (HasWindow(c.op)) {
    ReadWindow(reader, dims, c);
  } else if (c.op == Op::kTable) {
    c.function = static_cast<Function>(reader.Byte() % 5);
    c.negative_slope = FiniteFrom(reader.Word() & 0x7FFFFFFF);
  } else if (c.op == Op::kChooseQParams) {
    ReadObserver(reader, c.observer);
  }
}

void WriteOwnFields(Writer& writer, const Case& c) {
  if (HasWindow(c.op)) {
    WriteWindow(writer, c);
  } else if (c.op == Op::kTable) {
    writer.Byte(static_cast<uint8_t>(c.function));
    writer.Word(c.function == Function::kLeakyRelu ? BitsOf(c.negative_slope) : 0);
  } else if (c.op == Op::kChooseQParams) {
    WriteObserver(writer, c.observer);
  }
}

DType InputType(Op op, bool other) {
  if (op == Op::kQuantize || op == Op::kChooseQParams) return DType::kF32;
  if (op == Op::kRequantize) return DType::kS32;
  return other ? DType::kS8 : DType::kU8;
}

DType OutType(Op op, DType x_dtype, unsigned choice) {
  if (op == Op::kDequantize || op == Op::kChooseQParams) return DType::kF32;
  if (op == Op::kMaxPool || op == Op::kSoftmax) return x_dtype;
  return kOutTypes[choice % (HasSums(op) ? 4 : 2)];
}

void ReadBias(Reader& reader, unsigned choice, Case& c) {
  if (choice == 1 && c.out_dtype != DType::kS32 && c.requant == Requant::kExact) {
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
  const Limits limits = LimitsOf(op);
  Limits dims;
  dims.m = reader.Dim(limits.m);
  dims.n = reader.Dim(limits.n);
  dims.k = reader.Dim(limits.k);
  const unsigned flags = reader.Byte();
  const unsigned form = reader.Byte();
  Case c;
  c.op = op;
  c.M = dims.m;
  c.N = dims.n;
  c.K = dims.k;
  c.per_channel = (flags & kPerChannel) != 0;
  c.relu = (flags & kRelu) != 0;
  if ((form & kOtherRequant) == kOtherRequant) {
    c.requant = static_cast<Requant>((form >> kRequantShift) & 3);
  }
  c.window.ceil_mode = (form & kCeilMode) != 0;
  c.window.count_include_pad = (form & kCountIncludePad) != 0;
  const DType x_dtype = InputType(op, (flags & kOtherX) != 0);
  c.out_dtype = OutType(op, x_dtype, (flags >> kOutShift) & 3);
  const int32_t out_min = reader.Int();
  const int32_t out_max = reader.Int();
  SetClamp((form & kClamp) != 0, out_min, out_max, c);
  c.x_q = ReadQParams(reader);
  c.w_q = ReadQParams(reader);
  c.out_q = ReadQParams(reader);
  ReadOwnFields(reader, dims, c);

  // Fitting takes the dimensions that no field holds from the shape of x.
  c.x = Tensor(x_dtype, {0});
  if (op == Op::kConcat) c.x = Tensor(x_dtype, {c.M, dims.k});
  if (op == Op::kChooseQParams) c.x = Tensor(x_dtype, {dims.k, c.M, c.N});
  c.w = Tensor((flags & kOtherW) != 0 ? DType::kU8 : DType::kS8, {0});
  const bool by_multiplier = op == Op::kRequantize && (form & kQuotient) == 0;
  if (by_multiplier) c.multiplier = c.w_q.scale;
  FitCase(&c);

  ReadElements(reader, c.x);
  ReadElements(reader, c.w);
  if (op == Op::kChooseQParams) FitCase(&c);  // not all values can be observed
  if (c.per_channel && op != Op::kChooseQParams) {
    QParams q{{}, {}};
    for (int64_t n = 0; n < c.N; ++n) {
      q.scale.push_back(ScaleFrom(reader.Word()));
      q.zero_point.push_back(reader.Int());
    }
    if (by_multiplier) {
      c.multiplier = std::move(q.scale);
    } else {
      ChannelQParams(c) = std::move(q);
    }
  }
  if (HasSums(op)) ReadBias(reader, (flags >> kBiasShift) & 3, c);
  return c;
}

std::optional<std::vector<uint8_t>> EncodeCase(const Case& c) {
  if (!Validate(c).empty() || !IsSmall(c)) return std::nullopt;
  const Case problem = ProblemOf(c);
  Case stored = problem;
  if (ByMultiplier(c)) {
    stored.w_q.scale = c.multiplier;
    stored.w_q.zero_point.assign(c.multiplier.size(), 0);
  }
  Writer writer;
  const Limits dims = DimsOf(c), limits = LimitsOf(c.op);
  writer.Dim(dims.m, limits.m);
  writer.Dim(dims.n, limits.n);
  writer.Dim(dims.k, limits.k);
  const auto out = static_cast<size_t>(std::find(kOutTypes.begin(), kOutTypes.end(), c.out_dtype) -
                                       kOutTypes.begin());
  unsigned flags = static_cast<unsigned>(out) << kOutShift;
  if (c.per_channel) flags |= kPerChannel;
  if (c.relu) flags |= kRelu;
  if (c.bias) flags |= 1u << kBiasShift;
  if (c.bias_i32) flags |= 2u << kBiasShift;
  if (c.x.dtype() == DType::kS8) flags |= kOtherX;
  if (HasSums(c.op) && c.w.dtype() == DType::kU8) flags |= kOtherW;
  writer.Byte(static_cast<uint8_t>(flags));
  const CodeRange range = RangeOf(c.out_dtype);
  const bool clamp = c.out_min != range.min || c.out_max != range.max;
  unsigned form = clamp ? kClamp : 0u;
  if (c.op == Op::kRequantize && !ByMultiplier(c)) form |= kQuotient;
  if (c.requant != Requant::kExact) {
    form |= kOtherRequant | static_cast<unsigned>(c.requant) << kRequantShift;
  }
  if (c.window.ceil_mode) form |= kCeilMode;
  if (c.window.count_include_pad) form |= kCountIncludePad;
  writer.Byte(static_cast<uint8_t>(form));
  writer.Int(clamp ? c.out_min : 0);
  writer.Int(clamp ? c.out_max : 0);
  WriteQParams(writer, stored.x_q);
  WriteQParams(writer, stored.w_q);
  WriteQParams(writer, stored.out_q);
  WriteOwnFields(writer, c);
  WriteElements(writer, c.x);
  WriteElements(writer, c.w);
  if (c.per_channel && c.op != Op::kChooseQParams) {
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
