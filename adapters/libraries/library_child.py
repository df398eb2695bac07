# SPDX-License-Identifier: Apache-2.0
"""What the Python libraries under test share: qualm's pipe protocol (docs/pipe.md), the numbers of a
case, and its tensors in NumPy.

A library's own program, NAME_child.py, has a class whose methods are named as the operations are,
each from the case of a request to the flat answer, and `hello()`, which says what it can do. It ends
in `serve(Engine, ...)`. Import the library in the class, not above it: what goes wrong there is then
told in one line, as the reason why the subject is absent.
"""
import json
import math
import os
import re
import struct
import sys
import warnings


class Skip(Exception):
    """The library has no answer to this case; the text says why. While the engine is made: it has
    none to any."""


# Numbers -----------------------------------------------------------------------------------------


def real(value):
    """float32 of a case file: a number, a hex string, "inf", "nan:BITS"."""
    if not isinstance(value, str):
        return float(value)
    if value.startswith("nan:"):
        return struct.unpack("<f", struct.pack("<I", int(value[4:], 16)))[0]
    return float.fromhex(value)


def reals(value):
    """A scale, or a list of them, as a list."""
    return [real(v) for v in value] if isinstance(value, list) else [real(value)]


def integers(value):
    return value if isinstance(value, list) else [value]


