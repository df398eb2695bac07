// SPDX-License-Identifier: Apache-2.0
#include "core/slice.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/status.h"

namespace qualm::slice {
namespace {

// The problem without its tensors, which are the larger part of it.
Case WithoutTensors(const Case& c) {
  Case cut;
  ForEachField(cut, c, [](const Field& /*field*/, auto& to, const auto& from) {
    if constexpr (!std::is_same_v<decltype(from), const Tensor&>) to = from;
  });
  return cut;
}

// Calls edit(list) for each list of parameters that per_channel makes one entry per channel.
template <class Edit>
void ForEachChannelList(Case* c, const Edit& edit) {
  if (!HasChannelList(c->op)) return;
  if (RowOf(c->op).multiplier && UsesMultiplier(*c)) return edit(c->multiplier);
  ForEachChannelQParams(*c, [&](QParams& q) {
    edit(q.scale);
    edit(q.zero_point);
  });
}

int64_t Count(Places places) { return static_cast<int64_t>(places.size()); }

int64_t At(Places places, int64_t i) { return places[static_cast<size_t>(i)]; }

// The places to keep along one axis; no value: all of them.
using Axis = std::optional<Places>;

bool IsWhole(Places places, int64_t count) {
  for (int64_t i = 0; i < Count(places); ++i) {
    if (At(places, i) != i) return false;
  }
  return Count(places) == count;
}

// The elements of `from` at the kept places. A place of -1 takes its code from `codes`: one code
// for all such places, or one for each place of the first axis.
Tensor Gather(const Tensor& from, std::initializer_list<Axis> kept,
              std::span<const int32_t> codes = {}) {
  const std::span<const Axis> axes(kept.begin(), kept.size());
  std::vector<int64_t> shape = from.shape();
  QUALM_CHECK_EQ(shape.size(), axes.size());
  size_t whole = 0;  // from this axis on all places are kept, and copied at once
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (!axes[axis] || IsWhole(*axes[axis], shape[axis])) continue;
    shape[axis] = Count(*axes[axis]);
    whole = axis + 1;
  }
  if (whole == 0) return from;
  Tensor to(from.dtype(), shape);
  if (to.empty()) return to;
  int64_t block = 1;
  for (size_t axis = whole; axis < axes.size(); ++axis) block *= shape[axis];
  const bool whole_bytes = BitsOf(from.dtype()) % 8 == 0;
  const size_t block_bytes = BytesFor(from.dtype(), static_cast<size_t>(block));
  uint8_t* const to_bytes = to.bytes().data();
  const uint8_t* const from_bytes = from.bytes().data();
  const auto copy = [&](int64_t to_block, int64_t from_block) {
    const auto at = static_cast<size_t>(to_block), place = static_cast<size_t>(from_block);
    if (!whole_bytes) {
      for (int64_t i = 0; i < block; ++i)
        to.SetInt(to_block * block + i, from.IntAt(from_block * block + i));
    } else if (block_bytes == 1) {
      to_bytes[at] = from_bytes[place];
    } else {
      std::memcpy(to_bytes + at * block_bytes, from_bytes + place * block_bytes, block_bytes);
    }
  };
  const auto place_of = [&](size_t axis, int64_t i) { return axes[axis] ? At(*axes[axis], i) : i; };
  // Copies row by row along the innermost axis that is cut.
  const size_t inner = whole - 1;
  for (int64_t row = 0; row < to.size() / (block * shape[inner]); ++row) {
    int64_t rest = row, from_row = 0, stride = 1;
    int64_t first = 0;  // after the loop: the place along the first axis
    bool absent = false;
    for (size_t axis = inner; axis-- > 0;) {
      first = rest % shape[axis];
      rest /= shape[axis];
      const int64_t place = place_of(axis, first);
      QUALM_CHECK_LT(place, from.shape()[axis]);
      absent = absent || place < 0;
      from_row += place * stride;
      stride *= from.shape()[axis];
    }
    for (int64_t i = 0; i < shape[inner]; ++i) {
      const int64_t at = row * shape[inner] + i;
      const int64_t place = place_of(inner, i);
      QUALM_CHECK_LT(place, from.shape()[inner]);
      if (!absent && place >= 0) {
        copy(at, from_row * from.shape()[inner] + place);
        continue;
      }
      QUALM_CHECK(!codes.empty());
      const int64_t along_first = inner == 0 ? i : first;
      const int32_t code = codes[codes.size() == 1 ? 0 : static_cast<size_t>(along_first)];
      for (int64_t j = 0; j < block; ++j) to.SetInt(at * block + j, code);
    }
  }
  return to;
}

template <class T>
void Pick(std::vector<T>& list, Places at) {
  std::vector<T> picked;
  picked.reserve(at.size());
  for (int64_t i : at) picked.push_back(list[static_cast<size_t>(i)]);
  list = std::move(picked);
}

// Keeps the entries of these blocks of these rows, each of which has `blocks`.
void PickEntries(QParams& q, int64_t blocks, Places rows, Places kept) {
  std::vector<int64_t> entries;
  entries.reserve(rows.size() * kept.size());
  for (const int64_t row : rows) {
    for (const int64_t block : kept) entries.push_back(row * blocks + block);
  }
  Pick(q.scale, entries);
  Pick(q.zero_point, entries);
}

// Keeps the blocks at these places of each channel's blocks, and of each row's where x has some.
void PickBlocks(Case* c, int64_t blocks, Places kept) {
  PickEntries(c->w_q, blocks, Range(0, c->N), kept);
  if (c->x_block != 0) PickEntries(c->x_q, blocks, Range(0, c->M), kept);
}

// `edited`, a case with the x of `c`, without blocks of x: one scale and zero point for all of it,
// those of its first block.
void DropXBlocks(const Case& c, Case* edited) {
  if (c.x_block == 0) return;
  edited->x_block = 0;
  const std::vector<int64_t> first{0};
  const auto pick = [&](QParams& q) { PickEntries(q, 1, first, first); };
  if (!HasElementBlocks(c)) return pick(edited->x_q);
  ForEachChannelQParams(*edited, pick);
}

// The blocks that the rows of a quantize or dequantize have when they keep these columns: as
// CutBlocks. A single block of all elements is a scale per tensor.
void CutElementBlocks(const Case& c, Places columns, Case* cut) {
  if (columns.empty() || cut->M == 0) return DropXBlocks(c, cut);
  std::vector<int64_t> of_columns;
  bool in_place = true;
  for (int64_t i = 0; i < Count(columns); ++i) {
    const int64_t column = At(columns, i);
    of_columns.push_back(column / c.x_block);
    in_place = in_place && column % c.x_block == i % c.x_block &&
               (i % c.x_block == 0 || of_columns.back() == of_columns[of_columns.size() - 2]);
  }
  const bool is_one = Count(columns) <= c.x_block &&
                      std::ranges::count(of_columns, of_columns.front()) == Count(columns);
  if (!in_place && !is_one) cut->x_block = 1;
  std::vector<int64_t> kept;
  for (size_t i = 0; i < of_columns.size(); i += static_cast<size_t>(cut->x_block))
    kept.push_back(of_columns[i]);
  ForEachChannelQParams(
      *cut, [&](QParams& q) { PickEntries(q, ElementBlocks(c), Range(0, cut->M), kept); });
}

// The blocks that w has when it keeps these terms. A cut that keeps every term at the same place
// within a block as before keeps the scale of each; so whole blocks go, and the end of the last
// one. Of a single block any terms may go. Any other cut leaves too little or too much of a block
// for one size: there every term becomes a block of its own, with the scale and zero point that it
// had. A term of -1 has those of the term before it, the first one those of the first block.
void CutBlocks(const Case& c, Places terms, Case* cut) {
  const int64_t blocks = RowBlocks(c);
  if (terms.empty()) {
    DropXBlocks(c, cut);
    cut->w_block = 0;
    const std::vector<int64_t> first{0};
    return PickBlocks(cut, blocks, first);
  }
  std::vector<int64_t> of_terms;
  bool in_place = true;
  for (int64_t i = 0; i < Count(terms); ++i) {
    const int64_t term = At(terms, i);
    of_terms.push_back(term >= 0 ? term / c.w_block : of_terms.empty() ? 0 : of_terms.back());
    const bool begins = i % c.w_block == 0;
    in_place = in_place && (term < 0 || term % c.w_block == i % c.w_block) &&
               (begins || of_terms.back() == of_terms[of_terms.size() - 2]);
  }
  // What is left of one block is a shorter one.
  const bool is_one =
      Count(terms) <= c.w_block && std::ranges::count(of_terms, of_terms.front()) == Count(terms);
  if (!in_place && !is_one) {
    cut->w_block = 1;
    if (c.x_block != 0) cut->x_block = 1;
    return PickBlocks(cut, blocks, of_terms);
  }
  std::vector<int64_t> kept;
  for (size_t i = 0; i < of_terms.size(); i += static_cast<size_t>(c.w_block))
    kept.push_back(of_terms[i]);
  PickBlocks(cut, blocks, kept);
}

// `edited`, a case with the weights of `c`, without blocks: each channel keeps its first one.
Case WithoutBlocks(const Case& c, Case edited) {
  if (c.w_block == 0 && !HasElementBlocks(c)) return edited;
  DropXBlocks(c, &edited);
  if (c.w_block == 0) return edited;
  edited.w_block = 0;
  const std::vector<int64_t> first{0};
  PickBlocks(&edited, RowBlocks(c), first);
  return edited;
}

// The places that a cut keeps of a case, axis by axis.
struct Kept {
  Axis rows = std::nullopt;      // of the output, where there is no window
  Axis channels = std::nullopt;  // of the output
  Axis terms = std::nullopt;     // of a sum; of a convolution: input channels of each group
  Axis batches = std::nullopt;
  Axis image_rows = std::nullopt, image_columns = std::nullopt;
  Axis kernel_rows = std::nullopt, kernel_columns = std::nullopt;
  std::span<const int32_t> x_codes = {}, w_codes = {};  // the codes at places of -1
};

// The groups of a convolution that the kept outputs belong to.
std::vector<int64_t> GroupsOf(const Case& c, const Axis& outputs) {
  const int64_t groups = c.window.groups;
  if (!outputs || groups == 1) return Range(0, groups);
  std::vector<int64_t> occurring, kept;  // each group and how many outputs of it
  for (int64_t output : *outputs) {
    const int64_t group = output / (c.N / groups);
    if (occurring.empty() || occurring.back() != group) {
      occurring.push_back(group);
      kept.push_back(0);
    }
    ++kept.back();
  }
  for (int64_t count : kept) QUALM_CHECK_EQ(count, kept[0]);
  if (occurring.empty()) occurring.push_back(0);
  return occurring;
}

// The input channels of these `terms` in each of these `groups`.
std::vector<int64_t> InputChannels(const Case& c, Places groups, Places terms) {
  const int64_t depth = c.window.in_c / c.window.groups;
  std::vector<int64_t> channels;
  for (int64_t group : groups) {
    for (int64_t term : terms) channels.push_back(term < 0 ? -1 : group * depth + term);
  }
  return channels;
}

// The one place that cuts the tensors of a case.
Case Cut(const Case& c, const Kept& kept) {
  Case cut = WithoutTensors(c);
  if (kept.rows) {
    cut.M = Count(*kept.rows);
    if (HasElementBlocks(c)) {
      if (cut.M == 0) {
        DropXBlocks(c, &cut);
      } else {
        ForEachChannelQParams(cut, [&](QParams& q) {
          PickEntries(q, ElementBlocks(c), *kept.rows, Range(0, ElementBlocks(c)));
        });
      }
    } else if (c.x_block != 0) {
      PickEntries(cut.x_q, RowBlocks(c), *kept.rows, Range(0, RowBlocks(c)));
      // No list is left of no rows.
      if (cut.M == 0) cut.x_q = QParams{}, cut.x_block = 0;
    }
  }
  if (kept.channels) {
    cut.N = Count(*kept.channels);
    const auto pick = [&](auto& list) { Pick(list, *kept.channels); };
    if (c.w_block != 0) {
      PickEntries(cut.w_q, RowBlocks(c), *kept.channels, Range(0, RowBlocks(c)));
    } else if (c.per_channel) {
      ForEachChannelList(&cut, pick);
    }
    if (cut.bias) pick(*cut.bias);
    if (cut.bias_i32) pick(*cut.bias_i32);
  }
  switch (RowOf(c.op).layout) {
    case Layout::kElements:
      cut.x = Gather(c.x, {kept.rows, kept.channels});
      if (HasW(c.op)) cut.w = Gather(c.w, {kept.rows, kept.channels});
      if (cut.x_block != 0 && kept.channels) CutElementBlocks(c, *kept.channels, &cut);
      if (HasElementBlocks(cut) && cut.M * ElementBlocks(cut) == 1) cut.x_block = 0;
      return cut;
    case Layout::kProducts:
      cut.x = Gather(c.x, {kept.rows, kept.terms}, kept.x_codes);
      cut.w = Gather(c.w, {kept.channels, kept.terms}, kept.w_codes);
      cut.K = cut.x.shape()[1];
      if (c.w_block != 0 && kept.terms) CutBlocks(c, *kept.terms, &cut);
      return cut;
    case Layout::kColumns: {
      const int64_t of_x = c.x.shape()[1];
      const std::vector<int64_t> all = Range(0, c.N);
      std::vector<int64_t> x_columns, w_columns;
      for (int64_t n : kept.channels.value_or(all)) {
        n < of_x ? x_columns.push_back(n) : w_columns.push_back(n - of_x);
      }
      cut.x = Gather(c.x, {kept.rows, x_columns});
      cut.w = Gather(c.w, {kept.rows, w_columns});
      return cut;
    }
    case Layout::kBatches:
      cut.x = Gather(c.x, {kept.batches, kept.rows, kept.channels});
      return cut;
    case Layout::kPool:
      cut.x = Gather(c.x, {kept.batches, kept.image_rows, kept.image_columns, kept.channels},
                     kept.x_codes);
      break;
    case Layout::kConv: {
      const std::vector<int64_t> groups = GroupsOf(c, kept.channels);
      const std::vector<int64_t> all = Range(0, c.window.in_c / c.window.groups);
      const std::vector<int64_t> inputs = InputChannels(c, groups, kept.terms.value_or(all));
      cut.window.groups = Count(groups);
      cut.x =
          Gather(c.x, {kept.batches, kept.image_rows, kept.image_columns, inputs}, kept.x_codes);
      cut.w = Gather(c.w, {kept.channels, kept.kernel_rows, kept.kernel_columns, kept.terms},
                     kept.w_codes);
      break;
    }
  }
  QUALM_CHECK(!kept.rows);  // rows of the output are pixels
  Window& v = cut.window;
  const std::vector<int64_t>& shape = cut.x.shape();
  std::tie(v.batch, v.in_h, v.in_w, v.in_c) = std::tuple(shape[0], shape[1], shape[2], shape[3]);
  if (kept.kernel_rows) v.kernel_h = Count(*kept.kernel_rows);
  if (kept.kernel_columns) v.kernel_w = Count(*kept.kernel_columns);
  DeriveSizes(&cut);
  return cut;
}

// One axis of a window at one position.
struct View {
  std::vector<int64_t> image;  // places that lie in the image
  int64_t kernel = 0, stride = 0, pad_before = 0, pad_after = 0;
};
View ViewOf(int64_t out, int64_t in, int64_t kernel, int64_t stride, int64_t pad_before,
            int64_t pad_after, int64_t dilation) {
  const int64_t first = out * stride - pad_before;
  // With ceil_mode the last taps may lie beyond the padding, where nothing is.
  while (kernel > 1 && first + (kernel - 1) * dilation >= in + pad_after) --kernel;
  const int64_t last = first + (kernel - 1) * dilation;
  const int64_t from = std::max<int64_t>(first, 0);
  const int64_t to = std::min(last, in - 1);
  if (from > to) {
    // Padding only. One row of input stays, past the window: an empty image has no output.
    return {{0}, kernel, std::max<int64_t>(stride, 2), last - first + 1, 0};
  }
  return {Range(from, to + 1), kernel, stride, from - first, last - to};
}

// The case of output pixel m alone, with the kept ones of its channels.
Case CutPixel(const Case& c, int64_t m, const Axis& channels) {
  QUALM_CHECK(HasWindow(c.op) && m < c.M);
  const Window& old = c.window;
  const int64_t out_h = old.out_h(), out_w = old.out_w();
  const View rows = ViewOf(m / out_w % out_h, old.in_h, old.kernel_h, old.stride_h, old.pad_top,
                           old.pad_bottom, old.dilation_h);
  const View columns = ViewOf(m % out_w, old.in_w, old.kernel_w, old.stride_w, old.pad_left,
                              old.pad_right, old.dilation_w);
  const int64_t image = m / (out_h * out_w);
  Case cut = Cut(c, {.channels = channels,
                     .batches = Places(&image, 1),
                     .image_rows = rows.image,
                     .image_columns = columns.image});
  Window& v = cut.window;
  v.ceil_mode = false;  // the image ends where the window does
  v.kernel_h = rows.kernel;
  v.stride_h = rows.stride;
  v.pad_top = rows.pad_before;
  v.pad_bottom = rows.pad_after;
  v.kernel_w = columns.kernel;
  v.stride_w = columns.stride;
  v.pad_left = columns.pad_before;
  v.pad_right = columns.pad_after;
  DeriveSizes(&cut);
  return cut;
}

// `before` times -1, 0, 1, ... in - 1, `after` times -1.
std::vector<int64_t> Padded(int64_t before, int64_t in, int64_t after) {
  std::vector<int64_t> places(static_cast<size_t>(before + in + after), -1);
  std::iota(places.begin() + before, places.begin() + before + in, int64_t{0});
  return places;
}

}  // namespace

