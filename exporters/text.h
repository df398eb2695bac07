// SPDX-License-Identifier: Apache-2.0
// Pieces of programs as text. Names of files and subjects, notes and messages of libraries are
// untrusted: they go into comments, and into Markdown as code, through the functions below only.
#ifndef QUALM_EXPORTERS_TEXT_H_
#define QUALM_EXPORTERS_TEXT_H_

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "core/case.h"

namespace qualm::exporters {

// `text` with each $NAME$ replaced by its slot; every slot of the text must be given.
using Slot = std::pair<std::string_view, std::string>;
std::string Fill(std::string_view text, std::initializer_list<Slot> slots);

// Printable ASCII on one line: a line break would end a comment, a backslash at its end would
// continue it, and a right-to-left mark would show other text than there is. All else becomes '?'.
std::string Plain(std::string_view text);
// The lines of `text`, each plain, as comments that begin with `mark`.
std::string Comment(std::string_view mark, std::string_view text);

// Markdown that shows `text` as it is: between as many backticks as it needs.
std::string Code(std::string_view text);
std::string Fence(std::string_view language, std::string_view text);

enum class Language : uint8_t { kC, kCpp, kPython };

// "uint8_t" of u8.
std::string_view TypeIn(Language language, DType dtype);
// The tensor's elements as a constant `name` of that language: exact, in lines of 100 columns.
// Lists of C have `slack` elements more.
std::string List(Language language, std::string_view name, const Tensor& values,
                 std::string_view slack = "");
// One number as a constant.
std::string Number(Language language, std::string_view name, int64_t value);
std::string Number(Language language, std::string_view name, float value);
// The literal of a float32.
std::string Literal(Language language, float value);

// Every size, number and tensor of the problem as constants, under the names of case files
// (docs/case-format.md): x, w (a, b), x_scale, x_zp, ... What may be a list per channel (w_scale,
// w_zp; of quantize out_scale, of dequantize x_scale, of cast both) always is one, of one entry or
// of N. Sizes are M, N, K; of images batch, H, W, C, R, S, OH, OW, stride_h, ... too.
std::string Constants(Language language, const Case& c, std::string_view slack = "");

}  // namespace qualm::exporters

#endif  // QUALM_EXPORTERS_TEXT_H_
