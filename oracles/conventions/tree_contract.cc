// SPDX-License-Identifier: Apache-2.0
#include "oracles/conventions/tree_contract.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <tuple>
#include <utility>

#include "core/contract.h"
#include "core/float_text.h"
#include "core/io/text_file.h"
#include "core/nearest.h"
#include "core/status.h"
#include "oracles/conventions/requirements.h"
#include "oracles/exact/arithmetic/rational.h"

namespace qualm::conventions {
namespace {

using Lanes = SumOrder::Lanes;

// The words of a contract, in the order of the enumerators.
constexpr std::array<std::string_view, 5> kLanes{"sequence", "halves", "neighbours", "quartets",
                                                 "quarters"};
constexpr std::array<std::string_view, 6> kPlaces{"inside", "with",  "before",
                                                  "behind", "first", "last"};
constexpr std::array<std::string_view, 4> kSteps{"fused", "rounded", "double", "wide"};

[[noreturn]] void Fail(std::string_view key, std::string_view value, const std::string& expected) {
  throw InputError(std::string(key) + " of a tree: is '" + std::string(value.substr(0, 40)) +
                   "', expected " + expected);
}

template <size_t kCount>
size_t PlaceOf(std::string_view key, std::string_view value,
               const std::array<std::string_view, kCount>& words) {
  const auto at = std::ranges::find(words, value);
  if (at != words.end()) return static_cast<size_t>(at - words.begin());
  std::string all;
  for (const std::string_view word : words) all += (all.empty() ? "" : ", ") + std::string(word);
  Fail(key, value, "one of " + all);
}

// A number from 1 to `most`, without zeros before it.
std::optional<int64_t> Number(std::string_view text, int64_t most) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || text.starts_with('0') ||
      number < 1 || number > most)
    return std::nullopt;
  return number;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    pieces.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return pieces;
}

// "((0+1)+2)", each leaf from 0 on once.
class TreeReader {
 public:
  explicit TreeReader(std::string_view text) : text_(text) {}

  SumTree Read() {
    SumTree tree = Node(0);
    if (at_ != text_.size()) Wrong();
    for (size_t i = 0; i < seen_.size(); ++i)
      if (!seen_[i])
        Fail("order", text_, "each part from 0 on once: " + std::to_string(i) + " is missing");
    return tree;
  }

