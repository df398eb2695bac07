// SPDX-License-Identifier: Apache-2.0
// Reads what a child says of itself. The line is short, so it is first parsed into a JSON tree.
#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/float_text.h"
#include "core/io/json_text.h"
#include "core/io/pipe_json.h"
#include "core/io/strict_json.h"
#include "core/nearest.h"
#include "core/status.h"
#include "core/weight_formats.h"

namespace qualm {
namespace {

// By value of PipeFeature.
constexpr std::array<std::string_view, kPipeFeatureCount> kFeatureNames{"bias_f32",
                                                                        "bias_i32",
                                                                        "relu",
                                                                        "clamp",
                                                                        "per_channel",
                                                                        "empty",
                                                                        "empty_k",
                                                                        "acc",
                                                                        "dilation",
                                                                        "groups",
                                                                        "asymmetric_padding",
                                                                        "ceil_mode",
                                                                        "count_padding",
                                                                        "per_row",
                                                                        "per_block",
                                                                        "x_per_block",
                                                                        "float_x",
                                                                        "cast_scales",
                                                                        "codes"};

// The value in the words of an error message.
std::string Described(const nlohmann::json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  if (value.is_boolean()) return "a boolean";
  return value.is_string() ? Shown(value.get_ref<const std::string&>()) : value.dump();
}

[[noreturn]] void FailAs(const JsonNode& node, std::string_view expected) {
  node.Fail("is " + Described(node.value()) + ", expected " + std::string(expected));
}

std::string Suggestion(std::string_view name, const std::vector<std::string_view>& known) {
  return ", nearest is \"" + std::string(NearestName(name, known)) + "\"";
}

void RequireKeys(const JsonNode& object, const std::vector<std::string_view>& known) {
  for (const auto& item : object.value().items()) {
    if (std::ranges::find(known, item.key()) != known.end()) continue;
    object.At(item.key(), "")
        .Fail("is not a key here, expected one of the known keys" + Suggestion(item.key(), known));
  }
}

void ReadString(const JsonNode& node, std::string& text) {
  if (!node.value().is_string()) FailAs(node, "a string");
  text = node.Text();
}

void ReadBoolean(const JsonNode& node, bool& flag) {
  if (!node.value().is_boolean()) FailAs(node, "a boolean");
  flag = node.Flag();
}

void ReadTypes(const JsonNode& node, PipeOp::Types& types) {
  const std::string expected = "a list of element types: u8, s8, s32, f32, s4, ...";
  if (!node.value().is_array()) FailAs(node, expected);
  if (node.value().empty()) node.Fail("is empty, expected " + expected);
  types.reset();
  for (const nlohmann::json& item : node.value()) {
    const std::optional<DType> dtype =
        item.is_string() ? ParseDType(item.get_ref<const std::string&>()) : std::nullopt;
    if (!dtype) node.Fail("holds " + Described(item) + ", expected " + expected);
    types.set(static_cast<size_t>(*dtype));
  }
}

void ReadFeatures(const JsonNode& node, std::bitset<kPipeFeatureCount>& features) {
  if (!node.value().is_array()) FailAs(node, "a list of features");
  for (const nlohmann::json& item : node.value()) {
    if (!item.is_string()) node.Fail("is a list with " + Described(item) + ", expected texts");
    const auto& name = item.get_ref<const std::string&>();
    const auto at = std::ranges::find(kFeatureNames, name);
    if (at == kFeatureNames.end()) {
      node.Fail("holds " + Shown(name) + ", expected one of the known features" +
                Suggestion(name, {kFeatureNames.begin(), kFeatureNames.end()}));
    }
    features.set(static_cast<size_t>(at - kFeatureNames.begin()));
  }
}

void ReadRules(const JsonNode& node, QParamsRules& rules) {
  const std::string expected =
      "a list of rules: observer, aten, onnx, mx_floor, mx_ceil, mx_even, mx_rceil, mx_nearest";
  if (!node.value().is_array()) FailAs(node, expected);
  if (node.value().empty()) node.Fail("is empty, expected " + expected);
  rules.reset();
  for (const nlohmann::json& item : node.value()) {
    const std::optional<QParamsRule> rule =
        item.is_string() ? Parse<QParamsRule>(item.get_ref<const std::string&>()) : std::nullopt;
    if (!rule) node.Fail("holds " + Described(item) + ", expected " + expected);
    rules.set(static_cast<size_t>(*rule));
  }
}

void ReadFormats(const JsonNode& node, uint32_t& formats) {
  const std::string expected = "a list of formats: " + AllFormatNames();
  if (!node.value().is_array()) FailAs(node, expected);
  if (node.value().empty()) node.Fail("is empty, expected " + expected);
  for (const nlohmann::json& item : node.value()) {
    const auto format = std::ranges::find_if(
        kWeightFormats, [&](const WeightFormat* each) { return item == each->name; });
    if (format == kWeightFormats.end())
      node.Fail("holds " + Described(item) + ", expected " + expected);
    formats |= 1u << (format - kWeightFormats.begin());
  }
}

void ReadSize(const JsonNode& node, int64_t& size) {
  const nlohmann::json& value = node.value();
  // The JSON library calls integers from 0 on "unsigned"; int64 holds all but the largest of them.
  if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t{INT64_MAX})
    FailAs(node, "an integer from 0 on");
  size = value.get<int64_t>();
}

void ReadZeroPoints(const JsonNode& node, std::optional<CodeRange>& range) {
  const std::string expected = "a list of 2 int32, the smallest and the largest";
  if (!node.value().is_array()) FailAs(node, expected);
  const auto is_int32 = [](const nlohmann::json& item) {
    if (item.is_number_unsigned()) return item.get<uint64_t>() <= uint64_t{INT32_MAX};
    return item.is_number_integer() && item.get<int64_t>() >= INT32_MIN;
  };
  if (node.value().size() != 2 || !std::ranges::all_of(node.value(), is_int32))
    node.Fail("is something else, expected " + expected);
  range = CodeRange{node.value()[0].get<int32_t>(), node.value()[1].get<int32_t>()};
  if (range->min > range->max) node.Fail("is empty, expected " + expected);
}

// One word of a domain, so that nothing else can hide in it.
std::string Word(const JsonNode& node, const std::string& text, const std::string& expected) {
  if (text.empty() || text.size() > 200 || !std::ranges::all_of(text, [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
               std::string_view("+-_.:*").find(c) != std::string_view::npos;
      }))
    node.Fail("holds " + Shown(text) + ", expected " + expected);
  return text;
}

void ReadDomain(const JsonNode& node, std::string& domain) {
  const std::string expected = "an object of ranges [LEAST, MOST], and of shapes";
  if (!node.value().is_object()) FailAs(node, expected);
  const auto add = [&](const std::string& entry) {
    domain += (domain.empty() ? "" : "; ") + entry;
  };
  for (const auto& [name, value] : node.value().items()) {
    const std::string key = Word(node, name, expected);
    if (!value.is_array() || (key != "shapes" && value.size() != 2))
      node.Fail("has " + key + " as " + Described(value) + ", expected " + expected);
    std::string range = key;
    for (const nlohmann::json& item : value) {
      if (item.is_string()) {
        const std::string word = Word(node, item.get<std::string>(), expected);
        if (key == "shapes") add("shape " + word);
        range += " " + word;
      } else if (item.is_number() && key != "shapes") {
        range += " " + DoubleText(item.get<double>());
      } else {
        node.Fail("has " + key + " with " + Described(item) + ", expected " + expected);
      }
    }
    if (key != "shapes") add(range);
  }
}

void MembersOf(PipeOp& op, const auto& visit) {
  visit("x", op.x, ReadTypes);
  visit("w", op.w, ReadTypes);
  visit("out", op.out, ReadTypes);
  visit("features", op.features, ReadFeatures);
  visit("rules", op.rules, ReadRules);
  visit("m_max", op.m_max, ReadSize);
  visit("n_max", op.n_max, ReadSize);
  visit("k_max", op.k_max, ReadSize);
  visit("n_multiple", op.n_multiple, ReadSize);
  visit("k_multiple", op.k_multiple, ReadSize);
  visit("x_zp", op.x_zp, ReadZeroPoints);
  visit("w_zp", op.w_zp, ReadZeroPoints);
  visit("out_zp", op.out_zp, ReadZeroPoints);
  visit("w_formats", op.w_formats, ReadFormats);
  visit("domain", op.domain, ReadDomain);
}

void MembersOf(PipeHello& hello, const auto& visit) {
  visit("name", hello.name, ReadString);
  visit("version", hello.version, ReadString);
  visit("contract", hello.contract, ReadString);
  visit("instruction_set", hello.instruction_set, ReadString);
  visit("dot", hello.dot, ReadBoolean);
}

// Every member may be missing.
template <class Document>
void Read(const JsonNode& object, Document& document, std::vector<std::string_view> keys = {}) {
  if (!object.value().is_object()) FailAs(object, "an object");
  MembersOf(document, [&](const char* key, auto&, auto) { keys.push_back(key); });
  RequireKeys(object, keys);
  MembersOf(document, [&](const char* key, auto& member, auto read) {
    if (object.Has(key)) read(object.At(key, ""), member);
  });
}

}  // namespace

