# SPDX-License-Identifier: Apache-2.0
"""What scripts/mutate breaks: one line of kernels/ each, as people really break it."""
from typing import NamedTuple, Optional, Tuple


class Mutation(NamedTuple):
    id: str
    file: str
    old: str  # the whole line without indentation, there exactly once (or below `after`)
    new: str
    why: str  # what it does, in a line
    op: str = ""  # judged by the properties of this operation
    test: Optional[Tuple[str, str]] = None  # or by a test: (binary, --gtest_filter)
    after: str = ""


def of(file, op=""):
    """Mutations of one file, by default judged by `op`."""
    def make(identifier, old, new, why, **more):
        return Mutation(identifier, f"kernels/{file}", old, new, why,
                        **({"op": op} if "test" not in more else {}) | more)
    return make


quantize = of("quantize.cc", "quantize")
dequantize = of("dequantize.cc", "dequantize")
requantize = of("requantize.cc", "requantize")
backend = of("common/backend_requantize.cc", "requantize")
rescale = of("common/rescale.cc", "requantize")
pack = of("sums/pack.cc", "linear")
row_block = of("sums/row_block.cc", "linear")
accumulate = of("sums/accumulate.cc", "linear")
codes = of("sums/codes-inl.h", "linear")
epilogue = of("sums/epilogue.cc", "linear")
conv = of("conv.cc", "conv2d")
bands = of("sums/bands.cc", "conv2d")
patches = of("sums/patches.cc", "conv2d")
depthwise = of("sums/depthwise.cc", "depthwise")
depthwise_sums = of("sums/depthwise_sums.cc", "depthwise")
add = of("add.cc", "add")
mul = of("mul.cc", "mul")
pool = of("pool.cc", "avg_pool")
code_table = of("common/code_table.cc", "rescale")
rescale_codes = of("rescale_codes.cc", "rescale")
table = of("table.cc", "table")
softmax = of("softmax.cc", "softmax")
observer = of("observer.cc", "choose_qparams")
dynamic = of("dynamic_linear.cc", "dynamic_linear")
parallel = of("common/parallel.cc", "linear")

