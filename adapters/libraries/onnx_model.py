# SPDX-License-Identifier: Apache-2.0
"""Writes an ONNX model: the few messages of onnx.proto that it takes, by field number, as
onnxruntime_model.mjs does."""
import struct

MS = "com.microsoft"
FLOAT = 1
# TensorProto.DataType, by NumPy's
ELEMENT = {"float32": FLOAT, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6}
# and of floats that NumPy does not have or need not know, by qualm's
FLOATS = {"f32": FLOAT, "f16": 10, "bf16": 16, "f8e4m3fn": 17, "f8e4m3fnuz": 18, "f8e5m2": 19,
          "f8e5m2fnuz": 20, "f8e8m0fnu": 24}
# and of integers that are fed as bytes and converted: u4 and s4 from opset 21 on, the others from 25
SMALL = {"u4": 21, "s4": 22, "u2": 25, "s2": 26}


def varint(value):
    value &= 2**64 - 1  # negative integers are 64-bit two's complement
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(field, value):
    return varint(field << 3) + varint(value)


def content(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def attribute(name, value):
    """AttributeProto: name 1, f 2, i 3, s 4, ints 8, type 20 (1 FLOAT, 2 INT, 3 STRING, 7 INTS)."""
    if isinstance(value, (list, tuple)):
        return content(1, name) + b"".join(integer(8, v) for v in value) + integer(20, 7)
    if isinstance(value, float):
        return content(1, name) + varint(2 << 3 | 5) + struct.pack("<f", value) + integer(20, 1)
    if isinstance(value, str):
        return content(1, name) + content(4, value) + integer(20, 3)
    return content(1, name) + integer(3, value) + integer(20, 2)


def value_info(name, dtype, shape=None):
    """ValueInfoProto: name 1, type 2; TypeProto: tensor_type 1; TypeProto.Tensor: elem_type 1, shape
    2; TensorShapeProto: dim 1, dim_value 1. No shape: any."""
    tensor = integer(1, FLOATS[dtype] if dtype in FLOATS else ELEMENT[dtype])
    if shape is not None:
        tensor += content(2, b"".join(content(1, integer(1, size)) for size in shape))
    return content(1, name) + content(2, content(1, tensor))


def initializer(name, values):
    """TensorProto: dims 1, data_type 2, name 8, raw_data 9 (little endian)."""
    return (b"".join(integer(1, size) for size in values.shape) +
            integer(2, ELEMENT[values.dtype.name]) + content(8, name) +
            content(9, values.tobytes()))


def node(operator, inputs, outputs, domain="", **attributes):
    """NodeProto: input 1, output 2, op_type 4, attribute 5, domain 7. `inputs` and `outputs` are
    names between blanks, "-" is an input that is left out."""
    return (b"".join(content(1, "" if name == "-" else name) for name in inputs.split()) +
            b"".join(content(2, name) for name in outputs.split()) + content(4, operator) +
            b"".join(content(5, attribute(name, value)) for name, value in attributes.items()) +
            content(7, domain))


def model(nodes, inputs, constants, output, opset=13, shapes=False, y_shape=None):
    """ModelProto: ir_version 1, graph 7, opset_import 8; OperatorSetIdProto: domain 1, version 2;
    GraphProto: node 1, name 2, initializer 5, input 11, output 12. `inputs` and `constants` are
    dictionaries of arrays, `output` the element type of y. Inputs have any shape unless `shapes`, y
    any but `y_shape`."""
    graph = (b"".join(content(1, one) for one in nodes) + content(2, "g") +
             b"".join(content(5, initializer(*one)) for one in constants.items()) +
             b"".join(content(11, value_info(name, values.dtype.name,
                                             values.shape if shapes else None))
                      for name, values in inputs.items()) +
             content(12, value_info("y", output, y_shape)))
    return (integer(1, 8) + content(7, graph) + content(8, content(1, "") + integer(2, opset)) +
            content(8, content(1, MS) + integer(2, 1)))


def cast_model(operator, from_type, to_type, opset, scale_rank=None, **attributes):
    """One Cast, QuantizeLinear or DequantizeLinear (which have a `scale_rank`: that of their scales)
    between floats, of qualm's names. Float8 needs ir_version 9, e8m0 opset 24."""
    scaled = scale_rank is not None
    one = node(operator, "x scale" if scaled else "x", "y", **attributes)
    # Scales that are no scalar have any shape.
    shape = () if scale_rank == 0 else None
    graph = (content(1, one) + content(2, "g") + content(11, value_info("x", from_type)) +
             (content(11, value_info("scale", "f32", shape)) if scaled else b"") +
             content(12, value_info("y", to_type)))
    return integer(1, 10) + content(7, graph) + content(8, content(1, "") + integer(2, opset))
