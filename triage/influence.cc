// SPDX-License-Identifier: Apache-2.0
#include "triage/influence.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "triage/ask.h"

namespace qualm::triage {
namespace {

// Replaces each element of [from, from + count) by a random one of them.
void Resample(Tensor& tensor, int64_t from, int64_t count, Rng& rng) {
  const Tensor old = tensor;
  for (int64_t i = 0; i < count; ++i) {
    const auto other = static_cast<int64_t>(rng.Below(static_cast<uint64_t>(count)));
    tensor.CopyFrom(old, from + other, 1, from + i);
  }
}

// `each`: entries of one channel.
template <class T>
void ResampleOthers(std::vector<T>& list, int64_t but, Rng& rng, int64_t each = 1) {
  const std::vector<T> old = list;
  for (size_t i = 0; i < list.size(); ++i) {
    const size_t other = rng.Below(old.size());
    if (static_cast<int64_t>(i) / each != but) list[i] = old[other];
  }
}

// Lists that have an entry for each channel or row; `edit` changes all entries but that of `but`. A
// list of one entry stays as it is.
struct Experiment {
  std::string_view what;
  bool of_rows;
  bool (*applies)(const Case& c);
  void (*edit)(Case& c, int64_t but, Rng& rng);
  // Gives a channel its entries back. None: it is not looked for what belongs to which.
  void (*restore)(Case& c, const Case& original, int64_t channel) = nullptr;
};

template <class T>
void RestoreAt(std::vector<T>& list, const std::vector<T>& original, int64_t channel,
               int64_t each = 1) {
  for (int64_t i = channel * each; i < std::min((channel + 1) * each, std::ssize(list)); ++i)
    list[static_cast<size_t>(i)] = original[static_cast<size_t>(i)];
}

bool HasRowsOfWeights(const Case& c) { return HasWeights(c.op); }
bool HasRows(const Case& c) { return !HasWindow(c.op) && !RowsShareQParams(c); }
bool HasImages(const Case& c) { return HasWindow(c.op); }

void OtherRowsOf(Tensor& tensor, int64_t rows, int64_t but, Rng& rng) {
  const int64_t length = tensor.size() / rows;
  for (int64_t row = 0; row < rows; ++row) {
    if (row != but) Resample(tensor, row * length, length, rng);
  }
}

constexpr std::array kExperiments{
    Experiment{"the weights of other channels", false, HasRowsOfWeights,
               [](Case& c, int64_t but, Rng& rng) { OtherRowsOf(c.w, c.N, but, rng); },
               [](Case& c, const Case& original, int64_t channel) {
                 const int64_t length = c.w.size() / c.N;
                 for (int64_t i = channel * length; i < (channel + 1) * length; ++i)
                   c.w.SetInt(i, original.w.IntAt(i));
               }},
    Experiment{"the bias of other channels", false,
               [](const Case& c) { return c.bias || c.bias_i32; },
               [](Case& c, int64_t but, Rng& rng) {
                 if (c.bias) ResampleOthers(*c.bias, but, rng);
                 if (c.bias_i32) ResampleOthers(*c.bias_i32, but, rng);
               },
               [](Case& c, const Case& original, int64_t channel) {
                 if (c.bias) RestoreAt(*c.bias, *original.bias, channel);
                 if (c.bias_i32) RestoreAt(*c.bias_i32, *original.bias_i32, channel);
               }},
    Experiment{"the zero points of other channels", false,
               [](const Case& c) { return c.w_q.zero_point.size() > 1; },
               [](Case& c, int64_t but, Rng& rng) {
                 ResampleOthers(c.w_q.zero_point, but, rng, RowBlocks(c));
               },
               [](Case& c, const Case& original, int64_t channel) {
                 RestoreAt(c.w_q.zero_point, original.w_q.zero_point, channel, RowBlocks(c));
               }},
    Experiment{"the scales of other channels", false,
               [](const Case& c) {
                 return c.w_q.scale.size() > 1 || (c.x_q.scale.size() > 1 && c.x_block == 0) ||
                        c.out_q.scale.size() > 1 || c.multiplier.size() > 1;
               },
               [](Case& c, int64_t but, Rng& rng) {
                 for (QParams* q : {&c.x_q, &c.w_q, &c.out_q}) {
                   if (q == &c.x_q && c.x_block != 0) continue;  // those of rows
                   if (q->scale.size() > 1) ResampleOthers(q->scale, but, rng, RowBlocks(c));
                 }
                 if (c.multiplier.size() > 1) ResampleOthers(c.multiplier, but, rng);
               },
               [](Case& c, const Case& original, int64_t channel) {
                 for (QParams Case::* q : {&Case::x_q, &Case::w_q, &Case::out_q}) {
                   if ((c.*q).scale.size() > 1 && (q != &Case::x_q || c.x_block == 0))
                     RestoreAt((c.*q).scale, (original.*q).scale, channel, RowBlocks(c));
                 }
                 if (c.multiplier.size() > 1) RestoreAt(c.multiplier, original.multiplier, channel);
               }},
    Experiment{"other rows of the input", true, HasRows,
               [](Case& c, int64_t but, Rng& rng) {
                 OtherRowsOf(c.x, c.M, but, rng);
                 if (HasTwoOperands(c.op) && !c.w.empty()) OtherRowsOf(c.w, c.M, but, rng);
               }},
    Experiment{"other images", true, HasImages,
               [](Case& c, int64_t but, Rng& rng) {
                 OtherRowsOf(c.x, c.window.batch, but / (c.M / c.window.batch), rng);
               }},
};

// Which channel's entries the output of channel n is computed from, of `channels`.
struct Source {
  std::string_view what;
  int64_t (*of)(int64_t n, int64_t channels);
};
constexpr std::array kSources{
    Source{"channel 0", [](int64_t, int64_t) { return int64_t{0}; }},
    Source{"the channel before", [](int64_t n, int64_t) { return n - 1; }},
    Source{"the channel behind", [](int64_t n, int64_t) { return n + 1; }},
    Source{"the last channel", [](int64_t, int64_t channels) { return channels - 1; }},
    Source{"the first of each two channels", [](int64_t n, int64_t) { return n - n % 2; }},
    Source{"the first of each four channels", [](int64_t n, int64_t) { return n - n % 4; }},
    Source{"the first of each eight channels", [](int64_t n, int64_t) { return n - n % 8; }},
    Source{"the first of each 16 channels", [](int64_t n, int64_t) { return n - n % 16; }},
};

// An output that changes with what belongs to other channels, and the case in which it does.
struct Changed {
  int64_t output = 0;
  Case edited;
};

// The source of all these outputs, of this case: they do not change where it keeps its entries. "":
// none of the table.
std::string SourceOf(const Experiment& experiment, const Case& c, const Tensor& y,
                     const std::vector<Changed>& changed,
                     const std::function<std::optional<Tensor>(const Case&)>& ask) {
  if (experiment.restore == nullptr) return "";
  for (const Source& source : kSources) {
    const bool is_source = std::ranges::all_of(changed, [&](const Changed& each) {
      const int64_t n = each.output % c.N, from = source.of(n, c.N);
      if (from < 0 || from >= c.N || from == n) return false;
      Case edited = each.edited;
      experiment.restore(edited, c, from);
      const std::optional<Tensor> answer = ask(edited);
      return answer && answer->SameAt(each.output, y);
    });
    if (is_source) return std::string(source.what);
  }
  return "";
}

// Some wrong outputs: the first, the last, and some in between.
std::vector<int64_t> Departing(const Tensor& right, const Tensor& y) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < y.size(); ++i) {
    if (!y.SameAt(i, right)) all.push_back(i);
  }
  if (all.size() <= 3) return all;
  return {all.front(), all[all.size() / 2], all.back()};
}

}  // namespace

