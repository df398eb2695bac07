// SPDX-License-Identifier: Apache-2.0
#include "properties/processor_test_util.h"

#include <stdexcept>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif

namespace qualm::test {
namespace {

[[noreturn]] void Unknown(std::string_view target) {
  throw std::invalid_argument("what a processor needs for " + std::string(target) +
                              " is not known here");
}

std::string Lacks(std::string_view feature) {
  return "this processor has no " + std::string(feature);
}

#if defined(__x86_64__)

enum Register { kEax, kEbx, kEcx, kEdx };

bool Bit(unsigned leaf, unsigned subleaf, Register at, int bit) {
  unsigned registers[4] = {};
  if (__get_cpuid_count(leaf, subleaf, &registers[0], &registers[1], &registers[2],
                        &registers[3]) == 0) {
    return false;
  }
  return ((registers[at] >> bit) & 1u) != 0;
}

// State that the operating system saves: bits 1 and 2 are SSE and AVX, 5 to 7 are AVX-512.
bool OperatingSystemSaves(unsigned mask) {
  if (!Bit(1, 0, kEcx, 27)) return false;  // OSXSAVE
  unsigned low = 0;
  unsigned high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & mask) == mask;
}

struct Feature {
  std::string_view name;
  unsigned leaf, subleaf;
  Register at;
  int bit;
};
constexpr Feature kSsse3[] = {{"ssse3", 1, 0, kEcx, 9}};
constexpr Feature kSse4[] = {{"sse4_1", 1, 0, kEcx, 19},
                             {"sse4_2", 1, 0, kEcx, 20},
                             {"pclmulqdq", 1, 0, kEcx, 1},
                             {"aes", 1, 0, kEcx, 25}};
constexpr Feature kAvx2[] = {{"avx", 1, 0, kEcx, 28},          {"avx2", 7, 0, kEbx, 5},
                             {"fma", 1, 0, kEcx, 12},          {"f16c", 1, 0, kEcx, 29},
                             {"bmi1", 7, 0, kEbx, 3},          {"bmi2", 7, 0, kEbx, 8},
                             {"lzcnt", 0x80000001, 0, kEcx, 5}};
constexpr Feature kAvxVnni[] = {{"avx_vnni", 7, 1, kEax, 4}};
constexpr Feature kAvx512Vnni[] = {{"avx512_vnni", 7, 0, kEcx, 11}};
constexpr Feature kAvx3[] = {{"avx512f", 7, 0, kEbx, 16},
                             {"avx512dq", 7, 0, kEbx, 17},
                             {"avx512cd", 7, 0, kEbx, 28},
                             {"avx512bw", 7, 0, kEbx, 30},
                             {"avx512vl", 7, 0, kEbx, 31}};
constexpr Feature kAvx3Dl[] = {
    {"avx512vbmi", 7, 0, kEcx, 1},     {"avx512_vbmi2", 7, 0, kEcx, 6},
    {"gfni", 7, 0, kEcx, 8},           {"vaes", 7, 0, kEcx, 9},
    {"vpclmulqdq", 7, 0, kEcx, 10},    {"avx512_vnni", 7, 0, kEcx, 11},
    {"avx512_bitalg", 7, 0, kEcx, 12}, {"avx512_vpopcntdq", 7, 0, kEcx, 14}};
constexpr Feature kBf16[] = {{"avx512_bf16", 7, 1, kEax, 5}};
constexpr Feature kFp16[] = {{"avx512_fp16", 7, 0, kEdx, 23}};

template <size_t kSize>
std::string FirstMissing(const Feature (&features)[kSize]) {
  for (const Feature& feature : features) {
    if (!Bit(feature.leaf, feature.subleaf, feature.at, feature.bit)) return Lacks(feature.name);
  }
  return "";
}

bool IsAmd() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  __get_cpuid(0, &eax, &ebx, &ecx, &edx);
  return ebx == signature_AMD_ebx && ecx == signature_AMD_ecx && edx == signature_AMD_edx;
}

