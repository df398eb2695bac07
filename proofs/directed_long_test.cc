// SPDX-License-Identifier: Apache-2.0
// Certificates against the saturating library itself: it fails on every witness, and gives exact
// results in 10^8 outputs of rows that aim at sums proven safe. Long tier; minutes.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <string>

#include "adapters/registry.h"
#include "core/status.h"
#include "core/subject.h"
#include "oracles/exact/exact.h"
#include "proofs/certify.h"
#include "proofs/directed.h"
#include "proofs/repair.h"

namespace qualm::proofs {
namespace {

constexpr int64_t kCases = 100'000'000;
constexpr double kMostSeconds = 1200;
constexpr Codes kAll{0, 255};

// Gaussian weights per tensor: the largest code is 127.
Case GaussianLayer(uint64_t seed, int64_t n, int64_t k) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> draw(0, 1);
  std::vector<double> weights(static_cast<size_t>(n * k));
  double largest = 0;
  for (double& weight : weights) largest = std::max(largest, std::fabs(weight = draw(rng)));
  Case c;
  c.N = n;
  c.K = k;
  c.x = Tensor(DType::kU8, {0, k});
  c.w = Tensor(DType::kS8, {n, k});
  for (int64_t i = 0; i < c.w.size(); ++i) {
    c.w.SetInt(i,
               static_cast<int32_t>(std::lround(weights[static_cast<size_t>(i)] * 127 / largest)));
  }
  return c;
}

// The library that saturates where it is installed, else its convention.
std::unique_ptr<Subject> Saturating() {
  RegisterAllSubjects();
  try {
    return SubjectRegistry::Get().Make("onednn@avx2");
  } catch (const Unavailable&) {
    return SubjectRegistry::Get().Make("model:onednn2@avx2");
  }
}

TEST(DirectedLong, EveryWitnessFails) {
  const auto subject = Saturating();
  int64_t witnesses = 0;
  for (uint64_t seed = 1; seed <= 16; ++seed) {
    const Case layer = GaussianLayer(seed, 256, 64 << seed % 3);
    const Scheme scheme = SchemeOf("onednn2@avx2", layer);
    for (const UnsafeChannel& channel : Certify(layer, scheme, kAll).unsafe) {
      const auto witness = WitnessOf(layer, scheme, kAll, channel);
      ASSERT_TRUE(witness);
      const Case c = WitnessCase(layer, *witness);
      const Outcome outcome = subject->Run(c, RunContext{});
      ASSERT_TRUE(outcome.ok()) << outcome.detail;
      ASSERT_FALSE(outcome.y == exact::Evaluate(c)) << c.note;
      ++witnesses;
    }
  }
  EXPECT_GT(witnesses, 300);
  std::printf("%s: wrong on all of %lld witnesses\n", std::string(subject->name()).c_str(),
              static_cast<long long>(witnesses));
}

TEST(DirectedLong, WhatIsSafeStands) {
  const auto subject = Saturating();
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  int64_t judged = 0, unsafe = 0;
  for (uint64_t seed = 1; judged < kCases; ++seed) {
    ASSERT_LT(seconds(), kMostSeconds) << judged << " cases";
    // As drawn, with the channels left out that are not safe; then repaired, with all of them.
    Case layer = GaussianLayer(seed, 256, 64);
    const Scheme scheme = SchemeOf("onednn2@avx2", layer);
    if (seed % 2 == 0) {
      const std::vector<Remedy> remedies = Repair(layer, scheme, kAll);
      ASSERT_TRUE(remedies.front().exact);
      layer = Apply(*remedies.front().rebuilt, layer);
    }
    std::vector<bool> safe(static_cast<size_t>(layer.N), true);
    for (const UnsafeChannel& channel : Certify(layer, scheme, kAll).unsafe) {
      safe[static_cast<size_t>(channel.n)] = false;
      ++unsafe;
    }
    for (int batch = 0; batch < 4; ++batch) {
      const Case c = Directed(layer, kAll, 2048, seed * 8 + static_cast<uint64_t>(batch));
      const Outcome outcome = subject->Run(c, RunContext{});
      ASSERT_TRUE(outcome.ok()) << outcome.detail;
      const std::vector<int64_t> exact = exact::RawSums(c);
      for (size_t i = 0; i < exact.size(); ++i) {
        if (!safe[i % safe.size()]) continue;
        ++judged;
        ASSERT_EQ(outcome.y.IntAt(static_cast<int64_t>(i)), exact[i]) << "seed " << seed;
      }
    }
  }
  EXPECT_GT(unsafe, 0);  // the layers are such that certificates matter
  std::printf("%s: exact on %lld directed outputs, %.0f s\n", std::string(subject->name()).c_str(),
              static_cast<long long>(judged), seconds());
}

}  // namespace
}  // namespace qualm::proofs
