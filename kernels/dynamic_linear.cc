// SPDX-License-Identifier: Apache-2.0
// The smallest and largest finite value, of each row or (in a first pass) of all of x, choose a
// scale and zero point. Then each block of rows is quantized into scratch memory, linear's loops
// (sums/row_block.h) make exact sums of the codes, and the epilogue rounds each sum once to float32
// (common/rescale.cc).
//
// The zero point za of the unsigned activations a (pack.h) is not known when the weights are
// packed. sum_k (a - za)(b - zb) = sum_k (a + 1)(b - zb) - (za + 1) sum_k (b - zb): so the weights
// are packed for za = -1, for which PackedWeights::offset is the last sum, and each row takes za +
// 1 times that sum from its sums at the end. za is a code, so the terms a - za of the result are
// -255..255.
#include "kernels/dynamic_linear.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "hwy/base.h"
#include "kernels/common/fp_environment.h"
#include "kernels/common/min_max.h"
#include "kernels/common/parallel.h"
#include "kernels/elementwise.h"
#include "kernels/layer.h"
#include "kernels/sums/accumulate.h"
#include "kernels/sums/epilogue.h"
#include "kernels/sums/layer_validate.h"
#include "kernels/sums/pack.h"
#include "kernels/sums/row_block.h"

namespace qualm::kernels {
namespace {

// Codes of one block should stay in the L2 cache.
constexpr int64_t kBlockBytes = 128 * 1024;
constexpr float kLargestFloat = 0x1.fffffep127f;

int64_t CodesToUnsigned(ElementType type) { return type == ElementType::kS8 ? 128 : 0; }

// Widens `keys` by the finite ones of x[0..count).
void WidenByFinite(const float* x, int64_t count, internal::MinMaxKeys* keys) {
  internal::MinMaxKeys all = *keys;
  internal::WidenBy(x, static_cast<size_t>(count), &all);
  if (all.AreFinite()) {
    *keys = all;
    return;
  }
  for (int64_t k = 0; k < count; ++k) {
    const int32_t key = internal::KeyOf(x[k]);
    if (!internal::MinMaxKeys{key, key}.AreFinite()) continue;
    keys->min = std::min(keys->min, key);
    keys->max = std::max(keys->max, key);
  }
}

}  // namespace

struct PackedDynamicLinear::Impl {
  // How rows are cut into blocks, and the scratch of one task.
  struct Plan {
    Plan(const PackedWeights& weights, int64_t rows, const ThreadPool* pool);

    size_t bytes() const { return scratch.bytes() * static_cast<size_t>(tasks); }

    int64_t rows;  // of a block, at most
    ScratchLayout scratch;
    RowBlockLayout row_block;
    size_t codes;  // [rows][K]
    size_t keys;   // MinMaxKeys of the rows that the task has seen
    int64_t blocks = 0;
    int64_t tasks = 0;
  };

  Quantization Choose(const internal::MinMaxKeys& keys) const;