std::optional<std::string> ForeignInfluence(const Case& c, const Tensor& right, const Tensor& y,
                                            Subject& subject) {
  constexpr int kTries = 3;
  const int64_t columns = c.N;
  if (RowOf(c.op).layout == Layout::kBatches) return std::nullopt;  // all values make one output
  const auto ask = [&](const Case& problem) -> std::optional<Tensor> {
    return subject.CannotRun(problem).empty() ? Ask(subject, problem) : std::nullopt;
  };
  const std::vector<int64_t> departing = Departing(right, y);
  int left = 38;  // two more runs repeat the case itself
  for (const Experiment& experiment : kExperiments) {
    if (!experiment.applies(c)) continue;
    int seen = 0;
    std::vector<Changed> changed;
    for (size_t at = 0; at < departing.size(); ++at) {
      const int64_t output = departing[at], m = output / columns, n = output % columns;
      int of_output = 0;  // one or two of each output, so that they tell of several
      for (int t = 0; t < kTries && of_output < 2 && left > 0; ++t) {
        Rng rng(MixSeed(static_cast<uint64_t>(output), static_cast<uint64_t>(t)));
        Case edited = ProblemOf(c);
        experiment.edit(edited, experiment.of_rows ? m : n, rng);
        if (edited == c) continue;
        --left;
        const std::optional<Tensor> answer = ask(edited);
        if (!answer || answer->SameAt(output, y)) continue;
        ++seen, ++of_output;
        changed.push_back({output, std::move(edited)});
      }
    }
    if (seen < 2) continue;
    // A subject that answers the same question differently has another cause.
    for (int again = 0; again < 2; ++again) {
      if (ask(ProblemOf(c)) != y) return std::nullopt;
    }
    std::string sentence = "outputs change with " + std::string(experiment.what);
    const std::string source = SourceOf(experiment, c, y, changed, ask);
    return source.empty() ? sentence : sentence + ", here those of " + source;
  }
  return std::nullopt;
}

}  // namespace qualm::triage
