// SPDX-License-Identifier: Apache-2.0
#include "core/io/golden.h"

#include <array>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/float_text.h"
#include "core/io/json_text.h"
#include "core/io/text_file.h"
#include "core/status.h"

namespace qualm {

// A field. Lists of integers only, the bulk of every file, are kept compactly.
struct GoldenRecord::Value {
  enum class Kind : uint8_t { kNull, kInteger, kNumber, kText, kList };
  Kind kind = Kind::kNull;
  int64_t integer = 0;                 // kInteger
  std::string text = {};               // kText; kNumber: the token as written
  std::vector<int64_t> integers = {};  // kList, while all entries are integers
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
    if (in_object_) return Fail("field " + Printable(key_) + ": an object, expected a plain value");
    if (!lists_.empty()) return Fail("an object inside a list");
    in_object_ = true;
    return true;
  }
  bool end_object() override { return true; }
  bool key(string_t& name) override {
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
    } else {
      fields[key_] = std::make_shared<const Value>(std::move(value));
    }
    return true;
  }

  bool in_object_ = false;
  std::string key_;
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
  std::vector<float> result;
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
  if (value.kind != Kind::kList || !value.items.empty())
    Wrong(*this, field, "expected a list of integers");
  return value.integers;
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
  record.id = record.Text("id");
  record.where += ": " + Printable(record.id);
  record.backend = record.Text("backend");
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
  for (int64_t line = 1; NextLine(stream, text); ++line) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    visit(ParseGoldenLine(text, path, line));
  }
  if (stream.bad()) throw InputError(path + ": cannot be read");
}

}  // namespace qualm
