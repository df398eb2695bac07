// SPDX-License-Identifier: Apache-2.0
#include "core/io/golden.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/float_text.h"
#include "core/io/case_json.h"
#include "core/io/json_text.h"
#include "core/io/packed_array.h"
#include "core/io/text_file.h"
#include "core/status.h"

namespace qualm {

// A field. Lists of one type, the bulk of every file, are kept compactly.
struct GoldenRecord::Value {
  enum class Kind : uint8_t { kNull, kInteger, kNumber, kText, kList };
  Kind kind = Kind::kNull;
  int64_t integer = 0;                 // kInteger
  std::string text = {};               // kText; kNumber: the token as written
  std::vector<int64_t> integers = {};  // kList, while all entries are integers
  std::vector<float> reals = {};       // kList that was packed as float16 or float32
  std::vector<Value> items = {};       // kList otherwise

  void Append(Value item) {
    if (items.empty() && item.kind == Kind::kInteger) {
      integers.push_back(item.integer);
      return;
    }
    for (const int64_t each : integers) items.push_back({.kind = Kind::kInteger, .integer = each});
    integers.clear();
    items.push_back(std::move(item));
  }
};

namespace {

using Value = GoldenRecord::Value;
using Kind = Value::Kind;
constexpr size_t kMaxDepth = 16;
constexpr size_t kMaxLineBytes = size_t{1} << 28;

// The entries of type T as `Entry`s.
template <class T, class Entry>
std::vector<Entry> Entries(const std::string& bytes) {
  std::vector<Entry> list;
  for (size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    T entry;
    std::memcpy(&entry, bytes.data() + at, sizeof entry);
    list.push_back(static_cast<Entry>(entry));
  }
  return list;
}

struct PackedType {
  std::string_view dtype;  // NumPy's name
  size_t bytes;
  void (*into)(const std::string& bytes, Value& list);
};
template <class T>
void IntoIntegers(const std::string& bytes, Value& list) {
  list.integers = Entries<T, int64_t>(bytes);
}
// A float16 as the float32 of the same value.
float FromHalf(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float magnitude = exponent == 31 ? (fraction == 0 ? std::numeric_limits<float>::infinity()
                                                          : std::numeric_limits<float>::quiet_NaN())
                          : exponent == 0
                              ? std::ldexp(static_cast<float>(fraction), -24)
                              : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return bits >> 15 != 0 ? -magnitude : magnitude;
}
constexpr PackedType kPackedTypes[] = {
    {"uint8", 1, IntoIntegers<uint8_t>},
    {"int8", 1, IntoIntegers<int8_t>},
    {"uint16", 2, IntoIntegers<uint16_t>},
    {"int16", 2, IntoIntegers<int16_t>},
    {"uint32", 4, IntoIntegers<uint32_t>},
    {"int32", 4, IntoIntegers<int32_t>},
    {"int64", 8, IntoIntegers<int64_t>},
    {"float16", 2,
     [](const std::string& bytes, Value& list) {
       for (const uint16_t entry : Entries<uint16_t, uint16_t>(bytes))
         list.reals.push_back(FromHalf(entry));
     }},
    {"float32", 4,
     [](const std::string& bytes, Value& list) { list.reals = Entries<float, float>(bytes); }},
    {"float64", 8,
     [](const std::string& bytes, Value& list) {
       for (const double entry : Entries<double, double>(bytes))
         list.items.push_back({.kind = Value::Kind::kText, .text = DoubleText(entry)});
     }},
};

// A packed array as the list that it stands for. Throws InputError without a place.
Value ListOf(const std::map<std::string, Value>& packed) {
  const auto part = [&](const char* name, Value::Kind kind) -> const Value& {
    const auto at = packed.find(name);
    if (packed.size() != 3 || at == packed.end() || at->second.kind != kind ||
        !at->second.items.empty())
      throw InputError("an object, expected a plain value or a packed array: dtype, shape, z");
    return at->second;
  };
  const std::string& dtype = part("dtype", Value::Kind::kText).text;
  const auto type = std::ranges::find(kPackedTypes, dtype, &PackedType::dtype);
  if (type == std::end(kPackedTypes)) throw InputError("dtype " + OneLine(dtype) + " is not known");
  const std::vector<int64_t>& shape = part("shape", Value::Kind::kList).integers;
  const int64_t count = ElementCount(shape, kMaxElements);
  if (count < 0) throw InputError("its shape is negative or too large");
  Value list{.kind = Value::Kind::kList};
  type->into(Unpack(part("z", Value::Kind::kText).text, static_cast<size_t>(count) * type->bytes),
             list);
  return list;
}

// Ids and names go into one-line messages.
std::string Printable(std::string_view text) { return OneLine(text.substr(0, 120)); }

class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::map<std::string, std::shared_ptr<const Value>> fields;
  std::string error;

