// SPDX-License-Identifier: Apache-2.0
#include "properties/gen/gen.h"

#include <array>
#include <utility>

#include "core/status.h"
#include "properties/gen/layer.h"
#include "properties/gen/values.h"

namespace qualm::gen {
namespace {

using internal::Weighted;

constexpr std::array<Theme, 20> kThemes{
    Theme::kUniform,       Theme::kBoundaryBytes,  Theme::kAllExtreme,
    Theme::kSignAligned,   Theme::kConstantRows,   Theme::kNearPairThreshold,
    Theme::kLongK,         Theme::kTies,           Theme::kNearTies,
    Theme::kClampEdges,    Theme::kZeroPoints,     Theme::kScaleExtremes,
    Theme::kSpecialFloats, Theme::kTails,          Theme::kEmpty,
    Theme::kLayer,         Theme::kParameterEdges, Theme::kMiddling,
    Theme::kFarValue,      Theme::kWideTerms};
constexpr std::array<std::string_view, 20> kNames{"uniform",         "boundary-bytes",
                                                  "all-extreme",     "sign-aligned",
                                                  "constant-rows",   "near-pair-threshold",
                                                  "long-k",          "ties",
                                                  "near-ties",       "clamp-edges",
                                                  "zero-points",     "scale-extremes",
                                                  "special-floats",  "tails",
                                                  "empty",           "layer",
                                                  "parameter-edges", "middling",
                                                  "far-value",       "wide-terms"};

// Only themes that mean something for the op; others fall back to uniform values.
constexpr std::array<Weighted, 15> kLinear{{{Theme::kUniform, 10},
                                            {Theme::kBoundaryBytes, 10},
                                            {Theme::kAllExtreme, 7},
                                            {Theme::kSignAligned, 7},
                                            {Theme::kConstantRows, 5},
                                            {Theme::kNearPairThreshold, 9},
                                            {Theme::kLongK, 2},
                                            {Theme::kTies, 11},
                                            {Theme::kNearTies, 8},
                                            {Theme::kClampEdges, 8},
                                            {Theme::kZeroPoints, 8},
                                            {Theme::kScaleExtremes, 4},
                                            {Theme::kSpecialFloats, 2},
                                            {Theme::kTails, 7},
                                            {Theme::kEmpty, 2}}};
constexpr std::array<Weighted, 9> kQuantize{{{Theme::kUniform, 14},
                                             {Theme::kTies, 20},
                                             {Theme::kNearTies, 12},
                                             {Theme::kClampEdges, 14},
                                             {Theme::kZeroPoints, 8},
                                             {Theme::kScaleExtremes, 10},
                                             {Theme::kSpecialFloats, 12},
                                             {Theme::kTails, 8},
                                             {Theme::kEmpty, 2}}};
constexpr std::array<Weighted, 6> kDequantize{{{Theme::kUniform, 20},
                                               {Theme::kBoundaryBytes, 25},
                                               {Theme::kZeroPoints, 22},
                                               {Theme::kScaleExtremes, 15},
                                               {Theme::kTails, 15},
                                               {Theme::kEmpty, 3}}};
constexpr std::array<Weighted, 9> kRequantize{{{Theme::kUniform, 14},
                                               {Theme::kBoundaryBytes, 16},
                                               {Theme::kTies, 20},
                                               {Theme::kNearTies, 16},
                                               {Theme::kClampEdges, 10},
                                               {Theme::kZeroPoints, 8},
                                               {Theme::kScaleExtremes, 8},
                                               {Theme::kTails, 6},
                                               {Theme::kEmpty, 2}}};

constexpr std::array<Weighted, 14> kConv{{{Theme::kUniform, 12},
                                          {Theme::kBoundaryBytes, 9},
                                          {Theme::kAllExtreme, 7},
                                          {Theme::kSignAligned, 8},
                                          {Theme::kConstantRows, 4},
                                          {Theme::kNearPairThreshold, 10},
                                          {Theme::kLongK, 2},
                                          {Theme::kTies, 12},
                                          {Theme::kNearTies, 8},
                                          {Theme::kClampEdges, 8},
                                          {Theme::kZeroPoints, 9},
                                          {Theme::kScaleExtremes, 4},
                                          {Theme::kTails, 5},
                                          {Theme::kEmpty, 2}}};
constexpr std::array<Weighted, 8> kMaxPool{{{Theme::kUniform, 24},
                                            {Theme::kBoundaryBytes, 20},
                                            {Theme::kAllExtreme, 22},
                                            {Theme::kClampEdges, 10},
                                            {Theme::kZeroPoints, 8},
                                            {Theme::kLongK, 2},
                                            {Theme::kTails, 11},
                                            {Theme::kEmpty, 3}}};
constexpr std::array<Weighted, 10> kAvgPool{{{Theme::kUniform, 16},
                                             {Theme::kBoundaryBytes, 12},
                                             {Theme::kAllExtreme, 14},
                                             {Theme::kTies, 18},
                                             {Theme::kClampEdges, 9},
                                             {Theme::kZeroPoints, 12},
                                             {Theme::kScaleExtremes, 4},
                                             {Theme::kLongK, 6},
                                             {Theme::kTails, 7},
                                             {Theme::kEmpty, 2}}};
constexpr std::array<Weighted, 10> kOperands{{{Theme::kUniform, 15},
                                              {Theme::kBoundaryBytes, 12},
                                              {Theme::kAllExtreme, 12},
                                              {Theme::kTies, 18},
                                              {Theme::kNearTies, 10},
                                              {Theme::kClampEdges, 8},
                                              {Theme::kZeroPoints, 12},
                                              {Theme::kScaleExtremes, 5},
                                              {Theme::kTails, 6},
                                              {Theme::kEmpty, 2}}};

constexpr std::array<Weighted, 11> kTable{{{Theme::kUniform, 16},
                                           {Theme::kBoundaryBytes, 12},
                                           {Theme::kAllExtreme, 8},
                                           {Theme::kConstantRows, 12},
                                           {Theme::kTies, 20},
                                           {Theme::kNearTies, 10},
                                           {Theme::kClampEdges, 8},
                                           {Theme::kZeroPoints, 10},
                                           {Theme::kScaleExtremes, 3},
                                           {Theme::kTails, 8},
                                           {Theme::kEmpty, 2}}};
constexpr std::array<Weighted, 11> kSoftmax{{{Theme::kUniform, 20},
                                             {Theme::kBoundaryBytes, 12},
                                             {Theme::kAllExtreme, 10},
                                             {Theme::kConstantRows, 10},
                                             {Theme::kLongK, 6},
                                             {Theme::kTies, 6},
                                             {Theme::kClampEdges, 8},
                                             {Theme::kZeroPoints, 8},
                                             {Theme::kScaleExtremes, 3},
                                             {Theme::kTails, 10},
                                             {Theme::kEmpty, 2}}};
constexpr std::array<Weighted, 8> kObserver{{{Theme::kUniform, 20},
                                             {Theme::kConstantRows, 10},
                                             {Theme::kScaleExtremes, 16},
                                             {Theme::kSpecialFloats, 10},
                                             {Theme::kTies, 12},
                                             {Theme::kZeroPoints, 10},
                                             {Theme::kLongK, 6},
                                             {Theme::kTails, 12}}};

constexpr std::array<Weighted, 11> kDynamic{{{Theme::kUniform, 18},
                                             {Theme::kBoundaryBytes, 8},
                                             {Theme::kAllExtreme, 6},
                                             {Theme::kConstantRows, 12},
                                             {Theme::kLongK, 4},
                                             {Theme::kTies, 14},
                                             {Theme::kZeroPoints, 10},
                                             {Theme::kScaleExtremes, 14},
                                             {Theme::kSpecialFloats, 12},
                                             {Theme::kTails, 10},
                                             {Theme::kEmpty, 2}}};

constexpr std::array<Weighted, 8> kCast{{{Theme::kUniform, 20},
                                         {Theme::kTies, 20},
                                         {Theme::kNearTies, 14},
                                         {Theme::kClampEdges, 14},
                                         {Theme::kScaleExtremes, 12},
                                         {Theme::kSpecialFloats, 10},
                                         {Theme::kTails, 8},
                                         {Theme::kEmpty, 2}}};

// How cases of an operation are drawn. `layers` and `edges` say how many of 1000 seeds with theme
// uniform draw a layer, or edges of parameters, instead (0 if the operation has no multiplier). A
// layer costs as much as many other cases: with these numbers half of the time of conv2d goes to
// them. The numbers behind say how many of 1000 seeds of any theme draw that theme instead.
struct Generator {
  std::span<const Weighted> themes;
  Case (*draw)(Rng&, Theme, Op);
  uint64_t layers = 0;
  uint64_t edges = 0;
  uint64_t middling = 0;
  uint64_t far_value = 0;
  uint64_t wide_terms = 0;
};

Generator GeneratorOf(Op op) {
  const OpRow& row = RowOf(op);
  const bool average = row.out_q == OutQParams::kOwn;
  switch (row.layout) {
    case Layout::kProducts:
      if (row.dynamic) return {kDynamic, internal::DrawDynamicLinear, 25, 0, 12, 14, 0};
      return {kLinear, internal::DrawLinear, 80, 100, 14, 15, 25};
    case Layout::kConv: return {kConv, internal::DrawConv, 90, 50, 13, 15, 25};
    case Layout::kPool:
      if (average) return {kAvgPool, internal::DrawPool, 20, 40, 0, 15, 15};
      return {kMaxPool, internal::DrawPool, 15, 0, 0, 15, 0};
    case Layout::kColumns: return {kOperands, internal::DrawConcat, 25, 50};
    case Layout::kBatches: return {kObserver, internal::DrawObserver, 25, 0, 0, 20, 0};
    case Layout::kElements: break;
  }
  QUALM_CHECK(row.second != Second::kWeights);  // no generator draws weights element by element
  if (row.multiplier) return {kRequantize, internal::DrawRequantize, 32, 90};
  if (row.function) return {kTable, internal::DrawTable, 30, 40};
  if (row.out_q == OutQParams::kFixed) return {kSoftmax, internal::DrawSoftmax, 40, 0, 0, 20, 0};
  if (row.cast) return {kCast, internal::DrawCast, 25, 0};
  if (!row.x_qparams) return {kQuantize, internal::DrawQuantize, 25, 50};
  if (row.out_q == OutQParams::kNone) return {kDequantize, internal::DrawDequantize, 18, 0};
  // Codes of one or two inputs become codes of the output.
  QUALM_CHECK(row.out_q == OutQParams::kOwn && IsCode(row.x_types.front()));
  const bool products = row.combine == Combine::kProduct;
  return {kOperands, internal::DrawOperands, 25, 50, 0, 0, products ? uint64_t{20} : 0};
}

// Operations whose layers are small cases repeated: all but those with sums, windows or weights.
bool Repeats(Op op) { return !HasWindow(op) && RowOf(op).layout != Layout::kProducts; }

Case DrawRepeated(Rng& rng, Op op) {
  const Theme theme = internal::ThemeOfLayer(rng);
  Case small;
  for (int attempt = 0; attempt < 16; ++attempt) {
    small = GeneratorOf(op).draw(rng, theme, op);
    if (internal::CanRepeat(small)) return internal::Repeated(rng, small);
  }
  return small;
}

void DrawRequant(Rng& rng, uint64_t of_six, Case& c) {
  if (!RowOf(c.op).requant || !IsCode(c.out_dtype) || c.bias || !rng.Chance(of_six, 6)) return;
  constexpr std::array kModes{Requant::kFloat32, Requant::kFixedQ31, Requant::kFixedRndnu};
  c.requant = rng.Pick(kModes);
}

// The mode is drawn last, so that the rest of a case is the same as without modes.
Case DrawFrom(Rng& rng, Op op, Theme theme) {
  Case c = theme == Theme::kLayer && Repeats(op) ? DrawRepeated(rng, op)
                                                 : GeneratorOf(op).draw(rng, theme, op);
  DrawRequant(rng, theme == Theme::kParameterEdges ? 4 : 1, c);  // what the modes are made of
  return c;
}

// The rare themes take seeds of any theme, or of the plainest one. A random generator of their own
// decides, so that all other seeds draw the same cases as before there were rare themes.
Theme ThemeOrRare(Op op, uint64_t seed, Theme theme) {
  const Generator generator = GeneratorOf(op);
  uint64_t left = Rng(MixSeed(seed, 3000 + static_cast<uint64_t>(op))).Below(1000);
  for (const auto& [rare, share] : {std::pair{Theme::kMiddling, generator.middling},
                                    {Theme::kFarValue, generator.far_value},
                                    {Theme::kWideTerms, generator.wide_terms}}) {
    if (left < share) return rare;
    left -= share;
  }
  if (theme != Theme::kUniform) return theme;
  const uint64_t at = Rng(MixSeed(seed, 2000 + static_cast<uint64_t>(op))).Below(1000);
  if (at < generator.layers) return Theme::kLayer;
  return at < generator.layers + generator.edges ? Theme::kParameterEdges : theme;
}

}  // namespace

std::span<const Theme> AllThemes() { return kThemes; }

std::string_view Name(Theme theme) { return kNames[static_cast<size_t>(theme)]; }

bool HasSizesOfLayers(Theme theme) {
  return theme == Theme::kLayer || theme == Theme::kMiddling || theme == Theme::kFarValue ||
         theme == Theme::kWideTerms;
}

Theme ThemeOf(Op op, uint64_t seed) {
  Rng rng(MixSeed(seed, static_cast<uint64_t>(op)));
  return ThemeOrRare(op, seed, internal::PickTheme(rng, GeneratorOf(op).themes));
}

Case Draw(Op op, uint64_t seed) {
  Rng rng(MixSeed(seed, static_cast<uint64_t>(op)));
  const Theme theme = internal::PickTheme(rng, GeneratorOf(op).themes);
  return DrawFrom(rng, op, ThemeOrRare(op, seed, theme));
}

std::optional<Case> WithWideCodes(Op op, uint64_t seed) {
  const OpRow& row = RowOf(op);
  if (!row.x_types.contains(DType::kS16) && !row.out_types.contains(DType::kS16))
    return std::nullopt;
  if (HasSums(op)) {
    Rng rng(MixSeed(seed, 7000 + static_cast<uint64_t>(op)));
    Case c = internal::DrawWideSums(rng, op);
    DrawRequant(rng, 1, c);
    return c;
  }
  for (;; ++seed) {
    if (Case c = Draw(op, seed); HasWideCodes(c)) return c;
  }
}

std::optional<Case> WithSmallCodes(Op op, uint64_t seed) {
  const OpRow& row = RowOf(op);
  if (!row.x_types.contains(DType::kU4) && !row.out_types.contains(DType::kU4)) return std::nullopt;
  Rng rng(MixSeed(seed, 8000 + static_cast<uint64_t>(op)));
  const Theme theme = internal::PickTheme(rng, GeneratorOf(op).themes);
  return op == Op::kQuantize ? internal::DrawQuantize(rng, theme, op, true)
                             : internal::DrawDequantize(rng, theme, op, true);
}

Case Draw(Op op, Theme theme, uint64_t seed) {
  Rng rng(MixSeed(MixSeed(seed, static_cast<uint64_t>(op)), 1000 + static_cast<uint64_t>(theme)));
  return DrawFrom(rng, op, theme);
}

}  // namespace qualm::gen
