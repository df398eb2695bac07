// SPDX-License-Identifier: Apache-2.0
#include "core/io/fault_row.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "core/status.h"
#include "core/text_test_util.h"

namespace qualm {
namespace {

FaultRow Tail() {
  FaultRow row;
  row.subject = "plugin:./build/mine.so";
  row.identity = "plugin:mine.so@mine 1.2";
  row.op = Op::kLinear;
  row.kind = FindingKind::kTail;
  row.cause = "product tail of 4 dropped";
  row.of_subject = true;
  row.properties = {"matches_exact", "additive_in_x"};
  row.replayed = Replayed::kStateful;
  row.minimized = true;
  row.explanation = "drops \"the\" last\nproducts";
  row.found = "2026-11-22T23:05:07Z";
  return row;
}

std::string ErrorOf(const std::string& text) {
  return Refusal([&] { ParseFaultRow(text, "f"); });
}

// Claims to be a subject of any name and version.
class Named : public BasicSubject {
 public:
  Named(std::string name, std::string version)
      : name_(std::move(name)), version_(std::move(version)) {}
  std::string_view name() const override { return name_; }
  std::string CannotRun(const Case&) const override { return ""; }
  Outcome Run(const Case&, const RunContext&) override { return {}; }
  std::string Version() const override { return version_; }

 private:
  std::string name_, version_;
};

TEST(FaultRow, ReadsBackEqual) {
  EXPECT_EQ(ParseFaultRow(FaultRowToJson(Tail()), "f"), Tail());
  EXPECT_EQ(ParseFaultRow(FaultRowToJson(FaultRow()), "f"), FaultRow());
  // Earlier versions did not tell of which rows experiments have shown the kind.
  FaultRow earlier = Tail();
  earlier.of_subject = false;
  const std::string told = "  \"of_subject\": true,\n";
  EXPECT_EQ(ParseFaultRow(Replaced(FaultRowToJson(Tail()), told, ""), "f"), earlier);
}

TEST(FaultRow, TheFingerprintIsSubjectOperationAndCause) {
  const FaultRow tail = Tail();
  EXPECT_TRUE(tail.fingerprint().starts_with("linear.fault-plugin")) << tail.fingerprint();
  EXPECT_TRUE(tail.fingerprint().ends_with("mine.so@mine_1.2-tail-product-tail-of-4-dropped"));
  FaultRow same = tail;
  same.properties = {"clamp"};
  same.subject = "plugin:/elsewhere/mine.so";
  same.found = same.explanation = "";
  EXPECT_EQ(same.fingerprint(), tail.fingerprint());
  FaultRow other = tail;
  other.cause = "";
  EXPECT_NE(other.fingerprint(), tail.fingerprint());
}

TEST(FaultRow, TheIdentityHoldsNoPath) {
  EXPECT_EQ(IdentityOf(Named("native@avx2", "")), "native@avx2");
  EXPECT_EQ(IdentityOf(Named("onednn@avx2", "3.1")), "onednn@avx2");
  EXPECT_EQ(IdentityOf(Named("plugin:/home/me/a/b.so", "mine 2")), "plugin:b.so@mine 2");
  EXPECT_EQ(IdentityOf(Named("plugin:b.so", "mine 2")), "plugin:b.so@mine 2");
  EXPECT_EQ(IdentityOf(Named("pipe:python3 /home/me/x.py --key", "numpy 1")), "pipe:numpy 1");
}

TEST(FaultRow, WhatIsNoRowIsRefusedInOneLine) {
  const std::string good = FaultRowToJson(Tail());
  EXPECT_EQ(ErrorOf(Replaced(good, "qualm.fault/1", "qualm.fault/2")),
            "f: schema: is \"qualm.fault/2\", expected \"qualm.fault/1\"");
  EXPECT_NE(ErrorOf(Replaced(good, "\"linear\"", "\"liner\"")).find("f: op: is \"liner\""),
            std::string::npos);
  EXPECT_NE(ErrorOf(Replaced(good, "\"tail\"", "\"tial\"")).find("f: kind: is"), std::string::npos);
  EXPECT_NE(ErrorOf(Replaced(good, "\"stateful\"", "\"often\"")).find("f: replayed: is"),
            std::string::npos);
  EXPECT_NE(ErrorOf(Replaced(good, "\"done\"", "\"maybe\"")).find("f: minimized: is"),
            std::string::npos);
  EXPECT_NE(ErrorOf(Replaced(good, "\"found\"", "\"lost\"")), "");
  for (size_t size = 0; size + 2 < good.size(); size += 7) {
    EXPECT_NE(ErrorOf(good.substr(0, size)), "") << size;
  }
}

}  // namespace
}  // namespace qualm
