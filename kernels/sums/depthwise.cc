// SPDX-License-Identifier: Apache-2.0
// Depthwise convolutions that depthwise_lines.cc does not take. The inner loop is
// depthwise_sums.cc. Exact because a block of channels adds modulo 2^32 only if IsWide has shown
// that no sum leaves int32, and else in 128 bits (WideSum). The epilogue rounds each sum once.
#include "kernels/sums/depthwise.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <span>

#include "kernels/sums/depthwise_sums.h"
#include "kernels/sums/pack.h"

namespace qualm::kernels {
namespace {

// Output channels of a block, where the vector and the multiplier allow: with a window of 3 x 3
// their weights take 9 KiB.
constexpr int64_t kBlockOutputs = 256;

int32_t CodeAt(const ConstMatrix& weights, int64_t n, int64_t k) {
  const uint8_t byte = static_cast<const uint8_t*>(weights.data)[n * weights.row_stride + k];
  return weights.type == ElementType::kU8 ? byte : static_cast<int8_t>(byte);
}

// Whether the sum of output channel `n` may leave int32, for some activations and some part of the
// window in the padding. `row` is memory for one number per tap.
bool IsWide(const LinearParams& layer, int64_t n, std::span<int8_t> row) {
  const int shift = layer.weights.type == ElementType::kU8 ? 128 : 0;
  for (size_t k = 0; k < row.size(); ++k) {
    row[k] = static_cast<int8_t>(CodeAt(layer.weights, n, static_cast<int64_t>(k)) - shift);
  }
  const int64_t bias = layer.bias_i32.empty() ? 0 : layer.bias_i32[static_cast<size_t>(n)];
  return SumWidthOf(row, PaddedTermsOf(layer), ZeroPointOfB(layer, n), bias) != SumWidth::k32;
}

// One sum in full. Each product is below 2^63: both factors are below 2^31 + 2^8.
__int128 WideSum(const PackedDepthwise& packed, const DepthwiseBlock& block, const Placement& place,
                 bool x_is_signed, int64_t c, int64_t j, int64_t bias) {
  const int64_t tap_size = packed.multiplier * packed.block_channels;
  __int128 sum = bias;
  for (int64_t r = 0; r < place.rows.size(); ++r) {
    for (int64_t s = 0; s < place.columns.size(); ++s) {
      const uint8_t byte = place.x[r * place.row_step + s * place.column_step + block.first + c];
      const int64_t code = x_is_signed ? static_cast<int8_t>(byte) : byte;
      const int64_t tap = (place.rows.begin + r) * packed.window.kernel_w + place.columns.begin + s;
      const int64_t weight =
          block.wide_weights[static_cast<size_t>(tap * tap_size + j * packed.block_channels + c)];
      sum += (code - packed.x_zero) * weight;
    }
  }
  return sum;
}

}  // namespace

PackedDepthwise PackDepthwise(const ConvParams& params) {
  const LinearParams& layer = params.layer;
  PackedDepthwise packed;
  packed.multiplier = layer.weights.rows / params.in_channels;
  packed.x_zero = layer.x_zero_point;
  packed.window = params.window;
  if (packed.multiplier == 0) return packed;
  const int64_t lanes = DepthwiseLanes();
  const int64_t all_vectors = (params.in_channels - 1) / lanes + 1;
  const int64_t vectors =
      std::clamp<int64_t>(kBlockOutputs / packed.multiplier / lanes, 1, all_vectors);
  packed.block_channels = vectors * lanes;
  const int64_t block_count = (all_vectors - 1) / vectors + 1;
  const int64_t taps = layer.weights.columns;

  const int64_t tap_size = packed.multiplier * packed.block_channels;
  // At most a vector's worth of numbers for every weight in memory.
  const __int128 elements = static_cast<__int128>(block_count) * taps * tap_size;
  if (elements > PTRDIFF_MAX / int64_t{sizeof(int64_t)}) throw std::bad_alloc();
  packed.weights = hwy::AllocateAligned<int32_t>(static_cast<size_t>(elements));
  if (packed.weights == nullptr) throw std::bad_alloc();
  std::memset(packed.weights.get(), 0, static_cast<size_t>(elements) * sizeof(int32_t));
  packed.bias.resize(static_cast<size_t>(block_count * tap_size));

  std::vector<int8_t> row(static_cast<size_t>(taps));
  for (int64_t b = 0; b < block_count; ++b) {
    DepthwiseBlock block;
    block.first = b * packed.block_channels;
    block.channels = std::min(packed.block_channels, params.in_channels - block.first);
    const int64_t first_output = block.first * packed.multiplier;
    const int64_t outputs = block.channels * packed.multiplier;
    bool wide = false;
    for (int64_t i = 0; i < outputs && !wide; ++i) wide = IsWide(layer, first_output + i, row);
    if (wide) block.wide_weights.resize(static_cast<size_t>(taps * tap_size));
    packed.any_wide = packed.any_wide || wide;

    int32_t* weights = packed.weights.get() + b * taps * tap_size;
    int32_t* bias = packed.bias.data() + b * tap_size;
    for (int64_t i = 0; i < outputs; ++i) {
      const int64_t n = first_output + i;
      const size_t channel = static_cast<size_t>(n);
      const int64_t to = i % packed.multiplier * packed.block_channels + i / packed.multiplier;
      const int64_t zero = layer.w_zero_point[layer.w_zero_point.size() == 1 ? 0 : channel];
      bias[to] = layer.bias_i32.empty() ? 0 : layer.bias_i32[channel];
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t weight = CodeAt(layer.weights, n, tap) - zero;
        weights[tap * tap_size + to] = static_cast<int32_t>(weight);
        if (wide) block.wide_weights[static_cast<size_t>(tap * tap_size + to)] = weight;
      }
    }
    packed.blocks.push_back(std::move(block));
  }
  return packed;
}

