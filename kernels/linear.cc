// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "hwy/targets.h"
#include "kernels/accumulate.h"
#include "kernels/epilogue.h"
#include "kernels/fp_environment.h"
#include "kernels/linear_validate.h"
#include "kernels/pack.h"
#include "kernels/parallel.h"
#include "kernels/row_block.h"

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
  try {
    auto impl = std::make_unique<Impl>();
    impl->weights = PackWeights(params);
    impl->epilogue = Epilogue::Make({.channels = params.weights.rows,
                                     .x_scale = params.x_scale,
                                     .w_scale = params.w_scale,
                                     .y_scale = params.y_scale,
                                     .y_zero_point = params.y_zero_point,
                                     .bias = params.bias,
                                     .output_type = params.output_type,
                                     .range = params.range,
                                     .requantization = params.requantization});
    impl->input_type = params.input_type;
    impl->output_type = params.output_type;
    packed->impl_ = std::move(impl);
  } catch (const std::bad_alloc&) {
    return {"weights do not fit in memory when packed"};
  } catch (const std::length_error&) {
    return {"weights do not fit in memory when packed"};
  }
  return {};
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
  // Panels are as wide as the vectors of the target they were packed for.
  const int64_t target = CurrentAccumulateTraits().target;
  if (target != weights.traits.target) {
    return {std::string("the weights are packed for ") + hwy::TargetName(weights.traits.target) +
            ", expected the target that runs, " + hwy::TargetName(target)};
  }
  if (x.rows == 0 || weights.channels == 0) return {};

  const Plan plan(weights, x.rows, pool);
  std::unique_ptr<uint8_t[]> own_scratch;
  uint8_t* base = scratch.data();
  if (scratch.size() < plan.bytes()) {
    own_scratch.reset(new (std::nothrow) uint8_t[plan.bytes()]);
    if (own_scratch == nullptr) return {"no memory for scratch, expected to allocate it"};
    base = own_scratch.get();
  }

  const auto run = [&](int64_t task, int64_t block) {
    const int64_t row = block * kRowBlock;
    const int64_t y_size = y.type == ElementType::kU8 || y.type == ElementType::kS8 ? 1 : 4;
    RunRowBlock(weights, impl_->epilogue,
                {.x = static_cast<const uint8_t*>(x.data) + row * x.row_stride,
                 .x_stride = x.row_stride,
                 .x_is_signed = x.type == ElementType::kS8,
                 .rows = std::min(kRowBlock, x.rows - row),
                 .y = static_cast<uint8_t*>(y.data) + row * y.row_stride * y_size,
                 .y_stride = y.row_stride,
                 .y_type = y.type},
                plan.layout,
                ScratchLayout::Align(base + static_cast<size_t>(task) * plan.scratch.bytes()));
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
