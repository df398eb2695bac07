// SPDX-License-Identifier: Apache-2.0
// What a child says of itself, read. The line is short, so it becomes a tree first.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/io/json_text.h"
#include "core/io/pipe_json.h"
#include "core/nearest.h"
#include "core/status.h"

namespace qualm {
namespace {

// By value of PipeFeature.
constexpr std::array<std::string_view, kPipeFeatureCount> kFeatureNames{
    "bias_f32",     "bias_i32", "relu",     "clamp",  "per_channel",        "empty",
    "empty_k",      "acc",      "dilation", "groups", "asymmetric_padding", "ceil_mode",
    "count_padding"};

[[noreturn]] void Fail(const std::string& field, const std::string& what) {
  throw InputError(field + ": " + what);
}

struct Node {
  enum class Kind : uint8_t { kInteger, kText, kList, kObject, kOther };
  Kind kind = Kind::kOther;
  std::string what = {};  // for messages: "a number"
  int64_t integer = 0;
  std::string text = {};
  std::vector<std::pair<std::string, Node>> members = {};
  std::vector<Node> items = {};

  const Node* Find(std::string_view key) const {
    const auto at = std::ranges::find(members, key, &std::pair<std::string, Node>::first);
    return at == members.end() ? nullptr : &at->second;
  }
};

class TreeBuilder {
 public:
  using json = nlohmann::json;

  Node root;

