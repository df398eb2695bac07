// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/common/fp_environment.h"
#include "kernels/common/parallel.h"
#include "kernels/sums/accumulate.h"
#include "kernels/sums/epilogue.h"
#include "kernels/sums/layer_validate.h"
#include "kernels/sums/pack.h"
#include "kernels/sums/row_block.h"

namespace qualm::kernels {

namespace {

// The scratch of one task, and how the rows are cut.
struct Plan {
  Plan(const PackedWeights& weights, int64_t rows, const ThreadPool* pool)
      : layout({&weights, 1}, std::clamp<int64_t>(rows, 0, kRowBlock), &scratch),
        blocks(rows <= 0 || weights.channels == 0 ? 0 : (rows - 1) / kRowBlock + 1),
        tasks(internal::TaskCount(pool, blocks)) {}

  size_t bytes() const { return scratch.bytes() * static_cast<size_t>(tasks); }

  ScratchLayout scratch;
  RowBlockLayout layout;
  int64_t blocks;
  int64_t tasks;
};

}  // namespace

struct PackedLinear::Impl {
  PackedWeights weights;
  Epilogue epilogue;
  ElementType input_type = ElementType::kU8;
  ElementType output_type = ElementType::kU8;
};

PackedLinear::PackedLinear() = default;
PackedLinear::~PackedLinear() = default;
PackedLinear::PackedLinear(PackedLinear&&) noexcept = default;
PackedLinear& PackedLinear::operator=(PackedLinear&&) noexcept = default;

Status PackedLinear::Pack(const LinearParams& params, PackedLinear* packed) {
  if (packed == nullptr) return {"packed is null, expected where to put the weights"};
  const ScopedFpEnvironment fp_environment;
  if (Status status = ValidateLinearParams(params); !status.ok()) return status;
  return PackInMemory([&] {
    packed->impl_ = std::make_unique<Impl>(Impl{.weights = PackWeights(params, TermsOf(params)),
                                                .epilogue = PackEpilogue(params),
                                                .input_type = params.input_type,
                                                .output_type = params.output_type});
  });
}

Status PackedLinear::Run(const ConstMatrix& x, const MutableMatrix& y, std::span<uint8_t> scratch,
                         ThreadPool* pool) const {
  if (impl_ == nullptr) return {"the layer has no weights, expected Pack to be called first"};
  const PackedWeights& weights = impl_->weights;
  const LinearShape shape = {.channels = weights.channels,
                             .depth = weights.depth,
                             .input_type = impl_->input_type,
                             .output_type = impl_->output_type};
  if (Status status = ValidateLinearRun(shape, x, y, scratch); !status.ok()) return status;
  if (Status status = CheckPackedFor(weights.traits.target); !status.ok()) return status;
  if (x.rows == 0 || weights.channels == 0) return {};

  const Plan plan(weights, x.rows, pool);
  const TaskScratch pieces(plan.scratch, plan.bytes(), scratch);
  if (!pieces.status().ok()) return pieces.status();

  const auto run = [&](int64_t task, int64_t block) {
    const int64_t row = block * kRowBlock;
    const int64_t y_size = y.type == ElementType::kU8 || y.type == ElementType::kS8 ? 1 : 4;
    RunRowBlock(weights,
                {.x = static_cast<const uint8_t*>(x.data) + row * x.row_stride,
                 .x_stride = x.row_stride,
                 .x_is_signed = x.type == ElementType::kS8,
                 .rows = std::min(kRowBlock, x.rows - row),
                 .y = static_cast<uint8_t*>(y.data) + row * y.row_stride * y_size,
                 .y_stride = y.row_stride,
                 .y_type = y.type},
                plan.layout, pieces.Of(task),
                [&](const RowSums& sums) { sums.Finish(impl_->epilogue); });
  };
  internal::ForEachBlock(pool, plan.tasks, plan.blocks, run);
  return {};
}

size_t PackedLinear::ScratchBytes(int64_t rows, const ThreadPool* pool) const {
  return impl_ == nullptr ? 0 : Plan(impl_->weights, rows, pool).bytes();
}

PackedLinear::PackingStats PackedLinear::stats() const {
  PackingStats stats;
  if (impl_ == nullptr) return stats;
  for (const PackedPanel& panel : impl_->weights.panels) {
    ++stats.panels;
    stats.panels_certified += panel.certified;
  }
  return stats;
}

}  // namespace qualm::kernels
