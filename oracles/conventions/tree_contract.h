// SPDX-License-Identifier: Apache-2.0
// A summation tree as a contract: the outputs of a linear whose blocks are added along this tree,
// bit for bit. `qualm identify --tree` writes it as one line,
// "tree:{form:q8_0 parts:8x4 order:8/halves steps:fused scales:product every:32}", of q4_k with
// "minima:4x64/last/4/halves/product" behind the order.
#ifndef QUALM_ORACLES_CONVENTIONS_TREE_CONTRACT_H_
#define QUALM_ORACLES_CONVENTIONS_TREE_CONTRACT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "oracles/conventions/convention.h"
#include "oracles/conventions/linear_forms.h"
#include "oracles/conventions/sum_orders.h"

namespace qualm::conventions {

// The minima of the blocks of a row, which are parts beside those of its products.
struct TreeMinima {
  enum class Place : uint8_t {
    kInside,  // taken out of the products of their part, as integers: no parts of their own
    kWith,    // before each part of products, which is added to it; the sum of both goes to a lane
    kBefore,  // before the parts of their (super-)block, and behind them: parts like others
    kBehind,
    kFirst,  // a sum of their own, to which lanes in sequence are added
    kLast,   // a sum of their own, which is added last
  };
  int64_t parts = 1, run = 1;  // as of TreeContract
  Place place = Place::kBehind;
  SumOrder own = {};  // of kFirst and kLast
  size_t scales = 0;
};

struct TreeContract {
  // Null: a sum of products of two lists of floats, by which no case is judged.
  const LinearForm* form = nullptr;
  // Product k of a (super-)block is in part k / run % parts of it; the same of each `span`
  // products, if any, which have parts of their own.
  int64_t parts = 1, run = 1, span = 0;
  // Of sums of any length; else `tree`, of sums of so many parts. Its `fused` follows from steps.
  std::optional<SumOrder> order = std::nullopt;
  SumTree tree = {};
  SumSteps steps = SumSteps::kFused;
  size_t scales = 0;  // a place in ScaleWaysOf(form)
  // Of forms with minima; in `tree` they are behind the parts of their (super-)block.
  std::optional<TreeMinima> minima = std::nullopt;
  // Of an order: rows, filled up to whole (super-)blocks, have a multiple of so many products.
  int64_t every = 0;

  std::string text() const;
};
inline constexpr int64_t kMostProductsOfTree = 1024;

// Throws InputError with one sentence for what is none.
TreeContract ParseTreeContract(std::string_view text);
// The sum of the products of two lists, of a length that the contract knows, the parts one behind
// the other as PartsOf has them.
float SumBy(const TreeContract& contract, std::span<const float> a, std::span<const float> b);
// The parts of so many (super-)blocks: of each those of products, and behind them those of minima.
std::vector<SumPart> PartsOf(const TreeContract& contract, int64_t blocks);
// The order for people, with where minima go; "" of a tree that has none.
std::string NameOfOrder(const TreeContract& contract);
// A convention named by contract.text(). Of a contract without form it computes nothing.
Convention ConventionOf(const TreeContract& contract);

// "" if there is a convention of this name, of a tree too, else why not.
std::string WhyNoConvention(std::string_view name);
// Contracts with what the files say in place of tree:FILE. Throws InputError "FILE: what".
std::string WithTreesOfFiles(std::string_view contracts);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_TREE_CONTRACT_H_
