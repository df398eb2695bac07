// SPDX-License-Identifier: Apache-2.0
// qualm_bench: our kernels and the libraries that are there, on the same problems, one thread, by
// Google Benchmark. Names are WORK/SHAPE/WHO. scripts/bench runs it row by row and compares.
#include "bench/bench.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <span>
#include <utility>

namespace qualm::bench {

std::string Linear::Name() const {
  return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k);
}

// The shapes of layers, tiny ones, and neighbours of powers of two, where tiles and vectors end.
const std::vector<Linear> kLinear = {
    {1, 1024, 1024},    {8, 1024, 1024}, {64, 512, 512},  {256, 256, 256}, {512, 512, 512},
    {1024, 1024, 1024}, {3136, 64, 576}, {49, 512, 4608}, {127, 129, 131}, {1, 16, 16},
    {16, 16, 16},       {32, 32, 32},    {17, 19, 23},    {64, 64, 64},    {100, 100, 100},
    {31, 33, 35},       {63, 65, 67},    {7, 100, 300},   {65, 511, 513},  {255, 257, 259}};

const std::vector<NamedLinear> kSweep = [] {
  std::vector<NamedLinear> rows;
  for (const int64_t size : {63, 64, 65, 127, 128, 129, 255, 256, 257}) {
    rows.push_back({"sweep-m/" + std::to_string(size), Linear{size, 256, 256}});
    rows.push_back({"sweep-n/" + std::to_string(size), Linear{256, size, 256}});
    rows.push_back({"sweep-k/" + std::to_string(size), Linear{256, 256, size}});
  }
  return rows;
}();

const std::vector<NamedLinear> kWeightKinds = [] {
  std::vector<NamedLinear> rows;
  for (const auto& [name, kind] :
       {std::pair{"weights-safe/", WeightKind::kSafe},
        {"weights-gaussian/", WeightKind::kGaussian},
        {"weights-gaussian-per-channel/", WeightKind::kGaussianPerChannel},
        {"weights-uniform/", WeightKind::kUniform},
        {"weights-worst/", WeightKind::kWorst}}) {
    for (const Linear& shape : std::span(kLinear).first(9)) {
      rows.push_back({name + shape.Name(), {shape.m, shape.n, shape.k, kind}});
    }
  }
  return rows;
}();

const std::vector<Conv> kConv = {{"stem-7x7s2-3-64", 224, 3, 64, 7, 2, 3, false},
                                 {"3x3-64-64", 56, 64, 64, 3, 1, 1, false},
                                 {"1x1-256-64", 56, 256, 64, 1, 1, 0, false},
                                 {"depthwise-3x3-128", 56, 128, 128, 3, 1, 1, true},
                                 {"depthwise-3x3s2-128", 56, 128, 128, 3, 2, 1, true},
                                 {"depthwise-5x5-96", 28, 96, 96, 5, 1, 2, true}};

const std::vector<Pool> kPool = {
    {"max-3x3s2-64", true, 112, 64, 3, 2, 1}, {"max-2x2s2-128", true, 56, 128, 2, 2, 0},
    {"max-3x3s2-3", true, 112, 3, 3, 2, 1},   {"mean-3x3-128", false, 28, 128, 3, 1, 1},
    {"mean-2x2s2-3", false, 112, 3, 2, 2, 0}, {"mean-7x7-512", false, 7, 512, 7, 1, 0}};

const std::vector<BlockWork> kBlockWork = [] {
  std::vector<BlockWork> rows;
  for (const char* const format : {"q8_0", "q4_0", "q4_k"}) {
    for (const int64_t k : {1024, 4096, 16384}) rows.push_back({format, {1, 1, k}});
    for (const Linear& shape : {Linear{1, 1024, 1024}, Linear{1, 4096, 4096}, Linear{8, 1024, 1024},
                                Linear{64, 512, 512}, Linear{256, 1024, 1024}})
      rows.push_back({format, shape});
  }
  return rows;
}();

const std::vector<int64_t> kBlockRows = {1024, 4096, 65536};

const std::vector<int64_t> kElements = {1, 16, 63, 100, 1000, 1023, 1024, 65536, 16777216};

float WeightScale(int64_t channel) { return 0.0021f + 0.00017f * static_cast<float>(channel % 23); }

float LayerScale(int64_t depth) { return 0.11f * std::sqrt(static_cast<float>(depth)); }

namespace {

uint32_t Next(uint32_t* state) { return (*state = *state * 1664525u + 1013904223u) >> 8; }

template <typename T, class Make>
Buffer<T> Filled(int64_t count, uint32_t seed, const Make& make) {
  const Buffer<T> buffer = Zeros<T>(count);
  for (T& value : *buffer) value = make(Next(&seed));
  return buffer;
}

}  // namespace

