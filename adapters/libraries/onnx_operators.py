# SPDX-License-Identifier: Apache-2.0
"""The quantized operators of ONNX, and those of ONNX Runtime that others took over: each operation
of a case as a model of one node (of some, several). A library's engine is a subclass, which runs a
Plan."""
import collections

from library_child import Skip, array, flat, flat_nhwc, integers, planes, real
import onnx_model

CODES = ["u8", "s8"]
WIDE_CODES = CODES + ["s16", "u16"]  # of QuantizeLinear and DequantizeLinear 21
SMALL_CODES = ["u4", "s4", "u2", "s2"]
FEW_BITS = ["u4", "s4", "u8", "s8", "u2", "s2"]
# What a model is made of, and what makes the answer of its output.
Plan = collections.namedtuple("Plan", "nodes inputs output finish opset", defaults=(13,))


# Inputs of the model ------------------------------------------------------------------------------


def parameter(values, dtype):
    """A scalar per tensor, a list per channel."""
    return array(values if isinstance(values, list) else [values], dtype,
                 (-1,) if isinstance(values, list) else ())


def of(c, key, dtype, name=None):
    """Scale and zero point. `key` is the case's name of the tensor, `name` the operator's."""
    name = name or key
    return {name + "_scale": parameter(c.get(key + "_scale", 1.0), "f32"),
            name + "_zp": parameter(c[key + "_zp"], dtype)}


def output(c):
    return of(c, "out", c["out_dtype"], "y")


def onnx_pads(c):
    """[top, bottom, left, right] as ONNX orders pads."""
    top, bottom, left, right = c["pad"]
    return [top, left, bottom, right]


