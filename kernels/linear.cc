// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
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

namespace qualm::kernels {

namespace {

// Rows that share one pass over the weights: a panel stays in the nearest cache for all of them.
constexpr int64_t kRowBlock = 64;

// A raw u8*s8 sum fits int32 up to 65,793 terms (65,793 * 255 * -128 = -2,147,483,520). Sums that
// need more than 32 bits are moved to int64 this often, in quads: with the last K % 4 terms, which
// come on top, at most 65,791.
constexpr int64_t kQuadsPerSpill = 65'788 / 4;

// Where the buffers of one row block lie in the caller's scratch memory.
class ScratchLayout {
 public:
  ScratchLayout(const PackedWeights& packed, int64_t rows) {
    const int64_t block = std::clamp<int64_t>(rows, 0, kRowBlock);
    if (block == 0 || packed.panels.empty()) return;
    const int64_t width = packed.traits.panel_width;
    bool wide = false;
    bool widest = false;
    for (const PackedPanel& panel : packed.panels) {
      wide = wide || panel.sum_width != SumWidth::k32;
      widest = widest || panel.sum_width == SumWidth::k128;
    }
    sums128 = Add(widest ? width * int64_t{sizeof(__int128)} : 0);
    sums64 = Add(wide ? block * width * int64_t{sizeof(int64_t)} : 0);
    row_sums = Add(block * int64_t{sizeof(int64_t)});
    sums32 = Add(block * width * int64_t{sizeof(int32_t)});
    tails = Add(block * 4);
    bytes += kAlignment - 1;  // the caller's memory has any alignment
  }

  static constexpr size_t kAlignment = alignof(std::max_align_t);
  size_t sums128 = 0;   // [panel_width]
  size_t sums64 = 0;    // [block][panel_width]
  size_t row_sums = 0;  // [block]
  size_t sums32 = 0;    // [block][panel_width]
  size_t tails = 0;     // [block][4]
  size_t bytes = 0;

 private:
  size_t Add(int64_t size) {
    const size_t offset = bytes;
    bytes += (static_cast<size_t>(size) + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }
};

uint8_t* Align(uint8_t* p) {
  const uintptr_t misaligned = reinterpret_cast<uintptr_t>(p) % ScratchLayout::kAlignment;
  return misaligned == 0 ? p : p + (ScratchLayout::kAlignment - misaligned);
}

int64_t SumOfActivations(const uint8_t* x, int64_t depth, bool is_signed) {
  const uint8_t flip = is_signed ? 0x80 : 0;  // s8 -> u8, adds 128 to each
  int64_t sum = 0;
  while (depth > 0) {
    const int64_t count = std::min<int64_t>(depth, 1 << 20);
    uint32_t part = 0;  // of narrow type, so that the compiler vectorises the loop
    for (int64_t k = 0; k < count; ++k) part += static_cast<uint8_t>(x[k] ^ flip);
    sum += part;
    x += count;
    depth -= count;
  }
  return sum;
}

// Computes blocks of rows of one layer.
class Runner {
 public:
  Runner(const PackedWeights& packed, const Epilogue& epilogue, const ConstMatrix& x,
         const MutableMatrix& y, uint8_t* scratch, const ScratchLayout& layout)
      : packed_(packed),
        epilogue_(epilogue),
        x_(x),
        y_(y),
        sums128_(reinterpret_cast<__int128*>(scratch + layout.sums128)),
        sums64_(reinterpret_cast<int64_t*>(scratch + layout.sums64)),
        row_sums_(reinterpret_cast<int64_t*>(scratch + layout.row_sums)),
        sums32_(reinterpret_cast<int32_t*>(scratch + layout.sums32)),
        tails_(scratch + layout.tails) {
    for (const PackedPanel& panel : packed.panels) {
      any_row_sums_ = any_row_sums_ || panel.needs_row_sums;
    }
  }

  void RunBlock(int64_t first_row, int64_t rows) {
    ReadRows(first_row, rows);
    for (size_t p = 0; p < packed_.panels.size(); ++p) {
      const int64_t first = static_cast<int64_t>(p) * packed_.traits.panel_width;
      switch (packed_.panels[p].sum_width) {
        case SumWidth::k32:
          NarrowSums(p, first_row, rows);
          Finish(sums32_, first, first_row, rows);
          break;
        case SumWidth::k64:
          RawSums(p, first_row, rows);
          CorrectSums64(first, rows);
          Finish(sums64_, first, first_row, rows);
          break;
        case SumWidth::k128:
          RawSums(p, first_row, rows);
          for (int64_t r = 0; r < rows; ++r) {
            CorrectSums128(first, r);
            Finish(sums128_, first, first_row + r, 1);
          }
          break;
      }
    }
  }

 private:
  const uint8_t* Row(int64_t row) const {
    return static_cast<const uint8_t*>(x_.data) + row * x_.row_stride;
  }

  // What all panels share: the last K % 4 activations of each row, because reading them as a quad
  // would read past the row's end, and the sums of the rows.
  void ReadRows(int64_t first_row, int64_t rows) {
    const int64_t whole = packed_.depth / 4 * 4;
    const size_t rest = static_cast<size_t>(packed_.depth - whole);
    for (int64_t r = 0; r < rows; ++r) {
      if (rest > 0) {
        std::memset(tails_ + 4 * r, 0, 4);
        std::memcpy(tails_ + 4 * r, Row(first_row + r) + whole, rest);
      }
      if (any_row_sums_ && packed_.depth > 0) {
        row_sums_[r] = SumOfActivations(Row(first_row + r), packed_.depth, IsSigned());
      } else {
        row_sums_[r] = 0;
      }
    }
  }

