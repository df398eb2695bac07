// SPDX-License-Identifier: Apache-2.0
// Second half of the case reader: typed fields -> Case, with every rule that depends on the op.
#include "core/io/case_json.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <vector>

#include "core/io/case_fields.h"
#include "core/io/json_text.h"
#include "core/status.h"

namespace qualm {
namespace {

constexpr uint64_t Bit(CaseKey key) { return uint64_t{1} << static_cast<unsigned>(key); }
constexpr uint64_t Bits(std::initializer_list<CaseKey> keys) {
  uint64_t bits = 0;
  for (const CaseKey key : keys) bits |= Bit(key);
  return bits;
}

using enum CaseKey;

constexpr uint64_t kCommonKeys =
    Bits({kVersion, kOp, kProperty, kNote, kM, kN, kGran, kXDType, kOutDType, kXShape, kX,
          kExpected, kObserved, kObservedBy, kObservedY});

// Keys an op has beyond the common ones.
constexpr uint64_t KeysOf(Op op) {
  switch (op) {
    case Op::kQuantize: return kCommonKeys | Bits({kOutScale, kOutZp, kRelu, kOutMin, kOutMax});
    case Op::kDequantize: return kCommonKeys | Bits({kXScale, kXZp});
    case Op::kRequantize:
      return kCommonKeys | Bits({kMultiplier, kXScale, kXZp, kWScale, kWZp, kOutScale, kOutZp,
                                 kRelu, kOutMin, kOutMax, kRequant});
    case Op::kLinear:
      return kCommonKeys | Bits({kK, kWDType, kXScale, kXZp, kWScale, kWZp, kOutScale, kOutZp,
                                 kBias, kBiasI32, kRelu, kOutMin, kOutMax, kRequant, kWShape, kW});
    default: return 0;  // not listed: no keys
  }
}

std::string Span(CodeRange range) {
  return std::to_string(range.min) + ".." + std::to_string(range.max);
}

class Builder {
 public:
  Builder(const CaseFields& fields, std::string_view name) : fields_(fields), name_(name) {}

  Case Build() {
    CheckVersion();
    c_.op = ReadOp();
    CheckKeysBelong();
    ReadTypes();
    c_.per_channel = ReadChoice(kGran, {"tensor", "channel"}, "tensor") == "channel";
    c_.M = ReadDim(kM);
    c_.N = ReadDim(kN);
    if (c_.op == Op::kLinear) c_.K = ReadDim(kK);
    ReadOperands();
    ReadQParams();
    ReadBias();
    ReadPostOp();
    ReadRemarks();
    if (const std::string error = Validate(c_); !error.empty()) {
      throw InputError(OneLine(name_) + ": " + error);
    }
    return std::move(c_);
  }

 private:
  [[noreturn]] void Fail(CaseKey key, std::string_view what) const { Fail(FieldName(key), what); }
  [[noreturn]] void Fail(std::string_view field, std::string_view what) const {
    FailCase(name_, field, what);
  }

  bool Has(CaseKey key) const { return fields_.at(key).present(); }

  const CaseValue& Need(CaseKey key) const {
    if (!Has(key)) {
      Fail(key, key == kVersion || key == kOp ? "is missing, expected it in every case"
                : key == kObservedBy || key == kObservedY
                    ? "is missing, expected it inside observed"
                    : "is missing, expected it for op " + std::string(Name(c_.op)));
    }
    return fields_.at(key);
  }

  void CheckVersion() const {
    const CaseValue& version = Need(kVersion);
    if (version.ints != std::vector<int32_t>{kCaseFormatVersion}) {
      Fail(kVersion, "is a version this reader does not know, expected " +
                         std::to_string(kCaseFormatVersion));
    }
  }

  Op ReadOp() const {
    const std::string& text = Need(kOp).text;
    if (const std::optional<Op> op = ParseOp(text)) return *op;
    std::string known;
    for (const Op op : AllOps()) known += (known.empty() ? "" : ", ") + std::string(Name(op));
    Fail(kOp, Shown(text) + " is not an operation, expected one of " + known);
  }

  void CheckKeysBelong() const {
    for (size_t i = 0; i < kCaseKeys; ++i) {
      const auto key = static_cast<CaseKey>(i);
      if (Has(key) && (KeysOf(c_.op) & Bit(key)) == 0) {
        Fail(key, "does not belong to op " + std::string(Name(c_.op)) + ", expected no such key");
      }
    }
  }

