// SPDX-License-Identifier: Apache-2.0
// Sums of activations times weights (formula: accumulate.h), a tile at a time: a few rows times a
// few vectors of channels, whose sums stay in registers for the whole depth. Each step loads four
// weights of each channel, and repeats four activations of each row in all channels. Exact because
// the products of a quad are added without saturation (quads-inl.h), or cannot saturate
// (certify.h), and int32 sums wrap modulo 2^32: they are right where the true sum fits int32
// (row_block.cc adds up wider sums).
#include "kernels/sums/accumulate.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sums/accumulate.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h:
#include "hwy/highway.h"
#include "kernels/common/dispatch.h"
#include "kernels/sums/codes-inl.h"
#include "kernels/sums/quads-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

// Vectors have one lane here: Highway's pairwise operations find no pair and would return a plain
// product. So this target gets plain code.
constexpr bool kHasSaturatingPath = false;
int64_t Lanes() { return 4; }
int64_t PanelWidth() { return 4; }

// Unsigned arithmetic: int32 overflow must wrap, not be undefined.
void SumQuad(const uint8_t* x, uint8_t flip, const int8_t* weights, uint32_t* sums) {
  for (int64_t c = 0; c < PanelWidth(); ++c) {
    for (int64_t i = 0; i < 4; ++i) {
      sums[c] += static_cast<uint32_t>((x[i] ^ flip) * weights[c * 4 + i]);
    }
  }
}

void AccumulatePanelImpl(const AccumulateArgs& args) {
  const uint8_t flip = args.x_is_signed ? 0x80 : 0;
  const Pieces& pieces = args.pieces;
  for (int64_t r = 0; r < args.rows; ++r) {
    uint32_t sums[4];
    std::memcpy(sums, args.initial, sizeof(sums));
    const int8_t* weights = args.weights;
    for (int64_t piece = 0; piece < pieces.rows * pieces.columns; ++piece) {
      const uint8_t* x = args.x + r * args.x_stride + piece / pieces.columns * pieces.row_step +
                         piece % pieces.columns * pieces.column_step;
      for (int64_t k = 0; k < pieces.bytes; k += 4, weights += 16) {
        SumQuad(x + std::min(k, pieces.bytes - 4), flip, weights, sums);
      }
    }
    if (args.weight_zero != nullptr) {
      for (int64_t c = 0; c < PanelWidth(); ++c) {
        sums[c] -=
            static_cast<uint32_t>(args.weight_zero[c]) * static_cast<uint32_t>(args.row_sums[r]);
      }
    }
    std::memcpy(args.sums + r * PanelWidth(), sums, sizeof(sums));
  }
}

#else  // HWY_TARGET != HWY_SCALAR

namespace hn = hwy::HWY_NAMESPACE;
using internal::QuadSum;
using quads::DI32;
using quads::DI8;
using quads::DU8;
using quads::VI32;
using quads::VI8;
using quads::VU8;

constexpr bool kHasSaturatingPath = quads::Has(QuadSum::kPairs);

// The most rows of a tile, by its vectors of channels: sums, weights and the repeated quad of a row
// then fill the registers, and compilers keep them there.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
constexpr int kPanelVectors = 4;
constexpr int64_t kMostRows[] = {0, 12, 8, 6, 6};
#else
constexpr int kPanelVectors = 2;
constexpr int64_t kMostRows[] = {0, 6, 4};
#endif
// Where one instruction adds a quad, it needs no registers of its own.
#if HWY_TARGET == HWY_AVX2
constexpr int64_t kMostRowsOfOne[] = {0, 8, 6};
#else
constexpr int64_t kMostRowsOfOne[] = {0, 12, 8};
#endif
constexpr int64_t kMostRowsOfAny =
    std::max(std::ranges::max(kMostRows), std::ranges::max(kMostRowsOfOne));

