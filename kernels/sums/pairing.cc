// SPDX-License-Identifier: Apache-2.0
// Chooses an order of the activations in which few pairs of weights can saturate, and puts the
// weights in that order; row_block.cc brings each row of activations into the same order
// (arrange.h). Exact because a sum does not depend on the order of its terms, and because certify.h
// and split.h see the weights in their new order.
#include "kernels/sums/pairing.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "kernels/sums/split.h"

namespace qualm::kernels {
namespace {

// Prices are in multiples of the time of a panel whose pairs are all safe, about as on a Zen 5:
// shuffling the rows, and the path of widened ones (accumulate.cc).
constexpr double kPriceOfShuffle = 0.1;
constexpr double kPriceOfWidening = 1.25;

using Order = std::array<uint8_t, kShuffled>;

constexpr Order Neighbours() {
  Order order{};
  std::iota(order.begin(), order.end(), uint8_t{0});
  return order;
}

// Which of sixteen activations must not meet: bit b of [a], and bit a of [b].
struct Unsafe {
  std::array<uint16_t, kShuffled> of = {};

  bool Has(uint8_t a, uint8_t b) const { return (of[a] >> b & 1) != 0; }
  void Join(const Unsafe& other) {
    for (size_t i = 0; i < of.size(); ++i) of[i] |= other.of[i];
  }
  int64_t Count(const Order& order) const {
    int64_t count = 0;
    for (size_t i = 0; i < order.size(); i += 2) count += Has(order[i], order[i + 1]);
    return count;
  }
};

// The weights of sixteen activations, by their signs: CertifyPair for two of them and all channels
// is two comparisons for each channel, in bytes.
class SignedWeights {
 public:
  SignedWeights(const PanelWeights& panel, int64_t block)
      : width_(static_cast<size_t>(panel.width)) {
    for (auto* weights : {&positive_, &negative_}) weights->resize(kShuffled * width_);
    for (size_t i = 0; i < kShuffled; ++i) {
      for (size_t c = 0; c < width_; ++c) {
        const int w =
            *panel.At(block * kShuffled + static_cast<int64_t>(i), static_cast<int64_t>(c));
        positive_[i * width_ + c] = static_cast<uint8_t>(std::max(w, 0));
        negative_[i * width_ + c] = static_cast<uint8_t>(std::max(-w, 0));
        most_positive_[i] = std::max(most_positive_[i], positive_[i * width_ + c]);
        most_negative_[i] = std::max(most_negative_[i], negative_[i * width_ + c]);
      }
    }
  }

  Unsafe Pairs() const {
    Unsafe unsafe;
    for (size_t a = 0; a < kShuffled; ++a) {
      for (size_t b = a + 1; b < kShuffled; ++b) {
        if (!(most_positive_[a] + most_positive_[b] > 128 && Exceeds(positive_, a, b)) &&
            !(most_negative_[a] + most_negative_[b] > 128 && Exceeds(negative_, a, b)))
          continue;
        unsafe.of[a] |= static_cast<uint16_t>(1 << b);
        unsafe.of[b] |= static_cast<uint16_t>(1 << a);
      }
    }
    return unsafe;
  }

 private:
  bool Exceeds(const std::vector<uint8_t>& weights, size_t a, size_t b) const {
    const uint8_t* of_a = weights.data() + a * width_;
    const uint8_t* of_b = weights.data() + b * width_;
    uint8_t exceeds = 0;
    for (size_t c = 0; c < width_; ++c) exceeds |= of_a[c] > static_cast<uint8_t>(128 - of_b[c]);
    return exceeds != 0;
  }

  size_t width_;
  std::vector<uint8_t> positive_;  // [16][width]
  std::vector<uint8_t> negative_;
  Order most_positive_ = {};
  Order most_negative_ = {};
};

// An order with few unsafe pairs: partners are exchanged as long as that makes them fewer.
Order FindOrder(const Unsafe& unsafe) {
  Order order = Neighbours();
  // Returns whether it has made unsafe pairs fewer.
  const auto improve = [&](size_t pair) {
    for (size_t other = 0; other < kShuffled; other += 2) {
      if (other == pair) continue;
      uint8_t& a = order[pair + 1];
      for (uint8_t* b : {&order[other], &order[other + 1]}) {
        const int before = 1 + unsafe.Has(order[other], order[other + 1]);
        std::swap(a, *b);
        const int after =
            unsafe.Has(order[pair], order[pair + 1]) + unsafe.Has(order[other], order[other + 1]);
        if (after < before) return true;
        std::swap(a, *b);
      }
    }
    return false;
  };
  for (bool improved = true; improved;) {
    improved = false;
    for (size_t pair = 0; pair < kShuffled; pair += 2) {
      if (unsafe.Has(order[pair], order[pair + 1])) improved = improve(pair) || improved;
    }
  }
  return order;
}

class Chooser {
 public:
  Chooser(int64_t depth, std::span<const PanelWeights> panels)
      : blocks_(static_cast<size_t>(depth / kShuffled)),
        pairs_(static_cast<double>(depth) / 2),
        most_split_(MostExtraPlaces((depth + 3) / 4)) {
    unsafe_.reserve(panels.size() * blocks_);
    for (const PanelWeights& panel : panels) {
      for (size_t block = 0; block < blocks_; ++block)
        unsafe_.push_back(SignedWeights(panel, static_cast<int64_t>(block)).Pairs());
    }
  }