  std::string ReadChoice(CaseKey key, std::initializer_list<std::string_view> choices,
                         std::string_view otherwise) const {
    if (!Has(key)) return std::string(otherwise);
    const std::string& text = fields_.at(key).text;
    std::string known;
    for (const std::string_view choice : choices) {
      if (text == choice) return text;
      known += (known.empty() ? "" : " or ") + std::string(choice);
    }
    Fail(key, "is " + Shown(text) + ", expected " + known);
  }

  DType ReadDType(CaseKey key, std::initializer_list<std::string_view> choices) const {
    return *ParseDType(ReadChoice(key, choices, *choices.begin()));
  }

  // The first choice is the default.
  void ReadTypes() {
    switch (c_.op) {
      case Op::kQuantize:
        x_dtype_ = ReadDType(kXDType, {"f32"});
        c_.out_dtype = ReadDType(kOutDType, {"u8", "s8"});
        break;
      case Op::kDequantize:
        x_dtype_ = ReadDType(kXDType, {"u8", "s8"});
        c_.out_dtype = ReadDType(kOutDType, {"f32"});
        break;
      case Op::kRequantize:
        x_dtype_ = ReadDType(kXDType, {"s32"});
        c_.out_dtype = ReadDType(kOutDType, {"u8", "s8"});
        break;
      case Op::kLinear:
        x_dtype_ = ReadDType(kXDType, {"u8", "s8"});
        w_dtype_ = ReadDType(kWDType, {"s8", "u8"});
        c_.out_dtype = ReadDType(kOutDType, {"u8", "s8", "s32", "f32"});
        break;
      default: QUALM_CHECK(IsListed(c_.op));  // ParseOp leaves no other
    }
  }

  int64_t ReadDim(CaseKey key) const {
    const CaseValue& value = Need(key);
    if (!value.is_wide || value.wide < 0 || value.wide > kMaxElements) {
      Fail(key, "is " + NumberText(value) + ", expected an integer in 0.." +
                    std::to_string(kMaxElements));
    }
    return value.wide;
  }

  static std::string NumberText(const CaseValue& value) {
    return value.first_real >= 0 ? value.first_real_text : std::to_string(value.ints.front());
  }

  // The integers of a scalar or list, each inside `range`.
  std::vector<int32_t> Ints(CaseKey key, CodeRange range, std::string_view what) const {
    const CaseValue& value = fields_.at(key);
    const auto place = [&](size_t i) {
      std::string field(FieldName(key));
      if (value.type == CaseValue::Type::kList) field += "[" + std::to_string(i) + "]";
      return field;
    };
    const auto wrong = [&](size_t i, const std::string& got) {
      Fail(place(i), "is " + got + ", expected " + std::string(what) + " (an integer in " +
                         Span(range) + ")");
    };
    if (value.first_real >= 0) {
      wrong(static_cast<size_t>(value.first_real), value.first_real_text);
    }
    for (size_t i = 0; i < value.ints.size(); ++i) {
      if (value.ints[i] < range.min || value.ints[i] > range.max) {
        wrong(i, std::to_string(value.ints[i]));
      }
    }
    return value.ints;
  }

  std::vector<float> Floats(CaseKey key) const {
    const CaseValue& value = fields_.at(key);
    if (value.first_real >= 0) return value.floats;
    // int32 -> float32 rounds once, to nearest.
    return {value.ints.begin(), value.ints.end()};
  }

  // Data of the key as a tensor. Nothing is allocated before the claimed shape has been compared
  // with the number of values that are really there.
  Tensor ReadTensor(CaseKey key, DType dtype, std::vector<int64_t> shape) const {
    const CaseValue& value = Need(key);
    const int64_t want = ElementCount(shape, kMaxElements);
    const std::string dims = "[" + std::to_string(shape[0]) + "," + std::to_string(shape[1]) + "]";
    if (want < 0) {
      Fail(key, "would have shape " + dims + ", expected at most " + std::to_string(kMaxElements) +
                    " elements");
    }
    if (value.size() != want) {
      Fail(key, "has " + std::to_string(value.size()) + " values, expected " +
                    std::to_string(want) + " for shape " + dims);
    }
    if (dtype == DType::kF32) return Tensor::Of<float>(std::move(shape), Floats(key));
    const std::vector<int32_t> codes =
        Ints(key, RangeOf(dtype), std::string(Name(dtype)) + " values");
    if (dtype == DType::kS32) return Tensor::Of<int32_t>(std::move(shape), codes);
    Tensor tensor(dtype, std::move(shape));
    for (size_t i = 0; i < codes.size(); ++i) tensor.bytes()[i] = static_cast<uint8_t>(codes[i]);
    return tensor;
  }

