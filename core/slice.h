// SPDX-License-Identifier: Apache-2.0
// Cases cut out of a case: fewer rows, channels, terms, images or taps, one pixel, one output, or
// the sums without the steps after them. Rows, Channels (but of softmax and choose_qparams),
// Batches, Pixel and OneOutput keep output values (properties/slice_test.cc). Lists with one entry
// per channel are cut with the channels. Results are problems alone: no property, note, expected
// and observed.
#ifndef QUALM_CORE_SLICE_H_
#define QUALM_CORE_SLICE_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/case.h"

namespace qualm::slice {

// Places along one axis. Some functions take -1 for a place that the case does not have, and say
// what stands there.
using Places = std::span<const int64_t>;

// from, from + 1, ... up to `to`, which is left out.
std::vector<int64_t> Range(int64_t from, int64_t to);

// Row i of the result is row rows[i]. Not for operations with a window, whose rows are pixels: see
// Pixel and Batches.
Case Rows(const Case& c, Places rows);
// Output channel i of the result is channel channels[i], with its weights, bias and parameters.
//   concat                   the chosen columns of the first input stand before those of the second
//   softmax, choose_qparams  every row keeps the chosen values only, so the outputs change
//   convolution with groups  `channels` names channels group by group, and equally many of each
//                            group that it names. A group that it does not name is dropped with
//                            its input channels
Case Channels(const Case& c, Places channels);
// Channels 0, 1, 2 ...: as many as Channels accepts, but at most `most`, which is at least 1.
std::vector<int64_t> LeadingChannels(const Case& c, int64_t most);
// linear: summand i of the result is summand terms[i]. Convolutions: input channel i of every group
// is channel terms[i] of that group. A term of -1 multiplies x_code by w_code. Weights in blocks
// keep their scales and zero points; where the cut leaves no blocks of one size, each term is a
// block.
Case Terms(const Case& c, Places terms, int32_t x_code = 0, int32_t w_code = 0);
// Image i of the result, or batch i of a choose_qparams, is image or batch batches[i].
Case Batches(const Case& c, Places batches);

// Operations with a window.
//
// The kernel of the result has the taps (rows[i], columns[j]); the image and its padding stay. A
// tap with -1 has no source: its weight in channel n is w_codes[n], or w_codes[0] if that is all.
Case Taps(const Case& c, Places rows, Places columns, std::span<const int32_t> w_codes = {});
// Every image without its first and last rows and columns; the padding stays. The kernel of a
// global average pool shrinks with the image.
Case Crop(const Case& c, int64_t top, int64_t bottom, int64_t left, int64_t right);
// Every image with its padding made of `code`, and no other padding.
Case ExplicitPadding(const Case& c, int32_t code);
// The case whose only output pixel is pixel m, with the part of its image under the window. Taps of
// a convolution in the padding stay. Taps of a pool beyond the padding go: they count nowhere.
Case Pixel(const Case& c, int64_t m);

// Output `index` alone, with M = N = 1 and the parameters of its channel. Two operations need more
// than one output's operands; there the output in question is the first of the result:
//   softmax         its whole row stays (N as it was); its element changes places with the first
//   dynamic_linear  where rows share a scale all rows stay; its row comes first
// Not for choose_qparams, where one output is about many values.
Case OneOutput(const Case& c, int64_t index);

// Where x lies in blocks, the elements [first, second) of each, row by row; a row ends a block.
// Without blocks none.
std::vector<std::pair<int64_t, int64_t>> BlocksOfX(const Case& c);

// A quantize or dequantize with a scale for each block of a row as one of a single row with a scale
// for each column: the same elements, one behind the other, and so the same outputs. Other cases
// stay as they are.
Case BlocksAsChannels(const Case& c);
// The output of that case in the shape that the output of `c` has.
Tensor InRowsOf(const Case& c, const Tensor& y);

// Without blocks of weights and of x (w_block, x_block): each channel keeps the scale and zero
// point of its first one, and x those of its first row's.
Case WithoutBlocks(const Case& c);

// The cases that differ from `c` in one parameter, which is as in `other`.
std::vector<Case> WithOneParameterOf(const Case& c, const Case& other);
// Every parameter (bias, relu, requant, ...) has its default. A clamp is no parameter and stays.
Case WithoutParameters(const Case& c);
// A linear or convolution without what follows its sums: no parameters, no clamp, s32 outputs. The
// zero points of x and w stay.
Case SumsOf(const Case& c);

// Every channel gets the parameters of channel n, in lists of N entries if `per_channel`, else in
// lists of one. Biases stay.
Case WithParamsOf(const Case& c, int64_t n, bool per_channel);

}  // namespace qualm::slice

#endif  // QUALM_CORE_SLICE_H_