std::vector<int64_t> Range(int64_t from, int64_t to) {
  std::vector<int64_t> places;
  for (int64_t i = from; i < to; ++i) places.push_back(i);
  return places;
}

Case BlocksAsChannels(const Case& c) {
  if (!HasElementBlocks(c)) return c;
  Case flat = c;
  const int64_t count = c.M * c.N;
  const auto in_one_row = [&](Tensor& tensor) {
    Tensor row(tensor.dtype(), {1, count});
    row.CopyFrom(tensor, 0, count, 0);
    tensor = std::move(row);
  };
  flat.M = 1;
  flat.N = count;
  flat.x_block = 0;
  flat.per_channel = true;
  in_one_row(flat.x);
  if (flat.expected) in_one_row(*flat.expected);
  if (flat.observed) in_one_row(flat.observed->y);
  std::vector<int64_t> entries;
  entries.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) entries.push_back(static_cast<int64_t>(ElementEntry(c, i)));
  ForEachChannelQParams(flat, [&](QParams& q) {
    Pick(q.scale, entries);
    Pick(q.zero_point, entries);
  });
  return flat;
}

Tensor InRowsOf(const Case& c, const Tensor& y) {
  Tensor rows(y.dtype(), c.output_shape());
  rows.CopyFrom(y, 0, y.size(), 0);
  return rows;
}

