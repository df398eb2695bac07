// SPDX-License-Identifier: Apache-2.0
// oneDNN 2.6, and what 3.7 shares with it: all but the scales of sums of products.
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
  int version = 2;
};

// sse41, avx2, avx2vnni, avx512core, vnni, amx; nullptr for other names.
const OneDnnIsa* FindOneDnnIsa(std::string_view name);

// A linear that goes to the gemm, never to brgemm, with this reciprocal of the scale of x.
Convention OneDnn2GemmLinear(OneDnnIsa isa, float inverse_x_scale);

// How a version scales sums of products. Only oneDNN 2 has offsets, those of AMX, that are left to
// do after the bias.
struct OneDnnScaling {
  Channel (*channel)(const Case& c, int64_t n, float inverse_x_scale) = nullptr;
  // What is left of a channel's factors where weights are halved.
  void (*halve_and_double)(Channel& channel) = nullptr;
  std::vector<Step> (*before_offsets)(const Case& c) = nullptr;
  std::vector<Step> (*after_offsets)(const Case& c) = nullptr;
  std::vector<Step> (*after_relu)(const Case& c) = nullptr;
};
// All but name, description and source.
Definition OneDnnDefinition(const OneDnnIsa& isa, const OneDnnScaling& scaling);

std::vector<std::string> OneDnnVariations(const OneDnnIsa& isa);

// The steps after scaling and relu: zero point in float32, saturation in float32, conversion.
void AppendOneDnnEnd(std::vector<Step>& steps);
// Sets the clamp bounds to the whole output type, because relu is a step of its own.
void SetOneDnnRange(Channel& channel, const Case& c);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_ONEDNN2_H_
