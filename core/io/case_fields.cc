// SPDX-License-Identifier: Apache-2.0
#include "core/io/case_fields.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/float_format.h"
#include "core/float_text.h"
#include "core/io/case_json.h"
#include "core/io/json_text.h"
#include "core/nearest.h"
#include "core/status.h"

namespace qualm {
namespace {

// JSON types a key can have.
enum Accepts : unsigned {
  kNumbers = 1u << 0,  // one number, or a string that spells a float32
  kLists = 1u << 1,    // a list of those
  kTexts = 1u << 2,
  kBools = 1u << 3,
  kNulls = 1u << 4,
  kObjects = 1u << 5,
  kPrinted = 1u << 6,   // "0.0160~" where a number can stand
  kUnknown = 1u << 7,   // "?" likewise
  kDecimals = 1u << 8,  // with `as_printed` decimals are printed numbers
  kFiles = 1u << 9,     // the name of a .npy file that holds the list
  kArrays = kLists | kFiles,
  kReals = kArrays | kPrinted,
  kOutputs = kReals | kDecimals,
  kScales = kNumbers | kArrays | kPrinted | kUnknown | kDecimals,
  kZeroPoints = kNumbers | kArrays | kUnknown,
  kBounds = kNumbers | kUnknown,
};

struct KeySpec {
  std::string_view name;
  unsigned accepts;
  std::string_view expected;  // for messages
};

constexpr std::string_view kInteger = "an integer";
constexpr std::string_view kReal = "a float32 (number or hex string)";
constexpr std::string_view kFlag = "true, false, 0 or 1";
constexpr std::string_view kString = "a string";
constexpr std::string_view kIntegers = "a list of integers";
constexpr std::string_view kValues = "a list of numbers, or the name of a .npy file";
constexpr std::string_view kScale =
    "a float32 (number or hex string), a list of them, or the name of a .npy file";
constexpr std::string_view kZeroPoint =
    "an integer, a list of integers, or the name of a .npy file";

constexpr std::array<KeySpec, kCaseKeys> kSpecs{{
#define QUALM_SPEC(key, name, accepts, expected) {name, accepts, expected},
    QUALM_CASE_KEYS(QUALM_SPEC)
#undef QUALM_SPEC
}};

constexpr size_t kTopKeys = static_cast<size_t>(CaseKey::kObservedBy);
constexpr std::string_view kObservedPrefix = "observed.";

// Which key, among those of the object we are in.
std::optional<CaseKey> FindKey(std::string_view key, bool inside_observed) {
  for (size_t i = inside_observed ? kTopKeys : 0; i < (inside_observed ? kCaseKeys : kTopKeys);
       ++i) {
    const std::string_view known =
        kSpecs[i].name.substr(inside_observed ? kObservedPrefix.size() : 0);
    if (known == key) return static_cast<CaseKey>(i);
  }
  return std::nullopt;
}

std::string_view NearestKey(std::string_view key, bool inside_observed) {
  std::vector<std::string_view> known;
  for (size_t i = inside_observed ? kTopKeys : 0; i < (inside_observed ? kCaseKeys : kTopKeys);
       ++i) {
    known.push_back(kSpecs[i].name.substr(inside_observed ? kObservedPrefix.size() : 0));
  }
  return NearestName(key, known);
}

// "nan:" and the code of a type of fewer bits than float32: which type, this reader does not know.
bool IsShortNan(std::string_view text) {
  return text.starts_with("nan:") && text.size() <= 8 &&
         std::ranges::any_of(kDTypeRows, [&](const DTypeRow& type) {
           return type.dtype != DType::kF32 && IsFloat(type.dtype) &&
                  CodeOfText(type.dtype, text).has_value();
         });
}

bool IsIntegerToken(std::string_view token) {
  return token.find_first_of(".eE") == std::string_view::npos;
}

// nlohmann's SAX events -> CaseFields. A case nests three deep, and the first token that goes
// deeper has a wrong type, so that depth needs no limit of its own. (The parser itself does not
// recurse.)
class Scanner {
 public:
  using json = nlohmann::json;

  Scanner(std::string_view name, CaseFields& fields, bool as_printed)
      : name_(name), fields_(fields), as_printed_(as_printed) {}

