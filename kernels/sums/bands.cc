// SPDX-License-Identifier: Apache-2.0
// Cuts the output into bands, and copies the activations under a band together with their padding.
// Exact because bytes are only copied, and the byte in the padding is real 0 (conv.cc
// asks for a zero point that is a code): it adds 0 to a sum.
#include "kernels/sums/bands.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace qualm::kernels {
namespace {

constexpr int64_t kBandBytes = 128 * 1024;
// A copy of fewer output pixels would copy most activations again and again.
constexpr int64_t kFewestColumns = 8;
// The number of bands per thread: with several, no thread waits long for the last band.
constexpr int64_t kBandsPerThread = 4;

int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// Input pixels under some windows next to each other, along one axis.
int64_t Span(int64_t windows, int64_t stride, int64_t kernel, int64_t dilation) {
  return (windows - 1) * stride + (kernel - 1) * dilation + 1;
}
int64_t SpanH(const WindowGeometry& w, int64_t lines) {
  return Span(lines, w.stride_h, w.kernel_h, w.dilation_h);
}
int64_t SpanW(const WindowGeometry& w, int64_t columns) {
  return Span(columns, w.stride_w, w.kernel_w, w.dilation_w);
}

// `size` in parts of at most `most`, as equal as possible.
int64_t EqualParts(int64_t size, int64_t most) { return CeilDiv(size, CeilDiv(size, most)); }

}  // namespace

bool Bands::Fit(const WindowGeometry& w, int64_t channels) {
  const __int128 pixels = static_cast<__int128>(SpanH(w, 1)) * SpanW(w, kFewestColumns);
  return pixels <= kBandBytes && channels <= kBandBytes / static_cast<int64_t>(pixels);
}

Bands::Bands(const WindowGeometry& w, int64_t batch, int64_t channels, int64_t threads)
    : window_(w), channels_(channels), out_h_(ConvOutputHeight(w)), out_w_(ConvOutputWidth(w)) {
  const int64_t width = kBandBytes / (SpanH(w, 1) * channels);
  columns_ = EqualParts(out_w_, (width - SpanW(w, 1)) / w.stride_w + 1);
  const int64_t cuts = CeilDiv(out_w_, columns_);
  const int64_t height = kBandBytes / (SpanW(w, std::min(out_w_, columns_)) * channels);
  int64_t lines = (height - SpanH(w, 1)) / w.stride_h + 1;
  if (threads > 1) {
    const __int128 all = static_cast<__int128>(out_h_) * cuts * batch;
    lines = static_cast<int64_t>(std::clamp<__int128>(all / (kBandsPerThread * threads), 1, lines));
  }
  lines_ = EqualParts(out_h_, lines);
  count_ = static_cast<int64_t>(
      std::min<__int128>(static_cast<__int128>(CeilDiv(out_h_, lines_)) * cuts * batch, INT64_MAX));
  bytes_ = SpanH(w, lines_) * SpanW(w, columns_) * channels;
}

Band Bands::At(int64_t index) const {
  const int64_t cuts = CeilDiv(out_w_, columns_);
  const int64_t rows_of_bands = CeilDiv(out_h_, lines_);
  Band band = {.out_w = out_w_,
               .image = index / cuts / rows_of_bands,
               .line = index / cuts % rows_of_bands * lines_,
               .column = index % cuts * columns_};
  band.pixel = (band.image * out_h_ + band.line) * out_w_ + band.column;
  band.lines = std::min(lines_, out_h_ - band.line);
  band.columns = std::min(columns_, out_w_ - band.column);
  return band;
}

void Bands::Place(const ConstImages& x, uint8_t padding, uint8_t* copy, Band* band) const {
  const int64_t top = band->line * window_.stride_h - window_.pad_top;
  const int64_t left = band->column * window_.stride_w - window_.pad_left;
  const uint8_t* const pixels = static_cast<const uint8_t*>(x.data) + band->image * x.image_stride;
  if (copy == nullptr) {
    band->x = pixels + top * x.row_stride + left * x.pixel_stride;
    band->x_line = x.row_stride;
    band->x_pixel = x.pixel_stride;
    return;
  }
  const int64_t width = SpanW(window_, band->columns);
  const auto bytes = [&](int64_t count) { return static_cast<size_t>(count * channels_); };
  band->x = copy;
  band->x_line = width * channels_;
  band->x_pixel = channels_;
  // Columns [begin, end) of the copy lie in the image.
  const int64_t begin = std::clamp<int64_t>(-left, 0, width);
  const int64_t end = std::clamp(x.width - left, begin, width);
  for (int64_t r = 0; r < SpanH(window_, band->lines); ++r, copy += band->x_line) {
    const int64_t y = top + r;
    if (y < 0 || y >= x.height || begin == end) {
      std::memset(copy, padding, bytes(width));
      continue;
    }
    std::memset(copy, padding, bytes(begin));
    const uint8_t* from = pixels + y * x.row_stride + (left + begin) * x.pixel_stride;
    if (x.pixel_stride == channels_) {
      std::memcpy(copy + bytes(begin), from, bytes(end - begin));
    } else {
      for (int64_t i = begin; i < end; ++i, from += x.pixel_stride) {
        std::memcpy(copy + bytes(i), from, bytes(1));
      }
    }
    std::memset(copy + bytes(end), padding, bytes(width - end));
  }
}

}  // namespace qualm::kernels
