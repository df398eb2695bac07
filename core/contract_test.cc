// SPDX-License-Identifier: Apache-2.0
#include "core/contract.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>

#include "core/status.h"
#include "core/subject.h"
#include "core/text_test_util.h"

namespace qualm {
namespace {

TEST(Contract, ReadsItsOwnText) {
  for (const char* text :
       {"exact", "sum", "sum+offsets", "model:fbgemm@avx2", "within:V8", "within:V1,V8"}) {
    EXPECT_EQ(ParseContract(text).text(), text);
  }
  EXPECT_TRUE(ParseContract("exact").exact());
  EXPECT_EQ(ParseContract("model:fbgemm@avx2").convention, "fbgemm@avx2");
  EXPECT_FALSE(ParseContract("within:V8").exact());
  EXPECT_FALSE(ParseContract("sum").exact());
  EXPECT_TRUE(ParseContract("sum").permits_intervals());
  EXPECT_FALSE(ParseContract("model:a").permits_intervals());
}

TEST(Contract, RefusesAnythingElse) {
  for (const char* text :
       {"", "Exact", "exact ", "sums", "sum:8", "sum+", "exact+offsets", "model",
        "model:", "within 1 lsb", "within:", "within:8", "within:V1,", "within:V1,exact"}) {
    EXPECT_THROW(ParseContract(text), InputError) << text;
  }
}

TEST(Contracts, ReadTheirOwnText) {
  for (const char* text : {"exact", "model:a", "linear=model:b", "model:a,quantize=exact",
                           "model:a,quantize=exact,linear=model:b", "within:V1,V8,linear=model:b",
                           "model:a,linear=within:V1,V8,V14", "exact,linear=sum"}) {
    EXPECT_EQ(ParseContracts(text).text(), text);
  }
  EXPECT_EQ(ParseContracts("linear=model:b,model:a,quantize=exact").text(),
            "model:a,quantize=exact,linear=model:b");
}

TEST(Contracts, OneForEachOperation) {
  const Contracts contracts = ParseContracts("model:a,linear=model:b,add=exact");
  EXPECT_EQ(contracts.of(Op::kLinear).text(), "model:b");
  EXPECT_EQ(contracts.of(Op::kAdd).text(), "exact");
  EXPECT_EQ(contracts.of(Op::kSub).text(), "model:a");
  const Contracts linear = ParseContracts("linear=model:b");
  EXPECT_TRUE(linear.of(Op::kAdd).exact());
  EXPECT_TRUE(linear.Say(Op::kLinear));
  EXPECT_FALSE(linear.Say(Op::kAdd));
  EXPECT_TRUE(ParseContracts("exact").Say(Op::kAdd));
}

TEST(Contracts, OverKeepsTheOthersWhereTheseSayNothing) {
  for (const auto& [these, others, both] :
       {std::tuple{"linear=model:b", "exact", "exact,linear=model:b"},
        {"linear=exact", "exact", "exact"},
        {"linear=model:b", "model:a,linear=model:c,add=exact", "model:a,linear=model:b,add=exact"},
        {"model:a", "exact,linear=model:c", "model:a"},
        {"model:a,add=exact", "model:b", "model:a,add=exact"}}) {
    EXPECT_EQ(ParseContracts(these).Over(ParseContracts(others)).text(), both);
  }
}

TEST(Contracts, RefuseAnythingElse) {
  for (const auto& [text, says] :
       {std::pair{"",
                  "'' is no contract, expected exact, sum, sum+offsets, tree:{...}, model:NAME or "
                  "within:V1,V8"},
        {"exact,", "'' is no contract"},
        {"linear=", "'' is no contract"},
        {"linear=add=exact", "'add=exact' is no contract"},
        {"lineal=exact", "'lineal=exact': there is no operation 'lineal' (see qualm list ops)"},
        {"=exact", "there is no operation ''"},
        {"exact,model:a", "'exact' and 'model:a' are both for every operation, expected OP="},
        {"add=exact,add=exact", "two contracts are given for add, expected one"}}) {
    const std::string error = Refusal([&] { ParseContracts(text); });
    EXPECT_TRUE(Has(error, "--contract: "));
    EXPECT_TRUE(Has(error, says));
  }
  // One contract is no list.
  EXPECT_THROW(ParseContract("model:a,add=exact"), InputError);
  EXPECT_THROW(ParseContract("add=exact"), InputError);
  EXPECT_THROW(ParseContract("model:a=b"), InputError);
}

TEST(Refused, NamesTheFirstStateThatASubjectCannotBeGiven) {
  constexpr size_t kRowGap = 3, kThreads = 13;  // places in StatesOf
  constexpr uint32_t kStrides = 4, kOther = 2;  // features of the subject
  StateLimits limits{};
  limits[kRowGap] = {"has no strides", kStrides};
  limits[kThreads] = {"has one thread"};
  EXPECT_EQ(Refused(limits, {}), "");
  EXPECT_EQ(Refused(limits, {.align_offset = 1, .poison = 3}), "");
  EXPECT_EQ(Refused(limits, {.x_row_gap = 1, .threads = 2}), "has no strides");
  EXPECT_EQ(Refused(limits, {.x_row_gap = 1, .threads = 2}, kStrides), "has one thread");
  EXPECT_EQ(Refused(limits, {.x_row_gap = 1}, kStrides | kOther), "");
}

}  // namespace
}  // namespace qualm
