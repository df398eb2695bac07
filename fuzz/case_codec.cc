// SPDX-License-Identifier: Apache-2.0
#include "fuzz/case_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "core/slice.h"
#include "fuzz/fit.h"
#include "properties/gen/gen.h"

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
// The two bits at kRequantShift are read only if all four bits of kOtherRequant are set. So most
// bytes are exact cases and stay exact after a few edits: fewer subjects run the other arithmetic.
// Pools, which have no requantization, share two of the four for ceil_mode and count_include_pad.
constexpr uint8_t kOtherRequant = 0xFu << 4;
static_assert(CountOf<Requant>() == 4, "Requant has two bits");
constexpr uint8_t kCeilMode = 1u << 4;
constexpr uint8_t kCountIncludePad = 1u << 5;
// Behind this byte at the end stands the name of a type of weights that kOtherW has no room for. So
// nearly all bytes mean what they meant before there were such types.
constexpr uint8_t kNarrowWeights = 'w';
// Behind that, or another byte in its place, stand blocks of weights.
constexpr uint8_t kBlocks = 'b';
// The same with the blocks of x behind those.
constexpr uint8_t kBothBlocks = 'B';
// And behind that, or another byte in its place, x in f32.
constexpr uint8_t kFloatX = 'f';
// And behind that types of x and the output, and behind those blocks of a row.
constexpr uint8_t kTypes = 't';
constexpr uint8_t kElementBlocks = 'e';
// Of a choose_qparams, behind the values, a rule of MX.
constexpr uint8_t kMx = 'm';
constexpr auto kFirstMx = static_cast<uint8_t>(QParamsRule::kMxFloor);
// The zero point of a cast, which has none, beside a scale that counts; beside any other it is 1.
// So most bytes are casts without scales, which more subjects run.
constexpr int32_t kScaled = 's';
// Only this byte means the dimension 0, so that random bytes rarely make an empty case.
constexpr uint8_t kNoneByte = 255;

constexpr std::array<uint8_t, 5> kDraw{254, 'd', 'r', 'a', 'w'};

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint8_t Byte() {
    bits_ = 0;
    return at_ < bytes_.size() ? bytes_[at_++] : uint8_t{0};
  }
  // Bits in succession share a byte, the lowest first.
  bool Bit() {
    if (bits_ % 8 == 0) flags_ = Byte();
    return (flags_ >> (bits_++ % 8) & 1) != 0;
  }
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
  int bits_ = 0;  // read since the last byte
  unsigned flags_ = 0;
};

class Writer {
 public:
  void Byte(uint8_t byte) {
    bits_ = 0;
    bytes_.push_back(byte);
  }
  void Bit(bool bit) {
    if (bits_ % 8 == 0) Byte(0);
    bytes_.back() |= static_cast<uint8_t>(bit << bits_++ % 8);
  }
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
  int bits_ = 0;
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

// An element of 16 bits or fewer, of a float also of fewer than 8: as many bytes as hold it, the
// rest of their bits unread.
bool HasOddSize(DType dtype) {
  return BitsOf(dtype) < 8 || BitsOf(dtype) == 16 || (IsFloat(dtype) && dtype != DType::kF32);
}
void ReadOddSizes(Reader& reader, Tensor& tensor) {
  const CodeRange range = RangeOf(tensor.dtype());
  const auto mask = static_cast<uint32_t>(range.max - range.min);  // all bits that an element has
  const auto sign = static_cast<uint32_t>(-range.min);             // 0 where none is a sign
  for (int64_t i = 0; i < tensor.size(); ++i) {
    uint32_t code = reader.Byte();
    if (mask > 0xFF) code |= static_cast<uint32_t>(reader.Byte()) << 8;
    tensor.SetBits(i, ((code & mask) ^ sign) - sign);
  }
}
void WriteOddSizes(Writer& writer, const Tensor& tensor) {
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const uint32_t code = tensor.BitsAt(i);
    writer.Byte(static_cast<uint8_t>(code));
    if (BitsOf(tensor.dtype()) > 8) writer.Byte(static_cast<uint8_t>(code >> 8));
  }
}