  PackedWeights weights;
  Epilogue epilogue;
  ObserverParams qparams;
  bool per_row = false;
};

namespace {

int64_t RowsOfBlock(int64_t depth, int64_t rows) {
  const int64_t most =
      depth > 0 ? std::clamp<int64_t>(kBlockBytes / depth, 4, kRowBlock) : kRowBlock;
  return std::clamp<int64_t>(rows, 0, most / 4 * 4);  // they are computed in fours
}

}  // namespace

PackedDynamicLinear::Impl::Plan::Plan(const PackedWeights& packed, int64_t all_rows,
                                      const ThreadPool* pool)
    : rows(RowsOfBlock(packed.depth, all_rows)),
      row_block({&packed, 1}, nullptr, rows, &scratch),
      codes(scratch.Add(packed.channels == 0 ? 0 : rows * packed.depth)),
      keys(scratch.Add(packed.channels == 0 || rows == 0 ? 0 : sizeof(internal::MinMaxKeys))) {
  if (rows == 0 || packed.channels == 0) return;
  blocks = (all_rows - 1) / rows + 1;
  tasks = internal::TaskCount(pool, blocks);
}

Quantization PackedDynamicLinear::Impl::Choose(const internal::MinMaxKeys& keys) const {
  const bool none = keys.min > keys.max;
  const MinMaxState state = {.min = none ? 0.0f : std::min(internal::FloatOf(keys.min), 0.0f),
                             .max = none ? 0.0f : std::max(internal::FloatOf(keys.max), 0.0f),
                             .empty = false};
  Quantization q;
  // Pack has checked the parameters, and the state is not empty.
  if (!ChooseQParams(qparams, {&state, 1}, {&q.scale, 1}, {&q.zero_point, 1}).ok()) std::abort();
  q.scale = std::min(q.scale, kLargestFloat);
  return q;
}

PackedDynamicLinear::PackedDynamicLinear() = default;
PackedDynamicLinear::~PackedDynamicLinear() = default;
PackedDynamicLinear::PackedDynamicLinear(PackedDynamicLinear&&) noexcept = default;
PackedDynamicLinear& PackedDynamicLinear::operator=(PackedDynamicLinear&&) noexcept = default;

Status PackedDynamicLinear::Pack(const DynamicLinearParams& params, PackedDynamicLinear* packed) {
  if (packed == nullptr) return {"packed is null, expected where to put the weights"};
  const ScopedFpEnvironment environment;
  const MinMaxState some = {.empty = false};
  Quantization unused;
  if (Status s =
          ChooseQParams(params.qparams, {&some, 1}, {&unused.scale, 1}, {&unused.zero_point, 1});
      !s.ok())
    return s;
  const LinearParams layer = {
      .weights = params.weights,
      .input_type = params.qparams.type,
      .x_zero_point = static_cast<int32_t>(-1 - CodesToUnsigned(params.qparams.type)),  // za = -1
      .w_scale = params.w_scale,
      .w_zero_point = params.w_zero_point,
      .bias = params.bias,
      .bias_i32 = {},
      .output_type = ElementType::kF32,
      .range = {.relu = params.relu}};
  if (Status s = ValidateLinearParams(layer); !s.ok()) return s;
  return PackInMemory([&] {
    packed->impl_ = std::make_unique<Impl>(
        Impl{.weights = PackWeights(layer, TermRange{.low = -255, .high = 255}),
             .epilogue = PackEpilogue(layer),
             .qparams = params.qparams,
             .per_row = params.per_row});
  });
}

Status PackedDynamicLinear::Run(const ConstMatrix& x, const MutableMatrix& y,
                                std::span<uint8_t> scratch, ThreadPool* pool) const {
  if (impl_ == nullptr) return {"the layer has no weights, expected Pack to be called first"};
  const ScopedFpEnvironment environment;
  const PackedWeights& weights = impl_->weights;
  const ElementType type = impl_->qparams.type;
  const LinearShape shape = {.channels = weights.channels,
                             .depth = weights.depth,
                             .input_type = ElementType::kF32,
                             .output_type = ElementType::kF32};
  if (Status s = ValidateLinearRun(shape, x, y, scratch); !s.ok()) return s;
  if (Status s = CheckPackedFor(weights.traits.target); !s.ok()) return s;
  const Impl::Plan plan(weights, x.rows, pool);
  if (plan.tasks == 0) return {};
  const TaskScratch pieces(plan.scratch, plan.bytes(), scratch);
  if (!pieces.status().ok()) return pieces.status();

  const auto row_of_x = [&](int64_t row) {
    return x.columns == 0 ? nullptr : static_cast<const float*>(x.data) + row * x.row_stride;
  };
  const auto rows_of = [&](int64_t block) {
    return std::min(plan.rows, x.rows - block * plan.rows);
  };

  Quantization whole;
  if (!impl_->per_row) {
    const auto keys_of = [&](int64_t task) {
      return reinterpret_cast<internal::MinMaxKeys*>(pieces.Of(task) + plan.keys);
    };
    for (int64_t task = 0; task < plan.tasks; ++task) new (keys_of(task)) internal::MinMaxKeys();
    internal::ForEachBlock(pool, plan.tasks, plan.blocks, [&](int64_t task, int64_t block) {
      for (int64_t r = 0; r < rows_of(block); ++r) {
        WidenByFinite(row_of_x(block * plan.rows + r), x.columns, keys_of(task));
      }
    });
    internal::MinMaxKeys keys;
    for (int64_t task = 0; task < plan.tasks; ++task) {
      keys.min = std::min(keys.min, keys_of(task)->min);
      keys.max = std::max(keys.max, keys_of(task)->max);
    }
    whole = impl_->Choose(keys);
  }

  internal::ForEachBlock(pool, plan.tasks, plan.blocks, [&](int64_t task, int64_t block) {
    const int64_t first = block * plan.rows;
    const int64_t rows = rows_of(block);
    uint8_t* const codes = pieces.Of(task) + plan.codes;
    Quantization quantizations[kRowBlock];
    for (int64_t r = 0; r < rows; ++r) {
      Quantization& q = quantizations[r];
      q = whole;
      const float* const values = row_of_x(first + r);
      if (impl_->per_row) {
        internal::MinMaxKeys keys;
        WidenByFinite(values, x.columns, &keys);
        q = impl_->Choose(keys);
      }
      const ConstMatrix from = {values, ElementType::kF32, 1, x.columns, x.columns};
      const MutableMatrix to = {codes + r * x.columns, type, 1, x.columns, x.columns};
      // Valid, because x and q are.
      if (!Quantize(from, {&q.scale, 1}, {&q.zero_point, 1}, {}, to).ok()) std::abort();
    }
    RunRowBlock(weights,
                {.x = codes,
                 .x_stride = x.columns,
                 .x_is_signed = type == ElementType::kS8,
                 .rows = rows,
                 .y = static_cast<uint8_t*>(y.data) +
                      first * y.row_stride * static_cast<int64_t>(sizeof(float)),
                 .y_stride = y.row_stride,
                 .y_type = ElementType::kF32},
                plan.row_block, pieces.Of(task), [&](const RowSums& sums) {
                  const Quantization& q = quantizations[sums.row];
                  const __int128 za = q.zero_point + CodesToUnsigned(type);
                  const __int128* const sums_of_b = weights.offset.data() + sums.first;
                  sums.Add([&](int64_t i) { return -(za + 1) * sums_of_b[i]; });
                  sums.Finish(impl_->epilogue, q.scale);
                });
  });
  return {};
}

size_t PackedDynamicLinear::ScratchBytes(int64_t rows, const ThreadPool* pool) const {
  return impl_ == nullptr ? 0 : Impl::Plan(impl_->weights, rows, pool).bytes();
}

}  // namespace qualm::kernels