  bool null() override { return Add({}); }
  bool boolean(bool value) override {
    return Add({.kind = Kind::kInteger, .integer = value ? 1 : 0});
  }
  bool number_integer(number_integer_t value) override {
    return Add({.kind = Kind::kInteger, .integer = value});
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<number_unsigned_t>(INT64_MAX))
      return number_integer(static_cast<number_integer_t>(value));
    return Add({.kind = Kind::kNumber, .text = std::to_string(value)});
  }
  bool number_float(number_float_t, const string_t& token) override {
    return Add({.kind = Kind::kNumber, .text = token});
  }
  bool string(string_t& text) override {
    return Add({.kind = Kind::kText, .text = std::move(text)});
  }
  bool binary(binary_t&) override { return Fail("binary data"); }
  bool start_object(size_t) override {
    if (!lists_.empty()) return Fail("field " + Printable(key_) + ": an object inside a list");
    if (packed_) return Fail("field " + Printable(key_) + ": an object inside an object");
    if (in_object_) packed_.emplace();
    in_object_ = true;
    return true;
  }
  bool end_object() override {
    if (!packed_) return true;
    const std::map<std::string, Value> packed = std::exchange(packed_, std::nullopt).value();
    if (std::ranges::find(kOptions, key_) != std::end(kOptions)) {
      for (const auto& [name, value] : packed) {
        if (value.kind == Kind::kList) return Fail("field " + Printable(name) + ": a list");
        fields[key_ + "." + name] = std::make_shared<const Value>(value);
      }
      return true;
    }
    try {
      return Add(ListOf(packed));
    } catch (const InputError& failure) {
      return Fail("field " + Printable(key_) + ": " + failure.what());
    }
  }
  bool key(string_t& name) override {
    if (packed_) {
      part_ = std::move(name);
      return true;
    }
    if (fields.contains(name)) return Fail("field " + Printable(name) + ": given twice");
    key_ = std::move(name);
    return true;
  }
  bool start_array(size_t) override {
    if (!in_object_) return Fail("expected an object");
    if (lists_.size() + 1 >= kMaxDepth)
      return Fail("field " + Printable(key_) + ": nested too deep");
    lists_.push_back({.kind = Kind::kList});
    return true;
  }
  bool end_array() override {
    Value list = std::move(lists_.back());
    lists_.pop_back();
    return Add(std::move(list));
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& problem) override {
    return Fail("not JSON at byte " + std::to_string(position) + " (" + Printable(Tail(problem)) +
                ")");
  }

 private:
  // The fields that are plain objects: their members become fields "params.NAME".
  static constexpr std::array<std::string_view, 2> kOptions{"params", "masks"};

  static std::string Tail(const nlohmann::detail::exception& problem) {
    const std::string text = problem.what();
    const size_t colon = text.rfind(": ");
    return colon == std::string::npos ? text : text.substr(colon + 2);
  }
  bool Fail(std::string what) {
    error = std::move(what);
    return false;
  }
  bool Add(Value value) {
    if (!in_object_) return Fail("expected an object");
    if (!lists_.empty()) {
      lists_.back().Append(std::move(value));
    } else if (packed_) {
      (*packed_)[part_] = std::move(value);
    } else {
      fields[key_] = std::make_shared<const Value>(std::move(value));
    }
    return true;
  }

