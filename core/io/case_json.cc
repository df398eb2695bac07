// SPDX-License-Identifier: Apache-2.0
// Second half of the case reader: typed fields -> Case, with every rule that depends on the op.
#include "core/io/case_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/contract.h"
#include "core/finding_kind.h"
#include "core/float_format.h"
#include "core/float_text.h"
#include "core/io/arrays.h"
#include "core/io/case_fields.h"
#include "core/io/case_keys.h"
#include "core/io/json_text.h"
#include "core/io/npy.h"
#include "core/io/text_file.h"
#include "core/limits.h"
#include "core/status.h"

namespace qualm {
namespace {

using enum CaseKey;

std::string Span(CodeRange range) {
  return std::to_string(range.min) + ".." + std::to_string(range.max);
}

constexpr std::array<std::string_view, 2> kGranularities{"tensor", "channel"};

class Builder {
 public:
  Builder(CaseFields fields, std::string_view name, const CaseReading& reading)
      : fields_(std::move(fields)), name_(name), reading_(reading) {}

  Case Build() {
    CheckVersion();
    c_.op = ReadOp();
    CheckKeysBelong();
    TakeUnknown();
    ReadFiles();
    ReadTypes();
    c_.per_channel = ReadChoice(kGran, kGranularities, "tensor") == "channel";
    ReadSizes();
    ReadOperands();
    ReadQParams();
    ReadBias();
    ReadClamp();
    ReadParameters();
    FillCastScales();
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
                : key >= kObservedBy
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

  void TakeUnknown() const {
    for (size_t i = 0; i < kCaseKeys; ++i) {
      const auto key = static_cast<CaseKey>(i);
      for (const int64_t index : fields_.at(key).unknown) {
        if (reading_.unknown == nullptr)
          Fail(key, "is unknown (\"?\"), expected a number; qualm identify --solve looks for it");
        reading_.unknown->push_back({std::string(FieldName(key)), index});
      }
    }
  }

  // The arrays that stand beside the file.
  void ReadFiles() {
    constexpr size_t kHeader = 1 << 16;
    for (size_t i = 0; i < kCaseKeys; ++i) {
      const auto key = static_cast<CaseKey>(i);
      CaseValue& value = fields_.at(key);
      if (value.file.empty()) continue;
      if (reading_.folder.empty())
        Fail(key, "names the file " + Shown(value.file) +
                      ", expected numbers: only a case file can name one");
      const std::string path = (std::filesystem::path(reading_.folder) / value.file).string();
      try {
        value.array = ParseNpy(ReadBinaryFile(path, kHeader + sizeof(float) * kMaxElements), path);
      } catch (const InputError& error) {
        Fail(key, error.what());
      }
    }
  }

  std::string ReadChoice(CaseKey key, std::span<const std::string_view> choices,
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

  // The element type that the file names; the first of `types` if it names none.
  DType ReadDType(CaseKey key, const DTypeList& types) const {
    std::vector<std::string_view> names;
    for (const DType dtype : types) names.push_back(Name(dtype));
    return *ParseDType(ReadChoice(key, names, names.front()));
  }

  void ReadTypes() {
    const OpRow& row = RowOf(c_.op);
    x_dtype_ = w_dtype_ = ReadDType(kXDType, row.float_x ? kCodesOrFloat : row.x_types);
    if (row.second == Second::kWeights) w_dtype_ = ReadDType(kWDType, kWeightCodes);
    c_.out_dtype =
        ReadDType(kOutDType, KeepsType(c_.op) ? DTypeList{{x_dtype_}, 1} : row.out_types);
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

  // The `count` integers of a key, or `count` times `least` if the file lacks the key.
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
    if (RowOf(c_.op).layout == Layout::kColumns) {
      x_columns_ = ReadDim(kNA);
      c_.N = x_columns_ + ReadDim(kNB);
      return;
    }
    c_.N = ReadDim(kN);
    if (Layout layout = RowOf(c_.op).layout; layout == Layout::kProducts) {
      c_.K = ReadDim(kK);
    } else if (layout == Layout::kBatches) {
      batches_ = ReadDim(kBatches);
    }
  }

  // Every number is bounded before M and K are derived from it, so that no product overflows.
  void ReadWindow() {
    Window& v = c_.window;
    const bool conv = IsConv(c_.op);
    const bool global = RowOf(c_.op).whole_image;
    v.batch = ReadInteger(kN, 0, kMaxWindow);
    v.in_h = ReadInteger(kH, 0, kMaxWindow);
    v.in_w = ReadInteger(kWidth, 0, kMaxWindow);
    v.in_c = ReadInteger(conv ? kIC : kC, 0, kMaxWindow);
    c_.N = conv ? ReadInteger(kOC, 0, kMaxWindow) : v.in_c;
    // The window of a global pool is the whole image, or 1 where the image is empty.
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
    v.ceil_mode = ReadFlag(kCeilMode);  // the size of the output follows from it
    if (RowOf(c_.op).depthwise) {
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
    // Without channels the file holds no data that back the number of pixels: a lower limit holds.
    if (pixels < 0 || values < 0) FailOutputs(kMaxOutputs, "");
    if (c_.N == 0 && pixels > kMaxUnbacked) FailOutputs(kMaxUnbacked, " for no channels");
    // Nor do data back the window of a pool, or the weights of a convolution without outputs.
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
    if (!value.file.empty()) {
      const Tensor codes = Codes(key, DType::kS32, {value.array.size()}, range, what);
      return {codes.as<int32_t>().begin(), codes.as<int32_t>().end()};
    }
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

  // The integers of a file as elements of this type, each inside `range`.
  Tensor Codes(CaseKey key, DType dtype, std::vector<int64_t> shape, CodeRange range,
               std::string_view what) const {
    const Tensor& from = fields_.at(key).array;
    if (IsFloat(from.dtype()))
      Fail(key, "holds float32 in " + Shown(fields_.at(key).file) + ", expected integers");
    Tensor to(dtype, std::move(shape));
    from.VisitElements([&](const auto& codes) {
      for (size_t i = 0; i < codes.size(); ++i) {
        const auto code = static_cast<int32_t>(codes[i]);
        if (code < range.min || code > range.max)
          FailAt(key, static_cast<int64_t>(i),
                 "is " + std::to_string(code) + ", expected " + std::string(what) +
                     " (an integer in " + Span(range) + ")");
        to.SetInt(static_cast<int64_t>(i), code);
      }
    });
    return to;
  }

  std::vector<float> Floats(CaseKey key) const {
    const CaseValue& value = fields_.at(key);
    if (!value.file.empty()) {
      std::vector<float> reals(static_cast<size_t>(value.array.size()));
      for (size_t i = 0; i < reals.size(); ++i)
        reals[i] = static_cast<float>(value.array.ValueAt(static_cast<int64_t>(i)));
      return reals;
    }
    for (const auto& [index, text] : value.nans)
      FailAt(key, index,
             Shown(text) + " is not exactly a float32, expected C99 hex such as " + "\"0x1.8p-3\"");
    if (value.first_real >= 0) return value.floats;
    // int32 -> float32 rounds once, to nearest.
    return {value.ints.begin(), value.ints.end()};
  }

  [[noreturn]] void FailAt(CaseKey key, int64_t index, const std::string& what) const {
    FailCase(name_, std::string(FieldName(key)) + "[" + std::to_string(index) + "]", what);
  }

  // The data of a float type other than f32: values of the type, or NaN with its code.
  Tensor ReadSmallFloats(CaseKey key, DType dtype, std::vector<int64_t> shape) const {
    const CaseValue& value = fields_.at(key);
    const std::string expected = ", expected a value of " + std::string(Name(dtype));
    if (!value.printed.empty())
      FailAt(key, value.printed.front().first, "is a printed number" + expected);
    Tensor tensor(dtype, std::move(shape));
    const std::vector<float> in_file = value.file.empty() ? std::vector<float>() : Floats(key);
    auto nan = value.nans.begin();
    for (int64_t i = 0; i < tensor.size(); ++i) {
      const auto at = static_cast<size_t>(i);
      const float real = !in_file.empty()       ? in_file[at]
                         : value.first_real < 0 ? static_cast<float>(value.ints[at])
                                                : value.floats[at];
      const bool is_nan = nan != value.nans.end() && nan->first == i;
      const std::string text = is_nan ? (nan++)->second : FloatText(real);
      const std::optional<uint32_t> code = is_nan ? CodeOfText(dtype, text) : CodeOf(dtype, real);
      if (!code) FailAt(key, i, "is " + text + expected);
      tensor.SetBits(i, *code);
    }
    return tensor;
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
    if (!value.file.empty() && value.array.shape().size() != 1 && value.array.shape() != shape) {
      Fail(key, "has shape " + Dims(value.array.shape()) + " in " + Shown(value.file) +
                    ", expected " + dims);
    }
    if (dtype == DType::kF32) return Tensor::Of<float>(std::move(shape), Floats(key));
    if (IsFloat(dtype)) return ReadSmallFloats(key, dtype, std::move(shape));
    const std::string what = std::string(Name(dtype)) + " values";
    if (!value.file.empty()) return Codes(key, dtype, std::move(shape), RangeOf(dtype), what);
    const std::vector<int32_t> codes = Ints(key, RangeOf(dtype), what);
    if (dtype == DType::kS32) return Tensor::Of<int32_t>(std::move(shape), codes);
    Tensor tensor(dtype, std::move(shape));
    for (size_t i = 0; i < codes.size(); ++i) tensor.SetInt(static_cast<int64_t>(i), codes[i]);
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

  void ReadOperands() {
    const OperandKeys keys = OperandKeysOf(c_.op);
    // Dimensions of x that M, N and K do not give.
    std::vector<int64_t> x_shape = ShapeOfX(c_);
    if (RowOf(c_.op).layout == Layout::kColumns) x_shape[1] = x_columns_;
    if (RowOf(c_.op).layout == Layout::kBatches) x_shape[0] = batches_;
    CheckShape(kXShape, x_shape);
    c_.x = ReadTensor(keys.x, x_dtype_, x_shape);
    if (HasW(c_.op)) {
      CheckShape(kWShape, ShapeOfW(c_));
      c_.w = ReadTensor(keys.w, w_dtype_, ShapeOfW(c_));
    }
    // Sums and windows can have many outputs of few data; other operations have as many as x.
    const int64_t most = HasWeights(c_.op) || HasWindow(c_.op) ? kMaxOutputs : kMaxElements;
    const int64_t outputs = ElementCount(c_.output_shape(), most);
    if (outputs < 0) FailOutputs(most, "");
    // Without data the dimensions are mere claims, so a lower limit holds for them.
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
      Fail(!HasWindow(c_.op)          ? kK
           : RowOf(c_.op).whole_image ? kH
                                      : kR,
           "makes " + std::to_string(outputs) + " outputs of " + std::to_string(c_.K) +
               " terms each, expected at most " + std::to_string(kMaxProducts) + " in all");
    }
    if (!HasWindow(c_.op)) return;
    const Window& v = c_.window;
    const int64_t pixels = v.batch * v.out_h() * v.out_w(), taps = v.kernel_h * v.kernel_w;
    if (ElementCount(std::vector{pixels, taps}, kMaxTaps) < 0) {
      Fail(RowOf(c_.op).whole_image ? kH : kR,
           "makes " + std::to_string(pixels) + " output pixels of " + std::to_string(taps) +
               " taps each, expected at most " + std::to_string(kMaxTaps) + " in all");
    }
  }

  [[noreturn]] void FailOutputs(int64_t most, std::string_view where) const {
    const bool window = HasWindow(c_.op);
    Fail(window ? kN : kM, (window               ? "times OH times OW times the channels"
                            : HasKey(c_.op, kNA) ? "times NA + NB"
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
    for (const int64_t index : fields_.at(key).unknown) zero_point[static_cast<size_t>(index)] = 0;
  }

  void ReadQParams() {
    const OperandKeys keys = OperandKeysOf(c_.op);
    const OpRow& row = RowOf(c_.op);
    if (row.multiplier) return ReadRequantizeQParams();
    if (row.cast) {
      if (Has(kXScale)) ReadScale(kXScale, c_.x_q.scale);
      if (Has(kOutScale)) ReadScale(kOutScale, c_.out_q.scale);
      return;
    }
    // A sum in s32 needs no scale, and an output that is no code needs no scale or zero point.
    const bool scales = c_.out_dtype != DType::kS32;
    if (HasFloatX(c_)) {
      for (const CaseKey key : {keys.x_scale, keys.x_zp})
        if (Has(key)) Fail(key, "x is f32, expected no such key");
    } else if (row.x_qparams) {
      if (scales || Has(keys.x_scale)) ReadScale(keys.x_scale, c_.x_q.scale);
      ReadZeroPoint(keys.x_zp, c_.x_q.zero_point);
    }
    if (HasW(c_.op)) {
      if (scales || Has(keys.w_scale) || c_.per_channel) ReadScale(keys.w_scale, c_.w_q.scale);
      ReadZeroPoint(keys.w_zp, c_.w_q.zero_point);
    }
    switch (row.out_q) {
      case OutQParams::kNone: return;
      case OutQParams::kOwn:
        if (IsCode(c_.out_dtype) || Has(kOutScale)) ReadScale(kOutScale, c_.out_q.scale);
        if (IsCode(c_.out_dtype) || Has(kOutZp)) ReadZeroPoint(kOutZp, c_.out_q.zero_point);
        return;
      case OutQParams::kOfInput: c_.out_q = c_.x_q; return;
      case OutQParams::kFixed: c_.out_q = FixedOutQParams(c_.out_dtype); return;
    }
  }

  // A scale that a cast is not given is 1, in each entry of a list; a cast has no zero points.
  void FillCastScales() {
    if (!RowOf(c_.op).cast) return;
    if (c_.per_channel && c_.x_block != 0) return;  // which is wrong
    const bool blocks = c_.x_block > 0 && c_.N > 0;
    const auto count = static_cast<size_t>(c_.per_channel ? c_.N
                                           : blocks       ? c_.M * ElementBlocks(c_)
                                                          : 1);
    for (const auto& [key, q] : {std::pair{kXScale, &c_.x_q}, {kOutScale, &c_.out_q}}) {
      if (!Has(key)) q->scale.assign(count, 1.0f);
      q->zero_point.assign(q->scale.size(), 0);
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
    // As many zero points as scales: the file really holds the scales, so the number is bounded.
    c_.w_q.zero_point.assign(c_.w_q.scale.size(), 0);
    if (Has(kWZp)) ReadZeroPoint(kWZp, c_.w_q.zero_point);
  }

  void ReadBias() {
    if (fields_.at(kBias).type == CaseValue::Type::kList) c_.bias = Floats(kBias);
    if (fields_.at(kBiasI32).type == CaseValue::Type::kList) {
      c_.bias_i32 = Ints(kBiasI32, RangeOf(DType::kS32), "int32 values");
    }
  }

  int32_t ReadBound(CaseKey key, DType dtype, int32_t otherwise) const {
    if (!Has(key)) return otherwise;
    if (IsFloat(dtype)) Fail(key, "a float output has no clamp, expected no such key");
    if (!fields_.at(key).unknown.empty()) return otherwise;
    return Ints(key, RangeOf(dtype), std::string(Name(dtype)) + " values").front();
  }

  void ReadClamp() {
    const CodeRange range = RangeOf(c_.out_dtype);
    c_.out_min = ReadBound(kOutMin, c_.out_dtype, range.min);
    c_.out_max = ReadBound(kOutMax, c_.out_dtype, range.max);
  }

  // One overload per type of a parameter: it reads the value as case files spell that type.
  void ReadParameter(const Field& /*field*/, CaseKey key, bool& value) { value = ReadFlag(key); }
  // Validate checks the range of reals.
  void ReadParameter(const Field& /*field*/, CaseKey key, float& value) {
    value = Floats(key).front();
  }
  void ReadParameter(const Field& /*field*/, CaseKey key, DType& value) {
    value = ReadDType(key, kCodesOrMxElements);
  }
  void ReadParameter(const Field& field, CaseKey key, int32_t& value) {
    if (field.is_code) {
      value = ReadBound(key, c_.observer.dtype, value);
      return;
    }
    const CodeRange whole = RangeOf(DType::kS32);
    const CodeRange range{static_cast<int32_t>(std::max<double>(field.lowest, whole.min)),
                          static_cast<int32_t>(std::min<double>(field.highest, whole.max))};
    value = Ints(key, range, "a number").front();
  }
  template <NamedEnum E>
  void ReadParameter(const Field& /*field*/, CaseKey key, E& value) {
    value = *Parse<E>(ReadChoice(key, NamesOf(value), ""));
  }
  // Lists have readers of their own.
  template <class T>
  void ReadParameter(const Field& /*field*/, CaseKey /*key*/, std::vector<T>& /*value*/) {}
  template <class T>
  void ReadParameter(const Field& /*field*/, CaseKey /*key*/,
                     std::optional<std::vector<T>>& /*value*/) {}

  void ReadParameters() {
    ForEachParameter(c_, [this](const Field& field, auto& value) {
      if (!(RowOf(c_.op).*field.has)) return;
      const CaseKey key = *KeyNamed(field.name);
      if (key == kQuantMin) SetQuantRange();
      if (key == kNegativeSlope && Has(key) && c_.function != Function::kLeakyRelu) {
        Fail(key, "does not belong to this function, expected it for leaky_relu only");
      }
      if (field.is_required(c_.op)) Need(key);
      if (Has(key)) ReadParameter(field, key, value);
    });
  }

  // The whole range of the type, unless the file gives a smaller one.
  void SetQuantRange() {
    if (!IsByteCode(c_.observer.dtype)) return;
    const CodeRange range = RangeOf(c_.observer.dtype);
    c_.observer.quant_min = range.min;
    c_.observer.quant_max = range.max;
  }

  std::string ReadContract() const {
    const std::string& text = fields_.at(kContract).text;
    try {
      return ParseContract(text).text();
    } catch (const InputError&) {
      Fail(kContract, "is " + Shown(text) + ", expected " + std::string(kContractForms));
    }
  }

  Explanation ReadWhy() const {
    if (!Has(kObservedKind)) {
      for (const CaseKey key : {kObservedCause, kObservedCauses, kObservedEvidence})
        if (Has(key)) Fail(key, "stands without a kind, expected observed.kind beside it");
      return {"", "", "", "", fields_.at(kObservedRuledOut).text};
    }
    const std::string& kind = fields_.at(kObservedKind).text;
    if (!ParseFindingKind(kind))
      Fail(kObservedKind, "is " + Shown(kind) + ", expected a kind of findings");
    return {kind, Need(kObservedCause).text, fields_.at(kObservedCauses).text,
            fields_.at(kObservedEvidence).text, fields_.at(kObservedRuledOut).text};
  }

  // What somebody printed as the output. In place of codes may stand the real numbers that they
  // stand for.
  Tensor ReadObserved(std::vector<int64_t> shape) const {
    if (fields_.at(kObservedY).printed.empty() || !IsCode(c_.out_dtype))
      return ReadTensor(kObservedY, c_.out_dtype, std::move(shape));
    ReadTensor(kObservedY, DType::kF32, shape);  // are there as many?
    Tensor codes(c_.out_dtype, std::move(shape));
    const auto& printed = fields_.at(kObservedY).printed;
    for (int64_t i = 0; i < codes.size(); ++i) {
      if (static_cast<size_t>(i) >= printed.size() || printed[static_cast<size_t>(i)].first != i)
        FailAt(kObservedY, i, "stands beside printed numbers, expected one, such as \"0.0160~\"");
      codes.SetInt(i, CodePrintedAs(i, printed[static_cast<size_t>(i)].second));
    }
    return codes;
  }

  // The one code of output i whose real number prints so. A scale that is printed itself may be any
  // that prints so.
  int32_t CodePrintedAs(int64_t i, const std::string& text) const {
    const size_t entry = HasElementBlocks(c_)        ? ElementEntry(c_, i)
                         : c_.out_q.scale.size() > 1 ? static_cast<size_t>(i % c_.N)
                                                     : 0;
    const auto [low, high] = PrintedRange(text);
    std::pair scale{double{c_.out_q.scale[entry]}, double{c_.out_q.scale[entry]}};
    for (const auto& [index, scale_text] : fields_.at(kOutScale).printed)
      if (index == static_cast<int64_t>(entry)) scale = PrintedRange(scale_text);
    const double zero_point = c_.out_q.zero_point[entry];
    const auto [first, last] = std::minmax(
        {low / scale.first, low / scale.second, high / scale.first, high / scale.second});
    const CodeRange codes = RangeOf(c_.out_dtype);
    // Many digits are those of a float32, code times scale, rounded.
    const double slack = 0x1p-23 * std::max(1.0, std::max(std::abs(first), std::abs(last)));
    const double least = std::max<double>(std::ceil(first - slack) + zero_point, codes.min);
    const double most = std::min<double>(std::floor(last + slack) + zero_point, codes.max);
    if (least == most) return static_cast<int32_t>(least);
    const std::string shown = "is " + Shown(text + "~") + ", ";
    if (least < most) {
      FailAt(kObservedY, i, shown + "as which several codes print, expected more digits, or codes");
    }
    const double nearest = std::clamp<double>(
        std::nearbyint((low + high) / 2 / scale.first + zero_point), codes.min, codes.max);
    FailAt(kObservedY, i,
           shown + "which no code of the output stands for: the nearest, " +
               std::to_string(static_cast<int32_t>(nearest)) + ", stands for " +
               ShortestDecimal(static_cast<float>((nearest - zero_point) * scale.first)) +
               ", expected a number that an output stands for");
  }

  // The reals that print so.
  static std::pair<double, double> PrintedRange(const std::string& text) {
    const std::string unit = "1e" + std::to_string(ParseDecimal(text)->exponent);
    const double half = std::strtod(unit.c_str(), nullptr) / 2;
    const double value = std::strtod(text.c_str(), nullptr);
    return {value - half, value + half};
  }

  void ReadRemarks() {
    c_.property = fields_.at(kProperty).text;
    if (Has(kContract)) c_.contract = ReadContract();
    c_.note = fields_.at(kNote).text;
    if (Has(kExpected)) c_.expected = ReadTensor(kExpected, c_.out_dtype, c_.output_shape());
    if (Has(kObserved)) {
      c_.observed = Observed{Need(kObservedBy).text, ReadObserved(c_.output_shape()), ReadWhy()};
      if (c_.out_dtype == DType::kF32) c_.observed->printed = fields_.at(kObservedY).printed;
    }
    const OperandKeys keys = OperandKeysOf(c_.op);
    using List = Printed::List;
    for (const auto& [list, key] : {std::pair{List::kX, keys.x},
                                    {List::kXScale, keys.x_scale},
                                    {List::kWScale, keys.w_scale},
                                    {List::kOutScale, kOutScale},
                                    {List::kMultiplier, kMultiplier},
                                    {List::kBias, kBias}}) {
      for (const auto& [index, text] : fields_.at(key).printed)
        c_.printed.push_back({list, index, text});
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

  CaseFields fields_;
  std::string_view name_;
  const CaseReading& reading_;
  DType x_dtype_ = DType::kU8;
  DType w_dtype_ = DType::kU8;
  int64_t x_columns_ = 0;  // Layout::kColumns
  int64_t batches_ = 0;    // Layout::kBatches
  Case c_;
};

constexpr std::string_view kNoun = "case";

// Says what the file is, where the first byte that is no text would say nothing to anybody.
void RefuseBinary(std::string_view text, const std::string& path) {
  std::string holds;
  if (path.ends_with(".onnx") || path.ends_with(".tflite"))
    holds = "a model, expected a case file; qualm explain runs its layers one by one";
  else if (path.ends_with(".npy") || path.ends_with(".safetensors"))
    holds = "weights, expected a case file";
  // What certify and repair read: core/io/layers.h.
  if (!holds.empty() && !path.ends_with(".tflite"))
    holds += "; qualm certify and qualm repair read weights";
  if (!holds.empty()) FailCase(path, "file", "holds " + holds);
  constexpr size_t kBeginning = 4096;
  if (text.substr(0, kBeginning).find('\0') != std::string_view::npos && !path.ends_with(".json"))
    FailCase(path, "file", "is binary, expected a case file, which is JSON text");
}

}  // namespace

Case ParseCase(std::string_view text, std::string_view name, const CaseReading& reading) {
  CheckLength(text, name, kNoun, kMaxCaseBytes);
  return Builder(ScanCase(text, name, reading.as_printed), name, reading).Build();
}

Case ReadCaseFile(const std::string& path, const CaseReading& reading) {
  const std::string text = ReadTextFile(path, kNoun, kMaxCaseBytes);
  RefuseBinary(text, path);
  CaseReading beside = reading;
  beside.folder = std::filesystem::path(path).parent_path().string();
  if (beside.folder.empty()) beside.folder = ".";
  return ParseCase(text, path, beside);
}

}  // namespace qualm
