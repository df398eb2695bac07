// SPDX-License-Identifier: Apache-2.0
// Bytes <-> cases: what makes a byte-oriented fuzzer, a corpus of cases and a reproducer one
// currency.
//
// Layout (little endian; a fixed header, so that x begins at the same byte whatever the rest says):
//   m n k            one byte each, dimension = (byte + 1) mod (limit + 1): M, N and K of linear;
//   the
//                    batch and the output and input channels of one group; see LimitsOf
//   flags            bit 0 per channel, 1 relu, 2-3 bias (1 float, 2 int32), 4-5 output type,
//                    6 other type of x, 7 other type of w
//   form             bit 0 clamp given, bit 1 requantize by a quotient of scales, 2-3 Requant,
//                    4 ceil_mode, 5 count_include_pad
//   out_min out_max  int32 each
//   x w out          scale (float32 bits) and zero point (int32) each; w's scale is the multiplier
//                    where requantize has one
//   window           convolutions and pools: H W R S, strides, pads (t, b, l, r), dilations,
//   groups,
//                    one byte each
//   function         table: a byte, and negative_slope
//   observer         choose_qparams: kind, flags (bit 0 symmetric, 1 reduce_range, 2 s8),
//   quant_min,
//                    quant_max, averaging_constant
//   x, w             the elements
//   channels         scale and zero point of channels 0..N-1, where there is one per channel
//   bias             N values
// Bytes that are missing read as 0; bytes beyond are ignored.
#ifndef QUALM_FUZZ_CASE_CODEC_H_
#define QUALM_FUZZ_CASE_CODEC_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/case.h"

namespace qualm::fuzz {

// A valid case (Validate() == "") for any bytes, none included.
Case DecodeCase(Op op, std::span<const uint8_t> bytes);

// DecodeCase(c.op, *EncodeCase(c)) == ProblemOf(c). nullopt where the case is not small (IsSmall),
// invalid, or sets parameters that mean nothing to its op.
std::optional<std::vector<uint8_t>> EncodeCase(const Case& c);

}  // namespace qualm::fuzz

#endif  // QUALM_FUZZ_CASE_CODEC_H_
