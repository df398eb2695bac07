// SPDX-License-Identifier: Apache-2.0
#include "core/io/certificate_json.h"

#include <array>
#include <cmath>

#include "core/content_name.h"
#include "core/float_text.h"
#include "core/io/case_json.h"
#include "core/io/members.h"

namespace qualm {

constexpr DocumentKind kKind{"qualm.certificate/1", "certificate", size_t{1} << 26};
constexpr int64_t kMost = int64_t{1} << 53;  // what every reader of JSON keeps exactly

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

constexpr How kScale{"a float32",
                     [](const JsonNode& node, float& scale) {
                       const std::optional<float> value = ParseFloatText(node.Text());
                       if (!value || !std::isfinite(*value) || *value <= 0)
                         node.Fail("is " + node.Dump() + ", expected a float32 above 0 as text");
                       scale = *value;
                     },
                     FloatText};

constexpr How kProblems{"a list of cases",
                        [](const JsonNode& list, std::vector<Case>& problems) {
                          for (size_t i = 0; i < list.SizeOfList(); ++i) {
                            const JsonNode node = list.At(i);
                            node.RequireObject("a case");
                            problems.push_back(ParseCase(node.Dump(), node.Place()));
                          }
                          if (problems.empty()) list.Fail("is empty, expected a case");
                        },
                        [](const std::vector<Case>& problems) -> JsonValue {
                          JsonList list(kSpaced);
                          for (const Case& problem : problems)
                            list.Add(JsonValue::Written(CaseToJsonLine(problem)));
                          return list;
                        }};

static constexpr auto RangesIn(int64_t whole) {
  const auto read = [=](const JsonNode& list, Ranges& covered) {
    for (size_t i = 0; i < list.SizeOfList(); ++i) {
      const JsonNode pair = list.At(i);
      if (pair.SizeOfList() != 2) pair.Fail("has another size, expected [first, last]");
      const int64_t least = covered.empty() ? 0 : covered.back().second;
      const int64_t first = pair.At(0).Integer(least, whole);
      covered.emplace_back(first, pair.At(1).Integer(first, whole));
    }
  };
  return How{"a list of ranges", read, [](const Ranges& covered) -> JsonValue {
               JsonList list(kSpaced);
               for (const auto& [first, last] : covered) list.Add(std::array{first, last});
               return list;
             }};
}

static void MembersOf(SameAs<Certificate::Scales> auto& scales, const auto& visit) {
  visit("first", scales.first, kScale);
  visit("last", scales.last, kScale);
  visit("stride", scales.stride, AnInteger(1, INT32_MAX, "a count"));
}

constexpr How kScales{"null or an object",
                      [](const JsonNode& node, std::optional<Certificate::Scales>& scales) {
                        AnObjectOrNull<Certificate::Scales>().read(node, scales);
                        if (scales && scales->last < scales->first)
                          node.Fail("ends before it begins, expected first <= last");
                      },
                      AnObjectOrNull<Certificate::Scales>().write};

static void MembersOf(SameAs<Certificate::ZeroPoints> auto& zero_points, const auto& visit) {
  visit("first", zero_points.first, AnInteger(INT32_MIN, INT32_MAX, "an int32"));
  visit("last", zero_points.last, AnInteger(zero_points.first, INT32_MAX, "an int32"));
}

static void MembersOf(SameAs<Certificate::Wrong> auto& wrong, const auto& visit) {
  constexpr auto kPlace = AnInteger(0, kMost, "an integer");
  constexpr auto kOutput = AnInteger(-kMost, kMost, "an integer");
  visit("set", wrong.set, kPlace);
  visit("number", wrong.number, kPlace);
  visit("nan", wrong.nan, kFlag);
  visit("input", wrong.input, kText);
  visit("expected", wrong.expected, kOutput);
  visit("actual", wrong.actual, kOutput);
  visit("distance", wrong.distance, kPlace);
}

static void MembersOf(SameAs<Certificate> auto& c, const auto& visit) {
  constexpr auto kWrong = AnObjectOrNull<Certificate::Wrong>("null or a wrong output");
  using Method = Certificate::Method;
  visit("qualm", c.qualm, kText);
  visit("compiler", c.compiler, kText);
  visit("subject", c.subject, kText);
  visit("version", c.version, kText);
  visit("instruction_set", c.instruction_set, kText);
  visit("contract", c.contract, kText);
  visit("problems", c.problems, kProblems);
  visit("any_weights", c.any_weights, kFlag);
  visit("scales", c.scales, kScales);
  visit("zero_points", c.zero_points, AnObjectOrNull<Certificate::ZeroPoints>());
  visit("method", c.method,
        AName(Method::kIntervals, "steps, full, each or intervals", "a method"));
  visit("monotone", c.monotone, kText);
  visit("per_call", c.per_call, AnInteger(0, int64_t{1} << 32, "a count"));
  visit("whole", c.whole, kCount);
  visit("covered", c.covered, RangesIn(c.whole));
  visit("judged", c.judged, kCount);
  visit("asked", c.asked, kCount);
  visit("wrong", c.wrong, kCount);
  visit("wrong_nan", c.wrong_nan, kCount);
  visit("first_wrong", c.first, kWrong);
  visit("worst_wrong", c.worst, kWrong);
  visit("hash", c,
        How{"a text",
            [](const JsonNode& node, const Certificate& rest) {
              if (node.Text() == HashOf(rest)) return;
              node.Fail("is " + node.Dump() + ", expected \"" + HashOf(rest) +
                        "\": this is no longer what was certified");
            },
            HashOf});
}

std::string HashOf(const Certificate& certificate) {
  JsonObject json({{"schema", kKind.schema}});
  MembersOf(certificate, [&](std::string_view key, const auto& member, const auto& how) {
    if (key != "hash") json.Add(key, how.write(member));
  });
  return ShortContentName(JsonValue(json).text());
}

JsonValue CertificateJson(const Certificate& certificate) {
  return kKind.Json(certificate, kCompact);
}

std::string CertificateToJson(const Certificate& certificate) {
  return kKind.Json(certificate, kLines).text() + "\n";
}

Certificate ParseCertificate(std::string_view text, std::string_view name) {
  return kKind.Parse<Certificate>(text, name);
}

Certificate ReadCertificateFile(const std::string& path) {
  return ParseCertificate(kKind.ReadFile(path), path);
}

}  // namespace qualm
