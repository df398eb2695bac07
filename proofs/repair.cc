// SPDX-License-Identifier: Apache-2.0
#include "proofs/repair.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/status.h"
#include "proofs/matching.h"

namespace qualm::proofs {
namespace {

using Kind = Scheme::Kind;

// Two weights that share one int16 sum, with the range of x as the kernel sees it.
struct PairRule {
  int32_t lo, hi;
  int32_t most(int32_t w) const { return w * (w > 0 ? hi : lo); }
  int32_t least(int32_t w) const { return w * (w > 0 ? lo : hi); }
  bool Safe(int32_t a, int32_t b) const {
    return most(a) + most(b) <= INT16_MAX && least(a) + least(b) >= INT16_MIN;
  }
  // The part of `a` that must be taken away, towards 0, to make the pair safe.
  int32_t Excess(int32_t a, int32_t b) const {
    int32_t kept = a;
    while (!Safe(kept, b)) kept += kept > 0 ? -1 : 1;
    return a - kept;
  }
};

// The weights of one input channel of a group, for every output and tap.
struct Column {
  int32_t channel = kNoTerm;  // of the group
  std::vector<int32_t> w;
};
using Columns = std::vector<Column>;
using Pair = std::pair<Column, Column>;

Column Nothing(size_t rows) { return {kNoTerm, std::vector<int32_t>(rows, 0)}; }

std::vector<std::vector<bool>> Conflicts(const Columns& columns, const PairRule& rule) {
  std::vector<std::vector<bool>> conflicts(columns.size(), std::vector<bool>(columns.size()));
  if (columns.empty()) return conflicts;
  std::vector<std::pair<int32_t, size_t>> row(columns.size());
  // From the largest corner down, so that the first partner that fits ends the search.
  const auto mark = [&](size_t r, auto corner, int32_t limit) {
    for (size_t i = 0; i < row.size(); ++i) row[i] = {corner(columns[i].w[r]), i};
    std::ranges::sort(row, std::greater());
    for (size_t a = 0; a < row.size(); ++a) {
      for (size_t b = a + 1; b < row.size() && row[a].first + row[b].first > limit; ++b) {
        conflicts[row[a].second][row[b].second] = conflicts[row[b].second][row[a].second] = true;
      }
    }
  };
  for (size_t r = 0; r < columns[0].w.size(); ++r) {
    mark(r, [&](int32_t w) { return rule.most(w); }, INT16_MAX);
    mark(r, [&](int32_t w) { return -rule.least(w); }, -INT16_MIN);
  }
  return conflicts;
}

// One group of a layer: `rows` outputs and taps by `depth` input channels.
class Group {
 public:
  Group(const Case& layer, int64_t group, const PairRule& rule)
      : terms_(TermsOf(layer)), rule_(rule) {
    const int64_t groups = IsConv(layer.op) ? layer.window.groups : 1;
    const int64_t channels = layer.N / groups;
    rows_ = static_cast<size_t>(channels * terms_.taps);
    columns_.resize(static_cast<size_t>(terms_.depth));
    const int64_t first = group * channels * terms_.count();
    for (int64_t c = 0; c < terms_.depth; ++c) {
      Column& column = columns_[static_cast<size_t>(c)];
      column.channel = static_cast<int32_t>(c);
      for (size_t r = 0; r < rows_; ++r) {
        column.w.push_back(layer.w.IntAt(first + static_cast<int64_t>(r) * terms_.depth + c));
      }
    }
    for (size_t r = 0; r < rows_; ++r) {
      zero_points_.push_back(
          layer.w_q.zero_point_at(group * channels + static_cast<int64_t>(r) / terms_.taps));
    }
  }

