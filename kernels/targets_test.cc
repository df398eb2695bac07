// SPDX-License-Identifier: Apache-2.0
// Targets, dispatch, and what every kernel relies on in all of them: no contraction of a*b+c, and
// a normalised floating-point environment.
#include "kernels/targets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels/common/fp_environment.h"
#include "kernels/common/test_support.h"
#include "kernels/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/targets_test.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/common/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

int64_t CompiledFor() { return HWY_TARGET; }

// Plain C++ and Highway, both unfused unless the compiler contracts them.
float ScalarMultiplyAdd(float a, float b, float c) { return a * b + c; }
float VectorMultiplyAdd(float a, float b, float c) {
  const hn::ScalableTag<float> d;
  return hn::GetLane(hn::Add(hn::Mul(hn::Set(d, a), hn::Set(d, b)), hn::Set(d, c)));
}
// MulAdd is fused exactly where HWY_NATIVE_FMA says so: the kernels rely on both directions.
float VectorFused(float a, float b, float c) {
  const hn::ScalableTag<float> d;
  return hn::GetLane(hn::MulAdd(hn::Set(d, a), hn::Set(d, b), hn::Set(d, c)));
}
bool HasFma() { return HWY_NATIVE_FMA != 0; }

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels {
namespace {

HWY_EXPORT(CompiledFor);
HWY_EXPORT(ScalarMultiplyAdd);
HWY_EXPORT(VectorMultiplyAdd);
HWY_EXPORT(VectorFused);
HWY_EXPORT(HasFma);

// The target of Highway whose code runs on this one: "AVX2" for "AVX2_VNNI".
std::string HighwayName(const std::string& name) {
  for (const std::string suffix : {"_VNNI", "_I8MM", "_DOT"}) {
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  }
  return name;
}

TEST(Targets, BestFirstAndTheBaselineIsAlwaysThere) {
  const std::vector<std::string>& names = SupportedTargets();
  ASSERT_FALSE(names.empty());
  EXPECT_TRUE(names.back() == "EMU128" || names.back() == "SCALAR") << names.back();
  EXPECT_EQ(internal::TargetId(), 0);
#if defined(__x86_64__)
  const std::vector<std::string> compiled = internal::CompiledTargets();
  for (const char* name : {"SSE2", "SSSE3", "SSE4", "AVX2", "AVX3", "AVX3_DL"}) {
    std::string feature = name;
    const bool is_here = feature == "SSE2" ||
                         (feature == "SSSE3" && __builtin_cpu_supports("ssse3")) ||
                         (feature == "SSE4" && __builtin_cpu_supports("sse4.2")) ||
                         (feature == "AVX2" && __builtin_cpu_supports("avx2")) ||
                         (feature == "AVX3" && __builtin_cpu_supports("avx512bw")) ||
                         (feature == "AVX3_DL" && __builtin_cpu_supports("avx512vnni"));
    // A build may leave some out (QUALM_HIGHWAY_TARGETS): TheCompilerMakesThoseOfTheFile looks.
    const bool expected = is_here && std::count(compiled.begin(), compiled.end(), feature) != 0;
    EXPECT_EQ(std::count(names.begin(), names.end(), feature), expected ? 1 : 0) << feature;
  }
#endif
}

#if defined(__x86_64__)
// The instruction of AVX2_VNNI, by what the processor says of itself.
TEST(Targets, Avx2HasVnniWhereTheProcessorHas) {
  const std::vector<std::string>& names = SupportedTargets();
  const auto avx2 = std::ranges::find(names, "AVX2");
  if (avx2 == names.end()) GTEST_SKIP() << "no AVX2 here";
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool vex = __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & 1u << 4) != 0;
  const bool evex = __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
  const auto vnni = std::ranges::find(names, "AVX2_VNNI");
  ASSERT_EQ(vnni != names.end(), vex || evex);
  EXPECT_TRUE(internal::TargetQuadSum() == internal::QuadSum::kHighway || names[0] == "AVX2_VNNI");
  if (vnni == names.end()) return;
  EXPECT_EQ(vnni + 1, avx2);
  // The best one where there is no AVX-512.
  for (auto better = names.begin(); better != vnni; ++better) {
    EXPECT_TRUE(better->starts_with("AVX3") || better->starts_with("AVX10")) << *better;
  }
  const ScopedTarget target("AVX2_VNNI");
  EXPECT_EQ(internal::TargetQuadSum(),
            vex ? internal::QuadSum::kVnniVex : internal::QuadSum::kVnniEvex);
}
#endif

// kernels/targets.txt lists what Highway makes of this library, also for processors that are not
// here: a definition that got lost, or a compiler that no longer makes one, shows on any machine.
TEST(Targets, TheCompilerMakesThoseOfTheFile) {
#if defined(__clang__)
  const std::string compiler = "clang";
#else
  const std::string compiler = __GNUC__ < 14 ? "gcc-before-14" : "gcc";
#endif
#if defined(__x86_64__)
  const std::string section = "[x86-64 " + compiler + "]";
#else
  const std::string section = "[aarch64 " + compiler + "]";
#endif
  const std::vector<std::string> compiled = internal::CompiledTargets();
  const std::set<std::string> made(compiled.begin(), compiled.end());
  std::set<std::string> of_highway;
  std::set<std::string> left_out;
  for (int bit = 0; bit < 63; ++bit) {
    const int64_t target = int64_t{1} << bit;
    if ((HWY_TARGETS & target) != 0) of_highway.insert(hwy::TargetName(target));
    if (((HWY_DISABLED_TARGETS)&target) != 0) left_out.insert(hwy::TargetName(target));
  }
  for (const std::string& target : of_highway) EXPECT_TRUE(made.contains(target)) << target;
  for (const std::string& target : made) {
    EXPECT_TRUE(of_highway.contains(HighwayName(target))) << target;
  }
  std::ifstream file(QUALM_SOURCE_DIR "/kernels/targets.txt");
  std::string line;
  while (std::getline(file, line) && line != section) continue;
  if (!file) GTEST_SKIP() << "kernels/targets.txt has no section " << section;
  std::set<std::string> listed;
  std::string word;
  ASSERT_TRUE(file >> word && word == "compiled" && std::getline(file, line)) << word;
  for (std::istringstream words(line); words >> word;) {
    if (!left_out.contains(HighwayName(word))) listed.insert(word);
  }
  EXPECT_EQ(made, listed);
}

TEST(Targets, DispatchFollowsTheScopedTarget) {
  const int64_t best = QUALM_DISPATCH(CompiledFor)();
  test::ForEachTarget([](const std::string& name) {
    EXPECT_EQ(hwy::TargetName(QUALM_DISPATCH(CompiledFor)()), HighwayName(name));
    EXPECT_EQ(SupportedTargets()[static_cast<size_t>(internal::TargetId())], name);
    const ScopedTarget nested("");
    EXPECT_EQ(hwy::TargetName(QUALM_DISPATCH(CompiledFor)()),
              HighwayName(SupportedTargets().front()));
    EXPECT_EQ(internal::TargetId(), 0);
  });
  EXPECT_EQ(QUALM_DISPATCH(CompiledFor)(), best);
}

TEST(Targets, ThreadsChooseIndependently) {
  const std::vector<std::string>& names = SupportedTargets();
  std::vector<std::thread> threads;
  std::vector<int> wrong(names.size());
  // All have chosen before any looks.
  std::barrier chosen(static_cast<std::ptrdiff_t>(names.size()));
  for (size_t i = 0; i < names.size(); ++i) {
    threads.emplace_back([&, i] {
      const ScopedTarget target(names[i]);
      chosen.arrive_and_wait();
      wrong[i] = SupportedTargets()[static_cast<size_t>(internal::TargetId())] != names[i] ||
                 hwy::TargetName(QUALM_DISPATCH(CompiledFor)()) != HighwayName(names[i]);
      chosen.arrive_and_wait();
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, std::vector<int>(names.size()));
}

TEST(TargetsDeathTest, AnUnsupportedTargetAborts) {
  EXPECT_DEATH(ScopedTarget("AVX9000"), "AVX9000");
}

TEST(Contraction, ProductsAreRoundedBeforeTheyAreAdded) {
  // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24 rounds to 1 + 2^-11: minus that, 0 unless fused.
  const volatile float a = 1.0f + 0x1p-12f;
  const volatile float c = -(1.0f + 0x1p-11f);
  test::ForEachTarget([&](const std::string&) {
    EXPECT_EQ(QUALM_DISPATCH(ScalarMultiplyAdd)(a, a, c), 0.0f);
    EXPECT_EQ(QUALM_DISPATCH(VectorMultiplyAdd)(a, a, c), 0.0f);
    EXPECT_EQ(QUALM_DISPATCH(VectorFused)(a, a, c), QUALM_DISPATCH(HasFma)() ? 0x1p-24f : 0.0f);
  });
}

#if defined(__SSE2__) || defined(__aarch64__)

// The control word of float arithmetic, read and written without the kernels' own code. kUnmasked:
// exceptions trap; Arm processors need not have that, and none is asked for it here.
#if defined(__SSE2__)
unsigned Control() { return _mm_getcsr(); }
void SetControl(unsigned control) { _mm_setcsr(control); }
constexpr unsigned kDefault = 0x1F80;
constexpr unsigned kRoundings[] = {0x1F80, 0x3F80, 0x5F80, 0x7F80};
constexpr unsigned kFlushing[] = {0x9FC0, 0xFFC0};
constexpr unsigned kUnmasked[] = {0x0000, 0x6000, 0x8040};
// Upward, flush-to-zero, denormals-are-zero, all exceptions unmasked, none raised.
constexpr unsigned kHostile = 0x4000 | 0x8000 | 0x0040;
#else
unsigned Control() {
  uint64_t control = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  return static_cast<unsigned>(control);
}
void SetControl(unsigned control) {
  __asm__ volatile("msr fpcr, %0" : : "r"(uint64_t{control}) : "memory");
}
constexpr unsigned kDefault = 0;
constexpr unsigned kRoundings[] = {0, 1u << 22, 2u << 22, 3u << 22};
constexpr unsigned kFlushing[] = {1u << 24, 7u << 22};
constexpr unsigned kUnmasked[] = {0};
constexpr unsigned kHostile = 1u << 22 | 1u << 24 | 1u << 25;  // upward, flush-to-zero, default NaN
#endif
std::vector<unsigned> Controls() {
  std::vector<unsigned> all(std::begin(kRoundings), std::end(kRoundings));
  all.insert(all.end(), std::begin(kFlushing), std::end(kFlushing));
  all.insert(all.end(), std::begin(kUnmasked), std::end(kUnmasked));
  return all;
}

TEST(FpEnvironment, NormalisesAndRestores) {
  const unsigned caller = Control();
  SetControl(kHostile);
  unsigned inside = 0;
  {
    const ScopedFpEnvironment environment;
    inside = Control();
  }
  const unsigned after = Control();
  SetControl(caller);
  EXPECT_EQ(inside, kDefault);
  EXPECT_EQ(after, kHostile);
}

TEST(FpEnvironment, DoesNotChangeWhatKernelsReturnNorDoTheyChangeIt) {
  // Ties, denormal scales and results, overflow, NaN: what rounding modes and flushing change, and
  // what would trap.
  std::vector<float> x;
  std::vector<int32_t> acc;
  for (int i = -40; i <= 40; ++i) {
    x.push_back((static_cast<float>(i) + 0.5f) * 0x1p-148f);
    acc.push_back(i * 3);
  }
  x.push_back(NAN);
  acc.push_back(INT32_MIN);
  x.push_back(-INFINITY);
  acc.push_back(INT32_MAX);
  const auto n = static_cast<int64_t>(x.size());
  const float tiny = 0x1p-148f;
  const float large = 0x1.fffffep127f;
  const int32_t zero_point = 7;
  const Multiplier tie{1.0f, 1.0f, 6.0f};
  const OutputRange range;
  struct Results {
    std::vector<uint8_t> quantized, requantized;
    std::vector<float> tiny, large;
    unsigned control;
  };
  const auto run = [&](unsigned control) {
    const auto size = static_cast<size_t>(n);
    Results r{std::vector<uint8_t>(size), std::vector<uint8_t>(size), std::vector<float>(size),
              std::vector<float>(size), 0};
    const unsigned caller = Control();
    SetControl(control);
    bool ok = Quantize({x.data(), ElementType::kF32, 1, n, n}, {&tiny, 1}, {&zero_point, 1}, range,
                       {r.quantized.data(), ElementType::kU8, 1, n, n})
                  .ok();
    ok = Requantize({acc.data(), ElementType::kS32, 1, n, n}, {&tie, 1}, zero_point, range,
                    {r.requantized.data(), ElementType::kS8, 1, n, n})
             .ok() &&
         ok;
    for (auto [scale, y] : {std::pair{&tiny, &r.tiny}, std::pair{&large, &r.large}}) {
      ok = Dequantize({r.quantized.data(), ElementType::kU8, 1, n, n}, {scale, 1}, {&zero_point, 1},
                      {y->data(), ElementType::kF32, 1, n, n})
               .ok() &&
           ok;
    }
    r.control = Control();
    SetControl(caller);
    EXPECT_TRUE(ok);
    return r;
  };
  test::ForEachTarget([&](const std::string&) {
    const Results expected = run(kDefault);
    EXPECT_EQ(expected.tiny[0], -7 * tiny);  // code 0: denormal, not flushed
    for (const unsigned control : Controls()) {
      SCOPED_TRACE(control);
      const Results actual = run(control);
      EXPECT_EQ(actual.quantized, expected.quantized);
      EXPECT_EQ(actual.requantized, expected.requantized);
      EXPECT_EQ(actual.tiny, expected.tiny);
      EXPECT_EQ(actual.large, expected.large);
      EXPECT_EQ(actual.control, control);
    }
  });
}

TEST(FpEnvironment, ErrorsAreTheSameWithFlushingAndTraps) {
  const float x = 1;
  uint8_t y = 0;
  const int32_t zero_point = 0;
  const auto error = [&](uint32_t scale_bits, unsigned control) {
    const float scale = std::bit_cast<float>(scale_bits);
    const unsigned caller = Control();
    SetControl(control);
    const std::string message = Quantize({&x, ElementType::kF32, 1, 1, 1}, {&scale, 1},
                                         {&zero_point, 1}, {}, {&y, ElementType::kU8, 1, 1, 1})
                                    .error;
    SetControl(caller);
    return message;
  };
  for (const unsigned control : Controls()) {
    EXPECT_EQ(error(0x00000001, control), "");  // denormal
    EXPECT_EQ(error(0x80000001, control), "scale[0] is -1.4013e-45, expected a finite number > 0");
    EXPECT_EQ(error(0x7F800001, control), "scale[0] is nan, expected a finite number > 0");
  }
}
#endif

}  // namespace
}  // namespace qualm::kernels
#endif  // HWY_ONCE
