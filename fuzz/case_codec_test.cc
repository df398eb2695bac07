// SPDX-License-Identifier: Apache-2.0
#include "fuzz/case_codec.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "core/io/case_json.h"
#include "core/io/random_case_test_util.h"
#include "core/rng.h"

namespace qualm::fuzz {
namespace {

std::vector<uint8_t> AnyBytes(Rng& rng, size_t size) {
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Next());
  return bytes;
}

class CaseCodec : public testing::TestWithParam<Op> {};

TEST_P(CaseCodec, AnyBytesAreAValidCase) {
  Rng rng(1);
  for (int i = 0; i < 20000; ++i) {
    const std::vector<uint8_t> bytes = AnyBytes(rng, rng.Below(i % 10 == 0 ? 3000 : 60));
    const Case c = DecodeCase(GetParam(), bytes);
    ASSERT_EQ(Validate(c), "");
    ASSERT_LE(c.M, kMaxM);
    ASSERT_LE(c.N, kMaxN);
    ASSERT_LE(c.K, kMaxK);
    const auto encoded = EncodeCase(c);
    ASSERT_TRUE(encoded.has_value()) << CaseToJson(c);
    ASSERT_TRUE(DecodeCase(GetParam(), *encoded) == c) << CaseToJson(c);
  }
}

TEST_P(CaseCodec, NoBytesAreASmallCase) {
  const Case c = DecodeCase(GetParam(), {});
  EXPECT_EQ(Validate(c), "");
  EXPECT_EQ(c.M, 1);
  EXPECT_EQ(c.N, 1);
  EXPECT_EQ(c.K, GetParam() == Op::kLinear ? 1 : 0);
}

TEST_P(CaseCodec, CasesWithinTheLimitsComeBack) {
  Rng rng(2);
  for (int i = 0; i < 5000; ++i) {
    const Case c = test::RandomCase(GetParam(), rng);
    const auto encoded = EncodeCase(c);
    ASSERT_TRUE(encoded.has_value()) << CaseToJson(c);
    ASSERT_TRUE(DecodeCase(GetParam(), *encoded) == ProblemOf(c)) << CaseToJson(c);
  }
}

// Parameters may change without moving the data: x begins at the same byte.
TEST_P(CaseCodec, DataStayInPlace) {
  Rng rng(3);
  std::vector<uint8_t> bytes = AnyBytes(rng, 600);
  bytes[0] = bytes[1] = bytes[2] = 3;
  const Tensor x = DecodeCase(GetParam(), bytes).x;
  for (size_t at = 4; at < 37; ++at) {
    std::vector<uint8_t> changed = bytes;
    changed[at] ^= 0xB5;
    EXPECT_EQ(DecodeCase(GetParam(), changed).x.shape(), x.shape());
    EXPECT_TRUE(DecodeCase(GetParam(), changed).x == x) << at;
  }
}

// The committed inputs are what the encoder writes: no byte that means nothing, none missing.
TEST_P(CaseCodec, CorpusInputsAreEncodedCases) {
  const std::filesystem::path folder =
      std::filesystem::path(QUALM_SOURCE_DIR) / "corpus" / "fuzz" / Name(GetParam());
  int inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<uint8_t> bytes(std::istreambuf_iterator<char>(file), {});
    EXPECT_EQ(EncodeCase(DecodeCase(GetParam(), bytes)), bytes) << entry.path();
    ++inputs;
  }
  EXPECT_GE(inputs, 2);
}

INSTANTIATE_TEST_SUITE_P(Ops, CaseCodec,
                         testing::Values(Op::kQuantize, Op::kDequantize, Op::kRequantize,
                                         Op::kLinear),
                         [](const auto& op) { return std::string(Name(op.param)); });

TEST(CaseCodecLimits, CasesBeyondAreRefused) {
  Case c = DecodeCase(Op::kLinear, {});
  ASSERT_TRUE(EncodeCase(c).has_value());
  Case invalid = c;
  invalid.x_q.scale = {-1.0f};
  EXPECT_FALSE(EncodeCase(invalid).has_value());
  Case wide = c;
  wide.K = kMaxK + 1;
  wide.x = Tensor(DType::kU8, {1, wide.K});
  wide.w = Tensor(DType::kS8, {1, wide.K});
  ASSERT_EQ(Validate(wide), "");
  EXPECT_FALSE(EncodeCase(wide).has_value());
  Case meaningless = DecodeCase(Op::kQuantize, {});
  meaningless.x_q.scale = {2.0f};
  ASSERT_EQ(Validate(meaningless), "");
  EXPECT_FALSE(EncodeCase(meaningless).has_value());
}

}  // namespace
}  // namespace qualm::fuzz