  bool null() { return Scalar("null", kNulls, CaseValue::Type::kNull); }
  bool boolean(bool value) {
    Scalar("a boolean", kBools, CaseValue::Type::kBool);
    fields_.at(key_).boolean = value;
    return true;
  }
  bool number_integer(json::number_integer_t value) {
    return Number("a number", std::to_string(value), static_cast<float>(value), value);
  }
  bool number_unsigned(json::number_unsigned_t value) {
    const bool fits = value <= uint64_t{std::numeric_limits<int64_t>::max()};
    return Number("a number", std::to_string(value), static_cast<float>(value),
                  fits ? std::optional(static_cast<int64_t>(value)) : std::nullopt);
  }
  // `value` went through double; the token did not. Integers of 20 digits and more come here too.
  bool number_float(json::number_float_t /*value*/, const std::string& token) {
    const std::optional<float> value = ParseFloatText(token);
    if (!value) {
      Fail(Field(), Shown(token) + " is beyond float32, expected a finite number" +
                        (IsIntegerToken(token) ? "" : " (or the string \"inf\")"));
    }
    if (as_printed_ && (Spec().accepts & kDecimals) != 0 && !IsIntegerToken(token))
      AddPrinted(token);
    return Number("a number", token, *value, std::nullopt);
  }
  bool string(std::string& text) {
    if (depth_ > 0 && !in_list_ && (Spec().accepts & kTexts) != 0) {
      Scalar("a string", kTexts, CaseValue::Type::kText);
      fields_.at(key_).text = std::move(text);
      return true;
    }
    if (depth_ > 0 && !in_list_ && (Spec().accepts & kFiles) != 0 && text.ends_with(".npy")) {
      Scalar("a string", kFiles, CaseValue::Type::kList);
      fields_.at(key_).file = std::move(text);
      return true;
    }
    const bool number_allowed = depth_ > 0 && (in_list_ || (Spec().accepts & kNumbers) != 0);
    if (number_allowed && text.ends_with('~') && (Spec().accepts & kPrinted) != 0) {
      const std::string decimal = text.substr(0, text.size() - 1);
      const std::optional<float> value = ParseFloatText(decimal);
      if (!value || !AddPrinted(decimal)) {
        Fail(Field(), Shown(text) +
                          " is no printed number, expected a decimal float32 of at most 40 " +
                          "characters before the ~, such as \"0.0160~\"");
      }
      return Number("a string", JsonQuote(text), *value, std::nullopt);
    }
    if (number_allowed && text == "?" && (Spec().accepts & kUnknown) != 0) {
      fields_.at(key_).unknown.push_back(in_list_ ? fields_.at(key_).size() : 0);
      return Number("a string", "\"?\"", 1, 1);
    }
    if (!number_allowed || !SpellsFloat(text)) WrongType("the string " + Shown(text));
    std::optional<float> value = ParseFloatText(text);
    if (!value && in_list_ && IsShortNan(text)) {
      fields_.at(key_).nans.emplace_back(fields_.at(key_).size(), text);
      value = std::numeric_limits<float>::quiet_NaN();
    }
    if (!value) {
      Fail(Field(),
           Shown(text) + " is not exactly a float32, expected C99 hex such as \"0x1.8p-3\"");
    }
    return Number("a string", JsonQuote(text), *value, std::nullopt);
  }
  bool binary(json::binary_t& /*value*/) { return false; }  // not in JSON text

  bool start_object(size_t /*size*/) {
    if (depth_ == 0) {
      depth_ = 1;
      return true;
    }
    Scalar("an object", kObjects, CaseValue::Type::kObject);
    inside_observed_ = true;
    has_key_ = false;
    return true;
  }
  bool key(std::string& key) {
    const std::optional<CaseKey> found = FindKey(key, inside_observed_);
    const std::string shown = (inside_observed_ ? "observed: " : "") + Shown(key);
    if (!found) {
      Fail(shown, "is not a key of a case, expected one of the known keys, nearest is \"" +
                      std::string(NearestKey(key, inside_observed_)) + "\"");
    }
    key_ = *found;
    has_key_ = true;
    if (fields_.at(key_).present()) {
      Fail(FieldName(key_), "is given twice, expected each key at most once");
    }
    return true;
  }
  bool end_object() {
    if (inside_observed_) {
      inside_observed_ = false;
      key_ = CaseKey::kObserved;
    } else {
      depth_ = 0;  // whatever follows stands at the top level again
    }
    return true;
  }
  bool start_array(size_t /*size*/) {
    Scalar("a list", kLists, CaseValue::Type::kList);
    in_list_ = true;
    return true;
  }
  bool end_array() {
    in_list_ = false;
    return true;
  }
  bool parse_error(size_t /*position*/, const std::string& /*last_token*/,
                   const json::exception& error) {
    std::string_view what = error.what();
    const size_t tag = what.find("] ");
    if (tag != std::string_view::npos) what.remove_prefix(tag + 2);
    constexpr size_t kShown = 200;
    std::string text = OneLine(what.substr(0, kShown));
    if (what.size() > kShown) text += "...";
    const bool says_what = text.find("; expected") != std::string::npos;
    Fail(Field(), text + (says_what ? "" : ", expected JSON"));
  }

