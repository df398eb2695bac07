// SPDX-License-Identifier: Apache-2.0
// Second half of the case reader: typed fields -> Case, with every rule that depends on the op.
#include "core/io/case_json.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/io/case_fields.h"
#include "core/io/case_keys.h"
#include "core/io/json_text.h"
#include "core/io/text_file.h"
#include "core/limits.h"
#include "core/status.h"

namespace qualm {
namespace {

using enum CaseKey;

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
    ReadSizes();
    ReadOperands();
    ReadQParams();
    ReadBias();
    ReadPostOp();
    ReadFunction();
    ReadObserver();
    ReadRemarks();
    if (const std::string error = Validate(c_); !error.empty()) {
      throw InputError(OneLine(name_) + ": " + InWordsOfTheFile(error));
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
      if (Has(key) && !HasKey(c_.op, key)) {
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
        return;
      case Op::kDequantize:
        x_dtype_ = ReadDType(kXDType, {"u8", "s8"});
        c_.out_dtype = ReadDType(kOutDType, {"f32"});
        return;
      case Op::kRequantize:
        x_dtype_ = ReadDType(kXDType, {"s32"});
        c_.out_dtype = ReadDType(kOutDType, {"u8", "s8"});
        return;
      case Op::kLinear:
      case Op::kConv2d:
      case Op::kDepthwise:
        x_dtype_ = ReadDType(kXDType, {"u8", "s8"});
        w_dtype_ = ReadDType(kWDType, {"s8", "u8"});
        c_.out_dtype = ReadDType(kOutDType, {"u8", "s8", "s32", "f32"});
        return;
      case Op::kAdd:
      case Op::kMul:
      case Op::kConcat:
      case Op::kRescale:
      case Op::kTable:
      case Op::kAvgPool:
      case Op::kGlobalAvgPool:
        x_dtype_ = w_dtype_ = ReadDType(kXDType, {"u8", "s8"});
        c_.out_dtype = ReadDType(kOutDType, {"u8", "s8"});
        return;
      case Op::kMaxPool:
      case Op::kSoftmax:
        x_dtype_ = ReadDType(kXDType, {"u8", "s8"});
        c_.out_dtype = ReadDType(kOutDType, {Name(x_dtype_)});
        return;
      case Op::kChooseQParams:
        x_dtype_ = ReadDType(kXDType, {"f32"});
        c_.out_dtype = ReadDType(kOutDType, {"f32"});
        return;
    }
  }

  int64_t ReadInteger(CaseKey key, int64_t least, int64_t most) const {
    const CaseValue& value = Need(key);
    if (!value.is_wide || value.wide < least || value.wide > most) {
      Fail(key, "is " + NumberText(value) + ", expected an integer in " + std::to_string(least) +
                    ".." + std::to_string(most));
    }
    return value.wide;
  }
  int64_t ReadDim(CaseKey key) const { return ReadInteger(key, 0, kMaxElements); }

  bool ReadFlag(CaseKey key) const {
    const CaseValue& value = fields_.at(key);
    if (value.type == CaseValue::Type::kBool) return value.boolean;
    return value.present() && Ints(key, {0, 1}, "true, false, 0 or 1").front() == 1;
  }

  // `count` integers, or as many of the default.
  std::vector<int32_t> ReadTuple(CaseKey key, size_t count, int32_t least) const {
    if (!Has(key)) return std::vector<int32_t>(count, least);
    const std::vector<int32_t> values =
        Ints(key, {least, static_cast<int32_t>(kMaxWindow)}, "elements");
    if (values.size() != count) {
      Fail(key,
           "has " + std::to_string(values.size()) + " entries, expected " + std::to_string(count));
    }
    return values;
  }

  void ReadSizes() {
    if (HasWindow(c_.op)) return ReadWindow();
    c_.M = ReadDim(kM);
    if (c_.op == Op::kConcat) {
      x_columns_ = ReadDim(kNA);
      w_columns_ = ReadDim(kNB);
      c_.N = x_columns_ + w_columns_;
      return;
    }
    c_.N = x_columns_ = w_columns_ = ReadDim(kN);
    if (c_.op == Op::kLinear) c_.K = x_columns_ = w_columns_ = ReadDim(kK);
    if (c_.op == Op::kChooseQParams) batches_ = ReadDim(kBatches);
  }