  // Pairs as many channels as possible with a compatible one. The rest stay alone or, with `split`,
  // are paired with each other and split.
  std::optional<std::vector<Pair>> Permuted(bool split) const {
    std::vector<Column> alone;
    std::vector<Pair> pairs = Matched(columns_, &alone);
    Columns excess;
    while (split && alone.size() > 1) {
      pairs.emplace_back(std::move(alone[alone.size() - 2]), std::move(alone.back()));
      alone.resize(alone.size() - 2);
      std::optional<Column> over = Split(&pairs.back());
      if (!over) return std::nullopt;
      // Few rows of it are not 0, so nearly any third channel fits beside it: two pairs for three.
      const auto third =
          std::ranges::find_if(alone, [&](const Column& column) { return Safe({*over, column}); });
      if (third == alone.end()) {
        excess.push_back(std::move(*over));
        continue;
      }
      pairs.emplace_back(std::move(*over), std::move(*third));
      alone.erase(third);
    }
    AddAlone(&pairs, std::move(alone));
    AddExcess(&pairs, excess);
    return pairs;
  }

  // The channels in their places; the parts that do not fit come behind them.
  std::optional<std::vector<Pair>> SplitInPlace() const {
    std::vector<Pair> pairs;
    Columns excess;
    for (size_t i = 0; i < columns_.size(); i += 2) {
      pairs.emplace_back(columns_[i], i + 1 < columns_.size() ? columns_[i + 1] : Nothing(rows_));
      if (Safe(pairs.back())) continue;
      std::optional<Column> over = Split(&pairs.back());
      if (!over) return std::nullopt;
      excess.push_back(std::move(*over));
    }
    AddExcess(&pairs, excess);
    return pairs;
  }

  size_t rows() const { return rows_; }

 private:
  bool Safe(const Pair& pair) const {
    for (size_t r = 0; r < rows_; ++r) {
      if (!rule_.Safe(pair.first.w[r], pair.second.w[r])) return false;
    }
    return true;
  }

  // A maximum matching; `alone` gets the columns without a partner.
  std::vector<Pair> Matched(const Columns& columns, Columns* alone) const {
    const std::vector<int32_t> partners = Partners(Conflicts(columns, rule_));
    std::vector<Pair> pairs;
    for (size_t i = 0; i < columns.size(); ++i) {
      const auto partner = static_cast<size_t>(partners[i]);
      if (partners[i] == kNoPartner) {
        alone->push_back(columns[i]);
      } else if (i < partner) {
        pairs.emplace_back(columns[i], columns[partner]);
      }
    }
    return pairs;
  }

  void AddAlone(std::vector<Pair>* pairs, Columns alone) const {
    for (Column& column : alone) pairs->emplace_back(std::move(column), Nothing(rows_));
  }
  void AddExcess(std::vector<Pair>* pairs, const Columns& excess) const {
    Columns alone;
    for (Pair& pair : Matched(excess, &alone)) pairs->push_back(std::move(pair));
    AddAlone(pairs, std::move(alone));
  }

  // Makes a pair safe: moves the excess of the first weight to a second channel, which reads the
  // same activation and is returned. nullopt where a part would be no s8 code.
  std::optional<Column> Split(Pair* pair) const {
    Column second{pair->first.channel, {}};
    for (size_t r = 0; r < rows_; ++r) {
      const int32_t over = rule_.Excess(pair->first.w[r], pair->second.w[r]);
      pair->first.w[r] -= over;
      // The zero point of w is subtracted from both parts, but must count once.
      second.w.push_back(over + zero_points_[r]);
      if (std::clamp(second.w.back(), -128, 127) != second.w.back()) return std::nullopt;
    }
    return second;
  }