void ReadElements(Reader& reader, Tensor& tensor) {
  if (HasOddSize(tensor.dtype())) return ReadOddSizes(reader, tensor);
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
  if (HasOddSize(tensor.dtype())) return WriteOddSizes(writer, tensor);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (SizeOf(tensor.dtype()) == 1) {
      writer.Byte(tensor.bytes()[static_cast<size_t>(i)]);
    } else {
      writer.Word(tensor.BitsAt(i));
    }
  }
}

// A scale and zero point for each channel, or for each block.
QParams ReadEntries(Reader& reader, int64_t count) {
  QParams q{{}, {}};
  for (int64_t i = 0; i < count; ++i) {
    q.scale.push_back(ScaleFrom(reader.Word()));
    q.zero_point.push_back(reader.Int());
  }
  return q;
}

void WriteEntries(Writer& writer, const QParams& q) {
  for (size_t i = 0; i < q.scale.size(); ++i) {
    writer.Word(BitsOf(q.scale[i]));
    writer.Int(q.zero_point[i]);
  }
}

QParams ReadQParams(Reader& reader) { return ReadEntries(reader, 1); }

// The place of one scale and zero point in the header. The reader ignores it if per_channel.
void WriteQParams(Writer& writer, const QParams& q) {
  writer.Word(q.scale.size() == 1 ? BitsOf(q.scale[0]) : 0);
  writer.Int(q.zero_point.size() == 1 ? q.zero_point[0] : 0);
}

// The numbers of the window that have a byte: value = least + byte mod (number of values). The size
// m of the header is the batch; the size k, or the groups, give the channels.
template <class C, class Visit>
void ForEachWindowByte(C& c, const Visit& visit) {
  ForEachWindowNumber(c, [&](const Field& field, auto& number) {
    const bool is_image = &number == &c.window.in_h || &number == &c.window.in_w;
    if (is_image || &number == &c.window.batch || &number == &c.window.in_c) return;
    visit(number, field.least, HighestOf(c.op, field));
  });
}

// The window and N. The other sizes follow.
void ReadWindow(Reader& reader, const Sizes& sizes, Case& c) {
  Window& v = c.window;
  v.batch = sizes.m;
  v.in_h = reader.Dim(MaxImage(c.op));
  v.in_w = reader.Dim(MaxImage(c.op));
  ForEachWindowByte(c, [&](int64_t& number, int64_t lowest, int64_t highest) {
    number = lowest + reader.Byte() % (highest - lowest + 1);
  });
  const bool depthwise = RowOf(c.op).depthwise;
  if (!depthwise) v.groups = (v.groups - 1) % kMaxGroups + 1;
  if (IsPool(c.op)) v.groups = 1;
  c.N = sizes.n * v.groups;
  v.in_c = IsPool(c.op) ? c.N : v.groups * (depthwise ? 1 : sizes.k);
  FitWindow(&c);
}

void WriteWindow(Writer& writer, const Case& c) {
  writer.Dim(c.window.in_h, MaxImage(c.op));
  writer.Dim(c.window.in_w, MaxImage(c.op));
  ForEachWindowByte(c, [&](int64_t number, int64_t lowest, int64_t highest) {
    // The kernel of global_avg_pool follows from the image and may be larger.
    writer.Byte(static_cast<uint8_t>(number > highest ? 0 : number - lowest));
  });
}

// A parameter of a new type needs a Read and a Write.
void Read(Reader& reader, bool& flag) { flag = reader.Bit(); }
void Read(Reader& reader, DType& codes) { codes = kCodes.list[reader.Bit() ? 1 : 0]; }
void Read(Reader& reader, int32_t& number) { number = reader.Int(); }
void Read(Reader& reader, float& number) { number = FiniteFrom(reader.Word()); }
template <NamedEnum E>
void Read(Reader& reader, E& choice) {
  choice = static_cast<E>(reader.Byte() % CountOf<E>());
}

// The rules of MX stand behind the values.
void Read(Reader& reader, QParamsRule& rule) {
  rule = static_cast<QParamsRule>(reader.Byte() % kFirstMx);
}

