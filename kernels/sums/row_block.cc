// SPDX-License-Identifier: Apache-2.0
// The sums of a block of rows, panel by panel; accumulate.cc is the inner loop. Exact because each
// panel's sums have a width in which they fit (SumWidth, pack.h): int32 sums are taken modulo 2^32;
// for wider ones, accumulate.cc adds no more terms than int32 holds, and the zero points are taken
// out in 64 or 128 bits.
#include "kernels/sums/row_block.h"

#include <algorithm>
#include <cstring>

#include "kernels/sums/accumulate.h"
#include "kernels/sums/arrange.h"

namespace qualm::kernels {

namespace {

// A raw u8*s8 sum fits int32 up to 65,793 terms (65,793 * 255 * -128 = -2,147,483,520). Sums that
// need more than 32 bits are moved to int64 after this many terms, whole quads. The last K % 4
// terms come on top: at most 65,791 terms between two moves.
constexpr int64_t kTermsPerSpill = 65'788;

bool IsTiny(const PackedWeights& packed) { return packed.depth > 0 && packed.depth < 4; }

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
        tiny_(scratch + layout.tiny),
        shuffled_(scratch + layout.shuffled),
        widened_(scratch + layout.widened),
        x_(block.x),
        x_stride_(block.x_stride) {}

  // For corrected sums that are known to fit int32: everything modulo 2^32, in one pass. Lacks the
  // place of the codes.
  AccumulateArgs NarrowArgs(size_t p) const {
    AccumulateArgs args = Args(p, 0, packed_.depth);
    const int64_t first = static_cast<int64_t>(p) * packed_.traits.panel_width;
    args.initial = packed_.offset_low.data() + first;
    if (packed_.panels[p].needs_row_sums) {
      args.weight_zero = packed_.zero_low.data() + first;
      args.row_sums = row_sums_;
    }
    if (block_.plan != nullptr) {
      args.plan = block_.plan;
      args.codes = {.channel = ChannelOfLayer(first),
                    .count = std::min(packed_.traits.panel_width, packed_.channels - first),
                    .y_stride = block_.y_stride};
    }
    return args;
  }