DepthwiseLayout::DepthwiseLayout(const PackedDepthwise& packed, ScratchLayout* scratch) {
  const int64_t outputs = packed.block_channels * packed.multiplier;
  sums32 = scratch->Add(outputs * int64_t{sizeof(int32_t)});
  sums128 = scratch->Add(packed.any_wide ? outputs * int64_t{sizeof(__int128)} : 0);
}

void RunDepthwise(const PackedDepthwise& packed, const Epilogue& epilogue, const Placer& placer,
                  bool x_is_signed, int64_t first, int64_t pixels, const DepthwiseOutput& output,
                  const DepthwiseLayout& layout, uint8_t* scratch) {
  const int64_t tap_size = packed.multiplier * packed.block_channels;
  const int64_t taps = packed.window.kernel_h * packed.window.kernel_w;
  DepthwiseArgs args;
  args.x_is_signed = x_is_signed;
  args.x_zero = packed.x_zero;
  args.w_row_step = packed.window.kernel_w * tap_size;
  args.w_column_step = tap_size;
  args.padded_channels = packed.block_channels;
  args.multiplier = packed.multiplier;
  args.sums = reinterpret_cast<int32_t*>(scratch + layout.sums32);
  auto* sums128 = reinterpret_cast<__int128*>(scratch + layout.sums128);

  for (size_t b = 0; b < packed.blocks.size(); ++b) {
    const DepthwiseBlock& block = packed.blocks[b];
    const int64_t first_output = block.first * packed.multiplier;
    const int64_t outputs = block.channels * packed.multiplier;
    const int32_t* weights = packed.weights.get() + static_cast<int64_t>(b) * taps * tap_size;
    args.initial = packed.bias.data() + static_cast<int64_t>(b) * tap_size;
    args.channels = block.channels;
    for (int64_t pixel = first; pixel < first + pixels; ++pixel) {
      const Placement place = placer.At(pixel);
      uint8_t* y = output.y + pixel * output.y_stride + first_output * output.y_size;
      if (block.wide_weights.empty()) {
        args.rows = 0;
        args.weights = weights;
        if (!place.InPadding()) {
          args.rows = place.rows.size();
          args.columns = place.columns.size();
          args.x = place.x + block.first;
          args.x_row_step = place.row_step;
          args.x_column_step = place.column_step;
          args.weights += place.rows.begin * args.w_row_step + place.columns.begin * tap_size;
        }
        SumDepthwise(args);
        epilogue.Apply(args.sums, first_output, outputs, y);
      } else {
        for (int64_t i = 0; i < outputs; ++i) {
          const int64_t c = i / packed.multiplier;
          const int64_t j = i % packed.multiplier;
          sums128[i] = WideSum(packed, block, place, x_is_signed, c, j,
                               args.initial[j * packed.block_channels + c]);
        }
        epilogue.Apply(sums128, first_output, outputs, y);
      }
    }
  }
}

}  // namespace qualm::kernels