void Write(Writer& writer, bool flag) { writer.Bit(flag); }
void Write(Writer& writer, DType codes) { writer.Bit(codes != kCodes.front()); }
void Write(Writer& writer, int32_t number) { writer.Int(number); }
void Write(Writer& writer, float number) { writer.Word(BitsOf(number)); }
template <NamedEnum E>
void Write(Writer& writer, E choice) {
  writer.Byte(static_cast<uint8_t>(choice));
}

DType XType(Op op, bool other) {
  const DTypeList& types = RowOf(op).x_types;
  return types.list[other ? 1 % types.count : 0];
}

DType OutType(Op op, DType x_dtype, unsigned choice) {
  const DTypeList& types = RowOf(op).out_types;
  return KeepsType(op) ? x_dtype : types.list[choice % types.count];
}

void ReadBias(Reader& reader, unsigned choice, Case& c) {
  if (choice == 1 && c.out_dtype != DType::kS32 && c.requant == Requant::kExact) {
    c.bias.emplace();
    for (int64_t n = 0; n < c.N; ++n) c.bias->push_back(FiniteFrom(reader.Word()));
  } else if (choice == 2 && RowOf(c.op).bias_i32) {
    c.bias_i32.emplace();
    for (int64_t n = 0; n < c.N; ++n) c.bias_i32->push_back(reader.Int());
  }
}

// The weights, read as s8 or u8, become the nearest ones of the named type.
void ReadNarrowWeights(Reader& reader, Case& c) {
  if (reader.Byte() != kNarrowWeights) return;
  std::string name;
  for (int i = 0; i < 2; ++i) name += static_cast<char>(reader.Byte());
  const std::optional<DType> dtype = ParseDType(name);
  if (dtype && kWeightCodes.contains(*dtype)) c.w = Reshaped(c.w, *dtype, c.w.shape());
}

// Behind the weights of w_block elements stand the scales and zero points of all blocks.
void ReadBlocks(Reader& reader, Case& c) {
  const uint8_t marker = reader.Byte();
  if ((marker != kBlocks && marker != kBothBlocks) || c.K == 0 || c.out_dtype == DType::kS32)
    return;
  c.w_block = 1 + reader.Byte() % kMaxBlock;
  c.per_channel = true;
  c.bias_i32.reset();
  c.requant = Requant::kExact;
  c.w_q = ReadEntries(reader, c.N * RowBlocks(c));
  const bool has_x = SumsXInBlocks(c.op) && c.M > 0 && c.out_dtype == DType::kF32;
  if (marker != kBothBlocks || !has_x) return;
  c.x_block = c.w_block;
  c.x_q = ReadEntries(reader, c.M * RowBlocks(c));
}

// Instead of the codes of x: the output is f32 too.
void ReadFloatX(Reader& reader, Case& c) {
  if (reader.Byte() != kFloatX) return;
  c.x_block = 0;
  c.x_q = QParams{};
  c.x = Tensor(DType::kF32, c.x.shape());
  for (float& value : c.x.as<float>()) value = FiniteFrom(reader.Word());
  c.out_dtype = DType::kF32;
  FitCase(&c);
}

// The clamp as the bytes give it, whatever the output's type.
struct Clamp {
  bool given = false;
  int32_t min = 0, max = 0;
};
void SetClamp(const Clamp& clamp, Case& c) {
  OpenClamp(&c);
  if (!clamp.given || IsFloat(c.out_dtype)) return;
  const CodeRange range = RangeOf(c.out_dtype);
  const int32_t a = std::clamp(clamp.min, range.min, range.max);
  const int32_t b = std::clamp(clamp.max, range.min, range.max);
  c.out_min = std::min(a, b);
  c.out_max = std::max(a, b);
}

// Whether flags have no room for some types of x or the output.
bool HasMoreTypes(const OpRow& row) {
  return !row.cast && (std::ranges::count_if(row.x_types, IsCode) > 2 || row.out_types.count > 4);
}