  struct Choice {
    double price = 0;
    std::vector<Pairing> pairings = {};
  };

  // For panels [begin, end): they stay, or they share one order, or each half has its own choice.
  Choice Choose(size_t begin, size_t end) const {
    const std::vector<Order> stay(blocks_, Neighbours());
    Choice choice = {PriceOf(stay, begin, end), {{.end_panel = end}}};
    const double least = static_cast<double>(end - begin);
    if (choice.price == least) return choice;
    const std::vector<Order> orders = SharedOrder(begin, end);
    const double shared = kPriceOfShuffle + PriceOf(orders, begin, end);
    if (shared < choice.price) {
      choice = {shared, {{.end_panel = end}}};
      for (const Order& order : orders)
        choice.pairings[0].shuffle.insert(choice.pairings[0].shuffle.end(), order.begin(),
                                          order.end());
    }
    if (end - begin == 1 || choice.price <= least + kPriceOfShuffle) return choice;
    Choice halves = Choose(begin, begin + (end - begin) / 2);
    Choice second = Choose(begin + (end - begin) / 2, end);
    halves.price += second.price;
    if (halves.price >= choice.price) return choice;
    for (Pairing& pairing : second.pairings) {
      if (pairing.shuffle.empty() && halves.pairings.back().shuffle.empty()) {
        halves.pairings.back().end_panel = pairing.end_panel;
      } else {
        halves.pairings.push_back(std::move(pairing));
      }
    }
    return halves;
  }

 private:
  std::vector<Order> SharedOrder(size_t begin, size_t end) const {
    std::vector<Order> orders;
    orders.reserve(blocks_);
    for (size_t block = 0; block < blocks_; ++block) {
      Unsafe unsafe;
      for (size_t panel = begin; panel < end; ++panel)
        unsafe.Join(unsafe_[panel * blocks_ + block]);
      orders.push_back(FindOrder(unsafe));
    }
    return orders;
  }

  double PriceOf(const std::vector<Order>& orders, size_t begin, size_t end) const {
    double price = 0;
    for (size_t panel = begin; panel < end; ++panel) {
      int64_t count = 0;
      for (size_t block = 0; block < blocks_; ++block)
        count += unsafe_[panel * blocks_ + block].Count(orders[block]);
      // About: an unsafe pair may need two places (split.h), and the last depth % 16 activations
      // are not counted.
      price += count > most_split_ ? kPriceOfWidening : 1 + static_cast<double>(count) / pairs_;
    }
    return price;
  }

  size_t blocks_;
  double pairs_;  // of one channel
  int64_t most_split_;
  std::vector<Unsafe> unsafe_;  // [panel][block]
};

void Reorder(const PanelWeights& panel, std::span<const uint8_t> shuffle) {
  for (size_t block = 0; block < shuffle.size(); block += kShuffled) {
    for (int64_t c = 0; c < panel.width; ++c) {
      const auto at = [&](int64_t i) -> int8_t& {
        return *panel.At(static_cast<int64_t>(block) + i, c);
      };
      int8_t before[kShuffled];
      for (int64_t i = 0; i < kShuffled; ++i) before[i] = at(i);
      for (int64_t i = 0; i < kShuffled; ++i)
        at(i) = before[shuffle[block + static_cast<size_t>(i)]];
    }
  }
}

}  // namespace

std::vector<Pairing> PairActivations(int64_t depth, std::span<const PanelWeights> panels) {
  if (depth < kShuffled || panels.empty()) return {};
  std::vector<Pairing> pairings = Chooser(depth, panels).Choose(0, panels.size()).pairings;
  if (std::ranges::all_of(pairings, [](const Pairing& p) { return p.shuffle.empty(); })) return {};
  size_t panel = 0;
  for (const Pairing& pairing : pairings) {
    for (; panel < pairing.end_panel; ++panel) Reorder(panels[panel], pairing.shuffle);
  }
  return pairings;
}

}  // namespace qualm::kernels
