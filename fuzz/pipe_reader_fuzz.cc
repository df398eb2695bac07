// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a line of a pipe's child: an InputError on one line, or a hello whose limits
// are limits, or an answer of the type and shape that was asked for. Traps at anything else.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/io/pipe_json.h"
#include "core/status.h"
#include "fuzz/reads_or_refuses.h"

using namespace qualm;
using fuzz::ReadsOrRefuses;

namespace {

void ReadHello(std::string_view line) {
  const PipeHello hello = ParsePipeHello(line);
  QUALM_CHECK(!hello.name.empty());
  bool offers = false;
  for (const std::optional<PipeOp>& op : hello.ops) {
    if (!op) continue;
    offers = true;
    QUALM_CHECK(op->x.any() && op->w.any() && op->out.any());
    for (const int64_t size : {op->m_max, op->n_max, op->k_max, op->n_multiple, op->k_multiple}) {
      QUALM_CHECK_LE(0, size);
    }
    for (const std::optional<CodeRange>& range : {op->x_zp, op->w_zp, op->out_zp}) {
      if (range) QUALM_CHECK_LE(range->min, range->max);
    }
  }
  QUALM_CHECK(offers);
}

// linear [1,1] x [2,1] -> [1,2].
Case LinearCase(DType out) {
  Case c;
  c.op = Op::kLinear;
  c.M = 1;
  c.N = 2;
  c.K = 1;
  c.x = Tensor(DType::kU8, {1, 1});
  c.w = Tensor(DType::kS8, {2, 1});
  c.out_dtype = out;
  OpenClamp(&c);
  return c;
}

void ReadAnswer(std::string_view line, const Case& c, bool want_acc) {
  const Outcome outcome = ParsePipeAnswer(line, 7, c, want_acc);
  if (outcome.status == RunStatus::kSkipped || outcome.status == RunStatus::kRefused) return;
  QUALM_CHECK(outcome.ok());
  QUALM_CHECK(outcome.y.dtype() == c.out_dtype && outcome.y.shape() == c.output_shape());
  if (!outcome.acc) return;
  QUALM_CHECK(want_acc);
  QUALM_CHECK(outcome.acc->dtype() == DType::kS32 && outcome.acc->shape() == c.output_shape());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::array<Case, 4> cases{LinearCase(DType::kU8), LinearCase(DType::kS8),
                                         LinearCase(DType::kS32), LinearCase(DType::kF32)};
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  ReadsOrRefuses([&] { ReadHello(line); });
  for (const Case& c : cases) {
    ReadsOrRefuses([&] { ReadAnswer(line, c, false); });
    ReadsOrRefuses([&] { ReadAnswer(line, c, true); });
  }
  return 0;
}
