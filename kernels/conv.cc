// SPDX-License-Identifier: Apache-2.0
// A convolution takes one of two forms. One with as many groups as input channels, and more than
// one, is depthwise and has an inner loop of its own (sums/depthwise_lines.h or sums/depthwise.h).
// In all others each group is a linear layer (sums/row_block.h). Its rows are the activations under
// the windows. Those under one line of the window follow each other in the image, or in a padded
// copy of some of its lines (sums/bands.h), and are read there; else they are gathered first
// (sums/patches.h). Both forms are exact for the same reason as linear: exact integer sums, each
// rounded once. Padding adds 0 to a sum: its byte is real 0, or sums/padding.h corrects the sum, or
// the tap is left out (sums/depthwise.cc).
#include "kernels/conv.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/common/fp_environment.h"
#include "kernels/common/parallel.h"
#include "kernels/sums/accumulate.h"
#include "kernels/sums/bands.h"
#include "kernels/sums/depthwise.h"
#include "kernels/sums/depthwise_lines.h"
#include "kernels/sums/epilogue.h"
#include "kernels/sums/layer_validate.h"
#include "kernels/sums/pack.h"
#include "kernels/sums/padding.h"
#include "kernels/sums/patches.h"
#include "kernels/sums/row_block.h"

namespace qualm::kernels {
namespace {

// Gathered patches of one block should stay in the L2 cache.
constexpr int64_t kPatchBytes = 128 * 1024;
constexpr int64_t kRowsInPlace = 240;

// The number of activations under a window that follow each other: a line, or one pixel.
int64_t PieceOf(const ConvParams& params, int64_t groups) {
  const int64_t in_group = params.in_channels / groups;
  const bool of_line = groups == 1 && params.window.dilation_w == 1;
  return of_line ? params.window.kernel_w * in_group : in_group;
}

// One group as a linear layer.
LinearParams GroupOf(const ConvParams& params, int64_t groups, int64_t group) {
  LinearParams layer = params.layer;
  const int64_t channels = layer.weights.rows / groups;
  const size_t first = static_cast<size_t>(group * channels);
  const size_t count = static_cast<size_t>(channels);
  layer.weights.rows = channels;
  if (layer.weights.columns > 0) {
    layer.weights.data = static_cast<const uint8_t*>(layer.weights.data) +
                         group * channels * layer.weights.row_stride;
  }
  if (layer.w_zero_point.size() > 1) layer.w_zero_point = layer.w_zero_point.subspan(first, count);
  if (!layer.bias_i32.empty()) layer.bias_i32 = layer.bias_i32.subspan(first, count);
  return layer;
}

}  // namespace

struct PackedConv::Impl {
  // How output pixels are cut into blocks, and the scratch of one task.
  struct Plan {
    // For images of the sizes of `window`.
    Plan(const Impl& layer, const WindowGeometry& window, int64_t batch, const ThreadPool* pool);

    size_t bytes() const { return scratch.bytes() * static_cast<size_t>(tasks); }

    ScratchLayout scratch;
    int64_t rows = 0;   // output pixels of a block, at most
    int64_t tasks = 0;  // 0: there are no outputs
    size_t patches = 0;
    std::optional<RowBlockLayout> row_block;
    std::optional<DepthwiseLayout> depthwise_block;
    std::optional<Bands> bands;  // instead of all these
    size_t copy = 0;             // of a band, or quads of depthwise_lines
  };

  explicit Impl(const ConvParams& params);

  int64_t depth() const { return shape.channels == 0 ? 0 : group_weights[0].depth; }
  // Every output pixel is one input pixel: nothing to gather.
  bool IsPointwise() const {
    const WindowGeometry& w = shape.window;
    return w.kernel_h == 1 && w.kernel_w == 1 && !IsPadded(w);
  }

  void RunBand(const Band& band, const MutableMatrix& y) const;

  // If padding corrects the sums, they become codes later, so the inner loop gets no plan.
  const CodePlan* plan() const { return padding_tables.empty() ? epilogue.code_plan() : nullptr; }

  // Pieces are lines of the window, not pixels.
  bool HasLongPieces() const { return !depthwise_lines && group_weights[0].piece > in_group(); }
  int64_t in_group() const {
    return shape.in_channels / static_cast<int64_t>(group_weights.size());
  }

