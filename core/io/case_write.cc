// SPDX-License-Identifier: Apache-2.0
// Writes cases: every field that has a meaning for the op, in the order of CaseKey.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <span>
#include <utility>

#include "core/float_format.h"
#include "core/float_text.h"
#include "core/io/case_fields.h"
#include "core/io/case_json.h"
#include "core/io/case_keys.h"
#include "core/io/json_text.h"
#include "core/io/text_file.h"

namespace qualm {
namespace {

std::string Token(int64_t value) { return std::to_string(value); }
std::string Token(int32_t value) { return std::to_string(value); }
std::string Token(const std::string& token) { return token; }
std::string Token(float value) { return '"' + FloatText(value) + '"'; }

class Writer {
 public:
  explicit Writer(bool pretty) : pretty_(pretty) {}

  std::string Write(const Case& c) {
    printed_ = c.printed;
    const OperandKeys keys = OperandKeysOf(c.op);
    Put(CaseKey::kVersion, Token(kCaseFormatVersion));
    Put(CaseKey::kOp, JsonQuote(Name(c.op)));
    if (!c.property.empty()) Put(CaseKey::kProperty, JsonQuote(c.property));
    if (!c.contract.empty()) Put(CaseKey::kContract, JsonQuote(c.contract));
    if (!c.note.empty()) Put(CaseKey::kNote, JsonQuote(c.note));
    WriteSizes(c);
    Put(CaseKey::kGran, c.per_channel ? "\"channel\"" : "\"tensor\"");
    Put(CaseKey::kXDType, JsonQuote(Name(c.x.dtype())));
    if (HasKey(c.op, CaseKey::kWDType)) Put(CaseKey::kWDType, JsonQuote(Name(c.w.dtype())));
    Put(CaseKey::kOutDType, JsonQuote(Name(c.out_dtype)));
    WriteQParams(c);
    WriteParameters(c);
    if (HasKey(c.op, CaseKey::kOutMin) && !IsFloat(c.out_dtype)) {
      Put(CaseKey::kOutMin, Token(c.out_min));
      Put(CaseKey::kOutMax, Token(c.out_max));
    }
    Put(keys.x, Matrix(c.x, [this](int64_t i, float x) {
          return TokenOf(Printed::List::kX, static_cast<size_t>(i), x);
        }));
    if (HasW(c.op)) Put(keys.w, Matrix(c.w));
    if (c.expected) Put(CaseKey::kExpected, Matrix(*c.expected));
    if (c.observed) {
      Put(CaseKey::kObserved, "{\"by\": " + JsonQuote(c.observed->by) +
                                  ", \"y\": " + OutputOf(*c.observed) + WhyOf(*c.observed) + "}");
    }
    return Text();
  }

 private:
  static std::string WhyOf(const Observed& observed) {
    const Explanation& why = observed.why;
    std::string text;
    for (const auto& [key, value] : {std::pair{"kind", &why.kind},
                                     {"cause", &why.cause},
                                     {"causes", &why.causes},
                                     {"evidence", &why.evidence},
                                     {"ruled_out", &why.ruled_out}})
      if (!value->empty()) text += std::string(", \"") + key + "\": " + JsonQuote(*value);
    return text;
  }

  std::string OutputOf(const Observed& observed) const {
    auto next = observed.printed.begin();
    return Matrix(observed.y, [&](int64_t i, float value) {
      const bool printed = next != observed.printed.end() && next->first == i;
      return printed ? JsonQuote((next++)->second + "~") : Token(value);
    });
  }

  void Put(CaseKey key, std::string_view value) { values_[static_cast<size_t>(key)] = value; }

  // The text of all keys put so far, in the order of CaseKey.
  std::string Text() const {
    std::string body;
    for (size_t i = 0; i < kCaseKeys; ++i) {
      if (values_[i].empty()) continue;
      if (!body.empty()) body += pretty_ ? "," : ", ";
      if (pretty_) body += "\n  ";
      body += JsonQuote(FieldName(static_cast<CaseKey>(i))) + ": " + values_[i];
    }
    return "{" + body + (pretty_ ? "\n}\n" : "}");
  }