template <QuadSum kQuadSum, bool kSigned>
constexpr int64_t MostRows(int64_t vectors) {
  if (kQuadSum == QuadSum::kHighway || kQuadSum == QuadSum::kPairs || kQuadSum == QuadSum::kWidened)
    return kMostRows[vectors];
  // Of 16 registers, one has what flips s8.
  constexpr bool kIsFull = kSigned && HWY_TARGET == HWY_AVX2;
  return kMostRowsOfOne[vectors] - (kIsFull && vectors == 2 ? 1 : 0);
}

int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(DI32())); }
int64_t PanelWidth() { return kPanelVectors * Lanes(); }

struct Tile {
  const uint8_t* x[kMostRowsOfAny];  // of each row
  Pieces pieces;
  const int8_t* weights;   // at the first vector
  int64_t quad_step;       // bytes from quad to quad of the weights
  const int32_t* initial;  // at the first vector
  int32_t* sums;           // of the first row, at the first vector
  // For QuadSum::kPairs: where the activations of the extra quads are in a row.
  const int64_t* extra;
  int64_t extra_quads;
  const int8_t* extra_weights;  // at the first vector
};

// Four activations of one row, repeated for every channel. kFlip: 128 is added to each modulo 256,
// or taken from it, which is the same.
template <bool kFlip>
HWY_INLINE VU8 BroadcastQuad(const uint8_t* x) {
  int32_t quad;
  std::memcpy(&quad, x, sizeof(quad));
  const VU8 a = hn::BitCast(DU8(), hn::Set(DI32(), quad));
  return kFlip ? hn::Xor(a, hn::Set(DU8(), 0x80)) : a;
}

// Four activations from different places of one row.
template <bool kFlip>
HWY_INLINE VU8 BroadcastQuad(const uint8_t* x, const int64_t* places) {
  const uint8_t quad[4] = {x[places[0]], x[places[1]], x[places[2]], x[places[3]]};
  return BroadcastQuad<kFlip>(quad);
}

// The sums of a tile are parameters with names, handed on as a pack: kVectors of the first row,
// then of the others. In an array, gcc 12 keeps them in memory. A pack is expanded at once: a
// recursion over it makes a copy of the tile for each of its steps, which takes compilers four
// times as long. Vector kVector of a panel's weights.
template <size_t kVector>
HWY_INLINE VI8 Pick(VI8 w0, VI8 w1, VI8 w2, VI8 w3) {
  if constexpr (kVector == 0) return w0;
  if constexpr (kVector == 1) return w1;
  if constexpr (kVector == 2) return w2;
  return w3;
}

// Adds to sum kSum of a tile. `quad` stays from vector to vector of a row; so does `odd`, the other
// half of a widened one.
template <QuadSum kQuadSum, int kVectors, size_t kSum, class QuadOf>
HWY_INLINE void AddToSum(const QuadOf& quad_of, const uint8_t* const* x, VU8& quad, VU8& odd,
                         VI8 weights, VI32& sum) {
  if constexpr (kSum % kVectors == 0) quad_of(x[kSum / kVectors], quad, odd);
  if constexpr (kQuadSum == QuadSum::kWidened) {
    quads::AddWidened(sum, quad, odd, weights);
  } else {
    quads::Add<kQuadSum>(sum, quad, weights);
  }
}

// One quad of all rows, with its weights at `w`. `quad_of` reads a row's quad.
template <QuadSum kQuadSum, int kVectors, class QuadOf, size_t... kSum, class... Sums>
HWY_INLINE void AddRows(std::index_sequence<kSum...>, const QuadOf& quad_of,
                        const uint8_t* const* x, const int8_t* w, Sums&... sums) {
  const DI8 d8;
  const size_t n = hn::Lanes(d8);
  const VI8 w0 = hn::LoadU(d8, w);
  VI8 w1 = w0, w2 = w0, w3 = w0;
  if constexpr (kVectors > 1) w1 = hn::LoadU(d8, w + n);
  if constexpr (kVectors > 2) w2 = hn::LoadU(d8, w + 2 * n);
  if constexpr (kVectors > 3) w3 = hn::LoadU(d8, w + 3 * n);
  VU8 quad = hn::Zero(DU8());
  VU8 odd = quad;
  (AddToSum<kQuadSum, kVectors, kSum>(quad_of, x, quad, odd, Pick<kSum % kVectors>(w0, w1, w2, w3),
                                      sums),
   ...);
}

