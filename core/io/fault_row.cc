// SPDX-License-Identifier: Apache-2.0
#include "core/io/fault_row.h"

#include <array>
#include <ctime>
#include <optional>
#include <vector>

#include "core/finding.h"
#include "core/finding_kind.h"
#include "core/io/json_text.h"
#include "core/io/json_writer.h"
#include "core/io/strict_json.h"
#include "core/io/text_file.h"

namespace qualm {
namespace {

constexpr std::string_view kNoun = "fault";
constexpr std::string_view kSchema = "qualm.fault/1";
constexpr size_t kMaxBytes = size_t{1} << 20;

// "product tail of 4 dropped" -> "product-tail-of-4-dropped".
std::string Slug(std::string_view text) {
  std::string slug;
  for (const char ch : text) {
    const bool plain = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') ||
                       (ch >= '0' && ch <= '9') || ch == '.';
    if (plain) {
      slug += ch;
    } else if (!slug.empty() && slug.back() != '-') {
      slug += '-';
    }
  }
  while (slug.ends_with('-')) slug.pop_back();
  return slug;
}

std::optional<Replayed> ParseReplayed(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(Replayed::kFlaky); ++i) {
    if (Name(static_cast<Replayed>(i)) == name) return static_cast<Replayed>(i);
  }
  return std::nullopt;
}

template <class Value>
Value Required(const JsonNode& node, const std::optional<Value>& value, std::string_view expected) {
  if (!value) node.Fail("is " + Shown(node.Text()) + ", expected " + std::string(expected));
  return *value;
}

}  // namespace

std::string_view Name(Replayed replayed) {
  switch (replayed) {
    case Replayed::kNot: return "not";
    case Replayed::kReproducible: return "reproducible";
    case Replayed::kStateful: return "stateful";
    case Replayed::kFlaky: return "flaky";
  }
  return "";
}

std::string FaultRow::fingerprint() const {
  Verdict verdict;
  verdict.kind = kind;
  const std::string cause_slug = Slug(cause);
  return Finding(Name(op), "fault", identity, verdict).fingerprint() +
         (cause_slug.empty() ? "" : "-" + cause_slug);
}

std::string IdentityOf(const Subject& subject) {
  const std::string name(subject.name());
  const std::string version = subject.Version();
  if (name.starts_with("pipe:")) return "pipe:" + version;
  if (!name.starts_with("plugin:")) return name;
  return "plugin:" + name.substr(name.find_last_of(":/") + 1) + "@" + version;
}

std::string UtcNow() {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

std::string FaultRowToJson(const FaultRow& row) {
  constexpr JsonLayout kLines{"\n  ", ",\n  ", ": ", "\n"};
  const JsonObject json({{"schema", kSchema},
                         {"subject", row.subject},
                         {"identity", row.identity},
                         {"op", Name(row.op)},
                         {"kind", Name(row.kind)},
                         {"cause", row.cause},
                         {"of_subject", row.of_subject},
                         {"properties", row.properties},
                         {"replayed", Name(row.replayed)},
                         {"minimized", row.minimized ? "done" : "pending"},
                         {"explanation", row.explanation},
                         {"found", row.found}},
                        kLines);
  return JsonValue(json).text() + "\n";
}

FaultRow ParseFaultRow(std::string_view text, std::string_view name) {
  CheckLength(text, name, kNoun, kMaxBytes);
  const nlohmann::json tree = ParseStrictJson(text, name);
  const JsonNode top(tree, name);
  top.RequireObject("a fault of qualm fuzz");
  top.RequireKeys({"schema", "subject", "identity", "op", "kind", "cause", "of_subject",
                   "properties", "replayed", "minimized", "explanation", "found"});
  const auto at = [&](const char* key) { return top.At(key, "a text"); };
  const JsonNode schema = at("schema");
  if (schema.Text() != kSchema) {
    schema.Fail("is " + Shown(schema.Text()) + ", expected " + JsonQuote(kSchema));
  }
  FaultRow row;
  row.subject = at("subject").Text();
  row.identity = at("identity").Text();
  row.op = Required(at("op"), ParseOp(at("op").Text()), "the name of an operation");
  row.kind = Required(at("kind"), ParseFindingKind(at("kind").Text()), "the kind of a finding");
  row.cause = at("cause").Text();
  // Earlier versions did not tell.
  row.of_subject = top.Has("of_subject") && at("of_subject").Flag();
  const JsonNode properties = top.At("properties", "a list of claims");
  for (size_t i = 0; i < properties.SizeOfList(); ++i) {
    row.properties.insert(properties.At(i).Text());
  }
  row.replayed = Required(at("replayed"), ParseReplayed(at("replayed").Text()),
                          "not, reproducible, stateful or flaky");
  const std::string& minimized = at("minimized").Text();
  if (minimized != "done" && minimized != "pending") {
    at("minimized").Fail("is " + Shown(minimized) + ", expected done or pending");
  }
  row.minimized = minimized == "done";
  row.explanation = at("explanation").Text();
  row.found = at("found").Text();
  return row;
}

FaultRow ReadFaultRowFile(const std::string& path) {
  return ParseFaultRow(ReadTextFile(path, kNoun, kMaxBytes), path);
}

}  // namespace qualm