std::string_view Name(PipeFeature feature) { return kFeatureNames[static_cast<size_t>(feature)]; }

QParamsRules RulesUnlessSaid(Op op) {
  if (op != Op::kChooseQParams) return ~QParamsRules();
  return QParamsRules().set(static_cast<size_t>(QParamsRule::kObserver));
}

std::string PipeHelloLine() { return "{\"qualm_pipe\": " + std::to_string(kPipeVersion) + "}\n"; }

PipeHello ParsePipeHello(std::string_view line) {
  if (line.size() > kPipeHelloBytesMax) {
    throw InputError("top level: is longer than " + std::to_string(kPipeHelloBytesMax) + " bytes");
  }
  const nlohmann::json tree = ParseStrictJson(line, "", /*comments=*/false);
  const JsonNode top(tree, "");
  if (!tree.is_object()) FailAs(top, "an object");

  // The version first: another version of the protocol may differ in every other key.
  const std::string version = std::to_string(kPipeVersion);
  const JsonNode given = top.At("qualm_pipe", "the version of the protocol, " + version);
  if (!given.value().is_number_integer() || given.value() != kPipeVersion)
    FailAs(given, "version " + version + " of the protocol");
  PipeHello hello;
  Read(top, hello, {"qualm_pipe", "ops"});
  if (hello.name.empty()) throw InputError("name: is missing, expected who answers");

  const JsonNode ops = top.At("ops", "an object of operations");
  if (!ops.value().is_object()) FailAs(ops, "an object of operations");
  if (ops.value().empty() && !hello.dot) ops.Fail("is empty, expected at least one operation");
  std::vector<std::string_view> known;
  for (const Op op : AllOps()) known.push_back(Name(op));
  RequireKeys(ops, known);
  for (const auto& item : ops.value().items()) {
    const Op op = *ParseOp(item.key());
    const JsonNode offered = ops.At(item.key(), "");
    PipeOp& read = hello.ops[static_cast<size_t>(op)].emplace();
    read.rules = RulesUnlessSaid(op);
    Read(offered, read);
    if (op != Op::kLinear && offered.Has("w_formats"))
      offered.At("w_formats", "").Fail("is here, expected it of linear alone");
  }
  return hello;
}

}  // namespace qualm
