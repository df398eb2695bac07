// SPDX-License-Identifier: Apache-2.0
// In which order somebody's function adds, found out from its answers alone (FPRev: Xie et al.,
// USENIX ATC 2025), and with which steps, tried on random numbers.
#ifndef QUALM_TRIAGE_REVEAL_H_
#define QUALM_TRIAGE_REVEAL_H_

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/rng.h"
#include "oracles/conventions/sum_orders.h"
#include "oracles/conventions/tree_contract.h"

namespace qualm::triage {

// The sum of the products a[k] * b[k] as somebody computes it. It may throw, and RevealSum lets
// that pass.
using AskSum = std::function<float(std::span<const float> a, std::span<const float> b)>;

struct RevealOptions {
  int64_t products = 64;   // 2 to 1024
  int64_t cases = 10'000;  // of random numbers
  uint64_t seed = 1;
  std::function<bool()> stopped = {};  // true ends the random numbers; may be null
  // Of linears: whether this one may be asked. Null: all may.
  std::function<bool(const Case& c)> takes = {};
};

struct RevealedSum {
  int64_t products = 0;  // leaves of the tree
  // Where leaves are sums of products themselves, added as integers: the products of each leaf, or
  // those of the blocks whose minima it is, block by block.
  std::vector<conventions::SumPart> parts = {};
  int64_t block = 0;  // products that share a scale; 0 where none do
  int64_t questions = 0;
  std::optional<conventions::SumTree> tree;
  // No step rounds, so that nothing tells in which order it adds.
  bool is_exact = false;
  std::string why_no_tree;  // where there is neither

  std::string order;  // of the orders with this tree the simplest; "" if none has it
  // The steps that gave the bits of every random case; "" if none did.
  std::string steps;
  int64_t compared = 0;  // random cases
  // Of known steps: what others can be judged by; none where a contract cannot say it.
  std::optional<conventions::TreeContract> contract;
  // Without steps: a case in which the steps differ that went farthest.
  struct Witness {
    std::vector<float> a, b;
    float expected = 0, actual = 0;
    std::string steps;
  };
  std::optional<Witness> witness;

  // "((0+1)+2)", or that the sum is exact, or why there is no tree.
  std::string text() const;
  // Whether everything is known: an order, or that there is none to be seen, and the steps.
  bool is_known() const {
    return (tree || is_exact || (contract && contract->order)) && !steps.empty();
  }
};

// Throws InputError where the options are out of range.
RevealedSum RevealSum(const AskSum& ask, const RevealOptions& options);

// What RevealSum is made of, for questions that are no two lists of floats (reveal_linear.h).
//
// Sets the tree of sum.products leaves, or says why there is none. leaves_of_common: as of
// conventions::RevealTree; it may throw NoTree.
struct NoTree {
  std::string why;
};
// What the sum that is asked threw: RevealTree throws an InputError of its own.
struct ThrownBySum {
  std::exception_ptr error;
};
void FindTree(const std::function<int64_t(int64_t i, int64_t j)>& leaves_of_common,
              RevealedSum& sum);
// Runs `find`; where that throws NoTree or InputError, this is why there is no tree.
void OrWhyNoTree(RevealedSum& sum, const std::function<void()>& find);
// One random sum: what was answered, and in which ways its leaves may be products of two float32.
struct DrawnSum {
  struct Factors {
    std::string_view name;  // of the way; "" if there is one
    std::vector<float> a, b;
  };
  std::vector<Factors> ways;
  float actual = 0;
};
void FindSteps(const std::function<DrawnSum(Rng&)>& draw, const RevealOptions& options,
               RevealedSum& sum);
// What the sum that is asked throws passes through both unchanged.
template <class Ask>
auto LetPass(const Ask& ask) {
  try {
    return ask();
  } catch (...) {
    throw ThrownBySum{std::current_exception()};
  }
}

// A tree for people, a line for each node. Leaves that are added one after the other share a line:
// "0 + 8 + ... + 56".
std::string DrawingOf(const conventions::SumTree& tree);
// What was found, in a few lines: the order, the steps, the drawing.
std::string TextOf(const RevealedSum& sum);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_REVEAL_H_