// All quads of all pieces.
template <QuadSum kQuadSum, bool kSigned, int kVectors, size_t... kSum, class... Sums>
HWY_INLINE void SumTile(std::index_sequence<kSum...> all, const Tile& t, Sums... sums) {
  // kDot takes s8, the others u8.
  constexpr bool kFlip = kSigned != (kQuadSum == QuadSum::kDot);
  const Pieces& pieces = t.pieces;
  const int64_t last = pieces.bytes - 4;
  const int8_t* w = t.weights;
  for (int64_t row = 0; row < pieces.rows; ++row) {
    for (int64_t column = 0; column < pieces.columns; ++column) {
      const int64_t begin = row * pieces.row_step + column * pieces.column_step;
      for (int64_t k = 0; k < pieces.bytes; k += 4, w += t.quad_step) {
        const int64_t at = begin + std::min(k, last);
        const auto quad_of = [&](const uint8_t* x, VU8& quad, VU8& odd) HWY_ATTR {
          quad = BroadcastQuad<kFlip>(x + at);
          if constexpr (kQuadSum == QuadSum::kWidened) {
            odd = BroadcastQuad<kFlip>(x + at + pieces.bytes);
          }
        };
        AddRows<kQuadSum, kVectors>(all, quad_of, t.x, w, sums...);
      }
    }
  }
  if constexpr (kQuadSum == QuadSum::kPairs) {
    const int8_t* extra = t.extra_weights;
    for (int64_t q = 0; q < t.extra_quads; ++q, extra += t.quad_step) {
      const int64_t* places = t.extra + 4 * q;
      const auto quad_of = [places](const uint8_t* x, VU8& quad, VU8&)
                               HWY_ATTR { quad = BroadcastQuad<kFlip>(x, places); };
      AddRows<kQuadSum, kVectors>(all, quad_of, t.x, extra, sums...);
    }
  }
  const DI32 d;
  int32_t* const out = t.sums;
  (hn::StoreU(sums, d, out + kSum / kVectors * PanelWidth() + kSum % kVectors * Lanes()), ...);
}

// Begins with the initial sums of the panel in every row.
template <QuadSum kQuadSum, bool kSigned, int kVectors, size_t... kSum>
HWY_INLINE void BeginTile(std::index_sequence<kSum...> all, const Tile& t) {
  const DI32 d;
  const int32_t* const initial = t.initial;
  SumTile<kQuadSum, kSigned, kVectors>(all, t,
                                       hn::LoadU(d, initial + kSum % kVectors * hn::Lanes(d))...);
}

template <QuadSum kQuadSum, bool kSigned, int kVectors, int kRows>
HWY_NOINLINE void SumTile(const Tile& t) {
  BeginTile<kQuadSum, kSigned, kVectors>(std::make_index_sequence<kRows * kVectors>(), t);
}

// The function for a tile of 1 + i rows is element i.
template <QuadSum kQuadSum, bool kSigned, int kVectors, int... kRow>
void SumTileOf(int64_t rows, const Tile& t, std::integer_sequence<int, kRow...>) {
  static constexpr void (*kFunctions[])(const Tile&) = {
      SumTile<kQuadSum, kSigned, kVectors, 1 + kRow>...};
  kFunctions[rows - 1](t);
}
template <QuadSum kQuadSum, bool kSigned, int kVectors>
HWY_INLINE void SumTileOf(int64_t rows, const Tile& t) {
  SumTileOf<kQuadSum, kSigned, kVectors>(
      rows, t, std::make_integer_sequence<int, int{MostRows<kQuadSum, kSigned>(kVectors)}>());
}