  void CheckShape(CaseKey key, const std::vector<int64_t>& shape) const {
    if (!Has(key)) return;
    const std::vector<int32_t> claimed = Ints(key, {0, INT32_MAX}, "dimensions");
    if (std::vector<int64_t>(claimed.begin(), claimed.end()) != shape) {
      Fail(key, "does not match the dimensions, expected [" + std::to_string(shape[0]) + "," +
                    std::to_string(shape[1]) + "]");
    }
  }

  void ReadOperands() {
    const bool linear = c_.op == Op::kLinear;
    const std::vector<int64_t> x_shape = {c_.M, linear ? c_.K : c_.N};
    CheckShape(kXShape, x_shape);
    c_.x = ReadTensor(kX, x_dtype_, x_shape);
    if (linear) {
      CheckShape(kWShape, {c_.N, c_.K});
      c_.w = ReadTensor(kW, w_dtype_, {c_.N, c_.K});
    }
    const int64_t outputs = ElementCount(c_.output_shape(), kMaxElements);
    if (outputs < 0) {
      Fail(kM,
           "times N is too large, expected at most " + std::to_string(kMaxElements) + " outputs");
    }
    // Dimensions that no data backs are mere claims.
    if (c_.x.empty() && c_.w.empty()) {
      for (const CaseKey key : {kM, kN, kK}) {
        if (Has(key) && ReadDim(key) > kMaxUnbacked) {
          Fail(key, "is too large for a case without data, expected at most " +
                        std::to_string(kMaxUnbacked));
        }
      }
      if (outputs > kMaxUnbacked) {
        Fail(kM, "times N is too large for a case without data, expected at most " +
                     std::to_string(kMaxUnbacked));
      }
    }
  }

  void ReadScale(CaseKey key, std::vector<float>& scale) const {
    Need(key);
    scale = Floats(key);
  }
  void ReadZeroPoint(CaseKey key, std::vector<int32_t>& zero_point) const {
    Need(key);
    zero_point = Ints(key, RangeOf(DType::kS32), "zero points");
  }

  void ReadQParams() {
    switch (c_.op) {
      case Op::kQuantize:
        ReadScale(kOutScale, c_.out_q.scale);
        ReadZeroPoint(kOutZp, c_.out_q.zero_point);
        break;
      case Op::kDequantize:
        ReadScale(kXScale, c_.x_q.scale);
        ReadZeroPoint(kXZp, c_.x_q.zero_point);
        break;
      case Op::kRequantize: ReadRequantizeQParams(); break;
      case Op::kLinear:
        // An s32 output has no scales and no zero point of its own, an f32 output no qparams.
        if (c_.out_dtype != DType::kS32 || Has(kXScale)) ReadScale(kXScale, c_.x_q.scale);
        if (c_.out_dtype != DType::kS32 || Has(kWScale) || c_.per_channel) {
          ReadScale(kWScale, c_.w_q.scale);
        }
        ReadZeroPoint(kXZp, c_.x_q.zero_point);
        ReadZeroPoint(kWZp, c_.w_q.zero_point);
        if (IsCode(c_.out_dtype) || Has(kOutScale)) ReadScale(kOutScale, c_.out_q.scale);
        if (IsCode(c_.out_dtype) || Has(kOutZp)) ReadZeroPoint(kOutZp, c_.out_q.zero_point);
        break;
      default: QUALM_CHECK(IsListed(c_.op));
    }
  }

