// SPDX-License-Identifier: Apache-2.0
#include "core/io/fault_row.h"

#include <array>
#include <ctime>

#include "core/finding.h"
#include "core/finding_kind.h"
#include "core/io/members.h"

namespace qualm {
namespace {

constexpr DocumentKind kKind{"qualm.fault/1", "fault", size_t{1} << 20, "a fault of qualm fuzz"};

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

constexpr How kClaims{"a list of claims", [](const JsonNode& list, std::set<std::string>& claims) {
                        for (size_t i = 0; i < list.SizeOfList(); ++i)
                          claims.insert(list.At(i).Text());
                      }};

constexpr How kDoneOrPending{
    "a text",
    [](const JsonNode& node, bool& done) {
      done = node.Text() == "done";
      if (!done && node.Text() != "pending")
        node.Fail("is " + Shown(node.Text()) + ", expected done or pending");
    },
    [](bool done) { return JsonValue(done ? "done" : "pending"); }};

}  // namespace

static void MembersOf(SameAs<FaultRow> auto& row, const auto& visit) {
  visit("subject", row.subject, kText);
  visit("identity", row.identity, kText);
  visit("op", row.op, AName(AllOps().back(), "the name of an operation"));
  visit("kind", row.kind, AName(FindingKind::kUnknown, "the kind of a finding"));
  visit("cause", row.cause, kText);
  visit("of_subject", row.of_subject, How{"", kFlag.read});  // earlier versions did not tell
  visit("properties", row.properties, kClaims);
  visit("replayed", row.replayed, AName(Replayed::kFlaky, "not, reproducible, stateful or flaky"));
  visit("minimized", row.minimized, kDoneOrPending);
  visit("explanation", row.explanation, kText);
  visit("found", row.found, kText);
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

std::string FaultRowToJson(const FaultRow& row) { return kKind.Json(row, kLines).text() + "\n"; }

FaultRow ParseFaultRow(std::string_view text, std::string_view name) {
  return kKind.Parse<FaultRow>(text, name);
}

FaultRow ReadFaultRowFile(const std::string& path) {
  return ParseFaultRow(kKind.ReadFile(path), path);
}

}  // namespace qualm