  // Every number is bounded before M and K are derived from it, so that no product overflows.
  void ReadWindow() {
    Window& v = c_.window;
    const bool conv = IsConv(c_.op);
    const bool global = c_.op == Op::kGlobalAvgPool;
    v.batch = ReadInteger(kN, 0, kMaxWindow);
    v.in_h = ReadInteger(kH, 0, kMaxWindow);
    v.in_w = ReadInteger(kWidth, 0, kMaxWindow);
    v.in_c = ReadInteger(conv ? kIC : kC, 0, kMaxWindow);
    c_.N = conv ? ReadInteger(kOC, 0, kMaxWindow) : v.in_c;
    // The whole image, if there is one.
    v.kernel_h = global ? std::max<int64_t>(v.in_h, 1) : ReadInteger(kR, 1, kMaxWindow);
    v.kernel_w = global ? std::max<int64_t>(v.in_w, 1) : ReadInteger(kS, 1, kMaxWindow);
    const std::vector<int32_t> stride = ReadTuple(kStride, 2, 1);
    const std::vector<int32_t> pad = ReadTuple(kPad, 4, 0);
    const std::vector<int32_t> dilation = ReadTuple(kDilation, 2, 1);
    v.stride_h = stride[0];
    v.stride_w = stride[1];
    v.pad_top = pad[0];
    v.pad_bottom = pad[1];
    v.pad_left = pad[2];
    v.pad_right = pad[3];
    v.dilation_h = dilation[0];
    v.dilation_w = dilation[1];
    v.ceil_mode = ReadFlag(kCeilMode);
    v.count_include_pad = ReadFlag(kCountIncludePad);
    if (c_.op == Op::kDepthwise) {
      if (v.in_c == 0) Fail(kIC, "is 0, expected at least one channel of a depthwise convolution");
      v.groups = v.in_c;
      if (Has(kGroups)) ReadInteger(kGroups, v.in_c, v.in_c);
    } else if (Has(kGroups)) {
      v.groups = ReadInteger(kGroups, 1, kMaxWindow);
    }
    if (conv && (v.in_c % v.groups != 0 || c_.N % v.groups != 0)) {
      Fail(kGroups, "is " + std::to_string(v.groups) + ", expected a divisor of IC and of OC");
    }
    const int64_t pixels = ElementCount(std::vector{v.batch, v.out_h(), v.out_w()}, kMaxOutputs);
    const int64_t values = ElementCount(std::vector{pixels, c_.N}, kMaxOutputs);
    // Pixels without channels, which no data backs, are bounded as such.
    if (pixels < 0 || values < 0) FailOutputs(kMaxOutputs, "");
    if (c_.N == 0 && pixels > kMaxUnbacked) FailOutputs(kMaxUnbacked, " for no channels");
    // Neither does data back the window of a pool, nor the weights of no output.
    const bool backed = conv ? c_.N != 0 : global && v.in_c * v.batch != 0;
    DeriveSizes(&c_);
    if (!backed && c_.K > kMaxUnbacked) {
      Fail(global ? kH : kR, "makes windows too large for what no data backs, expected at most " +
                                 std::to_string(kMaxUnbacked) + " terms");
    }
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
    const std::string dims = Dims(shape);
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
      Fail(key, "does not match the dimensions, expected " + Dims(shape));
    }
  }

  static std::string Dims(const std::vector<int64_t>& shape) {
    std::string text;
    for (const int64_t dim : shape) text += (text.empty() ? "[" : ",") + std::to_string(dim);
    return text + "]";
  }

  std::vector<int64_t> XShape() const {
    const Window& v = c_.window;
    if (HasWindow(c_.op)) return {v.batch, v.in_h, v.in_w, v.in_c};
    if (c_.op == Op::kChooseQParams) return {batches_, c_.M, c_.N};
    return {c_.M, x_columns_};
  }
  std::vector<int64_t> WShape() const {
    const Window& v = c_.window;
    if (IsConv(c_.op)) return {c_.N, v.kernel_h, v.kernel_w, v.in_c / v.groups};
    return {c_.op == Op::kLinear ? c_.N : c_.M, w_columns_};
  }