  Terms terms_;
  PairRule rule_;
  size_t rows_ = 0;
  Columns columns_;
  std::vector<int32_t> zero_points_;
};

// Puts the pairs where the kernel adds two products: the columns of a group of `depth` channels.
// nullopt where there is no room. `order` as in a scheme over those channels.
std::optional<Columns> Placed(const std::vector<Pair>& pairs, const std::vector<int32_t>& order,
                              size_t depth, size_t rows) {
  std::vector<const Pair*> whole, single;
  for (const Pair& pair : pairs) {
    (pair.second.channel == kNoTerm ? single : whole).push_back(&pair);
  }
  const size_t places = order.empty() ? depth : order.size();
  const auto at = [&](size_t place) {
    if (place >= places) return kNoTerm;
    return order.empty() ? static_cast<int32_t>(place) : order[place];
  };
  std::vector<std::pair<int32_t, const Column*>> taken;  // place, column
  size_t next_whole = 0, next_single = 0;
  for (size_t place = 0; place < places; place += 2) {
    const int32_t a = at(place), b = at(place + 1);
    if (a != kNoTerm && b != kNoTerm && next_whole < whole.size()) {
      taken.emplace_back(a, &whole[next_whole]->first);
      taken.emplace_back(b, &whole[next_whole++]->second);
    } else if ((a != kNoTerm || b != kNoTerm) && next_single < single.size()) {
      taken.emplace_back(a != kNoTerm ? a : b, &single[next_single++]->first);
    }
  }
  if (next_whole < whole.size() || next_single < single.size()) return std::nullopt;
  Columns columns(depth, Nothing(rows));
  for (const auto& [place, column] : taken) columns[static_cast<size_t>(place)] = *column;
  return columns;
}

Rebuilt Build(const Case& layer, const std::vector<Columns>& groups) {
  const Terms terms = TermsOf(layer);
  const auto depth = static_cast<int64_t>(groups[0].size());
  std::vector<int64_t> shape = layer.w.shape();
  shape.back() = depth;
  Rebuilt rebuilt{Tensor(layer.w.dtype(), shape), {}};
  int64_t at = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const Column& column : groups[g]) {
      const int64_t first = static_cast<int64_t>(g) * terms.depth;
      rebuilt.source.push_back(
          column.channel == kNoTerm ? kNoTerm : static_cast<int32_t>(first + column.channel));
    }
    for (size_t r = 0; r < groups[g][0].w.size(); ++r) {
      for (const Column& column : groups[g]) rebuilt.w.SetInt(at++, column.w[r]);
    }
  }
  return rebuilt;
}

class Shop {
 public:
  Shop(const Case& layer, const Scheme& scheme, Codes x)
      : layer_(layer),
        scheme_(scheme),
        x_(x),
        rule_{x.lo + scheme.x_plus, x.hi + scheme.x_plus},
        terms_(TermsOf(layer)) {}

  std::vector<Remedy> All() {
    const bool two =
        scheme_.kind == Kind::kPairs || (scheme_.kind == Kind::kChains && scheme_.length == 2);
    if (two && scheme_.w_plus == 0) {
      if (CanPad()) AddRearrangements();
      AddEdits();
    }
    std::ranges::sort(remedies_, {}, [](const Remedy& remedy) {
      return std::tuple(!remedy.exact, remedy.overhead, remedy.name);
    });
    AddRanges();
    return std::move(remedies_);
  }

 private:
  using Way = std::optional<std::vector<Pair>> (*)(const Group&);

  // Channels that are added read the zero point of x, with weight 0.
  bool CanPad() const {
    const int32_t zero_point = layer_.x_q.zero_point_at(0);
    const CodeRange range = RangeOf(layer_.x.dtype());
    const bool is_code = zero_point >= range.min && zero_point <= range.max;
    return is_code || std::ranges::all_of(layer_.w_q.zero_point, [](int32_t z) { return z == 0; });
  }

  void AddRearrangements() {
    const size_t first = remedies_.size();
    Add("permutation", [](const Group& g) { return g.Permuted(false); });
    const bool complete = remedies_.size() > first && remedies_.back().overhead == 0;
    if (!complete) {
      Add("permutation and split", [](const Group& g) { return g.Permuted(true); });
    }
    if (scheme_.order.empty() || IsConv(layer_.op)) {
      Add("split", [](const Group& g) { return g.SplitInPlace(); });
    }
  }

  void Add(const std::string& name, Way way) {
    const int64_t groups = IsConv(layer_.op) ? layer_.window.groups : 1;
    std::vector<std::vector<Pair>> pairs;
    size_t rows = 0, longest = 0;
    for (int64_t g = 0; g < groups; ++g) {
      const Group group(layer_, g, rule_);
      std::optional<std::vector<Pair>> of_group = way(group);
      if (!of_group) return;
      rows = group.rows();
      longest = std::max(longest, of_group->size());
      pairs.push_back(std::move(*of_group));
    }
    // A pair takes at most two places; kernels that add in blocks may need some more.
    const auto depth = static_cast<size_t>(terms_.depth);
    for (size_t more = depth; more <= std::max(depth, 2 * longest) + 4; ++more) {
      if (std::optional<Rebuilt> rebuilt = TryDepth(pairs, more, rows)) {
        Take(name, std::move(*rebuilt), more);
        return;
      }
    }
  }

