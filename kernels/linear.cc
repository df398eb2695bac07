// SPDX-License-Identifier: Apache-2.0
// linear (formula: linear.h). The outputs are cut into blocks of rows and panels of channels, which
// threads share; a small call runs each panel over all rows. The inner loop is sums/accumulate.cc.
// Exact because the sums are (sums/accumulate.cc, sums/row_block.cc), and sums/codes-inl.h or
// sums/epilogue.cc finishes each sum once.
#include "kernels/linear.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/common/fp_environment.h"
#include "kernels/common/parallel.h"
#include "kernels/sums/accumulate.h"
#include "kernels/sums/epilogue.h"
#include "kernels/sums/layer_validate.h"
#include "kernels/sums/pack.h"
#include "kernels/sums/row_block.h"

namespace qualm::kernels {

namespace {

// Activations of one block should stay in the L2 cache, together with a panel.
constexpr int64_t kBlockBytes = 512 * 1024;
constexpr int64_t kFewestRows = 48;
constexpr int64_t kMostRows = 96;
// Rows of a block with several threads are a multiple of this: whole tiles (accumulate.cc).
constexpr int64_t kTileRows = 12;
// The number of blocks per thread: with several, no thread waits long for the last block.
constexpr int64_t kBlocksPerThread = 4;

int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// How the outputs are cut into blocks of some rows and some panels, and the scratch of one task.
struct Plan {
  Plan(const PackedWeights& weights, const CodePlan* codes, int64_t all_rows,
       const ThreadPool* pool) {
    if (all_rows <= 0 || weights.channels == 0) return;
    const int64_t panels = static_cast<int64_t>(weights.panels.size());
    const int64_t most =
        std::clamp(kBlockBytes / std::max<int64_t>(weights.depth, 1), kFewestRows, kMostRows);
    row_block.emplace(std::span(&weights, 1), codes, std::min(all_rows, most), &scratch);
    rows = CeilDiv(all_rows, CeilDiv(all_rows, most));
    const int64_t threads = internal::TaskCount(pool, INT64_MAX);
    if (threads > 1) {
      const int64_t tiles = CeilDiv(all_rows, kTileRows * kBlocksPerThread * threads);
      rows = std::min(rows, kTileRows * tiles);
      const int64_t wanted = CeilDiv(kBlocksPerThread * threads, CeilDiv(all_rows, rows));
      panels_of_block = CeilDiv(panels, wanted);
    } else {
      panels_of_block = panels;
    }
    groups = CeilDiv(panels, panels_of_block);
    blocks = CeilDiv(all_rows, rows) * groups;
    tasks = internal::TaskCount(pool, blocks);
  }

  size_t bytes() const { return scratch.bytes() * static_cast<size_t>(tasks); }

  ScratchLayout scratch;
  std::optional<RowBlockLayout> row_block;
  int64_t rows = 0;             // of a block, at most
  int64_t panels_of_block = 0;  // at most
  int64_t groups = 0;           // of panels
  int64_t blocks = 0;
  int64_t tasks = 0;  // 0: there are no outputs
};

}  // namespace

struct PackedLinear::Impl {
  PackedWeights weights;
  Epilogue epilogue;
  ElementType input_type = ElementType::kU8;
  ElementType output_type = ElementType::kU8;
  // Of each panel, if no call needs scratch; for small calls.
  std::vector<AccumulateArgs> ready = {};
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
    const CodePlan* const codes = packed->impl_->epilogue.code_plan();
    const PackedWeights& weights = packed->impl_->weights;
    if (codes == nullptr || Plan(weights, codes, 1, nullptr).bytes() != 0) return;
    for (size_t panel = 0; panel < weights.panels.size(); ++panel) {
      packed->impl_->ready.push_back(
          ArgsOfPanel(weights, *codes, params.input_type == ElementType::kS8, panel));
    }
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

  // A small problem shall not cost more than its sums.
  if (pool == nullptr && !impl_->ready.empty() && x.rows > 0 && x.rows <= kFewestRows) {
    std::optional<ScopedFpEnvironment> fp_environment;
    if (weights.traits.needs_environment) fp_environment.emplace();
    for (AccumulateArgs args : impl_->ready) {
      if (weights.depth > 0) {  // x may be null where it is 0
        args.x = static_cast<const uint8_t*>(x.data);
        args.x_stride = x.row_stride;
      }
      args.rows = x.rows;
      args.codes.y = static_cast<uint8_t*>(y.data) + args.codes.channel;
      args.codes.y_stride = y.row_stride;
      weights.traits.run(args);
    }
    return {};
  }

  const CodePlan* const codes = impl_->epilogue.code_plan();
  const int64_t y_size = y.type == ElementType::kU8 || y.type == ElementType::kS8 ? 1 : 4;
  const auto run_block = [&](int64_t row, int64_t rows, int64_t panel, int64_t panels,
                             const RowBlockLayout& layout, uint8_t* piece) {
    RunRowBlock(weights,
                {.x = static_cast<const uint8_t*>(x.data) + row * x.row_stride,
                 .x_stride = x.row_stride,
                 .x_is_signed = x.type == ElementType::kS8,
                 .rows = rows,
                 .y = static_cast<uint8_t*>(y.data) + row * y.row_stride * y_size,
                 .y_stride = y.row_stride,
                 .y_type = y.type,
                 .first_panel = static_cast<size_t>(panel),
                 .end_panel = static_cast<size_t>(panel + panels),
                 .plan = codes},
                layout, piece, [&](const RowSums& sums) { sums.Finish(impl_->epilogue); });
  };
  const Plan plan(weights, codes, x.rows, pool);
  if (plan.tasks == 0) return {};
  const TaskScratch pieces(plan.scratch, plan.bytes(), scratch);
  if (!pieces.status().ok()) return pieces.status();
  internal::ForEachBlock(pool, plan.tasks, plan.blocks, [&](int64_t task, int64_t block) {
    const int64_t row = block / plan.groups * plan.rows;
    const int64_t panel = block % plan.groups * plan.panels_of_block;
    run_block(row, std::min(plan.rows, x.rows - row), panel, plan.panels_of_block, *plan.row_block,
              pieces.Of(task));
  });
  return {};
}

size_t PackedLinear::ScratchBytes(int64_t rows, const ThreadPool* pool) const {
  if (impl_ == nullptr) return 0;
  return Plan(impl_->weights, impl_->epilogue.code_plan(), rows, pool).bytes();
}

PackedLinear::PackingStats PackedLinear::stats() const {
  PackingStats stats;
  if (impl_ == nullptr) return stats;
  for (const PackedPanel& panel : impl_->weights.panels) {
    ++stats.panels;
    stats.panels_certified += panel.adds_pairs && panel.extra.places.empty();
  }
  return stats;
}

}  // namespace qualm::kernels
