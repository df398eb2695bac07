// SPDX-License-Identifier: Apache-2.0
#include "kernels/sums/row_block.h"

#include <algorithm>
#include <cstring>

#include "kernels/sums/accumulate.h"

namespace qualm::kernels {

namespace {

// A raw u8*s8 sum fits int32 up to 65,793 terms (65,793 * 255 * -128 = -2,147,483,520). Sums that
// need more than 32 bits are moved to int64 after this many quads. The last K % 4 terms come on
// top: at most 65,791 terms between two moves.
constexpr int64_t kQuadsPerSpill = 65'788 / 4;

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

class Runner {
 public:
  using Write = void (*)(const void* context, const RowSums& sums);

  Runner(const PackedWeights& packed, const RowBlock& block, const RowBlockLayout& layout,
         uint8_t* scratch, Write write, const void* context)
      : packed_(packed),
        block_(block),
        write_(write),
        context_(context),
        sums128_(reinterpret_cast<__int128*>(scratch + layout.sums128)),
        sums64_(reinterpret_cast<int64_t*>(scratch + layout.sums64)),
        row_sums_(reinterpret_cast<int64_t*>(scratch + layout.row_sums)),
        sums32_(reinterpret_cast<int32_t*>(scratch + layout.sums32)),
        tails_(scratch + layout.tails) {}

  void Run() {
    ReadRows();
    for (size_t p = 0; p < packed_.panels.size(); ++p) {
      const int64_t first = static_cast<int64_t>(p) * packed_.traits.panel_width;
      switch (packed_.panels[p].sum_width) {
        case SumWidth::k32:
          NarrowSums(p);
          Finish(sums32_, first, 0, block_.rows);
          break;
        case SumWidth::k64:
          RawSums(p);
          CorrectSums64(first);
          Finish(sums64_, first, 0, block_.rows);
          break;
        case SumWidth::k128:
          RawSums(p);
          for (int64_t r = 0; r < block_.rows; ++r) {
            CorrectSums128(first, r);
            Finish(sums128_, first, r, 1);
          }
          break;
      }
    }
  }

 private:
  const uint8_t* Row(int64_t row) const { return block_.x + row * block_.x_stride; }

  // All panels share the sums of the rows and the copied last K % 4 activations of each row. They
  // are copied because reading them as a quad would read past the end of the row.
  void ReadRows() {
    bool any_row_sums = false;
    for (const PackedPanel& panel : packed_.panels) {
      any_row_sums = any_row_sums || panel.needs_row_sums;
    }
    const int64_t whole = packed_.depth / 4 * 4;
    const size_t rest = static_cast<size_t>(packed_.depth - whole);
    for (int64_t r = 0; r < block_.rows; ++r) {
      if (rest > 0) {
        std::memset(tails_ + 4 * r, 0, 4);
        std::memcpy(tails_ + 4 * r, Row(r) + whole, rest);
      }
      if (any_row_sums && packed_.depth > 0) {
        row_sums_[r] = SumOfActivations(Row(r), packed_.depth, block_.x_is_signed);
      } else {
        row_sums_[r] = 0;
      }
    }
  }

  // Quads [first_quad, first_quad + quads) of the panel, without corrections.
  AccumulateArgs Args(size_t p, int64_t first_quad, int64_t quads) const {
    const int64_t whole_quads = packed_.depth / 4;
    const bool at_end = first_quad + quads == whole_quads;
    AccumulateArgs args;
    args.x_stride = block_.x_stride;
    args.x_is_signed = block_.x_is_signed;
    args.rows = block_.rows;
    args.quads = quads;
    // K < 4 leaves no quad to read, and x may be null where K is 0.
    args.x = quads > 0 ? Row(0) + 4 * first_quad : tails_;
    if (quads == 0) args.x_stride = 4;
    args.tail = at_end && packed_.depth % 4 != 0 ? tails_ : nullptr;
    args.weights = packed_.weights.get() + static_cast<int64_t>(p) * packed_.PanelBytes() +
                   first_quad * packed_.traits.panel_width * 4;
    args.certified = packed_.panels[p].certified;
    args.sums = sums32_;
    return args;
  }

