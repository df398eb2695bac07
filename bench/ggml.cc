// SPDX-License-Identifier: Apache-2.0
// ggml, as scripts/install-ggml has it: of its shared objects the one that llama.cpp would load
// here, which has the highest ggml_backend_score. "ggml" calls ggml_vec_dot_TYPE_q8_0 for each
// output, "ggml-sgemm" llamafile_sgemm, "ggml-repacked" the gemm and gemv over weights of eight
// rows in turn.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/bench.h"

namespace qualm::bench {
namespace {

using VecDot = void (*)(int n, float* s, size_t bs, const void* x, size_t bx, const void* y,
                        size_t by, int nrc);
using Repacked = void (*)(int n, float* s, size_t bs, const void* w, const void* x, int rows,
                          int columns);
// ggml-cpu-impl.h has its parameters; what is behind these is not read for one thread.
struct Parameters {
  int thread = 0, threads = 1;
  size_t work_bytes = 0;
  void* work = nullptr;
  void* pool = nullptr;
  char more[64] = {};
};
using Sgemm = bool (*)(const Parameters* parameters, int64_t m, int64_t n, int64_t k, const void* a,
                       int64_t lda, const void* b, int64_t ldb, void* c, int64_t ldc, int a_type,
                       int b_type, int c_type);
constexpr int kF32 = 0, kQ4_0 = 2, kQ8_0 = 8;  // enum ggml_type

template <class Function>
Function Symbol(void* object, const char* name) {
  return reinterpret_cast<Function>(dlsym(object, name));
}

std::filesystem::path Folder() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (std::string folder = variable("QUALM_GGML_FOLDER"); !folder.empty()) return folder;
  const std::string xdg = variable("XDG_CACHE_HOME");
  std::string cache = variable("QUALM_CACHE_DIR");
  if (cache.empty()) cache = (xdg.empty() ? variable("HOME") + "/.cache" : xdg) + "/qualm";
  return cache + "/ggml/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64";
}

// Null where there is none.
void* BestObject() {
  void* best = nullptr;
  int highest = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(Folder(), error)) {
    if (!entry.path().filename().string().starts_with("libggml-cpu-")) continue;
    void* const object = dlopen(entry.path().c_str(), RTLD_NOW | RTLD_LOCAL);
    if (object == nullptr) continue;
    const auto score = Symbol<int (*)()>(object, "ggml_backend_score");
    if (score == nullptr || score() <= highest) continue;
    best = object;
    highest = score();
  }
  return best;
}

void Require(const void* symbol, const char* name) {
  if (symbol != nullptr) return;
  std::fprintf(stderr, "qualm_bench: ggml: no %s, expected ggml 0.25\n", name);
  std::exit(1);
}

Run PrepareDots(void* ggml, const BlockWork& work) {
  const auto& [m, n, k, kind] = work.shape;
  const char* const name = work.IsSuper()          ? "ggml_vec_dot_q4_K_q8_K"
                           : work.format == "q4_0" ? "ggml_vec_dot_q4_0_q8_0"
                                                   : "ggml_vec_dot_q8_0_q8_0";
  const auto dot = Symbol<VecDot>(ggml, name);
  Require(reinterpret_cast<void*>(dot), name);
  const int64_t w_bytes = work.Blocks() * work.WeightBytes();
  const int64_t x_bytes = work.Blocks() * work.ActivationBytes();
  return [=, rows = m, columns = n, depth = static_cast<int>(k),
          x = Blocks(m * work.Blocks(), work.ActivationBytes(), 1),
          w = Blocks(n * work.Blocks(), work.WeightBytes(), 2), y = Zeros<float>(m * n)] {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j)
        dot(depth, y->data() + i * columns + j, 0, w->data() + j * w_bytes, 0,
            x->data() + i * x_bytes, 0, 1);
    }
  };
}