  std::optional<Rebuilt> TryDepth(const std::vector<std::vector<Pair>>& pairs, size_t depth,
                                  size_t rows) const {
    // Inside a tap the pairs of a convolution are neighbours only where their number is even.
    if (IsConv(layer_.op) && depth % 2 != 0) return std::nullopt;
    std::vector<int32_t> order;
    if (!IsConv(layer_.op)) {
      Case longer = layer_;
      longer.K = static_cast<int64_t>(depth);
      order = SchemeFor(scheme_, longer).order;
    }
    std::vector<Columns> groups;
    for (const std::vector<Pair>& group : pairs) {
      std::optional<Columns> columns = Placed(group, order, depth, rows);
      if (!columns) return std::nullopt;
      groups.push_back(std::move(*columns));
    }
    Rebuilt rebuilt = Build(layer_, groups);
    const Case applied = Apply(rebuilt, layer_);
    if (!IsSafe(applied, SchemeFor(scheme_, applied), x_)) return std::nullopt;
    return rebuilt;
  }

  void Take(const std::string& name, Rebuilt rebuilt, size_t depth) {
    Remedy remedy;
    remedy.name = name;
    remedy.exact = remedy.certified = true;
    remedy.overhead = static_cast<double>(depth) / static_cast<double>(terms_.depth) - 1;
    const auto added = static_cast<int64_t>(rebuilt.source.size()) - Channels();
    const auto padding = std::ranges::count(rebuilt.source, kNoTerm);
    remedy.effect = fmt::format("{} input channels in another order", rebuilt.source.size());
    if (added > 0) {
      remedy.effect += fmt::format(", {} of them added ({} read nothing, {} read a channel again)",
                                   added, padding, added - padding);
    }
    remedy.x = x_;
    remedy.rebuilt = std::move(rebuilt);
    remedies_.push_back(std::move(remedy));
  }

  int64_t Channels() const { return terms_.depth * (IsConv(layer_.op) ? layer_.window.groups : 1); }

  // Edits one weight of each unsafe pair. Fewer do not suffice, since the pairs are disjoint.
  void AddEdits() {
    Rebuilt edited{layer_.w, {}};
    const int32_t zero_point = layer_.x_q.zero_point_at(0);
    const int64_t reach =
        std::max(std::abs(int64_t{x_.lo} - zero_point), std::abs(int64_t{x_.hi} - zero_point));
    int64_t edits = 0, largest = 0, worst = 0;
    double codes = 0;
    const auto places = static_cast<int64_t>(
        scheme_.order.empty() ? static_cast<size_t>(terms_.count()) : scheme_.order.size());
    const auto term = [&](int64_t place) {
      if (place >= places) return kNoTerm;
      return scheme_.order.empty() ? static_cast<int32_t>(place)
                                   : scheme_.order[static_cast<size_t>(place)];
    };
    for (int64_t n = 0; n < layer_.N; ++n) {
      int64_t moved = 0;
      for (int64_t place = 0; place < places; place += 2) {
        const int32_t a = term(place), b = term(place + 1);
        if (a == kNoTerm || b == kNoTerm) continue;
        const int64_t at_a = n * terms_.count() + a, at_b = n * terms_.count() + b;
        const int32_t w_a = layer_.w.IntAt(at_a), w_b = layer_.w.IntAt(at_b);
        if (rule_.Safe(w_a, w_b)) continue;
        // The larger weight is changed: relative to it the change is smaller.
        const bool first = std::abs(w_a) >= std::abs(w_b);
        const int32_t over = first ? rule_.Excess(w_a, w_b) : rule_.Excess(w_b, w_a);
        edited.w.SetInt(first ? at_a : at_b, (first ? w_a : w_b) - over);
        ++edits;
        largest = std::max<int64_t>(largest, std::abs(over));
        moved += std::abs(over) * reach;
      }
      worst = std::max(worst, moved);
      codes = std::max(codes, static_cast<double>(moved) * Multiplier(n));
    }
    Remedy remedy;
    remedy.name = "edits";
    remedy.changed = edits;
    remedy.effect = fmt::format(
        "{} of {} weights change, by at most {}; an accumulator moves by at most {}, an output by "
        "{:.3g} codes",
        edits, layer_.w.size(), largest, worst, codes);
    remedy.x = x_;
    std::vector<int32_t> same(static_cast<size_t>(Channels()));
    std::iota(same.begin(), same.end(), 0);
    edited.source = std::move(same);
    remedy.certified = IsSafe(Apply(edited, layer_), scheme_, x_);
    remedy.rebuilt = std::move(edited);
    remedies_.push_back(std::move(remedy));
  }