 private:
  const KeySpec& Spec() const { return kSpecs[static_cast<size_t>(key_)]; }

  std::string Field() const {
    if (depth_ == 0 || !has_key_) return inside_observed_ ? "observed" : "top level";
    std::string field(FieldName(key_));
    if (in_list_) field += "[" + std::to_string(fields_.at(key_).size()) + "]";
    return field;
  }

  [[noreturn]] void Fail(std::string_view field, const std::string& what) const {
    FailCase(name_, field, what);
  }

  [[noreturn]] void WrongType(const std::string& got) const {
    if (depth_ == 0) Fail("top level", "is " + got + ", expected an object");
    Fail(Field(),
         "is " + got + ", expected " + (in_list_ ? "a number" : std::string(Spec().expected)));
  }

  bool Scalar(const std::string& got, unsigned needed, CaseValue::Type type) {
    if (depth_ == 0 || in_list_ || (Spec().accepts & needed) == 0) WrongType(got);
    fields_.at(key_).type = type;
    return true;
  }

  // Notes that the number to come is printed; false if it is none.
  bool AddPrinted(const std::string& text) {
    if (!ParseDecimal(text)) return false;
    CaseValue& value = fields_.at(key_);
    if (value.printed.size() >= kMaxPrinted) {
      Fail(FieldName(key_),
           "has too many printed numbers, expected at most " + std::to_string(kMaxPrinted));
    }
    value.printed.emplace_back(in_list_ ? value.size() : 0, text);
    return true;
  }

  bool Number(const std::string& got, const std::string& token, float real,
              std::optional<int64_t> integer) {
    if (!in_list_) Scalar(got, kNumbers, CaseValue::Type::kNumber);
    CaseValue& value = fields_.at(key_);
    if (value.size() >= kMaxElements) {
      Fail(FieldName(key_),
           "has too many values, expected at most " + std::to_string(kMaxElements));
    }
    value.is_wide = integer.has_value();
    value.wide = integer.value_or(0);
    const bool narrow = integer && *integer >= INT32_MIN && *integer <= INT32_MAX;
    if (narrow && value.first_real < 0) {
      value.ints.push_back(static_cast<int32_t>(*integer));
      return true;
    }
    if (value.first_real < 0) {
      value.first_real = value.size();
      value.first_real_text = token.substr(0, 40);
      value.floats.assign(value.ints.begin(), value.ints.end());
      value.ints = {};
    }
    value.floats.push_back(real);
    return true;
  }

  // Each takes much more memory than a number.
  static constexpr size_t kMaxPrinted = size_t{1} << 20;

  std::string_view name_;
  CaseFields& fields_;
  bool as_printed_;
  int depth_ = 0;  // 1 inside the top object
  bool inside_observed_ = false;
  bool in_list_ = false;
  bool has_key_ = false;
  CaseKey key_ = CaseKey::kVersion;
};

}  // namespace

std::string_view FieldName(CaseKey key) { return kSpecs[static_cast<size_t>(key)].name; }

std::optional<CaseKey> KeyNamed(std::string_view name) {
  for (size_t i = 0; i < kCaseKeys; ++i) {
    if (kSpecs[i].name == name) return static_cast<CaseKey>(i);
  }
  return std::nullopt;
}

void FailCase(std::string_view name, std::string_view field, std::string_view what) {
  throw InputError(OneLine(name) + ": " + std::string(field) + ": " + std::string(what));
}

CaseFields ScanCase(std::string_view text, std::string_view name, bool as_printed) {
  if (const std::string error = CheckJsonBytes(text); !error.empty()) {
    throw InputError(OneLine(name) + ": " + error);
  }
  CaseFields fields;
  Scanner scanner(name, fields, as_printed);
  nlohmann::json::sax_parse(text.begin(), text.end(), &scanner,
                            nlohmann::json::input_format_t::json,
                            /*strict=*/true, /*ignore_comments=*/true);
  return fields;
}

}  // namespace qualm