  // Corrected sums that are known to fit int32: everything modulo 2^32, in one pass.
  void NarrowSums(size_t p) {
    const int64_t first = static_cast<int64_t>(p) * packed_.traits.panel_width;
    AccumulateArgs args = Args(p, 0, packed_.depth / 4);
    args.initial = packed_.offset_low.data() + first;
    if (packed_.panels[p].needs_row_sums) {
      args.weight_zero = packed_.zero_low.data() + first;
      args.row_sums = row_sums_;
    }
    AccumulatePanel(args);
  }

  // sums64_[r][c] = sum_k a b, from int32 sums of at most kQuadsPerSpill quads.
  void RawSums(size_t p) {
    const int64_t count = block_.rows * packed_.traits.panel_width;
    std::fill_n(sums64_, count, 0);
    int64_t first_quad = 0;
    do {
      const int64_t quads = std::min(packed_.depth / 4 - first_quad, kQuadsPerSpill);
      AccumulateArgs args = Args(p, first_quad, quads);
      args.initial = packed_.zeros.data();
      AccumulatePanel(args);
      for (int64_t i = 0; i < count; ++i) sums64_[i] += sums32_[i];
      first_quad += quads;
    } while (first_quad < packed_.depth / 4);
  }

  // Modulo 2^64 (hence unsigned); the result is known to fit.
  void CorrectSums64(int64_t first) {
    const int64_t width = packed_.traits.panel_width;
    for (int64_t r = 0; r < block_.rows; ++r) {
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

  // `sums` are those of rows [first_row, first_row + rows).
  template <class Sum>
  void Finish(Sum* sums, int64_t first, int64_t first_row, int64_t rows) const {
    const int64_t width = packed_.traits.panel_width;
    const int64_t size =
        block_.y_type == ElementType::kU8 || block_.y_type == ElementType::kS8 ? 1 : 4;
    const int64_t channel = block_.first_channel + first;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t row = first_row + r;
      write_(context_, {.row = row,
                        .first = first,
                        .count = std::min(width, packed_.channels - first),
                        .channel = channel,
                        .sums = sums + r * width,
                        .y = block_.y + (row * block_.y_stride + channel) * size});
    }
  }

  const PackedWeights& packed_;
  const RowBlock& block_;
  Write write_;
  const void* context_;
  __int128* sums128_;
  int64_t* sums64_;
  int64_t* row_sums_;
  int32_t* sums32_;
  uint8_t* tails_;
};

}  // namespace

RowBlockLayout::RowBlockLayout(std::span<const PackedWeights> weights, int64_t rows,
                               ScratchLayout* scratch) {
  bool any = false;
  bool wide = false;
  bool widest = false;
  int64_t width = 0;
  for (const PackedWeights& packed : weights) {
    width = packed.traits.panel_width;
    for (const PackedPanel& panel : packed.panels) {
      any = true;
      wide = wide || panel.sum_width != SumWidth::k32;
      widest = widest || panel.sum_width == SumWidth::k128;
    }
  }
  if (rows <= 0 || !any) return;
  sums128 = scratch->Add(widest ? width * int64_t{sizeof(__int128)} : 0);
  sums64 = scratch->Add(wide ? rows * width * int64_t{sizeof(int64_t)} : 0);
  row_sums = scratch->Add(rows * int64_t{sizeof(int64_t)});
  sums32 = scratch->Add(rows * width * int64_t{sizeof(int32_t)});
  tails = scratch->Add(rows * 4);
}

void RunRowBlock(const PackedWeights& weights, const RowBlock& block, const RowBlockLayout& layout,
                 uint8_t* scratch, void (*write)(const void* context, const RowSums& sums),
                 const void* context) {
  Runner(weights, block, layout, scratch, write, context).Run();
}

}  // namespace qualm::kernels