  double Multiplier(int64_t n) const {
    return static_cast<double>(layer_.x_q.scale_at(0)) *
           static_cast<double>(layer_.w_q.scale_at(n)) /
           static_cast<double>(layer_.out_q.scale_at(0));
  }

  // The largest code up to which every sum is safe, then half the range.
  void AddRanges() {
    int32_t safe = x_.lo - 1;
    for (int32_t step = 256; step > 0; step /= 2) {
      const int32_t next = safe + step;
      if (next <= x_.hi && IsSafe(layer_, scheme_, {x_.lo, next})) safe = next;
    }
    if (safe > x_.lo) AddRange("largest safe code", safe);
    const CodeRange range = RangeOf(layer_.x.dtype());
    const int32_t reduced = range.max / 2;
    if (reduced > x_.lo && reduced < x_.hi) AddRange("reduce_range", reduced);
  }

  void AddRange(const std::string& name, int32_t hi) {
    Remedy remedy;
    remedy.name = name;
    remedy.x = {x_.lo, hi};
    const double coarser = static_cast<double>(x_.hi - x_.lo) / static_cast<double>(hi - x_.lo);
    remedy.effect = fmt::format(
        "activations in {}..{}: their steps are {:.3g} times as wide, {:.2f} bits lost, and no "
        "larger code may ever come",
        x_.lo, hi, coarser, std::log2(coarser));
    remedy.certified = IsSafe(layer_, scheme_, remedy.x);
    remedies_.push_back(std::move(remedy));
  }

  const Case& layer_;
  const Scheme& scheme_;
  Codes x_;
  PairRule rule_;
  Terms terms_;
  std::vector<Remedy> remedies_;
};

}  // namespace

Case Apply(const Rebuilt& rebuilt, const Case& original) {
  Case c = ProblemOf(original);
  const int64_t before = IsConv(c.op) ? c.window.in_c : c.K;
  const auto after = static_cast<int64_t>(rebuilt.source.size());
  c.w = rebuilt.w;
  if (IsConv(c.op)) {
    c.window.in_c = after;
    // A depthwise layer with more than one channel for each output is a convolution of groups.
    if (c.op == Op::kDepthwise && c.window.groups != after) c.op = Op::kConv2d;
    DeriveSizes(&c);
  } else {
    c.K = after;
  }
  c.x = Tensor(original.x.dtype(), ShapeOfX(c));
  const CodeRange range = RangeOf(c.x.dtype());
  const int32_t nothing = std::clamp(c.x_q.zero_point_at(0), range.min, range.max);
  const int64_t pixels = before == 0 ? 0 : original.x.size() / before;
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    for (int64_t i = 0; i < after; ++i) {
      const int32_t from = rebuilt.source[static_cast<size_t>(i)];
      c.x.SetInt(pixel * after + i,
                 from == kNoTerm ? nothing : original.x.IntAt(pixel * before + from));
    }
  }
  c.expected = original.expected;
  return c;
}

std::vector<Remedy> Repair(const Case& layer, const Scheme& scheme, Codes x) {
  return Shop(layer, scheme, x).All();
}

}  // namespace qualm::proofs