Case Rows(const Case& c, Places rows) { return Cut(c, {.rows = rows}); }

Case Channels(const Case& c, Places channels) { return Cut(c, {.channels = channels}); }

std::vector<int64_t> LeadingChannels(const Case& c, int64_t most) {
  int64_t count = std::min(most, c.N);
  if (IsConv(c.op) && c.window.groups > 1) {
    const int64_t per_group = c.N / c.window.groups;
    if (count > per_group) count -= count % per_group;
  }
  return Range(0, count);
}

Case Terms(const Case& c, Places terms, int32_t x_code, int32_t w_code) {
  QUALM_CHECK(HasWeights(c.op));
  return Cut(c, {.terms = terms, .x_codes = {&x_code, 1}, .w_codes = {&w_code, 1}});
}

Case Batches(const Case& c, Places batches) {
  QUALM_CHECK(HasWindow(c.op) || c.op == Op::kChooseQParams);
  return Cut(c, {.batches = batches});
}

Case Taps(const Case& c, Places rows, Places columns, std::span<const int32_t> w_codes) {
  QUALM_CHECK(HasWindow(c.op));
  return Cut(c, {.kernel_rows = rows, .kernel_columns = columns, .w_codes = w_codes});
}

Case Crop(const Case& c, int64_t top, int64_t bottom, int64_t left, int64_t right) {
  QUALM_CHECK(HasWindow(c.op));
  Case cut = Cut(c, {.image_rows = Range(top, c.window.in_h - bottom),
                     .image_columns = Range(left, c.window.in_w - right)});
  if (c.op == Op::kGlobalAvgPool) {
    cut.window.kernel_h = std::max<int64_t>(1, cut.window.in_h);
    cut.window.kernel_w = std::max<int64_t>(1, cut.window.in_w);
    DeriveSizes(&cut);
  }
  return cut;
}

