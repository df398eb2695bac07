// SPDX-License-Identifier: Apache-2.0
// How Hopper's tensor cores add products (sm_90: mma.sync and wgmma), and what cuBLAS, PyTorch and
// Triton build from them. NVIDIA documents none of it: it was found by asking an H100 and an H200,
// and every recorded bit agrees (corpus/golden, mma.jsonl and gpu_products.jsonl). PTX ISA 8.7,
// "Matrix multiply-accumulate" and "Asynchronous warpgroup level matrix", has the instructions; Li
// et al., "MMA-Sim" (arXiv 2511.10909), measured the widths of f16, bf16, tf32 and wgmma's float8
// too.
//
// Floats are bit patterns, so that NaN and signs of zero are told apart.
#ifndef QUALM_ORACLES_CONVENTIONS_TENSOR_CORES_H_
#define QUALM_ORACLES_CONVENTIONS_TENSOR_CORES_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"

namespace qualm::conventions {

// The type of an operand. tf32 has no tensors of its own: it is the upper 19 bits of an f32.
struct TensorCoreType {
  FloatFormat format;
  int unread_bits = 0;  // of the pattern, from the lowest
};
inline constexpr TensorCoreType kTf32{{.exponent_bits = 8, .fraction_bits = 10, .bias = 127}, 13};
// "f16", "bf16", "tf32", "e4m3", "e4m3fn", "e5m2"; nullopt for other names.
std::optional<TensorCoreType> FindTensorCoreType(std::string_view name);

// One fused sum: all products and the addend are cut to multiples of 2^(E - fraction_bits), towards
// zero, where E is the largest exponent of a product or of the addend; then they are added exactly
// and the sum is converted once.
struct FusedSum {
  enum class Result : uint8_t {
    kF32,      // cut towards zero
    kF32Of14,  // cut towards zero to 14 significant bits
    kF16,      // to the nearest, ties to even
  };
  int terms = 16;  // products in one sum; a longer K is a chain of sums
  int fraction_bits = 25;
  Result result = Result::kF32;
};

// While one exists, the sums of this thread write what they do, a line for each fused sum and for
// each product that it cuts.
class TellingSums {
 public:
  explicit TellingSums(std::vector<std::string>* lines);
  ~TellingSums();
  TellingSums(const TellingSums&) = delete;
  TellingSums& operator=(const TellingSums&) = delete;
};

// a, b: codes of K products, which are added to c: f32, of kF16 an f16. The result has the type of
// c.
uint32_t Chain(const FusedSum& sum, const TensorCoreType& a_type, std::span<const uint32_t> a,
               const TensorCoreType& b_type, std::span<const uint32_t> b, uint32_t c);

// mma.sync of float8 on sm_90, which has no such unit: operands become f16, the products of k % 4 <
// 2 and then the others are two fused sums, and c is added by an ordinary addition. K = 32.
uint32_t Float8ByF16(bool f16_result, DType a_type, std::span<const uint32_t> a, DType b_type,
                     std::span<const uint32_t> b, uint32_t c);
// The same products as Triton adds them: c is a term of each fused sum. K is a multiple of 32.
uint32_t Float8ByF16InSums(DType a_type, std::span<const uint32_t> a, DType b_type,
                           std::span<const uint32_t> b, uint32_t c);

// Chains of `every` products, each from zero, added up in float32 (0: one chain).
float Promoted(const FusedSum& sum, int64_t every, const TensorCoreType& a_type,
               std::span<const uint32_t> a, const TensorCoreType& b_type,
               std::span<const uint32_t> b);

// The sum of products of codes: wraps beyond int32, or saturates once at the end.
int32_t IntegerSum(std::span<const int64_t> a, std::span<const int64_t> b, int64_t c,
                   bool saturates);

// A float32 NaN as these units and libraries write it: 7fffffff (f16: 7fff).
uint32_t BitsOfSum(float value);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_TENSOR_CORES_H_
