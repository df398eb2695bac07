#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the weight files of this folder and, small, the first inputs of corpus/fuzz/weights_reader.

    corpus/layers/make_layers.py [--check]     --check compares, and exits 1 where a file is behind

No library: .npy, .safetensors and the protobuf of ONNX are written byte by byte, so that a second
implementation of each format meets the readers.
"""
import json
import os
import random
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
FUZZ = os.path.join(HERE, "..", "fuzz", "weights_reader")


def npy(descr, shape, raw):
    header = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, tuple(shape))
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + raw


def safetensors(tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, dtype, shape, raw in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


# Protobuf: a field is (number, value); an int is a varint, bytes and str are themselves.
def varint(value):
    value &= (1 << 64) - 1
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def message(*fields):
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            value = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


FLOAT, UINT8, INT8 = 1, 2, 3


def initializer(name, kind, dims, raw):
    return (5, message(*[(1, d) for d in dims], (2, kind), (8, name), (9, raw)))


def outside(name, kind, dims, **entries):
    """An initializer whose data lies in another file."""
    fields = [(13, message((1, key), (2, str(value)))) for key, value in entries.items()]
    return (5, message(*[(1, d) for d in dims], (2, kind), (8, name), *fields, (14, 1)))


def node(op, inputs, outputs, **attributes):
    fields = [(1, i) for i in inputs] + [(2, o) for o in outputs] + [(4, op)]
    fields += [(5, message((1, key), (3, value), (20, 2))) for key, value in attributes.items()]
    return (1, message(*fields))


def scalar(name, value):
    return initializer(name, FLOAT, [], struct.pack("<f", value))


def onnx(*graph):
    return message((1, 8), (7, message(*graph)), (8, message((2, 13))))


def gaussian(rng, count, spread=3.0):
    values = [max(-128, min(127, round(rng.gauss(0, 127 / spread)))) for _ in range(count)]
    return struct.pack("%db" % count, *values)


def transposed(raw, rows, columns):
    return bytes(raw[r * columns + c] for c in range(columns) for r in range(rows))


def model(rng, n, k):
    """One layer of each kind that the reader knows; fc is stored as MatMul has it, [K,N]."""
    fc = gaussian(rng, n * k)
    conv = gaussian(rng, n * 4 * 9)
    depthwise = gaussian(rng, 8 * 9, 1.5)
    return onnx(
        initializer("conv.weight", INT8, [n, 4, 3, 3], conv), scalar("s", 0.02),
        initializer("zu", UINT8, [], b"\x72"), initializer("zs", INT8, [], b"\x00"),
        node("QLinearConv", ["x", "s", "zu", "conv.weight", "s", "zs", "s", "zu"], ["a"]),
        initializer("depthwise.weight", INT8, [8, 1, 3, 3], depthwise),
        initializer("scales", FLOAT, [8], struct.pack("<8f", *[0.01 * (i + 1) for i in range(8)])),
        initializer("zeros", INT8, [8], bytes(8)),
        node("DequantizeLinear", ["depthwise.weight", "scales", "zeros"], ["dw"], axis=0),
        node("Conv", ["a", "dw"], ["b"], group=8),
        initializer("fc.weight", INT8, [k, n], transposed(fc, n, k)),
        node("QLinearMatMul", ["b", "s", "zu", "fc.weight", "s", "zs", "s", "zu"], ["y"]))


def files():
    rng = random.Random(17)
    n, k = 16, 64
    fc = gaussian(rng, n * k, 3.2)
    conv = gaussian(rng, 8 * 6 * 9)
    real = [rng.gauss(0, 0.05) for _ in range(n * k)]
    yield "fc.npy", npy("|i1", [n, k], fc)
    yield "mixed.safetensors", safetensors([
        ("fc.weight", "I8", [n, k], fc), ("conv.weight", "I8", [8, 6, 3, 3], conv),
        ("fc.bias", "F32", [n], struct.pack("<%df" % n, *real[:n])),
        ("head.weight", "F16", [2, 2], bytes(8))])
    yield "float.safetensors", safetensors([
        ("fc.weight", "F32", [n, k], struct.pack("<%df" % (n * k), *real))])
    yield "model.onnx", model(rng, 8, 24)
    # MatMul has weights as [K,N].
    yield "external.onnx", onnx(
        outside("fc.weight", INT8, [k, n], location="external.bin", offset=64, length=n * k),
        node("MatMulInteger", ["x", "fc.weight"], ["y"]))
    yield "external.bin", bytes(64) + transposed(fc, n, k)


def seeds():
    rng = random.Random(19)
    w = gaussian(rng, 6)
    yield "linear.npy", npy("|i1", [2, 3], w)
    yield "float.npy", npy("<f4", [2, 1], struct.pack("<2f", 1, -0.5))
    yield "conv.npy", npy("|u1", [2, 1, 1, 3], w)
    yield "two.safetensors", safetensors([("a", "I8", [2, 3], w), ("b", "F32", [1, 1], bytes(4))])
    yield "half.safetensors", safetensors([
        ("a", "F16", [1, 2], struct.pack("<2H", 0x3C00, 0x8001)), ("b", "BF16", [1, 1], struct.pack("<H", 0x3F80))])
    yield "empty.safetensors", safetensors([])
    yield "model.onnx", model(rng, 2, 3)
    yield "graph.onnx", graph(w)
    packed = b"".join(varint(v) for v in (1, 2, -3, 127))
    yield "external.onnx", onnx(outside("w", INT8, [2, 2], location="../x", offset=0),
                                node("MatMulInteger", ["x", "w"], ["y"]))
    yield "integers.onnx", onnx(
        (5, message((1, varint(2) + varint(2)), (2, INT8), (5, packed), (8, "w"))),
        node("MatMulInteger", ["x", "w"], ["y"]))


def port(field, name, kind, *sizes):
    """An input (11) or output (12) of a graph; a size that is a text has that name."""
    shape = [(1, message((2, size) if isinstance(size, str) else (1, size))) for size in sizes]
    return (field, message((1, name), (2, message((1, message((1, kind), (2, message(*shape))))))))


def graph(w):
    """What a graph has beside weights: ports, names, domains, attributes of every kind."""
    number = varint(2 << 3 | 5) + struct.pack("<f", 0.25)
    numbers = (7, struct.pack("<2f", 1, -2))
    constant = message((1, "value"), (5, message((1, 2), (2, 7), (7, varint(3) + varint(1 << 62)))), (20, 4))
    return onnx(
        port(11, "x", FLOAT, "batch", 3), initializer("w", INT8, [3, 2], w),
        initializer("shape", 7, [2], struct.pack("<2q", -1, 2)), scalar("s", 0.02),
        (1, message((2, "c"), (4, "Constant"), (5, constant))),
        (1, message((1, "x"), (2, "r"), (3, "relu"), (4, "LeakyRelu"), (5, message((1, "alpha")) + number))),
        (1, message((1, "r"), (2, "q"), (2, "qs"), (2, "qz"), (4, "DynamicQuantizeLinear"))),
        (1, message((1, "q"), (1, "w"), (1, "qz"), (2, "sum"), (4, "MatMulInteger"))),
        (1, message((1, "sum"), (1, ""), (2, "y"), (4, "Odd"), (7, "com.microsoft"),
                    (5, message((1, "perm"), (8, varint(1) + varint(0)), (20, 7))),
                    (5, message((1, "axes"), (8, 1), (8, -1), (20, 7))),
                    (5, message((1, "f"), numbers, (20, 6))),
                    (5, message((1, "auto_pad"), (4, "SAME_UPPER"), (20, 3))))),
        port(12, "y", FLOAT, "batch", 2))


def main():
    check = sys.argv[1:] == ["--check"]
    behind = []
    for folder, made in ((HERE, files()), (FUZZ, seeds())):
        for name, data in made:
            path = os.path.join(folder, name)
            if check:
                if not os.path.exists(path) or open(path, "rb").read() != data:
                    behind.append(path)
            else:
                with open(path, "wb") as file:
                    file.write(data)
    for path in behind:
        print(path + " is not what make_layers.py writes")
    sys.exit(1 if behind else 0)


main()