// Each level contains the one before.
std::string WhyCannotRunHere(std::string_view target) {
  std::string missing;
  const auto level = [&](std::string_view name, const auto&... features) {
    ((missing = missing.empty() ? FirstMissing(features) : missing), ...);
    return target == name;
  };
  if (target == "SSE2" || target == "EMU128" || target == "SCALAR") return "";
  if (level("SSSE3", kSsse3) || level("SSE4", kSse4)) return missing;
  if (!OperatingSystemSaves(0x06)) return "the operating system does not save AVX registers";
  if (level("AVX2", kAvx2)) return missing;
  if (target == "AVX2_VNNI") {
    if (!missing.empty() || FirstMissing(kAvxVnni).empty()) return missing;
    // Or the same instruction of AVX-512.
    if (FirstMissing(kAvx3).empty() && FirstMissing(kAvx512Vnni).empty() &&
        OperatingSystemSaves(0xE6))
      return "";
    return FirstMissing(kAvxVnni);
  }
  if (missing.empty() && FirstMissing(kAvx3).empty() && !OperatingSystemSaves(0xE6))
    return "the operating system does not save AVX-512 registers";
  if (level("AVX3", kAvx3) || level("AVX3_DL", kAvx3Dl)) return missing;
  if (level("AVX3_ZEN4", kBf16)) {
    return !missing.empty() || IsAmd() ? missing : "only for AMD, and this processor is not AMD's";
  }
  if (level("AVX3_SPR", kFp16)) return missing;
  Unknown(target);
}

#elif defined(__aarch64__)

// asm/hwcap.h; older headers lack the later ones.
constexpr unsigned long kAes = 1ul << 3, kHalf = 1ul << 10, kDot = 1ul << 20, kSve = 1ul << 22;
constexpr unsigned long kSve2 = 1ul << 1, kSveAes = 1ul << 2, kSveI8mm = 1ul << 9,
                        kI8mm = 1ul << 13, kBf16 = 1ul << 14;  // AT_HWCAP2

std::string WhyCannotRunHere(std::string_view target) {
  const unsigned long caps = getauxval(AT_HWCAP);
  const unsigned long caps2 = getauxval(AT_HWCAP2);
  if (target == "NEON_DOT") {
    if ((caps & kAes) == 0) return Lacks("aes");
    return (caps & kDot) != 0 ? "" : Lacks("asimddp");
  }
  if (constexpr std::string_view kSuffix = "_I8MM"; target.ends_with(kSuffix)) {
    const bool sve = target.starts_with("SVE");
    if ((caps2 & (sve ? kSveI8mm : kI8mm)) == 0) return Lacks(sve ? "svei8mm" : "i8mm");
    target.remove_suffix(kSuffix.size());
  }
  const auto vector_bytes = [] { return prctl(PR_SVE_GET_VL) & PR_SVE_VL_LEN_MASK; };
  if (target == "EMU128" || target == "SCALAR" || target == "NEON_WITHOUT_AES") return "";
  if (target == "NEON") return (caps & kAes) != 0 ? "" : Lacks("aes");
  if (target == "NEON_BF16") {
    if ((caps & kAes) == 0) return Lacks("aes");
    if ((caps & kHalf) == 0) return Lacks("asimdhp");
    if ((caps & kDot) == 0) return Lacks("asimddp");
    return (caps2 & kBf16) != 0 ? "" : Lacks("bf16");
  }
  if (!target.starts_with("SVE")) Unknown(target);
  if ((caps & kSve) == 0) return Lacks("sve");
  if (target == "SVE") return "";
  if (target == "SVE_256") return vector_bytes() == 32 ? "" : "its SVE vectors have not 256 bits";
  if ((caps2 & kSve2) == 0) return Lacks("sve2");
  if ((caps2 & kSveAes) == 0) return Lacks("sveaes");
  if (target == "SVE2") return "";
  if (target == "SVE2_128") return vector_bytes() == 16 ? "" : "its SVE vectors have not 128 bits";
  Unknown(target);
}

#else
#error "the processor's features are known for x86-64 and aarch64"
#endif

}  // namespace

std::string WhyCannotRun(std::string_view target) { return WhyCannotRunHere(target); }

}  // namespace qualm::test
