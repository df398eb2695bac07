// SPDX-License-Identifier: Apache-2.0
#include "triage/influence.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "core/rng.h"
#include "triage/ask.h"

namespace qualm::triage {
namespace {

// Replaces each element of [from, from + count) by a random one of them.
void Resample(Tensor& tensor, int64_t from, int64_t count, Rng& rng) {
  const auto size = static_cast<int64_t>(SizeOf(tensor.dtype()));
  const std::vector<uint8_t> old(tensor.bytes().begin() + from * size,
                                 tensor.bytes().begin() + (from + count) * size);
  for (int64_t i = 0; i < count; ++i) {
    const auto other = static_cast<int64_t>(rng.Below(static_cast<uint64_t>(count)));
    std::memcpy(tensor.bytes().data() + (from + i) * size, old.data() + other * size,
                static_cast<size_t>(size));
  }
}

template <class T>
void ResampleOthers(std::vector<T>& list, int64_t but, Rng& rng) {
  const std::vector<T> old = list;
  for (size_t i = 0; i < list.size(); ++i) {
    const size_t other = rng.Below(old.size());
    if (static_cast<int64_t>(i) != but) list[i] = old[other];
  }
}

// Lists that have an entry for each channel or row; `edit` changes all entries but that of `but`. A
// list of one entry stays as it is.
struct Experiment {
  std::string_view what;
  bool of_rows;
  bool (*applies)(const Case& c);
  void (*edit)(Case& c, int64_t but, Rng& rng);
};

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
               [](Case& c, int64_t but, Rng& rng) { OtherRowsOf(c.w, c.N, but, rng); }},
    Experiment{"the bias of other channels", false,
               [](const Case& c) { return c.bias || c.bias_i32; },
               [](Case& c, int64_t but, Rng& rng) {
                 if (c.bias) ResampleOthers(*c.bias, but, rng);
                 if (c.bias_i32) ResampleOthers(*c.bias_i32, but, rng);
               }},
    Experiment{"the zero points of other channels", false,
               [](const Case& c) { return c.w_q.zero_point.size() > 1; },
               [](Case& c, int64_t but, Rng& rng) { ResampleOthers(c.w_q.zero_point, but, rng); }},
    Experiment{"the scales of other channels", false,
               [](const Case& c) {
                 return c.w_q.scale.size() > 1 || c.x_q.scale.size() > 1 ||
                        c.out_q.scale.size() > 1 || c.multiplier.size() > 1;
               },
               [](Case& c, int64_t but, Rng& rng) {
                 for (QParams* q : {&c.x_q, &c.w_q, &c.out_q}) {
                   if (q->scale.size() > 1) ResampleOthers(q->scale, but, rng);
                 }
                 if (c.multiplier.size() > 1) ResampleOthers(c.multiplier, but, rng);
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

// Some wrong outputs: the first, the last, and some in between.
std::vector<int64_t> Departing(const Tensor& right, const Tensor& y) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < y.size(); ++i) {
    if (y.BitsAt(i) != right.BitsAt(i)) all.push_back(i);
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
    for (size_t at = 0; at < departing.size(); ++at) {
      const int64_t output = departing[at], m = output / columns, n = output % columns;
      for (int t = 0; t < kTries && seen < 2 && left > 0; ++t) {
        Rng rng(MixSeed(static_cast<uint64_t>(output), static_cast<uint64_t>(t)));
        Case edited = ProblemOf(c);
        experiment.edit(edited, experiment.of_rows ? m : n, rng);
        if (edited == c) continue;
        --left;
        const std::optional<Tensor> answer = ask(edited);
        seen += answer && answer->BitsAt(output) != y.BitsAt(output) ? 1 : 0;
      }
    }
    if (seen < 2) continue;
    // A subject that answers the same question differently has another cause.
    for (int again = 0; again < 2; ++again) {
      if (ask(ProblemOf(c)) != y) return std::nullopt;
    }
    return "outputs change with " + std::string(experiment.what);
  }
  return std::nullopt;
}

}  // namespace qualm::triage
