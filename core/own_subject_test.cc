// SPDX-License-Identifier: Apache-2.0
#include "core/own_subject.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/status.h"

namespace qualm {
namespace {

class Named : public BasicSubject {
 public:
  explicit Named(std::string name) : name_(std::move(name)) {}
  std::string_view name() const override { return name_; }
  std::string CannotRun(const Case&) const override { return ""; }
  Outcome Run(const Case&, const RunContext&) override { return {}; }

 private:
  std::string name_;
};

TEST(OwnSubject, IsFoundByItsName) {
  int made = 0;
  EXPECT_EQ(AddOwnSubject([&made] {
              ++made;
              return std::make_unique<Named>("mine");
            }),
            "mine");
  const int before = made;
  const auto first = SubjectRegistry::Get().Make("mine");
  const auto second = SubjectRegistry::Get().Make("mine");
  EXPECT_EQ(first->name(), "mine");
  EXPECT_NE(first.get(), second.get());
  EXPECT_EQ(made, before + 2);
  EXPECT_EQ(SubjectRegistry::Get().Expand("mine"), std::vector<std::string>{"mine"});
  EXPECT_THROW(SubjectRegistry::Get().Make("mine@avx2"), InputError);
}

TEST(OwnSubject, VariantsAreOneKind) {
  for (const char* name : {"lib@a", "lib@b", "lib@a"}) {
    EXPECT_EQ(AddOwnSubject([name] { return std::make_unique<Named>(name); }), name);
  }
  EXPECT_EQ(SubjectRegistry::Get().Make("lib@b")->name(), "lib@b");
  EXPECT_THROW(SubjectRegistry::Get().Make("lib@c"), InputError);
  int kinds = 0;
  for (const SubjectKind& kind : SubjectRegistry::Get().kinds()) {
    if (kind.kind != "lib") continue;
    ++kinds;
    EXPECT_EQ(kind.names(), (std::vector<std::string>{"lib@a", "lib@b"}));
  }
  EXPECT_EQ(kinds, 1);
}

TEST(OwnSubject, DoesNotHideAKindOfOurs) {
  SubjectRegistry::Get().Add({.kind = "ours",
                              .help = "",
                              .why_absent = "",
                              .names = [] { return std::vector<std::string>{}; },
                              .make = nullptr,
                              .expand = nullptr});
  EXPECT_THROW(AddOwnSubject([] { return std::make_unique<Named>("ours@mine"); }), InputError);
}

}  // namespace
}  // namespace qualm
