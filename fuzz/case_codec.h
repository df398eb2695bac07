// SPDX-License-Identifier: Apache-2.0
// Bytes <-> cases: a byte-oriented fuzzer, a corpus and a reproducer can all hold cases.
//
// Layout, little endian. The header of an operation has a fixed size, so x begins at the same byte
// whatever the header says:
//   m n k            a byte each: 255 is the dimension 0, another byte 1 + byte mod limit, where
//                    the limit is not 0. See Sizes and LimitsOf in fuzz/fit.h
//   flags            bit 0 per channel, 1 relu, 2-3 bias (1 float, 2 int32), 4-5 output type
//                    (of quantize and requantize 2 is s16, 3 u16),
//                    6 second type of x, 7 second type of w
//   form             bit 0 clamp given, bit 1 requantize by a quotient of scales, 2-3 Requant if
//                    bits 4-7 are all set, 4 ceil_mode, 5 count_include_pad
//   out_min out_max  int32 each
//   x w out          scale (float32 bits) and zero point (int32) each; the scale of w is the
//                    multiplier where requantize has one. Of cast a scale of x or the output
//                    counts where its zero point is 's', and is 1 else
//   window           convolutions and pools, a byte each: H W R S, strides, pads (t, b, l, r),
//                    dilations, groups
//   own fields       the parameters of ForEachOwnField (fuzz/fit.h): a choice is a byte, int32 and
//                    float32 four bytes, and successive flags share a byte, the lowest bit first.
//                    table: function, negative_slope. choose_qparams: kind, flags (bit 0 symmetric,
//                    1 reduce_range, 2 s8, 3 codes), quant_min, quant_max, averaging_constant,
//                    qparams_rule.
//                    dynamic_linear: the same flags, quant_min, quant_max, qparams_rule, x_gran.
//                    cast: rounding, overflow, then the places of the types of x and the output in
//                    the row
//   x, w             the elements, each in as many bytes as hold it
//   channels         scale and zero point of channels 0..N-1, if there is one per channel; of cast
//                    those of the output and then those of x, here and in row blocks
//   bias             N values
// Each of the last three begins with its letter; one other byte in its place leaves it out.
//   narrow           'w' and "s4", "u4", "s2" or "u2": w has this type, and its elements are the
//                    nearest ones to those above
//   blocks           'b', a byte for w_block - 1, and scale and zero point of each block of w;
//                    'B': and then of each block of x
//   f32 x            'f' and the elements of x: those above mean nothing
//   types            't', the places of the types of x and the output in the operation's row, for
//                    which flags has no room, and the elements of x: those above mean nothing
//   mx               of choose_qparams, 'm', a byte for the rule and one for the type of elements
//   row blocks       'e', a byte for x_block - 1, and scale and zero point of each block of a row
// Bytes that are missing read as 0; bytes beyond are ignored.
//
// Cases of any size have bytes too if they are drawn: 254 (never written as m) and "draw", then the
// seed (8 bytes) of gen::Draw. So an engine asks the layers that `qualm check` asks.
#ifndef QUALM_FUZZ_CASE_CODEC_H_
#define QUALM_FUZZ_CASE_CODEC_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/case.h"

namespace qualm::fuzz {

// The bytes of the header up to the window, which every operation has.
inline constexpr size_t kLeastHeader = 3 + 2 + 2 * 4 + 3 * 8;

// The bytes of gen::Draw(op, seed). They are `size` long, at least kDrawBytes: an engine keeps the
// shorter of two inputs that show it the same, and should keep the one that it can mutate.
inline constexpr size_t kDrawBytes = 5 + 8;
std::vector<uint8_t> EncodeDraw(uint64_t seed, size_t size = kDrawBytes);
// The seed, if these are such bytes.
std::optional<uint64_t> SeedIn(std::span<const uint8_t> bytes);

// A valid case (Validate() == "") for any bytes, none included.
Case DecodeCase(Op op, std::span<const uint8_t> bytes);

// DecodeCase(c.op, *EncodeCase(c)) == ProblemOf(c). nullopt if the case is invalid or not small
// (IsSmall), or sets parameters that mean nothing to its operation.
std::optional<std::vector<uint8_t>> EncodeCase(const Case& c);

// The bytes of a case that FitCase has made. Such a case always has some, so this does not check it
// as EncodeCase does: mutations are faster.
std::vector<uint8_t> EncodeFitted(const Case& c);

}  // namespace qualm::fuzz

#endif  // QUALM_FUZZ_CASE_CODEC_H_