Case ExplicitPadding(const Case& c, int32_t code) {
  QUALM_CHECK(HasWindow(c.op));
  const Window& v = c.window;
  Case cut = Cut(c, {.image_rows = Padded(v.pad_top, v.in_h, v.pad_bottom),
                     .image_columns = Padded(v.pad_left, v.in_w, v.pad_right),
                     .x_codes = {&code, 1}});
  cut.window.drop_padding();
  DeriveSizes(&cut);
  return cut;
}

Case Pixel(const Case& c, int64_t m) { return CutPixel(c, m, std::nullopt); }

Case OneOutput(const Case& c, int64_t index) {
  QUALM_CHECK_LE(0, index);
  QUALM_CHECK_LT(index, c.M * c.N);
  QUALM_CHECK(c.op != Op::kChooseQParams);
  const int64_t m = index / c.N, n = index % c.N;
  if (HasWindow(c.op)) return CutPixel(c, m, Places(&n, 1));
  if (RowsShareQParams(c)) {
    std::vector<int64_t> rows = Range(0, c.M);
    std::rotate(rows.begin(), rows.begin() + m, rows.begin() + m + 1);
    return Cut(c, {.rows = rows, .channels = Places(&n, 1)});
  }
  if (c.op != Op::kSoftmax) return Cut(c, {.rows = Places(&m, 1), .channels = Places(&n, 1)});
  Case row = Rows(c, {&m, 1});
  const int32_t element = row.x.IntAt(n);
  row.x.SetInt(n, row.x.IntAt(0));
  row.x.SetInt(0, element);
  return row;
}