  void ReadOperands() {
    const OperandKeys keys = OperandKeysOf(c_.op);
    CheckShape(kXShape, XShape());
    c_.x = ReadTensor(keys.x, x_dtype_, XShape());
    if (HasKey(c_.op, keys.w)) {
      CheckShape(kWShape, WShape());
      c_.w = ReadTensor(keys.w, w_dtype_, WShape());
    }
    // Outputs of sums and windows are many where the data are few; the others are as many as x.
    const int64_t most = HasSums(c_.op) || HasWindow(c_.op) ? kMaxOutputs : kMaxElements;
    const int64_t outputs = ElementCount(c_.output_shape(), most);
    if (outputs < 0) FailOutputs(most, "");
    // Dimensions that no data backs are mere claims.
    if (c_.x.empty() && c_.w.empty()) {
      for (const CaseKey key : {kM, kN, kK, kNA, kNB, kBatches}) {
        if (Has(key) && ReadDim(key) > kMaxUnbacked) {
          Fail(key, "is too large for a case without data, expected at most " +
                        std::to_string(kMaxUnbacked));
        }
      }
      if (outputs > kMaxUnbacked) FailOutputs(kMaxUnbacked, " for a case without data");
    }
    if (ElementCount(std::vector{outputs, c_.K}, kMaxProducts) < 0) {
      Fail(!HasWindow(c_.op)             ? kK
           : c_.op == Op::kGlobalAvgPool ? kH
                                         : kR,
           "makes " + std::to_string(outputs) + " outputs of " + std::to_string(c_.K) +
               " terms each, expected at most " + std::to_string(kMaxProducts) + " in all");
    }
    if (!HasWindow(c_.op)) return;
    const Window& v = c_.window;
    const int64_t pixels = v.batch * v.out_h() * v.out_w(), taps = v.kernel_h * v.kernel_w;
    if (ElementCount(std::vector{pixels, taps}, kMaxTaps) < 0) {
      Fail(c_.op == Op::kGlobalAvgPool ? kH : kR,
           "makes " + std::to_string(pixels) + " output pixels of " + std::to_string(taps) +
               " taps each, expected at most " + std::to_string(kMaxTaps) + " in all");
    }
  }

  [[noreturn]] void FailOutputs(int64_t most, std::string_view where) const {
    const bool window = HasWindow(c_.op);
    Fail(window ? kN : kM, (window                 ? "times OH times OW times the channels"
                            : c_.op == Op::kConcat ? "times NA + NB"
                                                   : "times N") +
                               std::string(" is too large") + std::string(where) +
                               ", expected at most " + std::to_string(most) + " outputs");
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
    const OperandKeys keys = OperandKeysOf(c_.op);
    switch (c_.op) {
      case Op::kQuantize: ReadOutQParams(); return;
      case Op::kDequantize:
        ReadScale(kXScale, c_.x_q.scale);
        ReadZeroPoint(kXZp, c_.x_q.zero_point);
        return;
      case Op::kRequantize: ReadRequantizeQParams(); return;
      case Op::kLinear:
      case Op::kConv2d:
      case Op::kDepthwise:
        // An s32 output has no scales and no zero point of its own, an f32 output no qparams.
        if (c_.out_dtype != DType::kS32 || Has(kXScale)) ReadScale(kXScale, c_.x_q.scale);
        if (c_.out_dtype != DType::kS32 || Has(kWScale) || c_.per_channel) {
          ReadScale(kWScale, c_.w_q.scale);
        }
        ReadZeroPoint(kXZp, c_.x_q.zero_point);
        ReadZeroPoint(kWZp, c_.w_q.zero_point);
        if (IsCode(c_.out_dtype) || Has(kOutScale)) ReadScale(kOutScale, c_.out_q.scale);
        if (IsCode(c_.out_dtype) || Has(kOutZp)) ReadZeroPoint(kOutZp, c_.out_q.zero_point);
        return;
      case Op::kAdd:
      case Op::kMul:
      case Op::kConcat:
        ReadScale(keys.w_scale, c_.w_q.scale);
        ReadZeroPoint(keys.w_zp, c_.w_q.zero_point);
        [[fallthrough]];
      case Op::kRescale:
      case Op::kTable:
      case Op::kAvgPool:
      case Op::kGlobalAvgPool:
        ReadScale(keys.x_scale, c_.x_q.scale);
        ReadZeroPoint(keys.x_zp, c_.x_q.zero_point);
        ReadOutQParams();
        return;
      case Op::kMaxPool:
      case Op::kSoftmax:
        ReadScale(kXScale, c_.x_q.scale);
        ReadZeroPoint(kXZp, c_.x_q.zero_point);
        c_.out_q = c_.op == Op::kMaxPool ? c_.x_q : QParams{{0x1p-8f}, {RangeOf(x_dtype_).min}};
        return;
      case Op::kChooseQParams: return;
    }
  }

