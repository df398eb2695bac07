# SPDX-License-Identifier: Apache-2.0
"""Cases as StableHLO programs on quantized types. What compiles and runs them is a library of its
own: jax_child.py, iree_child.py.

Both lower quantized types by StableHLO's pass stablehlo-legalize-quant-to-math, so both follow
model:stablehlo.
"""
from library_child import Skip, array, flat, integers, reals

# The pass forgets that a storage type is unsigned, and reads u8 codes above 127 as negative: only s8.
STORED = {"s8": "i8", "s32": "i32", "f32": "f32"}
FEATURES = {
    "dequantize": ["per_channel"], "requantize": ["per_channel"],
    "linear": ["bias_i32", "per_channel"], "rescale": []}


def literal(scale):
    """A float64, which is what quantized types hold, exactly."""
    words = "%.17g" % scale
    return words if "." in words else words.replace("e", ".0e") if "e" in words else words + ".0"


def quantized(storage, scales, zero_points, axis):
    """The element type; of several scales per axis. MLIR refuses a scale beyond float32, which a
    product of two can be (mlir/lib/Dialect/Quant/IR/TypeParser.cpp, isScaleInExpressedTypeRange)."""
    if not all(2.0**-149 <= s <= 2.0**128 - 2.0**104 for s in scales):
        raise Skip("a scale, or a product of scales, that no quantized type holds")
    if len(scales) == 1:
        return "!quant.uniform<%s:f32, %s:%d>" % (storage, literal(scales[0]), zero_points[0])
    return "!quant.uniform<%s:f32:%d, {%s}>" % (storage, axis, ",".join(
        "%s:%d" % (literal(s), z) for s, z in zip(scales, zero_points)))


class Program:
    """One function. Values are named by number; a value has an element type and a shape."""

    def __init__(self):
        self.inputs, self.lines, self.types = [], [], {}

    def tensor(self, shape, element):
        return "tensor<%s%s>" % ("".join("%dx" % n for n in shape), element)

    def add(self, operation, operands, shape, element, attributes=""):
        name = "%%%d" % len(self.types)
        result = self.tensor(shape, element)
        self.lines.append("%s = stablehlo.%s %s%s : (%s) -> %s" % (
            name, operation, ", ".join(operands), attributes,
            ", ".join(self.types[o] for o in operands), result))
        self.types[name] = result
        return name

    def input(self, values, stored, element):
        """`values` as an argument; as `element`, if that is another type."""
        name = "%%a%d" % len(self.inputs)
        self.inputs.append(values)
        self.types[name] = self.tensor(values.shape, stored)
        return name if stored == element else self.add("bitcast_convert", [name], values.shape,
                                                       element)

    def text(self, result, shape, stored):
        arguments = ["%%a%d: %s" % (i, self.types["%%a%d" % i]) for i in range(len(self.inputs))]
        answer = self.tensor(shape, stored)
        if self.types[result] != answer:
            result = self.add("bitcast_convert", [result], shape, stored)
        return "module @m {\nfunc.func public @main(%s) -> %s {\n%s\nreturn %s : %s\n}\n}\n" % (
            ", ".join(arguments), answer, "\n".join(self.lines), result, answer)


class Engine:
    """`run(text, inputs)` of a subclass compiles a module and gives the output of its main."""

    def capabilities(self):
        ops = {name: {"x": ["s8"], "out": ["s8"], "features": features}
               for name, features in FEATURES.items()}
        ops["requantize"]["x"] = ["s32"]
        ops["dequantize"]["out"] = ["f32"]
        ops["linear"].update(w=["s8"], w_zp=[0, 0], out=["s8", "s32", "f32"])
        return ops

    def compute(self, program, result, shape, dtype):
        return flat(self.run(program.text(result, shape, STORED[dtype]), program.inputs))

    def codes(self, c, key, dtype, shape, values, axis=1):
        """(program's type, tensor) of the codes of a tensor."""
        scales, zero_points = reals(c[key + "_scale"]), integers(c[key + "_zp"])
        count = max(len(scales), len(zero_points))
        scales, zero_points = (v * (count // len(v)) for v in (scales, zero_points))
        return (quantized(STORED[dtype], scales, zero_points, axis),
                None if values is None else array(values, dtype, shape))

    def dequantize(self, c):
        shape = c["M"], c["N"]
        element, x = self.codes(c, "x", c["x_dtype"], shape, c["x"])
        p = Program()
        y = p.add("uniform_dequantize", [p.input(x, STORED[c["x_dtype"]], element)], shape, "f32")
        return self.compute(p, y, shape, "f32")

    def requantize(self, c):
        shape = c["M"], c["N"]
        if "multiplier" in c:
            scales, out_scale = reals(c["multiplier"]), 1.0
        else:
            w, x = reals(c["w_scale"]), reals(c["x_scale"])
            scales, out_scale = [x[0] * one for one in w], reals(c["out_scale"])[0]
        p = Program()
        x = p.input(array(c["x"], "s32", shape), "i32",
                    quantized("i32", scales, [0] * len(scales), 1))
        y = p.add("uniform_quantize", [x], shape,
                  quantized(STORED[c["out_dtype"]], [out_scale], integers(c["out_zp"]), 1))
        return self.compute(p, y, shape, c["out_dtype"])

    def rescale(self, c):
        shape = c["M"], c["N"]
        element, x = self.codes(c, "x", c["x_dtype"], shape, c["x"])
        p = Program()
        y = p.add("uniform_quantize", [p.input(x, STORED[c["x_dtype"]], element)], shape,
                  self.codes(c, "out", c["out_dtype"], shape, None)[0])
        return self.compute(p, y, shape, c["out_dtype"])

    def linear(self, c):
        (m, n, k), dtype = (c["M"], c["N"], c["K"]), c["x_dtype"]
        # Sums have no scale; any gives the same bits.
        given = dict(c, x_scale=1, w_scale=1) if c["out_dtype"] == "s32" else c
        x_type, x = self.codes(given, "x", dtype, (m, k), c["x"])
        w_type, w = self.codes(given, "w", dtype, (n, k), c["w"], axis=0)
        x_scale, w_scales = reals(given["x_scale"])[0], reals(given["w_scale"])
        count = n if ":0, {" in w_type else 1
        sums = quantized("i32", [x_scale * s for s in w_scales] * (count // len(w_scales)),
                         [0] * count, 1)
        p = Program()
        y = p.add("dot_general", [p.input(x, STORED[dtype], x_type),
                                  p.input(w, STORED[dtype], w_type)],
                  (m, n), sums, ", contracting_dims = [1] x [1]")
        if c.get("bias_i32") is not None:
            bias = array(c["bias_i32"] * m, "s32", (m, n))
            y = p.add("add", [y, p.input(bias, "i32", sums)], (m, n), sums)
        if c["out_dtype"] == "f32":
            y = p.add("uniform_dequantize", [y], (m, n), "f32")
        elif c["out_dtype"] != "s32":
            y = p.add("uniform_quantize", [y], (m, n),
                      self.codes(c, "out", c["out_dtype"], (m, n), None)[0])
        return self.compute(p, y, (m, n), c["out_dtype"])
