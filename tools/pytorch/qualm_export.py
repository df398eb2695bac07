# SPDX-License-Identifier: Apache-2.0
"""Writes what a quantized PyTorch model really computed as qualm case files (docs/pytorch.md).

    from qualm_export import record
    with record(model, "cases"):
        model(x)

Each quantized operator that runs inside becomes one file with its inputs, parameters and the
"observed" output; `qualm explain FILE` then tells which arithmetic produced it. Works with eager
and FX models, on any engine, with what PT2E converts, and with torchao's int8 layers: operators are
seen where PyTorch dispatches them, whoever calls them. Needs PyTorch 1.13 or newer.
"""
import json
import math
import os
import struct
import sys
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode

MAX_OUTPUTS = 1 << 24  # of a case file
MAX_PRODUCTS = 1 << 31

_DTYPES = {torch.quint8: "u8", torch.qint8: "s8"}
_PER_TENSOR = (torch.per_tensor_affine, torch.per_tensor_symmetric)


class _Cannot(Exception):
    """A case file cannot hold this call; the text says why."""


def _single(value):
    """The nearest float32."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def _text(value):
    """float32 as a case file has it."""
    if math.isnan(value):
        return "nan:%08x" % struct.unpack("<I", struct.pack("<f", value))
    return "inf" if value == math.inf else "-inf" if value == -math.inf else value.hex()


def _reals(tensor):
    return [_text(v) for v in tensor.detach().to(torch.float).reshape(-1).tolist()]


def _codes(tensor):
    return tensor.int_repr().reshape(-1).tolist()


def _weights(tensor, channels):
    """Codes of the first channels, the input channels last. PyTorch cannot permute a tensor with
    parameters per channel."""
    codes = tensor.int_repr()[:channels]
    return (codes.permute(0, 2, 3, 1) if codes.dim() == 4 else codes).reshape(-1).tolist()


def _dtype(tensor):
    if not tensor.is_quantized or tensor.dtype not in _DTYPES:
        raise _Cannot("tensors of %s" % tensor.dtype)
    return _DTYPES[tensor.dtype]


class _Writer:
    """One case file in the making: its fields, and what its note says."""

    def __init__(self):
        self.case = {"qualm_case": 1}
        self.notes = []

    def put(self, **fields):
        self.case.update(fields)

    def scale(self, value):
        """Scales are float64 in PyTorch and float32 in its arithmetic."""
        if _single(value) != value:
            self.notes.append("%r is no float32 and was rounded to one" % value)
        return _text(_single(value))

    def qparams(self, key, tensor, axis=None):
        """Scale and zero point of a tensor, as fields key_scale and key_zp."""
        if tensor.qscheme() in _PER_TENSOR:
            scale, zero_point = self.scale(tensor.q_scale()), tensor.q_zero_point()
        elif axis is not None and tensor.q_per_channel_axis() == axis:
            zero_points = tensor.q_per_channel_zero_points()
            if zero_points.is_floating_point():
                raise _Cannot("zero points that are no integers")
            scale = [self.scale(s) for s in tensor.q_per_channel_scales().tolist()]
            zero_point = zero_points.tolist()
            self.put(gran="channel")
        else:
            raise _Cannot("parameters along this axis")
        self.put(**{key + "_scale": scale, key + "_zp": zero_point})


def _matrix(tensor):
    """Rows of the last axis; a copy of one dimension more where there is only one."""
    if tensor.dim() == 0:
        raise _Cannot("tensors without dimensions")
    return tensor.reshape(-1, tensor.shape[-1]) if tensor.numel() else tensor.reshape(0, 1)


def _first_rows(writer, rows, limit, what="rows"):
    """How many of `rows` a file takes, at least one: an empty file would count as exact."""
    kept = max(0, min(rows, limit))
    if kept == 0 < rows:
        raise _Cannot("one of its %d %s has more outputs than a file takes" % (rows, what))
    if kept < rows:
        writer.notes.append("the first %d of %d %s" % (kept, rows, what))
    return kept


def _elementwise(writer, limit, *tensors):
    """The tensors as matrices of the same first rows, or of a part of the first."""
    matrices = [_matrix(t) for t in tensors]
    rows, columns = matrices[0].shape
    if all(not t.is_quantized or t.qscheme() in _PER_TENSOR for t in tensors):
        columns = _first_rows(writer, columns, limit, "elements of a row")
    kept = _first_rows(writer, rows, limit // max(1, columns))
    writer.put(M=kept, N=columns)
    return [m[:kept, :columns] for m in matrices]


def _in_memory_order(writer, limit, *tensors):
    """The tensors flat, as they lie in memory: vector code treats the tail another way. Cut behind
    whole vectors."""
    order = torch.channels_last if tensors[-1].dim() == 4 and tensors[-1].is_contiguous(
        memory_format=torch.channels_last) else torch.contiguous_format
    flat = []
    for tensor in tensors:
        if tensor.shape != tensors[-1].shape:
            raise _Cannot("operands of different shapes")
        dense = tensor.contiguous(memory_format=order)
        flat.append((dense.permute(0, 2, 3, 1) if order is torch.channels_last else dense)
                    .reshape(1, -1))
    count = flat[0].shape[1]
    if limit < min(count, 128):
        raise _Cannot("more elements than a file takes, which is too short for whole vectors")
    kept = count if count <= limit else _first_rows(writer, count, limit // 128 * 128, "elements")
    writer.put(M=1, N=kept)
    return [f[:, :kept] for f in flat]


# Operators: each fills the writer and returns the observed output --------------------------------


def _quantize(writer, limit, args, y):
    x, _, _ = args[:3]
    axis = args[3] if len(args) > 4 else None
    x, kept = _elementwise(writer, limit, x, y)
    if axis is not None and axis % args[0].dim() != args[0].dim() - 1:
        raise _Cannot("parameters along an axis that is not the last")
    writer.put(op="quantize", out_dtype=_dtype(y), x=_reals(x))
    writer.qparams("out", y, axis)
    return _codes(kept)


def _dequantize(writer, limit, args, y):
    axis = args[0].dim() - 1
    x, kept = _elementwise(writer, limit, args[0], y)
    writer.put(op="dequantize", x_dtype=_dtype(x), x=_codes(x))
    writer.qparams("x", args[0], axis)
    return _reals(kept)


def _sums(writer, x, w, y, bias, relu, channels):
    """What linear and convolutions have in common."""
    writer.put(x_dtype=_dtype(x), w_dtype=_dtype(w), out_dtype=_dtype(y), relu=relu)
    writer.qparams("x", x)
    writer.qparams("w", w, 0)
    writer.qparams("out", y)
    for key in ("w_scale", "w_zp"):
        if isinstance(writer.case[key], list):
            writer.case[key] = writer.case[key][:channels]
    if bias is not None:
        writer.put(bias=_reals(bias[:channels]))


def _linear(writer, limit, args, y, relu):
    x, packed = args[:2]
    w, bias = packed.unpack()
    rows, kept_y = _matrix(x), _matrix(y)
    (M, K), N = rows.shape, w.shape[0]
    limit = min(limit, MAX_PRODUCTS // max(1, K))
    N = _first_rows(writer, N, limit, "channels")
    M = _first_rows(writer, M, limit // max(1, N))
    writer.put(op="linear", M=M, N=N, K=K, x=_codes(rows[:M]), w=_weights(w, N))
    _sums(writer, x, w, y, bias, relu, N)
    return _codes(kept_y[:M, :N])


def _linear_dynamic(writer, limit, args, y, relu):
    """float32 x, of which the operator chooses scale and zero point: all of x."""
    x, packed, reduce_range = args[:3]
    w, bias = packed.unpack()
    rows, kept = _matrix(x), _matrix(y)
    (M, K), N = rows.shape, w.shape[0]
    limit = min(limit, MAX_PRODUCTS // max(1, K))
    if M > limit:
        raise _Cannot("more rows than a file takes, all of which decide about the scale")
    N = _first_rows(writer, N, limit // max(1, M), "channels")
    # QNNPACK takes no notice of it, as it warns.
    reduce_range = bool(reduce_range) and torch.backends.quantized.engine != "qnnpack"
    writer.put(op="dynamic_linear", M=M, N=N, K=K, w_dtype=_dtype(w), qparams_rule="aten",
               reduce_range=reduce_range, relu=relu, x=_reals(rows), w=_weights(w, N))
    writer.qparams("w", w, 0)
    for key in ("w_scale", "w_zp"):
        if isinstance(writer.case[key], list):
            writer.case[key] = writer.case[key][:N]
    if bias is not None:
        writer.put(bias=_reals(bias[:N]))
    return _reals(kept[:, :N])


def _images(tensor):
    """NHWC"""
    if tensor.dim() not in (3, 4):
        raise _Cannot("images of %d dimensions" % tensor.dim())
    if tensor.dim() == 3:
        tensor = tensor.unsqueeze(0)
    return tensor.permute(0, 2, 3, 1)


def _conv2d(writer, limit, args, y, relu):
    x, packed = args[:2]
    w, bias = packed.unpack()
    if w.dim() != 4:
        raise _Cannot("convolutions of %d dimensions" % (w.dim() - 2))
    images, out = _images(x), _images(y)
    batch, height, width, depth = images.shape
    per_image, channels, groups = out.shape[1] * out.shape[2], w.shape[0], packed.groups()
    limit = min(limit, MAX_PRODUCTS // max(1, w.shape[1] * w.shape[2] * w.shape[3]))
    # Whole groups of channels, with the input channels that they see.
    each = channels // groups
    if groups > 1:
        kept_groups = _first_rows(writer, groups, limit // max(1, per_image * each), "groups")
        kept = kept_groups * each
    else:
        kept_groups = 1
        kept = _first_rows(writer, channels, limit // max(1, per_image), "channels")
    batch = _first_rows(writer, batch, limit // max(1, per_image * kept), "images")
    depth = depth // groups * kept_groups
    pads = list(packed.padding())
    writer.put(op="depthwise" if groups == images.shape[3] > 1 else "conv2d", N=batch, H=height,
               W=width, IC=depth, OC=kept, R=w.shape[2], S=w.shape[3],
               stride=list(packed.stride()), pad=[pads[0], pads[0], pads[1], pads[1]],
               dilation=list(packed.dilation()), groups=kept_groups,
               x=_codes(images[:batch, :, :, :depth]), w=_weights(w, kept))
    _sums(writer, x, w, y, bias, relu, kept)
    return _codes(out[:batch, :, :, :kept])


def _operands(writer, limit, args, y, op, relu):
    a, b = args[:2]
    if not isinstance(b, torch.Tensor) or not b.is_quantized:
        raise _Cannot("a second operand that is no quantized tensor")
    a, b = a.expand(y.shape), b.expand(y.shape)
    flat_a, flat_b, flat_y = _in_memory_order(writer, limit, a, b, y)
    writer.put(op=op, x_dtype=_dtype(a), out_dtype=_dtype(y), relu=relu, a=_codes(flat_a),
               b=_codes(flat_b))
    for key, tensor in (("a", a), ("b", b), ("out", y)):
        writer.qparams(key, tensor)
    return _codes(flat_y)


def _concat(writer, limit, args, y, relu):
    inputs, dim = args[0], args[1] if len(args) > 1 else 0
    if len(inputs) != 2:
        raise _Cannot("a concatenation of %d tensors" % len(inputs))
    # All dimensions behind the axis belong to a column.
    dim %= y.dim()
    a, b, out = [t.reshape(math.prod(t.shape[:dim]), -1) for t in (inputs[0], inputs[1], y)]
    kept = _first_rows(writer, out.shape[0], limit // max(1, out.shape[1]))
    writer.put(op="concat", M=kept, NA=a.shape[1], NB=b.shape[1], x_dtype=_dtype(a),
               out_dtype=_dtype(y), relu=relu, a=_codes(a[:kept]), b=_codes(b[:kept]))
    for key, tensor in (("a", inputs[0]), ("b", inputs[1]), ("out", y)):
        writer.qparams(key, tensor)
    return _codes(out[:kept])


def _pair(value, default=None):
    if not value:
        return default
    return [value[0], value[-1]]


def _whole_images(writer, limit, out, vectors=1):
    """How many images and channels a file takes of `out`, NHWC. vectors: a cut of the channels must
    lie behind a multiple, so that none comes among the elements behind the last whole vector."""
    pixels, channels = out.shape[1] * out.shape[2], out.shape[3]
    most = limit // max(1, pixels)
    if most < channels:
        if most < vectors:
            raise _Cannot("in an image %s more outputs than a file takes" % (
                "%d channels have" % vectors if vectors > 1 else "one channel has"))
        channels = _first_rows(writer, channels, most // vectors * vectors, "channels")
    return _first_rows(writer, out.shape[0], limit // max(1, pixels * channels), "images"), channels


def _max_pool(writer, limit, args, y):
    x, kernel = args[0], _pair(args[1])
    options = list(args[2:]) + [None] * (6 - len(args))
    stride, padding = _pair(options[0], kernel), _pair(options[1], [0, 0])
    dilation = _pair(options[2], [1, 1])
    images, out = _images(x), _images(y)
    batch, channels = _whole_images(writer, limit, out)
    writer.put(op="max_pool", N=batch, H=images.shape[1], W=images.shape[2], C=channels,
               R=kernel[0], S=kernel[1], stride=stride,
               pad=[padding[0], padding[0], padding[1], padding[1]], dilation=dilation,
               ceil_mode=bool(options[3]), x_dtype=_dtype(x), x=_codes(images[:batch, :, :, :channels]))
    writer.qparams("x", x)
    return _codes(out[:batch, :, :, :channels])


def _avg_pool(writer, limit, args, y):
    x, kernel = args[0], _pair(args[1])
    stride, padding, ceil_mode, count_include_pad, divisor = args[2:7]
    if divisor is not None:
        raise _Cannot("a divisor that is not the number of positions")
    padding = _pair(padding, [0, 0])
    writer.put(op="avg_pool", R=kernel[0], S=kernel[1], stride=_pair(stride, kernel),
               pad=[padding[0], padding[0], padding[1], padding[1]], ceil_mode=bool(ceil_mode),
               count_include_pad=bool(count_include_pad))
    return _average(writer, limit, x, y)


def _global_avg_pool(writer, limit, args, y):
    if list(y.shape[-2:]) != [1, 1]:
        raise _Cannot("an adaptive pool of more than one output pixel")
    writer.put(op="global_avg_pool")
    return _average(writer, limit, args[0], y)


def _average(writer, limit, x, y):
    images, out = _images(x), _images(y)
    batch, channels = _whole_images(writer, limit, out, vectors=64)
    writer.put(N=batch, H=images.shape[1], W=images.shape[2], C=channels, x_dtype=_dtype(x),
               out_dtype=_dtype(y), x=_codes(images[:batch, :, :, :channels]))
    writer.qparams("x", x)
    writer.qparams("out", y)
    return _codes(out[:batch, :, :, :channels])


def _table(writer, limit, args, y, function):
    x, out = _in_memory_order(writer, limit, args[0], y)
    writer.put(op="table", function=function, x_dtype=_dtype(x), out_dtype=_dtype(y), x=_codes(x))
    if function == "leaky_relu":
        writer.put(negative_slope=writer.scale(float(args[1])))
    writer.qparams("x", args[0])
    writer.qparams("out", y)
    return _codes(out)


# PT2E: float32 operators between quantized_decomposed.dequantize_* and quantize_* ----------------

_PLAIN = {torch.uint8: (0, 255), torch.int8: (-128, 127)}
# They hand all elements on in their order.
_KEEPS_ORDER = {"aten::view", "aten::_unsafe_view", "aten::detach", "aten::alias", "aten::clone",
                "aten::squeeze", "aten::unsqueeze"}


class _Layer:
    """What _linear and _conv2d ask of packed weights."""

    def __init__(self, w, bias, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
        self.unpack = lambda: (w, bias)
        self.stride, self.padding = lambda: stride, lambda: padding
        self.dilation, self.groups = lambda: dilation, lambda: groups


class _Result:
    """A float32 tensor that an operator made of dequantized ones: `fill` writes it down once it is
    quantized."""

    def __init__(self, name, layer, fill, sums, relu=False):
        self.name, self.layer, self.fill, self.sums, self.relu = name, layer, fill, sums, relu
        self.uses = []  # the quantize that read it, of its relu too

    def after_relu(self):
        other = _Result(self.name, self.layer, self.fill, self.sums, relu=True)
        other.uses = self.uses
        return other


class _Decomposed:
    """Follows tensors from a dequantize to the quantize that reads what was made of them.

    record: writes the files. names: of the parameters by id, from which the layers get their names,
    because the modules of an exported model do not run.
    """

    def __init__(self, recorder, names):
        self._recorder, self._names = recorder, names
        self._known = {}  # id -> (weak reference, what the tensor is)
        self._results = []

    def _is(self, tensor):
        """A quantized tensor with the codes that were dequantized, a _Result, or None."""
        if not isinstance(tensor, torch.Tensor):
            return None
        reference, what = self._known.get(id(tensor), (None, None))
        return what if reference is not None and reference() is tensor else None

    def _set(self, tensor, what):
        if what is not None:
            self._known[id(tensor)] = (weakref.ref(tensor), what)

    def see(self, name, func, args, y):
        """Whether the operator is one of quantized_decomposed that is dealt with."""
        if name in ("quantized_decomposed::quantize_per_tensor",
                    "quantized_decomposed::quantize_per_channel"):
            self._quantize(name, args, y)
            return True
        if name in ("quantized_decomposed::dequantize_per_tensor",
                    "quantized_decomposed::dequantize_per_channel"):
            self._dequantize(name, args, y)
            return True
        if name in _KEEPS_ORDER:
            self._move(func, args, y)
        elif name == "aten::t" and isinstance(self._is(args[0]), torch.Tensor):
            self._set(y, (self._is(args[0]),))  # PyTorch cannot transpose codes of channels
        elif name == "aten::relu" and isinstance(self._is(args[0]), _Result):
            self._set(y, self._is(args[0]).after_relu())
        elif name in ("aten::addmm", "aten::mm", "aten::linear", "aten::convolution"):
            self._sums(name, args, y)
        elif name in ("aten::add", "aten::mul", "aten::sub"):
            self._pair(name, args, y)
        return False

    def left_out(self):
        """What was never quantized."""
        return [(r.layer, r.name, "nothing quantizes its float32 output" + (
            ", whose last bits depend on the order of additions" if r.sums else ""))
                for r in self._results if not r.uses]

    def _codes(self, name, tensor, scale, zero_point, axis):
        """The plain tensor of codes as a quantized one."""
        if tensor.dtype not in _PLAIN:
            raise _Cannot("codes of %s" % tensor.dtype)
        if name.endswith("tensor"):
            return torch._make_per_tensor_quantized_tensor(tensor, float(scale), int(zero_point))
        if zero_point is None:
            zero_point = torch.zeros(len(scale))
        return torch._make_per_channel_quantized_tensor(
            tensor, scale.double(), zero_point.to(torch.int64), axis)

    def _quantize(self, name, args, y):
        what = self._is(args[0])
        axis = args[3] if name.endswith("channel") else None
        low, high = (int(v) for v in (args[3:5] if axis is None else args[4:6]))
        try:
            codes = self._codes(name, y, args[1], args[2], axis)
        except _Cannot as reason:
            self._recorder.leave_out(name, str(reason))
            return

        def fill(writer):
            if (low, high) != _PLAIN[y.dtype]:
                writer.put(out_min=low, out_max=high)
            if isinstance(what, _Result):
                if what.sums:
                    writer.notes.append("float32 sums, in an order that PyTorch leaves open")
                return what.fill(writer, self._recorder.limit, codes, what.relu)
            if isinstance(what, torch.Tensor):
                x, out = _elementwise(writer, self._recorder.limit, what, codes)
                writer.put(op="rescale", x_dtype=_dtype(x), out_dtype=_dtype(out), x=_codes(x))
                writer.qparams("x", what)
                writer.qparams("out", codes)
                return _codes(out)
            return _quantize(writer, self._recorder.limit,
                             (args[0], None, None) + (() if axis is None else (axis, None)), codes)

        if isinstance(what, _Result):
            what.uses.append(name)
            self._recorder.write(what.name, fill, codes, what.layer)
        else:
            self._recorder.write(name, fill, codes)

    def _dequantize(self, name, args, y):
        try:
            codes = self._codes(name, *args[:4])
            if y.dtype != torch.float:
                raise _Cannot("real numbers of %s" % y.dtype)
        except _Cannot as reason:
            self._recorder.leave_out(name, str(reason))
            return
        self._set(y, codes)
        # Weights are constants: what is read of them stands in their layer.
        if id(args[0]) not in self._names:
            self._recorder.write(
                name, lambda writer: _dequantize(writer, self._recorder.limit, (codes,), y), y)

    def _move(self, func, args, y):
        what = self._is(args[0])
        if isinstance(what, torch.Tensor):
            try:
                what = func(what, *args[1:])
            except (RuntimeError, NotImplementedError):
                return
        self._set(y, what if not isinstance(what, tuple) else None)

    def _sums(self, name, args, y):
        """A layer of dequantized x and w."""
        window, write = (), _linear
        if name == "aten::convolution":
            x, w, bias = args[:3]
            window, write = (*args[3:6], args[8]), _conv2d
            if args[6]:
                return  # transposed
        elif name == "aten::addmm":
            bias, x, w = args[:3]
            if tuple(args[3:5]) != (1, 1) or bias.dim() != 1:
                return
        else:
            x, w, bias = (*args[:2], None) if name == "aten::mm" else args[:3]
        codes, weights = self._is(x), self._is(w)
        if name in ("aten::addmm", "aten::mm"):
            weights = weights[0] if isinstance(weights, tuple) else None
        if isinstance(codes, torch.Tensor) and isinstance(weights, torch.Tensor):
            layer = _Layer(weights, bias, *window)
            self._result(name, y, bias, True, lambda writer, limit, out, relu: write(
                writer, limit, (codes, layer), out, relu))

    def _pair(self, name, args, y):
        operator = name.partition("::")[2]
        a, b = self._is(args[0]), self._is(args[1])
        factor = args[2] if len(args) > 2 else 1
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and factor == 1:
            self._result(name, y, None, False, lambda writer, limit, out, relu: _operands(
                writer, limit, (a, b), out, operator, relu))

    def _result(self, name, y, bias, sums, fill):
        layer = self._names.get(id(bias), "").rpartition(".")[0]
        result = _Result(name, layer or self._recorder.layer(), fill, sums)
        self._results.append(result)
        self._set(y, result)


# torchao ----------------------------------------------------------------------------------------


def _torchao_linear(writer, limit, layer, x, y):
    """nn.Linear whose weight is torchao's Int8Tensor."""
    w, how = layer.weight, layer.weight.act_quant_kwargs
    rows = type(how.granularity).__name__ if how is not None else "PerRow"
    if w.act_quant_scale is not None or getattr(w, "act_pre_scale", None) is not None:
        raise _Cannot("activations that were scaled before")
    if how is not None and (how.mapping_type.name != "SYMMETRIC" or how.reduce_range
                            or rows not in ("PerRow", "PerTensor")):
        raise _Cannot("activations other than symmetric ones of 8 bits")
    if x.dtype != torch.float or y.dtype != torch.float:
        raise _Cannot("activations of %s" % x.dtype)
    if w.scale.numel() not in (1, w.qdata.shape[0]):
        raise _Cannot("several scales in a channel")
    x, kept = _matrix(x), _matrix(y)
    N, K = w.qdata.shape
    limit = min(limit, MAX_PRODUCTS // max(1, K))
    N = _first_rows(writer, N, limit, "channels")
    cut = x.shape[0] if rows == "PerRow" else None
    M = _first_rows(writer, x.shape[0], limit // max(1, N)) if cut is not None else x.shape[0]
    scales = w.scale.reshape(-1).tolist()
    per_channel = len(scales) > 1
    if how is None:  # x is multiplied as it is, in an order that PyTorch leaves open
        writer.put(op="linear", x_dtype="f32", out_dtype="f32", contract="sum")
    else:
        writer.put(op="dynamic_linear", qparams_rule="observer", symmetric=True, dtype="s8",
                   x_gran="row" if rows == "PerRow" else "tensor")
    writer.put(M=M, N=N, K=K, w_dtype="s8",
               gran="channel" if per_channel else "tensor",
               w_scale=[writer.scale(s) for s in scales[:N]] if per_channel
               else writer.scale(scales[0]),
               w_zp=[0] * N if per_channel else 0, x=_reals(x[:M]),
               w=w.qdata[:N].reshape(-1).tolist())
    if layer.bias is not None:
        writer.put(bias=_reals(layer.bias[:N]))
    return _reals(kept[:M, :N])


# Operators that hand codes on, or read a fact about a tensor. Views are known by their schema.
_MOVES = {"aten::clone", "aten::contiguous", "aten::_to_copy", "aten::copy_", "aten::int_repr",
          "aten::equal", "aten::is_same_size", "aten::_unsafe_view"}
_MOVES_BEGIN = ("aten::empty", "aten::q_", "aten::_empty", "aten::new_empty")

_OPERATORS = {
    "aten::quantize_per_tensor": _quantize,
    "aten::quantize_per_channel": _quantize,
    "aten::dequantize": _dequantize,
    "quantized::linear": lambda *a: _linear(*a, relu=False),
    "quantized::linear_relu": lambda *a: _linear(*a, relu=True),
    "quantized::linear_dynamic": lambda *a: _linear_dynamic(*a, relu=False),
    "quantized::linear_relu_dynamic": lambda *a: _linear_dynamic(*a, relu=True),
    "quantized::conv2d": lambda *a: _conv2d(*a, relu=False),
    "quantized::conv2d_relu": lambda *a: _conv2d(*a, relu=True),
    "quantized::add": lambda *a: _operands(*a, op="add", relu=False),
    "quantized::add_relu": lambda *a: _operands(*a, op="add", relu=True),
    "quantized::mul": lambda *a: _operands(*a, op="mul", relu=False),
    "quantized::mul_relu": lambda *a: _operands(*a, op="mul", relu=True),
    "quantized::cat": lambda *a: _concat(*a, relu=False),
    "quantized::cat_relu": lambda *a: _concat(*a, relu=True),
    "aten::cat": lambda *a: _concat(*a, relu=False),
    "aten::quantized_max_pool2d": _max_pool,
    "quantized::max_pool2d": _max_pool,
    "aten::avg_pool2d": _avg_pool,
    "aten::_adaptive_avg_pool2d": _global_avg_pool,
    "aten::adaptive_avg_pool2d": _global_avg_pool,
    "aten::relu": lambda *a: _table(*a, function="relu"),
    "aten::leaky_relu": lambda *a: _table(*a, function="leaky_relu"),
    "quantized::leaky_relu": lambda *a: _table(*a, function="leaky_relu"),
    "quantized::hardswish": lambda *a: _table(*a, function="hardswish"),
    "aten::sigmoid": lambda *a: _table(*a, function="sigmoid"),
    "quantized::sigmoid": lambda *a: _table(*a, function="sigmoid"),
    "aten::tanh": lambda *a: _table(*a, function="tanh"),
}


class record(TorchDispatchMode):  # pylint: disable=invalid-name
    """Writes a case file for every quantized operator that runs inside a `with` of it.

    model: names the layers in file names and notes; None if there is none.
    folder: where the files go, made if it is not there. Files are numbered in the order of calls.
    limit: outputs that a file takes at most. Larger layers are cut to their first rows, images or
        channels, and the file's note says so.

    reference: the model before it was converted (float32; names of its modules as in `model`; a copy,
        where converting changes it), to be called inside the `with` too, with the same input. Of each layer that ran once and gave one
        file its output goes beside it as NAME.reference.npy: `qualm explain FOLDER` then tells what
        quantization costs and what the kernel adds.

    Afterwards `files` lists what was written, `operators` of what, `references` the files beside
    them, and `left_out` the
    quantized calls that no case file can hold, as (layer, operator, reason).
    """

    def __init__(self, model, folder, limit=1 << 16, reference=None):
        super().__init__()
        self.folder = folder
        self.limit = min(limit, MAX_OUTPUTS)
        self.files = []
        self.operators = []
        self.references = []
        self.left_out = []
        self._model = model
        self._reference = reference
        for name, module in reference.named_modules() if reference is not None else ():
            kind = type(module)
            if (kind.__module__.startswith("torch.") and ".quantized." in kind.__module__
                    and not kind.__name__.endswith("FloatFunctional")):
                raise ValueError(
                    "reference: its module %s is converted. convert_fx(m) and convert(m, "
                    "inplace=True) change m: give what copy.deepcopy(m) made before" % name)
        self._floats = {}  # layer -> outputs of the reference
        self._modules = {}  # of the reference
        self._written = {}  # layer -> (file, case, full shape) of what it wrote
        self._layers = []
        self._hooks = []
        os.makedirs(folder, exist_ok=True)

    def __enter__(self):
        def enter(name):
            def hook(_module, _inputs):
                self._layers.append(name)
            return hook

        def leave(module, inputs, output):
            name = self._layers.pop()
            weight = getattr(module, "weight", None)
            if isinstance(module, torch.nn.Linear) and hasattr(weight, "act_quant_kwargs"):
                self.write("torchao linear", lambda writer: _torchao_linear(
                    writer, self.limit, module, inputs[0], output), output, name)

        names = {}
        if self._model is not None:
            for named in (self._model.named_buffers(), self._model.named_parameters()):
                names.update((id(tensor), name) for name, tensor in named)
            for name, module in self._model.named_modules():
                self._hooks.append(module.register_forward_pre_hook(enter(name)))
                self._hooks.append(module.register_forward_hook(leave))
        if self._reference is not None:
            def keep(name):
                def hook(_module, _inputs, output):
                    if isinstance(output, torch.Tensor) and not output.is_quantized:
                        self._floats.setdefault(name, []).append(output.detach())
                return hook

            self._modules = dict(self._reference.named_modules())
            for name, module in self._modules.items():
                if name:
                    self._hooks.append(module.register_forward_hook(keep(name)))
        self._decomposed = _Decomposed(self, names)
        return super().__enter__()

    def __exit__(self, *exception):
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._layers = [], []
        left = super().__exit__(*exception)
        self.left_out += self._decomposed.left_out()
        self._write_references()
        return left

    def _write_references(self):
        """Outputs of the reference beside the case files, cut and laid out as these are."""
        for layer, written in self._written.items():
            outputs = self._floats.get(layer, [])
            if len(written) != 1 or len(outputs) != 1:
                continue  # which output belongs to which file nobody can tell
            path, shape, count, relu, images, weights = written[0]
            values = outputs[0].to(torch.float32)
            if list(values.shape) != shape:
                continue
            if not _has_weights(self._modules.get(layer), weights):
                self.leave_out("reference", "its weights are others, as where a BatchNorm was folded "
                               "in: expected the model that was prepared, before convert()", layer)
                continue
            rows = (values.permute(0, 2, 3, 1) if images else values).reshape(-1)[:count]
            if relu:
                rows = torch.relu(rows)
            file = path[:-len(".case.json")] + ".reference.npy"
            with open(file, "wb") as out:
                out.write(_npy(rows))
            self.references.append(file)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        y = func(*args, **(kwargs or {}))
        name = func._schema.name
        inputs = [args[0]] if not isinstance(args[0] if args else None, (list, tuple)) else args[0]
        tensors = [t for t in list(inputs) + [y] if isinstance(t, torch.Tensor)]
        is_quantized = any(t.is_quantized for t in tensors)
        if not is_quantized and isinstance(y, torch.Tensor) and self._decomposed.see(
                name, func, _positional(func, args, kwargs or {}), y):
            return y
        if name in _OPERATORS and (is_quantized or name.endswith("_dynamic")):
            positional = _positional(func, args, kwargs or {})
            self.write(name, lambda writer: _OPERATORS[name](writer, self.limit, positional, y), y)
        elif (is_quantized or "quantized" in name) and not _only_moves(func):
            self.leave_out(name, _why_not(func))
        return y

    def layer(self):
        """The module that runs."""
        return next((name for name in reversed(self._layers) if name), "model")

    def leave_out(self, name, reason, layer=None):
        self.left_out.append((layer or self.layer(), name, reason))

    def write(self, name, fill, y, layer=None):
        """One file, which fill(writer) fills; it returns the observed output. y: all of it."""
        layer = layer or self.layer()
        writer = _Writer()
        try:
            observed = fill(writer)
        except _Cannot as reason:
            self.leave_out(name, str(reason), layer)
            return
        except Exception as error:  # pylint: disable=broad-except
            # An error here must not end the model's own run.
            self.leave_out(name, "not understood: %r" % error, layer)
            return
        by = "PyTorch " + torch.__version__
        if name in _OPERATORS:
            by += ", engine " + torch.backends.quantized.engine
        writer.put(note="; ".join(["%s of layer %s" % (name, layer)] + writer.notes),
                   observed={"by": by, "y": observed})
        path = os.path.join(self.folder, "%03d-%s-%s.case.json" % (
            len(self.files), layer.replace("/", "_"), writer.case["op"]))
        with open(path, "w", encoding="utf-8") as file:
            fields = ["  %s: %s" % (json.dumps(k), json.dumps(v)) for k, v in writer.case.items()]
            file.write("{\n" + ",\n".join(fields) + "\n}\n")
        self.files.append(path)
        self.operators.append(name)
        # The outputs of a file are the first ones of the layer, images with their channels last.
        images = "R" in writer.case
        cut = any(note.endswith((" channels", " groups")) for note in writer.notes)
        if y.is_quantized and not cut and (images or y.dim() <= 3):
            self._written.setdefault(layer, []).append(
                (path, list(y.shape), len(observed), bool(writer.case.get("relu")), images,
                 {key: writer.case[key] for key in ("w", "w_scale", "w_zp") if key in writer.case}))


def _has_weights(module, case):
    """Whether the codes are the module's weights, but for a step in a few of them."""
    weight = getattr(module, "weight", None)
    if not case or not isinstance(weight, torch.Tensor) or weight.is_quantized:
        return True
    real = weight.detach().to(torch.double)
    real = (real.permute(0, 2, 3, 1) if real.dim() == 4 else real).reshape(-1)[:len(case["w"])]
    codes = torch.tensor(case["w"], dtype=torch.double)
    if len(real) != len(codes) or not len(codes):
        return True
    scales, zeros = ([v] if not isinstance(v, list) else v for v in (case["w_scale"], case["w_zp"]))
    scales = torch.tensor([float.fromhex(s) for s in scales], dtype=torch.double).reshape(-1, 1)
    zeros = torch.tensor(zeros, dtype=torch.double).reshape(-1, 1)
    steps = real.reshape(len(scales), -1) / scales - (codes.reshape(len(scales), -1) - zeros)
    return bool((steps.abs() > 1).double().mean() < 0.05)


def _npy(values):
    """One axis of float32 in NumPy's format, without NumPy."""
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }" % values.numel()
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return (b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
            + struct.pack("<%df" % values.numel(), *values.tolist()))


def _written_over(func):
    return any(a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments)


def _only_moves(func):
    name = func._schema.name
    is_view = any(r.alias_info is not None for r in func._schema.returns)
    return (name in _MOVES or name.startswith(_MOVES_BEGIN) or name.endswith("pack")
            or (is_view and not _written_over(func)))


def _why_not(func):
    if _written_over(func):
        return "it writes over its input, which is gone when it can be seen"
    if func._schema.name.endswith("_dynamic"):
        return "it quantizes and dequantizes inside"
    return "not an operation of case files"


def _positional(func, args, kwargs):
    """All arguments in the order of the schema."""
    names = [argument.name for argument in func._schema.arguments]
    args = list(args)
    for argument, name in list(zip(func._schema.arguments, names))[len(args):]:
        args.append(kwargs.get(name, argument.default_value))
    return args


if __name__ == "__main__":
    sys.exit(__doc__)