 private:
  [[noreturn]] void Wrong() const {
    Fail("order", text_.substr(at_),
         "a tree as ((0+1)+2) of at most " + std::to_string(kMostProductsOfTree) + " parts");
  }
  bool Eat(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  SumTree Node(int64_t depth) {
    if (depth >= kMostProductsOfTree) Wrong();
    SumTree node;
    if (!Eat('(')) {
      node.leaf = Leaf();
      return node;
    }
    do node.parts.push_back(Node(depth + 1));
    while (Eat('+'));
    if (!Eat(')') || node.parts.size() < 2) Wrong();
    return node;
  }
  int64_t Leaf() {
    const size_t end = std::min(text_.find_first_not_of("0123456789", at_), text_.size());
    const std::string_view digits = text_.substr(at_, end - at_);
    const std::optional<int64_t> leaf = digits == "0" ? 0 : Number(digits, kMostProductsOfTree - 1);
    if (!leaf) Wrong();
    const auto place = static_cast<size_t>(*leaf);
    if (seen_.size() <= place) seen_.resize(place + 1);
    if (seen_[place]) Wrong();
    seen_[place] = true;
    at_ = end;
    return *leaf;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<bool> seen_;
};

// "8/halves", "1/sequence/32": lanes, how they are added, and the parts of a block.
SumOrder OrderOf(std::string_view value) {
  const std::vector<std::string_view> pieces = Split(value, '/');
  const std::optional<int64_t> lanes = Number(pieces[0], kMostProductsOfTree);
  const bool has_block = pieces.size() == 3;
  const std::optional<int64_t> block =
      has_block ? Number(pieces[2], kMostProductsOfTree) : std::optional<int64_t>(0);
  if (pieces.size() < 2 || pieces.size() > 3 || !lanes || (*lanes & (*lanes - 1)) != 0 || !block)
    Fail("order", value, "LANES/HOW or LANES/HOW/BLOCK, or a tree as ((0+1)+2)");
  const auto reduce = static_cast<Lanes>(PlaceOf("order", pieces[1], kLanes));
  if ((reduce == Lanes::kQuartets || reduce == Lanes::kStridedQuarters) && *lanes < 4)
    Fail("order", value, "at least 4 lanes");
  return {.lanes = *lanes, .reduce = reduce, .block = *block};
}

// "8x4": parts, and products that follow one another in each.
std::pair<int64_t, int64_t> PatternOf(const LinearForm& form, std::string_view key,
                                      std::string_view value) {
  const std::vector<std::string_view> numbers = Split(value, 'x');
  const auto number = [&](size_t i) {
    return i < numbers.size() ? Number(numbers[i], form.size()) : std::nullopt;
  };
  if (numbers.size() != 2 || !number(0) || !number(1) ||
      form.size() % (*number(0) * *number(1)) != 0)
    Fail(key, value, "COUNTxRUN of which " + std::to_string(form.size()) + " is a multiple");
  return {*number(0), *number(1)};
}

// "8x4", "4x4/32".
void ReadParts(const LinearForm& form, std::string_view value, TreeContract& contract) {
  const std::vector<std::string_view> pieces = Split(value, '/');
  std::tie(contract.parts, contract.run) = PatternOf(form, "parts", pieces[0]);
  if (pieces.size() == 1) return;
  const std::optional<int64_t> span = Number(pieces[1], form.size() - 1);
  if (pieces.size() != 2 || !span || form.size() % *span != 0 ||
      *span % (contract.parts * contract.run) != 0)
    Fail("parts", value,
         "COUNTxRUN or COUNTxRUN/SPAN, of which each is a multiple of the one before");
  contract.span = *span;
  contract.parts *= form.size() / *span;
}

// Whether products of one part have several scales of x.
bool SpansScalesOfX(const TreeContract& contract) {
  const LinearForm& form = *contract.form;
  for (const SumPart& part : PartsOf(contract, 1))
    if (part.products.back() / form.x_size() != part.products.front() / form.x_size()) return true;
  return false;
}

size_t WayOf(const LinearForm& form, std::string_view key, std::string_view value) {
  const std::span<const ScaleWay> ways = ScaleWaysOf(form);
  const auto way = std::ranges::find(ways, value, &ScaleWay::name);
  if (way == ways.end()) Fail(key, value, "one of those of " + std::string(form.name));
  return static_cast<size_t>(way - ways.begin());
}

bool HasMinimaOfTheirOwn(const TreeContract& contract) {
  return contract.minima && contract.minima->place != TreeMinima::Place::kInside;
}
int64_t PartsOfBlock(const TreeContract& contract) {
  return contract.parts + (HasMinimaOfTheirOwn(contract) ? contract.minima->parts : 0);
}
bool HasOwnSum(const TreeMinima& minima) { return minima.place >= TreeMinima::Place::kFirst; }

// "4x64/last/4/halves/product", "8x32/before/product".
TreeMinima MinimaOf(const TreeContract& contract, std::string_view value) {
  const std::vector<std::string_view> pieces = Split(value, '/');
  TreeMinima minima;
  if (value == kPlaces[0]) return {.place = TreeMinima::Place::kInside};
  if (pieces.size() != 3 && pieces.size() != 5)
    Fail("minima", value, "inside, COUNTxRUN/PLACE/SCALES or COUNTxRUN/PLACE/LANES/HOW/SCALES");
  std::tie(minima.parts, minima.run) = PatternOf(*contract.form, "minima", pieces[0]);
  minima.place = static_cast<TreeMinima::Place>(PlaceOf("minima", pieces[1], kPlaces));
  minima.scales = WayOf(*contract.form, "minima", pieces.back());
  if (minima.place == TreeMinima::Place::kInside) Fail("minima", value, "inside alone");
  if (HasOwnSum(minima) != (pieces.size() == 5) ||
      (!contract.order && minima.place != TreeMinima::Place::kBehind))
    Fail("minima", value, "an order behind first and last alone, and of a tree behind");
  if (minima.place == TreeMinima::Place::kWith && minima.parts != contract.parts)
    Fail("minima", value, "as many parts as products have");
  if (HasOwnSum(minima)) {
    const size_t begin = pieces[0].size() + pieces[1].size() + 2;
    minima.own = OrderOf(value.substr(begin, value.size() - begin - pieces.back().size() - 1));
    minima.own.fused = contract.order->fused;
  }
  if (contract.steps != SumSteps::kFused && contract.steps != SumSteps::kRounded && contract.order)
    Fail("steps", kSteps.at(static_cast<size_t>(contract.steps)), "fused or rounded with minima");
  return minima;
}

void ReadForm(std::map<std::string_view, std::string_view>& given, TreeContract& contract) {
  const auto take = [&](std::string_view key) {
    const auto at = given.find(key);
    if (at == given.end()) throw InputError("a tree needs " + std::string(key) + ": beside form:");
    const std::string_view value = at->second;
    given.erase(at);
    return value;
  };
  const std::string_view name = take("form");
  const auto form = std::ranges::find(LinearForms(), name, &LinearForm::name);
  if (form == LinearForms().end()) Fail("form", name, "one that qualm identify --tree names");
  contract.form = &*form;
  const std::string_view parts = take("parts");
  ReadParts(*form, parts, contract);
  if (form->x == DType::kF32 && contract.parts != form->size())
    Fail("parts", parts, std::to_string(form->size()) + "x1, since products of f32 x stand alone");
  const std::string_view scales = take("scales");
  contract.scales = WayOf(*form, "scales", scales);
  if (SpansScalesOfX(contract) && !IsChain(*form, contract.scales))
    Fail("scales", scales, "x-chain, since a part has several scales of x");
  if (form->minima()) {
    contract.minima = MinimaOf(contract, take("minima"));
    if (contract.order && contract.minima->place == TreeMinima::Place::kWith)
      contract.order->group = 2;
  }
  if (!contract.order) {
    if (LeavesOf(contract.tree) % PartsOfBlock(contract) != 0)
      throw InputError("order of a tree: has no whole blocks of " +
                       std::to_string(PartsOfBlock(contract)) + " parts");
    return;
  }
  const std::string_view every = take("every");
  const std::optional<int64_t> multiple = Number(every, kMostProductsOfTree * form->size());
  if (!multiple || *multiple % form->size() != 0)
    Fail("every", every, "a multiple of " + std::to_string(form->size()));
  contract.every = *multiple;
}

// The (super-)blocks of a row.
int64_t BlocksOf(const LinearForm& form, const Case& c) {
  return (c.K + form.size() - 1) / form.size();
}

// Whether each super-block is one that the format stores, with its scales of x.
bool AreSuperBlocks(const LinearForm& form, const Case& c) {
  const int64_t together = form.size() / form.block, blocks = RowBlocks(c);
  if (together == 1) return true;
  const auto at = [](int64_t index) { return static_cast<size_t>(index); };
  for (int64_t first = 0; first < blocks; first += together) {
    const int64_t count = std::min(together, blocks - first);
    for (int64_t n = 0; n < c.N; ++n) {
      const size_t entry = at(n * blocks + first);
      if (!SuperBlockOf(*form.format, std::span(c.w_q.scale).subspan(entry, at(count)),
                        std::span(c.w_q.zero_point).subspan(entry, at(count))))
        return false;
    }
    for (int64_t m = 0; m < c.M; ++m) {
      for (int64_t b = first; b < first + count; ++b) {
        const int64_t of_x = b - b % (form.x_size() / form.block);
        const float scale = c.x_q.scale[at(m * blocks + b)];
        if (scale != c.x_q.scale[at(m * blocks + of_x)]) return false;
        if (form.x_size() < form.size() && !HalfOf(scale)) return false;
      }
    }
  }
  return true;
}

std::string CannotRun(const TreeContract& contract, const Case& c) {
  const LinearForm& form = *contract.form;
  const std::string name(form.name);
  if (c.op != Op::kLinear) return "a tree has linear alone";
  // properties/adapt.h reads these two.
  if (HasFloatX(c) && form.x != DType::kF32) return "the tree is of no " + std::string(kOfFloatX);
  if (c.x_block != 0 && form.x == DType::kF32)
    return "the tree is of no " + std::string(kXInBlocks);
  if (c.x.dtype() != form.x || c.w.dtype() != form.w || c.w_block != form.block ||
      c.x_block != (form.x == DType::kF32 ? 0 : form.block))
    return "the tree is of " + name + ": x " + std::string(Name(form.x)) + ", w " +
           std::string(Name(form.w)) + " in blocks of " + std::to_string(form.block);
  if (c.out_dtype != DType::kF32 || c.relu || IsClamped(c)) return "a tree gives plain f32";
  if (c.bias || c.bias_i32) return "a tree has no bias";
  if (!form.minima() && !WeightZeroPointsAre(c, form.w_zero_point))
    return "the tree of " + name + " has weight zero points " + std::to_string(form.w_zero_point);
  if (std::ranges::any_of(c.x_q.zero_point, [](int32_t z) { return z != 0; }))
    return "a tree has no zero points of x";
  if (!AreSuperBlocks(form, c)) return "the scales are none of " + name;
  const int64_t blocks = BlocksOf(form, c);
  if (contract.order && blocks * form.size() % contract.every != 0)
    return "the tree is of multiples of " + std::to_string(contract.every) + " products";
  const int64_t of_tree =
      contract.order ? blocks : LeavesOf(contract.tree) / PartsOfBlock(contract);
  return blocks == of_tree ? ""
                           : "the tree has " + std::to_string(of_tree * form.size()) + " products";
}

struct Summed {
  std::vector<SumPart> parts;
  std::vector<float> a, b;
  float sum = 0;
};
Summed SumOf(const TreeContract& contract, const Case& c, int64_t index,
             const SumMoved& moved = nullptr) {
  const LinearForm& form = *contract.form;
  Summed summed{PartsOf(contract, BlocksOf(form, c)), {}, {}};
  std::tie(summed.a, summed.b) =
      FactorsOf(form, contract.scales, contract.minima ? contract.minima->scales : 0, c,
                index / c.N, index % c.N, summed.parts, moved);
  summed.sum = SumBy(contract, summed.a, summed.b);
  return summed;
}

Trace TraceOf(const TreeContract& contract, const Case& c, int64_t index) {
  constexpr size_t kShown = 16;
  const Summed summed = SumOf(contract, c, index);
  Trace trace;
  const auto text = [](float value) { return FloatText(value); };
  for (size_t i = 0; i < std::min(kShown, summed.parts.size()); ++i) {
    const float a = summed.a[i], b = summed.b[i];
    const bool rounded = exact::ToRational(a) * exact::ToRational(b) != exact::ToRational(a * b);
    trace.push_back({Stage::kAccumulate,
                     "part " + std::to_string(i) + ", " +
                         (summed.parts[i].minima() ? "minima" : "products") + " from " +
                         std::to_string(summed.parts[i].products.front()) + " on: " + text(a) +
                         "*" + text(b),
                     text(a * b), rounded && contract.steps == SumSteps::kRounded});
  }
  const float exact_sum = ExactSum(summed.a, summed.b);
  trace.push_back({Stage::kAccumulate,
                   std::to_string(summed.parts.size()) + " parts are added: " +
                       (contract.order ? NameOfOrder(contract) : TextOf(contract.tree)) + ", " +
                       std::string(kSteps.at(static_cast<size_t>(contract.steps))),
                   text(summed.sum), summed.sum != exact_sum});
  return trace;
}

}  // namespace

std::string TreeContract::text() const {
  std::string text;
  const auto put = [&](std::string_view key, const std::string& value) {
    text += (text.empty() ? "" : " ") + std::string(key) + ":" + value;
  };
  if (form != nullptr) {
    put("form", std::string(form->name));
    const std::string of_span = span == 0 ? "" : "/" + std::to_string(span);
    put("parts", std::to_string(span == 0 ? parts : parts * span / form->size()) + "x" +
                     std::to_string(run) + of_span);
  }
  const auto order_text = [](const SumOrder& one) {
    const std::string block = one.block == 0 ? "" : "/" + std::to_string(one.block);
    return std::to_string(one.lanes) + "/" +
           std::string(kLanes.at(static_cast<size_t>(one.reduce))) + block;
  };
  put("order", order ? order_text(*order) : TextOf(tree));
  if (minima && minima->place == TreeMinima::Place::kInside) {
    put("minima", std::string(kPlaces[0]));
  } else if (minima) {
    put("minima", std::to_string(minima->parts) + "x" + std::to_string(minima->run) + "/" +
                      std::string(kPlaces.at(static_cast<size_t>(minima->place))) + "/" +
                      (HasOwnSum(*minima) ? order_text(minima->own) + "/" : "") +
                      std::string(ScaleWaysOf(*form)[minima->scales].name));
  }
  put("steps", std::string(kSteps.at(static_cast<size_t>(steps))));
  if (form != nullptr) {
    put("scales", std::string(ScaleWaysOf(*form)[scales].name));
    if (order) put("every", std::to_string(every));
  }
  return "tree:{" + text + "}";
}

TreeContract ParseTreeContract(std::string_view text) {
  constexpr std::string_view kBegin = "tree:{",
                             kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_-:+()/ ";
  if (!text.starts_with(kBegin) || !text.ends_with('}'))
    throw InputError("is no tree, expected tree:{order:... steps:...}");
  text = text.substr(kBegin.size(), text.size() - kBegin.size() - 1);
  if (text.find_first_not_of(kLetters) != std::string_view::npos)
    throw InputError("has a character that no tree has, expected tree:{order:... steps:...}");
  std::map<std::string_view, std::string_view> given;
  for (const std::string_view field : Split(text, ' ')) {
    const size_t colon = field.find(':');
    if (colon == std::string_view::npos ||
        !given.emplace(field.substr(0, colon), field.substr(colon + 1)).second)
      throw InputError("field '" + std::string(field.substr(0, 40)) +
                       "' of a tree: expected KEY:VALUE, each key once, a space between them");
  }
  TreeContract contract;
  for (const std::string_view key : {"order", "steps"})
    if (!given.contains(key)) throw InputError("a tree needs " + std::string(key) + ":");
  contract.steps = static_cast<SumSteps>(PlaceOf("steps", given["steps"], kSteps));
  if (given["order"].starts_with('(') || given["order"] == "0") {
    contract.tree = TreeReader(given["order"]).Read();
  } else {
    contract.order = OrderOf(given["order"]);
    contract.order->fused = contract.steps == SumSteps::kFused;
  }
  given.erase("order");
  given.erase("steps");
  if (!given.empty()) ReadForm(given, contract);
  if (!given.empty())
    throw InputError("a tree has no " + std::string(given.begin()->first.substr(0, 40)) + ":");
  return contract;
}

namespace {

// The parts in the order in which they are added: those of minima apart, or among the others.
struct Sequence {
  std::vector<float> a, b, minima_a, minima_b;
};
Sequence SequenceOf(const TreeContract& contract, std::span<const float> a,
                    std::span<const float> b) {
  using Place = TreeMinima::Place;
  const TreeMinima& minima = contract.minima.value();
  const auto parts = static_cast<size_t>(contract.parts),
             of_minima = static_cast<size_t>(minima.parts);
  Sequence all;
  const auto add = [&](size_t at, std::vector<float>& to_a, std::vector<float>& to_b) {
    to_a.push_back(a[at]);
    to_b.push_back(b[at]);
  };
  for (size_t block = 0; block < a.size(); block += parts + of_minima) {
    const auto products = [&](size_t i) { add(block + i, all.a, all.b); };
    const auto minimum = [&](size_t i) {
      HasOwnSum(minima) ? add(block + parts + i, all.minima_a, all.minima_b)
                        : add(block + parts + i, all.a, all.b);
    };
    if (minima.place == Place::kWith) {
      for (size_t i = 0; i < parts; ++i) minimum(i), products(i);
      continue;
    }
    const auto all_minima = [&] {
      for (size_t i = 0; i < of_minima; ++i) minimum(i);
    };
    if (minima.place != Place::kBehind) all_minima();
    for (size_t i = 0; i < parts; ++i) products(i);
    if (minima.place == Place::kBehind) all_minima();
  }
  return all;
}

float SumWithMinima(const TreeContract& contract, std::span<const float> a,
                    std::span<const float> b) {
  const Sequence all = SequenceOf(contract, a, b);
  const TreeMinima& minima = contract.minima.value();
  if (!HasOwnSum(minima)) return SumOfProducts(*contract.order, all.a, all.b);
  const float own = SumOfProducts(minima.own, all.minima_a, all.minima_b);
  if (minima.place == TreeMinima::Place::kFirst)
    return SumOfProducts(*contract.order, all.a, all.b, own);
  return SumOfProducts(*contract.order, all.a, all.b) + own;
}

}  // namespace

std::string NameOfOrder(const TreeContract& contract) {
  if (!contract.order) return "";
  if (!contract.minima) return NameOf(*contract.order);
  SumOrder order = *contract.order;
  order.group = 1;
  const std::string own = "; a sum of minima, " + NameOf(contract.minima->own) + ", is added ";
  switch (contract.minima->place) {
    case TreeMinima::Place::kInside: return NameOf(order) + "; minima are inside of their parts";
    case TreeMinima::Place::kWith: return NameOf(order) + "; minima are added to their parts";
    case TreeMinima::Place::kBefore:
      return NameOf(order) + "; minima are parts before those of their block";
    case TreeMinima::Place::kBehind:
      return NameOf(order) + "; minima are parts behind those of their block";
    case TreeMinima::Place::kFirst: return NameOf(order) + own + "first";
    case TreeMinima::Place::kLast: return NameOf(order) + own + "last";
  }
  return "";
}

float SumBy(const TreeContract& contract, std::span<const float> a, std::span<const float> b) {
  if (a.empty()) return 0;
  if (contract.order && HasMinimaOfTheirOwn(contract)) return SumWithMinima(contract, a, b);
  if (!contract.order) return SumAlong(contract.tree, contract.steps, a, b);
  if (contract.steps == SumSteps::kFused || contract.steps == SumSteps::kRounded)
    return SumOfProducts(*contract.order, a, b);
  return SumAlong(TreeOf(*contract.order, std::ssize(a)), contract.steps, a, b);
}

std::vector<SumPart> PartsOf(const TreeContract& contract, int64_t blocks) {
  std::vector<SumPart> parts(static_cast<size_t>(blocks * PartsOfBlock(contract)));
  const bool apart = HasMinimaOfTheirOwn(contract);
  const auto products = contract.minima && !apart ? SumPart::Of::kBoth : SumPart::Of::kProducts;
  const auto add = [&](int64_t block, int64_t part, int64_t k, SumPart::Of of) {
    SumPart& one = parts[static_cast<size_t>(block * PartsOfBlock(contract) + part)];
    one.products.push_back(k);
    one.of = of;
  };
  for (int64_t k = 0; k < blocks * contract.form->size(); ++k) {
    const int64_t block = k / contract.form->size(), in_block = k % contract.form->size();
    const int64_t span = contract.span == 0 ? contract.form->size() : contract.span;
    const int64_t of_span = contract.parts * span / contract.form->size();
    add(block, in_block / span * of_span + in_block % span / contract.run % of_span, k, products);
    if (!apart) continue;
    const TreeMinima& minima = *contract.minima;
    add(block, contract.parts + in_block / minima.run % minima.parts, k, SumPart::Of::kMinima);
  }
  return parts;
}

Convention ConventionOf(const TreeContract& contract) {
  Convention convention;
  convention.name = contract.text();
  convention.family = "Trees";
  convention.description = "a summation tree that qualm identify --tree found";
  convention.source = "qualm identify --tree";
  convention.satisfies = {"row_independence"};
  if (contract.form == nullptr) {
    convention.cannot_run = [](const Case&) {
      return "it is a tree of products of two lists of floats, by which no case is judged";
    };
    return convention;
  }
  convention.ops = {Op::kLinear};
  convention.cannot_run = [contract](const Case& c) { return CannotRun(contract, c); };
  convention.run_moved = [contract](const Case& c, const SumMoved& moved) {
    Tensor y(DType::kF32, c.output_shape());
    for (int64_t i = 0; i < y.size(); ++i)
      y.as<float>()[static_cast<size_t>(i)] = SumOf(contract, c, i, moved).sum;
    return y;
  };
  convention.run = [run_moved = convention.run_moved](const Case& c) {
    return ConventionOutput{run_moved(c, nullptr), std::nullopt};
  };
  convention.trace = [contract](const Case& c, int64_t index) {
    return TraceOf(contract, c, index);
  };
  return convention;
}

std::string WhyNoConvention(std::string_view name) {
  if (FindConvention(name) != nullptr) return "";
  if (name.starts_with(kTreeContract)) {
    try {
      ParseTreeContract(name);
    } catch (const InputError& error) {
      return error.what();
    }
  }
  std::vector<std::string_view> known;
  for (const Convention& convention : AllConventions()) known.push_back(convention.name);
  return "there is no convention '" + std::string(name) + "'" +
         NearestText(name, known, std::max<size_t>(name.size(), 1) - 1) +
         " (see qualm list subjects)";
}

std::string WithTreesOfFiles(std::string_view contracts) {
  constexpr size_t kMost = 1 << 16;
  std::string all;
  for (const std::string_view one : Split(contracts, ',')) {
    const size_t begin = one.find(kTreeContract);
    all += all.empty() ? "" : ",";
    const bool is_file = begin != std::string_view::npos && (begin == 0 || one[begin - 1] == '=') &&
                         !one.substr(begin + kTreeContract.size()).starts_with('{');
    if (!is_file) {
      all += one;
      continue;
    }
    const std::string path(one.substr(begin + kTreeContract.size()));
    std::string text = ReadTextFile(path, "tree", kMost);
    CheckLength(text, path, "tree", kMost);
    while (text.ends_with('\n')) text.pop_back();
    try {
      ParseTreeContract(text);
    } catch (const InputError& error) {
      throw InputError(path + ": " + error.what());
    }
    all += std::string(one.substr(0, begin)) + text;
  }
  return all;
}

}  // namespace qualm::conventions
