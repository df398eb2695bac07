// SPDX-License-Identifier: Apache-2.0
// The parts that oneDNN 2.6 and 3.7 share: accumulators, and the end of the epilogue.
#ifndef QUALM_ORACLES_CONVENTIONS_ONEDNN2_H_
#define QUALM_ORACLES_CONVENTIONS_ONEDNN2_H_

#include <string>
#include <string_view>
#include <vector>

#include "oracles/conventions/definition.h"

namespace qualm::conventions {

struct OneDnnIsa {
  std::string_view name;
  // K up to `one_block` is one block; up to below 2*`block` two blocks of ceil(K/2); then blocks of
  // `block`, which is even.
  int64_t one_block = 0;
  int64_t block = 0;
  bool avx512 = false;      // s8 activations stay in the jit gemm; one output column has a gemv
  bool vnni = false;        // sums are exact
  bool brgemm = false;      // brgemm instead of the gemm
  bool amx = false;         // brgemm with tiles, for all but small matmuls
  bool transposes = false;  // weights of depthwise come in blocks of 8, transposed 8 by 8
};

// sse41, avx2, avx2vnni, avx512core, vnni, amx; nullptr for other names.
const OneDnnIsa* FindOneDnnIsa(std::string_view name);

// A linear that goes to the gemm, never to brgemm, with this reciprocal of the scale of x.
Convention OneDnn2GemmLinear(OneDnnIsa isa, float inverse_x_scale);

// How a matmul or convolution adds its products and takes out the zero points, as dispatched for
// this case.
Accumulation OneDnnAccumulation(const OneDnnIsa& isa, const Case& c);

// The refusals, claims and variations of both versions. Each version itself checks outputs and
// weight zero points.
std::string OneDnnCannotRun(const OneDnnIsa& isa, const Case& c);
std::vector<std::string> OneDnnClaims(const OneDnnIsa& isa);
std::vector<std::string> OneDnnVariations(const OneDnnIsa& isa);

// The steps after scaling and relu: zero point in float32, saturation in float32, conversion.
void AppendOneDnnEnd(std::vector<Step>& steps);
// Sets the clamp bounds to the whole output type, because relu is a step of its own.
void SetOneDnnRange(Channel& channel, const Case& c);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_ONEDNN2_H_