def packed(codes, bits):
    """Codes without a sign, the first one in the lowest bits of a byte; a row fills whole bytes."""
    import numpy

    per_byte = 8 // bits
    rows = numpy.zeros(codes.shape[:-1] + (-(-codes.shape[-1] // per_byte), per_byte), "uint8")
    rows.reshape(codes.shape[:-1] + (-1,))[..., :codes.shape[-1]] = codes
    shifts = numpy.arange(per_byte, dtype="uint8") * bits
    return numpy.bitwise_or.reduce(numpy.left_shift(rows, shifts), axis=-1)


def single_node(operator, inputs, finish=flat, output_type=None, names=None, **attributes):
    """A model of one node, which takes its inputs in their order; `names` has "-" where it leaves one
    out."""
    node = onnx_model.node(operator, names or " ".join(inputs), "y", **attributes)
    wide = "block_size" in attributes or any(one.dtype.name in ("int16", "uint16") for one in inputs.values())
    return Plan([node], inputs, output_type or next(iter(inputs.values())).dtype.name, finish,
                21 if wide else 13)


class Operators:
    mixed_types = False  # an operator's output has any type of codes, not only that of its input

    def run(self, plan):
        raise NotImplementedError

    def one_type(self, c, operator):
        if not self.mixed_types and c["out_dtype"] != c["x_dtype"]:
            raise Skip("%s has one type of input and output" % operator)

    # Sums ------------------------------------------------------------------------------------------

    def weights(self, c):
        """[N,K] as [K,N]."""
        return array(c["w"], c["w_dtype"], (c["N"], c["K"])).T.copy()

    def linear(self, c):
        a = array(c["x"], c["x_dtype"], (c["M"], c["K"]))
        b, x, w = self.weights(c), of(c, "x", c["x_dtype"], "a"), of(c, "w", c["w_dtype"], "b")
        if c["out_dtype"] == "s32":
            if c.get("bias_i32"):
                raise Skip("MatMulInteger has no bias")
            inputs = {"a": a, "b": b, "a_zp": x["a_zp"], "b_zp": w["b_zp"]}
            return self.run(single_node("MatMulInteger", inputs, output_type="int32"))
        self.one_type(c, "QLinearMatMul")
        y = output(c)
        if c.get("bias_i32"):
            bias = {"c": array(c["bias_i32"], "s32", (c["N"],))}
            return self.run(single_node("QGemm", {"a": a, **x, "b": b, **w, **bias, **y},
                                        output_type=y["y_zp"].dtype.name, domain=onnx_model.MS))
        return self.run(single_node("QLinearMatMul", {"a": a, **x, "b": b, **w, **y},
                                    output_type=y["y_zp"].dtype.name))

    def few_bits_linear(self, c, a, accuracy_level):
        """MatMulNBits: f32 x [M,K], weights in blocks. Weights that have a sign are moved up, and their zero
        points with them."""
        import numpy

        n, k, bits = c["N"], c["K"], int(c["w_dtype"][1:])
        given = c.get("w_block", 0)
        if not 0 < given < k:  # one block for all of a row
            given = max(16, 1 << (k - 1).bit_length())
        size = given & -given  # a block of 48 is three of 16
        if size < 16:
            raise Skip("MatMulNBits takes blocks of 16, 32, 64 and so on")
        if bits == 2:
            size = min(size, 256)  # it has no larger ones of 2 bits
        blocks = -(-k // size)

        def listed(values, dtype):
            rows = array(integers(values), dtype, (-1, -(-k // given)))
            return numpy.repeat(numpy.broadcast_to(rows, (n, rows.shape[1])), given // size,
                                axis=1)[:, :blocks]

        up = 1 << bits - 1 if c["w_dtype"][0] == "s" else 0
        codes = numpy.zeros((n, blocks * size), "int32")
        codes[:, :k] = array(c["w"], "s32", (n, k)) + up
        zero_points = listed(c["w_zp"], "s32") + up
        inputs = {"a": a, "b": packed(codes.reshape(n, blocks, size), bits),
                  "scales": listed(c["w_scale"], "f32").reshape(-1)}
        names = "a b scales"
        if (zero_points != 1 << bits - 1).any():  # what it takes for granted
            inputs["zero_points"] = packed(zero_points, bits).reshape(-1)
            names += " zero_points"
        if c.get("bias"):
            inputs["bias"] = array(c["bias"], "f32", (n,))
            names += " - bias" if "zero_points" in inputs else " - - bias"
        return self.run(single_node("MatMulNBits", inputs, names=names, domain=onnx_model.MS, K=k,
                                    N=n, bits=bits, block_size=size,
                                    accuracy_level=accuracy_level))

    def dynamic_linear(self, c):
        """What quantize_dynamic of ONNX Runtime makes of a MatMul or Gemm."""
        if c["qparams_rule"] != "onnx":
            raise Skip("DynamicQuantizeLinear has the rule onnx")
        x = array(c["x"], "f32", (c["M"], c["K"]))
        inputs = {"x": x, "b": self.weights(c), **of(c, "w", c["w_dtype"], "b")}
        if c.get("bias"):
            inputs["bias"] = array(c["bias"], "f32", (c["N"],))
        node = onnx_model.node
        nodes = [node("DynamicQuantizeLinear", "x", "a a_scale a_zp"),
                 node("MatMulInteger", "a b a_zp b_zp", "sum"),
                 node("Cast", "sum", "number", to=onnx_model.FLOAT),
                 node("Mul", "a_scale b_scale", "scale"),
                 node("Mul", "number scale", "product" if "bias" in inputs else "y")]
        if "bias" in inputs:
            nodes.append(node("Add", "product bias", "y"))
        return self.run(Plan(nodes, inputs, "float32", flat))

    def fused_dynamic_linear(self, c):
        """What ONNX Runtime fuses those nodes into."""
        if c["qparams_rule"] != "onnx":
            raise Skip("DynamicQuantizeMatMul has the rule onnx")
        w = of(c, "w", c["w_dtype"], "b")
        inputs = {"x": array(c["x"], "f32", (c["M"], c["K"])), "b": self.weights(c),
                  "b_scale": w["b_scale"], "b_zp": w["b_zp"]}
        if c.get("bias"):
            inputs["bias"] = array(c["bias"], "f32", (c["N"],))
        return self.run(single_node("DynamicQuantizeMatMul", inputs, domain=onnx_model.MS))

    def choose_qparams(self, c):
        if c["qparams_rule"] != "onnx":
            raise Skip("DynamicQuantizeLinear has the rule onnx")
        inputs = {"x": array(c["x"], "f32", (c["batches"], c["M"], c["N"])),
                  "one": array([1], "f32", (1, 1))}  # a number times it is a row of one
        node = onnx_model.node
        nodes = [node("DynamicQuantizeLinear", "x", "codes scale zp"),
                 node("Cast", "zp", "number", to=onnx_model.FLOAT),
                 node("Mul", "scale one", "scales"),
                 node("Mul", "number one", "numbers")]
        if c.get("codes"):
            nodes += [node("Cast", "codes", "floats", to=onnx_model.FLOAT),
                      node("Flatten", "floats", "row", axis=0)]
        parts = "scales numbers row" if c.get("codes") else "scales numbers"
        return self.run(Plan(nodes + [node("Concat", parts, "y", axis=1)], inputs, "float32", flat))

    def conv2d(self, c):
        x, w = of(c, "x", c["x_dtype"]), of(c, "w", c["w_dtype"])
        filters = planes(c["w"], c["w_dtype"], (c["OC"], c["R"], c["S"], c["IC"] // c["groups"]))
        images = planes(c["x"], c["x_dtype"], (c["N"], c["H"], c["W"], c["IC"]))
        window = {"kernel_shape": [c["R"], c["S"]], "strides": c["stride"], "pads": onnx_pads(c),
                  "dilations": c["dilation"], "group": c["groups"]}
        if c["out_dtype"] == "s32":
            if c.get("bias_i32"):
                raise Skip("ConvInteger has no bias")
            inputs = {"x": images, "w": filters, "x_zp": x["x_zp"], "w_zp": w["w_zp"]}
            return self.run(single_node("ConvInteger", inputs, flat_nhwc, "int32", **window))
        self.one_type(c, "QLinearConv")
        y = output(c)
        inputs = {"x": images, **x, "w": filters, **w, **y}
        if c.get("bias_i32"):
            inputs["bias"] = array(c["bias_i32"], "s32", (c["OC"],))
        return self.run(single_node("QLinearConv", inputs, flat_nhwc, y["y_zp"].dtype.name,
                                    **window))

    def depthwise(self, c):
        return self.conv2d(c)

    # Element by element ----------------------------------------------------------------------------

    def blocks(self, c, inputs, name):
        """Of scales for blocks of a row: the attributes, and the lists as matrices of a row each."""
        if not c.get("x_block"):
            return {"axis": 1}
        for key in name + "_scale", name + "_zp":
            inputs[key] = inputs[key].reshape(c["M"], -1)
        return {"axis": 1, "block_size": min(c["x_block"], c["N"])}

    def of_small(self, dtype, codes, inputs, operator, names, output_type, **attributes):
        """An operator on integers of fewer than 8 bits, of which NumPy has none: `codes` are inputs of
        bytes, converted before it, and bytes that it gives behind it."""
        small, opset = onnx_model.SMALL[dtype], 21 if dtype[1] == "4" else 25
        nodes = [onnx_model.node("Cast", name, name + "_small", to=small) for name in codes]
        names = " ".join(name + "_small" if name in codes else name for name in names.split())
        of_codes = output_type != "float32"
        nodes.append(onnx_model.node(operator, names, "codes" if of_codes else "y", **attributes))
        if of_codes:
            nodes.append(onnx_model.node("Cast", "codes", "y", to=onnx_model.ELEMENT[output_type]))
        return self.run(Plan(nodes, inputs, output_type, flat, opset))

    def quantize(self, c):
        inputs = {"x": array(c["x"], "f32", (c["M"], c["N"])), **output(c)}
        attributes = self.blocks(c, inputs, "y")
        if c["out_dtype"] in onnx_model.SMALL:
            return self.of_small(c["out_dtype"], ["y_zp"], inputs, "QuantizeLinear",
                                 "x y_scale y_zp", inputs["y_zp"].dtype.name, **attributes)
        return self.run(single_node("QuantizeLinear", inputs,
                                    output_type=inputs["y_zp"].dtype.name, **attributes))

    def matrix(self, c):
        return {"x": array(c["x"], c["x_dtype"], (c["M"], c["N"])), **of(c, "x", c["x_dtype"])}

    def dequantize(self, c):
        inputs = self.matrix(c)
        attributes = self.blocks(c, inputs, "x")
        if c["x_dtype"] in onnx_model.SMALL:
            return self.of_small(c["x_dtype"], ["x", "x_zp"], inputs, "DequantizeLinear",
                                 "x x_scale x_zp", "float32", **attributes)
        return self.run(single_node("DequantizeLinear", inputs, output_type="float32",
                                    **attributes))

    def rescale(self, c):
        """Two nodes: there is no operator for it."""
        inputs = {**self.matrix(c), **output(c)}
        nodes = [onnx_model.node("DequantizeLinear", "x x_scale x_zp", "real"),
                 onnx_model.node("QuantizeLinear", "real y_scale y_zp", "y")]
        return self.run(Plan(nodes, inputs, inputs["y_zp"].dtype.name, flat))

    def table(self, c):
        operators = {"leaky_relu": "QLinearLeakyRelu", "sigmoid": "QLinearSigmoid"}
        operator = operators.get(c["function"])
        if operator is None:
            raise Skip("there is no quantized operator for %s" % c["function"])
        self.one_type(c, operator)
        slope = {"alpha": real(c["negative_slope"])} if c["function"] == "leaky_relu" else {}
        return self.run(single_node(operator, {**self.matrix(c), **output(c)},
                                    domain=onnx_model.MS, **slope))

    def softmax(self, c):
        self.one_type(c, "QLinearSoftmax")
        y = {"out_scale": 2.0**-8, "out_zp": -128 if c["out_dtype"] == "s8" else 0}
        return self.run(single_node("QLinearSoftmax",
                                    {**self.matrix(c), **of(y, "out", c["out_dtype"], "y")},
                                    domain=onnx_model.MS, axis=-1, opset=13))

    # Two operands ----------------------------------------------------------------------------------

    def operands(self, c, a_columns, b_columns):
        return {"a": array(c["a"], c["x_dtype"], (c["M"], a_columns)), **of(c, "a", c["x_dtype"]),
                "b": array(c["b"], c["x_dtype"], (c["M"], b_columns)), **of(c, "b", c["x_dtype"])}

    def binary(self, c, operator):
        self.one_type(c, operator)
        inputs = {**self.operands(c, c["N"], c["N"]), **output(c)}
        return self.run(single_node(operator, inputs, domain=onnx_model.MS))

    def add(self, c):
        return self.binary(c, "QLinearAdd")

    def mul(self, c):
        return self.binary(c, "QLinearMul")

    def concat(self, c):
        self.one_type(c, "QLinearConcat")
        inputs = {**output(c), **self.operands(c, c["NA"], c["NB"])}
        return self.run(single_node("QLinearConcat", inputs, domain=onnx_model.MS, axis=1,
                                    output_type=inputs["y_zp"].dtype.name))

    # Pools -----------------------------------------------------------------------------------------

    def pool(self, c):
        """The attributes of a pool, and what makes the answer of its output: NHWC, where the windows
        are ours."""
        top, bottom, left, right = c["pad"]
        if max(top, bottom) >= c["R"] or max(left, right) >= c["S"]:
            raise Skip("pools take paddings smaller than the kernel")
        dilation = c.get("dilation") or [1, 1]

        def windows(size, before, after, kernel, stride, step):
            """In ceil mode as PyTorch: a window starts inside the input or the padding before it."""
            rest = size + before + after - step * (kernel - 1) - 1
            if not c["ceil_mode"]:
                return rest // stride + 1
            count = -(-rest // stride) + 1
            return count - 1 if (count - 1) * stride >= size + before else count

        ours = (windows(c["H"], top, bottom, c["R"], c["stride"][0], dilation[0]),
                windows(c["W"], left, right, c["S"], c["stride"][1], dilation[1]))

        def finish(y):
            if y.shape[2:] != ours:
                raise Skip("in ceil mode ONNX Runtime has a window that starts in the padding "
                           "behind")
            return flat_nhwc(y)

        return finish, {"kernel_shape": [c["R"], c["S"]], "strides": c["stride"],
                        "pads": onnx_pads(c), "ceil_mode": 1 if c["ceil_mode"] else 0}

    def image(self, c):
        return planes(c["x"], c["x_dtype"], (c["N"], c["H"], c["W"], c["C"]))

    def max_pool(self, c):
        finish, attributes = self.pool(c)
        return self.run(single_node("MaxPool", {"x": self.image(c)}, finish,
                                    dilations=c["dilation"], **attributes))

    def average(self, c, operator, finish, **attributes):
        self.one_type(c, operator)
        inputs = {"x": self.image(c), **of(c, "x", c["x_dtype"]), **output(c)}
        return self.run(single_node(operator, inputs, finish, domain=onnx_model.MS, **attributes))

    def avg_pool(self, c):
        finish, attributes = self.pool(c)
        return self.average(c, "QLinearAveragePool", finish,
                            count_include_pad=1 if c["count_include_pad"] else 0, **attributes)

    def global_avg_pool(self, c):
        return self.average(c, "QLinearGlobalAveragePool", flat_nhwc)