Run PrepareSgemm(void* ggml, const BlockWork& work) {
  const auto& [m, n, k, kind] = work.shape;
  const auto multiply = Symbol<Sgemm>(ggml, "llamafile_sgemm");
  Require(reinterpret_cast<void*>(multiply), "llamafile_sgemm");
  const int64_t blocks = work.Blocks();
  return [=, rows = m, columns = n, type = work.format == "q4_0" ? kQ4_0 : kQ8_0,
          x = Blocks(m * blocks, 34, 1), w = Blocks(n * blocks, work.WeightBytes(), 2),
          y = Zeros<float>(m * n)] {
    const Parameters one;
    if (!multiply(&one, columns, rows, blocks, w->data(), blocks, x->data(), blocks, y->data(),
                  columns, type, kQ8_0, kF32))
      Require(nullptr, "llamafile_sgemm of these types");
  };
}

// Eight rows of weights in turn, and of many rows of x four: drawn in that form. Which numbers they
// stand for does not matter to the time.
Run PrepareRepacked(void* ggml, const BlockWork& work) {
  const auto& [m, n, k, kind] = work.shape;
  const char* const name = m == 1 ? "ggml_gemv_q4_0_8x8_q8_0" : "ggml_gemm_q4_0_8x8_q8_0";
  const auto multiply = Symbol<Repacked>(ggml, name);
  Require(reinterpret_cast<void*>(multiply), name);
  const auto in_turn = [&](int64_t rows, int64_t together, int64_t bytes, uint32_t seed) {
    const auto blocks = Blocks(rows / together * work.Blocks(), together * bytes, seed);
    for (size_t i = 0; i < blocks->size(); ++i) {
      const auto at = static_cast<int64_t>(i) % (together * bytes);
      if (at < 2 * together) (*blocks)[i] = at % 2 == 0 ? 0 : 0x1C;
    }
    return blocks;
  };
  return [=, rows = static_cast<int>(m), columns = static_cast<int>(n), depth = static_cast<int>(k),
          x = in_turn(m, m == 1 ? 1 : 4, 34, 1), w = in_turn(n, 8, 18, 2),
          y = Zeros<float>(m * n)] {
    multiply(depth, y->data(), static_cast<size_t>(columns), w->data(), x->data(), rows, columns);
  };
}

Run PrepareRow(void* ggml, const char* name, int64_t n) {
  const auto quantize = Symbol<void (*)(const float*, void*, int64_t)>(ggml, name);
  Require(reinterpret_cast<void*>(quantize), name);
  return
      [=, x = Reals(n, 1), y = Zeros<uint8_t>(n / 32 * 34)] { quantize(x->data(), y->data(), n); };
}

}  // namespace

void JoinGgml() {
  void* const ggml = BestObject();
  if (ggml == nullptr) {
    std::fprintf(stderr,
                 "qualm_bench: ggml is left out: no object for this processor in %s: run "
                 "scripts/install-ggml\n",
                 Folder().c_str());
    return;
  }
  const auto init = Symbol<void (*)()>(ggml, "ggml_cpu_init");
  Require(reinterpret_cast<void*>(init), "ggml_cpu_init");
  init();  // makes the tables of float16
  for (const int64_t n : kBlockRows) {
    for (const char* name : {"quantize_row_q8_0", "quantize_row_q4_0", "quantize_row_q8_K"}) {
      const std::string format = std::string(name).substr(sizeof("quantize_row_") - 1);
      Join("quantize-" + format + "/" + std::to_string(n), "ggml", static_cast<double>(n),
           [=] { return PrepareRow(ggml, name, n); });
    }
  }
  for (const BlockWork& work : kBlockWork) {
    const auto join = [&](const char* who, Run (*prepare)(void*, const BlockWork&)) {
      Join(work.Name(), who, work.shape.Items(), [=] { return prepare(ggml, work); });
    };
    join("ggml", PrepareDots);
    if (work.shape.m > 1 && !work.IsSuper())
      join("ggml-sgemm", PrepareSgemm);  // takes no single row
    if (work.format == "q4_0" && !work.IsDot()) join("ggml-repacked", PrepareRepacked);
  }
}

}  // namespace qualm::bench