// The types of x and the output that flags cannot say. They bring the elements of x if these are
// codes.
void ReadTypes(Reader& reader, const Clamp& clamp, Case& c) {
  if (reader.Byte() != kTypes) return;
  const OpRow& row = RowOf(c.op);
  const DType x = row.x_types.list[reader.Byte() % row.x_types.count];
  const DType out = row.out_types.list[reader.Byte() % row.out_types.count];
  if (HasFloatX(c)) return;
  if (IsCode(x)) c.x = Tensor(x, c.x.shape());
  c.out_dtype = KeepsType(c.op) ? c.x.dtype() : out;
  SetClamp(clamp, c);
  FitCase(&c);
  if (IsCode(x)) ReadElements(reader, c.x);
}

void ReadMx(Reader& reader, Case& c) {
  if (reader.Byte() != kMx) return;
  constexpr size_t kRules = CountOf<QParamsRule>() - kFirstMx;
  c.rule = static_cast<QParamsRule>(kFirstMx + reader.Byte() % kRules);
  c.observer = {.dtype = kMxElements.list[reader.Byte() % kMxElements.count]};
}

// The parameters that are lists. A cast has no zero points.
void ReadLists(Reader& reader, int64_t count, Case& c) {
  ForEachChannelQParams(c, [&](QParams& q) {
    q = ReadEntries(reader, count);
    if (RowOf(c.op).cast) std::ranges::fill(q.zero_point, 0);
  });
}

void WriteLists(Writer& writer, const Case& c) {
  ForEachChannelQParams(c, [&](const QParams& q) { WriteEntries(writer, q); });
}

void ReadElementBlocks(Reader& reader, Case& c) {
  if (reader.Byte() != kElementBlocks || c.per_channel || c.M == 0 || c.N == 0) return;
  c.x_block = 1 + reader.Byte() % kMaxBlock;
  c.relu = false;
  ReadLists(reader, c.M * ElementBlocks(c), c);
}

}  // namespace

std::vector<uint8_t> EncodeDraw(uint64_t seed, size_t size) {
  std::vector<uint8_t> bytes(kDraw.begin(), kDraw.end());
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<uint8_t>(seed >> (8 * i)));
  bytes.resize(std::max(size, kDrawBytes));
  return bytes;
}

std::optional<uint64_t> SeedIn(std::span<const uint8_t> bytes) {
  if (bytes.size() < kDrawBytes || !std::ranges::equal(bytes.first(kDraw.size()), kDraw)) {
    return std::nullopt;
  }
  uint64_t seed = 0;
  for (size_t i = kDrawBytes; i > kDraw.size(); --i) seed = seed << 8 | bytes[i - 1];
  return seed;
}

