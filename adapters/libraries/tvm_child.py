# SPDX-License-Identifier: Apache-2.0
"""Apache TVM behind qualm's pipe protocol: the operators that its ONNX importer makes of quantized
models, compiled by Relax for the CPU.

    python3 tvm_child.py

Shapes are symbols, and scales, zero points and weights inputs of the program, so that one program
serves all cases of an operation and its types.
"""
from library_child import NUMPY, Skip, array, flat, flat_nhwc, judged, planes, serve

HELD = ((0, 27),)
CODES = ["u8", "s8"]


def parameter(values, dtype):
    """A scalar per tensor, a list per channel."""
    return array(values if isinstance(values, list) else [values], dtype,
                 (-1,) if isinstance(values, list) else ())


def of(c, key, dtype):
    """Scale and zero point."""
    return parameter(c[key + "_scale"], "f32"), parameter(c[key + "_zp"], dtype)


class Engine:
    def __init__(self, _):
        import tvm
        from tvm import relax, tirx

        self.tvm, self.relax, self.op, self.tirx = tvm, relax, relax.op, tirx
        if not tvm.runtime.enabled("llvm"):
            raise Skip("this TVM is built without LLVM, which compiles for the CPU")
        self.programs = {}

    def hello(self):
        # A sum without terms (K = 0) stays unwritten, and so does the range of no values.
        codes = {"x": CODES, "out": CODES}
        elements = dict(codes, features=["empty"])
        return {"name": "TVM", "version": judged(self.tvm.__version__, *HELD),
                "contract": "model:tvm,dequantize=exact,max_pool=exact",
                "ops": {
                    "quantize": {"out": CODES, "features": ["per_channel", "empty"]},
                    "dequantize": {"x": CODES, "features": ["per_channel", "empty"]},
                    "rescale": elements, "add": elements, "sub": elements, "mul": elements,
                    "concat": elements,
                    "linear": dict(codes, w=CODES, out=CODES + ["s32", "f32"],
                                   features=["bias_f32", "relu", "per_channel", "empty"]),
                    "choose_qparams": {"rules": ["onnx"], "features": ["codes"]},
                    "dynamic_linear": {"x": ["f32"], "w": CODES, "out": ["f32"],
                                       "features": ["bias_f32", "per_channel"]},
                    "max_pool": dict(codes, features=["asymmetric_padding", "dilation"]),
                }}

    def run(self, key, function, *inputs):
        """The output of the program of `key`, which `function` writes: it gets one variable for each
        input, a pair of values and the names of its axes, a letter each."""
        name = (key,) + tuple((str(x.dtype), x.ndim) for x, _ in inputs)
        if name not in self.programs:
            sizes, builder = {}, self.relax.BlockBuilder()
            variables = [self.relax.Var("v%d" % i, self.relax.TensorType(
                [sizes.setdefault(axis, self.tirx.Var(axis, "int64")) for axis in axes],
                str(x.dtype))) for i, (x, axes) in enumerate(inputs)]
            with builder.function("main", variables):
                with builder.dataflow():
                    answer = builder.emit_output(function(*variables))
                builder.emit_func_output(answer)
            program = self.relax.build(builder.get(), target="llvm")
            self.programs[name] = self.relax.VirtualMachine(program, self.tvm.cpu())["main"]
        return self.programs[name](*(self.tvm.runtime.tensor(x) for x, _ in inputs)).numpy()

    def column(self, parameters):
        return [(one, "n" if one.ndim else "") for one in parameters]

    # Element by element ----------------------------------------------------------------------------

    def quantize(self, c):
        x = array(c["x"], "f32", (c["M"], c["N"]))
        out = NUMPY[c["out_dtype"]]
        return flat(self.run(("quantize", out),
                             lambda x, s, z: self.op.quantize(x, s, z, 1, out),
                             (x, "mn"), *self.column(of(c, "out", c["out_dtype"]))))

    def dequantize(self, c):
        x = array(c["x"], c["x_dtype"], (c["M"], c["N"]))
        return flat(self.run("dequantize", lambda x, s, z: self.op.dequantize(x, s, z, 1),
                             (x, "mn"), *self.column(of(c, "x", c["x_dtype"]))))

    def output(self, c):
        return [(one, "") for one in of(c, "out", c["out_dtype"])]

    def rescale(self, c):
        x = array(c["x"], c["x_dtype"], (c["M"], c["N"]))
        out = NUMPY[c["out_dtype"]]
        return flat(self.run(("rescale", out), lambda x, s, z, t, y: self.op.quantize(
            self.op.dequantize(x, s, z, 1), t, y, 1, out), (x, "mn"),
            *self.column(of(c, "x", c["x_dtype"])), *self.output(c)))

    def operands(self, c, combine, a_axis, b_axis):
        out, sizes = NUMPY[c["out_dtype"]], {"n": "N", "a": "NA", "b": "NB"}
        a, b = [array(c[key], c["x_dtype"], (c["M"], c[sizes[axis]]))
                for key, axis in (("a", a_axis), ("b", b_axis))]
        d = self.op.dequantize
        return flat(self.run(
            (c["op"], out),
            lambda a, s, z, b, t, y, u, v: self.op.quantize(
                combine(d(a, s, z, 1), d(b, t, y, 1)), u, v, 1, out),
            (a, "m" + a_axis), *self.column(of(c, "a", c["x_dtype"])),
            (b, "m" + b_axis), *self.column(of(c, "b", c["x_dtype"])), *self.output(c)))

    def elements(self, c, combine):
        return self.operands(c, combine, "n", "n")

    def add(self, c):
        return self.elements(c, self.op.add)

    def sub(self, c):
        return self.elements(c, self.op.subtract)

    def mul(self, c):
        return self.elements(c, self.op.multiply)

    def concat(self, c):
        return self.operands(c, lambda a, b: self.op.concat([a, b], 1), "a", "b")

    # Sums ------------------------------------------------------------------------------------------

    def layer(self, c):
        return (array(c["x"], c.get("x_dtype", "f32"), (c["M"], c["K"])), "mk"), (
            array(c["w"], c["w_dtype"], (c["N"], c["K"])).T.copy(), "kn")

    def integers(self, x, x_zp, w, w_zp):
        """MatMulInteger."""
        x, x_zp, w, w_zp = (self.op.astype(v, "int32") for v in (x, x_zp, w, w_zp))
        return self.op.matmul(self.op.subtract(x, x_zp), self.op.subtract(w, w_zp), "int32")

    def linear(self, c):
        x, w = self.layer(c)
        (sx, zx), (sw, zw) = of(c, "x", c["x_dtype"]), of(c, "w", c["w_dtype"])
        if c["out_dtype"] == "s32":
            if c["relu"]:
                raise Skip("MatMulInteger has no relu")
            return flat(self.run("sums", lambda x, z, w, y: self.integers(x, z, w, y),
                                 x, (zx, ""), w, *self.column([zw])))
        bias = [] if c.get("bias") is None else [(array(c["bias"], "f32", (c["N"],)), "n")]
        out = NUMPY[c["out_dtype"]]
        own = [] if out == "float32" else self.output(c)

        def program(x, s, z, w, t, y, *more):
            sums = self.op.matmul(self.op.dequantize(x, s, z, 1), self.op.dequantize(w, t, y, 1))
            if bias:
                sums = self.op.add(sums, more[0])
            if c["relu"]:
                sums = self.op.nn.relu(sums)
            return self.op.quantize(sums, *more[-2:], 1, out) if own else sums

        return flat(self.run(("linear", out, bool(bias), c["relu"]), program, x, (sx, ""), (zx, ""),
                             w, *self.column([sw, zw]), *bias, *own))

    def dynamic(self, x):
        """DynamicQuantizeLinear: codes, scale, zero point."""
        op, const = self.op, lambda number: self.relax.const(number, "float32")
        high = op.maximum(const(0), op.max(x))
        low = op.minimum(const(0), op.min(x))
        scale = op.divide(op.subtract(high, low), const(255))
        zero = op.subtract(const(0), op.divide(low, scale))
        zero = op.astype(op.round(op.clip(zero, 0, 255)), "uint8")
        return op.quantize(x, scale, zero, 0, "uint8"), scale, zero

    def ranged(self, c, x):
        if c["qparams_rule"] != "onnx":
            raise Skip("DynamicQuantizeLinear has the rule onnx")
        if (x != x).any():
            raise Skip("the range of values with NaN depends on their order")

    def dynamic_linear(self, c):
        x, w = self.layer(c)
        self.ranged(c, x[0])
        bias = [] if c.get("bias") is None else [(array(c["bias"], "f32", (c["N"],)), "n")]

        def program(x, w, t, z, *bias):
            codes, scale, zero = self.dynamic(x)
            sums = self.op.astype(self.integers(codes, zero, w, z), "float32")
            product = self.op.multiply(sums, self.op.multiply(scale, t))
            return self.op.add(product, *bias) if bias else product

        return flat(self.run(("dynamic_linear", bool(bias)), program, x, w,
                             *self.column(of(c, "w", c["w_dtype"])), *bias))

    def choose_qparams(self, c):
        x = array(c["x"], "f32", (c["batches"] * c["M"], c["N"]))
        self.ranged(c, x)

        def program(x):
            codes, scale, zero = self.dynamic(x)
            parts = [self.op.reshape(part, (1,)) for part in
                     (scale, self.op.astype(zero, "float32"))]
            if c.get("codes"):
                parts.append(self.op.flatten(self.op.astype(codes, "float32")))
            return self.op.concat(parts, 0)

        return flat(self.run(("choose_qparams", c.get("codes")), program, (x, "mk")))

    # Pools -----------------------------------------------------------------------------------------

    def max_pool(self, c):
        x = planes(c["x"], c["x_dtype"], (c["N"], c["H"], c["W"], c["C"]))
        top, bottom, left, right = c["pad"]
        window = (c["R"], c["S"]), tuple(c["stride"]), (top, left, bottom, right), tuple(c["dilation"])
        return flat_nhwc(self.run(("max_pool", window),
                                  lambda x: self.op.nn.max_pool2d(x, *window), (x, "nchw")))


serve(Engine)
