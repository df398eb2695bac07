// SPDX-License-Identifier: Apache-2.0
#include "fuzz/case_codec.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "core/random_case_test_util.h"
#include "core/rng.h"
#include "fuzz/fit.h"
#include "fuzz/test_util.h"
#include "properties/gen/gen.h"

namespace qualm::fuzz {
namespace {

class CaseCodec : public testing::TestWithParam<Op> {};

TEST_P(CaseCodec, AnyBytesAreAValidCase) {
  Rng rng(1);
  for (int i = 0; i < 20000; ++i) {
    const std::vector<uint8_t> bytes = AnyBytes(rng, rng.Below(i % 10 == 0 ? 3000 : 60));
    const Case c = DecodeCase(GetParam(), bytes);
    ASSERT_EQ(Validate(c), "") << Text(c);
    ASSERT_TRUE(IsSmall(c)) << Text(c);
    const auto encoded = EncodeCase(c);
    ASSERT_TRUE(encoded.has_value()) << Text(c);
    ASSERT_TRUE(DecodeCase(GetParam(), *encoded) == c) << Text(c);
  }
}

TEST_P(CaseCodec, NoBytesAreASmallCase) {
  const Case c = DecodeCase(GetParam(), {});
  EXPECT_EQ(Validate(c), "");
  EXPECT_EQ(c.M, 1);
  EXPECT_EQ(c.N, 1);
  EXPECT_EQ(c.K, HasWeights(GetParam()) || IsPool(GetParam()) ? 1 : 0);
  EXPECT_EQ(c.x.size(), 1);
}

TEST_P(CaseCodec, CasesWithinTheLimitsComeBack) {
  test::RandomCase draw(2);
  int within = 0;
  for (int i = 0; i < 5000; ++i) {
    const Case c = draw.DrawWhole(GetParam());
    if (!IsSmall(c)) continue;
    ++within;
    const auto encoded = EncodeCase(c);
    ASSERT_TRUE(encoded.has_value()) << Text(c);
    ASSERT_TRUE(DecodeCase(GetParam(), *encoded) == ProblemOf(c)) << Text(c);
  }
  EXPECT_GT(within, 500);
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

// Corpora, reproducers and the inputs of campaigns elsewhere stay the cases that they are: over
// pseudo-random bytes, FNV-1a of the JSON of every case. A new operation adds its line. The line of
// an operation that exists changes only with a new parameter or choice of that operation
// (docs/hacking.md says what else then changes).
TEST_P(CaseCodec, BytesMeanWhatTheyMeant) {
  const std::map<std::string, uint64_t> pinned{
      {"quantize", 13469690997853953237u},   {"dequantize", 4327563266147698792u},
      {"requantize", 17763074971232007257u}, {"rescale", 13450623411406370636u},
      {"add", 15212915837552426146u},        {"mul", 6982999595467450972u},
      {"linear", 12330281547828599747u},     {"conv2d", 6263360928338559116u},
      {"depthwise", 4290816524807209362u},   {"max_pool", 8572483124302871838u},
      {"avg_pool", 12914210822534119657u},   {"global_avg_pool", 18359079543833932266u},
      {"concat", 14534565005814412542u},     {"table", 6321485034914803453u},
      {"softmax", 307730757528851976u},      {"choose_qparams", 379102985547265350u},
      {"sub", 15866521744865831564u},        {"dynamic_linear", 11358021753844873517u},
      {"cast", 2070314057130883859u}};
  Rng rng(5);
  uint64_t hash = 14695981039346656037u;
  for (int i = 0; i < 4000; ++i) {
    const std::vector<uint8_t> bytes = AnyBytes(rng, rng.Below(i % 10 == 0 ? 3000 : 150));
    for (const char character : Text(DecodeCase(GetParam(), bytes))) {
      hash = (hash ^ static_cast<uint8_t>(character)) * 1099511628211u;
    }
  }
  const std::string name(Name(GetParam()));
  ASSERT_TRUE(pinned.contains(name)) << name << " has no line: " << hash;
  EXPECT_EQ(hash, pinned.at(name));
}

// The encoder writes the committed inputs as they are: no byte is missing or without meaning.
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

INSTANTIATE_TEST_SUITE_P(Ops, CaseCodec, testing::ValuesIn(EveryOp()),
                         [](const auto& op) { return std::string(Name(op.param)); });

TEST_P(CaseCodec, SeedsAreDrawnCasesOfAnySize) {
  int large = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const uint64_t any = MixSeed(seed, 9);
    const Case c = DecodeCase(GetParam(), EncodeDraw(any));
    ASSERT_EQ(c, gen::Draw(GetParam(), any));
    large += IsSmall(c) ? 0 : 1;
    const std::optional<std::vector<uint8_t>> bytes = EncodeCase(c);
    EXPECT_FALSE(bytes && SeedIn(*bytes)) << Text(c);
  }
  EXPECT_GT(large, 100);
}

TEST(CaseCodecSeeds, NeedAllTheirBytesAndNoMore) {
  const uint64_t seed = 0x0123456789ABCDEF;
  std::vector<uint8_t> bytes = EncodeDraw(seed, 40);
  EXPECT_EQ(bytes.size(), 40u);
  EXPECT_EQ(SeedIn(bytes), seed);
  bytes.resize(kDrawBytes);
  EXPECT_EQ(SeedIn(bytes), seed);
  for (size_t i = 0; i < 5; ++i) {
    std::vector<uint8_t> other = bytes;
    other[i] ^= 1;
    EXPECT_EQ(SeedIn(other), std::nullopt) << i;
  }
  bytes.pop_back();
  EXPECT_EQ(SeedIn(bytes), std::nullopt);
  EXPECT_EQ(SeedIn({}), std::nullopt);
  EXPECT_EQ(Validate(DecodeCase(Op::kLinear, bytes)), "");
}

// Any bytes reach the shapes that kernels treat apart; few cases are empty.
TEST(CaseCodecReach, WindowsAndTailsOfEveryKind) {
  Rng rng(4);
  for (const Op op : EveryOp()) {
    if (!HasWindow(op)) continue;
    std::map<std::string, int> seen;
    constexpr int kCases = 20000;
    for (int i = 0; i < kCases; ++i) {
      const Case c = DecodeCase(op, AnyBytes(rng, 70));
      const Window& v = c.window;
      const int64_t channels = IsConv(op) ? c.K : c.N;
      ++seen[c.M * c.N == 0 ? "empty" : "full"];
      seen["beyond 16"] += channels > 16 && channels % 16 != 0;
      seen["beyond 32"] += channels > 32 && channels % 32 != 0;
      seen["beyond 64"] += channels > 64 && channels % 64 != 0;
      seen["padded"] += c.M > 0 && v.pad_top + v.pad_bottom + v.pad_left + v.pad_right > 0;
      seen["strides"] += c.M > 1 && v.stride_h != v.stride_w;
      seen["dilated"] += c.M > 0 && v.kernel_h > 1 && v.dilation_h > 1;
      seen["groups"] += c.M > 0 && v.groups > 1 && c.N > v.groups;
      seen["ceil"] += c.M > 1 && v.ceil_mode;
      seen["pad counted"] += c.M > 1 && v.count_include_pad;
    }
    const auto reached = [&](const char* what, bool possible) {
      if (!possible) return;
      EXPECT_GT(seen[what], kCases / 100) << Name(op) << " " << what;
    };
    EXPECT_LT(seen["empty"], kCases / 2) << Name(op);
    for (const char* what : {"beyond 16", "beyond 32"}) reached(what, op != Op::kDepthwise);
    reached("beyond 64", op == Op::kConv2d || IsPool(op));
    reached("padded", op != Op::kGlobalAvgPool);
    reached("strides", op != Op::kGlobalAvgPool);
    reached("dilated", IsConv(op) || op == Op::kMaxPool);
    reached("groups", IsConv(op));
    reached("ceil", op == Op::kMaxPool || op == Op::kAvgPool);
    reached("pad counted", op == Op::kAvgPool);
  }
}

// A field that no byte changes would never be fuzzed.
TEST(CaseCodecReach, EveryFieldOfACase) {
  Rng rng(7);
  FieldsSeen fields;
  for (const Op op : EveryOp()) {
    Case last = DecodeCase(op, {});
    // Few bytes make blocks of x.
    const int cases = SumsXInBlocks(op) ? 20000 : 3000;
    for (int i = 0; i < cases; ++i) {
      const Case c = DecodeCase(op, AnyBytes(rng, 300));
      fields.See(last, c);
      last = c;
    }
  }
  EXPECT_EQ(fields.unseen(), std::set<std::string>{});
}

// A case of any size is fitted to a case that has bytes; a case that has bytes stays as it is.
TEST(CaseCodecLimits, FittingEndsAtCasesThatHaveBytes) {
  Rng rng(6);
  for (const Op op : EveryOp()) {
    for (int i = 0; i < 3000; ++i) {
      Case c = DecodeCase(op, AnyBytes(rng, 100));
      Window& v = c.window;
      c.M = rng.Between(0, 40), c.N = rng.Between(0, 200), c.K = rng.Between(0, 300);
      v.in_c = rng.Between(0, 200), v.in_h = rng.Between(0, 30), v.in_w = rng.Between(0, 30);
      v.groups = rng.Between(1, 90), v.pad_top = rng.Between(0, 20), v.batch = rng.Between(0, 9);
      v.kernel_w = rng.Between(1, 9), v.ceil_mode = true, v.count_include_pad = true;
      FitCase(&c);
      ASSERT_EQ(Validate(c), "") << Text(c);
      ASSERT_TRUE(EncodeCase(c).has_value()) << Text(c);
      Case again = c;
      FitCase(&again);
      ASSERT_TRUE(again == c) << Text(c);
    }
  }
}

// Of a thousand cases those within the limits, a hundred and more, are fitted and come back.
void ComeBack(const std::function<Case()>& draw) {
  int within = 0;
  for (int i = 0; i < 1000; ++i) {
    const Case c = draw();
    if (!IsSmall(c)) continue;
    ++within;
    Case fitted = c;
    FitCase(&fitted);
    ASSERT_TRUE(fitted == c) << Text(c);
    const auto encoded = EncodeCase(c);
    ASSERT_TRUE(encoded.has_value()) << Text(c);
    ASSERT_TRUE(DecodeCase(c.op, *encoded) == c) << Text(c);
  }
  EXPECT_GT(within, 100);
}

TEST(CaseCodecLimits, WeightsInBlocksComeBack) {
  for (const Op op : OpsWhere([](Op each) { return RowOf(each).blocks; })) {
    test::RandomCase draw(3);
    ComeBack([&] { return draw.DrawInBlocks(op); });
  }
}

TEST(CaseCodecLimits, FloatXComesBack) {
  test::RandomCase draw(4);
  ComeBack([&] { return draw.DrawFloatX(); });
}

TEST(CaseCodecLimits, ScaledCastsComeBack) {
  test::RandomCase draw(5);
  ComeBack([&] { return draw.DrawScaledCast(); });
}

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