  bool in_object_ = false;
  std::string key_, part_;
  std::optional<std::map<std::string, Value>> packed_;  // inside an object inside the record
  std::vector<Value> lists_;
};

[[noreturn]] void Wrong(const GoldenRecord& record, const std::string& field,
                        const std::string& what) {
  throw InputError(record.where + ": " + Printable(field) + ": " + what);
}

const Value& Find(const GoldenRecord& record, const std::string& field) {
  const auto at = record.fields.find(field);
  if (at == record.fields.end() || at->second->kind == Kind::kNull) {
    Wrong(record, field, "missing, but this record needs it");
  }
  return *at->second;
}

float AsFloat(const GoldenRecord& record, const std::string& field, const Value& value) {
  std::optional<float> result;
  // Python's name for a NaN says nothing about its bits.
  if (value.kind == Kind::kText && value.text == "nan")
    return std::numeric_limits<float>::quiet_NaN();
  if (value.kind == Kind::kText || value.kind == Kind::kNumber) result = ParseFloatText(value.text);
  if (value.kind == Kind::kInteger) result = ParseFloatText(std::to_string(value.integer));
  if (!result)
    Wrong(record, field, "expected a float32, as \"0x1.8p-3\", \"inf\" or \"nan:7fc00000\"");
  return *result;
}

std::vector<float> AsFloats(const GoldenRecord& record, const std::string& field,
                            const Value& value) {
  if (value.kind != Kind::kList) return {AsFloat(record, field, value)};
  std::vector<float> result = value.reals;
  for (const int64_t integer : value.integers)
    result.push_back(AsFloat(record, field, {.kind = Kind::kInteger, .integer = integer}));
  for (const Value& item : value.items) result.push_back(AsFloat(record, field, item));
  return result;
}

}  // namespace

bool GoldenRecord::Has(const std::string& field) const {
  const auto at = fields.find(field);
  return at != fields.end() && at->second->kind != Kind::kNull;
}

int64_t GoldenRecord::Int(const std::string& field) const {
  const Value& value = Find(*this, field);
  if (value.kind != Kind::kInteger) Wrong(*this, field, "expected an integer");
  return value.integer;
}

std::string GoldenRecord::Text(const std::string& field) const {
  const Value& value = Find(*this, field);
  if (value.kind != Kind::kText) Wrong(*this, field, "expected a string");
  return value.text;
}

float GoldenRecord::Float(const std::string& field) const {
  return AsFloat(*this, field, Find(*this, field));
}

double GoldenRecord::Double(const std::string& field) const {
  const Value& value = Find(*this, field);
  std::optional<double> result;
  if (value.kind == Kind::kText || value.kind == Kind::kNumber)
    result = ParseDoubleText(value.text);
  if (value.kind == Kind::kInteger) result = ParseDoubleText(std::to_string(value.integer));
  if (!result) Wrong(*this, field, "expected a float64, as \"0x1.8p-3\"");
  return *result;
}

std::vector<int64_t> GoldenRecord::Ints(const std::string& field) const {
  const Value& value = Find(*this, field);
  if (value.kind == Kind::kInteger) return {value.integer};
  if (value.kind != Kind::kList || !value.items.empty() || !value.reals.empty())
    Wrong(*this, field, "expected a list of integers");
  return value.integers;
}

std::vector<int64_t> GoldenRecord::Patterns(const std::string& field) const {
  const Value& value = Find(*this, field);
  if (value.reals.empty() && value.items.empty()) return Ints(field);
  std::vector<int64_t> patterns;
  for (const float real : Floats(field)) patterns.push_back(std::bit_cast<uint32_t>(real));
  return patterns;
}