  void ReadOutQParams() {
    ReadScale(kOutScale, c_.out_q.scale);
    ReadZeroPoint(kOutZp, c_.out_q.zero_point);
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
    c_.relu = ReadFlag(kRelu);
    const CodeRange range = RangeOf(c_.out_dtype);
    c_.out_min = ReadClamp(kOutMin, range.min);
    c_.out_max = ReadClamp(kOutMax, range.max);
    c_.requant = *ParseRequant(
        ReadChoice(kRequant, {"exact", "float32", "fixed_q31", "fixed_rndnu"}, "exact"));
  }

  void ReadFunction() {
    if (c_.op != Op::kTable) return;
    Need(kFunction);
    c_.function = *ParseFunction(
        ReadChoice(kFunction, {"relu", "leaky_relu", "hardswish", "sigmoid", "tanh"}, ""));
    if (!Has(kNegativeSlope)) return;
    if (c_.function != Function::kLeakyRelu) {
      Fail(kNegativeSlope, "does not belong to this function, expected it for leaky_relu only");
    }
    c_.negative_slope = Floats(kNegativeSlope).front();
  }

  void ReadObserver() {
    if (c_.op != Op::kChooseQParams) return;
    Observer& o = c_.observer;
    Need(kObserver);
    o.kind =
        *ParseObserverKind(ReadChoice(kObserver, {"min_max", "moving_average", "histogram"}, ""));
    o.symmetric = ReadFlag(kSymmetric);
    o.reduce_range = ReadFlag(kReduceRange);
    o.dtype = ReadDType(kDType, {"u8", "s8"});
    const CodeRange range = RangeOf(o.dtype);
    const auto bound = [&](CaseKey key, int32_t otherwise) {
      if (!Has(key)) return otherwise;
      return Ints(key, range, std::string(Name(o.dtype)) + " values").front();
    };
    o.quant_min = bound(kQuantMin, range.min);
    o.quant_max = bound(kQuantMax, range.max);
    if (Has(kAveragingConstant)) o.averaging_constant = Floats(kAveragingConstant).front();
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

  // Validate speaks of x and w; a file of two operands calls them a and b.
  std::string InWordsOfTheFile(std::string error) const {
    const OperandKeys keys = OperandKeysOf(c_.op);
    for (const auto& [inside, outside] : {std::pair{kX, keys.x},
                                          {kXScale, keys.x_scale},
                                          {kXZp, keys.x_zp},
                                          {kW, keys.w},
                                          {kWScale, keys.w_scale},
                                          {kWZp, keys.w_zp}}) {
      const std::string field = std::string(FieldName(inside)) + ":";
      if (!error.starts_with(field)) continue;
      return std::string(FieldName(outside)) + error.substr(field.size() - 1);
    }
    return error;
  }

  // Enough for any degenerate shape worth testing; see ReadOperands.
  static constexpr int64_t kMaxUnbacked = int64_t{1} << 20;
  // Each number of a window, so that no product of three of them overflows.
  static constexpr int64_t kMaxWindow = int64_t{1} << 20;

  const CaseFields& fields_;
  std::string_view name_;
  DType x_dtype_ = DType::kU8;
  DType w_dtype_ = DType::kU8;
  int64_t x_columns_ = 0, w_columns_ = 0;  // of operands that are matrices
  int64_t batches_ = 0;                    // choose_qparams
  Case c_;
};

constexpr std::string_view kNoun = "case";

}  // namespace

Case ParseCase(std::string_view text, std::string_view name) {
  CheckLength(text, name, kNoun, kMaxCaseBytes);
  const CaseFields fields = ScanCase(text, name);
  return Builder(fields, name).Build();
}

Case ReadCaseFile(const std::string& path) {
  return ParseCase(ReadTextFile(path, kNoun, kMaxCaseBytes), path);
}

}  // namespace qualm
