// SPDX-License-Identifier: Apache-2.0
// The same everyday mistake at each operand, along each axis and at each step: what cause_families
// does for the lengths of blocks.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/float_format.h"
#include "core/scaled_cast.h"
#include "core/slice.h"
#include "core/types.h"
#include "triage/cause_families.h"

namespace qualm::triage {
namespace {

using Stage = CauseStage;
using Kind = FindingKind;
using Applies = std::function<bool(const Case&)>;

bool Always(const Case&) { return true; }

// Each element of the tensor from another place of it.
template <class From>
bool Rearrange(Tensor& tensor, const From& from) {
  const Tensor old = tensor;
  for (int64_t i = 0; i < old.size(); ++i) tensor.CopyFrom(old, from(i), 1, i);
  return tensor != old;
}

// ---- A parameter that is left out, or that of another tensor.

struct Parameters {
  std::string_view scale, zero_point;  // with the words of the operation
  QParams Case::* q;
};
constexpr std::array kParameters{Parameters{"{x_scale}", "{x_zero_point}", &Case::x_q},
                                 Parameters{"{w_scale}", "{w_zero_point}", &Case::w_q},
                                 Parameters{"output scale", "output zero point", &Case::out_q}};

template <class T>
bool TakeFirst(std::vector<T>& to, const std::vector<T>& from) {
  if (from.empty()) return false;
  return Replace(to, std::vector<T>(to.size(), from.front()));
}

void AddParameters(std::vector<Cause>& rows) {
  const Applies of_output = [](const Case& c) {
    return RowOf(c.op).x_qparams && HasOutQParams(c.op) && IsCode(c.out_dtype);
  };
  for (const Parameters& to : kParameters) {
    rows.push_back({Stage::kScale, Kind::kRounding, fmt::format("{} ignored", to.scale),
                    fmt::format("takes the {} for 1", to.scale), Always, [to](Stages& s) {
                      bool changes = false;
                      for (float& scale : (s.c.*to.q).scale) changes |= Replace(scale, 1.0f);
                      return changes;
                    }});
    const bool divides = to.q == &Case::out_q;
    rows.push_back({Stage::kScale, Kind::kRounding, fmt::format("{} twice", to.scale),
                    fmt::format("{} by the {} twice", divides ? "divides" : "multiplies", to.scale),
                    Always, [to](Stages& s) {
                      bool changes = false;
                      for (float& scale : (s.c.*to.q).scale) {
                        if (!std::isnormal(scale * scale)) return false;
                        changes |= Replace(scale, scale * scale);
                      }
                      return changes;
                    }});
    for (const Parameters& from : kParameters) {
      const bool to_output = to.q == &Case::out_q, from_output = from.q == &Case::out_q;
      if (to.q == from.q) continue;
      // Two inputs of an operation, and x for the output, have rows of their own.
      const Applies applies = to_output || from_output
                                  ? of_output
                                  : Applies([](const Case& c) { return HasWeights(c.op); });
      rows.push_back(
          {Stage::kScale, Kind::kIndex, fmt::format("{} in place of the {}", from.scale, to.scale),
           fmt::format("takes the {} in place of the {}", from.scale, to.scale), applies,
           [to, from](Stages& s) { return TakeFirst((s.c.*to.q).scale, (s.c.*from.q).scale); }});
      if (!to_output && !from_output) continue;
      if (to_output && from.q == &Case::x_q) continue;
      rows.push_back(
          {to_output ? Stage::kClamp : Stage::kOffset, Kind::kZeroPoint,
           fmt::format("{} in place of the {}", from.zero_point, to.zero_point),
           fmt::format("takes the {} in place of the {}", from.zero_point, to.zero_point),
           of_output, [to, from](Stages& s) {
             return TakeFirst((s.c.*to.q).zero_point, (s.c.*from.q).zero_point);
           }});
    }
  }
}

// ---- A number per channel, indexed by the row.

void AddOfRows(std::vector<Cause>& rows) {
  const auto by_row = [&](Kind kind, std::string_view what, auto reindex) {
    rows.push_back(
        {Stage::kGeometry, kind, fmt::format("{} of channel m % N", what),
         fmt::format("takes the {} of row m from channel m % N, whatever the column", what),
         [](const Case& c) { return c.N > 1 && !HasWindow(c.op) && !RowOf(c.op).dynamic; },
         [reindex](Stages& s) {
           const auto edit = [reindex](Case& c, int64_t row) {
             return reindex(c, [row](int64_t, int64_t count) { return row % count; });
           };
           Case any = s.c;  // whether any row has other numbers
           bool changes = false;
           for (int64_t m = 0; m < std::min(s.c.M, s.c.N) && !changes; ++m) changes = edit(any, m);
           s.edit_row = edit;
           return changes;
         }});
  };
  by_row(Kind::kIndex, "bias", [](Case& c, const auto& at) {
    const bool real = Reindex(c.bias, at);
    return Reindex(c.bias_i32, at) || real;
  });
  const auto zero_points = [](Case& c, const auto& at) {
    bool changes = false;
    for (QParams* q : {&c.x_q, &c.w_q, &c.out_q}) changes |= Reindex(q->zero_point, at);
    return changes;
  };
  by_row(Kind::kIndex, "scale", [](Case& c, const auto& at) { return ReindexScales(c, at); });
  by_row(Kind::kIndex, "zero point", zero_points);
  by_row(Kind::kIndex, "scale and zero point", [zero_points](Case& c, const auto& at) {
    const bool scales = ReindexScales(c, at);
    return zero_points(c, at) && scales;
  });
}

// ---- Codes of another row, column, channel or image.

struct From {
  std::string text;
  std::function<int64_t(int64_t i, int64_t count)> at;
  int64_t more_than = 1;
  double bits = Cause::kBitsOfFamily;
};

// The places from which line i of `count` may be taken; `i` in their names.
std::vector<From> Lines(std::string_view what) {
  std::vector<From> all{
      {fmt::format("{} 0", what), [](int64_t, int64_t) { return int64_t{0}; }},
      {fmt::format("the {} before", what),
       [](int64_t i, int64_t) { return std::max<int64_t>(i - 1, 0); }},
      {fmt::format("the next {}", what),
       [](int64_t i, int64_t count) { return std::min(i + 1, count - 1); }},
      {fmt::format("the last {}", what), [](int64_t, int64_t count) { return count - 1; }},
      {fmt::format("the opposite {}", what),
       [](int64_t i, int64_t count) { return count - 1 - i; }},
      {fmt::format("the other {} of a pair", what),
       [](int64_t i, int64_t count) { return (i ^ 1) < count ? i ^ 1 : i; }, 1,
       Cause::kBitsOfRare}};
  for (const int64_t lanes : {2, 4, 8, 16}) {
    all.push_back({fmt::format("{} i % {}", what, lanes),
                   [lanes](int64_t i, int64_t) { return i % lanes; }, lanes, Cause::kBitsOfRare});
    all.push_back({fmt::format("{} i - i % {}", what, lanes),
                   [lanes](int64_t i, int64_t) { return i - i % lanes; }, 1, Cause::kBitsOfRare});
    all.push_back({fmt::format("{} i - {}", what, lanes),
                   [lanes](int64_t i, int64_t) { return i < lanes ? i : i - lanes; }, lanes,
                   Cause::kBitsOfRare});
  }
  return all;
}

bool HasElements(const Case& c) { return RowOf(c.op).layout == Layout::kElements; }

void AddLines(std::vector<Cause>& rows) {
  const auto taken = [&](const From& from, std::string_view what, std::string_view line,
                         Applies applies, auto size, auto change) {
    rows.push_back(
        {Stage::kGeometry, Kind::kIndex, fmt::format("{} of {}", what, from.text),
         fmt::format("takes the {} of {} i from {}", what, line, from.text),
         [=, more = from.more_than](const Case& c) { return applies(c) && size(c) > more; },
         [=, at = from.at](Stages& s) { return change(s, at); }, from.bits});
  };
  struct Operand {
    std::string_view what;
    Tensor Case::* tensor;
    bool (*applies)(const Case& c);
  };
  constexpr std::array kOperands{
      Operand{"{x_codes}", &Case::x, [](const Case&) { return true; }},
      Operand{"{w_codes}", &Case::w, [](const Case& c) { return HasTwoOperands(c.op); }}};
  for (const Operand& operand : kOperands) {
    for (const From& from : Lines("row")) {
      taken(
          from, operand.what, "row",
          [operand](const Case& c) {
            const Layout layout = RowOf(c.op).layout;
            return operand.applies(c) &&
                   (layout == Layout::kElements || layout == Layout::kProducts);
          },
          [](const Case& c) { return c.M; },
          [operand](Stages& s, const auto& at) {
            const int64_t count = s.c.M, length = (s.c.*operand.tensor).size() / count;
            return Rearrange(s.c.*operand.tensor, [&](int64_t i) {
              return at(i / length, count) * length + i % length;
            });
          });
    }
    for (const From& from : Lines("column")) {
      taken(
          from, operand.what, "column",
          [operand](const Case& c) { return operand.applies(c) && HasElements(c); },
          [](const Case& c) { return c.N; },
          [operand](Stages& s, const auto& at) {
            const int64_t count = s.c.N;
            return Rearrange(s.c.*operand.tensor,
                             [&](int64_t i) { return i - i % count + at(i % count, count); });
          });
    }
  }
  for (const From& from : Lines("channel")) {
    taken(
        from, "weights", "channel", [](const Case& c) { return HasWeights(c.op); },
        [](const Case& c) { return c.N; },
        [](Stages& s, const auto& at) {
          const int64_t count = s.c.N, length = s.c.w.size() / count;
          return Rearrange(s.c.w,
                           [&](int64_t i) { return at(i / length, count) * length + i % length; });
        });
  }
  for (const From& from : Lines("image")) {
    if (from.text == "image 0") continue;  // has a row of its own
    taken(
        from, "pixels", "image", [](const Case& c) { return HasWindow(c.op); },
        [](const Case& c) { return c.window.batch; },
        [](Stages& s, const auto& at) {
          const int64_t count = s.c.window.batch, length = s.c.x.size() / count;
          return Rearrange(s.c.x,
                           [&](int64_t i) { return at(i / length, count) * length + i % length; });
        });
  }
  // What is stored is the output of another column, with its weights and all its parameters.
  for (const From& from : Lines("column")) {
    taken(
        from, "output", "column",
        [](const Case& c) { return HasTwoOperands(c.op) || HasWeights(c.op); },
        [](const Case& c) { return c.N; },
        [](Stages& s, const auto& at) {
          s.stored_from = [at, count = s.c.N](int64_t i) {
            return i - i % count + at(i % count, count);
          };
          return true;
        });
  }
  // A pack of two vectors of 256 bits works in halves: vpermq has to put the quarters in order.
  for (const int64_t lanes : {16, 32}) {
    rows.push_back(
        {Stage::kGeometry, Kind::kIndex, fmt::format("pack of {} not permuted", lanes),
         fmt::format("stores outputs in the order in which a 256-bit pack leaves them: "
                     "of each {} the second quarter and the third are exchanged",
                     lanes),
         [lanes](const Case& c) { return c.N >= lanes && RowOf(c.op).layout != Layout::kBatches; },
         [lanes](Stages& s) {
           s.stored_from = [lanes, count = s.c.N](int64_t i) {
             const int64_t n = i % count, quarter = n % lanes / (lanes / 4);
             if (n >= count / lanes * lanes || quarter == 0 || quarter == 3) return i;
             return quarter == 1 ? i + lanes / 4 : i - lanes / 4;
           };
           return true;
         }});
  }
  // Of stage kClamp, where 0 may be an end of the type.
  rows.push_back({Stage::kClamp, Kind::kIndex, "0 stored", "stores 0 instead of the output",
                  [](const Case& c) { return !RowOf(c.op).qparams; },
                  [](Stages& s) {
                    s.stored_from = [](int64_t) { return int64_t{-1}; };
                    return true;
                  },
                  Cause::kBitsOfRare});
}

// ---- Layouts.

void AddLayouts(std::vector<Cause>& rows) {
  // The weights of one channel in another order.
  const auto order = [&](std::string name, std::string sentence, Applies applies, auto term) {
    rows.push_back({Stage::kOperands, Kind::kIndex, std::move(name), std::move(sentence),
                    std::move(applies), [term](Stages& s) {
                      return Rearrange(s.c.w, [&](int64_t i) {
                        const int64_t k = i % s.c.K;
                        return i - k + term(s.c, k);
                      });
                    }});
  };
  const auto taps = [&](std::string name, std::string sentence, bool (*applies)(const Window&),
                        auto tap) {
    order(
        std::move(name), std::move(sentence),
        [applies](const Case& c) { return IsConv(c.op) && applies(c.window); },
        [tap](const Case& c, int64_t k) {
          const Window& v = c.window;
          const int64_t channels = v.in_c / v.groups, at = k / channels;
          return tap(v, at / v.kernel_w, at % v.kernel_w) * channels + k % channels;
        });
  };
  taps(
      "columns of the kernel reversed", "takes the columns of the kernel from right to left",
      [](const Window& v) { return v.kernel_w > 1; },
      [](const Window& v, int64_t r, int64_t s) { return r * v.kernel_w + v.kernel_w - 1 - s; });
  taps(
      "rows of the kernel reversed", "takes the rows of the kernel from bottom to top",
      [](const Window& v) { return v.kernel_h > 1; },
      [](const Window& v, int64_t r, int64_t s) { return (v.kernel_h - 1 - r) * v.kernel_w + s; });
  taps(
      "kernel reversed",
      "takes the weights of the taps from the last to the first (the kernel is flipped)",
      [](const Window& v) { return v.kernel_h > 1 && v.kernel_w > 1; },
      [](const Window& v, int64_t r, int64_t s) {
        return (v.kernel_h - 1 - r) * v.kernel_w + v.kernel_w - 1 - s;
      });
  taps(
      "kernel by columns", "reads the kernel column by column, not row by row (it is transposed)",
      [](const Window& v) { return v.kernel_h > 1 && v.kernel_w > 1; },
      [](const Window& v, int64_t r, int64_t s) {
        // The tap (r, s) of a kernel that lies column by column.
        return s * v.kernel_h + r;
      });
  order(
      "weights by channels", "reads the weights of a channel as if its input channels came first",
      [](const Case& c) {
        const Window& v = c.window;
        return c.op == Op::kConv2d && v.in_c > v.groups && v.kernel_h * v.kernel_w > 1;
      },
      [](const Case& c, int64_t k) {
        const int64_t channels = c.window.in_c / c.window.groups;
        return k % channels * (c.K / channels) + k / channels;
      });
  order(
      "weights of a sum reversed", "takes the weights of a sum from the last to the first",
      [](const Case& c) { return HasWeights(c.op) && !IsConv(c.op) && c.K > 1; },
      [](const Case& c, int64_t k) { return c.K - 1 - k; });
  rows.push_back(
      {Stage::kOperands, Kind::kIndex, "weights transposed",
       "reads the weights as if output channels lay side by side (they are transposed)",
       [](const Case& c) { return HasWeights(c.op) && c.w_block == 0 && c.N > 1 && c.K > 1; },
       [](Stages& s) {
         const int64_t terms = s.c.K, channels = s.c.N;
         return Rearrange(s.c.w, [=](int64_t i) { return i % terms * channels + i / terms; });
       }});
  rows.push_back(
      {Stage::kGeometry, Kind::kIndex, "input transposed",
       "reads the input as if its rows lay side by side (it is transposed)",
       [](const Case& c) { return RowOf(c.op).layout == Layout::kProducts && c.M > 1 && c.K > 1; },
       [](Stages& s) {
         const int64_t terms = s.c.K, count = s.c.M;
         return Rearrange(s.c.x, [=](int64_t i) { return i % terms * count + i / terms; });
       }});
  rows.push_back({Stage::kGeometry, Kind::kIndex, "image by channels",
                  "reads the image as if its channels came first (NCHW)",
                  [](const Case& c) {
                    const Window& v = c.window;
                    return HasWindow(c.op) && v.in_c > 1 && v.in_h * v.in_w > 1;
                  },
                  [](Stages& s) {
                    const Window& v = s.c.window;
                    const int64_t pixels = v.in_h * v.in_w, channels = v.in_c;
                    return Rearrange(s.c.x, [=](int64_t i) {
                      const int64_t image = i / (pixels * channels), at = i % (pixels * channels);
                      return image * pixels * channels + at % channels * pixels + at / channels;
                    });
                  }});
  // A row that ends in the middle of a block lies in a buffer of whole blocks. 0: of the blocks
  // that have scales of their own.
  for (const int64_t length : {0, 4, 8, 16, 32, 64}) {
    const auto of = [length](const Case& c) { return length == 0 ? int64_t{c.w_block} : length; };
    const std::string what =
        length == 0 ? "whole blocks" : fmt::format("whole blocks of {}", length);
    for (const bool filled : {true, false}) {
      rows.push_back(
          {Stage::kOperands, Kind::kIndex,
           fmt::format("codes of weights in rows of {}{}", what,
                       filled ? ", read at a stride of K" : " that are not filled up"),
           filled ? fmt::format("fills the rows of weights up to {}, and reads them at a stride of "
                                "K, in the zero-point sums too",
                                what)
                  : fmt::format("reads the rows of weights, which lie at a stride of K, at one of "
                                "{}, in the zero-point sums too",
                                what),
           [of](const Case& c) {
             return HasWeights(c.op) && of(c) != 0 && c.N > 1 && c.K % of(c) != 0;
           },
           [of, filled](Stages& s) {
             const Tensor old = s.c.w;
             const int64_t columns = s.c.K, whole = (columns + of(s.c) - 1) / of(s.c) * of(s.c);
             for (int64_t i = 0; i < old.size(); ++i) {
               const int64_t at = AtOtherStride(i / columns, i % columns, columns, whole, filled);
               s.c.w.SetInt(i, at < 0 || at >= old.size() ? 0 : old.IntAt(at));
             }
             return s.c.w != old;
           },
           length == 0 ? Cause::kBitsOfFamily : Cause::kBitsOfRare});
    }
  }
  // Two weights share a byte, and one of them is read with the other sign.
  for (const bool high : {true, false}) {
    for (const bool is_signed : {true, false}) {
      const std::string_view half = high ? "high" : "low";
      rows.push_back(
          {Stage::kOperands, Kind::kIndex,
           fmt::format("{} half of a byte {} sign", half, is_signed ? "without" : "with"),
           fmt::format("reads the weights in the {} half of a byte {} sign", half,
                       is_signed ? "without their" : "as if they had a"),
           [is_signed](const Case& c) {
             return c.w.dtype() == (is_signed ? DType::kS4 : DType::kU4);
           },
           [high, is_signed](Stages& s) {
             const Tensor packed = s.c.w;
             Tensor read(DType::kS8, packed.shape());
             bool changes = false;
             for (int64_t i = 0; i < packed.size(); ++i) {
               int32_t w = packed.IntAt(i);
               const bool other = (i % 2 == 1) == high && (is_signed ? w < 0 : w > 7);
               if (other) w += is_signed ? 16 : -16;
               changes |= other;
               read.SetInt(i, w);
             }
             s.c.w = std::move(read);
             return changes;
           }});
    }
  }
  struct Halves {
    std::string_view what;
    Tensor Case::* codes;
  };
  for (const auto& [what, codes] : {Halves{"weights", &Case::w}, Halves{"{x_codes}", &Case::x}}) {
    rows.push_back({Stage::kOperands, Kind::kIndex, fmt::format("low half of {} not masked", what),
                    fmt::format("reads the whole byte for those of the {} in its low half", what),
                    [codes](const Case& c) {
                      const DType type = (c.*codes).dtype();
                      return type == DType::kS4 || type == DType::kU4;
                    },
                    [codes](Stages& s) {
                      const Tensor packed = s.c.*codes;
                      const bool is_signed = packed.dtype() == DType::kS4;
                      Tensor read(is_signed ? DType::kS8 : DType::kU8, packed.shape());
                      for (int64_t i = 0; i < packed.size(); ++i) {
                        const bool low = i % 2 == 0 && i + 1 < packed.size();
                        const int32_t code = packed.IntAt(i);
                        read.SetInt(i, low ? (code & 15) + 16 * packed.IntAt(i + 1) : code);
                      }
                      s.c.*codes = std::move(read);
                      return Validate(s.c).empty();
                    }});
  }
  // (word ^ 0x08080808) - 0x08080808 of four weights, one in each byte.
  rows.push_back({Stage::kOperands, Kind::kIndex, "sign borrows",
                  "extends the signs of four weights in one 32-bit difference, in which a negative "
                  "one borrows 1 from the weight two places behind it",
                  [](const Case& c) { return SumsOfCodes(c) && c.w.dtype() == DType::kS4; },
                  [](Stages& s) {
                    constexpr int64_t kWord = 8, kNext = 2;
                    const Tensor packed = s.c.w;
                    Tensor read(DType::kS8, packed.shape());
                    bool changes = false;
                    for (int64_t i = 0; i < packed.size(); ++i) {
                      const int64_t k = i % s.c.K;
                      const bool borrowed = k % kWord >= kNext && read.IntAt(i - kNext) < 0;
                      changes |= borrowed;
                      read.SetInt(i, packed.IntAt(i) - (borrowed ? 1 : 0));
                    }
                    s.c.w = std::move(read);
                    return changes;
                  },
                  Cause::kBitsOfRare});
}

// ---- Edges and paddings of an image.

void AddEdges(std::vector<Cause>& rows) {
  struct Edge {
    std::string_view what;
    bool (*is_at)(const Window& v, int64_t y, int64_t x);
  };
  constexpr std::array kEdges{
      Edge{"first row", [](const Window&, int64_t y, int64_t) { return y == 0; }},
      Edge{"last row", [](const Window& v, int64_t y, int64_t) { return y == v.in_h - 1; }},
      Edge{"first column", [](const Window&, int64_t, int64_t x) { return x == 0; }},
      Edge{"last column", [](const Window& v, int64_t, int64_t x) { return x == v.in_w - 1; }}};
  for (const Edge& edge : kEdges) {
    rows.push_back(
        {Stage::kPadding, Kind::kPadding, fmt::format("{} of the image left out", edge.what),
         fmt::format("leaves the {} of the image out of each window", edge.what),
         [](const Case& c) { return HasWindow(c.op); },
         [edge](Stages& s) {
           const Window& v = s.c.window;
           const Tensor old = s.c.x;
           const int32_t nothing =
               s.c.op == Op::kMaxPool ? RangeOf(old.dtype()).min : s.c.x_q.zero_point_at(0);
           if (!IsCode(old.dtype()) ||
               nothing != std::clamp(nothing, RangeOf(old.dtype()).min, RangeOf(old.dtype()).max))
             return false;
           for (int64_t i = 0; i < old.size(); ++i) {
             const int64_t pixel = i / v.in_c;
             if (edge.is_at(v, pixel / v.in_w % v.in_h, pixel % v.in_w)) s.c.x.SetInt(i, nothing);
           }
           return s.c.x != old;
         }});
  }
}

// ---- Sums of pools.

// Adds numbers one by one as `keep` keeps each sum.
int64_t AddKept(std::span<const int32_t> codes, int64_t less, int64_t (*keep)(int64_t)) {
  int64_t sum = 0;
  for (const int32_t code : codes) sum = keep(sum + code - less);
  return sum;
}

template <int kBits>
int64_t InFloatOf(int64_t value) {
  int exponent = 0;
  const double mantissa = std::ldexp(std::frexp(static_cast<double>(value), &exponent), kBits);
  return static_cast<int64_t>(std::ldexp(std::nearbyint(mantissa), exponent - kBits));
}

template <int64_t (*kKeep)(int64_t)>
void AddCodes(PoolWindow& window) {
  window.sum = AddKept(window.codes, 0, kKeep);
}
template <int64_t (*kKeep)(int64_t)>
void AddDifferences(PoolWindow& window) {
  window.sum = AddKept(window.codes, window.zero_point, kKeep);
  window.terms = 0;
}

template <int64_t kLanes, bool kDifferences>
void AddWhole(PoolWindow& window) {
  const auto all = std::ssize(window.codes);
  if (all <= kLanes) return;
  for (int64_t i = all - all % kLanes; i < all; ++i)
    window.sum -= window.codes[static_cast<size_t>(i)];
  if (kDifferences) window.terms -= all % kLanes;
}

template <int64_t kLanes>
void SubtractWhole(PoolWindow& window) {
  if (window.terms > kLanes) window.terms -= window.terms % kLanes;
}

template <int kBy>
void DivideByOther(PoolWindow& window) {
  window.divisor = std::max<int64_t>(window.divisor + kBy, 1);
}

template <auto kSide>
void DivideBySide(PoolWindow& window) {
  window.divisor = window.*kSide;
}

template <auto kSide>
void DivideBySquare(PoolWindow& window) {
  window.divisor = window.*kSide * window.*kSide;
}

void AddPools(std::vector<Cause>& rows) {
  const auto pool = [&](Stage stage, Kind kind, std::string name, std::string sentence,
                        void (*hook)(PoolWindow&), double bits = Cause::kBitsOfFamily) {
    rows.push_back(
        {stage, kind, std::move(name), std::move(sentence),
         [](const Case& c) { return c.op == Op::kAvgPool || c.op == Op::kGlobalAvgPool; },
         [hook](Stages& s) {
           s.pool.under_window = hook;
           return true;
         },
         bits});
  };
  const auto kept = [&](std::string_view how, void (*codes)(PoolWindow&),
                        void (*differences)(PoolWindow&)) {
    const Kind kind = how.find("float") != how.npos ? Kind::kRounding : Kind::kInt32Overflow;
    pool(Stage::kAccumulate, kind, fmt::format("codes added one by one in {}", how),
         fmt::format("adds the codes one by one in {}", how), codes);
    pool(Stage::kAccumulate, kind, fmt::format("differences added one by one in {}", how),
         fmt::format("adds the codes less the zero point one by one in {}", how), differences);
  };
  kept("an int16 that saturates", AddCodes<Saturated<int16_t>>, AddDifferences<Saturated<int16_t>>);
  kept("a uint16 that saturates", AddCodes<Saturated<uint16_t>>,
       AddDifferences<Saturated<uint16_t>>);
  kept("a float16", AddCodes<InFloatOf<11>>, AddDifferences<InFloatOf<11>>);
  kept("a bfloat16", AddCodes<InFloatOf<8>>, AddDifferences<InFloatOf<8>>);
  const auto tails = [&](int64_t lanes, void (*terms)(PoolWindow&), void (*codes)(PoolWindow&),
                         void (*offset)(PoolWindow&)) {
    const std::string behind = fmt::format("that are left behind whole groups of {}", lanes);
    pool(Stage::kAccumulate, Kind::kTail, fmt::format("average without its tail of {}", lanes),
         fmt::format("leaves out of an average the pixels {}", behind), terms);
    pool(Stage::kAccumulate, Kind::kTail, fmt::format("sum of codes without its tail of {}", lanes),
         fmt::format("leaves the codes {} out of their sum, and not their zero points", behind),
         codes);
    pool(Stage::kXZeroPoint, Kind::kZeroPoint,
         fmt::format("zero points without a tail of {}", lanes),
         fmt::format("does not subtract the zero points of codes {}", behind), offset);
  };
  tails(2, AddWhole<2, true>, AddWhole<2, false>, SubtractWhole<2>);
  tails(4, AddWhole<4, true>, AddWhole<4, false>, SubtractWhole<4>);
  tails(8, AddWhole<8, true>, AddWhole<8, false>, SubtractWhole<8>);
  tails(16, AddWhole<16, true>, AddWhole<16, false>, SubtractWhole<16>);
  tails(32, AddWhole<32, true>, AddWhole<32, false>, SubtractWhole<32>);
  const auto divisor = [&](std::string_view name, std::string_view what,
                           void (*hook)(PoolWindow&)) {
    rows.push_back(
        {Stage::kPadding, Kind::kPadding, fmt::format("divisor {}", name),
         fmt::format("divides by {}", what),
         [](const Case& c) { return c.op == Op::kAvgPool || c.op == Op::kGlobalAvgPool; },
         [hook](Stages& s) {
           s.pool.window_padding = hook;
           return true;
         }});
  };
  divisor("one too many", "one too many", DivideByOther<1>);
  divisor("one too few", "one too few", DivideByOther<-1>);
  divisor("height", "the height of the window alone", DivideBySide<&PoolWindow::height>);
  divisor("width", "the width of the window alone", DivideBySide<&PoolWindow::width>);
  divisor("height squared", "the height of the window squared",
          DivideBySquare<&PoolWindow::height>);
  divisor("width squared", "the width of the window squared", DivideBySquare<&PoolWindow::width>);
}

// ---- Elements of two operands.

void AddOperands(std::vector<Cause>& rows) {
  rows.push_back({Stage::kOperands, Kind::kIndex, "difference the other way round",
                  "subtracts a from b", [](const Case& c) { return c.op == Op::kSub; },
                  [](Stages& s) {
                    std::swap(s.c.x, s.c.w);
                    std::swap(s.c.x_q, s.c.w_q);
                    return true;
                  }});
  for (const auto& [op, name, sentence] :
       {std::tuple{Op::kSub, "sum in place of the difference", "adds b instead of subtracting it"},
        {Op::kAdd, "difference in place of the sum", "subtracts b instead of adding it"}}) {
    rows.push_back({Stage::kOperands, Kind::kIndex, name, sentence,
                    [op](const Case& c) { return c.op == op; },
                    [other = op == Op::kSub ? Op::kAdd : Op::kSub](Stages& s) {
                      s.c.op = other;
                      return true;
                    }});
  }
}

// ---- Ratios of scales with some bits behind the point.

enum class Ties : uint8_t { kEven, kUp, kAway, kCut };

template <Ties kTies>
long double Rounded(long double value) {
  switch (kTies) {
    case Ties::kEven: return std::nearbyint(value);
    case Ties::kUp: return std::floor(value + 0.5L);
    case Ties::kAway: return std::round(value);
    case Ties::kCut: return std::trunc(value);
  }
}

template <int kBits, Ties kTies>
RoundedOutput RatioInBits(const RealOutput& o) {
  const Factors f = FactorsOf(o);
  const auto ratio = [](double exact) -> long double {
    return std::nearbyint(std::ldexp(exact, kBits));
  };
  long double value = static_cast<long double>(f.sum) * ratio(f.multiplier / f.y / f.divisor);
  if (AddsOperands(o.c.op)) {
    const double scale = o.c.w_q.scale_at(0);
    value += static_cast<long double>(f.offset / scale) * ratio(scale / f.y);
  } else {
    value += std::ldexp(static_cast<long double>(f.offset / f.y), kBits);
  }
  return {static_cast<double>(Rounded<kTies>(std::ldexp(value, -kBits)))};
}

// Both operands as integers with kBits behind the point, in units of twice the larger scale, as
// TFLite does with 20 bits; the sum is exact.
template <int kBits, Ties kTies>
RoundedOutput OperandsInBits(const RealOutput& o) {
  const Factors f = FactorsOf(o);
  const auto unit = static_cast<long double>(
      std::ldexp(std::max(o.c.x_q.scale_at(0), o.c.w_q.scale_at(0)), 1 - kBits));
  const auto in_units = [&](long double real) { return Rounded<kTies>(real / unit); };
  const long double sum = in_units(static_cast<long double>(f.sum) * f.multiplier) +
                          in_units(static_cast<long double>(f.offset));
  return {static_cast<double>(std::nearbyint(sum * unit / static_cast<long double>(f.y)))};
}

template <Ties kTies, int... kBits>
void AddRatios(std::vector<Cause>& rows, std::string_view ties, std::string_view sentence,
               std::integer_sequence<int, kBits...>) {
  (rows.push_back(
       {Stage::kRound, Kind::kRounding, fmt::format("ratio of scales to {} bits, {}", kBits, ties),
        fmt::format("rounds the ratio of scales to {} bits behind the point, and {}", kBits,
                    sentence),
        [](const Case& c) {
          return IsCode(c.out_dtype) && HasOutQParams(c.op) && c.requant == Requant::kExact &&
                 (RowOf(c.op).x_qparams || c.op == Op::kRequantize) && !RowOf(c.op).function;
        },
        [](Stages& s) {
          s.codes.round = RatioInBits<kBits, kTies>;
          return true;
        },
        Cause::kBitsOfRare}),
   ...);
}

template <Ties kTies, int... kBits>
void AddOperandsInBits(std::vector<Cause>& rows, std::string_view ties, std::string_view sentence,
                       std::integer_sequence<int, kBits...>) {
  (rows.push_back({Stage::kRound, Kind::kRounding,
                   fmt::format("operands to {} bits, {}", kBits, ties),
                   fmt::format("rounds both inputs to 2^-{} of twice the larger scale, and {}",
                               kBits, sentence),
                   [](const Case& c) { return AddsOperands(c.op) && IsCode(c.out_dtype); },
                   [](Stages& s) {
                     s.codes.round = OperandsInBits<kBits, kTies>;
                     return true;
                   },
                   Cause::kBitsOfRare}),
   ...);
}

void AddRatiosOfScales(std::vector<Cause>& rows) {
  using Bits = std::integer_sequence<int, 7, 8, 10, 12, 14, 15, 16, 20, 22, 24>;
  AddRatios<Ties::kEven>(rows, "half to even", "ties to even", Bits());
  AddRatios<Ties::kUp>(rows, "half up", "ties up", Bits());
  AddRatios<Ties::kAway>(rows, "half away", "ties away from zero", Bits());
  AddRatios<Ties::kCut>(rows, "cut", "cuts the product", Bits());
  using Shifts = std::integer_sequence<int, 4, 5, 6, 7, 8, 10, 12, 15>;
  AddOperandsInBits<Ties::kEven>(rows, "half to even", "ties to even", Shifts());
  AddOperandsInBits<Ties::kAway>(rows, "half away", "ties away from zero", Shifts());
  AddOperandsInBits<Ties::kCut>(rows, "cut", "cuts them", Shifts());
}

// ---- Casts between float types: numbers that are moved before the cast.

// Each number by another one of the type of x; whether one changes. `by` gets its value and code.
bool MoveNumbers(Case& c, const std::function<uint32_t(double value, uint32_t code)>& by) {
  bool changes = false;
  for (int64_t i = 0; i < c.x.size(); ++i) {
    const uint32_t code = c.x.BitsAt(i), moved = by(DecodeFloat(c.x.dtype(), code), code);
    changes |= moved != code;
    c.x.SetBits(i, moved);
  }
  return changes;
}
// The neighbours of a magnitude in a type; the one beyond the largest is infinite.
std::pair<double, double> Neighbours(DType dtype, double magnitude) {
  const auto at = [&](FloatRounding rounding) {
    return DecodeFloat(dtype, EncodeFloat(dtype, magnitude, rounding, FloatOverflow::kInfinity));
  };
  return {at(FloatRounding::kTowardZero), at(FloatRounding::kUp)};
}
bool IsHalfWay(DType dtype, double value) {
  const auto [low, high] = Neighbours(dtype, std::abs(value));
  return low < high && std::isfinite(high) && std::abs(value) - low == high - std::abs(value);
}
// Of the sign of the value, where the type has a -0: in others that pattern is NaN.
uint32_t ZeroLike(DType dtype, double value) {
  return EncodeFloat(dtype, std::copysign(0.0, value));
}
double LeastNormal(DType dtype) {
  return DecodeFloat(dtype, 1u << InfoOf(dtype).floating.fraction_bits);
}

constexpr double kOfCasts = 6;  // few of all causes apply to a cast

void AddCasts(std::vector<Cause>& rows) {
  const auto cast = [&](Stage stage, Kind kind, std::string name, std::string sentence,
                        std::function<bool(const Case&)> applies,
                        std::function<uint32_t(const Case&, double, uint32_t)> by,
                        double bits = kOfCasts) {
    rows.push_back({stage, kind, std::move(name), std::move(sentence),
                    [applies = std::move(applies)](const Case& c) {
                      return c.op == Op::kCast && IsFloat(c.x.dtype()) && IsFloat(c.out_dtype) &&
                             applies(c);
                    },
                    [by = std::move(by)](Stages& s) {
                      if (IsScaledCast(s.c)) {
                        bool all_exact = true;
                        Case plain = WithQuotients(s.c, &all_exact);
                        if (!all_exact) return false;  // no x would stand for what is rounded
                        s.c = std::move(plain);
                      }
                      return MoveNumbers(
                          s.c, [&](double value, uint32_t code) { return by(s.c, value, code); });
                    },
                    bits});
  };
  const auto to_nearest = [](const Case& c) { return c.rounding == FloatRounding::kNearestEven; };
  // A number half way becomes its neighbour in the output type on the side to which it is rounded.
  const auto ties = [&](std::string_view where, double bits, auto is_larger) {
    cast(
        Stage::kRound, Kind::kTie, fmt::format("cast ties {}", where),
        fmt::format("rounds ties {}", where), to_nearest,
        [is_larger](const Case& c, double value, uint32_t code) {
          if (!IsHalfWay(c.out_dtype, value)) return code;
          const auto [low, high] = Neighbours(c.out_dtype, std::abs(value));
          const double next = std::copysign(is_larger(value) ? high : low, value);
          // Beyond the largest number of x there is none to move to.
          return CodeOf(c.x.dtype(), static_cast<float>(next)).value_or(code);
        },
        bits);
  };
  ties("away from zero", 4, [](double) { return true; });
  ties("toward zero", kOfCasts, [](double) { return false; });
  ties("up", kOfCasts, [](double value) { return value > 0; });
  ties("down", kOfCasts, [](double value) { return value < 0; });
  cast(Stage::kRound, Kind::kRounding, "cast away from zero", "rounds away from zero", to_nearest,
       [](const Case& c, double value, uint32_t code) {
         const double high = Neighbours(c.out_dtype, std::abs(value)).second;
         if (!std::isfinite(high) || std::isnan(value)) return code;
         return EncodeFloat(c.x.dtype(), std::copysign(high, value));
       });
  for (const auto& [type, name] : {std::pair{DType::kF16, "float16"}, {DType::kBF16, "bfloat16"}}) {
    cast(
        Stage::kOperands, Kind::kRounding, fmt::format("cast through {}", name),
        fmt::format("rounds to {} first", name),
        [](const Case& c) { return BitsOf(c.out_dtype) < 16; },
        [type](const Case& c, double value, uint32_t code) {
          if (std::isnan(value)) return code;
          return EncodeFloat(c.x.dtype(), DecodeFloat(type, EncodeFloat(type, value)));
        });
  }
  for (const int more : {1, 2, 3, 4, 5, 6, 8, 10, 12}) {
    const auto cut_bits = [more](const Case& c) {
      return InfoOf(c.x.dtype()).floating.fraction_bits -
             InfoOf(c.out_dtype).floating.fraction_bits - more;
    };
    cast(
        Stage::kOperands, Kind::kRounding, fmt::format("cast of {} more bits", more),
        fmt::format("rounds by {} bit{} behind the last one kept, and drops those that follow",
                    more, more == 1 ? "" : "s"),
        [=](const Case& c) { return to_nearest(c) && cut_bits(c) > 0; },
        [cut_bits](const Case& c, double value, uint32_t code) {
          return std::isfinite(value) ? code >> cut_bits(c) << cut_bits(c) : code;
        });
    rows.back().bits = Cause::kBitsOfRare;
  }
  const auto always = [](const Case&) { return true; };
  const auto has_digits = [](DType dtype) { return InfoOf(dtype).floating.fraction_bits > 0; };
  cast(
      Stage::kClamp, Kind::kRounding, "cast flushes subnormals",
      "gives 0 where the result is subnormal",
      [has_digits](const Case& c) { return has_digits(c.out_dtype); },
      [](const Case& c, double value, uint32_t code) {
        const uint32_t given = EncodeFloat(c.out_dtype, value, c.rounding, c.overflow);
        const double result = std::abs(DecodeFloat(c.out_dtype, given));
        return result < LeastNormal(c.out_dtype) ? ZeroLike(c.x.dtype(), value) : code;
      },
      4);
  cast(
      Stage::kOperands, Kind::kRounding, "cast of subnormals as 0", "takes subnormal inputs for 0",
      [has_digits](const Case& c) { return has_digits(c.x.dtype()); },
      [](const Case& c, double value, uint32_t code) {
        return std::abs(value) < LeastNormal(c.x.dtype()) ? ZeroLike(c.x.dtype(), value) : code;
      });
  cast(
      Stage::kIndex, Kind::kRounding, "cast loses the sign of 0", "gives 0 where -0 is right",
      [](const Case& c) { return SignOf(c.out_dtype) != 0; },
      [](const Case& c, double value, uint32_t code) {
        const uint32_t given = EncodeFloat(c.out_dtype, value, c.rounding, c.overflow);
        return given == SignOf(c.out_dtype) && !IsNanCode(c.out_dtype, given) ? 0 : code;
      });
  rows.push_back({Stage::kIndex, Kind::kIndex, "sign of the numbers lost",
                  "takes the magnitude of the numbers, without their signs",
                  [](const Case& c) {
                    return (c.op == Op::kCast || c.op == Op::kQuantize) && IsFloat(c.x.dtype());
                  },
                  [](Stages& s) {
                    const uint32_t sign = SignOf(s.c.x.dtype());
                    return MoveNumbers(s.c, [sign](double, uint32_t code) { return code & ~sign; });
                  }});
  cast(Stage::kClamp, Kind::kClamp, "cast saturates in the last binade",
       "gives the largest value for all numbers of the last power of two", always,
       [](const Case& c, double value, uint32_t code) {
         const double largest = DecodeFloat(c.out_dtype, LargestCode(c.out_dtype));
         const double from = std::ldexp(1.0, std::ilogb(largest));
         if (!(std::abs(value) >= from) || std::abs(value) > largest) return code;
         return EncodeFloat(c.x.dtype(), std::copysign(largest, value));
       });
  cast(Stage::kClamp, Kind::kClamp, "cast overflows before it rounds",
       "lets numbers beyond the largest value overflow, also those that round to it", to_nearest,
       [](const Case& c, double value, uint32_t code) {
         const double largest = DecodeFloat(c.out_dtype, LargestCode(c.out_dtype));
         if (!std::isfinite(value) || !(std::abs(value) > largest)) return code;
         const double beyond = DecodeFloat(c.x.dtype(), LargestCode(c.x.dtype()));
         return EncodeFloat(c.x.dtype(), std::copysign(beyond, value));
       });
  cast(Stage::kRound, Kind::kRounding, "cast loses the carry",
       "loses the carry where rounding up fills the fraction, and gives half of the power of two",
       to_nearest, [](const Case& c, double value, uint32_t code) {
         const double rounded = std::abs(DecodeFloat(c.out_dtype, EncodeFloat(c.out_dtype, value)));
         const bool carries = std::isfinite(rounded) && value != 0 &&
                              std::abs(value) >= LeastNormal(c.out_dtype) &&
                              std::ilogb(rounded) > std::ilogb(value);
         return carries ? EncodeFloat(c.x.dtype(), std::copysign(rounded / 2, value)) : code;
       });
  cast(
      Stage::kRound, Kind::kRounding, "cast up is away", "rounds away from zero where up is asked",
      [](const Case& c) { return c.rounding == FloatRounding::kUp; },
      [](const Case& c, double value, uint32_t code) {
        const double away = Neighbours(c.out_dtype, std::abs(value)).second;
        return value < 0 && std::isfinite(away) ? EncodeFloat(c.x.dtype(), -away) : code;
      });
  cast(Stage::kRound, Kind::kTie, "cast ties of the smallest up",
       "rounds half of the smallest number to it", to_nearest,
       [](const Case& c, double value, uint32_t code) {
         const double least = DecodeFloat(c.out_dtype, 1);
         return std::abs(value) == least / 2 ? EncodeFloat(c.x.dtype(), std::copysign(least, value))
                                             : code;
       });
  cast(
      Stage::kClamp, Kind::kClamp, "cast overflows one late",
      "gives the largest value also for what rounds to the first one beyond it",
      [=](const Case& c) { return to_nearest(c) && c.overflow != FloatOverflow::kSaturate; },
      [](const Case& c, double value, uint32_t code) {
        const double largest = DecodeFloat(c.out_dtype, LargestCode(c.out_dtype));
        const double step = largest - DecodeFloat(c.out_dtype, LargestCode(c.out_dtype) - 1);
        const double beyond = (std::abs(value) - largest) / step;
        return beyond >= 0.5 && beyond < 1.5
                   ? EncodeFloat(c.x.dtype(), std::copysign(largest, value))
                   : code;
      });
  // A wider exponent holds what overflows, and its end alone saturates.
  cast(
      Stage::kClamp, Kind::kClamp, "cast saturates one exponent bit late",
      "gives NaN for what overflows by less than one more bit of exponent holds, and saturates "
      "beyond that",
      [](const Case& c) {
        return c.overflow == FloatOverflow::kSaturate &&
               InfoOf(c.out_dtype).floating.exponent_bits < 7;
      },
      [](const Case& c, double value, uint32_t code) {
        const uint32_t given = EncodeFloat(c.out_dtype, value, c.rounding, FloatOverflow::kNan);
        const double beyond = std::ldexp(1.0, 1 << InfoOf(c.out_dtype).floating.exponent_bits);
        return IsNanCode(c.out_dtype, given) && std::abs(value) < beyond
                   ? EncodeFloat(c.x.dtype(), std::numeric_limits<double>::quiet_NaN())
                   : code;
      });
  cast(Stage::kClamp, Kind::kClamp, "cast of NaN as infinity", "takes NaN for infinity", always,
       [](const Case& c, double value, uint32_t code) {
         const double infinity = std::copysign(std::numeric_limits<double>::infinity(), value);
         return std::isnan(value) ? EncodeFloat(c.x.dtype(), infinity) : code;
       });
  cast(
      Stage::kRound, Kind::kRounding, "cast of powers of two to the one below",
      "gives the power of two below exact powers of two",
      [](const Case& c) { return c.out_dtype == DType::kF8E8M0FNU; },
      [](const Case& c, double value, uint32_t code) {
        const bool exact =
            value > 0 && std::isfinite(value) && value == std::ldexp(1.0, std::ilogb(value));
        return exact ? CodeOf(c.x.dtype(), static_cast<float>(value / 2)).value_or(code) : code;
      });
  // Of two types with the same exponent the cast keeps the upper bits of a number.
  const auto keeps_upper_bits = [](const Case& c) {
    return InfoOf(c.x.dtype()).floating.exponent_bits ==
               InfoOf(c.out_dtype).floating.exponent_bits &&
           InfoOf(c.x.dtype()).floating.fraction_bits > InfoOf(c.out_dtype).floating.fraction_bits;
  };
  const auto cut_bits = [](const Case& c) { return BitsOf(c.x.dtype()) - BitsOf(c.out_dtype); };
  cast(Stage::kRound, Kind::kRounding, "cast rounds NaN",
       "rounds the bits of NaN as those of a number, which may become infinity, or wrap to 0",
       keeps_upper_bits, [cut_bits](const Case& c, double value, uint32_t code) {
         if (!std::isnan(value)) return code;
         const uint32_t odd = code >> cut_bits(c) & 1;
         const uint64_t moved = uint64_t{code} + (1u << (cut_bits(c) - 1)) - 1 + odd;
         const uint64_t all = (uint64_t{1} << BitsOf(c.x.dtype())) - 1;
         return static_cast<uint32_t>((moved & all) >> cut_bits(c) << cut_bits(c));
       });
  cast(Stage::kRound, Kind::kRounding, "cast cuts NaN",
       "keeps the upper bits of NaN alone, which may be those of infinity", keeps_upper_bits,
       [cut_bits](const Case& c, double value, uint32_t code) {
         return std::isnan(value) ? code >> cut_bits(c) << cut_bits(c) : code;
       });
  cast(
      Stage::kRound, Kind::kRounding, "cast clears the last bit",
      "clears the last bit of the fraction",
      [=](const Case& c) { return to_nearest(c) && has_digits(c.out_dtype); },
      [](const Case& c, double value, uint32_t code) {
        const uint32_t given = EncodeFloat(c.out_dtype, value, c.rounding, c.overflow);
        const double result = DecodeFloat(c.out_dtype, given & ~1u);
        return std::isfinite(value) && std::isfinite(result) ? EncodeFloat(c.x.dtype(), result)
                                                             : code;
      });
  cast(
      Stage::kClamp, Kind::kRounding, "sign of 0 makes NaN",
      "keeps the sign of a negative number that rounds to 0, which makes the code of NaN",
      [](const Case& c) {
        return InfoOf(c.out_dtype).floating.top == FloatFormat::Top::kMinusZero;
      },
      [](const Case& c, double value, uint32_t code) {
        const uint32_t given = EncodeFloat(c.out_dtype, value, c.rounding, c.overflow);
        return given == 0 && std::signbit(value)
                   ? EncodeFloat(c.x.dtype(), std::numeric_limits<double>::quiet_NaN())
                   : code;
      });
  for (const int power : {-2, -1, 1, 2}) {
    cast(Stage::kScale, Kind::kRounding, fmt::format("cast of numbers times 2^{}", power),
         fmt::format("takes every number times {}", std::ldexp(1, power)), always,
         [power](const Case& c, double value, uint32_t code) {
           const auto moved = static_cast<float>(std::ldexp(value, power));
           return std::isfinite(value) ? CodeOf(c.x.dtype(), moved).value_or(code) : code;
         });
    rows.back().bits = Cause::kBitsOfFamily;  // scales are swapped or lost more often
  }
  rows.push_back({Stage::kClamp, Kind::kClamp, "cast gives NaN",
                  "gives NaN where the largest value or infinity is asked for",
                  [](const Case& c) { return c.op == Op::kCast; },
                  [](Stages& s) { return Replace(s.c.overflow, FloatOverflow::kNan); }, 4});
}

// ---- Casts from small float types: codes that are read as other numbers.

// What a code stands for where each exponent, also the lowest and the highest, is that of a normal
// number: 2^(exponent - bias) (1 + fraction), with the sign.
double AsNormal(DType dtype, uint32_t code) {
  const FloatFormat& format = InfoOf(dtype).floating;
  const uint32_t fraction = code & ((1u << format.fraction_bits) - 1);
  const auto exponent =
      static_cast<int>(code >> format.fraction_bits & ((1u << format.exponent_bits) - 1));
  const double value =
      std::ldexp(1 + std::ldexp(fraction, -format.fraction_bits), exponent - format.bias);
  return (code & SignOf(dtype)) != 0 ? -value : value;
}

bool HasFraction(const FloatFormat& format) { return format.fraction_bits > 0; }

void AddDecoding(std::vector<Cause>& rows) {
  const auto decode = [&](std::string name, std::string sentence,
                          std::function<double(DType, uint32_t code, double value)> read,
                          bool (*has)(const FloatFormat&) = HasFraction) {
    rows.push_back({Stage::kOperands, Kind::kRounding, std::move(name), std::move(sentence),
                    [has](const Case& c) {
                      const DType x = c.x.dtype();
                      return c.op == Op::kCast && IsFloat(x) && IsFloat(c.out_dtype) &&
                             BitsOf(x) <= 16 && has(InfoOf(x).floating);
                    },
                    [read = std::move(read)](Stages& s) {
                      const Tensor from = s.c.x;
                      Tensor x(DType::kF32, from.shape());
                      bool changes = false;
                      for (int64_t i = 0; i < x.size(); ++i) {
                        const uint32_t code = from.BitsAt(i);
                        const double right = DecodeFloat(from.dtype(), code);
                        const double value = read(from.dtype(), code, right);
                        changes |= std::bit_cast<uint64_t>(value) != std::bit_cast<uint64_t>(right);
                        x.as<float>()[static_cast<size_t>(i)] = static_cast<float>(value);
                      }
                      s.c.x = std::move(x);
                      return changes;
                    },
                    kOfCasts});
  };
  const auto is_low = [](DType dtype, double value) {
    return std::abs(value) < LeastNormal(dtype);
  };
  decode("subnormals as normals",
         "takes the codes of 0 and of subnormal inputs for normal numbers, with a leading one",
         [is_low](DType dtype, uint32_t code, double value) {
           return is_low(dtype, value) ? AsNormal(dtype, code) : value;
         });
  decode("special codes as numbers", "takes the codes of infinity and NaN for finite numbers",
         [](DType dtype, uint32_t code, double value) {
           return std::isfinite(value) ? value : AsNormal(dtype, code);
         });
  decode("all codes as normals",
         "takes every code for a normal number: those of 0, subnormals, infinity and NaN too",
         [](DType dtype, uint32_t code, double) { return AsNormal(dtype, code); });
  for (const auto& [factor, what] : {std::pair{0.5, "half of"}, {2.0, "twice"}}) {
    decode(fmt::format("subnormals times {}", factor),
           fmt::format("takes subnormal inputs for {} what they are", what),
           [is_low, factor](DType dtype, uint32_t, double value) {
             return is_low(dtype, value) ? factor * value : value;
           });
  }
  decode(
      "NaN as -0", "reads the code of NaN as -0",
      [](DType, uint32_t, double value) { return std::isnan(value) ? -0.0 : value; },
      [](const FloatFormat& format) { return format.top == FloatFormat::Top::kMinusZero; });
  decode(
      "NaN as infinity", "reads the code of NaN as infinity",
      [](DType, uint32_t, double value) {
        return std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
      },
      [](const FloatFormat& format) { return format.fraction_bits == 0; });
  decode("fractions of subnormals halved",
         "halves the fraction behind the leading one of subnormal inputs",
         [is_low](DType dtype, uint32_t, double value) {
           if (!is_low(dtype, value) || value == 0) return value;
           return (value + std::copysign(std::ldexp(1.0, std::ilogb(value)), value)) / 2;
         });
}

// ---- Casts with scales: what is made of them before the cast.

std::vector<float> Ones(size_t count) { return std::vector<float>(count, 1.0f); }

void AddScaledCasts(std::vector<Cause>& rows) {
  const auto scaled = [&](Kind kind, std::string name, std::string sentence,
                          std::function<bool(Case&)> edit) {
    rows.push_back({Stage::kScale, kind, std::move(name), std::move(sentence), IsScaledCast,
                    [edit = std::move(edit)](Stages& s) { return edit(s.c); }});
  };
  // A kernel that takes the scales in float32 and casts what it gets.
  const auto in_float = [](float (*by)(float x, float x_scale, float out_scale)) {
    return [by](Case& c) {
      const Case given = c;
      c = WithQuotients(given, nullptr);
      std::span<float> x = c.x.as<float>();
      for (size_t i = 0; i < x.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        const double value = DecodeFloat(given.x.dtype(), given.x.BitsAt(at));
        const size_t entry = ElementEntry(given, at);
        if (!std::isnan(value))
          x[i] = by(static_cast<float>(value), given.x_q.scale[entry], given.out_q.scale[entry]);
      }
      return true;
    };
  };
  scaled(Kind::kRounding, "cast of a float32 quotient",
         "takes the scales in float32, and rounds that to the output type",
         in_float([](float x, float x_scale, float out_scale) { return x * x_scale / out_scale; }));
  scaled(Kind::kRounding, "cast by a float32 reciprocal",
         "multiplies by the float32 reciprocal of the output scale",
         in_float([](float x, float x_scale, float out_scale) {
           return x * x_scale * (1.0f / out_scale);
         }));
  scaled(
      Kind::kRounding, "cast by a float32 ratio",
      "multiplies by the ratio of the scales, rounded to float32",
      in_float([](float x, float x_scale, float out_scale) { return x * (x_scale / out_scale); }));
  scaled(Kind::kRounding, "cast with scales the other way round",
         "divides by the scale of x, and multiplies by that of the output", [](Case& c) {
           std::swap(c.x_q, c.out_q);
           return c.x_q != c.out_q;
         });
  scaled(Kind::kRounding, "cast without the scale of x", "ignores the scale of x",
         [](Case& c) { return Replace(c.x_q.scale, Ones(c.x_q.scale.size())); });
  scaled(Kind::kRounding, "cast without the output scale", "ignores the scale of the output",
         [](Case& c) { return Replace(c.out_q.scale, Ones(c.out_q.scale.size())); });
}

}  // namespace

std::vector<Cause> CausesOfVariants() {
  std::vector<Cause> rows;
  AddParameters(rows);
  AddOfRows(rows);
  AddLines(rows);
  AddLayouts(rows);
  AddEdges(rows);
  AddPools(rows);
  AddOperands(rows);
  AddRatiosOfScales(rows);
  AddCasts(rows);
  AddDecoding(rows);
  AddScaledCasts(rows);
  return rows;
}

}  // namespace qualm::triage