  // A multiplier, or the scales whose quotient it is.
  void ReadRequantizeQParams() {
    ReadZeroPoint(kOutZp, c_.out_q.zero_point);
    if (Has(kMultiplier)) {
      for (const CaseKey key : {kXScale, kXZp, kWScale, kWZp}) {
        if (Has(key)) Fail(key, "is given beside multiplier, expected one of the two forms");
      }
      ReadScale(kMultiplier, c_.multiplier);
      if (c_.multiplier.empty() && !(c_.per_channel && c_.N == 0)) {
        Fail(kMultiplier, "has 0 entries, expected one, or one per channel");
      }
      if (Has(kOutScale)) ReadScale(kOutScale, c_.out_q.scale);
      return;
    }
    if (!Has(kXScale) && !Has(kWScale)) {
      Fail(kMultiplier, "is missing, expected it or x_scale, w_scale and out_scale");
    }
    ReadScale(kXScale, c_.x_q.scale);
    ReadScale(kWScale, c_.w_q.scale);
    ReadScale(kOutScale, c_.out_q.scale);
    if (Has(kXZp)) ReadZeroPoint(kXZp, c_.x_q.zero_point);
    // As many entries as there are scales, which the file really holds.
    c_.w_q.zero_point.assign(c_.w_q.scale.size(), 0);
    if (Has(kWZp)) ReadZeroPoint(kWZp, c_.w_q.zero_point);
  }

  void ReadBias() {
    if (fields_.at(kBias).type == CaseValue::Type::kList) c_.bias = Floats(kBias);
    if (fields_.at(kBiasI32).type == CaseValue::Type::kList) {
      c_.bias_i32 = Ints(kBiasI32, RangeOf(DType::kS32), "int32 values");
    }
  }

  void ReadPostOp() {
    const CaseValue& relu = fields_.at(kRelu);
    if (relu.type == CaseValue::Type::kBool) {
      c_.relu = relu.boolean;
    } else if (relu.type == CaseValue::Type::kNumber) {
      c_.relu = Ints(kRelu, {0, 1}, "true, false, 0 or 1").front() == 1;
    }
    const CodeRange range = RangeOf(c_.out_dtype);
    c_.out_min = ReadClamp(kOutMin, range.min);
    c_.out_max = ReadClamp(kOutMax, range.max);
    ReadChoice(kRequant, {"exact"}, "exact");
  }

  int32_t ReadClamp(CaseKey key, int32_t otherwise) const {
    if (!Has(key)) return otherwise;
    if (c_.out_dtype == DType::kF32) Fail(key, "an f32 output has no clamp, expected no such key");
    return Ints(key, RangeOf(c_.out_dtype), std::string(Name(c_.out_dtype)) + " values").front();
  }

  void ReadRemarks() {
    c_.property = fields_.at(kProperty).text;
    c_.note = fields_.at(kNote).text;
    if (Has(kExpected)) c_.expected = ReadTensor(kExpected, c_.out_dtype, c_.output_shape());
    if (Has(kObserved)) {
      c_.observed =
          Observed{Need(kObservedBy).text, ReadTensor(kObservedY, c_.out_dtype, c_.output_shape())};
    }
  }

  // Enough for any degenerate shape worth testing; see ReadOperands.
  static constexpr int64_t kMaxUnbacked = int64_t{1} << 20;

  const CaseFields& fields_;
  std::string_view name_;
  DType x_dtype_ = DType::kU8;
  DType w_dtype_ = DType::kU8;
  Case c_;
};

[[noreturn]] void TooLong(std::string_view name) {
  FailCase(name, "file",
           "is longer than " + std::to_string(kMaxCaseBytes) + " bytes, expected a shorter case");
}

}  // namespace

Case ParseCase(std::string_view text, std::string_view name) {
  if (text.size() > kMaxCaseBytes) TooLong(name);
  const CaseFields fields = ScanCase(text, name);
  return Builder(fields, name).Build();
}

Case ReadCaseFile(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    FailCase(path, "file", "is a directory, expected a case file");
  }
  // A file that says it is too long is not read at all; a pipe says nothing.
  const uintmax_t size = std::filesystem::file_size(path, ignored);
  if (!ignored && size > kMaxCaseBytes) TooLong(path);
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) {
    FailCase(path, "file",
             std::string("cannot be opened (") + std::strerror(errno) +
                 "), expected a readable case file");
  }
  // Piece by piece: a size may also change under us. A short piece is the last one, and ParseCase
  // says what is too long.
  std::string text;
  std::vector<char> piece(size_t{1} << 16);
  size_t count = piece.size();
  while (count == piece.size() && text.size() <= kMaxCaseBytes && std::ferror(file.get()) == 0) {
    count = std::fread(piece.data(), 1, piece.size(), file.get());
    text.append(piece.data(), count);
  }
  if (std::ferror(file.get()) != 0) {
    FailCase(path, "file", "cannot be read to its end, expected a readable case file");
  }
  return ParseCase(text, path);
}

}  // namespace qualm
