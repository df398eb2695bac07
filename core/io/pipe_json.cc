// SPDX-License-Identifier: Apache-2.0
// Requests written, answers read. An answer goes from its tokens into the tensor that the case asks
// for: nothing grows with what a child claims.
#include "core/io/pipe_json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/float_format.h"
#include "core/float_text.h"
#include "core/io/case_json.h"
#include "core/io/json_text.h"
#include "core/io/packed_array.h"
#include "core/status.h"

namespace qualm {
namespace {

[[noreturn]] void Fail(const std::string& field, const std::string& what) {
  throw InputError(field + ": " + what);
}

class AnswerReader {
 public:
  using json = nlohmann::json;

  AnswerReader(uint64_t id, const Case& c, bool want_acc) : id_(id), c_(c), want_acc_(want_acc) {}

  Outcome Finish() {
    if (!Seen(kId)) Fail("id", "is missing, expected " + std::to_string(id_));
    const int kinds = Seen(kY) + Seen(kSkip) + Seen(kError);
    if (kinds == 0) Fail("y", "is missing, expected one of y, skip and error");
    if (kinds > 1) Fail("top level", "says several things, expected one of y, skip and error");
    if (Seen(kAcc) && !Seen(kY)) Fail("acc", "stands without y");
    if (Seen(kSkip)) outcome_.status = RunStatus::kSkipped;
    if (Seen(kError)) outcome_.status = RunStatus::kRefused;
    return std::move(outcome_);
  }

  bool null() { WrongType("null"); }
  bool boolean(bool /*value*/) { WrongType("a boolean"); }
  bool number_integer(json::number_integer_t value) {
    if (tensor_ == nullptr) WrongType(std::to_string(value));
    return Integer(value);
  }
  bool number_unsigned(json::number_unsigned_t value) {
    if (tensor_ != nullptr) {
      if (value <= static_cast<uint64_t>(INT64_MAX)) return Integer(static_cast<int64_t>(value));
      return Float(std::to_string(value), static_cast<float>(value));
    }
    if (depth_ != 1 || key_ != kId) WrongType(std::to_string(value));
    if (value != id_) {
      Fail("id", "is " + std::to_string(value) + ", expected " + std::to_string(id_));
    }
    return true;
  }
  // `value` went through double; the token did not.
  bool number_float(json::number_float_t /*value*/, const std::string& token) {
    if (tensor_ == nullptr) WrongType(Shown(token));
    const std::optional<float> value = ParseFloatText(token);
    if (!value) {
      Fail(Field(), Shown(token) + " is beyond float32, expected a finite number or \"inf\"");
    }
    return Float(Shown(token), *value);
  }
  bool string(std::string& text) {
    if (tensor_ != nullptr) {
      if (!IsFloat(tensor_->dtype())) {
        const bool is_number = SpellsFloat(text) && ParseFloatText(text).has_value();
        WrongType(is_number ? "a string" : "the string " + Shown(text));
      }
      std::optional<uint32_t> code;
      if (text == "nan" || text == "-nan") {
        // Python's float.hex writes a NaN so. Which one it is nobody says; some types have none.
        const uint32_t nan =
            EncodeFloat(tensor_->dtype(), std::numeric_limits<double>::quiet_NaN());
        if (std::isnan(DecodeFloat(tensor_->dtype(), nan))) code = nan;
      } else if (SpellsFloat(text)) {
        code = CodeOfText(tensor_->dtype(), text);
      }
      if (!code) WrongType("the string " + Shown(text));
      RequireRoom();
      tensor_->SetBits(filled_++, *code);
      return true;
    }
    if (depth_ != 1 || (key_ != kSkip && key_ != kError)) WrongType("a string");
    outcome_.detail = std::move(text);
    return true;
  }
  bool binary(json::binary_t& /*value*/) { return false; }  // not in JSON text

  bool start_object(size_t /*size*/) {
    if (depth_ != 0) WrongType("an object");
    depth_ = 1;
    return true;
  }
  bool key(std::string& key) {
    static constexpr std::array<std::string_view, kKeys> kNames{"id", "y", "acc", "skip", "error"};
    size_t at = 0;
    while (at < kKeys && kNames[at] != key) ++at;
    if (at == kKeys) {
      Fail(Shown(key), "is not a key of an answer, expected id and one of y, skip and error");
    }
    key_ = static_cast<Key>(at);
    if (Seen(key_)) Fail(std::string(kNames[at]), "is given twice, expected each key at most once");
    if (key_ == kAcc && !want_acc_) Fail("acc", "was not asked for");
    seen_.set(at);
    name_ = kNames[at];
    return true;
  }
  bool end_object() {
    depth_ = 0;
    return true;
  }
  bool start_array(size_t /*size*/) {
    if (depth_ != 1 || tensor_ != nullptr || (key_ != kY && key_ != kAcc)) WrongType("a list");
    if (key_ == kY) {
      outcome_.y = Tensor(c_.out_dtype, c_.output_shape());
      tensor_ = &outcome_.y;
    } else {
      tensor_ = &outcome_.acc.emplace(DType::kS32, c_.output_shape());
    }
    filled_ = 0;
    return true;
  }
  bool end_array() {
    if (filled_ != tensor_->size()) {
      Fail(std::string(name_), "has " + std::to_string(filled_) + " values, expected " +
                                   std::to_string(tensor_->size()));
    }
    tensor_ = nullptr;
    return true;
  }
  bool parse_error(size_t position, const std::string& /*last_token*/,
                   const json::exception& /*error*/) {
    Fail("byte " + std::to_string(position), "is not JSON, expected one JSON object on the line");
  }