  void Run() {
    ReadRows();
    auto pairing = packed_.pairings.begin();
    for (size_t p = block_.first_panel; p < std::min(block_.end_panel, packed_.panels.size());
         ++p) {
      if (packed_.MovesActivations() && (p == block_.first_panel || p == pairing->end_panel)) {
        while (p >= pairing->end_panel) ++pairing;
        OrderRows(*pairing);
      }
      if (packed_.panels[p].takes_widened && !are_widened_) {
        WidenRows({x_, x_stride_, block_.rows, packed_.depth}, block_.x_is_signed, widened_);
        are_widened_ = true;
      }
      const int64_t first = static_cast<int64_t>(p) * packed_.traits.panel_width;
      switch (packed_.panels[p].sum_width) {
        case SumWidth::k32:
          NarrowSums(p);
          if (block_.plan == nullptr) Finish(sums32_, first, 0, block_.rows);
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
  int64_t ChannelOfLayer(int64_t channel) const { return block_.first_channel + channel; }
  const uint8_t* Row(int64_t row) const {
    return packed_.depth == 0 ? block_.x : block_.x + row * block_.x_stride;  // may be null
  }

  // All panels share the sums of the rows. A row of fewer than 4 activations is copied, because
  // reading it as a quad would read past its end.
  void ReadRows() {
    if (IsTiny(packed_)) {
      for (int64_t r = 0; r < block_.rows; ++r) {
        std::memset(tiny_ + 4 * r, 0, 4);
        std::memcpy(tiny_ + 4 * r, Row(r), static_cast<size_t>(packed_.depth));
      }
    }
    if (!packed_.UsesRowSums()) return;
    for (int64_t r = 0; r < block_.rows; ++r) {
      row_sums_[r] = SumOfActivations(Row(r), packed_.depth, block_.x_is_signed);
    }
  }

  // Puts the activations where the weights of the next panels expect them.
  void OrderRows(const Pairing& pairing) {
    x_ = block_.x;
    x_stride_ = block_.x_stride;
    are_widened_ = false;
    if (pairing.shuffle.empty()) return;
    ShuffleRows({x_, x_stride_, block_.rows, packed_.depth}, pairing.shuffle, shuffled_);
    x_ = shuffled_;
    x_stride_ = packed_.depth;
  }

  // The pieces of a row of `count` activations.
  Pieces PiecesOf(int64_t count) const {
    if (block_.pieces.bytes > 0) return block_.pieces;
    const int64_t bytes = std::min(packed_.piece, count);
    if (bytes == count) return {.rows = bytes == 0 ? 0 : 1, .row_step = bytes, .bytes = bytes};
    return {.rows = count / bytes, .row_step = bytes, .bytes = bytes};
  }

  // Activations [first, first + count) of each row, without corrections. `first` is a multiple of
  // 4, and so is `count` except at the end.
  AccumulateArgs Args(size_t p, int64_t first, int64_t count) const {
    const PackedPanel& panel = packed_.panels[p];
    AccumulateArgs args;
    args.x_is_signed = block_.x_is_signed;
    args.rows = block_.rows;
    if (count > 0) {  // x may be null where K is 0
      args.x = x_ + first;
      args.x_stride = x_stride_;
    }
    args.pieces = PiecesOf(count);
    if (IsTiny(packed_)) {
      args.x = tiny_;
      args.x_stride = args.pieces.bytes = 4;
    }
    args.vectors = panel.vectors;
    args.weights = packed_.OfPanel(p) + first * panel.vectors * packed_.traits.lanes;
    args.extra = panel.extra.places.empty() ? nullptr : &panel.extra;
    args.quad_sum = packed_.traits.quad_sum;
    if (panel.adds_pairs) args.quad_sum = internal::QuadSum::kPairs;
    if (panel.takes_widened) {
      args.quad_sum = internal::QuadSum::kWidened;
      args.x = widened_;
      args.x_stride = WidenedBytes(packed_.depth);
      args.x_is_signed = false;
      args.pieces = {.row_step = 4 * packed_.quads, .bytes = 4 * packed_.quads};
    }
    args.sums = sums32_;
    return args;
  }

  // Writes sums32_, or codes.
  void NarrowSums(size_t p) const {
    AccumulateArgs args = NarrowArgs(p);
    if (block_.plan != nullptr) args.codes.y = block_.y + args.codes.channel;
    AccumulatePanel(args);
  }

  // sums64_[r][c] = sum_k a b, from int32 sums of few enough terms.
  void RawSums(size_t p) {
    const int64_t count = block_.rows * packed_.traits.panel_width;
    std::fill_n(sums64_, count, 0);
    for (int64_t first = 0; first < packed_.depth; first += kTermsPerSpill) {
      // A quad is not split: the last activations are those of the last 4.
      const int64_t left = packed_.depth - first;
      AccumulateArgs args = Args(p, first, left < kTermsPerSpill + 4 ? left : kTermsPerSpill);
      args.initial = packed_.zeros.data();
      // Sums of a part would need a correction of that part: too rare.
      if (args.quad_sum == internal::QuadSum::kDot) args.quad_sum = internal::QuadSum::kHighway;
      AccumulatePanel(args);
      for (int64_t i = 0; i < count; ++i) sums64_[i] += sums32_[i];
      if (left < kTermsPerSpill + 4) break;
    }
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
    const int64_t channel = ChannelOfLayer(first);
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
  uint8_t* tiny_;
  uint8_t* shuffled_;
  uint8_t* widened_;
  // The rows of block_, as they are or shuffled.
  const uint8_t* x_;
  int64_t x_stride_;
  bool are_widened_ = false;  // these
};

}  // namespace

AccumulateArgs ArgsOfPanel(const PackedWeights& weights, const CodePlan& plan, bool x_is_signed,
                           size_t panel) {
  const RowBlock block = {.x_is_signed = x_is_signed, .plan = &plan};
  return Runner(weights, block, {}, nullptr, nullptr, nullptr).NarrowArgs(panel);
}

RowBlockLayout::RowBlockLayout(std::span<const PackedWeights> weights, const CodePlan* plan,
                               int64_t rows, ScratchLayout* scratch) {
  bool wide = false;
  bool widest = false;
  bool row_sums_used = false;
  bool tiny_rows = false;
  int64_t shuffled_bytes = 0;  // of a row
  int64_t widened_bytes = 0;
  int64_t width = 0;
  for (const PackedWeights& packed : weights) {
    if (packed.panels.empty()) continue;
    width = packed.traits.panel_width;
    row_sums_used = row_sums_used || packed.UsesRowSums();
    tiny_rows = tiny_rows || IsTiny(packed);
    if (packed.MovesActivations()) shuffled_bytes = packed.depth;
    if (packed.TakesWidenedRows()) widened_bytes = WidenedBytes(packed.depth);
    for (const PackedPanel& panel : packed.panels) {
      wide = wide || panel.sum_width != SumWidth::k32;
      widest = widest || panel.sum_width == SumWidth::k128;
    }
  }
  if (rows <= 0 || width == 0) return;
  sums128 = scratch->Add(widest ? width * int64_t{sizeof(__int128)} : 0);
  sums64 = scratch->Add(wide ? rows * width * int64_t{sizeof(int64_t)} : 0);
  row_sums = scratch->Add(row_sums_used ? rows * int64_t{sizeof(int64_t)} : 0);
  sums32 = scratch->Add(wide || plan == nullptr ? rows * width * int64_t{sizeof(int32_t)} : 0);
  tiny = scratch->Add(tiny_rows ? rows * 4 : 0);
  shuffled = scratch->Add(rows * shuffled_bytes);
  widened = scratch->Add(rows * widened_bytes);
}

void RunRowBlock(const PackedWeights& weights, const RowBlock& block, const RowBlockLayout& layout,
                 uint8_t* scratch, void (*write)(const void* context, const RowSums& sums),
                 const void* context) {
  Runner(weights, block, layout, scratch, write, context).Run();
}

}  // namespace qualm::kernels