std::vector<std::string> GoldenRecord::Texts(const std::string& field) const {
  const Value& value = Find(*this, field);
  if (value.kind != Kind::kList || !value.integers.empty() || !value.reals.empty())
    Wrong(*this, field, "expected a list of strings");
  std::vector<std::string> texts;
  for (const Value& item : value.items) {
    if (item.kind != Kind::kText) Wrong(*this, field, "expected a list of strings");
    texts.push_back(item.text);
  }
  return texts;
}

std::vector<float> GoldenRecord::Floats(const std::string& field) const {
  return AsFloats(*this, field, Find(*this, field));
}

std::vector<std::vector<float>> GoldenRecord::FloatLists(const std::string& field) const {
  const Value& value = Find(*this, field);
  if (value.kind != Kind::kList || !value.integers.empty())
    Wrong(*this, field, "expected a list of lists of floats");
  std::vector<std::vector<float>> result;
  for (const Value& item : value.items) {
    if (item.kind != Kind::kList) Wrong(*this, field, "expected a list of lists of floats");
    result.push_back(AsFloats(*this, field, item));
  }
  return result;
}

// As std::getline, but no line is read much further than its longest allowed length.
bool NextLine(std::istream& stream, std::string& text) {
  std::array<char, size_t{1} << 16> piece;
  text.clear();
  for (;;) {
    stream.getline(piece.data(), piece.size());
    const auto count = static_cast<size_t>(stream.gcount());
    // gcount counts the end of the line; where that is not in the piece, the stream has failed or
    // ended.
    text.append(piece.data(), stream.good() ? count - 1 : count);
    const bool goes_on = stream.fail() && !stream.eof() && count == piece.size() - 1;
    if (!goes_on || text.size() > kMaxLineBytes) return count > 0 || !text.empty();
    stream.clear();
  }
}

GoldenRecord ParseGoldenLine(std::string_view text, std::string_view file, int64_t line) {
  GoldenRecord record;
  record.line = line;
  record.where = std::string(file) + ":" + std::to_string(line);
  if (text.size() > kMaxLineBytes) throw InputError(record.where + ": longer than 256 MiB");
  if (const std::string error = CheckJsonBytes(text); !error.empty()) {
    throw InputError(record.where + ": " + error);
  }
  Builder builder;
  const bool read = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (!builder.error.empty()) throw InputError(record.where + ": " + builder.error);
  if (!read) throw InputError(record.where + ": not a JSON object");
  record.fields = std::move(builder.fields);
  // Casts are told by their place; inputs that they share belong to no library.
  const bool has_id = record.Has("id") || (!record.Has("bits_in") && !record.Has("codes"));
  record.id = record.Text(has_id ? "id" : "op");
  record.where += ": " + Printable(record.id);
  // Recordings of November 2026 call the library a stack.
  const bool is_shared = record.Has("op") && record.Text("op") == "input_set";
  if (!is_shared) record.backend = record.Text(record.Has("backend") ? "backend" : "stack");
  record.op = record.Text("op");
  if (record.Has("isa")) record.isa = record.Text("isa");
  return record;
}

void ForEachGoldenRecord(const std::string& path,
                         const std::function<void(const GoldenRecord&)>& visit) {
  RequireFile(path, "recording");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw InputError(path + ": cannot be opened");
  std::string text;
  std::map<std::string, std::shared_ptr<const Value>> input_sets;
  for (int64_t line = 1; NextLine(stream, text); ++line) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    GoldenRecord record = ParseGoldenLine(text, path, line);
    if (record.op == "input_set" && record.Has("bits"))
      input_sets[record.Text("id")] = record.fields.at("bits");
    if (record.Has("bits_in")) {
      const auto at = input_sets.find(record.Text("bits_in"));
      if (at == input_sets.end()) Wrong(record, "bits_in", "names no input_set of a line above");
      record.fields["bits"] = at->second;
    }
    visit(record);
  }
  if (stream.bad()) throw InputError(path + ": cannot be read");
}

}  // namespace qualm
