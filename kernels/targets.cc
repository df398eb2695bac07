// SPDX-License-Identifier: Apache-2.0
// Lists the instruction sets that this build and this CPU have, and says which one a thread uses.
// No result depends on it: every kernel gives the same bits on all of them.
#include "kernels/targets.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "hwy/targets.h"
#include "kernels/common/dispatch.h"

#if HWY_ARCH_X86
#include <cpuid.h>
#elif HWY_ARCH_ARM_A64 && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace qualm::kernels {
namespace {

using internal::QuadSum;

struct Target {
  int64_t bit;  // Highway's HWY_* bit
  size_t index;
  QuadSum quad_sum;
  int64_t id;
};

size_t TableIndex(int64_t bit) {
#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
  (void)bit;  // a single target: Highway makes tables of one entry
  return 0;
#else
  hwy::ChosenTarget chosen;
  chosen.Update(bit);
  return chosen.GetIndex();
#endif
}

// Instructions that Highway 1.2 does not use although processors have them beside one of its
// targets. Each makes a target of its own, better than that one: the code of all kernels is the
// same, but linear and convolutions add products with it (sums/quads-inl.h).
struct Extension {
  int64_t bits;  // of Highway's targets
  const char* suffix;
};

#if HWY_ARCH_X86

constexpr Extension kExtensions[] = {{HWY_AVX2, "_VNNI"}};

bool CpuidBit(unsigned leaf, unsigned subleaf, int reg, int bit) {
  unsigned r[4] = {};
  return __get_cpuid_count(leaf, subleaf, &r[0], &r[1], &r[2], &r[3]) != 0 &&
         ((r[reg] >> bit) & 1u) != 0;
}

QuadSum OfHighway(int64_t) { return QuadSum::kHighway; }

// The instruction of the extension, or kHighway where this processor lacks it. Highway has asked
// whether the operating system saves the registers of its targets.
QuadSum OfExtension(int64_t) {
  if (CpuidBit(7, 1, 0, 4)) return QuadSum::kVnniVex;
  // No processor with AVX-512 chooses this target by itself: there it only shows what it computes.
  const bool has_avx3 = (hwy::SupportedTargets() & HWY_AVX3) != 0;
  return has_avx3 && CpuidBit(7, 0, 2, 11) ? QuadSum::kVnniEvex : QuadSum::kHighway;
}

#elif HWY_ARCH_ARM_A64

constexpr int64_t kAnySve = HWY_SVE2_128 | HWY_SVE_256 | HWY_SVE2 | HWY_SVE;
constexpr Extension kExtensions[] = {{kAnySve | HWY_NEON_BF16, "_I8MM"}, {HWY_NEON, "_DOT"}};

// SVE and NEON_BF16 imply the instruction.
QuadSum OfHighway(int64_t bit) {
  return (bit & (kAnySve | HWY_NEON_BF16)) != 0 ? QuadSum::kDot : QuadSum::kHighway;
}

QuadSum OfExtension(int64_t bit) {
#if defined(__linux__)
  // asm/hwcap.h; older headers lack the later ones.
  constexpr unsigned long kAsimdDp = 1ul << 20;                    // AT_HWCAP
  constexpr unsigned long kSveI8mm = 1ul << 9, kI8mm = 1ul << 13;  // AT_HWCAP2
  if (bit == HWY_NEON)
    return (getauxval(AT_HWCAP) & kAsimdDp) != 0 ? QuadSum::kDot : QuadSum::kHighway;
  const unsigned long needed = (bit & kAnySve) != 0 ? kSveI8mm : kI8mm;
  return (getauxval(AT_HWCAP2) & needed) != 0 ? QuadSum::kI8mm : QuadSum::kHighway;
#else
  (void)bit;
  return QuadSum::kHighway;
#endif
}

#else

constexpr Extension kExtensions[] = {{0, ""}};
QuadSum OfHighway(int64_t) { return QuadSum::kHighway; }
QuadSum OfExtension(int64_t) { return QuadSum::kHighway; }

#endif

const char* SuffixOf(int64_t bit) {
  for (const Extension& extension : kExtensions) {
    if ((extension.bits & bit) != 0) return extension.suffix;
  }
  return nullptr;
}

struct Known {
  std::vector<Target> targets;
  std::vector<std::string> names;

  Known() {
    for (const int64_t bit : hwy::SupportedAndGeneratedTargets()) {
      const char* const suffix = SuffixOf(bit);
      const QuadSum better = suffix == nullptr ? QuadSum::kHighway : OfExtension(bit);
      if (better != QuadSum::kHighway) Add(bit, better, suffix);
      Add(bit, OfHighway(bit), "");
    }
  }

  void Add(int64_t bit, QuadSum quad_sum, const char* suffix) {
    targets.push_back({bit, TableIndex(bit), quad_sum, static_cast<int64_t>(targets.size())});
    names.push_back(std::string(hwy::TargetName(bit)) + suffix);
  }
};

const Known& All() {
  static const Known known;
  return known;
}

// Null: the best one.
constinit thread_local const Target* current = nullptr;

inline const Target& Current() {
  if (current == nullptr) [[unlikely]]
    current = All().targets.data();
  return *current;
}

}  // namespace

namespace internal {

size_t TargetIndex() { return Current().index; }
int64_t TargetId() { return Current().id; }
QuadSum TargetQuadSum() { return Current().quad_sum; }

std::vector<std::string> CompiledTargets() {
  std::vector<std::string> names;
  for (int bit = 0; bit < 63; ++bit) {
    const int64_t target = int64_t{1} << bit;
    if ((HWY_TARGETS & target) == 0) continue;
    const std::string name = hwy::TargetName(target);
    if (const char* suffix = SuffixOf(target)) names.push_back(name + suffix);
    names.push_back(name);
  }
  return names;
}

}  // namespace internal

const std::vector<std::string>& SupportedTargets() { return All().names; }

ScopedTarget::ScopedTarget(std::string_view name) : previous_(current) {
  const std::vector<std::string>& names = SupportedTargets();
  const auto found = name.empty() ? names.begin() : std::ranges::find(names, name);
  if (found == names.end()) {
    std::fprintf(stderr, "ScopedTarget: \"%.*s\" is not compiled in or not supported by this CPU\n",
                 static_cast<int>(name.size()), name.data());
    std::abort();
  }
  current = All().targets.data() + (found - names.begin());
}

ScopedTarget::~ScopedTarget() { current = static_cast<const Target*>(previous_); }

}  // namespace qualm::kernels
