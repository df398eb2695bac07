// SPDX-License-Identifier: Apache-2.0
#include "triage/cause_families.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "core/weight_formats.h"

namespace qualm::triage {
namespace {

using Stage = CauseStage;
using Kind = FindingKind;
using Applies = std::function<bool(const Case&)>;

constexpr std::array<int64_t, 5> kBlocks{32, 64, 128, 256, 512};

// The output is a real value that is rounded once, by the exact rule.
bool RoundsSums(const Case& c) {
  return IsCode(c.out_dtype) && HasOutQParams(c.op) && c.requant == Requant::kExact &&
         RowOf(c.op).x_qparams && !RowOf(c.op).function;
}

// The same, of any real value that the case rounds.
bool RoundsValues(const Case& c) { return RoundsSums(c) || c.op == Op::kQuantize; }

bool RoundsSumsOrRequantizes(const Case& c) {
  return RoundsSums(c) ||
         (c.op == Op::kRequantize && IsCode(c.out_dtype) && c.requant == Requant::kExact);
}

Applies SumsLongerThan(int64_t terms) {
  return [terms](const Case& c) { return SumsOfCodes(c) && c.K > terms; };
}

// A change that is one on every case.
template <class F>
auto Sets(F set) {
  return [set](Stages& s) {
    set(s);
    return true;
  };
}

int64_t Blocks(int64_t terms, int64_t block) { return (terms + block - 1) / block; }

int64_t SumFrom(Codes codes, int64_t from, int64_t to) {
  int64_t sum = 0;
  for (int64_t k = std::max<int64_t>(from, 0); k < std::min<int64_t>(to, std::ssize(codes)); ++k)
    sum += codes[static_cast<size_t>(k)];
  return sum;
}

// A sum of codes alone.
int64_t AddCodesInLanes(const Lanes& how, Codes codes) {
  return AddInLanes(how, DType::kU8, codes, std::vector<int32_t>(codes.size(), 1));
}

// ---- Zero-point terms.

// The two sums of codes, each of which is taken times the zero point of the other operand.
struct Side {
  std::string_view name, zero, what, other, each, filled, its;
  int64_t SumTerms::* sum;
  int64_t SumTerms::* own_zero;
  Codes SumTerms::* codes;
};
constexpr std::array kSides{
    Side{"column", "input", "the weights", "the input", "weights", "weights", "their",
         &SumTerms::w_sum, &SumTerms::zw, &SumTerms::w},
    Side{"row", "weight", "the input", "the weights", "codes of the input", "the input", "its",
         &SumTerms::x_sum, &SumTerms::zx, &SumTerms::x}};

void AddOffsets(std::vector<Cause>& rows) {
  const auto offset = [&](Kind kind, std::string name, std::string sentence, auto edit,
                          Applies applies = SumsOfCodes) {
    rows.push_back({Stage::kOffset, kind, std::move(name), std::move(sentence), std::move(applies),
                    Sets([edit](Stages& s) { s.Sums().edit_terms = edit; })});
  };
  offset(Kind::kZeroPoint, "K*zx*zw ignored", "leaves K times both zero points out",
         [](SumTerms& t) { t.count = 0; });
  offset(Kind::kZeroPoint, "K*zx*zw subtracted",
         "subtracts K times both zero points instead of adding it",
         [](SumTerms& t) { t.count = -t.count; });
  offset(Kind::kZeroPoint, "K*zx*zw twice", "adds K times both zero points twice",
         [](SumTerms& t) { t.count *= 2; });
  for (const Side& side : kSides)
    offset(Kind::kZeroPoint, fmt::format("{}-sum term ignored", side.name),
           fmt::format("leaves the {} zero point times the sum of {} out", side.zero, side.what),
           [side](SumTerms& t) { t.*side.sum = 0; });
  for (const Side& side : kSides)
    offset(
        Kind::kZeroPoint, fmt::format("{}-sum term twice", side.name),
        fmt::format("subtracts the {} zero point times the sum of {} twice", side.zero, side.what),
        [side](SumTerms& t) { t.*side.sum *= 2; });

  // One operand moved by 128, for instructions that want it with the other sign.
  struct Moved {
    const char* what;
    bool of_x;
  };
  for (const auto& [what, of_x] : {Moved{"input", true}, Moved{"weights", false}}) {
    for (const bool raised : {true, false}) {
      const int64_t by = raised ? 128 : -128;
      const std::string text = fmt::format("{} {} by 128", what, raised ? "raised" : "lowered");
      const Applies applies = [of_x, raised](const Case& c) {
        const DType type = of_x ? c.x.dtype() : c.w.dtype();
        return SumsOfCodes(c) &&
               (RowOf(c.op).dynamic || type == (raised ? DType::kS8 : DType::kU8));
      };
      offset(
          Kind::kZeroPoint, text + ", not taken out",
          fmt::format("computes with the {} and does not take it out of the sums", text),
          [of_x, by](SumTerms& t) { t.products += by * (of_x ? t.w_sum : t.x_sum); }, applies);
      offset(
          Kind::kZeroPoint, text + ", taken out twice",
          fmt::format("computes with the {} and takes it out of the sums twice", text),
          [of_x, by](SumTerms& t) { t.products -= by * (of_x ? t.w_sum : t.x_sum); }, applies);
      for (const int64_t lanes : {4, 8, 16, 32}) {
        offset(
            Kind::kTail, fmt::format("{}, not taken out of a tail of {}", text, lanes),
            fmt::format("computes with the {} and does not take it out of the last K % {} terms",
                        text, lanes),
            [of_x, by, lanes](SumTerms& t) {
              t.products += by * SumFrom(of_x ? t.w : t.x, t.count - t.count % lanes, t.count);
            },
            [applies, lanes](const Case& c) { return applies(c) && c.K % lanes != 0; });
      }
      if (!of_x) continue;
      offset(
          Kind::kPadding, text + ", but not in the padding",
          fmt::format("computes with the {}, but for the padding, and takes it out of all taps",
                      text),
          [by](SumTerms& t) { t.products -= by * t.padding_w_sum; },
          [applies](const Case& c) { return applies(c) && IsConv(c.op); });
      offset(
          Kind::kPadding, text + ", taken out of the image alone",
          fmt::format("computes with the {}, padding included, and takes it out of the taps in "
                      "the image alone",
                      text),
          [by](SumTerms& t) { t.products += by * t.padding_w_sum; },
          [applies](const Case& c) { return applies(c) && IsConv(c.op); });
    }
  }

  const auto of_width = [&](std::string_view width, auto narrow, int64_t longer_than) {
    offset(
        Kind::kZeroPoint, fmt::format("K in {}", width),
        fmt::format("keeps the K of K times both zero points in {}", width),
        [narrow](SumTerms& t) { t.count = narrow(t.count); }, SumsLongerThan(longer_than));
  };
  of_width("8 bits", Wrapped<uint8_t>, 255);
  of_width("an int8", Wrapped<int8_t>, 127);
  of_width("16 bits", Wrapped<uint16_t>, 65535);
  of_width("an int16", Wrapped<int16_t>, 32767);
  const auto sums = [&](std::string_view how, auto narrow) {
    for (const Side& side : kSides)
      offset(Kind::kInt32Overflow, fmt::format("{} sum {}", side.name, how),
             fmt::format("keeps the sum of {} {}", side.what, how),
             [side, narrow](SumTerms& t) { t.*side.sum = narrow(t.*side.sum); });
  };
  sums("in an int16 that wraps", Wrapped<int16_t>);
  sums("in an int16 that saturates", Saturated<int16_t>);
  sums("in a uint16 that wraps", Wrapped<uint16_t>);
  // A lane of u8 codes is full after 128 of them, one of s8 codes after 256.
  for (const size_t lanes : {8, 16, 32}) {
    for (const int64_t every : {0, 256, 257}) {
      const Lanes how{1, lanes, every, true};
      const Applies applies = SumsLongerThan(128 * static_cast<int64_t>(lanes));
      for (const Side& side : kSides)
        offset(
            Kind::kInt32Overflow, fmt::format("{} sum in {}", side.name, how.text()),
            fmt::format("adds the {} in {}, for the zero point of {}", side.each, how.text(),
                        side.other),
            [how, side](SumTerms& t) { t.*side.sum = AddCodesInLanes(how, t.*side.codes); },
            applies);
    }
  }
  const auto term16 = [](int64_t& sum, int64_t zero, bool wraps = true) {
    // No sum of codes gives the term that is kept, so the term is added to the products.
    const auto whole = static_cast<int64_t>(static_cast<__int128>(zero) * sum);
    sum = 0;
    return -(wraps ? Wrapped<int16_t>(whole) : Saturated<int16_t>(whole));
  };
  offset(Kind::kInt32Overflow, "zero-point terms in int16",
         "keeps each zero point times a sum of codes in an int16 that wraps",
         [term16](SumTerms& t) {
           t.products += term16(t.w_sum, t.zx);
           t.products += term16(t.x_sum, t.zw);
         });
  for (const bool wraps : {true, false}) {
    const char* const how = wraps ? "wraps" : "saturates";
    for (const bool of_x : {true, false}) {
      const std::string_view zero = of_x ? "input" : "weight";
      offset(Kind::kInt32Overflow,
             fmt::format("term of the {} zero point in int16 that {}", zero, how),
             fmt::format("keeps the {} zero point times the sum of {} in an int16 that {}", zero,
                         of_x ? "the weights" : "the input", how),
             [=](SumTerms& t) {
               t.products += of_x ? term16(t.w_sum, t.zx, wraps) : term16(t.x_sum, t.zw, wraps);
             });
    }
  }

  for (const int64_t lanes : {4, 8, 16, 32, 64}) {
    const auto whole = [lanes](const SumTerms& t) { return t.count - t.count % lanes; };
    const Applies applies = [lanes](const Case& c) { return SumsOfCodes(c) && c.K % lanes != 0; };
    for (const Side& side : kSides)
      offset(
          Kind::kTail, fmt::format("{} sum without the tail of {}", side.name, lanes),
          fmt::format("leaves the last K % {} {} out of the sum for the zero point of {}", lanes,
                      side.each, side.other),
          [whole, side](SumTerms& t) { t.*side.sum = SumFrom(t.*side.codes, 0, whole(t)); },
          applies);
    const auto filled = [lanes](const SumTerms& t) {
      return Blocks(t.count, lanes) * lanes - t.count;
    };
    for (const Side& side : kSides)
      offset(
          Kind::kZeroPoint, fmt::format("{} sum of K filled up to {}", side.name, lanes),
          fmt::format("fills {0} up to a multiple of {1} with {2} zero point, and adds that to {2} "
                      "sum",
                      side.filled, lanes, side.its),
          [filled, side](SumTerms& t) { t.*side.sum += filled(t) * t.*side.own_zero; }, applies);
    if (lanes == 4) continue;  // has a row of its own
    offset(
        Kind::kZeroPoint, fmt::format("K rounded up to {} in K*zx*zw", lanes),
        fmt::format("uses K rounded up to a multiple of {} in the zero-point term", lanes),
        [lanes](SumTerms& t) { t.count = Blocks(t.count, lanes) * lanes; }, applies);
  }
  for (const int64_t block : kBlocks) {
    const Applies applies = SumsLongerThan(block);
    const std::string of = fmt::format(" once per block of {}", block);
    const std::string each = fmt::format(" once for each block of {} terms", block);
    for (const Side& side : kSides)
      offset(
          Kind::kZeroPoint, fmt::format("{}-sum term{}", side.name, of),
          fmt::format("subtracts the {} zero point times the sum of all {}{}", side.zero, side.each,
                      each),
          [block, side](SumTerms& t) { t.*side.sum *= Blocks(t.count, block); }, applies);
    offset(
        Kind::kZeroPoint, "K*zx*zw" + of, "adds K times both zero points" + each,
        [block](SumTerms& t) { t.count *= Blocks(t.count, block); }, applies);
    offset(
        Kind::kZeroPoint, "zero-point terms" + of, "applies all zero-point terms" + each,
        [block](SumTerms& t) {
          const int64_t blocks = Blocks(t.count, block);
          t.w_sum *= blocks, t.x_sum *= blocks, t.count *= blocks;
        },
        applies);
    for (const bool last : {false, true}) {
      const auto from = [block, last](int64_t count) {
        return last ? (count - 1) / block * block : 0;
      };
      const auto to = [block, last](int64_t count) { return last ? count : block; };
      const std::string part =
          fmt::format(" of the {} block of {} alone", last ? "last" : "first", block);
      for (const Side& side : kSides)
        offset(
            Kind::kZeroPoint, fmt::format("{} sum{}", side.name, part),
            fmt::format("takes the sum of {}{}", side.what, part),
            [from, to, side](SumTerms& t) {
              t.*side.sum = SumFrom(t.*side.codes, from(t.count), to(t.count));
            },
            applies);
    }
  }
  struct Other {
    std::string_view name, text;
    int64_t (*of)(int64_t i, int64_t count);
  };
  constexpr std::array kOthers{
      Other{"before", "one before it",
            [](int64_t i, int64_t) { return std::max<int64_t>(i - 1, 0); }},
      Other{"behind", "one behind it",
            [](int64_t i, int64_t count) { return std::min(i + 1, count - 1); }},
      Other{"4 before", "one 4 before it", [](int64_t i, int64_t) { return i < 4 ? i : i - 4; }},
      Other{"8 before", "one 8 before it", [](int64_t i, int64_t) { return i < 8 ? i : i - 8; }},
      Other{"16 before", "one 16 before it",
            [](int64_t i, int64_t) { return i < 16 ? i : i - 16; }},
      Other{"at the end", "last one", [](int64_t, int64_t count) { return count - 1; }}};
  const auto many_rows = [](const Case& c) {
    return SumsOfCodes(c) && c.M > 1 && c.window.groups <= 1;
  };
  const auto many_channels = [](const Case& c) { return SumsOfCodes(c) && c.N > 1; };
  for (const Other& other : kOthers) {
    offset(
        Kind::kIndex, fmt::format("row sum of the row {}", other.name),
        fmt::format("corrects a row with the sum of the {}", other.text),
        [of = other.of](SumTerms& t) {
          t.x_sum = t.x_sums[static_cast<size_t>(of(t.row, std::ssize(t.x_sums)))];
        },
        many_rows);
    rows.back().minds_other_rows = true;
    offset(
        Kind::kIndex, fmt::format("column sum of the channel {}", other.name),
        fmt::format("corrects a channel with the sum of the weights of the {}", other.text),
        [of = other.of](SumTerms& t) {
          t.w_sum = t.w_sums[static_cast<size_t>(of(t.channel, std::ssize(t.w_sums)))];
        },
        many_channels);
  }
  // All sums are made before one is used, in a buffer of another size.
  for (const bool of_rows : {true, false}) {
    for (const bool of_depth : {true, false}) {
      const std::string_view length = of_depth ? "K" : of_rows ? "N" : "M";
      const auto room = [=](const Case& c) { return of_depth ? c.K : of_rows ? c.N : c.M; };
      offset(
          Kind::kIndex,
          fmt::format("{} sums in a buffer of {}", of_rows ? "row" : "column", length),
          fmt::format("keeps the sums of {} in a buffer of {}, and corrects {} with the last one "
                      "that has the same place there",
                      of_rows ? "rows" : "the weights of channels", length,
                      of_rows ? "a row" : "a channel"),
          [](SumTerms&) {},
          [=](const Case& c) {
            return SumsOfCodes(c) && c.window.groups <= 1 && room(c) > 0 &&
                   (of_rows ? c.M : c.N) > room(c);
          });
      rows.back().change = Sets([=](Stages& s) {
        s.Sums().edit_terms = [of_rows, length = room(s.c)](SumTerms& t) {
          const std::span<const int64_t> sums = of_rows ? t.x_sums : t.w_sums;
          const int64_t last = std::ssize(sums) - 1, at = of_rows ? t.row : t.channel;
          (of_rows ? t.x_sum : t.w_sum) = sums[static_cast<size_t>(last - (last - at) % length)];
        };
      });
      rows.back().minds_other_rows = of_rows;
    }
  }
  for (const int64_t rows_of : {4, 8, 256}) {
    offset(
        Kind::kIndex, fmt::format("row sum modulo {}", rows_of),
        fmt::format("corrects row m with the sum of row m % {}", rows_of),
        [rows_of](SumTerms& t) { t.x_sum = t.x_sums[static_cast<size_t>(t.row % rows_of)]; },
        [rows_of](const Case& c) { return SumsOfCodes(c) && c.M > rows_of; });
    rows.back().minds_other_rows = true;
  }
}

// ---- Sums.

int64_t Dot(Codes x, Codes w) {
  return std::transform_reduce(x.begin(), x.end(), w.begin(), int64_t{0}, std::plus<>(),
                               [](int64_t a, int64_t b) { return a * b; });
}

int64_t AddInFloat(size_t lanes, Codes x, Codes w, int64_t zx = 0, int64_t zw = 0) {
  std::array<float, 16> sums{};
  for (size_t k = 0; k < x.size(); ++k)
    sums[k % lanes] += static_cast<float>(x[k] - zx) * static_cast<float>(w[k] - zw);
  float sum = 0;
  for (const float each : std::span(sums).first(lanes)) sum += each;
  return static_cast<int64_t>(sum);
}

// The sum goes through a float32 between two blocks of terms.
int64_t AddThroughFloat(int64_t block, Codes x, Codes w) {
  int64_t sum = 0;
  for (size_t k = 0; k < x.size(); ++k) {
    if (k % static_cast<size_t>(block) == 0) sum = static_cast<int64_t>(static_cast<float>(sum));
    sum += int64_t{x[k]} * w[k];
  }
  return sum;
}

// Blocks are added exactly, and their sums in float32.
int64_t AddBlocksInFloat(int64_t block, Codes x, Codes w) {
  float sum = 0;
  for (int64_t first = 0; first < std::ssize(x); first += block) {
    const auto from = static_cast<size_t>(first);
    const size_t terms = std::min(static_cast<size_t>(block), x.size() - from);
    sum += static_cast<float>(Dot(x.subspan(from, terms), w.subspan(from, terms)));
  }
  return static_cast<int64_t>(sum);
}

template <int kBits, bool kWraps>
__int128 InBits(__int128 sum) {
  constexpr __int128 kHalf = __int128{1} << (kBits - 1);
  if (!kWraps) return std::clamp(sum, -kHalf, kHalf - 1);
  return ((sum + kHalf) & (2 * kHalf - 1)) - kHalf;
}

__int128 Difference(int32_t code, int64_t zero_point) { return code - zero_point; }

// The first `count` products of codes less their zero points.
__int128 AddFirst(const SumTerms& t, int64_t count) {
  __int128 sum = 0;
  for (size_t k = 0; k < static_cast<size_t>(count); ++k)
    sum += Difference(t.x[k], t.zx) * Difference(t.w[k], t.zw);
  return sum;
}

// The last of the blocks of `block` such products, however short it is.
__int128 AddLast(const SumTerms& t, int64_t block) {
  return AddFirst(t, t.count) - AddFirst(t, (t.count - 1) / block * block);
}

// Reads the codes outside of [low, high] as the nearer end.
bool KeepWithin(Tensor& codes, int32_t low, int32_t high) {
  const Tensor old = codes;
  for (int64_t i = 0; i < old.size(); ++i) codes.SetInt(i, std::clamp(old.IntAt(i), low, high));
  return codes != old;
}

bool AllZero(const QParams& q) {
  return std::ranges::all_of(q.zero_point, [](int32_t zero) { return zero == 0; });
}

void AddSums(std::vector<Cause>& rows) {
  const auto products = [&](Kind kind, std::string name, std::string sentence, auto edit,
                            Applies applies = SumsOfCodes) {
    const Stage stage = kind == Kind::kTail ? Stage::kTail : Stage::kAccumulate;
    rows.push_back({stage, kind, std::move(name), std::move(sentence), std::move(applies),
                    Sets([edit](Stages& s) { edit(s.Sums(), s.c); })});
  };
  for (const size_t lanes : {1, 4, 8, 16}) {
    const std::string in =
        lanes == 1 ? ", one product after another" : fmt::format(", in {} lanes", lanes);
    products(Kind::kRounding, "float32 sum" + in, "keeps the sum of products in float32" + in,
             [lanes](SumSteps& steps, const Case&) {
               steps.add = [lanes](DType, Codes x, Codes w) { return AddInFloat(lanes, x, w); };
             });
    products(
        Kind::kRounding, "float32 sum of differences" + in,
        "keeps the sum of products, of codes less their zero points, in float32" + in,
        [lanes](SumSteps& steps, const Case&) {
          steps.add_differences = [lanes](const SumTerms& t) -> __int128 {
            return AddInFloat(lanes, t.x, t.w, t.zx, t.zw);
          };
        },
        [](const Case& c) {
          return SumsOfCodes(c) && !(AllZero(c.x_q) && AllZero(c.w_q));  // else as above
        });
  }
  for (const int64_t step : {2, 1}) {
    for (const bool wraps : {false, true}) {
      for (const size_t lanes : {1, 4, 8, 16, 32}) {
        for (const int64_t every : {0, 2, 4, 8, 16, 32, 64, 128, 256}) {
          if (step == 2 && !wraps && lanes == 1 && every == 128) continue;  // has a row of its own
          if (every == 2 && (step == 2 || lanes < 4)) continue;
          const std::string what = step == 2 ? "saturated pairs" : "products";
          const Lanes how{step, lanes, every, wraps};
          const std::string text = what + " in " + how.text();
          products(
              Kind::kPairSaturation, text, "adds " + text,
              [how](SumSteps& steps, const Case&) {
                steps.add = [how](DType x_dtype, Codes x, Codes w) {
                  return AddInLanes(how, x_dtype, x, w);
                };
              },
              [=](const Case& c) { return SumsOfCodes(c) && c.K > (step == 1 ? 2 : 3); });
        }
      }
    }
  }
  const auto differences = [&](Kind kind, std::string_view what, auto keep) {
    for (const bool from_bias : {false, true}) {
      const std::string where = from_bias ? ", bias first" : "";
      products(kind, fmt::format("products of differences in {}{}", what, where),
               fmt::format("adds products of codes less their zero points one by one in {}{}", what,
                           from_bias ? ", from the bias on" : ""),
               [keep, from_bias](SumSteps& steps, const Case&) {
                 steps.add_differences = [keep, from_bias](const SumTerms& t) {
                   const __int128 first = from_bias ? t.bias : 0;
                   __int128 sum = first;
                   for (size_t k = 0; k < t.x.size(); ++k)
                     sum = keep(sum + Difference(t.x[k], t.zx) * Difference(t.w[k], t.zw));
                   return sum - first;
                 };
               });
      rows.back().bits = Cause::kBitsOfRare;
      if (from_bias) rows.back().repeats = [](const Case& c) { return !c.bias_i32; };
    }
    // The zero point of the other operand is taken out of the sum of the differences.
    for (const bool of_x : {true, false}) {
      const std::string_view own = of_x ? "input" : "weight", other = of_x ? "weight" : "input";
      products(kind, fmt::format("products of {} differences in {}", own, what),
               fmt::format("adds products of {} codes less their zero point and {} codes one by "
                           "one in {}, and takes the {} zero point out behind them",
                           own, other, what, other),
               [keep, of_x](SumSteps& steps, const Case&) {
                 steps.add_differences = [keep, of_x](const SumTerms& t) {
                   __int128 sum = 0, all = 0;
                   for (size_t k = 0; k < t.x.size(); ++k) {
                     const __int128 difference =
                         of_x ? Difference(t.x[k], t.zx) : Difference(t.w[k], t.zw);
                     sum = keep(sum + difference * (of_x ? t.w[k] : t.x[k]));
                     all += difference;
                   }
                   return sum - all * (of_x ? t.zw : t.zx);
                 };
               });
      rows.back().bits = Cause::kBitsOfRare;
      rows.back().repeats = of_x ? +[](const Case& c) { return AllZero(c.w_q); }
                                 : +[](const Case& c) { return AllZero(c.x_q); };
    }
  };
  differences(Kind::kPairSaturation, "an int16 that saturates", InBits<16, false>);
  differences(Kind::kPairSaturation, "an int16 that wraps", InBits<16, true>);
  differences(Kind::kInt32Overflow, "an int32 that saturates", InBits<32, false>);
  // All taps of a channel, or of a kernel of nine taps alone: there is code of its own for these.
  for (const bool nine : {false, true}) {
    rows.push_back(
        {Stage::kAccumulate, Kind::kPairSaturation,
         fmt::format("int16 wrap of {} taps of a channel", nine ? "nine" : "all"),
         fmt::format("adds the products of the{} taps of each channel, codes less their zero "
                     "points, in an int16 that wraps",
                     nine ? " nine" : ""),
         [nine](const Case& c) {
           const int64_t taps = c.window.kernel_h * c.window.kernel_w;
           return IsConv(c.op) && (nine ? taps == 9 : taps > 1);
         },
         Sets([](Stages& s) {
           const int64_t of_group = s.c.window.in_c / s.c.window.groups;
           s.Sums().add_differences = [of_group](const SumTerms& t) {
             __int128 sum = 0;
             for (int64_t channel = 0; channel < of_group; ++channel) {
               int64_t taps = 0;
               for (int64_t k = channel; k < std::ssize(t.x); k += of_group) {
                 const auto at = static_cast<size_t>(k);
                 taps += (t.x[at] - t.zx) * (t.w[at] - t.zw);
               }
               sum += Wrapped<int16_t>(taps);
             }
             return sum;
           };
         }),
         nine ? Cause::kBitsOfRare : Cause::kBitsOfFamily});
  }
  rows.push_back(
      {Stage::kAccumulate, Kind::kPairSaturation, "int16 wrap of differences in one line",
       "adds the products of one line of the kernel, codes less their zero points, in an int16 "
       "that "
       "wraps",
       [](const Case& c) { return IsConv(c.op) && !(AllZero(c.x_q) && AllZero(c.w_q)); },
       Sets([](Stages& s) {
         s.Sums().add_differences = [line = s.c.K / s.c.window.kernel_h](const SumTerms& t) {
           __int128 sum = 0;
           int64_t of_line = 0;
           for (int64_t k = 0; k < std::ssize(t.x); ++k) {
             const auto at = static_cast<size_t>(k);
             of_line += (t.x[at] - t.zx) * (t.w[at] - t.zw);
             if ((k + 1) % line != 0) continue;
             sum += Wrapped<int16_t>(of_line);
             of_line = 0;
           }
           return sum;
         };
       }),
       Cause::kBitsOfFamily});
  for (const bool of_channel : {false, true}) {
    rows.push_back(
        {Stage::kAccumulate, Kind::kPairSaturation,
         fmt::format("int16 wrap of one line{}", of_channel ? " and channel" : ""),
         fmt::format("adds the products of one line of the kernel{} in an int16 that wraps",
                     of_channel ? " and one input channel" : ""),
         [](const Case& c) { return IsConv(c.op) && c.window.kernel_w > 1; },
         Sets([of_channel](Stages& s) {
           s.Sums().add = [line = s.c.K / s.c.window.kernel_h,
                           apart = of_channel ? s.c.window.in_c / s.c.window.groups : 1](
                              DType, Codes x, Codes w) {
             int64_t sum = 0;
             for (int64_t first = 0; first < std::ssize(x); first += line) {
               for (int64_t channel = 0; channel < apart; ++channel) {
                 int64_t of_line = 0;
                 const int64_t end = std::min(first + line, std::ssize(x));
                 for (int64_t k = first + channel; k < end; k += apart) {
                   const auto at = static_cast<size_t>(k);
                   of_line += int64_t{x[at]} * w[at];
                 }
                 sum += Wrapped<int16_t>(of_line);
               }
             }
             return sum;
           };
         }),
         Cause::kBitsOfFamily});
  }
  rows.push_back({Stage::kAccumulate, Kind::kIndex, "products left out",
                  "leaves out all products: what is left is the bias", SumsOfCodes,
                  Sets([](Stages& s) {
                    s.Sums().add_differences = [](const SumTerms&) { return __int128{0}; };
                  }),
                  Cause::kBitsOfFamily});
  for (const int64_t lanes : {4, 8, 16, 32}) {
    rows.push_back(
        {Stage::kGeometry, Kind::kIndex, fmt::format("rows behind blocks of {} from row 0", lanes),
         fmt::format("reads the rows of x behind the last whole {} from row 0 on", lanes),
         [lanes](const Case& c) { return c.op == Op::kLinear && c.M > lanes && c.M % lanes != 0; },
         [lanes](Stages& s) {
           const Tensor old = s.c.x;
           for (int64_t m = s.c.M - s.c.M % lanes; m < s.c.M; ++m)
             s.c.x.CopyFrom(old, m % lanes * s.c.K, s.c.K, m * s.c.K);
           return s.c.x != old;
         },
         Cause::kBitsOfFamily});
  }
  const auto channels = [](const Case& c) { return c.window.in_c / c.window.groups; };
  // The sum over so many of the first input channels of a group as `kept` says.
  const auto first_channels = [&](std::string name, std::string sentence, Applies applies,
                                  std::function<int64_t(int64_t all)> kept, double bits) {
    rows.push_back({Stage::kTail, Kind::kTail, std::move(name), std::move(sentence),
                    std::move(applies), Sets([channels, kept = std::move(kept)](Stages& s) {
                      const int64_t all = channels(s.c);
                      s.Sums().add_differences = [all, first = kept(all)](const SumTerms& t) {
                        __int128 sum = 0;
                        for (int64_t k = 0; k < std::ssize(t.x); ++k) {
                          const auto at = static_cast<size_t>(k);
                          if (k % all < first)
                            sum += Difference(t.x[at], t.zx) * Difference(t.w[at], t.zw);
                        }
                        return sum;
                      };
                    }),
                    bits});
  };
  first_channels(
      "last input channel dropped", "drops the last input channel of a group",
      [=](const Case& c) { return IsConv(c.op) && c.op != Op::kDepthwise && channels(c) > 0; },
      [](int64_t all) { return all - 1; }, Cause::kBitsOfFamily);
  for (const int64_t lanes : {4, 8, 16, 32}) {
    first_channels(
        fmt::format("channel tail of {} dropped", lanes),
        fmt::format("drops the last C % {} input channels behind whole blocks of them", lanes),
        [=](const Case& c) {
          return IsConv(c.op) && channels(c) > lanes && channels(c) % lanes != 0;
        },
        [lanes](int64_t all) { return all - all % lanes; }, Cause::kBitsOfMistake);
  }
  const auto rounded = [&](int64_t block, std::string name, std::string sentence,
                           int64_t (*add)(int64_t block, Codes x, Codes w)) {
    products(
        Kind::kRounding, std::move(name), std::move(sentence),
        [=](SumSteps& steps, const Case&) {
          steps.add = [=](DType, Codes x, Codes w) { return add(block, x, w); };
        },
        SumsLongerThan(block));
  };
  for (const int64_t block : kBlocks) {
    rounded(
        block, fmt::format("float32 sum between blocks of {}", block),
        fmt::format("keeps the sum in a float32 from each block of {} terms to the next", block),
        AddThroughFloat);
    rounded(block, fmt::format("float32 sum of blocks of {}", block),
            fmt::format("adds the sums of blocks of {} terms in float32", block), AddBlocksInFloat);
  }
  const auto counted = [&](std::string_view width, int64_t modulo) {
    products(
        Kind::kTail, fmt::format("terms counted in {}", width),
        fmt::format("counts the terms of a sum in {}: of K terms it adds K % {}", width, modulo),
        [modulo](SumSteps& steps, const Case& c) { steps.added = c.K % modulo; },
        SumsLongerThan(modulo - 1));
  };
  counted("8 bits", 256);
  counted("16 bits", 65536);
  for (const int64_t taps : {3, 4, 5, 8, 9, 16, 25}) {
    rows.push_back({Stage::kTail, Kind::kTail, fmt::format("first {} taps alone", taps),
                    fmt::format("adds the first {} taps alone", taps),
                    [taps](const Case& c) { return c.op == Op::kDepthwise && c.K > taps; },
                    Sets([taps](Stages& s) {
                      s.Sums().add_differences = [taps](const SumTerms& t) {
                        return AddFirst(t, taps);
                      };
                    })});
  }
  for (const int64_t taps : {3, 4, 8, 9, 16, 25}) {
    rows.push_back({Stage::kTail, Kind::kIndex, fmt::format("last pass of {} taps alone", taps),
                    fmt::format("keeps the sum of the last pass of {} taps alone", taps),
                    [taps](const Case& c) { return c.op == Op::kDepthwise && c.K > taps; },
                    Sets([taps](Stages& s) {
                      s.Sums().add_differences = [taps](const SumTerms& t) {
                        return AddLast(t, taps);
                      };
                    })});
  }
  for (const int64_t block : {4, 8, 16, 32, 64, 128, 256, 512}) {
    const Applies applies = [block](const Case& c) {
      return SumsOfCodes(c) && c.K > block && c.K % block != 0;
    };
    // What is left of a sum and of the sums for both zero points.
    rows.push_back({Stage::kTail, Kind::kTail, fmt::format("term tail behind blocks of {}", block),
                    fmt::format("drops the last K % {0} terms, in the zero-point sums too, where K "
                                "is more than {0}",
                                block),
                    applies, Sets([block](Stages& s) {
                      s.Sums().add_differences = [block](const SumTerms& t) {
                        return AddFirst(t, t.count - t.count % block);
                      };
                    })});
    if (block >= 32) continue;  // has a row below
    products(
        Kind::kTail, fmt::format("product tail behind blocks of {}", block),
        fmt::format("drops the last K % {0} products where K is more than {0}", block),
        [block](SumSteps& steps, const Case& c) { steps.added = c.K - c.K % block; }, applies);
  }
  for (const int64_t block : kBlocks) {
    products(
        Kind::kIndex, fmt::format("last block of {} alone", block),
        fmt::format("keeps the products of the last block of {} terms alone", block),
        [block](SumSteps& steps, const Case& c) { steps.first_added = (c.K - 1) / block * block; },
        SumsLongerThan(block));
    rows.push_back(
        {Stage::kTail, Kind::kIndex, fmt::format("terms of the last block of {}", block),
         fmt::format("keeps the last block of {} terms alone, in the zero-point sums too", block),
         SumsLongerThan(block), Sets([block](Stages& s) {
           s.Sums().add_differences = [block](const SumTerms& t) { return AddLast(t, block); };
         })});
    products(
        Kind::kTail, fmt::format("last partial block of {} dropped", block),
        fmt::format("drops the last K % {} products where blocks of {} stand before them", block,
                    block),
        [block](SumSteps& steps, const Case& c) { steps.added = c.K - c.K % block; },
        [block](const Case& c) { return SumsOfCodes(c) && c.K > block && c.K % block > 1; });
    products(
        Kind::kTail, fmt::format("first block of {} alone", block),
        fmt::format("adds the products of the first block of {} terms alone", block),
        [block](SumSteps& steps, const Case&) { steps.added = block; }, SumsLongerThan(block));
  }

  const auto kept = [&](std::string how, __int128 (*keep)(__int128)) {
    rows.push_back({Stage::kAccumulate, Kind::kInt32Overflow, "sum in " + how,
                    "keeps the corrected sum in " + how, SumsOfCodes,
                    Sets([keep](Stages& s) { s.integer = keep; })});
  };
  kept("24 bits that wrap", InBits<24, true>);
  kept("24 bits that saturate", InBits<24, false>);
  kept("an int32 that saturates", InBits<32, false>);

  for (const int64_t lanes : {4, 8, 16, 32, 64}) {
    rows.push_back(
        {Stage::kOperands, Kind::kTail, fmt::format("input sign in the last K % {} terms", lanes),
         fmt::format("reads the input codes with the other signedness, only in the last K % {} "
                     "terms",
                     lanes),
         [lanes](const Case& c) { return SumsOfCodes(c) && c.K % lanes != 0; },
         Sets([lanes](Stages& s) {
           s.Sums().edit_terms = [lanes](SumTerms& t) {
             const CodeRange range = RangeOf(OtherSign(t.x_dtype));
             for (size_t k = t.x.size() - t.x.size() % static_cast<size_t>(lanes); k < t.x.size();
                  ++k) {
               const int32_t code = t.x[k];
               const int64_t moved = code > range.max ? -256 : code < range.min ? 256 : 0;
               t.products += moved * t.w[k];
               t.x_sum += moved;
             }
           };
         }),
         Cause::kBitsOfFamily});
  }

  const auto weights = [&](std::string name, std::string sentence, int32_t (*read)(int32_t)) {
    products(Kind::kRounding, std::move(name), std::move(sentence),
             [read](SumSteps& steps, const Case&) {
               steps.add = [read](DType, Codes x, Codes w) {
                 std::vector<int32_t> factors(w.size());
                 std::ranges::transform(w, factors.begin(), read);
                 return Dot(x, factors);
               };
             });
  };
  weights("weights halved and doubled", "multiplies by weights that were halved and doubled again",
          [](int32_t w) { return w / 2 * 2; });
  weights("lowest bit of the weights lost", "multiplies by weights without their lowest bit",
          [](int32_t w) { return w & ~1; });
  rows.push_back({Stage::kOperands, Kind::kClamp, "weight -128 as -127",
                  "reads a weight of -128 as -127",
                  [](const Case& c) { return SumsOfCodes(c) && c.w.dtype() == DType::kS8; },
                  [](Stages& s) { return KeepWithin(s.c.w, -127, 127); }, Cause::kBitsOfFamily});
  for (const bool lowest : {true, false}) {
    const char* const which = lowest ? "lowest" : "highest";
    rows.push_back(
        {Stage::kOperands, Kind::kClamp,
         fmt::format("{} of the {{x_codes}} as its neighbour", which),
         fmt::format("reads the {} of the {{x_codes}} as the one {} it", which,
                     lowest ? "above" : "below"),
         [](const Case& c) { return IsByteCode(c.x.dtype()) || IsWideCode(c.x.dtype()); },
         [lowest](Stages& s) {
           const CodeRange range = RangeOf(s.c.x.dtype());
           return KeepWithin(s.c.x, range.min + (lowest ? 1 : 0), range.max - (lowest ? 0 : 1));
         },
         Cause::kBitsOfFamily});
  }
  products(
      Kind::kTail, "last product of an odd sum twice", "adds the last product twice where K is odd",
      [](SumSteps& steps, const Case&) {
        steps.add = [](DType, Codes x, Codes w) { return Dot(x, w) + Dot(x.last(1), w.last(1)); };
      },
      [](const Case& c) { return SumsOfCodes(c) && c.K % 2 == 1; });

  // A loop that leaves the last block to a tail of K % block products, which is none.
  for (const int64_t block : {4, 8, 16, 32, 64}) {
    products(
        Kind::kTail, fmt::format("last whole block of {} dropped", block),
        fmt::format("drops the last {} products where K is a multiple of {}", block, block),
        [block](SumSteps& steps, const Case& c) { steps.added = c.K - block; },
        [block](const Case& c) { return SumsOfCodes(c) && c.K >= block && c.K % block == 0; });
  }
  // The last whole block ends where the sum ends, so that what it shares with the block before it
  // is added twice; or what has been added stays in the sums of the channels that two blocks share.
  for (const int64_t lanes : {4, 8, 16, 32, 64}) {
    const auto overlaps = [lanes](int64_t size) { return size > lanes && size % lanes != 0; };
    const Applies in_terms = [overlaps](const Case& c) { return SumsOfCodes(c) && overlaps(c.K); };
    products(
        Kind::kTail, fmt::format("products of the last {} twice", lanes),
        fmt::format("adds the last {0} products in whole where K % {0} are left, some of them for "
                    "the second time",
                    lanes),
        [lanes](SumSteps& steps, const Case&) {
          steps.add = [lanes = static_cast<size_t>(lanes)](DType, Codes x, Codes w) {
            if (x.size() <= lanes) return Dot(x, w);
            const size_t first = x.size() - lanes, twice = lanes - x.size() % lanes;
            return Dot(x, w) + Dot(x.subspan(first, twice), w.subspan(first, twice));
          };
        },
        in_terms);
    rows.push_back(
        {Stage::kTail, Kind::kTail, fmt::format("terms of the last {} twice", lanes),
         fmt::format(
             "adds the last {0} terms in whole where K % {0} are left, some of them for the "
             "second time, in the zero-point sums too",
             lanes),
         in_terms, Sets([lanes](Stages& s) {
           s.Sums().add_differences = [lanes](const SumTerms& t) {
             return AddFirst(t, t.count) + AddFirst(t, t.count - t.count % lanes) -
                    AddFirst(t, std::max<int64_t>(t.count - lanes, 0));
           };
         })});
    struct Twice {
      std::string_view what;
      int64_t (*more)(const SumTerms& t);
    };
    constexpr std::array kTwice{
        Twice{"products", [](const SumTerms& t) { return t.products; }},
        Twice{"sums",
              [](const SumTerms& t) { return static_cast<int64_t>(t.corrected()) - t.bias; }},
        Twice{"sums and biases",
              [](const SumTerms& t) { return static_cast<int64_t>(t.corrected()); }}};
    for (const Twice& twice : kTwice) {
      rows.push_back(
          {Stage::kOffset, Kind::kTail,
           fmt::format("{} of columns in two blocks of {} twice", twice.what, lanes),
           fmt::format("computes the last {0} columns again where N % {0} are left, and adds the "
                       "{1} of those that it has computed before once more",
                       lanes, twice.what),
           [overlaps](const Case& c) { return SumsOfCodes(c) && overlaps(c.N); },
           Sets([lanes, more = twice.more](Stages& s) {
             s.Sums().edit_terms = [lanes, more, columns = s.c.N](SumTerms& t) {
               if (t.channel >= columns - lanes && t.channel < columns - columns % lanes)
                 t.products += more(t);
             };
           }),
           Cause::kBitsOfRare});
    }
  }
  products(
      Kind::kTail, "last pass of 8 taps dropped",
      "adds 9 taps and then 8 at a time, and drops the last 8 where no more are left",
      [](SumSteps& steps, const Case& c) { steps.added = c.K - 8; },
      [](const Case& c) { return c.op == Op::kDepthwise && c.K > 9 && (c.K - 9) % 8 == 0; });

  products(
      Kind::kIndex, "first pass of 9 taps lost",
      "adds 9 taps and then 8 at a time, and loses the sum of the first 9 where more come",
      [](SumSteps& steps, const Case&) { steps.first_added = 9; },
      [](const Case& c) { return c.op == Op::kDepthwise && c.K > 9; });

  // Codes that are read from the wrong place.
  const auto index = [&](std::string name, std::string sentence, bool of_w, auto from,
                         Applies applies) {
    rows.push_back(
        {Stage::kGeometry, Kind::kIndex, std::move(name), std::move(sentence), std::move(applies),
         Sets([of_w, from](Stages& s) { (of_w ? s.Sums().read_w : s.Sums().read_x) = from; })});
  };
  for (const bool of_w : {true, false}) {
    const std::string_view what = of_w ? "weights" : "input";
    const auto more_than = [of_w](int64_t codes) {
      return [of_w, codes](const Case& c) {
        return SumsOfCodes(c) && (of_w ? c.N : c.M) * c.K > codes;
      };
    };
    for (const int64_t modulo : {65536, 32768}) {
      index(
          fmt::format("{} offset modulo {}", what, modulo),
          fmt::format("reads the {} of a product at their offset modulo {}", what, modulo), of_w,
          [modulo](int64_t row, int64_t term, int64_t columns) {
            return (row * columns + term) % modulo;
          },
          more_than(modulo));
    }
    index(
        fmt::format("{} row in 8 bits", what),
        fmt::format("reads row r of the {} from row r % 256", what), of_w,
        [](int64_t row, int64_t term, int64_t columns) { return row % 256 * columns + term; },
        [of_w](const Case& c) { return SumsOfCodes(c) && (of_w ? c.N : c.M) > 256; });
    index(
        fmt::format("{} one code on", what),
        fmt::format("reads the {} of a product one code further on", what), of_w,
        [](int64_t row, int64_t term, int64_t columns) { return row * columns + term + 1; },
        SumsLongerThan(1));
    index(
        fmt::format("{} one row on", what),
        fmt::format("reads the {} of a product one row further on", what), of_w,
        [](int64_t row, int64_t term, int64_t columns) { return (row + 1) * columns + term; },
        [of_w](const Case& c) { return SumsOfCodes(c) && (of_w ? c.N : c.M) > 1; });
    // Rows filled up with code 0 to whole blocks, read as if they were not, and the reverse.
    for (const int64_t block : {4, 8, 16, 32, 64}) {
      for (const bool filled : {true, false}) {
        index(
            fmt::format("{} in rows of whole blocks of {}{}", what, block,
                        filled ? ", read at a stride of K" : " that are not filled up"),
            filled
                ? fmt::format("fills the rows of the {} up to whole blocks of {}, and reads them "
                              "at a stride of K",
                              what, block)
                : fmt::format("reads the rows of the {}, which lie at a stride of K, at one of "
                              "whole blocks of {}",
                              what, block),
            of_w,
            [=](int64_t row, int64_t term, int64_t columns) {
              return AtOtherStride(row, term, columns, (columns + block - 1) / block * block,
                                   filled);
            },
            [=](const Case& c) {
              return SumsOfCodes(c) && (of_w ? c.N : c.M) > 1 && c.K % block != 0;
            });
        rows.back().bits = Cause::kBitsOfRare;
      }
    }
    for (const int64_t block : kBlocks) {
      const Applies applies = SumsLongerThan(block);
      index(
          fmt::format("{} of the first block of {}", what, block),
          fmt::format("reads the {} of every block of {} terms from the first block", what, block),
          of_w,
          [block](int64_t row, int64_t term, int64_t columns) {
            return row * columns + term % block;
          },
          applies);
      // The last block is packed densely but read with the length of a whole one; or packed with
      // that length but read densely. Panels of four and of eight rows.
      for (const int64_t panel : {4, 8}) {
        for (const bool dense : {true, false}) {
          if (!of_w) continue;
          index(
              fmt::format("stride of the last block, panels of {} by {}{}", panel, block,
                          dense ? "" : ", padded"),
              fmt::format("reads the last, shorter block of a panel of {} rows by {} terms with "
                          "the stride of {}",
                          panel, block, dense ? "a whole block" : "a short block"),
              of_w,
              [=](int64_t row, int64_t term, int64_t columns) -> int64_t {
                const int64_t first = term / block * block;
                const int64_t length = std::min(block, columns - first);
                const int64_t read = dense ? block : length, packed = dense ? length : block;
                const int64_t at = row % panel * read + (term - first);
                const int64_t column = at % packed, in_panel = at / packed;
                if (in_panel >= panel || column >= length) return -1;
                return (row / panel * panel + in_panel) * columns + first + column;
              },
              [block](const Case& c) { return SumsOfCodes(c) && c.K > block && c.K % block != 0; });
        }
      }
    }
  }
}

// ---- Lines of an image.

// The pixel at (y, x) of the image under output pixel m, where lines are `pitch` pixels apart. None
// lies before the first pixel of the image or behind its last.
int64_t PixelAt(const Window& v, int64_t m, int64_t y, int64_t x, int64_t pitch) {
  const int64_t image = m / (v.out_h() * v.out_w()), pixels = v.in_h * v.in_w;
  return (image * pixels + std::clamp<int64_t>(y * pitch + x, 0, pixels - 1)) * v.in_c;
}

struct Position {
  int64_t y = 0, x = 0;
};
Position PositionOf(const Window& v, int64_t m, const Tap& tap) {
  return {m / v.out_w() % v.out_h() * v.stride_h - v.pad_top + tap.r * v.dilation_h,
          m % v.out_w() * v.stride_w - v.pad_left + tap.s * v.dilation_w};
}

int64_t LinesAsWideAsOutputs(const Window& v, int64_t m, const Tap& tap) {
  if (tap.x_row < 0) return -1;
  const Position at = PositionOf(v, m, tap);
  return PixelAt(v, m, at.y, at.x, v.out_w() * v.stride_w);
}

int64_t PastTheRightEdge(const Window& v, int64_t m, const Tap& tap) {
  const Position at = PositionOf(v, m, tap);
  const bool reads_on = at.y >= 0 && at.y < v.in_h && at.x >= v.in_w;
  return reads_on ? PixelAt(v, m, at.y, at.x, v.in_w) : tap.x_row;
}

int64_t BeforeTheLeftEdge(const Window& v, int64_t m, const Tap& tap) {
  const Position at = PositionOf(v, m, tap);
  const bool reads_on = at.y >= 0 && at.y < v.in_h && at.x < 0;
  return reads_on ? PixelAt(v, m, at.y, at.x, v.in_w) : tap.x_row;
}

// A window counts as inside, where no tap is looked at, if its taps would lie inside undilated.
int64_t InsideWithoutDilation(const Window& v, int64_t m, const Tap& tap) {
  const bool inside = m % v.out_w() * v.stride_w - v.pad_left + v.kernel_w <= v.in_w;
  return inside ? PastTheRightEdge(v, m, tap) : tap.x_row;
}

int64_t PixelOrPadding(const Window& v, int64_t m, int64_t y, int64_t x) {
  const bool inside = y >= 0 && y < v.in_h && x >= 0 && x < v.in_w;
  return inside ? PixelAt(v, m, y, x, v.in_w) : -1;
}

int64_t StrideIgnored(const Window& v, int64_t m, const Tap& tap) {
  return PixelOrPadding(v, m, m / v.out_w() % v.out_h() - v.pad_top + tap.r * v.dilation_h,
                        m % v.out_w() - v.pad_left + tap.s * v.dilation_w);
}

int64_t StrideForDilation(const Window& v, int64_t m, const Tap& tap) {
  return PixelOrPadding(v, m,
                        m / v.out_w() % v.out_h() * v.dilation_h - v.pad_top + tap.r * v.stride_h,
                        m % v.out_w() * v.dilation_w - v.pad_left + tap.s * v.stride_w);
}

int64_t PixelsOfOneGroup(const Window& v, int64_t, const Tap& tap) {
  return tap.x_row < 0 ? -1 : tap.x_row / v.groups;
}

int64_t PixelsInOrder(const Window& v, int64_t m, const Tap&) {
  return std::min(m, v.batch * v.in_h * v.in_w - 1) * v.in_c;
}

int64_t NearestPixel(const Window& v, int64_t m, const Tap& tap) {
  const Position at = PositionOf(v, m, tap);
  return PixelAt(v, m, std::clamp<int64_t>(at.y, 0, v.in_h - 1),
                 std::clamp<int64_t>(at.x, 0, v.in_w - 1), v.in_w);
}

template <bool kAbove, bool kBelow>
int64_t NearestLine(const Window& v, int64_t m, const Tap& tap) {
  const Position at = PositionOf(v, m, tap);
  if ((at.y < 0 && !kAbove) || (at.y >= v.in_h && !kBelow)) return tap.x_row;
  return PixelOrPadding(v, m, std::clamp<int64_t>(at.y, 0, v.in_h - 1), at.x);
}

// The nearest pixel for a tap on one side of the image alone.
template <bool (*kIsThere)(const Window& v, int64_t y, int64_t x)>
int64_t NearestOnSide(const Window& v, int64_t m, const Tap& tap) {
  const Position at = PositionOf(v, m, tap);
  if (!kIsThere(v, at.y, at.x)) return tap.x_row;
  return PixelAt(v, m, std::clamp<int64_t>(at.y, 0, v.in_h - 1),
                 std::clamp<int64_t>(at.x, 0, v.in_w - 1), v.in_w);
}
bool IsAbove(const Window&, int64_t y, int64_t) { return y < 0; }
bool IsBelow(const Window& v, int64_t y, int64_t) { return y >= v.in_h; }
bool IsLeft(const Window&, int64_t, int64_t x) { return x < 0; }
bool IsRight(const Window& v, int64_t, int64_t x) { return x >= v.in_w; }

// Images lie one behind the other. None lies before the first or behind the last.
template <bool kAbove>
int64_t OtherImage(const Window& v, int64_t m, const Tap& tap) {
  const Position at = PositionOf(v, m, tap);
  const int64_t image = m / (v.out_h() * v.out_w()), y = image * v.in_h + at.y;
  const bool reads_on = (kAbove ? at.y < 0 : at.y >= v.in_h) && at.x >= 0 && at.x < v.in_w &&
                        y >= 0 && y < v.batch * v.in_h;
  return reads_on ? (y * v.in_w + at.x) * v.in_c : tap.x_row;
}

// One line of taps is not read. What it would add is 0, as padding does.
template <bool kRow, bool kLast>
int64_t WithoutTaps(const Window& v, int64_t, const Tap& tap) {
  const int64_t at = kRow ? tap.r : tap.s, last = (kRow ? v.kernel_h : v.kernel_w) - 1;
  return at == (kLast ? last : 0) ? -1 : tap.x_row;
}

// An image of one line goes to a kernel of one line, which has no padding across it.
template <bool kRow>
int64_t FirstLineOfTheKernel(const Window& v, int64_t m, const Tap& tap) {
  if ((kRow ? tap.r : tap.s) > 0) return -1;
  const Position at = PositionOf(v, m, tap);
  return kRow ? PixelOrPadding(v, m, 0, at.x) : PixelOrPadding(v, m, at.y, 0);
}

void AddLines(std::vector<Cause>& rows) {
  const auto line = [&](std::string name, std::string sentence,
                        int64_t (*x_row)(const Window&, int64_t, const Tap&),
                        bool (*applies)(const Window&)) {
    rows.push_back({Stage::kGeometry, Kind::kIndex, std::move(name), std::move(sentence),
                    [applies](const Case& c) { return IsConv(c.op) && applies(c.window); },
                    Sets([x_row](Stages& s) { s.Sums().x_row = x_row; })});
  };
  for (const int64_t columns : {32, 64, 128, 256}) {
    rows.push_back({Stage::kGeometry, Kind::kIndex,
                    fmt::format("pixels of a buffer of {} columns", columns),
                    fmt::format("takes the pixels of column x from column x % {}", columns),
                    [columns](const Case& c) { return c.window.in_w > columns; },
                    [columns](Stages& s) {
                      const Window& v = s.c.window;
                      const Tensor old = s.c.x;
                      for (int64_t i = 0; i < old.size(); ++i) {
                        const int64_t x = i / v.in_c % v.in_w;
                        s.c.x.SetInt(i, old.IntAt(i - (x - x % columns) * v.in_c));
                      }
                      return s.c.x != old;
                    }});
  }
  line("lines as wide as the outputs", "takes lines of the image to be stride times outputs wide",
       LinesAsWideAsOutputs,
       [](const Window& v) { return v.in_h > 1 && v.out_w() * v.stride_w != v.in_w; });
  line("past the right edge",
       "reads on in the next line where a window reaches past the right edge", PastTheRightEdge,
       [](const Window& v) { return v.pad_right > 0; });
  line("before the left edge", "reads the line before where a window reaches past the left edge",
       BeforeTheLeftEdge, [](const Window& v) { return v.pad_left > 0; });
  line("stride ignored", "steps from output to output by one pixel instead of the stride",
       StrideIgnored, [](const Window& v) { return v.stride_h > 1 || v.stride_w > 1; });
  line("stride and dilation exchanged",
       "takes the dilation for the stride, and the stride for the dilation", StrideForDilation,
       [](const Window& v) { return v.stride_h != v.dilation_h || v.stride_w != v.dilation_w; });
  line("pixels of one group", "steps from pixel to pixel by the channels of one group",
       PixelsOfOneGroup, [](const Window& v) { return v.groups > 1 && v.in_c % v.groups == 0; });
  line("pixels in order", "takes the outputs of a 1x1 kernel from the first pixels, one by one",
       PixelsInOrder, [](const Window& v) { return v.kernel_h * v.kernel_w == 1; });
  line("border in the padding", "reads the nearest pixel of the image for a tap in the padding",
       NearestPixel, [](const Window&) { return true; });
  line("lines of the border in the padding",
       "reads the first or the last line of the image for a tap above or below it",
       NearestLine<true, true>, [](const Window&) { return true; });
  line("first line of the image above it", "reads the first line of the image for a tap above it",
       NearestLine<true, false>, [](const Window& v) { return v.pad_top > 0; });
  line("last line of the image below it", "reads the last line of the image for a tap below it",
       NearestLine<false, true>, [](const Window& v) { return v.pad_bottom > 0; });
  const auto side = [&](std::string_view where,
                        int64_t (*x_row)(const Window&, int64_t, const Tap&)) {
    line(fmt::format("border in the padding {} the image", where),
         fmt::format("reads the nearest pixel of the image for a tap {} it", where), x_row,
         [](const Window& v) { return v.has_padding(); });
  };
  side("above", NearestOnSide<IsAbove>);
  side("below", NearestOnSide<IsBelow>);
  side("to the left of", NearestOnSide<IsLeft>);
  side("to the right of", NearestOnSide<IsRight>);
  line("image before above", "reads the image before for a tap above an image", OtherImage<true>,
       [](const Window& v) { return v.pad_top > 0 && v.batch > 1; });
  line("image behind below", "reads the next image for a tap below an image", OtherImage<false>,
       [](const Window& v) { return v.pad_bottom > 0 && v.batch > 1; });
  line("last row of the kernel left out", "leaves out the last row of the kernel",
       WithoutTaps<true, true>, [](const Window& v) { return v.kernel_h > 1; });
  line("first row of the kernel left out", "leaves out the first row of the kernel",
       WithoutTaps<true, false>, [](const Window& v) { return v.kernel_h > 1; });
  line("last column of the kernel left out", "leaves out the last column of the kernel",
       WithoutTaps<false, true>, [](const Window& v) { return v.kernel_w > 1; });
  line("first column of the kernel left out", "leaves out the first column of the kernel",
       WithoutTaps<false, false>, [](const Window& v) { return v.kernel_w > 1; });
  line(
      "one-line image by the first row of the kernel",
      "computes an image of one line with the first row of the kernel alone, without padding above",
      FirstLineOfTheKernel<true>,
      [](const Window& v) { return v.in_h == 1 && v.out_h() == 1 && v.kernel_h > 1; });
  line("one-column image by the first column of the kernel",
       "computes an image of one column with the first column of the kernel alone, without padding "
       "on the left",
       FirstLineOfTheKernel<false>,
       [](const Window& v) { return v.in_w == 1 && v.out_w() == 1 && v.kernel_w > 1; });
  line("inside without dilation",
       "reads past the right edge where the window would lie inside without its dilation",
       InsideWithoutDilation, [](const Window& v) { return v.pad_right > 0 && v.dilation_w > 1; });
}

// ---- Rows in blocks.

// Gives each value of a row behind the first `block` the row's first value, which counts anyway.
bool CountFirstBlock(Tensor& x, size_t row, size_t block) {
  const Tensor old = x;
  const std::span<float> values = x.as<float>();
  for (size_t first = 0; first < values.size(); first += row)
    std::ranges::fill(values.subspan(first, row).subspan(std::min(block, row)), values[first]);
  return x != old;
}

bool IsBelowOrRight(const Window& v, int64_t y, int64_t x) {
  return IsBelow(v, y, x) || IsRight(v, y, x);
}
bool IsAboveOrLeft(const Window& v, int64_t y, int64_t x) {
  return IsAbove(v, y, x) || IsLeft(v, y, x);
}

// Padding of code 0 on one side alone; and of the lowest code of s8 on all, as where u8 kernels get
// codes of s8 that are shifted.
void AddPaddings(std::vector<Cause>& rows) {
  using Lies = bool (*)(const Window& window, int64_t y, int64_t x);
  const auto side = [&](const char* where, Lies lies) {
    rows.push_back({Stage::kPadding, Kind::kPadding, fmt::format("padding of code 0 {}", where),
                    fmt::format("fills the padding {} the image with code 0", where),
                    [](const Case& c) { return IsConv(c.op); }, Sets([lies](Stages& s) {
                      s.Sums().padding_code = 0;
                      s.Sums().coded_padding = lies;
                    })});
  };
  rows.push_back({Stage::kPadding, Kind::kPadding, "padding of code -128",
                  "fills the padding with code -128",
                  [](const Case& c) { return IsConv(c.op) && c.x.dtype() == DType::kS8; },
                  Sets([](Stages& s) { s.Sums().padding_code = -128; })});
  side("above", IsAbove);
  side("below", IsBelow);
  side("to the left of", IsLeft);
  side("to the right of", IsRight);
  side("below and to the right of", IsBelowOrRight);
  side("above and to the left of", IsAboveOrLeft);
}

void AddRows(std::vector<Cause>& rows) {
  for (const int64_t block : {4, 8, 16, 32}) {
    rows.push_back(
        {Stage::kOperands, Kind::kTail, fmt::format("range without the last K % {}", block),
         fmt::format("looks for the range without the last K % {} values of a row", block),
         [block](const Case& c) { return RowOf(c.op).dynamic && c.K > block && c.K % block != 0; },
         Sets([block](Stages& s) { s.choice.whole_blocks = block; })});
    rows.push_back({Stage::kOperands, Kind::kTail,
                    fmt::format("range without the last {} of all", block),
                    fmt::format("looks for a range without the last n % {} of its n values", block),
                    [block](const Case& c) {
                      const int64_t values = RowsShareQParams(c) ? c.M * c.K : c.K;
                      return RowOf(c.op).dynamic && values > block && values % block != 0;
                    },
                    Sets([block](Stages& s) {
                      s.choice.whole_blocks = block;
                      s.choice.blocks_of_all = true;
                    })});
    rows.push_back(
        {Stage::kAccumulate, Kind::kTail, fmt::format("softmax without the last N % {}", block),
         fmt::format("divides by a sum without the last N % {0} of a row longer than {0}", block),
         [block](const Case& c) { return c.op == Op::kSoftmax && c.N > block && c.N % block != 0; },
         Sets([block](Stages& s) { s.softmax.whole_blocks = block; })});
    rows.push_back(
        {Stage::kOffset, Kind::kTail, fmt::format("largest code without the last N % {}", block),
         fmt::format("looks for the largest code of a row without the last N % {}", block),
         [block](const Case& c) { return c.op == Op::kSoftmax && c.N > block && c.N % block != 0; },
         Sets([block](Stages& s) { s.softmax.largest_of_blocks = block; })});
  }
  for (const int64_t block : {256, 512, 1024, 2048, 4096, 8192}) {
    rows.push_back({Stage::kAccumulate, Kind::kIndex,
                    fmt::format("softmax of the last block of {}", block),
                    fmt::format("divides by the sum of the last of a row's blocks of {}", block),
                    [block](const Case& c) { return c.op == Op::kSoftmax && c.N > block; },
                    Sets([block](Stages& s) { s.softmax.summed_block = block; })});
    rows.push_back(
        {Stage::kOperands, Kind::kTail, fmt::format("range of the first block of {}", block),
         fmt::format("looks for the range in the first {} values alone", block),
         // Codes are of all values.
         [](const Case& c) { return c.op == Op::kChooseQParams && !c.codes; },
         [block](Stages& s) {
           const int64_t row = s.c.per_channel ? s.c.N : s.c.M * s.c.N;
           return CountFirstBlock(s.c.x, static_cast<size_t>(row), static_cast<size_t>(block));
         }});
  }
}

// ---- Elements of two operands.

// Changes codes of the first operand, of the second, or of both; false where none has changed.
bool EditElements(Stages& s, void (*edit)(const CodeRange& range, int32_t& a, int32_t& b)) {
  const CodeRange range = RangeOf(s.c.x.dtype());
  const Tensor x = s.c.x, w = s.c.w;
  for (int64_t i = 0; i < s.c.x.size(); ++i) {
    int32_t a = s.c.x.IntAt(i), b = s.c.w.IntAt(i);
    edit(range, a, b);
    s.c.x.SetInt(i, a);
    s.c.w.SetInt(i, b);
  }
  return s.c.x != x || s.c.w != w;
}

// An operand b of -128 counts as 128.
RoundedOutput NegatedOperandWraps(const RealOutput& o) {
  const Factors f = FactorsOf(o);
  const bool wraps = o.c.w.IntAt(o.index) == -128;
  const double offset = f.offset - (wraps ? 256.0 * o.c.w_q.scale_at(0) : 0);
  return {std::nearbyint((f.multiplier * f.sum + offset) / f.y)};
}

void AddElements(std::vector<Cause>& rows) {
  // The product of differences is a*b - za*b - zb*a + za*zb.
  const auto cross = [&](std::string name, std::string sentence, int64_t times) {
    rows.push_back({Stage::kOffset, Kind::kZeroPoint, std::move(name), std::move(sentence),
                    [](const Case& c) { return c.op == Op::kMul; },
                    [times](Stages& s) {
                      s.added = times * s.c.x_q.zero_point_at(0) * s.c.w_q.zero_point_at(0);
                      return s.added != 0;
                    },
                    Cause::kBitsOfFamily});
  };
  cross("za*zb ignored", "leaves the product of both zero points out", -1);
  cross("za*zb subtracted", "subtracts the product of both zero points instead of adding it", -2);
  const auto edited = [&](Kind kind, std::string name, std::string sentence, Applies applies,
                          void (*edit)(const CodeRange&, int32_t&, int32_t&)) {
    rows.push_back({Stage::kOperands, kind, std::move(name), std::move(sentence),
                    std::move(applies), [edit](Stages& s) { return EditElements(s, edit); }});
  };
  edited(
      Kind::kClamp, "negated operand saturates",
      "negates the codes of b in an int8 that saturates: -128 becomes 127",
      [](const Case& c) { return c.op == Op::kSub; },
      [](const CodeRange&, int32_t&, int32_t& b) { b = std::max(b, -127); });
  rows.push_back({Stage::kRound, Kind::kClamp, "negated operand wraps",
                  "negates the codes of b in an int8 that wraps: -128 stays -128",
                  [](const Case& c) { return c.op == Op::kSub; },
                  Sets([](Stages& s) { s.codes.round = NegatedOperandWraps; })});
  const auto copied = [&](std::string name, std::string_view which,
                          std::vector<QParams Case::*> inputs, Applies applies,
                          bool of_any_scale = false) {
    rows.push_back({Stage::kOperands, Kind::kZeroPoint, std::move(name),
                    fmt::format("copies the codes of {}{}, whatever {}", which,
                                of_any_scale ? "" : " that has the output's scale",
                                of_any_scale ? "the scales" : "its zero point"),
                    std::move(applies), [inputs, of_any_scale](Stages& s) {
                      bool changes = false;
                      for (QParams Case::* const input : inputs) {
                        QParams& q = s.c.*input;
                        if (q.scale != s.c.out_q.scale && !of_any_scale) continue;
                        changes |= q != s.c.out_q;
                        q = s.c.out_q;
                      }
                      return changes;
                    }});
  };
  const auto concat = [](const Case& c) { return c.op == Op::kConcat; };
  const auto copies = [](const Case& c) { return c.op == Op::kConcat || c.op == Op::kRescale; };
  copied("copied where scales are equal", "an input", {&Case::x_q, &Case::w_q}, copies);
  copied("copied where scales and types are equal", "an input of the output's type",
         {&Case::x_q, &Case::w_q},
         [copies](const Case& c) { return copies(c) && c.x.dtype() == c.out_dtype; });
  copied("both copied", "both inputs", {&Case::x_q, &Case::w_q}, concat, true);
  copied("a copied", "the first input", {&Case::x_q}, concat, true);
  copied("b copied", "the second input", {&Case::w_q}, concat, true);
  copied(
      "both of the output's type copied", "inputs of the output's type", {&Case::x_q, &Case::w_q},
      [concat](const Case& c) { return concat(c) && c.x.dtype() == c.out_dtype; }, true);
  copied("a copied where scales are equal", "a first input", {&Case::x_q}, concat);
  copied("b copied where scales are equal", "a second input", {&Case::w_q}, concat);
  struct Asked {
    std::string_view which, what;
    bool a, b;
  };
  for (const auto& [which, what, a, b] :
       {Asked{"a", "the first one", true, false}, Asked{"b", "the second one", false, true},
        Asked{"either", "either", true, true}}) {
    rows.push_back(
        {Stage::kOperands, Kind::kZeroPoint,
         fmt::format("both copied where {} has the output's scale", which),
         fmt::format("copies the codes of both inputs where {} has the output's scale and zero "
                     "point",
                     what),
         concat,
         [a, b](Stages& s) {
           const bool of_a = s.c.x_q == s.c.out_q, of_b = s.c.w_q == s.c.out_q;
           if (of_a == of_b || (of_a ? !a : !b)) return false;
           s.c.x_q = s.c.w_q = s.c.out_q;
           return true;
         },
         Cause::kBitsOfFamily});
  }
  edited(
      Kind::kClamp, "saturating sum of codes",
      "adds codes of one scale in 8 bits that saturate, before the zero points are taken out",
      [](const Case& c) {
        return c.op == Op::kAdd && c.x_q.scale == c.w_q.scale && c.x_q.scale == c.out_q.scale;
      },
      [](const CodeRange& range, int32_t& a, int32_t& b) {
        a = std::clamp(a + b, range.min, range.max) - b;
      });
  edited(
      Kind::kClamp, "saturating difference of codes",
      "subtracts codes of one scale and zero point in 8 bits that saturate",
      [](const Case& c) { return c.op == Op::kSub && c.x_q == c.w_q; },
      [](const CodeRange& range, int32_t& a, int32_t& b) {
        a = std::clamp(a - b, range.min, range.max) + b;
      });
  for (const auto& [which, operand] : {std::pair{"first", &Case::x}, {"second", &Case::w}}) {
    for (const int64_t modulo : {256, 65536}) {
      rows.push_back(
          {Stage::kOperands, Kind::kIndex,
           fmt::format("{} operand of element n % {}", which, modulo),
           fmt::format("takes the {} operand of element n from element n % {}", which, modulo),
           [modulo](const Case& c) { return HasTwoOperands(c.op) && c.N > modulo; },
           [operand, modulo](Stages& s) {
             Tensor& codes = s.c.*operand;
             const Tensor old = codes;
             for (int64_t i = 0; i < codes.size(); ++i) {
               const int64_t n = i % s.c.N;
               codes.SetInt(i, old.IntAt(i - n + n % modulo));
             }
             return codes != old;
           }});
    }
  }
}

// Elements behind the last whole vector.
void AddTailElements(std::vector<Cause>& rows) {
  for (const auto& [which, what, operand] :
       {std::tuple{"first", "{x_codes}", &Case::x}, {"second", "{w_codes}", &Case::w}}) {
    for (const int64_t lanes : {4, 8, 16, 32}) {
      const auto read = [&](const char* where, const std::string& from_what, int64_t least,
                            auto from) {
        rows.push_back({Stage::kOperands, Kind::kTail,
                        fmt::format("{} operand of the tail of {} from {}", which, lanes, where),
                        fmt::format("takes the {} behind the last whole vector of {} from {}", what,
                                    lanes, from_what),
                        [operand, lanes, least](const Case& c) {
                          const Layout layout = RowOf(c.op).layout;
                          const Tensor& codes = c.*operand;
                          const int64_t columns = c.M == 0 ? 0 : codes.size() / c.M;
                          return (layout == Layout::kElements || layout == Layout::kColumns) &&
                                 (IsByteCode(codes.dtype()) || IsWideCode(codes.dtype())) &&
                                 columns > lanes && columns % lanes >= least;
                        },
                        [operand, lanes, from](Stages& s) {
                          Tensor& codes = s.c.*operand;
                          const Tensor old = codes;
                          const int64_t columns = codes.size() / s.c.M;
                          const int64_t body = columns - columns % lanes;
                          for (int64_t i = 0; i < codes.size(); ++i) {
                            const int64_t n = i % columns;
                            if (n >= body) codes.SetInt(i, old.IntAt(i - n + from(n, body, lanes)));
                          }
                          return codes != old;
                        },
                        Cause::kBitsOfRare});
      };
      read("its first element", "the first of them", 2,
           [](int64_t, int64_t body, int64_t) { return body; });
      read("the vector before", "that vector", 1,
           [](int64_t n, int64_t, int64_t width) { return n - width; });
    }
  }
}

// ---- Weights in blocks, of which a kernel keeps two numbers: the scale of the codes, and scale
// times zero point (the minimum of a K-quant).

bool IsLinearInBlocks(const Case& c) {
  return c.op == Op::kLinear && !HasFloatX(c) && HasBlocks(c);
}
bool HasMinima(const Case& c) {
  return IsLinearInBlocks(c) &&
         std::ranges::any_of(c.w_q.zero_point, [](int32_t zero) { return zero != 0; });
}
// Elements of x that stand for 0 fill up the last block.
bool CanFillUp(const Case& c) {
  const CodeRange codes = RangeOf(c.x.dtype());
  return std::ranges::all_of(c.x_q.zero_point,
                             [&](int32_t zero) { return zero >= codes.min && zero <= codes.max; });
}

// The same sum over twice as many terms: the first half of each row of w has the codes and zero
// points 0, the second half codes 0 and the zero points.
void TakeMinimaApart(Case& c) {
  const Case from = c;
  const int64_t blocks = RowBlocks(from), half = blocks * from.w_block;
  c.K = 2 * half;
  c.x = Tensor(from.x.dtype(), {c.M, c.K});
  c.w = Tensor(from.w.dtype(), {c.N, c.K});
  for (int64_t i = 0; i < c.M * c.K; ++i) {
    const int64_t m = i / c.K, k = i % half;
    c.x.SetInt(i, k < from.K ? from.x.IntAt(m * from.K + k)
                             : from.x_q.zero_point[XEntry(from, m, from.K - 1)]);
  }
  for (int64_t i = 0; i < c.N * c.K; ++i)
    if (i % c.K < from.K) c.w.SetInt(i, from.w.IntAt(i / c.K * from.K + i % c.K));
  const auto twice = [blocks](const QParams& q, bool of_codes_are_0) {
    QParams all{{}, {}};
    for (int64_t i = 0; i < 2 * std::ssize(q.scale); ++i) {
      const int64_t in_row = i % (2 * blocks);
      const auto entry = static_cast<size_t>(i / (2 * blocks) * blocks + in_row % blocks);
      all.scale.push_back(q.scale[entry]);
      all.zero_point.push_back(of_codes_are_0 && in_row < blocks ? 0 : q.zero_point[entry]);
    }
    return all;
  };
  c.w_q = twice(from.w_q, true);
  if (c.x_block != 0) c.x_q = twice(from.x_q, false);
}

void AddMinima(std::vector<Cause>& rows) {
  struct Other {
    std::string name;
    int64_t (*of)(int64_t block, int64_t together);
    bool (*repeats)(const Case&) = nullptr;  // of the scale of the codes
  };
  // Without zero points there is one scale, and causes.cc has the row.
  const auto is_the_scale = +[](const Case& c) { return !HasMinima(c); };
  const std::array others{
      Other{"the block behind", [](int64_t block, int64_t) { return block + 1; }, is_the_scale},
      Other{"the block before", [](int64_t block, int64_t) { return block - 1; }, is_the_scale},
      Other{"the block behind, the last one's from the first",
            [](int64_t block, int64_t together) { return (block + 1) % together; }},
      Other{"the block before, the first one's from the last",
            [](int64_t block, int64_t together) { return (block + together - 1) % together; }},
      Other{"the first block", [](int64_t, int64_t) { return int64_t{0}; }, is_the_scale},
      Other{"the other block of a pair",
            [](int64_t block, int64_t) { return block % 2 == 0 ? block + 1 : block - 1; }},
      Other{"the block 4 before it, in the last 4 of 8 blocks",
            [](int64_t block, int64_t) { return block % 8 < 4 ? block : block - 4; }}};
  // A second part of the terms, as split sums have it, that counts its blocks from 0.
  for (const int variant : {0, 1, 2, 3}) {
    const bool up = variant % 2 == 1, zero_points = variant >= 2;
    rows.push_back(
        {Stage::kIndex, Kind::kIndex,
         fmt::format("{} of the first half of the blocks{}", zero_points ? "parameters" : "scales",
                     up ? ", rounded up" : ""),
         fmt::format("counts the blocks of weights anew behind half of a row{}: takes the scale{} "
                     "of the first ones for those",
                     up ? ", rounded up" : "", zero_points ? " and zero point" : ""),
         IsLinearInBlocks, [up, zero_points](Stages& s) {
           const int64_t blocks = RowBlocks(s.c);
           const int64_t half = std::max<int64_t>(1, (blocks + (up ? 1 : 0)) / 2);
           const auto from = [=](int64_t i, int64_t) { return i % blocks < half ? i : i - half; };
           const bool scales = Reindex(s.c.w_q.scale, from);
           return (zero_points && Reindex(s.c.w_q.zero_point, from)) || scales;
         }});
    rows.back().knows_blocks = true;
  }
  for (const Other& other : others) {
    for (const bool of_minima : {false, true}) {
      const auto edit = [of = other.of, of_minima](Stages& s) {
        const int64_t blocks = RowBlocks(s.c);
        // The 256 weights of a K-quant stand for themselves.
        const int64_t together =
            s.c.w_block < 256 && 256 % s.c.w_block == 0 ? 256 / s.c.w_block : blocks;
        TakeMinimaApart(s.c);
        const auto from = [=](int64_t i, int64_t) {
          if ((i / blocks % 2 == 1) != of_minima) return i;
          const int64_t block = i % blocks, first = block - block % together;
          const int64_t here = std::min(together, blocks - first);
          const int64_t there = of(block - first, here);
          return there >= 0 && there < here ? i - block + first + there : i;
        };
        const bool changes = Reindex(s.c.w_q.scale, from);
        return Reindex(s.c.w_q.zero_point, from) || changes;
      };
      rows.push_back(
          {of_minima ? Stage::kWZeroPoint : Stage::kIndex,
           of_minima ? Kind::kZeroPoint : Kind::kIndex,
           (of_minima ? "minimum of " : "scale of codes of ") + other.name,
           (of_minima ? "takes scale times zero point of a block of weights from "
                      : "takes the scale of the codes, not that of their zero point, of a block of "
                        "weights from ") +
               other.name,
           [of_minima](const Case& c) {
             return (of_minima ? HasMinima(c) : IsLinearInBlocks(c)) && CanFillUp(c);
           },
           edit});
      rows.back().knows_blocks = true;
      if (!of_minima) rows.back().repeats = other.repeats;
    }
  }
}

// K-quants store 8 factors of 6 bits for scales, and 8 for minima, the high two bits of the last 4
// apart. Takes these for 0.
bool DropHighBits(Stages& s, bool of_scales, bool of_minima) {
  constexpr size_t kTogether = 8;
  constexpr int32_t kMost = 63, kLow = 15;
  const auto blocks = static_cast<size_t>(RowBlocks(s.c));
  if (s.c.w_block != 32 || blocks <= kTogether / 2) return false;
  TakeMinimaApart(s.c);
  QParams& q = s.c.w_q;
  bool changes = false;
  for (size_t first = 0; first < q.scale.size(); first += blocks) {
    const bool minima = first / blocks % 2 == 1;
    if (minima ? !of_minima : !of_scales) continue;
    for (size_t at = first; at < first + blocks; at += kTogether) {
      std::vector<double> numbers;
      for (size_t i = at; i < std::min(at + kTogether, first + blocks); ++i)
        numbers.push_back(static_cast<double>(q.scale[i]) * (minima ? q.zero_point[i] : 1));
      if (std::ranges::any_of(numbers, [](double number) { return number < 0; })) return false;
      const std::optional<Multiples> multiples = MultiplesOf(numbers, kMost);
      if (!multiples) return false;
      for (size_t i = kTogether / 2; i < numbers.size(); ++i) {
        const int32_t factor = multiples->factors[i], low = factor & kLow;
        if (low == factor) continue;
        changes = true;
        q.scale[at + i] = minima ? multiples->unit : multiples->unit * static_cast<float>(low);
        if (minima) q.zero_point[at + i] = low;
      }
    }
  }
  return changes;
}

void AddHighBits(std::vector<Cause>& rows) {
  struct Of {
    const char* name;
    bool scales, minima;
  };
  for (const Of& of :
       {Of{"scales", true, false}, {"minima", false, true}, {"scales and minima", true, true}}) {
    rows.push_back({Stage::kIndex, Kind::kIndex,
                    fmt::format("high bits of {} of 6 bits dropped", of.name),
                    fmt::format("leaves out the high two bits of the {} of 6 bits that blocks 4 to "
                                "7 of each 8 have",
                                of.name),
                    [of](const Case& c) {
                      return (of.minima ? HasMinima(c) : IsLinearInBlocks(c)) && CanFillUp(c);
                    },
                    [of](Stages& s) { return DropHighBits(s, of.scales, of.minima); }});
    rows.back().knows_blocks = true;
  }
}

// Q6_K stores weights up to 32 in 6 bits, and the scale of a block with its sign: of a block whose
// largest weight is further from 0 than its lowest both are negated. 1 for all other formats.
constexpr int64_t kBlockOfSixBits = 16;
int32_t StoredSign(const Case& c, const Tensor& w, int64_t i) {
  if (c.w_block != kBlockOfSixBits) return 1;
  const int64_t first = i - i % c.K % c.w_block;
  int32_t least = 0, most = 0;
  for (int64_t k = first; k < std::min(first + c.w_block, i - i % c.K + c.K); ++k) {
    least = std::min(least, w.IntAt(k));
    most = std::max(most, w.IntAt(k));
  }
  return most > -least ? -1 : 1;
}

// By what the sum of a block moves where a kernel keeps it in lanes of 16 bits: product k in lane
// `lane(k)`.
template <class Lane>
int64_t MovedBy16Bits(Codes x, Codes w, int32_t zero_point, bool saturates, Lane lane) {
  std::map<size_t, int64_t> lanes;
  int64_t exact = 0;
  for (size_t k = 0; k < x.size(); ++k) {
    const int64_t product = int64_t{x[k]} * (int64_t{w[k]} - zero_point);
    int64_t& sum = lanes[lane(k)];
    sum = saturates ? Saturated<int16_t>(sum + product) : Wrapped<int16_t>(sum + product);
    exact += product;
  }
  int64_t kept = 0;
  for (const auto& [at, sum] : lanes) kept += sum;
  return kept - exact;
}

void AddBlocks(std::vector<Cause>& rows) {
  const auto add = [&](Stage stage, Kind kind, std::string name, std::string sentence,
                       auto change) {
    rows.push_back({stage, kind, std::move(name), std::move(sentence),
                    [](const Case& c) {
                      return c.op == Op::kLinear && !HasFloatX(c) && c.w_block != 0 && c.K > 0;
                    },
                    change});
    rows.back().knows_blocks = true;
  };
  for (const bool saturates : {false, true}) {
    const char* const how = saturates ? "saturate" : "wrap";
    for (const size_t lanes : {1, 2, 4, 8, 16}) {
      const std::string where =
          lanes == 1 ? fmt::format("an int16 that {}s", how)
                     : fmt::format("{} int16 lanes that {}, one in {} in each", lanes, how, lanes);
      for (const bool joins : {false, true}) {
        const std::string blocks = joins ? "neighbouring blocks of equal scales" : "a block";
        add(Stage::kAccumulate, Kind::kPairSaturation,
            fmt::format("products of {} in {} int16 that {}", blocks, lanes, how),
            fmt::format("adds the products of {} in {}", blocks, where),
            [saturates, lanes, joins](Stages& s) {
              s.block_moved = [saturates, lanes](Codes x, Codes w, int32_t zero_point) {
                return MovedBy16Bits(x, w, zero_point, saturates,
                                     [lanes](size_t k) { return k % lanes; });
              };
              s.joins_blocks = joins;
              return !joins || RowBlocks(s.c) > 1;
            });
      }
    }
    add(Stage::kAccumulate, Kind::kPairSaturation,
        fmt::format("pairs of products of a block that {}", how),
        fmt::format("adds neighbouring products of a block in an int16 that {}s", how),
        [saturates](Stages& s) {
          s.block_moved = [saturates](Codes x, Codes w, int32_t zero_point) {
            return MovedBy16Bits(x, w, zero_point, saturates, [](size_t k) { return k / 2; });
          };
          s.moves_parts = true;
          return true;
        });
  }
  for (const bool last : {true, false}) {
    const char* const which = last ? "last" : "first";
    add(Stage::kTail, Kind::kTail, fmt::format("{} code of each block dropped", which),
        fmt::format("drops the product of the {} weight of each block", which), [last](Stages& s) {
          const auto block = static_cast<size_t>(s.c.w_block);
          s.block_moved = [last, block](Codes x, Codes w, int32_t zero_point) -> int64_t {
            if (last && x.size() < block) return 0;  // what fills it up is 0
            const size_t at = last ? block - 1 : 0;
            return -int64_t{x[at]} * (int64_t{w[at]} - zero_point);
          };
          return true;
        });
  }
  for (const int64_t tile : {64, 128, 256}) {
    add(Stage::kTail, Kind::kTail, fmt::format("blocks behind the last {} terms dropped", tile),
        fmt::format("drops the blocks of a row behind the last full {} terms", tile),
        [tile](Stages& s) {
          Case& c = s.c;
          if (tile % c.w_block != 0 || tile == c.w_block || c.K % c.w_block != 0) return false;
          for (int64_t i = 0; i < c.N * c.K; ++i) {
            if (i % c.K < c.K - c.K % tile) continue;
            c.w_q.zero_point[WEntry(c, i / c.K, i % c.K)] = 0;
            c.w.SetInt(i, 0);
          }
          return c.K % tile != 0;
        });
  }
  for (const int power : {1, -1}) {
    add(Stage::kIndex, Kind::kIndex,
        fmt::format("scales of blocks {}", power > 0 ? "doubled" : "halved"),
        fmt::format("takes the scale of a block of weights for {} what it is",
                    power > 0 ? "twice" : "half of"),
        [power](Stages& s) {
          for (float& scale : s.c.w_q.scale) {
            scale = std::ldexp(scale, power);
            if (!std::isnormal(scale)) return false;
          }
          return true;
        });
  }
  // Formats of 5 and 6 bits store the lower four of a weight, and elsewhere the high ones of many.
  struct High {
    const char *name, *sentence;
    int64_t block;
    int32_t bits;
    int64_t (*from)(int64_t k);  // null: none
  };
  for (const High& high :
       {High{"fifth bits dropped", "leaves out the fifth bits of weights of 5 bits", 32, 5,
             nullptr},
        {"fifth bits of the other half",
         "takes the fifth bit of a weight from the other half of its block", 32, 5,
         [](int64_t k) { return k ^ 16; }},
        {"fifth bits of the next weight", "takes the fifth bit of a weight from the next one", 32,
         5, [](int64_t k) { return k - k % 32 + (k + 1) % 32; }},
        {"fifth bits of the next weight in a half",
         "takes the fifth bit of a weight from the next one, of the last of 16 its own", 32, 5,
         [](int64_t k) { return k % 16 == 15 ? k : k + 1; }},
        {"high bits of 6 dropped", "leaves out the high two bits of weights of 6 bits", 16, 6,
         nullptr},
        {"high bits of 6 in another order",
         "takes the high two bits of weights of 6 bits in another order: those of each 32 of 128 "
         "from the 32 at the other end",
         16, 6, [](int64_t k) { return k + (3 - 2 * (k / 32 % 4)) * 32; }}}) {
    add(Stage::kOperands, Kind::kIndex, high.name, high.sentence, [high](Stages& s) {
      const Tensor old = s.c.w;
      const int32_t most = 1 << (high.bits - 1);
      if (s.c.w_block != high.block || old.dtype() != DType::kS8) return false;
      const auto stored = [&](int64_t i) { return StoredSign(s.c, old, i) * old.IntAt(i) + most; };
      for (int64_t i = 0; i < old.size(); ++i)
        if (stored(i) < 0 || stored(i) >= 2 * most) return false;
      for (int64_t i = 0; i < old.size(); ++i) {
        const int64_t k = i % s.c.K, other = high.from == nullptr ? k : high.from(k);
        const int32_t there = other < s.c.K ? stored(i - k + other) : most;
        const int32_t code = (stored(i) & 15) + (high.from == nullptr ? 0 : there & -16);
        s.c.w.SetInt(i, StoredSign(s.c, old, i) * (code - most));
      }
      return s.c.w != old;
    });
  }
  add(Stage::kWZeroPoint, Kind::kZeroPoint, "31 subtracted from codes of 6 bits",
      "subtracts 31, not 32, from the codes of weights of 6 bits", [](Stages& s) {
        const Tensor old = s.c.w;
        if (s.c.w_block != kBlockOfSixBits || old.dtype() != DType::kS8) return false;
        for (int64_t i = 0; i < old.size(); ++i) {
          if (std::abs(old.IntAt(i)) > 32) return false;
          s.c.w.SetInt(i, old.IntAt(i) + StoredSign(s.c, old, i));
        }
        return true;
      });
  // The codes of e2m1 in llama.cpp's mxfp4, doubled.
  add(Stage::kOperands, Kind::kClamp, "6 of e2m1 as 4", "reads the largest weight of e2m1, 6, as 4",
      [](Stages& s) {
        constexpr std::array<int32_t, 8> kMagnitudes{0, 1, 2, 3, 4, 6, 8, 12};
        const Tensor old = s.c.w;
        if (s.c.w_block != 32 || old.dtype() != DType::kS8) return false;
        for (int64_t i = 0; i < old.size(); ++i) {
          const int32_t weight = old.IntAt(i);
          if (std::ranges::count(kMagnitudes, std::abs(weight)) == 0) return false;
          if (std::abs(weight) == 12) s.c.w.SetInt(i, weight / 3 * 2);
        }
        return s.c.w != old;
      });
}

// ---- Bias and parameters per channel.

bool HasAnyBias(const Case& c) { return c.bias || c.bias_i32; }

void AddChannels(std::vector<Cause>& rows) {
  struct From {
    std::string name, sentence;
    std::function<int64_t(int64_t n, int64_t channels)> at;
    int64_t more_than;
    double bits = Cause::kBitsOfFamily;
  };
  std::vector<From> all;
  for (const int64_t modulo : {1, 4, 8, 16, 32, 64, 128, 256})
    all.push_back({fmt::format("channel n % {}", modulo),
                   modulo == 1 ? "channel 0" : fmt::format("channel n % {}", modulo),
                   [modulo](int64_t n, int64_t) { return n % modulo; }, modulo});
  for (const int64_t parts : {2, 3, 4, 8})
    all.push_back(
        {fmt::format("channel n % ceil(N / {})", parts),
         fmt::format("channel n % ceil(N / {0}): each of {0} parts of the channels begins "
                     "the list anew",
                     parts),
         [parts](int64_t n, int64_t channels) { return n % ((channels + parts - 1) / parts); },
         parts - 1, Cause::kBitsOfRare});
  all.push_back({"the next channel", "channel n+1",
                 [](int64_t n, int64_t channels) { return (n + 1) % channels; }, 1});
  all.push_back({"the channel before", "channel n-1",
                 [](int64_t n, int64_t channels) { return (n + channels - 1) % channels; }, 1});
  for (const int64_t lanes : {2, 4, 8, 16})
    all.push_back({fmt::format("channel n - n % {}", lanes),
                   fmt::format("channel n - n % {}", lanes),
                   [lanes](int64_t n, int64_t) { return n - n % lanes; }, 1, Cause::kBitsOfRare});
  for (const int64_t lanes : {4, 8, 16})
    all.push_back({fmt::format("channel n - {} from {} on", lanes, lanes),
                   fmt::format("channel n - {} from {} on", lanes, lanes),
                   [lanes](int64_t n, int64_t) { return n < lanes ? n : n - lanes; }, lanes,
                   Cause::kBitsOfRare});
  all.push_back({"the other channel of a pair", "the other channel of its pair",
                 [](int64_t n, int64_t channels) { return (n ^ 1) < channels ? n ^ 1 : n; }, 1,
                 Cause::kBitsOfRare});
  all.push_back({"the opposite channel", "channel N-1-n",
                 [](int64_t n, int64_t channels) { return channels - 1 - n; }, 1});
  for (const From& from : all) {
    const size_t first = rows.size();
    const Applies several = [more = from.more_than](const Case& c) { return c.N > more; };
    const std::string sentence = " of channel n from " + from.sentence;
    rows.push_back({Stage::kBias, Kind::kIndex, "bias of " + from.name, "takes the bias" + sentence,
                    several, [at = from.at](Stages& s) {
                      const bool real = Reindex(s.c.bias, at);
                      return Reindex(s.c.bias_i32, at) || real;
                    }});
    rows.push_back({Stage::kIndex, Kind::kIndex, "weight zero point of " + from.name,
                    "takes the weight zero point" + sentence, several,
                    [at = from.at](Stages& s) { return Reindex(s.c.w_q.zero_point, at); }});
    rows.push_back({Stage::kIndex, Kind::kIndex, "parameters of " + from.name,
                    "takes scale and zero point" + sentence, several, [at = from.at](Stages& s) {
                      ReindexScales(s.c, at);
                      bool zero_points = false;  // else the scales are all of it
                      for (QParams* q : {&s.c.x_q, &s.c.w_q, &s.c.out_q})
                        zero_points |= Reindex(q->zero_point, at);
                      return zero_points;
                    }});
    constexpr std::array<std::string_view, 3> kHaveRows{"channel n % 1", "channel n % 8",
                                                        "channel n % 16"};
    if (!std::ranges::count(kHaveRows, from.name))
      rows.push_back({Stage::kIndex, Kind::kIndex, "scale of " + from.name,
                      "takes the scale" + sentence, several,
                      [at = from.at](Stages& s) { return ReindexScales(s.c, at); }});
    for (Cause& row : std::span(rows).subspan(first)) row.bits = from.bits;
  }

  const Applies any = [](const Case&) { return true; };
  const auto in_group = [](const Case& c) {
    const int64_t channels = std::max<int64_t>(c.N / c.window.groups, 1);
    return [channels](int64_t n, int64_t) { return n % channels; };
  };
  rows.push_back({Stage::kBias, Kind::kIndex, "bias within group",
                  "indexes the bias within the group", any, [in_group](Stages& s) {
                    const bool real = Reindex(s.c.bias, in_group(s.c));
                    return Reindex(s.c.bias_i32, in_group(s.c)) || real;
                  }});
  rows.push_back({Stage::kIndex, Kind::kIndex, "weight zero point within group",
                  "indexes the weight zero point within the group", any,
                  [in_group](Stages& s) { return Reindex(s.c.w_q.zero_point, in_group(s.c)); }});

  // As a depthwise convolution that indexes a list by the input channel.
  const auto of_input = [](const Case& c) {
    const int64_t outputs = std::max<int64_t>(c.N / c.window.groups, 1);
    return [outputs](int64_t n, int64_t) { return n / outputs; };
  };
  const auto by_input = [&](Stage stage, std::string_view what, auto reindex) {
    rows.push_back({stage, Kind::kIndex, fmt::format("{} of the input channel", what),
                    fmt::format("indexes the {} by the input channel", what),
                    [](const Case& c) { return c.op == Op::kDepthwise; },
                    [=](Stages& s) { return reindex(s.c, of_input(s.c)); }});
  };
  by_input(Stage::kBias, "bias", [](Case& c, const auto& at) {
    const bool real = Reindex(c.bias, at);
    return Reindex(c.bias_i32, at) || real;
  });
  by_input(Stage::kIndex, "weight zero point",
           [](Case& c, const auto& at) { return Reindex(c.w_q.zero_point, at); });
  by_input(Stage::kIndex, "scale", [](Case& c, const auto& at) { return ReindexScales(c, at); });

  const auto bias = [&](Kind kind, std::string name, std::string sentence, auto times,
                        Applies applies) {
    rows.push_back({Stage::kBias, kind, std::move(name), std::move(sentence),
                    [applies](const Case& c) { return HasAnyBias(c) && applies(c); },
                    [times](Stages& s) {
                      const int64_t factor = times(s.c);
                      if (s.c.bias) {
                        for (float& b : *s.c.bias) b *= static_cast<float>(factor);
                        if (!Validate(s.c).empty()) return false;  // an infinite one
                      }
                      if (s.c.bias_i32)
                        s.Sums().edit_bias = [factor](SumTerms& t) { t.bias *= factor; };
                      return true;
                    }});
  };
  const auto adds = [](const Case& c) { return SumsOfCodes(c) || HasFloatX(c); };
  bias(Kind::kIndex, "bias twice", "adds the bias twice", [](const Case&) { return 2; }, adds);
  bias(
      Kind::kIndex, "bias subtracted", "subtracts the bias instead of adding it",
      [](const Case&) { return -1; }, adds);
  bias(
      Kind::kIndex, "bias in each pass of 8 taps",
      "adds 9 taps and then 8 at a time, and the bias once more in each further pass",
      [](const Case& c) { return 1 + Blocks(c.K - 9, 8); },
      [](const Case& c) { return c.op == Op::kDepthwise && c.K > 9; });
  for (const int64_t block : {4, 8, 9, 16, 32, 64, 128, 256, 512}) {
    bias(
        Kind::kIndex, fmt::format("bias once per block of {}", block),
        fmt::format("adds the bias once for each block of {} terms", block),
        [block](const Case& c) { return Blocks(c.K, block); }, SumsLongerThan(block));
  }
  const auto narrow = [&](std::string_view how, auto keep) {
    rows.push_back({Stage::kBias, Kind::kInt32Overflow, fmt::format("int32 bias {}", how),
                    fmt::format("keeps the int32 bias {}", how),
                    [](const Case& c) { return c.bias_i32.has_value(); },
                    [keep](Stages& s) {
                      bool changes = false;
                      for (int32_t& b : *s.c.bias_i32) {
                        const auto kept = static_cast<int32_t>(keep(b));
                        changes |= kept != b;
                        b = kept;
                      }
                      return changes;
                    }});
  };
  narrow("in an int16 that wraps", Wrapped<int16_t>);
  narrow("in an int16 that saturates", Saturated<int16_t>);
  narrow("in an int8 that wraps", Wrapped<int8_t>);
  narrow("in a uint16 that wraps", Wrapped<uint16_t>);
  narrow("in 24 bits that wrap",
         [](int64_t b) { return static_cast<int64_t>(InBits<24, true>(b)); });
  narrow("as a float32", [](int64_t b) {
    return std::clamp<int64_t>(static_cast<int64_t>(static_cast<float>(b)), INT32_MIN, INT32_MAX);
  });
}

// ---- Input codes of 16 bits, and their products.

bool HasWideX(const Case& c) { return IsWideCode(c.x.dtype()); }

int64_t BytesSwapped(int64_t code) {
  const auto bits = static_cast<uint16_t>(code);
  return static_cast<uint16_t>(bits << 8 | bits >> 8);
}

void AddWideCodes(std::vector<Cause>& rows) {
  // What is kept is read as a code of the type again.
  const auto codes = [&](std::string name, std::string sentence, auto keep) {
    rows.push_back({Stage::kOperands, Kind::kIndex, std::move(name), std::move(sentence), HasWideX,
                    [keep](Stages& s) {
                      const bool is_signed = RangeOf(s.c.x.dtype()).min < 0;
                      bool changes = false;
                      for (int64_t i = 0; i < s.c.x.size(); ++i) {
                        const int32_t code = s.c.x.IntAt(i);
                        const int64_t kept = keep(code);
                        s.c.x.SetInt(i, static_cast<int32_t>(is_signed ? Wrapped<int16_t>(kept)
                                                                       : Wrapped<uint16_t>(kept)));
                        changes |= s.c.x.IntAt(i) != code;
                      }
                      return changes;
                    }});
  };
  const auto narrow = [&](const std::string& how, auto keep) {
    codes("input codes in " + how, "keeps the input codes of 16 bits in " + how, keep);
  };
  narrow("an int8 that wraps", Wrapped<int8_t>);
  narrow("an int8 that saturates", Saturated<int8_t>);
  narrow("a uint8 that wraps", Wrapped<uint8_t>);
  narrow("a uint8 that saturates", Saturated<uint8_t>);
  codes("high byte of input codes", "reads the high byte of the input codes alone",
        [](int64_t code) { return code >> 8; });
  codes("low byte of input codes lost", "takes the low byte of the input codes for 0",
        [](int64_t code) { return code & ~int64_t{0xFF}; });
  codes("bytes of input codes swapped", "reads the two bytes of the input codes in reverse order",
        BytesSwapped);
  const auto products = [&](const std::string& how, auto keep) {
    rows.push_back({Stage::kAccumulate, Kind::kInt32Overflow, "products in " + how,
                    "keeps each product in " + how,
                    [](const Case& c) { return HasWideX(c) && SumsOfCodes(c); },
                    Sets([keep](Stages& s) {
                      s.Sums().add = [keep](DType /*x_dtype*/, Codes x, Codes w) {
                        int64_t sum = 0;
                        for (size_t k = 0; k < x.size(); ++k) sum += keep(int64_t{x[k]} * w[k]);
                        return sum;
                      };
                    })});
  };
  products("an int16 that wraps", Wrapped<int16_t>);
  products("an int16 that saturates", Saturated<int16_t>);
}

// ---- Rounding and clamp.

double WithBits(double value, int bits, bool nearest) {
  int exponent = 0;
  const double mantissa = std::ldexp(std::frexp(value, &exponent), bits);
  return std::ldexp(nearest ? std::nearbyint(mantissa) : std::trunc(mantissa), exponent - bits);
}

// Rounded half to even to so many bits behind the point, and then to an integer.
template <int kBits>
RoundedOutput RoundedTwice(const RealOutput& o) {
  const Factors f = FactorsOf(o);
  const long double value =
      (static_cast<long double>(f.sum) * static_cast<long double>(f.multiplier) +
       static_cast<long double>(f.offset)) /
      static_cast<long double>(f.y) / static_cast<long double>(f.divisor);
  const long double first = std::nearbyint(std::ldexp(value, kBits));
  return {static_cast<double>(std::nearbyint(std::ldexp(first, -kBits)))};
}

template <int... kBits>
void AddRoundedTwice(std::vector<Cause>& rows, std::integer_sequence<int, kBits...>) {
  (rows.push_back({Stage::kRound, Kind::kRounding, fmt::format("rounded to {} bits first", kBits),
                   fmt::format("rounds to {} bit{} behind the point first, and then again to an "
                               "integer",
                               kBits, kBits == 1 ? "" : "s"),
                   RoundsSumsOrRequantizes,
                   Sets([](Stages& s) { s.codes.round = RoundedTwice<kBits>; }),
                   Cause::kBitsOfRare}),
   ...);
}

long double HalfEvenOf(long double value) { return std::nearbyint(value); }
long double HalfAwayOf(long double value) { return std::round(value); }
long double HalfUpOf(long double value) { return std::floor(value + 0.5L); }
long double CutOf(long double value) { return std::trunc(value); }

// The exact sum times a multiplier with this many significant bits. `made`: how the multiplier
// comes about from the product of scales, the scale of the output and the number of a window.
template <int kBits, bool kNearest, auto kRound = HalfEvenOf, auto kMade = nullptr>
RoundedOutput ShortMultiplier(const RealOutput& o) {
  const Factors f = FactorsOf(o);
  const auto cut = [&](double scale, double divisor) -> long double {
    if constexpr (kMade == nullptr)
      return WithBits(scale / f.y / divisor, kBits, kNearest);
    else
      return WithBits(kMade(scale, f.y, divisor), kBits, kNearest);
  };
  long double value = cut(f.multiplier, f.divisor) * static_cast<long double>(f.sum);
  if (AddsOperands(o.c.op)) {
    const double scale = o.c.w_q.scale_at(0);
    value += cut(scale, 1) * static_cast<long double>(f.offset / scale);
  } else {
    value += static_cast<long double>(f.offset) / static_cast<long double>(f.y);
  }
  return {static_cast<double>(kRound(value))};
}

double InFloat32(double scale, double y, double divisor) {
  return static_cast<float>(scale) / static_cast<float>(y) / static_cast<float>(divisor);
}

void AddMultiplier(std::vector<Cause>& rows, const std::string& name, const std::string& sentence,
                   RoundedOutput (*round)(const RealOutput&), double bits) {
  rows.push_back({Stage::kRound, Kind::kRounding, "multiplier " + name, sentence, RoundsSums,
                  Sets([round](Stages& s) { s.codes.round = round; }), bits});
}

template <bool kNearest, int... kBits>
void AddMultipliers(std::vector<Cause>& rows, std::integer_sequence<int, kBits...>) {
  (AddMultiplier(
       rows, fmt::format("{} to {} bits", kNearest ? "rounded" : "cut", kBits),
       fmt::format("{} the multiplier to {} significant bits", kNearest ? "rounds" : "cuts", kBits),
       ShortMultiplier<kBits, kNearest>, Cause::kBitsOfFamily),
   ...);
}

// A multiplier that was a float32 before it was cut.
template <int... kBits>
void AddCutFloats(std::vector<Cause>& rows, std::integer_sequence<int, kBits...>) {
  (AddMultiplier(rows, fmt::format("in float32, cut to {} bits", kBits),
                 fmt::format("computes the multiplier in float32 and cuts it to {} significant "
                             "bits",
                             kBits),
                 ShortMultiplier<kBits, false, HalfEvenOf, InFloat32>, Cause::kBitsOfRare),
   ...);
}

// A float32 multiplier, whose product is exact.
template <auto kRound>
void AddFloatMultiplier(std::vector<Cause>& rows, const std::string& ties,
                        const std::string& sentence) {
  AddMultiplier(rows, "rounded to 24 bits, " + ties,
                "rounds the multiplier to float32 (24 significant bits), and " + sentence,
                ShortMultiplier<24, true, kRound>, Cause::kBitsOfFamily);
}

RoundedOutput Floor(const RealOutput& o) { return {o.rounded() + (o.exact.rest < 0 ? -1 : 0)}; }
RoundedOutput Ceil(const RealOutput& o) { return {o.rounded() + (o.exact.rest > 0 ? 1 : 0)}; }
RoundedOutput Away(const RealOutput& o) {
  const double rounded = o.rounded();
  const bool outer = rounded == 0 || (rounded > 0) == (o.exact.rest > 0);
  return {rounded + (outer ? o.exact.rest : 0)};
}
RoundedOutput HalfDown(const RealOutput& o) {
  return {o.rounded() + (o.is_tie() && o.exact.rest < 0 ? -1 : 0)};
}
RoundedOutput HalfToZero(const RealOutput& o) {
  const bool is_inner = o.rounded() * o.exact.rest < 0;
  return {o.rounded() + (o.is_tie() && is_inner ? o.exact.rest : 0)};
}
// trunc(v + 1/2): right for values above -1/2, one too high for most below.
RoundedOutput HalfAddedAndCut(const RealOutput& o) {
  const double up = o.rounded() + (o.is_tie() && o.exact.rest > 0 ? 1 : 0);
  // Here `up` is floor(v + 1/2), which the cut raises where it is negative and not whole. v + 1/2
  // is whole on ties alone.
  return {up + (up < 0 && !o.is_tie() ? 1 : 0)};
}

RoundedOutput HalfUpwards(const RealOutput& o) {
  return {o.rounded() + (o.is_tie() && o.exact.rest > 0 ? 1 : 0)};
}

// Which side of zero the real value lies on.
bool IsNegative(const RealOutput& o) {
  return o.rounded() < 0 || (o.rounded() == 0 && o.exact.rest < 0);
}
template <RoundedOutput (*kRound)(const RealOutput&)>
RoundedOutput BelowZero(const RealOutput& o) {
  return IsNegative(o) ? kRound(o) : RoundedOutput{o.rounded()};
}
template <RoundedOutput (*kRound)(const RealOutput&)>
RoundedOutput AboveZero(const RealOutput& o) {
  return IsNegative(o) ? RoundedOutput{o.rounded()} : kRound(o);
}

RoundedOutput TruncatedBelowZero(const RealOutput& o) {
  return {o.rounded() + (o.rounded() < 0 && o.exact.rest > 0 ? 1 : 0)};
}

// A value half a code from a bound counts as beyond it: v >= max - 0.5.
RoundedOutput HalfToBound(const RealOutput& o) {
  const auto other = o.exact.value + o.exact.rest;
  const bool is_bound = other == o.c.out_max || other == o.exact.lo;
  return {o.rounded() + (o.is_tie() && is_bound ? o.exact.rest : 0)};
}

// A multiplier of 2^-s is a shift of the sum and a half, which are added in int32.
RoundedOutput HalfWraps(const RealOutput& o) {
  const Factors f = FactorsOf(o);
  int exponent = 0;
  const double multiplier = f.multiplier / f.y / f.divisor;
  const bool is_shift = std::frexp(multiplier, &exponent) == 0.5 && exponent <= 0;
  const bool wraps = is_shift && f.sum + 0.5 / multiplier > INT32_MAX;
  return {o.rounded() - (wraps ? 0x1p32 * multiplier : 0)};
}

int64_t Whole(double rounded) { return static_cast<int64_t>(std::clamp(rounded, -0x1p62, 0x1p62)); }

template <typename Int>
RoundedOutput ZeroPointAddedIn(const RealOutput& o) {
  const int64_t saturated = Saturated<Int>(Whole(o.rounded()));
  return {static_cast<double>(Wrapped<Int>(saturated + o.zero_point())), true};
}

template <Requant kMode>
bool RequantizesAs(Stages& s) {
  s.c.requant = kMode;
  return Validate(s.c).empty();
}

void AddRounding(std::vector<Cause>& rows) {
  const auto round = [&](Kind kind, const char* name, const char* sentence,
                         RoundedOutput (*hook)(const RealOutput&)) {
    const Stage stage = kind == Kind::kClamp ? Stage::kClamp : Stage::kRound;
    rows.push_back({stage, kind, name, sentence, RoundsValues,
                    Sets([hook](Stages& s) { s.codes.round = hook; })});
  };
  round(Kind::kRounding, "floor", "rounds down", Floor);
  round(Kind::kRounding, "ceiling", "rounds up", Ceil);
  round(Kind::kRounding, "away from zero", "rounds every fraction away from zero", Away);
  round(Kind::kRounding, "half added and cut", "adds a half and cuts, also below zero",
        HalfAddedAndCut);
  rows.push_back({Stage::kClamp, Kind::kClamp, "cast of C, a half added",
                  "adds a half, cuts to an int32, and keeps its low byte instead of saturating",
                  RoundsValues, CastAsInC<HalfAddedAndCut>});
  round(Kind::kRounding, "half added and cut below zero",
        "adds a half to negative values and cuts, and rounds the others",
        BelowZero<HalfAddedAndCut>);
  round(Kind::kRounding, "floor below zero", "rounds negative values down, and the others to even",
        BelowZero<Floor>);
  round(Kind::kRounding, "truncation above zero",
        "truncates positive values, and rounds the others", AboveZero<Floor>);
  round(Kind::kRounding, "ceiling above zero", "rounds positive values up, and the others to even",
        AboveZero<Ceil>);
  round(Kind::kTie, "half up above zero", "rounds positive ties up, the others to even",
        AboveZero<HalfUpwards>);
  round(Kind::kTie, "half down above zero", "rounds positive ties down, the others to even",
        AboveZero<HalfDown>);
  round(Kind::kTie, "half to odd", "rounds ties to odd", [](const RealOutput& o) {
    return RoundedOutput{o.rounded() + (o.is_tie() ? o.exact.rest : 0)};
  });
  round(Kind::kRounding, "truncation below zero",
        "truncates negative values, and rounds the others", TruncatedBelowZero);
  round(Kind::kTie, "half down", "rounds ties down", HalfDown);
  round(Kind::kTie, "half towards zero", "rounds ties towards zero", HalfToZero);
  rows.push_back({Stage::kRound, Kind::kInt32Overflow, "half that wraps",
                  "shifts by a multiplier that is a power of two, and adds the half in an int32 "
                  "that wraps",
                  [](const Case& c) { return RoundsSums(c) && UsesMultiplier(c); },
                  Sets([](Stages& s) { s.codes.round = HalfWraps; })});
  rows.push_back({Stage::kClamp, Kind::kClamp, "magnitude before the clamp",
                  "takes the magnitude of what lies below code 0, and then clamps",
                  [](const Case& c) {
                    return RoundsValues(c) && IsCode(c.out_dtype) && RangeOf(c.out_dtype).min == 0;
                  },
                  Sets([](Stages& s) {
                    s.codes.round = [](const RealOutput& o) {
                      return RoundedOutput{std::abs(o.rounded() + o.zero_point()), true};
                    };
                  })});
  round(Kind::kTie, "half to the bound", "gives the bound where a value is half a code from it",
        HalfToBound);
  round(Kind::kClamp, "int16 that wraps", "keeps the rounded value in an int16 that wraps",
        [](const RealOutput& o) {
          return RoundedOutput{static_cast<double>(Wrapped<int16_t>(Whole(o.rounded())))};
        });
  round(Kind::kClamp, "zero point added in int16",
        "adds the zero point in an int16 that wraps, to a value that was saturated",
        ZeroPointAddedIn<int16_t>);
  round(Kind::kInt32Overflow, "zero point added in int32",
        "adds the zero point in an int32 that wraps, to a value that was saturated",
        ZeroPointAddedIn<int32_t>);
  rows.push_back({Stage::kRound, Kind::kRounding, "rounded twice in fixed point",
                  "multiplies by a 31-bit multiplier and rounds, shifts and rounds again",
                  RoundsSumsOrRequantizes, RequantizesAs<Requant::kFixedQ31>});
  rows.push_back({Stage::kRound, Kind::kRounding, "rounded half up in fixed point",
                  "multiplies by a 31-bit multiplier, shifts and rounds half up",
                  RoundsSumsOrRequantizes, RequantizesAs<Requant::kFixedRndnu>});
  rows.push_back({Stage::kRound, Kind::kRounding, "float32 requantization",
                  "converts the sum with its bias to float32 and multiplies by a float32 "
                  "multiplier",
                  RoundsSums, RequantizesAs<Requant::kFloat32>});
  AddRoundedTwice(
      rows, std::integer_sequence<int, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16>());
  AddMultipliers<false>(rows, std::integer_sequence<int, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17,
                                                    18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28>());
  AddMultipliers<true>(rows,
                       std::integer_sequence<int, 7, 8, 11, 12, 14, 15, 16, 20, 23, 24, 30, 31>());
  AddCutFloats(rows, std::integer_sequence<int, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
                                           21, 22, 23>());
  AddFloatMultiplier<HalfAwayOf>(rows, "half away", "ties away from zero");
  AddFloatMultiplier<HalfUpOf>(rows, "half up", "ties up");
  AddFloatMultiplier<CutOf>(rows, "product cut", "cuts the product");

  const auto clamp = [&](const char* name, const char* sentence, Applies applies, auto edit) {
    rows.push_back(
        {Stage::kClamp, Kind::kClamp, name, sentence, std::move(applies), [edit](Stages& s) {
           const int32_t low = s.c.out_min, high = s.c.out_max;
           edit(s.c);
           return low != s.c.out_min || high != s.c.out_max;
         }});
  };
  const Applies codes = [](const Case& c) { return IsCode(c.out_dtype); };
  const Applies any = [](const Case& c) { return c.out_dtype != DType::kF32; };
  clamp("lower clamp ignored", "ignores out_min", any,
        [](Case& c) { c.out_min = RangeOf(c.out_dtype).min; });
  rows.push_back({Stage::kClamp, Kind::kClamp, "lower clamp and relu ignored",
                  "ignores out_min and the relu",
                  [codes](const Case& c) { return codes(c) && RowOf(c.op).relu; },
                  [](Stages& s) {
                    const bool relu = Replace(s.c.relu, false);
                    return Replace(s.c.out_min, RangeOf(s.c.out_dtype).min) || relu;
                  }});
  clamp("upper clamp ignored", "ignores out_max", any,
        [](Case& c) { c.out_max = RangeOf(c.out_dtype).max; });
  clamp(
      "lower bound -127", "never gives code -128",
      [](const Case& c) { return c.out_dtype == DType::kS8 && c.out_max >= -127; },
      [](Case& c) { c.out_min = std::max(c.out_min, -127); });
  clamp(
      "lower bound -32767", "never gives code -32768",
      [](const Case& c) { return c.out_dtype == DType::kS16 && c.out_max >= -32767; },
      [](Case& c) { c.out_min = std::max(c.out_min, -32767); });
  clamp(
      "upper bound 127", "never gives a code above 127",
      [](const Case& c) { return c.out_dtype == DType::kU8 && c.out_min <= 127; },
      [](Case& c) { c.out_max = std::min(c.out_max, 127); });
  clamp(
      "upper bound 32767", "never gives a code above 32767",
      [](const Case& c) { return c.out_dtype == DType::kU16 && c.out_min <= 32767; },
      [](Case& c) { c.out_max = std::min(c.out_max, 32767); });
  clamp(
      "highest code never given", "never gives the highest code of the type",
      [codes](const Case& c) { return codes(c) && c.out_min < RangeOf(c.out_dtype).max; },
      [](Case& c) { c.out_max = std::min(c.out_max, RangeOf(c.out_dtype).max - 1); });
}

}  // namespace

std::vector<Cause> CausesOfFamilies() {
  std::vector<Cause> rows;
  AddOffsets(rows);
  AddLines(rows);
  AddPaddings(rows);
  AddRows(rows);
  AddElements(rows);
  AddTailElements(rows);
  AddMinima(rows);
  AddHighBits(rows);
  AddBlocks(rows);
  AddChannels(rows);
  AddRounding(rows);
  AddSums(rows);
  AddWideCodes(rows);
  return rows;
}

std::vector<Cause> Places() {
  std::vector<Cause> rows;
  const auto place = [&](Kind kind, std::string text, Applies applies, auto is_at) {
    rows.push_back({Stage::kPlace, kind, text, text, std::move(applies), [is_at](Stages& s) {
                      const int64_t rows_of = s.c.M, columns = s.c.N;
                      s.only_at = [=, images = std::max<int64_t>(s.c.window.batch, 1)](int64_t m,
                                                                                       int64_t n) {
                        if constexpr (requires { is_at(m, n, rows_of, columns, images); })
                          return is_at(m, n, rows_of, columns, images);
                        else
                          return is_at(m, n, rows_of, columns);
                      };
                      return true;
                    }});
  };
  // The outputs of an image are M / batch rows.
  const auto of_images = [&](std::string text, bool first) {
    place(
        Kind::kIndex, std::move(text),
        [](const Case& c) { return HasWindow(c.op) && c.window.batch > 1; },
        [first](int64_t m, int64_t, int64_t rows_of, int64_t, int64_t images) {
          return (m < rows_of / images) == first;
        });
  };
  of_images("only in images behind the first", false);
  of_images("only in the first image", true);
  const auto of_groups = [&](std::string text, bool last) {
    rows.push_back({Stage::kPlace, Kind::kIndex, text, text,
                    [](const Case& c) { return IsConv(c.op) && c.window.groups > 1; },
                    [last](Stages& s) {
                      const int64_t of_group = s.c.N / s.c.window.groups;
                      const int64_t first = last ? s.c.N - of_group : of_group;
                      s.only_at = [first](int64_t, int64_t n) { return n >= first; };
                      return true;
                    }});
  };
  of_groups("only in groups behind the first", false);
  of_groups("only in the last group", true);
  struct Axis {
    std::string_view one, all;
    bool of_columns;
  };
  for (const auto& [one, all, of_columns] : {Axis{"column", "N", true}, Axis{"row", "M", false}}) {
    const auto size = [of_columns](const Case& c) { return of_columns ? c.N : c.M; };
    for (const int64_t from : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
      place(
          Kind::kIndex, fmt::format("only from {} {} on", one, from),
          [=](const Case& c) { return size(c) > from; },
          [=](int64_t m, int64_t n, int64_t, int64_t) { return (of_columns ? n : m) >= from; });
    }
    for (const int64_t lanes : {4, 8, 16, 32, 64}) {
      const auto has_tail = [=](const Case& c) { return size(c) % lanes != 0; };
      place(Kind::kTail, fmt::format("only in the last {} % {} {}s", all, lanes, one), has_tail,
            [=](int64_t m, int64_t n, int64_t rows_of, int64_t columns) {
              const int64_t i = of_columns ? n : m, count = of_columns ? columns : rows_of;
              return i >= count - count % lanes;
            });
      rows.back().may_hold_all = true;
      place(
          Kind::kIndex, fmt::format("only before the last {} % {} {}s", all, lanes, one),
          [=](const Case& c) { return size(c) >= lanes; },
          [=](int64_t m, int64_t n, int64_t rows_of, int64_t columns) {
            const int64_t i = of_columns ? n : m, count = of_columns ? columns : rows_of;
            return i < count - count % lanes;
          });
      rows.back().may_hold_all = true;
    }
    for (const int64_t lanes : {2, 4, 8}) {
      for (int64_t lane = 0; lane < lanes; ++lane) {
        place(
            Kind::kIndex, fmt::format("only in {}s whose number modulo {} is {}", one, lanes, lane),
            [=](const Case& c) { return size(c) > lanes; },
            [=](int64_t m, int64_t n, int64_t, int64_t) {
              return (of_columns ? n : m) % lanes == lane;
            });
      }
    }
    // A buffer that has the length of another size, or a loop over that.
    for (const bool is_depth : {true, false}) {
      const std::string text = fmt::format("only in {}s behind the first {}", one,
                                           is_depth     ? "K"
                                           : of_columns ? "M"
                                                        : "N");
      const auto other = [=](const Case& c) { return is_depth ? c.K : of_columns ? c.M : c.N; };
      rows.push_back({Stage::kPlace, Kind::kIndex, text, text,
                      [=](const Case& c) { return other(c) > 0 && size(c) > other(c); },
                      [=](Stages& s) {
                        s.only_at = [=, first = other(s.c)](int64_t m, int64_t n) {
                          return (of_columns ? n : m) >= first;
                        };
                        return true;
                      }});
    }
    place(
        Kind::kIndex, fmt::format("only in the last {}", one),
        [=](const Case& c) { return size(c) > 1; },
        [=](int64_t m, int64_t n, int64_t rows_of, int64_t columns) {
          return of_columns ? n == columns - 1 : m == rows_of - 1;
        });
  }
  return rows;
}

}  // namespace qualm::triage