std::vector<std::pair<int64_t, int64_t>> BlocksOfX(const Case& c) {
  std::vector<std::pair<int64_t, int64_t>> blocks;
  for (int64_t at = 0; c.x_block != 0 && c.K != 0 && at < c.x.size(); at = blocks.back().second)
    blocks.emplace_back(at, std::min(at + c.x_block, (at / c.K + 1) * c.K));
  return blocks;
}

Case WithoutBlocks(const Case& c) { return WithoutBlocks(c, ProblemOf(c)); }

std::vector<Case> WithOneParameterOf(const Case& c, const Case& other) {
  std::vector<Case> cases;
  size_t count = 0;
  ForEachParameter(c, other, [&](const Field&, const auto& value, const auto& its) {
    const size_t wanted = count++;
    if (value == its) return;
    size_t at = 0;
    ForEachParameter(cases.emplace_back(ProblemOf(c)), other,
                     [&](const Field&, auto& edited, const auto& from) {
                       if (at++ == wanted) edited = from;
                     });
    if (cases.back().w_block == 0) cases.back() = WithoutBlocks(c, std::move(cases.back()));
    if (cases.back().x_block == 0) DropXBlocks(c, &cases.back());
  });
  return cases;
}

Case WithoutParameters(const Case& c) {
  Case plain = WithoutBlocks(c, ProblemOf(c));
  const Case usual;
  ForEachParameter(plain, usual,
                   [](const Field&, auto& value, const auto& unsaid) { value = unsaid; });
  return plain;
}

Case SumsOf(const Case& c) {
  QUALM_CHECK(HasSums(c));
  Case sums = WithoutParameters(c);
  sums.out_q = QParams{};
  sums.out_dtype = DType::kS32;
  OpenClamp(&sums);
  return sums;
}

Case WithParamsOf(const Case& c, int64_t n, bool per_channel) {
  Case edited = WithoutBlocks(c, ProblemOf(c));
  edited.per_channel = per_channel;
  ForEachChannelList(&edited, [&](auto& list) {
    const auto parameter = list[list.size() == 1 ? 0 : static_cast<size_t>(n)];
    list.assign(per_channel ? static_cast<size_t>(c.N) : 1, parameter);
  });
  return edited;
}

}  // namespace qualm::slice