  // A number of a list that may hold printed ones.
  std::string TokenOf(Printed::List list, size_t index, float value) const {
    const std::pair place{list, static_cast<int64_t>(index)};
    const auto place_of = [](const Printed& number) {
      return std::pair{number.list, number.index};
    };
    const auto found = std::ranges::lower_bound(printed_, place, {}, place_of);
    if (found == printed_.end() || place_of(*found) != place) return Token(value);
    return JsonQuote(found->text + "~");
  }
  std::vector<std::string> Tokens(Printed::List list, const std::vector<float>& values) const {
    std::vector<std::string> tokens;
    for (size_t i = 0; i < values.size(); ++i) tokens.push_back(TokenOf(list, i, values[i]));
    return tokens;
  }

  // One number per tensor, a list per channel.
  template <class T>
  void PutParams(CaseKey key, const std::vector<T>& values, bool per_channel) {
    Put(key, per_channel || values.size() != 1 ? List(values) : Token(values[0]));
  }

  template <class T>
  static std::string List(const std::vector<T>& values) {
    std::string text = "[";
    for (size_t i = 0; i < values.size(); ++i) text += (i != 0 ? ", " : "") + Token(values[i]);
    return text + "]";
  }

  // Row by row; each row on its own line where there are several. A row of an image has all its
  // channels.
  std::string Matrix(const Tensor& tensor,
                     const std::function<std::string(int64_t, float)>& token_of = nullptr) const {
    const std::vector<int64_t>& shape = tensor.shape();
    const int64_t columns = shape.size() == 4 ? shape[2] * shape[3] : shape.back();
    const bool lines = pretty_ && tensor.size() > columns;
    std::string text = "[";
    for (int64_t i = 0; i < tensor.size(); ++i) {
      if (i != 0) text += lines && i % columns == 0 ? "," : ", ";
      if (lines && i % columns == 0) text += "\n    ";
      if (!IsFloat(tensor.dtype())) {
        text += Token(tensor.IntAt(i));
      } else if (tensor.dtype() != DType::kF32) {
        text += JsonQuote(CodeText(tensor.dtype(), tensor.BitsAt(i)));
      } else {
        text += token_of ? token_of(i, tensor.FloatAt(i)) : Token(tensor.FloatAt(i));
      }
    }
    return text + (lines ? "\n  ]" : "]");
  }

  static std::string_view Flag(bool value) { return value ? "true" : "false"; }

  void PutParameter(CaseKey key, bool value) { Put(key, Flag(value)); }
  void PutParameter(CaseKey key, float value) { Put(key, Token(value)); }
  void PutParameter(CaseKey key, int32_t value) { Put(key, Token(value)); }
  void PutParameter(CaseKey key, DType value) { Put(key, JsonQuote(Name(value))); }
  template <NamedEnum E>
  void PutParameter(CaseKey key, E value) {
    Put(key, JsonQuote(Name(value)));
  }
  void PutParameter(CaseKey key, const std::optional<std::vector<float>>& bias) {
    if (bias) Put(key, List(Tokens(Printed::List::kBias, *bias)));
  }
  void PutParameter(CaseKey key, const std::optional<std::vector<int32_t>>& list) {
    if (list) Put(key, List(*list));
  }
  // The multiplier is written with the scales.
  void PutParameter(CaseKey /*key*/, const std::vector<float>& /*list*/) {}

  void WriteParameters(const Case& c) {
    ForEachParameter(c, [&](const Field& field, const auto& value) {
      if (!(RowOf(c.op).*field.has)) return;
      const CaseKey key = *KeyNamed(field.name);
      if (key == CaseKey::kNegativeSlope && c.function != Function::kLeakyRelu) return;
      if (field.is_code && IsMx(c.rule)) return;
      if ((key == CaseKey::kWBlock && c.w_block == 0) ||
          (key == CaseKey::kXBlock && c.x_block == 0) || (key == CaseKey::kCodesOfX && !c.codes))
        return;
      PutParameter(key, value);
    });
  }