Case DecodeCase(Op op, std::span<const uint8_t> bytes) {
  if (const std::optional<uint64_t> seed = SeedIn(bytes)) return gen::Draw(op, *seed);
  Reader reader(bytes);
  const OpRow& row = RowOf(op);
  const Sizes limits = LimitsOf(op);
  Sizes sizes;
  sizes.m = reader.Dim(limits.m);
  sizes.n = reader.Dim(limits.n);
  sizes.k = reader.Dim(limits.k);
  const unsigned flags = reader.Byte();
  const unsigned form = reader.Byte();
  Case c;
  c.op = op;
  c.M = sizes.m;
  c.N = sizes.n;
  c.K = sizes.k;
  c.per_channel = (flags & kPerChannel) != 0;
  c.relu = (flags & kRelu) != 0;
  if ((form & kOtherRequant) == kOtherRequant) {
    c.requant = static_cast<Requant>((form >> kRequantShift) & 3);
  }
  c.window.ceil_mode = (form & kCeilMode) != 0;
  c.window.count_include_pad = (form & kCountIncludePad) != 0;
  DType x_dtype = XType(op, (flags & kOtherX) != 0);
  c.out_dtype = OutType(op, x_dtype, (flags >> kOutShift) & 3);
  Clamp clamp{.given = (form & kClamp) != 0};
  clamp.min = reader.Int();
  clamp.max = reader.Int();
  SetClamp(clamp, c);
  c.x_q = ReadQParams(reader);
  c.w_q = ReadQParams(reader);
  c.out_q = ReadQParams(reader);
  if (HasWindow(op)) ReadWindow(reader, sizes, c);
  ForEachOwnField(c, [&](auto& value) { Read(reader, value); });
  if (row.cast) {  // of more types than flags has room for
    for (QParams* q : {&c.x_q, &c.out_q}) {
      if (q->zero_point[0] != kScaled) *q = QParams{};
    }
    x_dtype = row.x_types.list[reader.Byte() % row.x_types.count];
    c.out_dtype = row.out_types.list[reader.Byte() % row.out_types.count];
    OpenClamp(&c);
  }

  // FitCase takes a size that no field holds from the shape of x.
  c.x = Tensor(x_dtype, {0});
  if (row.layout == Layout::kColumns) c.x = Tensor(x_dtype, {c.M, sizes.k});
  if (row.layout == Layout::kBatches) c.x = Tensor(x_dtype, {sizes.k, c.M, c.N});
  c.w = Tensor(kWeightCodes.list[(flags & kOtherW) != 0 ? 1 : 0], {0});
  const bool by_multiplier = row.multiplier && (form & kQuotient) == 0;
  if (by_multiplier) c.multiplier = c.w_q.scale;
  FitCase(&c);

  ReadElements(reader, c.x);
  ReadElements(reader, c.w);
  if (row.observer) FitCase(&c);  // not all values can be observed
  if (c.per_channel && HasChannelList(op)) {
    if (by_multiplier) {
      c.multiplier = ReadEntries(reader, c.N).scale;
    } else {
      ReadLists(reader, c.N, c);
    }
  }
  if (row.bias) ReadBias(reader, (flags >> kBiasShift) & 3, c);
  if (HasWeights(op)) ReadNarrowWeights(reader, c);
  if (row.blocks) ReadBlocks(reader, c);
  if (row.float_x) ReadFloatX(reader, c);
  if (HasMoreTypes(row)) ReadTypes(reader, clamp, c);
  if (row.x_blocks && !HasWeights(op)) ReadElementBlocks(reader, c);
  if (row.observer) ReadMx(reader, c);
  return c;
}

std::optional<std::vector<uint8_t>> EncodeCase(const Case& c) {
  if (!Validate(c).empty() || !IsSmall(c)) return std::nullopt;
  std::vector<uint8_t> bytes = EncodeFitted(c);
  // Rejects any case whose parameters have no place in the bytes.
  if (!(DecodeCase(c.op, bytes) == ProblemOf(c))) return std::nullopt;
  return bytes;
}