  // Output pixels [first, first + rows). `x_stride` is that of pixels where IsPointwise().
  void RunBlock(const Placer& placer, int64_t first, int64_t rows, int64_t x_stride,
                const MutableMatrix& y, const Plan& plan, uint8_t* scratch) const;

  ConvShape shape;
  int64_t target = 0;
  Epilogue epilogue;
  std::optional<PackedDepthwiseLines> depthwise_lines;
  std::optional<PackedDepthwise> depthwise;  // without them
  std::vector<PackedWeights> group_weights;  // without depthwise
  // Per group; empty unless there is padding and real 0 is not a code.
  std::vector<PaddingTable> padding_tables;
  uint8_t padding = 0;  // the byte in the padding of gathered patches and copied bands
  bool uses_bands = false;
};

PackedConv::Impl::Impl(const ConvParams& params)
    : shape{.channels = params.layer.weights.rows,
            .in_channels = params.in_channels,
            .window = params.window,
            .input_type = params.layer.input_type,
            .output_type = params.layer.output_type},
      target(CurrentAccumulateTraits().target),
      epilogue(PackEpilogue(params.layer)) {
  if (shape.channels == 0) return;
  // Without input channels all groups are alike, and there may be any number of them.
  const int64_t groups = params.in_channels == 0 ? 1 : params.groups;
  const bool padded = IsPadded(params.window);
  const int64_t za = ZeroPointOfA(params.layer);
  const bool zero_is_code = za >= 0 && za <= 255;
  const int64_t a = zero_is_code ? za : 0;
  padding = static_cast<uint8_t>(shape.input_type == ElementType::kS8 ? a - 128 : a);
  // With a single input channel per group, vectors of depth could not be filled.
  if (params.groups == params.in_channels && params.groups > 1) {
    depthwise_lines = PackDepthwiseLines(params, epilogue.code_plan(), padding);
    if (!depthwise_lines) depthwise = PackDepthwise(params);
    uses_bands = depthwise_lines.has_value();
    return;
  }
  const auto pack = [&](const auto& pack_group) {
    group_weights.clear();
    for (int64_t g = 0; g < groups; ++g) {
      const LinearParams group = GroupOf(params, groups, g);
      group_weights.push_back(pack_group(group, padded ? PaddedTermsOf(group) : TermsOf(group)));
    }
  };
  const int64_t piece = PieceOf(params, groups);
  uses_bands = (padded ? zero_is_code : !IsPointwise()) && piece >= 4 &&
               epilogue.code_plan() != nullptr && Bands::Fit(params.window, params.in_channels);
  if (uses_bands) {
    pack([&](const LinearParams& group, TermRange terms) {
      return PackPieces(group, terms, piece);
    });
    for (const PackedWeights& packed : group_weights) {
      uses_bands = uses_bands && !packed.UsesRowSums();
    }
  }
  if (!uses_bands) pack(PackWeights);
  for (int64_t g = 0; padded && !zero_is_code && params.in_channels > 0 && g < groups; ++g) {
    const LinearParams group = GroupOf(params, groups, g);
    padding_tables.emplace_back(group, params.window, group_weights[static_cast<size_t>(g)]);
  }
}

PackedConv::Impl::Plan::Plan(const Impl& layer, const WindowGeometry& window, int64_t batch,
                             const ThreadPool* pool) {
  const int64_t pixels = static_cast<int64_t>(std::min<__int128>(
      static_cast<__int128>(ConvOutputHeight(window)) * ConvOutputWidth(window) * batch,
      INT64_MAX));
  if (pixels <= 0 || layer.shape.channels == 0) return;
  if (layer.uses_bands) {
    const int64_t threads = internal::TaskCount(pool, INT64_MAX);
    bands.emplace(window, batch, layer.shape.in_channels, threads);
    copy = scratch.Add(layer.depthwise_lines ? DepthwiseLinesBytes(*layer.depthwise_lines)
                                             : bands->bytes());
    tasks = internal::TaskCount(pool, bands->count());
    return;
  }
  rows = std::min(kRowBlock, pixels);
  if (layer.depthwise) {
    depthwise_block.emplace(*layer.depthwise, &scratch);
  } else {
    const int64_t depth = layer.depth();
    const bool gathers = depth > 0 && !layer.IsPointwise();
    if (gathers && rows > kPatchBytes / depth) {
      rows = std::max<int64_t>(kPatchBytes / depth, 1);
      if (rows >= 4) rows -= rows % 4;  // they are computed in fours
    }
    // Rows that are read in place need no memory, so their blocks may be larger.
    const bool in_place =
        !gathers && std::ranges::none_of(layer.group_weights, &PackedWeights::ArrangesRows);
    if (in_place && layer.plan() != nullptr && pool == nullptr)
      rows = std::min(kRowsInPlace, pixels);
    row_block.emplace(layer.group_weights, layer.plan(), rows, &scratch);
    patches = scratch.Add(gathers ? rows * depth : 0);
  }
  tasks = internal::TaskCount(pool, (pixels - 1) / rows + 1);
}

void PackedConv::Impl::RunBand(const Band& band, const MutableMatrix& y) const {
  const WindowGeometry& window = shape.window;
  const int64_t groups = static_cast<int64_t>(group_weights.size());
  const Pieces pieces = {.rows = window.kernel_h,
                         .row_step = window.dilation_h * band.x_line,
                         .columns = HasLongPieces() ? 1 : window.kernel_w,
                         .column_step = window.dilation_w * band.x_pixel,
                         .bytes = group_weights[0].piece};
  for (int64_t g = 0; g < groups; ++g) {
    const PackedWeights& weights = group_weights[static_cast<size_t>(g)];
    // A panel of weights stays in the cache for all lines.
    for (size_t panel = 0; panel < weights.panels.size(); ++panel) {
      for (int64_t line = 0; line < band.lines; ++line) {
        RunRowBlock(
            weights,
            {.x = band.x + line * window.stride_h * band.x_line + g * in_group(),
             .x_stride = window.stride_w * band.x_pixel,
             .pieces = pieces,
             .x_is_signed = shape.input_type == ElementType::kS8,
             .rows = band.columns,
             .y = static_cast<uint8_t*>(y.data) + (band.pixel + line * band.out_w) * y.row_stride,
             .y_stride = y.row_stride,
             .y_type = y.type,
             .first_channel = g * (shape.channels / groups),
             .first_panel = panel,
             .end_panel = panel + 1,
             .plan = plan()},
            RowBlockLayout(), nullptr, [](const RowSums&) {});
      }
    }
  }
}

void PackedConv::Impl::RunBlock(const Placer& placer, int64_t first, int64_t rows, int64_t x_stride,
                                const MutableMatrix& y, const Plan& plan, uint8_t* scratch) const {
  const bool is_signed = shape.input_type == ElementType::kS8;
  const int64_t y_size = y.type == ElementType::kU8 || y.type == ElementType::kS8 ? 1 : 4;
  auto* const outputs = static_cast<uint8_t*>(y.data);
  if (depthwise) {
    RunDepthwise(*depthwise, epilogue, placer, is_signed, first, rows,
                 {.y = outputs, .y_stride = y.row_stride * y_size, .y_size = y_size},
                 *plan.depthwise_block, scratch);
    return;
  }
  const bool gathers = depth() > 0 && !IsPointwise();
  Placement places[kRowBlock];
  for (int64_t r = 0; r < (gathers ? rows : 1); ++r) places[r] = placer.At(first + r);

  const int64_t groups = static_cast<int64_t>(group_weights.size());
  const int64_t group_inputs = shape.in_channels / groups;
  const int64_t group_outputs = shape.channels / groups;
  RowBlock block = {.x = places[0].x,
                    .x_stride = x_stride,
                    .x_is_signed = is_signed,
                    .rows = rows,
                    .y = outputs + first * y.row_stride * y_size,
                    .y_stride = y.row_stride,
                    .y_type = y.type,
                    .plan = this->plan()};
  for (int64_t g = 0; g < groups; ++g) {
    if (gathers) {
      uint8_t* const patches = scratch + plan.patches;
      for (int64_t r = 0; r < rows; ++r) {
        placer.Gather(places[r], g * group_inputs, group_inputs, padding, patches + r * depth());
      }
      block.x = patches;
      block.x_stride = depth();
    } else if (depth() > 0) {
      block.x = places[0].x + g * group_inputs;
    }
    block.first_channel = g * group_outputs;
    const size_t group = static_cast<size_t>(g);
    RunRowBlock(group_weights[group], block, *plan.row_block, scratch, [&](const RowSums& sums) {
      if (!padding_tables.empty()) {
        const Placement& place = places[sums.row];
        sums.Add([&](int64_t i) {
          return padding_tables[group].Correction(sums.first + i, place.rows, place.columns);
        });
      }
      sums.Finish(epilogue);
    });
  }
}

PackedConv::PackedConv() = default;
PackedConv::~PackedConv() = default;
PackedConv::PackedConv(PackedConv&&) noexcept = default;
PackedConv& PackedConv::operator=(PackedConv&&) noexcept = default;

Status PackedConv::Pack(const ConvParams& params, PackedConv* packed) {
  if (packed == nullptr) return {"packed is null, expected where to put the weights"};
  const ScopedFpEnvironment fp_environment;
  if (Status status = ValidateConvParams(params); !status.ok()) return status;
  return PackInMemory([&] { packed->impl_ = std::make_unique<Impl>(params); });
}

Status PackedConv::Run(const ConstImages& x, const MutableMatrix& y, std::span<uint8_t> scratch,
                       ThreadPool* pool) const {
  if (impl_ == nullptr) return {"the layer has no weights, expected Pack to be called first"};
  const ScopedFpEnvironment fp_environment;
  if (Status status = ValidateConvRun(impl_->shape, x, y, scratch); !status.ok()) return status;
  if (Status status = CheckPackedFor(impl_->target); !status.ok()) return status;
  WindowGeometry window = impl_->shape.window;
  window.in_h = x.height;
  window.in_w = x.width;
  const Impl::Plan plan(*impl_, window, x.batch, pool);
  if (plan.tasks == 0) return {};

  const TaskScratch pieces(plan.scratch, plan.bytes(), scratch);
  if (!pieces.status().ok()) return pieces.status();

  if (plan.bands) {
    // Lines of the window with gaps between their pixels are copied too.
    const bool in_place =
        !IsPadded(window) && (x.pixel_stride == x.channels || !impl_->HasLongPieces());
    internal::ForEachBlock(pool, plan.tasks, plan.bands->count(), [&](int64_t task, int64_t band) {
      Band at = plan.bands->At(band);
      uint8_t* const copy = pieces.Of(task) + plan.copy;
      if (impl_->depthwise_lines) {
        RunDepthwiseLines(*impl_->depthwise_lines, x, at, static_cast<uint8_t*>(y.data),
                          y.row_stride, copy);
      } else {
        plan.bands->Place(x, impl_->padding, in_place ? nullptr : copy, &at);
        impl_->RunBand(at, y);
      }
    });
    return {};
  }
  const Placer placer(impl_->shape.window, x);
  // A block that is read in place ends where its pixels stop being equally far apart.
  const Placer::Run run = impl_->IsPointwise() ? placer.LongestRun() : Placer::Run{y.rows, 0};
  const int64_t blocks_per_run = (run.pixels - 1) / plan.rows + 1;
  const auto run_block = [&](int64_t task, int64_t block) {
    const int64_t offset = block % blocks_per_run * plan.rows;
    impl_->RunBlock(placer, block / blocks_per_run * run.pixels + offset,
                    std::min(plan.rows, run.pixels - offset), run.stride, y, plan, pieces.Of(task));
  };
  internal::ForEachBlock(pool, plan.tasks, y.rows / run.pixels * blocks_per_run, run_block);
  return {};
}

size_t PackedConv::ScratchBytes(int64_t batch, int64_t height, int64_t width,
                                const ThreadPool* pool) const {
  if (impl_ == nullptr || batch <= 0) return 0;
  WindowGeometry window = impl_->shape.window;
  window.in_h = height;
  window.in_w = width;
  if (!internal::CheckWindow(window).ok()) return 0;  // Run refuses such images
  return Impl::Plan(*impl_, window, batch, pool).bytes();
}

}  // namespace qualm::kernels