// The number of rows of the next tile: tiles are as equal as possible.
HWY_INLINE int64_t RowsOfTile(int64_t rows, int64_t most) {
  if (rows <= most) return rows;
  return rows >= 2 * most ? most : (rows + 1) / 2;
}

// A tile of the whole panel, complete but for its rows.
Tile TileOfPanel(const AccumulateArgs& args, const int64_t* places) {
  Tile t;
  t.pieces = args.pieces;
  t.weights = args.weights;
  t.quad_step = args.vectors * static_cast<int64_t>(hn::Lanes(DI8()));
  t.initial = args.initial;
  t.extra = places;
  t.extra_quads = args.extra == nullptr ? 0 : static_cast<int64_t>(args.extra->places.size() / 4);
  t.extra_weights = args.extra == nullptr ? nullptr : args.extra->weights.data();
  return t;
}

// Sums the next rows over all vectors of the panel; returns the number of rows.
template <QuadSum kQuadSum, bool kSigned>
HWY_INLINE int64_t SumNextRows(const AccumulateArgs& args, int64_t row, int32_t* sums, Tile& t) {
  const int64_t left = args.rows - row;
  // Seven or eight rows of a wide panel read its weights once as two narrow tiles, twice as two
  // flat ones.
  const bool halves = args.vectors == 4 && left > MostRows<kQuadSum, kSigned>(args.vectors) &&
                      left <= MostRows<kQuadSum, kSigned>(2);
  const int64_t rows = RowsOfTile(left, MostRows<kQuadSum, kSigned>(halves ? 2 : args.vectors));
  const uint8_t* x = args.x + row * args.x_stride;
  for (int64_t r = 0; r < rows; ++r, x += args.x_stride) t.x[r] = x;
  t.sums = sums;
  if (halves) {
    SumTileOf<kQuadSum, kSigned, 2>(rows, t);
    Tile second = t;
    second.weights += 8 * Lanes();
    second.initial += 2 * Lanes();
    second.sums += 2 * Lanes();
    second.extra_weights += t.extra_quads == 0 ? 0 : 8 * Lanes();
    SumTileOf<kQuadSum, kSigned, 2>(rows, second);
    return rows;
  }
  switch (args.vectors) {
    case 1: SumTileOf<kQuadSum, kSigned, 1>(rows, t); break;
    case 2: SumTileOf<kQuadSum, kSigned, 2>(rows, t); break;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    case 3: SumTileOf<kQuadSum, kSigned, 3>(rows, t); break;
    default: SumTileOf<kQuadSum, kSigned, 4>(rows, t); break;
#endif
  }
  return rows;
}

HWY_INLINE void SubtractRowSums(const AccumulateArgs& args, int64_t row, int64_t rows,
                                int32_t* sums) {
  const DI32 d;
  for (int64_t r = 0; r < rows; ++r, sums += PanelWidth()) {
    const VI32 row_sum = hn::Set(d, static_cast<int32_t>(args.row_sums[row + r]));  // low bits
    for (int64_t c = 0; c < args.vectors * Lanes(); c += Lanes()) {
      const VI32 zero = hn::LoadU(d, args.weight_zero + c);
      hn::StoreU(hn::Sub(hn::LoadU(d, sums + c), hn::Mul(zero, row_sum)), d, sums + c);
    }
  }
}

void CodesOfRows(const AccumulateArgs& args, int64_t row, int64_t rows, const int32_t* sums) {
  CodesOut out = args.codes;
  out.y += row * out.y_stride;
  const float* multiplier = args.plan->multiplier.data() + out.channel;
  const auto run = [&](auto vectors) {
    codes::OfRows<vectors(), codes::Order::kChannels>(*args.plan, multiplier, sums, PanelWidth(),
                                                      rows, out);
  };
  switch (args.vectors) {
    case 1: return run(std::integral_constant<int, 1>());
    case 2: return run(std::integral_constant<int, 2>());
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    case 3: return run(std::integral_constant<int, 3>());
    default: return run(std::integral_constant<int, 4>());
#endif
  }
}

