// SPDX-License-Identifier: Apache-2.0
#include "oracles/conventions/known_trees.h"

#include "oracles/conventions/convention.h"

namespace qualm::conventions {
namespace {

// To add a row: `qualm identify --tree SUBJECT FORMAT` prints it as "contract:".
constexpr KnownTree kKnownTrees[] = {
    {"ggml@haswell", "ggml@zen4",
     "tree:{form:q8_0 parts:8x4 order:8/halves steps:fused scales:product every:32}"},
    {"ggml@haswell", "ggml@zen4",
     "tree:{form:q4_0 parts:8x4 order:8/halves steps:fused scales:product every:32}"},
    {"ggml@haswell+iq4_nl", "ggml@zen4+iq4_nl, +mxfp4",
     "tree:{form:iq4_nl parts:8x4 order:16/halves steps:fused scales:product every:64}"},
    {"ggml@haswell+q4_1", "ggml@zen4+q4_1",
     "tree:{form:q4_1 parts:8x4 order:8/halves minima:1x32/last/1/sequence/product "
     "steps:fused scales:product every:32}"},
    {"ggml@haswell+q5_1", "ggml@zen4+q5_1",
     "tree:{form:q5_1 parts:8x4 order:8/halves minima:1x32/last/1/sequence/product "
     "steps:fused scales:product every:32}"},
    {"ggml@haswell+q2_k", "ggml@zen4+q2_k",
     "tree:{form:q2_k parts:8x4 order:8/halves minima:8x32/before/product steps:fused "
     "scales:product every:256}"},
    {"ggml@haswell+q3_k", "ggml@zen4+q3_k",
     "tree:{form:q3_k parts:8x4 order:8/halves steps:fused scales:product every:256}"},
    {"ggml@haswell+q4_k", "ggml@zen4+q4_k",
     "tree:{form:q4_k parts:8x4 order:8/halves minima:4x64/last/4/halves/product "
     "steps:fused scales:product every:256}"},
    {"ggml@haswell+q5_k", "ggml@zen4+q5_k",
     "tree:{form:q5_k parts:8x4 order:8/halves minima:1x256/last/1/sequence/product "
     "steps:fused scales:product every:256}"},
    {"ggml@haswell+iq4_xs", "ggml@zen4+iq4_xs",
     "tree:{form:iq4_xs parts:8x4 order:8/halves steps:fused scales:product every:256}"},
    {"ggml@sandybridge", "",
     "tree:{form:q8_0 parts:4x4 order:8/halves steps:rounded scales:product every:64}"},
    {"ggml@sandybridge", "",
     "tree:{form:q4_0 parts:4x4 order:8/halves steps:rounded scales:product every:64}"},
    {"ggml@x64", "",
     "tree:{form:q8_0 parts:1x32 order:1/sequence steps:rounded scales:product every:32}"},
    {"ggml@haswell+generic", "",
     "tree:{form:q8_0 parts:1x32 order:1/sequence steps:fused scales:product every:32}"},
    {"ggml@haswell+q4_0+gemm", "+gemv",
     "tree:{form:q4_0 parts:1x32 order:1/sequence steps:fused scales:product every:32}"},
    {"ggml@haswell+iq4_nl+gemm", "+gemv, +mxfp4+gemm, +mxfp4+gemv",
     "tree:{form:iq4_nl parts:1x32 order:1/sequence steps:fused scales:product every:32}"},
    {"ggml@haswell+q2_k+gemv", "",
     "tree:{form:q2_k parts:1x256 order:2/sequence minima:1x256/behind/product steps:fused "
     "scales:product every:256}"},
    {"ggml@haswell+q4_k+gemv", "",
     "tree:{form:q4_k parts:1x256 order:2/sequence minima:1x256/behind/product steps:fused "
     "scales:product every:256}"},
    {"ggml@haswell+q2_k+gemm", "ggml@zen4+q2_k+gemm",
     "tree:{form:q2_k parts:2x128 order:1/sequence minima:2x128/last/1/sequence/product "
     "steps:fused scales:product every:256}"},
    {"ggml@haswell+q4_k+gemm", "ggml@zen4+q4_k+gemm",
     "tree:{form:q4_k parts:4x64 order:1/sequence minima:4x64/last/1/sequence/product "
     "steps:fused scales:product every:256}"},
    {"ggml@haswell+tq1_0+generic", "",
     "tree:{form:tq1_0 parts:1x256 order:1/sequence steps:fused scales:product every:256}"},
    {"ggml@haswell+tq2_0+generic", "",
     "tree:{form:tq2_0 parts:1x256 order:1/sequence steps:fused scales:product every:256}"},
    {"ggml@haswell+q1_0", "ggml@zen4+q1_0",
     "tree:{form:q1_0 parts:8x4 order:8/halves steps:fused scales:x-chain every:128}"},
    {"ggml@sandybridge+q1_0", "",
     "tree:{form:q1_0 parts:8x4 order:8/halves steps:rounded scales:x-chain every:128}"},
    {"ggml@sse42+q1_0", "",
     "tree:{form:q1_0 parts:4x4/32 order:16/neighbours steps:rounded scales:product every:128}"},
    {"ggml@x64+q1_0", "",
     "tree:{form:q1_0 parts:1x128 order:1/sequence steps:rounded scales:x-chain every:128}"},
    {"ggml@haswell+q1_0+generic", "",
     "tree:{form:q1_0 parts:1x128 order:1/sequence steps:fused scales:x-chain every:128}"},
    {"ggml@x64+q2_0", "ggml@sse42+q2_0, ggml@sandybridge+q2_0",
     "tree:{form:q2_0 parts:1x64 order:1/sequence steps:rounded scales:x-chain every:64}"},
    {"ggml@haswell+q2_0", "ggml@zen4+q2_0",
     "tree:{form:q2_0 parts:1x64 order:1/sequence steps:fused scales:x-chain every:64}"},
    {"ggml@haswell+nvfp4", "ggml@zen4+nvfp4",
     "tree:{form:nvfp4 parts:16x4 order:8/halves steps:fused scales:product every:64}"},
    {"ggml@sandybridge+nvfp4", "",
     "tree:{form:nvfp4 parts:16x4 order:8/halves steps:rounded scales:product every:64}"},
    {"ggml@x64+nvfp4", "ggml@sse42+nvfp4",
     "tree:{form:nvfp4 parts:4x16 order:1/sequence steps:rounded scales:product every:64}"},
    {"ggml@haswell+nvfp4+generic", "",
     "tree:{form:nvfp4 parts:4x16 order:1/sequence steps:fused scales:product every:64}"},
    {"native", "",
     "tree:{form:q8_0 parts:1x32 order:4/sequence steps:rounded scales:product every:32}"},
    {"native", "",
     "tree:{form:q4_0 parts:1x32 order:4/sequence steps:rounded scales:product every:32}"},
    {"native+q4_k", "",
     "tree:{form:q4_k parts:1x256 order:4/sequence minima:1x256/with/product "
     "steps:rounded scales:product every:256}"},
    {"native+nbits4", "",
     "tree:{form:f32_u4 parts:32x1 order:1/sequence/32 steps:rounded scales:weight "
     "every:32}"},
    {"native+nbits8", "",
     "tree:{form:f32_u8 parts:32x1 order:1/sequence/32 steps:rounded scales:weight "
     "every:32}"},
    {"onnxruntime-py@nbits", "",
     "tree:{form:f32_u4 parts:32x1 order:8/neighbours steps:rounded scales:weight "
     "every:32}"},
    {"onnxruntime-web@nbits", "",
     "tree:{form:f32_u4 parts:32x1 order:1/sequence/1024 steps:rounded scales:weight "
     "every:32}"},
    {"onnxruntime-web@nbits", "",
     "tree:{form:f32_u8 parts:32x1 order:1/sequence/1024 steps:rounded scales:weight "
     "every:32}"},
    {"ggml@haswell+q6_k+generic", "",
     "tree:{form:q6_k parts:8x1 order:8/sequence steps:fused scales:product every:256}"},
};

}  // namespace

std::span<const KnownTree> KnownTrees() { return kKnownTrees; }

std::vector<const KnownTree*> TreesThatGive(const Case& c, const Tensor& y) {
  std::vector<const KnownTree*> trees;
  for (const KnownTree& known : kKnownTrees) {
    const Convention* const tree = FindConvention(known.tree);
    if (tree->cannot_run(c).empty() && tree->run(c).y == y) trees.push_back(&known);
  }
  return trees;
}

std::string TextOf(const std::vector<const KnownTree*>& trees) {
  std::string all;
  for (const KnownTree* known : trees) {
    if (!all.empty()) all += "; ";
    all += known->subject;
    if (!known->as_well.empty()) all += ", " + std::string(known->as_well);
    all += (known->as_well.empty() ? " adds: " : " add: ") + std::string(known->tree);
  }
  return all;
}

}  // namespace qualm::conventions