def single(value):
    """The nearest float32."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def is_normal(value):
    return 2.0**-126 <= value < math.inf


def text(value):
    """float32 as the answer has it: exact, also where JSON has no number."""
    if math.isnan(value):
        return "nan:%08x" % struct.unpack("<I", struct.pack("<f", value))
    return "inf" if value == math.inf else "-inf" if value == -math.inf else value.hex()


# Tensors, for libraries that take NumPy's --------------------------------------------------------

NUMPY = {"u8": "uint8", "u4": "uint8", "u2": "uint8", "s8": "int8", "s4": "int8", "s2": "int8",
         "u16": "uint16", "s16": "int16", "s32": "int32",
         "f32": "float32"}


def array(values, dtype, shape):
    """A list of a case, of element type `dtype`."""
    import numpy

    if dtype != "f32":
        return numpy.array(values, dtype=NUMPY[dtype]).reshape(shape)
    # By their bits: a float64 on the way would make a signaling NaN quiet.
    bits = [int(v[4:], 16) if isinstance(v, str) and v.startswith("nan:") else
            struct.unpack("<I", struct.pack("<f", real(v)))[0] for v in values]
    return numpy.array(bits, dtype="uint32").view("float32").reshape(shape)


def float_codes(values, dtype):
    """The codes of a list of f32, f16 or bf16 of a case, NaN with the bits that it has there."""
    import numpy

    def is_nan(v):
        return isinstance(v, str) and v.startswith("nan:")

    wide = array([0.0 if is_nan(v) else v for v in values], "f32", -1)
    codes = (wide.view("uint32") if dtype == "f32" else wide.astype("float16").view("uint16")
             if dtype == "f16" else (wide.view("uint32") >> 16).astype("uint16"))
    for i, v in enumerate(values):
        if is_nan(v):
            codes[i] = int(v[4:], 16)
    return numpy.ascontiguousarray(codes)


# Floats of 8 bits: exponent bits, fraction bits, bias, and what the ends of the range mean.
EIGHT_BITS = {"f8e4m3fn": (4, 3, 7, "nan is ones"), "f8e5m2": (5, 2, 15, "ieee"),
              "f8e4m3fnuz": (4, 3, 8, "nan is -0"), "f8e5m2fnuz": (5, 2, 16, "nan is -0"),
              "f8e8m0fnu": (8, 0, 127, "nan is ones")}


def float8_texts(dtype):
    """Of each code of such a type, the number as an answer has it."""
    exponent_bits, fraction_bits, bias, ends = EIGHT_BITS[dtype]
    all_bits = (1 << exponent_bits + fraction_bits) - 1
    infinity = all_bits - ((1 << fraction_bits) - 1) if ends == "ieee" else None

    def text_of(code):
        magnitude = code & all_bits
        if (code == 0x80 if ends == "nan is -0" else magnitude == all_bits if infinity is None else
                magnitude > infinity):
            return "nan:%02x" % code
        sign = -1.0 if code > magnitude else 1.0
        if magnitude == infinity:
            return text(math.copysign(math.inf, sign))
        exponent, fraction = magnitude >> fraction_bits, magnitude & (1 << fraction_bits) - 1
        if exponent or not fraction_bits:
            fraction += 1 << fraction_bits
        least = 1 if fraction_bits else 0
        return text(math.copysign(math.ldexp(fraction, max(exponent, least) - bias - fraction_bits), sign))

    return [text_of(code) for code in range(256)]


def float8_codes(values, dtype):
    """The codes of a list of such a type."""
    import numpy

    codes = {text: code for code, text in enumerate(float8_texts(dtype))}

    def code_of(v):
        if isinstance(v, str) and v.startswith("nan:"):
            return int(v[4:], 16)
        return codes[text(real(v))]

    return numpy.array([code_of(v) for v in values], "uint8")


def planes(values, dtype, shape):
    """Images and filters, [a,H,W,b] in a case, as [a,b,H,W]."""
    return array(values, dtype, shape).transpose(0, 3, 1, 2).copy()


def flat(y):
    """The answer: codes as they are, float32 by their bits."""
    import numpy

    y = numpy.ascontiguousarray(y).reshape(-1)
    if y.dtype != numpy.float32:
        return y.tolist()
    return ["nan:%08x" % bits if value != value else text(value)
            for value, bits in zip(y.tolist(), y.view("uint32").tolist())]


def flat_nhwc(y):
    """The answer of an image [a,b,H,W]."""
    return flat(y.transpose(0, 2, 3, 1))


# Libraries and processors ------------------------------------------------------------------------


def version_of(words):
    """(2, 13) of "2.13.0+cpu"."""
    return tuple(int(n) for n in re.findall(r"\d+", words)[:2])


def judged(words, *held):
    """The version as the handshake says it, with a remark if the conventions were not held to it but
    to the versions `held`, the first and the last (tools/faults.h reads the remark)."""
    if version_of(words) in held:
        return words
    names = " to ".join("%d.%d" % one for one in dict.fromkeys((held[0], held[-1])))
    return "%s (judged by what was made for %s)" % (words, names)


def processor_flags():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("flags"):
                return set(line.split(":")[1].split())
    return set()


# The protocol ------------------------------------------------------------------------------------


def one_line(error):
    return " ".join(str(error).split())


def answer(engine, request):
    """The line that answers a request."""
    reply = {"id": request.get("id")}
    try:
        case = request["case"]
        reply["y"] = getattr(engine, case["op"])(case)
        return json.dumps(reply, separators=(",", ":"), allow_nan=False)
    except Skip as reason:
        reply["skip"] = one_line(reason)
    except Exception as error:  # pylint: disable=broad-except
        reply.pop("y", None)
        told = getattr(engine, "told", one_line)(error)
        reply["error"] = "%s: %s" % (type(error).__name__, told[:1000])
    return json.dumps(reply)


def serve(make_engine, options=("",)):
    """Answers until stdin ends. The first argument of this program is one of `options`, what follows
    comes after it: make_engine(option, *more). An engine with told(error) chooses what an error
    says."""
    program = os.path.basename(sys.argv[0])
    option, *more = sys.argv[1:] or [""]
    if option not in options:
        sys.exit("usage: %s %s" % (program, "|".join(options)))
    # A library that prints or reads must not touch the lines of the protocol: it finds stderr and
    # an empty input in their place.
    lines, out = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    with open(os.devnull, encoding="utf-8") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")  # libraries deprecate options of theirs
    engine = None
    for line in lines:
        request = json.loads(line)
        if "qualm_pipe" not in request:
            out.write(answer(engine, request) + "\n")
            out.flush()
            continue
        try:
            engine = make_engine(option, *more)
            hello = json.dumps(dict(engine.hello(), qualm_pipe=1))
        except Skip as reason:
            sys.exit("%s: %s" % (program, one_line(reason)))
        except Exception as reason:  # pylint: disable=broad-except
            # A package that is half there fails in many ways.
            sys.exit("%s: %s %s: %s" %
                     (program, sys.executable, type(reason).__name__, one_line(reason)))
        out.write(hello + "\n")
        out.flush()