 private:
  enum Key : size_t { kId, kY, kAcc, kSkip, kError, kKeys };

  bool Seen(Key key) const { return seen_[key]; }

  std::string Field() const {
    if (depth_ == 0) return "top level";
    std::string field(name_);
    if (tensor_ != nullptr) field += "[" + std::to_string(filled_) + "]";
    return field;
  }

  [[noreturn]] void WrongType(const std::string& got) const {
    std::string expected = "an object";
    if (tensor_ != nullptr) {
      const std::string name(Name(tensor_->dtype()));
      expected = tensor_->dtype() == DType::kF32 ? "a float32 (number or hex string)"
                 : IsFloat(tensor_->dtype())     ? "a value of " + name
                                                 : "an integer";
    } else if (depth_ == 1) {
      expected = key_ == kId ? std::to_string(id_) : key_ <= kAcc ? "a flat list" : "a string";
    }
    Fail(Field(), "is " + got + ", expected " + expected);
  }

  void RequireRoom() const {
    if (filled_ == tensor_->size()) {
      Fail(std::string(name_), "has more than " + std::to_string(filled_) + " values");
    }
  }
  bool Integer(int64_t value) {
    const DType dtype = tensor_->dtype();
    // From an integer a float32 is rounded once.
    if (IsFloat(dtype)) return Float(std::to_string(value), static_cast<float>(value));
    RequireRoom();
    const CodeRange range = RangeOf(dtype);
    if (value < range.min || value > range.max) {
      Fail(Field(), "is " + std::to_string(value) + ", expected " + std::string(Name(dtype)) +
                        " values " + std::to_string(range.min) + " to " +
                        std::to_string(range.max));
    }
    tensor_->SetInt(filled_++, static_cast<int32_t>(value));
    return true;
  }
  bool Float(const std::string& got, float value) {
    RequireRoom();
    const std::optional<uint32_t> code =
        IsFloat(tensor_->dtype()) ? CodeOf(tensor_->dtype(), value) : std::nullopt;
    if (!code) WrongType(got);
    tensor_->SetBits(filled_++, *code);
    return true;
  }

  uint64_t id_;
  const Case& c_;
  bool want_acc_;
  Outcome outcome_;
  std::bitset<kKeys> seen_;
  int depth_ = 0;  // 1 inside the object
  Key key_ = kId;
  std::string_view name_;
  Tensor* tensor_ = nullptr;  // inside its list
  int64_t filled_ = 0;
};

}  // namespace

std::string PipeRequestLine(uint64_t id, const Case& c, bool want_acc, const PipeBlocks& blocks) {
  std::string line =
      "{\"id\": " + std::to_string(id) + ", \"case\": " + CaseToJsonLine(ProblemOf(c));
  const auto add = [&](const std::string& key, const auto& value) {
    line += ", \"" + key + "\": " + value;
  };
  if (!blocks.w_format.empty()) {
    add("w_format", "\"" + std::string(blocks.w_format) + "\"");
    add("w_packed", "\"" + ToBase64(blocks.w_packed) + "\"");
    add("x_packed", "\"" + ToBase64(blocks.x_packed) + "\"");
    add("w_row_bytes", std::to_string(blocks.w_row_bytes));
    add("x_row_bytes", std::to_string(blocks.x_row_bytes));
    add("k_packed", std::to_string(blocks.k_packed));
  }
  if (want_acc) add("want", "[\"acc\"]");
  return line + "}\n";
}

std::string PipeDotLine(uint64_t id, std::span<const float> a, std::span<const float> b) {
  const auto list = [](std::span<const float> values) {
    std::string text;
    for (const float value : values)
      text += (text.empty() ? "\"" : ", \"") + FloatText(value) + "\"";
    return "[" + text + "]";
  };
  return "{\"id\": " + std::to_string(id) + ", \"dot\": {\"a\": " + list(a) +
         ", \"b\": " + list(b) + "}}\n";
}

const Case& DotAnswer() {
  static const Case one = [] {
    Case c;
    c.op = Op::kLinear;
    c.M = c.N = 1;
    c.out_dtype = DType::kF32;
    return c;
  }();
  return one;
}

Outcome ParsePipeAnswer(std::string_view line, uint64_t id, const Case& c, bool want_acc) {
  if (const std::string error = CheckJsonBytes(line); !error.empty()) throw InputError(error);
  AnswerReader reader(id, c, want_acc);
  nlohmann::json::sax_parse(line.begin(), line.end(), &reader);
  return reader.Finish();
}

}  // namespace qualm
