// SPDX-License-Identifier: Apache-2.0
// gemmlowp: u8 weights with a zero point, one scale for all channels, headers only, built for
// SSE4.1.
#include <gemmlowp/public/gemmlowp.h>

#include <tuple>

#include "bench/bench.h"

namespace qualm::bench {
namespace {

using gemmlowp::MapOrder;
using Column = gemmlowp::VectorMap<const int32_t, gemmlowp::VectorShape::Col>;

Run PrepareLinear(const Linear& shape) {
  const auto m = static_cast<int>(shape.m), n = static_cast<int>(shape.n);
  const auto k = static_cast<int>(shape.k);
  const auto context = std::make_shared<gemmlowp::GemmContext>();
  context->set_max_num_threads(1);
  return [=, w = Codes(shape.n * shape.k, 2), x = Codes(shape.m * shape.k, 1),
          bias = Sums(shape.n, 1000, 3), y = Zeros<uint8_t>(shape.m * shape.n)] {
    const gemmlowp::MatrixMap<const uint8_t, MapOrder::RowMajor> lhs(w->data(), n, k, k);
    const gemmlowp::MatrixMap<const uint8_t, MapOrder::ColMajor> rhs(x->data(), k, m, k);
    gemmlowp::MatrixMap<uint8_t, MapOrder::ColMajor> result(y->data(), n, m, n);
    gemmlowp::OutputStageBiasAddition<Column> add;
    add.bias_vector = Column(bias->data(), n);
    gemmlowp::OutputStageScaleInt32ByFixedPointAndExponent scale;
    scale.result_fixedpoint_multiplier = 1717986918;  // 0.8 * 2^31
    scale.result_exponent = -12;
    scale.result_offset_after_shift = kYZero;
    const gemmlowp::OutputStageClamp clamp(0, 255);
    gemmlowp::GemmWithOutputPipeline<uint8_t, uint8_t, gemmlowp::DefaultL8R8BitDepthParams>(
        context.get(), lhs, rhs, &result, -128, -kXZero,
        std::make_tuple(add, scale, clamp, gemmlowp::OutputStageSaturatingCastToUint8()));
  };
}

}  // namespace

void JoinGemmlowp() {
  for (const Linear& shape : kLinear) {
    // It packs on every call.
    for (const char* work : {"linear/", "linear-with-packing/"}) {
      Join(work + shape.Name(), "gemmlowp(sse4,per-tensor)", shape.Items(),
           [=] { return PrepareLinear(shape); });
    }
  }
}

}  // namespace qualm::bench