Buffer<uint8_t> Codes(int64_t count, uint32_t seed) {
  return Filled<uint8_t>(count, seed, [](uint32_t r) { return static_cast<uint8_t>(r); });
}
Buffer<int8_t> Weights(int64_t count, uint32_t seed) {
  return Filled<int8_t>(count, seed,
                        [](uint32_t r) { return static_cast<int8_t>(int32_t(r % 255) - 127); });
}
Buffer<int8_t> Weights(const Linear& shape, uint32_t seed) {
  const int64_t count = shape.n * shape.k;
  if (shape.weights == WeightKind::kUniform) return Weights(count, seed);
  const Buffer<int8_t> codes = Zeros<int8_t>(count);
  if (shape.weights == WeightKind::kWorst) {
    std::ranges::fill(*codes, int8_t{127});
    return codes;
  }
  if (shape.weights == WeightKind::kSafe) {
    for (int8_t& code : *codes) code = static_cast<int8_t>(int32_t(Next(&seed) % 129) - 64);
    return codes;
  }
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> reals(static_cast<size_t>(count));
  for (float& real : reals) real = normal(random);
  const bool per_channel = shape.weights == WeightKind::kGaussianPerChannel;
  const auto group = static_cast<size_t>(per_channel ? shape.k : count);
  for (size_t first = 0; first < reals.size(); first += group) {
    const auto [least, most] = std::ranges::minmax(std::span(reals).subspan(first, group));
    const float step = std::max(-least, most) / 127;
    for (size_t i = first; i < first + group; ++i) {
      (*codes)[i] = static_cast<int8_t>(std::lround(reals[i] / step));
    }
  }
  return codes;
}
Buffer<uint8_t> Blocks(int64_t count, int64_t bytes, uint32_t seed) {
  const Buffer<uint8_t> blocks = Codes(count * bytes, seed);
  for (int64_t i = 0; i < count * bytes; ++i) {
    uint8_t& byte = (*blocks)[static_cast<size_t>(i)];
    const int64_t at = i % bytes;
    if (byte == 0x80) byte = 0x81;
    if (at < (bytes == 144 ? 4 : 2)) byte = at % 2 == 0 ? 0 : 0x1C;
    if (bytes == 292 && at < 4) byte = at < 2 ? 0 : at == 2 ? 0x80 : 0x3B;
  }
  return blocks;
}
Buffer<int32_t> Sums(int64_t count, int32_t largest, uint32_t seed) {
  const auto range = static_cast<uint32_t>(2 * largest + 1);
  return Filled<int32_t>(count, seed,
                         [=](uint32_t r) { return static_cast<int32_t>(r % range) - largest; });
}
Buffer<float> Reals(int64_t count, uint32_t seed) {
  return Filled<float>(count, seed, [](uint32_t r) {
    return (static_cast<float>(r) - 0x1p23f) * 0.75e-6f;  // of 24 bits; most become codes
  });
}

namespace {

benchmark::internal::Benchmark* Register(const std::string& name, double items,
                                         std::function<Run()> prepare) {
  return benchmark::RegisterBenchmark(
      name.c_str(), [items, prepare = std::move(prepare),
                     run = std::make_shared<Run>()](benchmark::State& state) {
        if (!*run) *run = prepare();
        for (auto _ : state) (*run)();
        state.counters["rate"] =
            benchmark::Counter(items, benchmark::Counter::kIsIterationInvariantRate);
      });
}

}  // namespace

void Join(const std::string& work, const std::string& who, double items,
          std::function<Run()> prepare) {
  Register(work + "/" + who, items, std::move(prepare));
}

void JoinByWall(const std::string& work, const std::string& who, double items,
                std::function<Run()> prepare) {
  Register(work + "/" + who, items, std::move(prepare))->UseRealTime();
}

}  // namespace qualm::bench

int main(int argc, char** argv) {
  setenv("OMP_NUM_THREADS", "1", 1);  // oneDNN's threads
  qualm::bench::JoinPeaks();
  qualm::bench::JoinNative();
#ifdef QUALM_BENCH_ONEDNN
  qualm::bench::JoinOneDnn();
#endif
#ifdef QUALM_BENCH_XNNPACK
  qualm::bench::JoinXnnpack();
#endif
#ifdef QUALM_BENCH_GEMMLOWP
  qualm::bench::JoinGemmlowp();
#endif
#ifdef QUALM_BENCH_GGML
  qualm::bench::JoinGgml();
#endif
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
