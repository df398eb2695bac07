// SPDX-License-Identifier: Apache-2.0
// Cases that go to the hazard region on purpose: saturation, ties, tails and clamps by
// construction, not by luck. A case is a function of (op, seed) alone.
#ifndef QUALM_PROPERTIES_GEN_GEN_H_
#define QUALM_PROPERTIES_GEN_GEN_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "core/case.h"
#include "core/rng.h"

namespace qualm::gen {

// The feature of a case that is drawn on purpose. The rest is drawn as for any other theme.
enum class Theme : uint8_t {
  kUniform,
  kBoundaryBytes,
  kAllExtreme,
  kSignAligned,
  kConstantRows,
  kNearPairThreshold,
  kLongK,
  kTies,
  kNearTies,
  kClampEdges,
  kZeroPoints,
  kScaleExtremes,
  kSpecialFloats,
  kTails,
  kEmpty,
  kLayer,           // sizes of real layers: gen/layer.h
  kParameterEdges,  // multipliers, shifts and terms of the zero-point correction at their ends
  kMiddling,        // M, N and K of a small layer, none of them small: gen/layer.h
  kFarValue,        // one element, far along a long row, decides
  kWideTerms,       // products with zero points beyond float32 and int32 that cancel
};
std::span<const Theme> AllThemes();
std::string_view Name(Theme theme);
// Whether its cases are too large for a place that wants small ones.
bool HasSizesOfLayers(Theme theme);

// The theme of Draw(op, seed).
Theme ThemeOf(Op op, uint64_t seed);
// Valid cases only (Validate(c) == "").
Case Draw(Op op, uint64_t seed);
Case Draw(Op op, Theme theme, uint64_t seed);
// The drawn case with its weights in blocks, for subjects that take such: every second case of an
// operation that has them. Others have nullopt.
std::optional<Case> InBlocks(const Case& drawn, uint64_t seed);
// A case of the same operation with f32 x, mostly with weights in blocks, for subjects that take
// such: in the place of every second case of codes. Other operations have nullopt.
std::optional<Case> WithFloatX(const Case& drawn, uint64_t seed);
// The same with x in blocks too, as f32. Two thirds are as libraries store them: blocks of 32, s8
// times s8 or u4, scales that an f16 holds, no zero point (of u4 8), no bias. `as_stored`: every
// case of a linear, and in this form.
std::optional<Case> XInBlocks(const Case& drawn, uint64_t seed, bool as_stored = false);
// A quantize or dequantize per tensor as one with a scale for each block of a row, for subjects
// that take such: every sixth case. Others have nullopt.
std::optional<Case> ElementsInBlocks(const Case& drawn, uint64_t seed);
// A cast with scales, about the same quotients as the numbers of the drawn one, for subjects that
// take such: every fourth cast; in a third of these one for each channel, in a third one for each
// block of a row. Others have nullopt.
std::optional<Case> WithCastScales(const Case& drawn, uint64_t seed);
// A case with codes of 16 bits, of linear and convolutions those of x; nullopt where the operation
// has none. Draw has them too, but for linear and convolutions.
std::optional<Case> WithWideCodes(Op op, uint64_t seed);
// The same of fewer than 8 bits, which Draw has not.
std::optional<Case> WithSmallCodes(Op op, uint64_t seed);

}  // namespace qualm::gen

#endif  // QUALM_PROPERTIES_GEN_GEN_H_