  bool null() { return Add({.what = "null"}); }
  bool boolean(bool /*value*/) { return Add({.what = "a boolean"}); }
  bool number_integer(json::number_integer_t value) { return Integer(value); }
  bool number_unsigned(json::number_unsigned_t value) {
    if (value > static_cast<uint64_t>(INT64_MAX)) return Add({.what = std::to_string(value)});
    return Integer(static_cast<int64_t>(value));
  }
  bool number_float(json::number_float_t /*value*/, const std::string& token) {
    return Add({.what = Shown(token)});
  }
  bool string(std::string& text) {
    return Add({.kind = Node::Kind::kText, .what = Shown(text), .text = std::move(text)});
  }
  bool binary(json::binary_t& /*value*/) { return false; }  // not in JSON text
  bool start_object(size_t /*size*/) {
    return Open({.kind = Node::Kind::kObject, .what = "an object"});
  }
  bool start_array(size_t /*size*/) { return Open({.kind = Node::Kind::kList, .what = "a list"}); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool key(std::string& key) {
    if (open_.back().Find(key) != nullptr) {
      Fail(Shown(key), "is given twice, expected each key at most once");
    }
    open_.back().members.emplace_back(std::move(key), Node{});
    return true;
  }
  bool parse_error(size_t position, const std::string& /*last_token*/,
                   const json::exception& /*error*/) {
    Fail("byte " + std::to_string(position), "is not JSON, expected one JSON object on the line");
  }

 private:
  bool Integer(int64_t value) {
    return Add({.kind = Node::Kind::kInteger, .what = std::to_string(value), .integer = value});
  }
  bool Open(Node node) {
    constexpr size_t kMaxDepth = 16;
    if (open_.size() == kMaxDepth) Fail("top level", "is nested deeper than 16");
    open_.push_back(std::move(node));
    return true;
  }
  bool Close() {
    Node done = std::move(open_.back());
    open_.pop_back();
    return Add(std::move(done));
  }
  bool Add(Node node) {
    if (open_.empty()) {
      root = std::move(node);
    } else if (open_.back().kind == Node::Kind::kObject) {
      open_.back().members.back().second = std::move(node);
    } else {
      open_.back().items.push_back(std::move(node));
    }
    return true;
  }

  std::vector<Node> open_;
};

std::string Suggestion(std::string_view name, const std::vector<std::string_view>& known) {
  return ", nearest is \"" + std::string(NearestName(name, known)) + "\"";
}

void RequireKeys(const Node& object, const std::string& path,
                 const std::vector<std::string_view>& known) {
  for (const auto& [key, unused] : object.members) {
    if (std::ranges::find(known, key) == known.end()) {
      Fail(path + Shown(key),
           "is not a key here, expected one of the known keys" + Suggestion(key, known));
    }
  }
}

void Need(const Node& node, const std::string& path, Node::Kind kind, const std::string& expected) {
  if (node.kind != kind) Fail(path, "is " + node.what + ", expected " + expected);
}

std::string TextOf(const Node& top, std::string_view key, std::string absent) {
  const Node* node = top.Find(key);
  if (node == nullptr) return absent;
  Need(*node, std::string(key), Node::Kind::kText, "a string");
  return node->text;
}

void ReadTypes(const Node& op, const std::string& path, std::string_view key,
               PipeOp::Types* types) {
  const Node* node = op.Find(key);
  if (node == nullptr) return;
  const std::string field = path + std::string(key);
  constexpr std::string_view kExpected = "a list of element types: u8, s8, s32, f32";
  Need(*node, field, Node::Kind::kList, std::string(kExpected));
  if (node->items.empty()) Fail(field, "is empty, expected " + std::string(kExpected));
  types->reset();
  for (const Node& item : node->items) {
    const std::optional<DType> dtype =
        item.kind == Node::Kind::kText ? ParseDType(item.text) : std::nullopt;
    if (!dtype) Fail(field, "holds " + item.what + ", expected " + std::string(kExpected));
    types->set(static_cast<size_t>(*dtype));
  }
}

void ReadFeatures(const Node& op, const std::string& path, PipeOp* limits) {
  const Node* node = op.Find("features");
  if (node == nullptr) return;
  const std::string field = path + "features";
  Need(*node, field, Node::Kind::kList, "a list of features");
  for (const Node& item : node->items) {
    Need(item, field, Node::Kind::kText, "a list of features");
    const auto at = std::ranges::find(kFeatureNames, item.text);
    if (at == kFeatureNames.end()) {
      Fail(field, "holds " + item.what + ", expected one of the known features" +
                      Suggestion(item.text, {kFeatureNames.begin(), kFeatureNames.end()}));
    }
    limits->features.set(static_cast<size_t>(at - kFeatureNames.begin()));
  }
}

void ReadSize(const Node& op, const std::string& path, std::string_view key, int64_t* size) {
  const Node* node = op.Find(key);
  if (node == nullptr) return;
  const std::string field = path + std::string(key);
  Need(*node, field, Node::Kind::kInteger, "an integer from 0 on");
  *size = node->integer;
  if (*size < 0) Fail(field, "is " + node->what + ", expected an integer from 0 on");
}

void ReadZeroPoints(const Node& op, const std::string& path, std::string_view key,
                    std::optional<CodeRange>* range) {
  const Node* node = op.Find(key);
  if (node == nullptr) return;
  const std::string field = path + std::string(key);
  constexpr std::string_view kExpected = "a list of 2 int32, the smallest and the largest";
  Need(*node, field, Node::Kind::kList, std::string(kExpected));
  const auto is_int32 = [](const Node& item) {
    return item.kind == Node::Kind::kInteger && item.integer >= INT32_MIN &&
           item.integer <= INT32_MAX;
  };
  if (node->items.size() != 2 || !std::ranges::all_of(node->items, is_int32)) {
    Fail(field, "is something else, expected " + std::string(kExpected));
  }
  *range = CodeRange{static_cast<int32_t>(node->items[0].integer),
                     static_cast<int32_t>(node->items[1].integer)};
  if ((*range)->min > (*range)->max) {
    Fail(field, "is empty, expected " + std::string(kExpected));
  }
}

PipeOp ReadOp(const Node& op, const std::string& path) {
  Need(op, path, Node::Kind::kObject, "an object");
  const std::string inside = path + ".";
  RequireKeys(op, inside,
              {"x", "w", "out", "features", "m_max", "n_max", "k_max", "n_multiple", "k_multiple",
               "x_zp", "w_zp", "out_zp"});
  PipeOp limits;
  ReadTypes(op, inside, "x", &limits.x);
  ReadTypes(op, inside, "w", &limits.w);
  ReadTypes(op, inside, "out", &limits.out);
  ReadFeatures(op, inside, &limits);
  ReadSize(op, inside, "m_max", &limits.m_max);
  ReadSize(op, inside, "n_max", &limits.n_max);
  ReadSize(op, inside, "k_max", &limits.k_max);
  ReadSize(op, inside, "n_multiple", &limits.n_multiple);
  ReadSize(op, inside, "k_multiple", &limits.k_multiple);
  ReadZeroPoints(op, inside, "x_zp", &limits.x_zp);
  ReadZeroPoints(op, inside, "w_zp", &limits.w_zp);
  ReadZeroPoints(op, inside, "out_zp", &limits.out_zp);
  return limits;
}

}  // namespace

std::string_view Name(PipeFeature feature) { return kFeatureNames[static_cast<size_t>(feature)]; }

std::string PipeHelloLine() { return "{\"qualm_pipe\": " + std::to_string(kPipeVersion) + "}\n"; }

PipeHello ParsePipeHello(std::string_view line) {
  if (line.size() > kPipeHelloBytesMax) {
    Fail("top level", "is longer than " + std::to_string(kPipeHelloBytesMax) + " bytes");
  }
  if (const std::string error = CheckJsonBytes(line); !error.empty()) throw InputError(error);
  TreeBuilder builder;
  nlohmann::json::sax_parse(line.begin(), line.end(), &builder);
  const Node& top = builder.root;
  Need(top, "top level", Node::Kind::kObject, "an object");

  // Another version may look different in everything else.
  const Node* version = top.Find("qualm_pipe");
  if (version == nullptr) {
    Fail("qualm_pipe",
         "is missing, expected the version of the protocol, " + std::to_string(kPipeVersion));
  }
  if (version->kind != Node::Kind::kInteger || version->integer != kPipeVersion) {
    Fail("qualm_pipe", "is " + version->what + ", expected version " +
                           std::to_string(kPipeVersion) + " of the protocol");
  }
  RequireKeys(top, "", {"qualm_pipe", "name", "version", "contract", "instruction_set", "ops"});
  PipeHello hello;
  hello.name = TextOf(top, "name", "");
  if (hello.name.empty()) Fail("name", "is missing, expected who answers");
  hello.version = TextOf(top, "version", "");
  hello.contract = TextOf(top, "contract", "exact");
  hello.instruction_set = TextOf(top, "instruction_set", "");

  const Node* ops = top.Find("ops");
  if (ops == nullptr) Fail("ops", "is missing, expected an object of operations");
  Need(*ops, "ops", Node::Kind::kObject, "an object of operations");
  if (ops->members.empty()) Fail("ops", "is empty, expected at least one operation");
  std::vector<std::string_view> known;
  for (const Op op : AllOps()) known.push_back(Name(op));
  RequireKeys(*ops, "ops.", known);
  for (const auto& [name, limits] : ops->members) {
    hello.ops[static_cast<size_t>(*ParseOp(name))] = ReadOp(limits, "ops." + name);
  }
  return hello;
}

}  // namespace qualm