  bool IsSigned() const { return x_.type == ElementType::kS8; }

  // Quads [first_quad, first_quad + quads) of the panel, without corrections.
  AccumulateArgs Args(size_t p, int64_t first_row, int64_t rows, int64_t first_quad,
                      int64_t quads) const {
    const int64_t whole_quads = packed_.depth / 4;
    const bool at_end = first_quad + quads == whole_quads;
    AccumulateArgs args;
    args.x_stride = x_.row_stride;
    args.x_is_signed = IsSigned();
    args.rows = rows;
    args.quads = quads;
    // K < 4 leaves no quad to read, and x may be null where K is 0.
    args.x = quads > 0 ? Row(first_row) + 4 * first_quad : tails_;
    if (quads == 0) args.x_stride = 4;
    args.tail = at_end && packed_.depth % 4 != 0 ? tails_ : nullptr;
    args.weights = packed_.weights.get() + static_cast<int64_t>(p) * packed_.PanelBytes() +
                   first_quad * packed_.traits.panel_width * 4;
    args.certified = packed_.panels[p].certified;
    args.sums = sums32_;
    return args;
  }

  // Corrected sums that are known to fit int32: everything modulo 2^32, in one pass.
  void NarrowSums(size_t p, int64_t first_row, int64_t rows) {
    const int64_t first = static_cast<int64_t>(p) * packed_.traits.panel_width;
    AccumulateArgs args = Args(p, first_row, rows, 0, packed_.depth / 4);
    args.initial = packed_.offset_low.data() + first;
    if (packed_.panels[p].needs_row_sums) {
      args.weight_zero = packed_.zero_low.data() + first;
      args.row_sums = row_sums_;
    }
    AccumulatePanel(args);
  }

  // sums64_[r][c] = sum_k a b, in spells short enough for int32.
  void RawSums(size_t p, int64_t first_row, int64_t rows) {
    const int64_t count = rows * packed_.traits.panel_width;
    std::fill_n(sums64_, count, 0);
    int64_t first_quad = 0;
    do {
      const int64_t quads = std::min(packed_.depth / 4 - first_quad, kQuadsPerSpill);
      AccumulateArgs args = Args(p, first_row, rows, first_quad, quads);
      args.initial = packed_.zeros.data();
      AccumulatePanel(args);
      for (int64_t i = 0; i < count; ++i) sums64_[i] += sums32_[i];
      first_quad += quads;
    } while (first_quad < packed_.depth / 4);
  }

  // Modulo 2^64 (hence unsigned); the result is known to fit.
  void CorrectSums64(int64_t first, int64_t rows) {
    const int64_t width = packed_.traits.panel_width;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < width; ++c) {
        const size_t n = static_cast<size_t>(first + c);
        sums64_[r * width + c] = static_cast<int64_t>(
            static_cast<uint64_t>(sums64_[r * width + c]) +
            static_cast<uint64_t>(packed_.offset[n]) -
            static_cast<uint64_t>(packed_.zero[n]) * static_cast<uint64_t>(row_sums_[r]));
      }
    }
  }

  void CorrectSums128(int64_t first, int64_t r) {
    const int64_t width = packed_.traits.panel_width;
    for (int64_t c = 0; c < width; ++c) {
      const size_t n = static_cast<size_t>(first + c);
      sums128_[c] = sums64_[r * width + c] + packed_.offset[n] -
                    static_cast<__int128>(packed_.zero[n]) * row_sums_[r];
    }
  }

  template <class Sum>
  void Finish(const Sum* sums, int64_t first, int64_t first_row, int64_t rows) const {
    const int64_t count = std::min(packed_.traits.panel_width, packed_.channels - first);
    const int64_t size = y_.type == ElementType::kU8 || y_.type == ElementType::kS8 ? 1 : 4;
    for (int64_t r = 0; r < rows; ++r) {
      epilogue_.Apply(
          sums + r * packed_.traits.panel_width, first, count,
          static_cast<uint8_t*>(y_.data) + ((first_row + r) * y_.row_stride + first) * size);
    }
  }

  const PackedWeights& packed_;
  const Epilogue& epilogue_;
  const ConstMatrix& x_;
  const MutableMatrix& y_;
  __int128* sums128_;
  int64_t* sums64_;
  int64_t* row_sums_;
  int32_t* sums32_;
  uint8_t* tails_;
  bool any_row_sums_ = false;
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
                                     .range = params.range});
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

Status PackedLinear::Run(const ConstMatrix& x, const MutableMatrix& y,
                         std::span<uint8_t> scratch) const {
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

  const ScratchLayout layout(weights, x.rows);
  std::unique_ptr<uint8_t[]> own_scratch;
  uint8_t* base = scratch.data();
  if (scratch.size() < layout.bytes) {
    own_scratch.reset(new (std::nothrow) uint8_t[layout.bytes]);
    if (own_scratch == nullptr) return {"no memory for scratch, expected to allocate it"};
    base = own_scratch.get();
  }

  const ScopedFpEnvironment fp_environment;
  Runner runner(weights, impl_->epilogue, x, y, Align(base), layout);
  for (int64_t row = 0; row < x.rows; row += kRowBlock) {
    runner.RunBlock(row, std::min(kRowBlock, x.rows - row));
  }
  return {};
}

size_t PackedLinear::ScratchBytes(int64_t rows) const {
  return impl_ == nullptr ? 0 : ScratchLayout(impl_->weights, rows).bytes;
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