MUTATIONS = [
    quantize("quantize-tail", "const size_t n = count - i;", "const size_t n = count - i - 1;",
             "the last element of a row is not written"),
    quantize("quantize-rounding", "constexpr double kGrid = 0x1.8p22;  // spacing 2^-30",
             "constexpr double kGrid = 0x1.8p8;",
             "ties are decided by the rounding error of 1/scale"),
    quantize("quantize-zero-point-index",
             "const auto zero_point_of = [&](size_t j) "
             "{ return zero_point[zero_point.size() == 1 ? 0 : j]; };",
             "const auto zero_point_of = [&](size_t) { return zero_point[0]; };",
             "every column has the zero point of the first"),
    quantize("quantize-dispatch", "constexpr int64_t kWidestFastBound = 1 << 15;",
             "constexpr int64_t kWidestFastBound = int64_t{1} << 31;",
             "the vector path takes zero points for which it is not exact"),
    quantize("quantize-exact-tie", "if (sign > 0 || (sign == 0 && lo % 2 != 0)) lo = hi;",
             "if (sign >= 0) lo = hi;", "with large zero points, ties go up"),
    quantize("quantize-nan",
             "const auto number = hn::IfThenElseZero(hn::Eq(v, v), v);  // NaN: the zero point",
             "const auto number = v;", "NaN becomes whatever the clamp makes of it"),

    dequantize("dequantize-channel-index",
               "return LoadSome(d, values + i, n);",
               "return LoadSome(d, n == hn::Lanes(d) ? values : values + i, n);",
               "the second vector of columns has the parameters of the first"),
    dequantize("dequantize-dispatch", "constexpr int32_t kLargestFastZeroPoint = 1 << 23;",
               "constexpr int32_t kLargestFastZeroPoint = 1 << 30;",
               "differences above 2^24 are rounded before they are scaled"),
    dequantize("dequantize-stride",
               "auto* out = static_cast<float*>(y.data) + i * y.row_stride;",
               "auto* out = static_cast<float*>(y.data) + i * columns;",
               "outputs with gaps between their rows are written as if they had none"),

    requantize("requantize-stride",
               "codes.CodesFromSums(in + i * acc.row_stride, 0, static_cast<size_t>(columns),",
               "codes.CodesFromSums(in + i * columns, 0, static_cast<size_t>(columns),",
               "inputs with gaps between their rows are read as if they had none"),
    requantize("requantize-one-row",
               "if (!per_column && acc.row_stride == columns && y.row_stride == columns) {",
               "if (acc.row_stride == columns && y.row_stride == columns) {",
               "rows are joined though the multipliers are per column"),

    backend("backend-q31-half",
            "const VI high = HighHalf(shifted, parameter(plan.mantissa), int64_t{1} << 30);",
            "const VI high = HighHalf(shifted, parameter(plan.mantissa), 0);",
            "the doubling high half of TFLite is not rounded"),
    backend("backend-rndnu-carry",
            "const VI carry = hn::And(hn::Shr(high, last_bit), one);",
            "const VI carry = hn::And(hn::Shr(high, right), one);",
            "XNNPACK's shift rounds by the wrong bit"),
    backend("backend-float-overflow",
            "return hn::IfThenElse(hn::RebindMask(DI(), fits), rounded, hn::Set(DI(), INT32_MIN));",
            "return rounded;", "products beyond int32 are not cvtps2dq's INT32_MIN"),

    rescale("rescale-error-bound", "constexpr double kError = 0x1p-49;",
            "constexpr double kError = 0x1p-60;",
            "what lies next to a tie is decided by a rounded product"),
    rescale("rescale-tie-parity",
            "hn::And(hn::RebindMask(dd, odd), hn::Eq(side, hn::Zero(dd))));",
            "hn::Eq(side, hn::Zero(dd)));", "with fused multiply-add, ties go up"),
    rescale("rescale-short-multiplier", "plan_.short_multiplier = exact && bits <= 22;",
            "plan_.short_multiplier = exact;",
            "without fused multiply-add, products of too many bits are rounded twice"),
    rescale("rescale-float-dispatch",
            "is_float = is_float && multiplier >= 256.5 * 0x1p-24 && "
            "multiplier <= 0x1.fffffep127;",
            "is_float = is_float && multiplier <= 0x1.fffffep127;",
            "sums of more than 24 bits go through float32"),
    rescale("rescale-bias-index",
            "const VD w = Parameter(dd, plan.offset, plan.per_channel, first + i, n);",
            "const VD w = Parameter(dd, plan.offset, plan.per_channel, i, n);",
            "every panel has the biases of the first", op="linear"),
    rescale("rescale-relu-float",
            "StoreSome(relu ? hn::ZeroIfNegative(below) : below, df, y + i, n);",
            "StoreSome(below, df, y + i, n);", "float32 outputs have no relu", op="linear"),
    rescale("rescale-divisor",
            "difference.AddHalves(-(2 * static_cast<__int128>(n) + 1) * scale.divisor, "
            "scale.denominator);",
            "difference.AddHalves(-(2 * static_cast<__int128>(n) + 1), scale.denominator);",
            "exact comparisons forget what a mean is divided by", op="avg_pool"),
    of("common/exact_sum.h", "dequantize")(
        "exact-sum-half-to-even",
        "if (half && (kept % 2 != 0 || magnitude.AnyBitBelow(last - 1))) ++kept;",
        "if (half) ++kept;", "exact sums are rounded half up to float32"),
    of("common/validate.cc", "requantize")(
        "relu-bound",
        "if (range.relu) bounds.lo = std::min(std::max(bounds.lo, zero_point), bounds.hi);",
        "if (range.relu) bounds.lo = std::min(std::max(bounds.lo, 0), bounds.hi);",
        "relu is at code 0 instead of at the zero point"),
    of("common/validate.cc", "quantize")(
        "clamp-bound", "bounds.hi = std::min(bounds.hi, range.max);",
        "bounds.hi = std::min(bounds.hi, range.max + (range.max < 255));",
        "the upper clamp lets one code more through"),

    of("sums/certify.cc", "linear")(
        "certificate", "return positive <= 128 && negative >= -128;",
        "return positive <= 129 && negative >= -128;",
        "pairs of 255 * 129 are held not to saturate"),
    pack("pack-lane-order",
         "int8_t* to = panel_weights + (n - first) * 4;",
         "int8_t* to = panel_weights + ((n - first) ^ 1) * 4;",
         "neighbouring channels change places"),
    pack("pack-rest", "const int64_t gap = piece < 4 ? 0 : 4 - rest;", "const int64_t gap = 0;",
         "the last weights meet the activations before theirs"),
    pack("pack-last-panel", "panel.vectors = (end - first + lanes - 1) / lanes;",
         "panel.vectors = std::max<int64_t>((end - first) / lanes, 1);",
         "the last channels of a layer are left out"),
    pack("pack-zero-point-sign",
         "bias - static_cast<__int128>(za) * sum_b + static_cast<__int128>(za) * zb * packed.depth;",
         "bias - static_cast<__int128>(za) * sum_b - static_cast<__int128>(za) * zb * packed.depth;",
         "the product of the zero points has the wrong sign"),
    pack("pack-zero-point-index",
         "const size_t i = params.w_zero_point.size() == 1 ? 0 : static_cast<size_t>(channel);",
         "const size_t i = static_cast<size_t>(channel) * 0;",
         "every channel has the zero point of the first"),
    pack("pack-row-sums", "panel.needs_row_sums = panel.needs_row_sums || zb != 0;",
         "panel.needs_row_sums = zb != 0;",
         "the last channel of a panel decides whether zero points matter"),
    pack("pack-sum-width", "if (min >= INT32_MIN && max <= INT32_MAX) return SumWidth::k32;",
         "if (min >= INT64_MIN && max <= INT64_MAX) return SumWidth::k32;",
         "sums wider than 32 bits wrap"),
    row_block("row-block-spill", "constexpr int64_t kTermsPerSpill = 65'788;",
              "constexpr int64_t kTermsPerSpill = 1 << 30;",
              "raw sums of more than 65,793 terms wrap", test=("linear_test", "LinearExact.*")),
    row_block("row-block-tiny",
              "std::memcpy(tiny_ + 4 * r, Row(r), static_cast<size_t>(packed_.depth));",
              "std::memcpy(tiny_ + 4 * r, Row(0), static_cast<size_t>(packed_.depth));",
              "every row of fewer than 4 activations is the first"),
    row_block("row-block-row-sums",
              "for (int64_t k = 0; k < count; ++k) part += static_cast<uint8_t>(x[k] ^ flip);",
              "for (int64_t k = 0; k < count; ++k) part += x[k];",
              "sums of s8 activations are taken of their bytes"),
    row_block("row-block-group", "int64_t ChannelOfLayer(int64_t channel) const { return block_.first_channel + channel; }",
              "int64_t ChannelOfLayer(int64_t channel) const { return channel; }",
              "all groups write to the channels of the first", op="conv2d"),
    accumulate("accumulate-row-sums",
               "const VI32 row_sum = hn::Set(d, static_cast<int32_t>(args.row_sums[row + r]));  // low bits",
               "const VI32 row_sum = hn::Set(d, static_cast<int32_t>(args.row_sums[r]));",
               "all tiles are corrected by the sums of the first rows"),
    accumulate("accumulate-last-quad", "const int64_t at = begin + std::min(k, last);",
               "const int64_t at = begin + k;", "the last quad is read past the end of the row"),
    accumulate("accumulate-row-of-tile",
               "AddRows2<kCertified, kSigned, kRow + 1>(t, at, w0, w1, rest...);",
               "AddRows2<kCertified, kSigned, (kRow == 2 ? kRow : kRow + 1)>(t, at, w0, w1, rest...);",
               "a row of a tile has the activations of its neighbour"),
    accumulate("accumulate-wide-tile", "AddQuad<kCertified>(s3, a, w3);",
               "AddQuad<kCertified>(s3, a, w2);", "the last vector of a panel has the weights of the third"),
    accumulate("accumulate-last-vector", "t.initial = args.initial + vector * Lanes();",
               "t.initial = args.initial;", "the second half of a panel has the offsets of the first"),
    accumulate("accumulate-codes-row", "out.y += row * out.y_stride;", "out.y += (row > 0) * out.y_stride;",
               "all tiles after the first write to its second row"),
    accumulate("accumulate-saturation", "if (kHasSaturatingPath && args.certified) {",
               "if (kHasSaturatingPath) {", "vpmaddubsw saturates"),
    accumulate("accumulate-sign",
               "return kSigned ? hn::Xor(a, hn::Set(DU8(), 0x80)) : a;  // s8 -> u8, adds 128 to each",
               "return kSigned ? hn::BitCast(DU8(), hn::Xor(hn::BitCast(DI32(), a), hn::Set(DI32(), "
               "0x00808080))) : a;",
               "one of four s8 activations is taken as u8"),
    codes("codes-tie", "decided = hn::And(decided, Decides(t));", "(void)decided;",
          "ties go up, and their neighbours too"),
    codes("codes-grid", "return hn::BitCast(DI32(), hn::MulAdd(sum, m, hn::Set(df, 1536.5f)));",
          "return hn::BitCast(DI32(), hn::MulAdd(sum, m, hn::Set(df, 1536.0f)));",
          "codes are rounded down"),
    codes("codes-wrap",
          "const VF t = hn::Max(hn::MulAdd(sum, m, hn::Set(df, 0x1.8p23f)), hn::Set(df, 0x1.7ep23f));",
          "const VF t = hn::MulAdd(sum, m, hn::Set(df, 0x1.8p23f));",
          "large negative sums become the largest code"),
    codes("codes-decided-channel",
          "plan.rescale->CodesFromSums(sums + first, static_cast<size_t>(out.channel + first),",
          "plan.rescale->CodesFromSums(sums + first, static_cast<size_t>(out.channel),",
          "next to a tie, a vector has the scales of the first"),
    codes("codes-flip", "const VU8 flip = hn::Set(d8, static_cast<uint8_t>(up));",
          "const VU8 flip = hn::Zero(d8);", "s8 codes stay moved up by 128"),
    codes("codes-order", "HWY_ALIGN static constexpr int32_t kOrder[16] = {0, 4, 8,  12, 1, 5, 9,  13,",
          "HWY_ALIGN static constexpr int32_t kOrder[16] = {0, 4, 8,  12, 1, 9, 5,  13,",
          "channels 20..23 and 24..27 of a panel change places"),
    epilogue("epilogue-s32-clamp", "out[i] = std::min(std::max(sums[i], bounds.lo), bounds.hi);",
             "out[i] = std::max(sums[i], bounds.lo);", "s32 outputs have no upper clamp"),
    epilogue("epilogue-plan-bounds", "if (plan.lo < -256 || plan.hi > 256) return {};", "",
             "far zero points take the float32 path"),
    epilogue("epilogue-plan-bias",
             "if (!IsCode(type) || backend || !params.bias.empty()) return {};",
             "if (!IsCode(type) || backend) return {};", "the float32 path forgets the bias"),
    epilogue("epilogue-plan-channel",
             "made.multiplier.assign(plan.multiplier.begin(), plan.multiplier.end());",
             "made.multiplier.assign(channels, static_cast<float>(plan.multiplier[0]));",
             "every channel has the scale of the first"),
    epilogue("epilogue-wide-channel",
             "ApplyOne(sums[i], first + i, out + i * OutputBytes(type), factor);",
             "ApplyOne(sums[i], first, out + i * OutputBytes(type), factor);",
             "wide sums have the scale of the panel's first channel"),
    of("linear.cc", "linear")(
        "linear-groups", "const int64_t panel = block % plan.groups * plan.panels_of_block;",
        "const int64_t panel = block % plan.groups;", "with threads, panels are computed twice or never",
        test=("parallel_test", "Threads.*")),
    of("linear.cc", "linear")(
        "linear-scratch-of-tasks",
        "size_t bytes() const { return scratch.bytes() * static_cast<size_t>(tasks); }",
        "size_t bytes() const { return scratch.bytes(); }",
        "the tasks after the first write beyond the scratch",
        test=("parallel_test", "Threads.*")),

    conv("conv-padding-value", "const int64_t a = zero_is_code ? za : 0;", "const int64_t a = 0;",
         "padding is code 0 instead of real 0"),
    conv("conv-group-gather",
         "placer.Gather(places[r], g * group_inputs, group_inputs, padding, patches + r * depth());",
         "placer.Gather(places[r], 0, group_inputs, padding, patches + r * depth());",
         "all groups read the channels of the first"),
    conv("conv-group-in-place", "block.x = places[0].x + g * group_inputs;",
         "block.x = places[0].x;",
         "all groups of a 1 x 1 convolution read the channels of the first"),
    of("sums/padding.cc", "conv2d")(
        "padding-zero-point-sign",
        "return za_ * (all - inside - terms * zb_[static_cast<size_t>(channel)]);",
        "return za_ * (all - inside + terms * zb_[static_cast<size_t>(channel)]);",
        "where real 0 is no code, the weights' zero point has the wrong sign in the padding"),
    conv("conv-dilated-lines", ".row_step = window.dilation_h * band.x_line,",
         ".row_step = band.x_line,", "windows that are read in place are not dilated down"),
    conv("conv-dilated-pixels", ".column_step = window.dilation_w * band.x_pixel,",
         ".column_step = band.x_pixel,", "windows that are read in place are not dilated across"),
    conv("conv-piece", "const bool of_line = groups == 1 && params.window.dilation_w == 1;",
         "const bool of_line = groups == 1;", "a dilated line of the window is read without its gaps"),
    conv("conv-group-of-band", ".first_channel = g * (shape.channels / groups),",
         ".first_channel = 0,", "all groups that are read in place write to the channels of the first"),
    conv("conv-row-sums", "uses_bands = uses_bands && !packed.UsesRowSums();", "(void)packed;",
         "zero points of weights are forgotten where nothing is gathered"),
    bands("bands-left", "const int64_t begin = std::clamp<int64_t>(-left, 0, width);",
          "const int64_t begin = 0;", "padding on the left of a band is what lies before the line"),
    bands("bands-bottom", "if (y < 0 || y >= x.height || begin == end) {",
          "if (y < 0 || begin == end) {", "padding below a band is what lies after the image"),
    bands("bands-line", "const int64_t top = line * window_.stride_h - window_.pad_top;",
          "const int64_t top = line - window_.pad_top;",
          "bands after the first begin at the wrong line of strided images"),
    bands("bands-gap", "for (int64_t i = begin; i < end; ++i, from += x.pixel_stride) {",
          "for (int64_t i = begin; i < end; ++i, from += channels_) {",
          "gaps between pixels are copied as channels"),
    patches("patches-dilation",
            "const int64_t y = rows.start + rows.begin * window_.dilation_h;",
            "const int64_t y = rows.start + rows.begin;",
            "a dilated window that begins in the padding begins at the wrong row"),
    patches("patches-dilation-step",
            "if (place.columns.size() > 1) place.column_step = "
            "window_.dilation_w * x_.pixel_stride;",
            "if (place.columns.size() > 1) place.column_step = x_.pixel_stride;",
            "windows are not dilated across"),
    patches("patches-run", "if (steps * stride != run.stride * run.pixels) return false;",
            "if (steps * stride < run.stride * run.pixels) return false;",
            "rows with gaps are read in place as if they had none"),
    of("window.cc", "conv2d")(
        "window-begin", "w.begin = std::min(w.end, TapsBelow(w.start, dilation, 0));",
        "w.begin = std::min(w.end, std::max<int64_t>(-w.start, 0));",
        "as many taps are left out as there are rows of padding, dilated or not"),
    of("window.cc", "avg_pool")(
        "window-counted", "w.counted = std::min(kernel, TapsBelow(w.start, dilation, in + pad_after));",
        "w.counted = kernel;", "what a mean is divided by counts positions beyond the padding"),

    depthwise("depthwise-window-begin",
              "args.weights += place.rows.begin * args.w_row_step + "
              "place.columns.begin * tap_size;",
              "args.weights += place.rows.begin * args.w_row_step;",
              "windows that begin in the left padding meet the wrong weights"),
    depthwise("depthwise-wide-zero-point", "sum += (code - packed.x_zero) * weight;",
              "sum += code * weight;", "wide sums forget the zero point of the activations"),
    depthwise("depthwise-packing",
              "const int64_t to = i % packed.multiplier * packed.block_channels + "
              "i / packed.multiplier;",
              "const int64_t to = i;", "output channels are packed in the wrong order"),
    depthwise_sums("depthwise-multiplier",
                   "for (int64_t c = 0; c < lanes; ++c) sums[c * multiplier + j] = each[c];",
                   "for (int64_t c = 0; c < lanes; ++c) sums[j * lanes + c] = each[c];",
                   "the outputs of one input channel are not next to each other"),
    depthwise_sums("depthwise-read-past-end",
                   "const auto codes = kPartial ? hn::LoadN(d_code, at, count) : "
                   "hn::LoadU(d_code, at);",
                   "const auto codes = hn::LoadU(d_code, at);",
                   "the last vector reads past the end of the images"),

    add("add-exact-sign", "difference.AddHalves(2 * db, plan.b_scale);",
        "difference.AddHalves(-2 * db, plan.b_scale);",
        "exact comparisons subtract the second operand"),
    add("add-margin",
        "plan.margin32 = std::nextafter(static_cast<float>(0.5 - error), 0.0f);",
        "plan.margin32 = 0.5f;", "what lies next to a tie is decided by rounded floats"),
    add("add-zero-point", "plan.b_zero = int64_t{b_q.zero_point} + plan.flip;",
        "plan.b_zero = int64_t{a_q.zero_point} + plan.flip;",
        "both operands have the zero point of the first"),
    add("sub-sign", "plan.b_scale = b_sign * b_q.scale;", "plan.b_scale = b_q.scale;",
        "sub adds", op="sub"),
    add("sub-margin",
        "const double error = 0x1p-22 * (a_most * plan.a_multiplier + b_most * b_multiplier);",
        "const double error = 0x1p-22 * (a_most * plan.a_multiplier + b_most * plan.b_multiplier);",
        "the errors of the two products are held to cancel where sub subtracts them", op="sub"),
    add("sub-exact-float",
        "return a_most * plan.a_multiplier32 + b_most * std::fabs(plan.b_multiplier32) "
        "<= 0x1p24 * unit;",
        "return a_most * plan.a_multiplier32 + b_most * plan.b_multiplier32 <= 0x1p24 * unit;",
        "sums of sub that are no floats are held to be exact",
        test=("binary_test", "AddAndSub.*")),
    of("common/vectors-inl.h", "add")(
        "add-in-place", "if (i < count) leaf(i, count - i);",
        "if (i < count) leaf(i < lanes ? i : count - lanes, HWY_MIN(count, lanes));",
        "the last vector overlaps the one before, which is wrong in place"),
    of("common/binary_rows.h")(
        "binary-stride",
        "if (a.row_stride == columns && b.row_stride == columns && y.row_stride == columns) {",
        "if (a.row_stride == columns && y.row_stride == columns) {",
        "a second operand with gaps between its rows is read as if it had none",
        test=("binary_test", "Binary.StridesOfTheThreeMatricesAreIndependent")),
    mul("mul-sign", "const int64_t b_zero = int64_t{b_q.zero_point} + flip;",
        "const int64_t b_zero = int64_t{b_q.zero_point};",
        "the second operand is read as u8 with the zero point of s8"),
    mul("mul-overflow",
        "static_cast<__int128>(LargestDifference(a_zero)) * LargestDifference(b_zero) "
        "<= INT32_MAX &&",
        "static_cast<__int128>(LargestDifference(a_zero)) * LargestDifference(b_zero) "
        "<= INT64_MAX &&", "products of large zero points wrap"),
    mul("mul-tail", "const auto db = difference(hn::LoadN(dc, b + i, count - i), b_zero);",
        "const auto db = difference(hn::LoadN(dc, b, count - i), b_zero);",
        "the last products take the second operand from the start of the row"),

    pool("max-pool-clamp", "auto max = least;", "auto max = hn::Zero(d);",
         "max_pool has no lower clamp", op="max_pool"),
    pool("max-pool-sign", "const auto result = hn::Xor(hn::Min(max, most), flip);",
         "const auto result = hn::Min(hn::Xor(max, flip), most);",
         "s8 codes are clamped as if they were u8", op="max_pool"),
    pool("pool-dilation",
         "taps.row_step = g.dilation_h < g.in_h ? g.dilation_h * x.row_stride : 0;",
         "taps.row_step = x.row_stride;", "pools are not dilated down", op="max_pool"),
    pool("pool-spill", "size_t room = 257;  // 257 * 255 fits 16 bits", "size_t room = 1 << 20;",
         "sums of more than 257 codes wrap at 16 bits", op="global_avg_pool"),
    pool("avg-pool-count", "means.Write(taps, count_padding ? counted : inside, out);",
         "means.Write(taps, inside, out);", "padding is never counted"),
    pool("avg-pool-wide",
         "const __int128 correction = static_cast<__int128>(zero_) * "
         "static_cast<int64_t>(taps.rows) *",
         "const __int128 correction = static_cast<__int128>(zero_) *",
         "enormous zero points are subtracted once per column"),

    code_table("lookup-lane", "const auto bias = hn::Set(d, 0x70);",
               "const auto bias = hn::Set(d, 0x71);", "every sixteenth code maps to 0"),
    code_table("lookup-tail", "for (; i < count; ++i) y[i] = table[x[i]];",
               "for (; i + 1 < count; ++i) y[i] = table[x[i]];",
               "the last element of a long row is not written"),
    rescale_codes("rescale-codes-sign",
                  "const int value = is_signed ? static_cast<int8_t>(byte) : byte;",
                  "const int value = byte;", "s8 codes are read as u8"),

    of("rescale_codes.cc", "concat")(
        "concat-operand", "internal::RescaleMatrix(input.x, input.q, y_q, range, part);",
        "internal::RescaleMatrix(input.x, inputs[0].q, y_q, range, part);",
        "all inputs have the quantization of the first"),
    table("table-sign",
          "const Interval value = tanh ? Tanh(t, difference < 0) : Sigmoid(t, difference < 0);",
          "const Interval value = tanh ? Tanh(t, false) : Sigmoid(t, false);",
          "sigmoid and tanh of negative numbers are those of positive ones"),
    table("table-hard-swish", "const double value = argument * (argument + 3) / (6 * y_scale);",
          "const double value = argument * (difference + 3) / (6 * y_scale);",
          "hard-swish forgets a scale"),
    softmax("softmax-tail",
            "for (; i < count; ++i) total += static_cast<uint64_t>(t[largest - (x[i] ^ flip)]);",
            "for (; i + 1 < count; ++i) total += "
            "static_cast<uint64_t>(t[largest - (x[i] ^ flip)]);",
            "the last element is not in the sum"),
    softmax("softmax-rounding", ".half = static_cast<double>(half),", ".half = 0,",
            "shares are cut off instead of rounded"),
    softmax("softmax-long-row",
            "for (size_t code = 0; code <= largest; ++code) "
            "numerators[code ^ flip] = t[largest - code];",
            "for (size_t code = 0; code <= largest; ++code) numerators[code] = t[largest - code];",
            "rows of 256 s8 codes and more take the shares of other codes"),
    of("common/min_max.cc", "choose_qparams")(
        "min-max-tail", "const auto key = key_at(count - lanes);",
        "const auto key = key_at(i - lanes);", "the last values are not observed"),
    observer("observer-zero-point",
             "*zero_point = params.type == ElementType::kS8 ? 0 : all_codes ? 128 : "
             "(codes.lo + codes.hi) >> 1;",
             "*zero_point = params.type == ElementType::kS8 ? 0 : 128;",
             "symmetric u8 codes with fewer steps are centred on 128"),
    of("common/histogram.cc", "choose_qparams")(
        "histogram-search",
        "while (r > first && below[static_cast<size_t>(r)] > high) --r;",
        "while (r > first && below[static_cast<size_t>(r)] > low) --r;",
        "the search moves the upper end to the lower quantile"),

    dynamic("dynamic-zero-point",
            "const __int128 za = q.zero_point + CodesToUnsigned(type);",
            "const __int128 za = q.zero_point;",
            "s8 codes are shifted by 128, their zero point is not"),
    dynamic("dynamic-row-scale", "sums.Finish(impl_->epilogue, q.scale);",
            "sums.Finish(impl_->epilogue, quantizations[0].scale);",
            "every row of a block has the scale of the first"),
    dynamic("dynamic-reduce-range",
            "const int32_t steps = reduce_range ? 127 : 255;  // from code 0",
            "const int32_t steps = 255;  // from code 0", "ATen's rule ignores reduce_range"),
    dynamic("dynamic-not-finite",
            "if (!internal::MinMaxKeys{key, key}.AreFinite()) continue;",
            "if (key >= internal::KeyOf(HUGE_VALF)) continue;",
            "minus infinity chooses the scale"),
    dynamic("dynamic-scratch", "codes(scratch.Add(packed.channels == 0 ? 0 : rows * packed.depth)),",
            "codes(scratch.Add(packed.channels == 0 ? 0 : packed.depth)),",
            "the codes of a block overwrite each other's memory and what follows",
            test=("dynamic_linear_test", "DynamicLinear.Scratch*")),
    dynamic("dynamic-tasks", "keys.max = std::max(keys.max, keys_of(task)->max);",
            "keys.max = keys_of(task)->max;", "the largest value is that of the last thread",
            test=("dynamic_linear_test", "DynamicLinear.AnyNumberOfThreads*")),

    parallel("parallel-target", "const ScopedTarget target(hwy::TargetName(job.target));",
             'const ScopedTarget target("");', "other threads run the best instruction set"),
    parallel("parallel-environment", "const ScopedFpEnvironment fp_environment;", "",
             "a thread's rounding mode reaches the sums' scaling",
             after="const ScopedTarget target(hwy::TargetName(job.target));"),
    parallel("parallel-environment-alone", "const ScopedFpEnvironment fp_environment;", "",
             "the caller's rounding mode reaches the sums' scaling",
             after="if (tasks == 1) {  // also with a pool: waking a thread costs more than it gains"),
    parallel("parallel-last-block", "if (block >= job.blocks) return;",
             "if (block > job.blocks) return;", "one block too many is run", op="conv2d"),
    of("common/fp_environment.cc", "dequantize")(
        "environment-flush", "constexpr uint32_t kMxcsrDefault = 0x1F80;",
        "constexpr uint32_t kMxcsrDefault = 0x9F80;", "results that underflow become 0"),
    of("targets.cc")(
        "targets-index", "current = static_cast<int64_t>(i);", "current = 0;",
        "a forced instruction set is ignored; all would agree with each other",
        test=("kernels_test", "Targets.DispatchFollowsTheScopedTarget")),
    of("common/validate.cc")(
        "validate-overlap", "return shift < x_row || shift + y_row > stride;",
        "return shift < x_row;", "outputs that wrap onto the next row of the input are taken",
        test=("linear_validate_test", "RunValidation.*")),
]