std::vector<uint8_t> EncodeFitted(const Case& c) {
  Case stored = slice::WithoutBlocks(c);
  const OpRow& row = RowOf(c.op);
  const bool said = c.x.dtype() == XType(c.op, false) || c.x.dtype() == XType(c.op, true);
  const bool wide_sum = HasSums(c.op) && IsWideCode(c.out_dtype);
  const bool typed =
      HasMoreTypes(row) && !HasFloatX(c) && (!said || wide_sum || IsSmallCode(c.out_dtype));
  if (HasFloatX(c)) stored.x = Tensor(row.x_types.front(), c.x.shape());
  if (typed && !said) stored.x = Reshaped(c.x, row.x_types.front(), c.x.shape());
  const bool by_multiplier = UsesMultiplier(c);
  if (by_multiplier) {
    stored.w_q.scale = c.multiplier;
    stored.w_q.zero_point.assign(c.multiplier.size(), 0);
  }
  if (c.function != Function::kLeakyRelu)
    stored.negative_slope = 0;  // the reader restores the default
  if (IsMx(c.rule)) {
    stored.rule = QParamsRule::kAten;
    stored.observer = {};
  }
  if (row.cast) {
    for (QParams* q : {&stored.x_q, &stored.out_q})
      q->zero_point.assign(q->scale.size(), q->scale != QParams{}.scale ? kScaled : 0);
  }
  Writer writer;
  const Sizes sizes = SizesOf(c), limits = LimitsOf(c.op);
  writer.Dim(sizes.m, limits.m);
  writer.Dim(sizes.n, limits.n);
  writer.Dim(sizes.k, limits.k);
  const DTypeList& outputs = IsWideCode(c.out_dtype) ? kWideCodes : kAnyOutput;
  const auto out = static_cast<unsigned>(std::ranges::find(outputs, c.out_dtype) - outputs.begin());
  unsigned flags = (row.cast || wide_sum || IsSmallCode(c.out_dtype) ? 0 : out) << kOutShift;
  if (c.per_channel) flags |= kPerChannel;
  if (c.relu) flags |= kRelu;
  if (c.bias) flags |= 1u << kBiasShift;
  if (c.bias_i32) flags |= 2u << kBiasShift;
  if (!row.cast && stored.x.dtype() != row.x_types.front()) flags |= kOtherX;
  const bool narrow = HasWeights(c.op) && BitsOf(c.w.dtype()) < 8;
  if (HasWeights(c.op) && c.w.dtype() == DType::kU8) flags |= kOtherW;
  writer.Byte(static_cast<uint8_t>(flags));
  const bool clamp = IsClamped(c);
  unsigned form = clamp ? kClamp : 0u;
  if (row.multiplier && !by_multiplier) form |= kQuotient;
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
  if (HasWindow(c.op)) WriteWindow(writer, c);
  ForEachOwnField(std::as_const(stored), [&](const auto& value) { Write(writer, value); });
  const auto place = [&](const DTypeList& types, DType dtype) {
    writer.Byte(static_cast<uint8_t>(std::ranges::find(types, dtype) - types.begin()));
  };
  if (row.cast) {
    place(row.x_types, c.x.dtype());
    place(row.out_types, c.out_dtype);
  }
  WriteElements(writer, stored.x);
  WriteElements(writer, narrow ? Reshaped(c.w, kWeightCodes.front(), c.w.shape()) : c.w);
  if (c.per_channel && HasChannelList(c.op)) WriteLists(writer, stored);
  if (c.bias) {
    for (const float value : *c.bias) writer.Word(BitsOf(value));
  }
  if (c.bias_i32) {
    for (const int32_t value : *c.bias_i32) writer.Int(value);
  }
  // A 0 stands for each part that is left out before another.
  int left_out = 0;
  const auto part = [&](bool has_place, bool present, uint8_t letter) {
    if (!has_place) return false;
    if (!present) {
      ++left_out;
      return false;
    }
    for (; left_out > 0; --left_out) writer.Byte(0);
    writer.Byte(letter);
    return true;
  };
  if (part(HasWeights(c.op), narrow, kNarrowWeights)) {
    for (const char letter : Name(c.w.dtype())) writer.Byte(static_cast<uint8_t>(letter));
  }
  if (part(row.blocks, c.w_block != 0, c.x_block == 0 ? kBlocks : kBothBlocks)) {
    writer.Byte(static_cast<uint8_t>(c.w_block - 1));
    WriteEntries(writer, c.w_q);
    if (c.x_block != 0) WriteEntries(writer, c.x_q);
  }
  if (part(row.float_x, HasFloatX(c), kFloatX)) {
    for (const float value : c.x.as<float>()) writer.Word(BitsOf(value));
  }
  if (part(HasMoreTypes(row), typed, kTypes)) {
    place(row.x_types, c.x.dtype());
    place(row.out_types, c.out_dtype);
    if (IsCode(c.x.dtype())) WriteElements(writer, c.x);
  }
  if (part(row.x_blocks && !HasWeights(c.op), HasElementBlocks(c), kElementBlocks)) {
    writer.Byte(static_cast<uint8_t>(c.x_block - 1));
    WriteLists(writer, c);
  }
  if (part(row.observer, IsMx(c.rule), kMx)) {
    writer.Byte(static_cast<uint8_t>(static_cast<uint8_t>(c.rule) - kFirstMx));
    place(kMxElements, c.observer.dtype);
  }
  return writer.Take();
}

}  // namespace qualm::fuzz
