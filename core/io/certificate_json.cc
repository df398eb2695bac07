// SPDX-License-Identifier: Apache-2.0
#include "core/io/certificate_json.h"

#include <algorithm>
#include <cmath>

#include "core/content_name.h"
#include "core/float_text.h"
#include "core/io/case_json.h"
#include "core/io/strict_json.h"
#include "core/io/text_file.h"
#include "core/status.h"

namespace qualm {
namespace {

constexpr std::string_view kSchema = "qualm.certificate/1";
constexpr std::string_view kNoun = "certificate";
constexpr size_t kMaxBytes = size_t{1} << 26;
constexpr int64_t kMost = int64_t{1} << 53;  // what every reader of JSON keeps exactly
constexpr JsonLayout kLines{"\n  ", ",\n  ", ": ", "\n"};

JsonValue WrongJson(const std::optional<Certificate::Wrong>& wrong) {
  if (!wrong) return std::nullopt;
  return JsonObject({{"set", wrong->set},
                     {"number", wrong->number},
                     {"nan", wrong->nan},
                     {"input", wrong->input},
                     {"expected", wrong->expected},
                     {"actual", wrong->actual},
                     {"distance", wrong->distance}},
                    kSpaced);
}

// All members but the hash.
JsonObject Members(const Certificate& c, const JsonLayout& layout) {
  JsonList problems(kSpaced), covered(kSpaced);
  for (const Case& problem : c.problems) problems.Add(JsonValue::Written(CaseToJsonLine(problem)));
  for (const auto& [first, last] : c.covered) covered.Add(std::array{first, last});
  JsonValue scales = std::nullopt, zero_points = std::nullopt;
  if (c.scales) {
    scales = JsonObject({{"first", FloatText(c.scales->first)},
                         {"last", FloatText(c.scales->last)},
                         {"stride", c.scales->stride}},
                        kSpaced);
  }
  if (c.zero_points) {
    zero_points =
        JsonObject({{"first", c.zero_points->first}, {"last", c.zero_points->last}}, kSpaced);
  }
  return {{{"schema", kSchema},
           {"qualm", c.qualm},
           {"compiler", c.compiler},
           {"subject", c.subject},
           {"version", c.version},
           {"instruction_set", c.instruction_set},
           {"contract", c.contract},
           {"problems", problems},
           {"any_weights", c.any_weights},
           {"scales", scales},
           {"zero_points", zero_points},
           {"method", Name(c.method)},
           {"monotone", c.monotone},
           {"per_call", c.per_call},
           {"whole", c.whole},
           {"covered", covered},
           {"judged", c.judged},
           {"asked", c.asked},
           {"wrong", c.wrong},
           {"wrong_nan", c.wrong_nan},
           {"first_wrong", WrongJson(c.first)},
           {"worst_wrong", WrongJson(c.worst)}},
          layout};
}

JsonValue Whole(const Certificate& c, const JsonLayout& layout) {
  return Members(c, layout).Add("hash", HashOf(c));
}

float ScaleOf(const JsonNode& node) {
  const std::optional<float> value = ParseFloatText(node.Text());
  if (!value || !std::isfinite(*value) || *value <= 0)
    node.Fail("is " + node.Dump() + ", expected a float32 above 0 as text");
  return *value;
}

std::vector<Case> ProblemsOf(const JsonNode& list) {
  std::vector<Case> problems;
  for (size_t i = 0; i < list.SizeOfList(); ++i) {
    const JsonNode node = list.At(i);
    node.RequireObject("a case");
    problems.push_back(ParseCase(node.Dump(), node.Place()));
  }
  if (problems.empty()) list.Fail("is empty, expected a case");
  return problems;
}

std::vector<std::pair<int64_t, int64_t>> CoveredOf(const JsonNode& list, int64_t whole) {
  std::vector<std::pair<int64_t, int64_t>> covered;
  for (size_t i = 0; i < list.SizeOfList(); ++i) {
    const JsonNode pair = list.At(i);
    if (pair.SizeOfList() != 2) pair.Fail("has another size, expected [first, last]");
    const int64_t least = covered.empty() ? 0 : covered.back().second;
    const int64_t first = pair.At(0).Integer(least, whole);
    covered.emplace_back(first, pair.At(1).Integer(first, whole));
  }
  return covered;
}

bool FlagOf(const JsonNode& node) {
  const std::string text = node.Dump();
  if (text != "true" && text != "false") node.Fail("is no flag, expected true or false");
  return text == "true";
}

std::optional<Certificate::Wrong> WrongOf(const JsonNode& node) {
  if (node.IsNull()) return std::nullopt;
  node.RequireObject("null or a wrong output");
  node.RequireKeys({"set", "number", "nan", "input", "expected", "actual", "distance"});
  const auto integer = [&](const char* key, int64_t least) {
    return node.At(key, "an integer").Integer(least, kMost);
  };
  return Certificate::Wrong{.set = integer("set", 0),
                            .number = integer("number", 0),
                            .expected = integer("expected", -kMost),
                            .actual = integer("actual", -kMost),
                            .distance = integer("distance", 0),
                            .nan = FlagOf(node.At("nan", "true or false")),
                            .input = node.At("input", "a text").Text()};
}

Certificate::Method MethodOf(const JsonNode& node) {
  const auto at = std::ranges::find(kMethodNames, node.Text());
  if (at == kMethodNames.end())
    node.Fail("is " + node.Dump() + ", expected steps, full, each or intervals");
  return static_cast<Certificate::Method>(at - kMethodNames.begin());
}

}  // namespace

std::string HashOf(const Certificate& certificate) {
  const JsonValue members = Members(certificate, kCompact);
  return ShortContentName(members.text());
}

JsonValue CertificateJson(const Certificate& certificate) { return Whole(certificate, kCompact); }

std::string CertificateToJson(const Certificate& certificate) {
  return Whole(certificate, kLines).text() + "\n";
}

Certificate ParseCertificate(std::string_view text, std::string_view name) {
  CheckLength(text, name, kNoun, kMaxBytes);
  const nlohmann::json tree = ParseStrictJson(text, name);
  const JsonNode top(tree, name);
  const JsonNode schema = top.At("schema", kSchema);
  if (schema.Text() != kSchema)
    schema.Fail("is " + schema.Dump() + ", expected \"" + std::string(kSchema) + "\"");
  top.RequireKeys({"schema",          "qualm",       "compiler", "subject",     "version",
                   "instruction_set", "contract",    "problems", "any_weights", "scales",
                   "zero_points",     "method",      "monotone", "per_call",    "whole",
                   "covered",         "judged",      "asked",    "wrong",       "wrong_nan",
                   "first_wrong",     "worst_wrong", "hash"});
  const auto text_of = [&](const char* key) { return top.At(key, "a text").Text(); };
  const auto count_of = [&](const char* key) {
    return top.At(key, "a count").Integer(0, INT64_MAX);
  };
  Certificate c;
  c.qualm = text_of("qualm");
  c.compiler = text_of("compiler");
  c.subject = text_of("subject");
  c.version = text_of("version");
  c.instruction_set = text_of("instruction_set");
  c.contract = text_of("contract");
  c.monotone = text_of("monotone");
  c.problems = ProblemsOf(top.At("problems", "a list of cases"));
  c.any_weights = FlagOf(top.At("any_weights", "true or false"));
  if (const JsonNode node = top.At("scales", "null or an object"); !node.IsNull()) {
    node.RequireKeys({"first", "last", "stride"});
    c.scales = {ScaleOf(node.At("first", "a float32")), ScaleOf(node.At("last", "a float32")),
                node.At("stride", "a count").Integer(1, INT32_MAX)};
    if (c.scales->last < c.scales->first)
      node.Fail("ends before it begins, expected first <= last");
  }
  if (const JsonNode node = top.At("zero_points", "null or an object"); !node.IsNull()) {
    node.RequireKeys({"first", "last"});
    const int64_t first = node.At("first", "an int32").Integer(INT32_MIN, INT32_MAX);
    const int64_t last = node.At("last", "an int32").Integer(first, INT32_MAX);
    c.zero_points = {static_cast<int32_t>(first), static_cast<int32_t>(last)};
  }
  c.method = MethodOf(top.At("method", "a method"));
  c.per_call = top.At("per_call", "a count").Integer(0, int64_t{1} << 32);
  c.whole = count_of("whole");
  c.covered = CoveredOf(top.At("covered", "a list of ranges"), c.whole);
  c.judged = count_of("judged");
  c.asked = count_of("asked");
  c.wrong = count_of("wrong");
  c.wrong_nan = count_of("wrong_nan");
  c.first = WrongOf(top.At("first_wrong", "null or a wrong output"));
  c.worst = WrongOf(top.At("worst_wrong", "null or a wrong output"));
  const JsonNode hash = top.At("hash", "a text");
  if (hash.Text() != HashOf(c)) {
    hash.Fail("is " + hash.Dump() + ", expected \"" + HashOf(c) +
              "\": this is no longer what was certified");
  }
  return c;
}

Certificate ReadCertificateFile(const std::string& path) {
  return ParseCertificate(ReadTextFile(path, kNoun, kMaxBytes), path);
}

}  // namespace qualm
