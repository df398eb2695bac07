// SPDX-License-Identifier: Apache-2.0
// For the tests of the linear layer: one complete problem, and a way to run it between guard pages.
#ifndef QUALM_KERNELS_SUMS_LINEAR_TESTING_H_
#define QUALM_KERNELS_SUMS_LINEAR_TESTING_H_

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/linear.h"
#include "kernels/types.h"

namespace qualm::kernels::testing {

// Memory whose last byte is followed, and whose first page is preceded, by a page that cannot be
// touched. Filled with `fill`.
class GuardedBytes {
 public:
  explicit GuardedBytes(size_t size, uint8_t fill = 0xA5);
  ~GuardedBytes();
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  void MakeReadOnly();

 private:
  void* mapping_;
  size_t mapping_size_;
  uint8_t* data_;
  size_t size_;
};

struct Problem {
  int64_t m = 1, n = 1, k = 1;
  ElementType x_type = ElementType::kU8;
  ElementType w_type = ElementType::kS8;
  ElementType y_type = ElementType::kU8;
  std::vector<int32_t> x, w;                // codes, dense [m,k] and [n,k]
  int64_t x_gap = 0, w_gap = 0, y_gap = 0;  // row stride minus columns
  float x_scale = 1.0f;
  int32_t x_zero = 0;
  std::vector<float> w_scale = {1.0f};
  std::vector<int32_t> w_zero = {0};
  std::vector<float> bias;
  std::vector<int32_t> bias_i32;
  float y_scale = 1.0f;
  int32_t y_zero = 0;
  OutputRange range;

  std::string Describe() const;
};

// Everything but the activations, with the weights at `w` in rows of k + w_gap.
LinearParams ParamsOf(const Problem& p, const uint8_t* w);

// Weights of the problem, packed for this thread's target, from memory that ends at a guard page.
Status PackProblem(const Problem& p, PackedLinear* packed);

// Packs and runs on this thread's target between guard pages, with read-only inputs. Checks that
// gaps between output rows are untouched. Dense [m,n] codes or float bits.
std::vector<int32_t> RunProblem(const Problem& p, uint8_t poison = 0xA5);

// The same of the problem without gaps: what other places of its numbers, threads and scratch are
// compared with. Whether they are right is asked by properties/native_kernels_test.cc.
std::vector<int32_t> PlainOutputs(Problem p);

// Bytes of a matrix whose rows have `gap` elements between them.
size_t SizeOf(ElementType type);
size_t Elements(int64_t rows, int64_t columns, int64_t gap);

// Spread writes dense codes into a matrix with gaps. Collect reads such a matrix, which held
// `poison` before, as dense codes or float bits, and expects the gaps to be untouched.
void Spread(const std::vector<int32_t>& codes, int64_t rows, int64_t columns, int64_t gap,
            uint8_t* to);
std::vector<int32_t> Collect(ElementType type, int64_t columns, int64_t gap, uint8_t poison,
                             const GuardedBytes& y);

// The rounding mode (FE_*) that float arithmetic really has. x86 has two control words, and
// fegetround reads the one that floats do not obey.
int FloatRoundingMode();

// Small deterministic source of choices.
class Choices {
 public:
  explicit Choices(uint64_t seed) : engine_(seed) {}
  // Uniform enough for tests, and the same with every standard library.
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  template <class T>
  T OneOf(std::initializer_list<T> values) {
    return values.begin()[Between(0, static_cast<int64_t>(values.size()) - 1)];
  }
  bool OneIn(int64_t n) { return Between(1, n) == 1; }

 private:
  std::mt19937_64 engine_;
};

int32_t LowestCode(ElementType type);
int32_t HighestCode(ElementType type);

enum class Data { kRandom, kZeroHeavy };

void Fill(Choices& choices, Data data, ElementType type, std::vector<int32_t>& codes);

// Weights [n,k] as those of a layer of some panels, whose activations move (pairing.h): in most
// channels few are large, in some all are, in some none.
void FillOrdinary(Choices& choices, int64_t k, std::vector<int32_t>& weights);

}  // namespace qualm::kernels::testing

#endif  // QUALM_KERNELS_SUMS_LINEAR_TESTING_H_