// Finds the offsets in a row of the activations of the extra quads.
void FindPlaces(const AccumulateArgs& args, int64_t* places) {
  const Pieces& pieces = args.pieces;
  int64_t piece = 0;
  for (const int64_t place : args.extra->places) {
    while (place >= 4 * pieces.Quads() * (piece + 1)) ++piece;
    const int64_t quad = place / 4 - pieces.Quads() * piece;
    *places++ = piece / pieces.columns * pieces.row_step +
                piece % pieces.columns * pieces.column_step + std::min(4 * quad, pieces.bytes - 4) +
                place % 4;
  }
}

template <QuadSum kQuadSum, bool kSigned>
void AllRows(const AccumulateArgs& args) {
  HWY_ALIGN int32_t of_tile[kMostRowsOfAny * kPanelVectors * hn::MaxLanes(DI32())];
  int64_t places[kQuadSum == QuadSum::kPairs ? kMostExtraPlaces : 1];
  const int64_t* extra = nullptr;
  if (kQuadSum == QuadSum::kPairs && args.extra != nullptr) {
    FindPlaces(args, places);
    extra = places;
  }
  Tile t = TileOfPanel(args, extra);
  for (int64_t row = 0; row < args.rows;) {
    int32_t* sums = args.plan != nullptr ? of_tile : args.sums + row * PanelWidth();
    const int64_t rows = SumNextRows<kQuadSum, kSigned>(args, row, sums, t);
    if (args.weight_zero != nullptr) SubtractRowSums(args, row, rows, sums);
    if (args.plan != nullptr) CodesOfRows(args, row, rows, sums);
    row += rows;
  }
}

template <QuadSum kQuadSum>
void AllRows(const AccumulateArgs& args) {
  if constexpr (kQuadSum == QuadSum::kWidened) {  // never signed: arrange.h
    AllRows<kQuadSum, false>(args);
  } else {
    args.x_is_signed ? AllRows<kQuadSum, true>(args) : AllRows<kQuadSum, false>(args);
  }
}

void AccumulatePanelImpl(const AccumulateArgs& args) {
  quads::ForQuadSum(args.quad_sum, [&](auto quad_sum) { AllRows<quad_sum()>(args); });
}

#endif  // HWY_TARGET == HWY_SCALAR

AccumulateTraits TraitsImpl() {
  const internal::QuadSum quad_sum = internal::TargetQuadSum();
  return {.target = internal::TargetId(),
          .lanes = Lanes(),
          .panel_width = PanelWidth(),
          .quad_sum = quad_sum,
          .has_saturating_path = kHasSaturatingPath && quad_sum == internal::QuadSum::kHighway,
          .makes_codes = kHasCodes,
          .needs_environment = codes::kNeedsEnvironment,
          .run = AccumulatePanelImpl};
}

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels {

HWY_EXPORT(TraitsImpl);
HWY_EXPORT(AccumulatePanelImpl);

AccumulateTraits CurrentAccumulateTraits() { return QUALM_DISPATCH(TraitsImpl)(); }

Status CheckPackedFor(int64_t target) {
  const int64_t current = internal::TargetId();
  if (current == target) return {};
  const std::vector<std::string>& names = SupportedTargets();
  return {"the weights are packed for " + names[static_cast<size_t>(target)] +
          ", expected the target that runs, " + names[static_cast<size_t>(current)]};
}

void AccumulatePanel(const AccumulateArgs& args) { QUALM_DISPATCH(AccumulatePanelImpl)(args); }

}  // namespace qualm::kernels
#endif  // HWY_ONCE