  // Writes a size if the operation has it.
  void PutSize(const Case& c, CaseKey key, int64_t value) {
    if (HasKey(c.op, key)) Put(key, Token(value));
  }

  void WriteSizes(const Case& c) {
    if (!HasWindow(c.op)) {
      PutSize(c, CaseKey::kBatches, c.x.shape()[0]);
      PutSize(c, CaseKey::kM, c.M);
      PutSize(c, CaseKey::kN, c.N);
      PutSize(c, CaseKey::kNA, c.x.shape().back());
      PutSize(c, CaseKey::kNB, c.w.shape().back());
      PutSize(c, CaseKey::kK, c.K);
      return;
    }
    const Window& v = c.window;
    Put(CaseKey::kN, Token(v.batch));
    Put(CaseKey::kH, Token(v.in_h));
    Put(CaseKey::kWidth, Token(v.in_w));
    PutSize(c, CaseKey::kC, v.in_c);
    PutSize(c, CaseKey::kIC, v.in_c);
    PutSize(c, CaseKey::kOC, c.N);
    PutSize(c, CaseKey::kR, v.kernel_h);
    PutSize(c, CaseKey::kS, v.kernel_w);
    const auto tuple = [&](CaseKey key, const std::vector<int64_t>& values) {
      if (HasKey(c.op, key)) Put(key, List(values));
    };
    tuple(CaseKey::kStride, {v.stride_h, v.stride_w});
    tuple(CaseKey::kPad, {v.pad_top, v.pad_bottom, v.pad_left, v.pad_right});
    tuple(CaseKey::kDilation, {v.dilation_h, v.dilation_w});
    PutSize(c, CaseKey::kGroups, v.groups);
  }

  void WriteQParams(const Case& c) {
    const OperandKeys keys = OperandKeysOf(c.op);
    const PerChannel list = c.per_channel ? RowOf(c.op).per_channel : PerChannel::kNone;
    const bool multiplier = UsesMultiplier(c);
    using In = Printed::List;
    if (RowOf(c.op).cast) {
      const auto put_scale = [&](CaseKey key, In in, const QParams& q) {
        const std::vector<std::string> tokens = Tokens(in, q.scale);
        const bool all_one = std::ranges::all_of(
            tokens, [one = Token(1.0f)](const std::string& token) { return token == one; });
        if (!all_one) PutParams(key, tokens, c.per_channel);
      };
      put_scale(CaseKey::kXScale, In::kXScale, c.x_q);
      put_scale(CaseKey::kOutScale, In::kOutScale, c.out_q);
      return;
    }
    const auto put = [&](CaseKey scale, CaseKey zp, const QParams& q, PerChannel own, In in) {
      if (!HasKey(c.op, scale) || (scale == CaseKey::kXScale && HasFloatX(c))) return;
      PutParams(scale, Tokens(in, q.scale), list == own);
      PutParams(zp, q.zero_point, list == own);
    };
    if (multiplier) {
      PutParams(CaseKey::kMultiplier, Tokens(In::kMultiplier, c.multiplier), c.per_channel);
    } else {
      put(keys.x_scale, keys.x_zp, c.x_q, PerChannel::kX, In::kXScale);
      put(keys.w_scale, keys.w_zp, c.w_q, PerChannel::kW, In::kWScale);
    }
    put(CaseKey::kOutScale, CaseKey::kOutZp, c.out_q, PerChannel::kOut, In::kOutScale);
  }

  bool pretty_;
  std::span<const Printed> printed_;
  std::array<std::string, kCaseKeys> values_;
};

}  // namespace

std::string CaseToJson(const Case& c) { return Writer(/*pretty=*/true).Write(c); }
std::string CaseToJsonLine(const Case& c) { return Writer(/*pretty=*/false).Write(c); }

void WriteCaseFile(const Case& c, const std::string& path) { WriteTextFile(path, CaseToJson(c)); }

}  // namespace qualm
