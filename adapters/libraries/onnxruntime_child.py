# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's wheel behind qualm's pipe protocol: its quantized operators, as
onnxruntime_child.mjs asks those of the Node package.

    python3 onnxruntime_child.py ""|constant [INSTRUCTION_SET]

A model has one node; of dynamic_linear the nodes that quantize_dynamic makes. Scales, zero points and
weights are inputs of the model and shapes are left open, so that one session serves all cases of an
operator, its types and attributes. With "constant" all but the first input are part of the model, and
one session serves the cases that differ in the first input alone. Graph optimizations are off: each
answer is that of the operator's own kernel, not of a fusion. INSTRUCTION_SET (avx2, sse41) is that of
the processor that is emulated; it names the contract.
"""
import collections
import math

from library_child import (Skip, array, flat, flat_nhwc, integers, judged, planes, processor_flags,
                           real, reals, serve, single)
import onnx_model

# The releases whose recordings and drawn cases hold the conventions (docs/onnxruntime.md).
HELD = ((1, 21), (1, 30), (1, 32))

CODES = ["u8", "s8"]
Plan = collections.namedtuple("Plan", "nodes inputs output finish")


def own_instruction_set():
    """What MLAS finds (onnxruntime/core/mlas/lib/platform.cpp). AVX-512 without VNNI saturates pairs
    as AVX2 does."""
    flags = processor_flags()
    if not {"avx2", "fma"} <= flags:
        return "sse41"
    return "vnni" if {"avx_vnni", "avx512_vnni"} & flags else "avx2"


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


def one_type(c, operator):
    if c["out_dtype"] != c["x_dtype"]:
        raise Skip("%s has one type of input and output" % operator)


def signed_weights(c, operator):
    if c["x_dtype"] == "s8" and c["w_dtype"] == "u8":
        raise Skip("%s takes s8 activations with s8 weights only" % operator)


def onnx_pads(c):
    """[top, bottom, left, right] as ONNX orders pads."""
    top, bottom, left, right = c["pad"]
    return [top, left, bottom, right]


def single_node(operator, inputs, finish=flat, output_type=None, **attributes):
    """A model of one node, which takes its inputs in their order."""
    node = onnx_model.node(operator, " ".join(inputs), "y", **attributes)
    return Plan([node], inputs, output_type or next(iter(inputs.values())).dtype.name, finish)


class Engine:
    def __init__(self, option, instruction_set=None):
        import onnxruntime

        self.ort = onnxruntime
        self.constant = option == "constant"
        self.isa = instruction_set or own_instruction_set()
        self.options = onnxruntime.SessionOptions()
        self.options.graph_optimization_level = \
            onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self.options.intra_op_num_threads = self.options.inter_op_num_threads = 1
        self.options.enable_mem_pattern = False
        self.options.log_severity_level = 4
        self.sessions = collections.OrderedDict()  # the one asked last comes last
        # A session with constants is a layer, with the weights that it has packed.
        self.most_sessions = 8 if self.constant else 2000

    def hello(self):
        # Of sums without terms (K = 0) the output stays unwritten, and QLinearConv reads the zero
        # point of no channel through a null pointer: neither is asked for.
        codes = {"x": CODES, "out": CODES}
        pair = dict(codes, w=CODES, features=["empty"])
        window = ["asymmetric_padding", "ceil_mode"]
        convolution = dict(codes, w=CODES, features=[
            "bias_i32", "per_channel", "dilation", "asymmetric_padding"])
        return {
            "name": "ONNX Runtime",
            "version": judged(self.ort.__version__, *HELD),
            "contract": "model:onnxruntime@" + self.isa,
            "instruction_set": self.isa,
            "ops": {
                "linear": {"x": CODES, "w": CODES, "out": CODES + ["s32"],
                           "features": ["per_channel", "empty"]},
                "dynamic_linear": {"x": ["f32"], "w": CODES, "out": ["f32"],
                                   "features": ["bias_f32", "per_channel", "empty"]},
                "conv2d": dict(convolution, features=convolution["features"] + ["groups"]),
                "depthwise": convolution,
                "quantize": {"out": CODES, "features": ["per_channel", "empty"]},
                "dequantize": {"x": CODES, "features": ["per_channel", "empty"]},
                "add": pair, "mul": pair, "concat": pair,
                "max_pool": dict(codes, features=window + ["dilation"]),
                "avg_pool": dict(codes, features=window + ["count_padding"]),
                "global_avg_pool": codes,
                "table": dict(codes, features=["empty"]),
                "softmax": codes,
            },
        }

    def run(self, plan):
        fed = dict(list(plan.inputs.items())[:1]) if self.constant else plan.inputs
        constants = {name: v for name, v in plan.inputs.items() if name not in fed}
        model = onnx_model.model(plan.nodes, fed, constants, plan.output)
        session = self.sessions.pop(model, None) or self.ort.InferenceSession(
            model, self.options, providers=["CPUExecutionProvider"])
        self.sessions[model] = session
        if len(self.sessions) > self.most_sessions:
            self.sessions.popitem(last=False)
        return plan.finish(session.run(["y"], fed)[0])

    # Sums ------------------------------------------------------------------------------------------

    def weights(self, c):
        """[N,K] as [K,N]."""
        return array(c["w"], c["w_dtype"], (c["N"], c["K"])).T.copy()

    def linear(self, c):
        a = array(c["x"], c["x_dtype"], (c["M"], c["K"]))
        b, x, w = self.weights(c), of(c, "x", c["x_dtype"], "a"), of(c, "w", c["w_dtype"], "b")
        if c["out_dtype"] == "s32":
            inputs = {"a": a, "b": b, "a_zp": x["a_zp"], "b_zp": w["b_zp"]}
            return self.run(single_node("MatMulInteger", inputs, output_type="int32"))
        one_type(c, "QLinearMatMul")
        signed_weights(c, "QLinearMatMul")
        return self.run(single_node("QLinearMatMul", {"a": a, **x, "b": b, **w, **output(c)}))

    def dynamic_linear(self, c):
        """What quantize_dynamic of ONNX Runtime makes of a MatMul or Gemm."""
        if c["qparams_rule"] != "onnx":
            raise Skip("DynamicQuantizeLinear has the rule onnx")
        x = array(c["x"], "f32", (c["M"], c["K"]))
        if (x != x).any():  # a vector minimum with NaN forgets what its lane has seen
            raise Skip("the range of values with NaN depends on their order")
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

    def conv2d(self, c):
        one_type(c, "QLinearConv")
        signed_weights(c, "QLinearConv")
        if len(set(integers(c["w_zp"]))) > 1:
            raise Skip("QLinearConv takes one zero point for all weights")
        filters = (c["OC"], c["R"], c["S"], c["IC"] // c["groups"])
        inputs = {"x": planes(c["x"], c["x_dtype"], (c["N"], c["H"], c["W"], c["IC"])),
                  **of(c, "x", c["x_dtype"]), "w": planes(c["w"], c["w_dtype"], filters),
                  **of(c, "w", c["w_dtype"]), **output(c)}
        if c.get("bias_i32"):
            inputs["bias"] = array(c["bias_i32"], "s32", (c["OC"],))
        return self.run(single_node(
            "QLinearConv", inputs, flat_nhwc, kernel_shape=[c["R"], c["S"]], strides=c["stride"],
            pads=onnx_pads(c), dilations=c["dilation"], group=c["groups"]))

    # Element by element ----------------------------------------------------------------------------

    def quantize(self, c):
        inputs = {"x": array(c["x"], "f32", (c["M"], c["N"])), **output(c)}
        return self.run(single_node("QuantizeLinear", inputs, axis=1,
                                    output_type=inputs["y_zp"].dtype.name))

    def matrix(self, c):
        return {"x": array(c["x"], c["x_dtype"], (c["M"], c["N"])), **of(c, "x", c["x_dtype"])}

    def dequantize(self, c):
        return self.run(single_node("DequantizeLinear", self.matrix(c), axis=1,
                                    output_type="float32"))

    def table(self, c):
        operators = {"leaky_relu": "QLinearLeakyRelu", "sigmoid": "QLinearSigmoid"}
        operator = operators.get(c["function"])
        if operator is None:
            raise Skip("there is no quantized operator for %s" % c["function"])
        one_type(c, operator)
        slope = {"alpha": real(c["negative_slope"])} if c["function"] == "leaky_relu" else {}
        return self.run(single_node(operator, {**self.matrix(c), **output(c)},
                                    domain=onnx_model.MS, **slope))

    def softmax(self, c):
        one_type(c, "QLinearSoftmax")
        y = {"out_scale": 2.0**-8, "out_zp": -128 if c["out_dtype"] == "s8" else 0}
        return self.run(single_node("QLinearSoftmax",
                                    {**self.matrix(c), **of(y, "out", c["out_dtype"], "y")},
                                    domain=onnx_model.MS, axis=-1, opset=13))

    # Two operands ----------------------------------------------------------------------------------

    def operands(self, c, a_columns, b_columns):
        return {"a": array(c["a"], c["x_dtype"], (c["M"], a_columns)), **of(c, "a", c["x_dtype"]),
                "b": array(c["b"], c["x_dtype"], (c["M"], b_columns)), **of(c, "b", c["x_dtype"])}

    def binary(self, c, operator):
        one_type(c, operator)
        inputs = {**self.operands(c, c["N"], c["N"]), **output(c)}
        return self.run(single_node(operator, inputs, domain=onnx_model.MS))

    def add(self, c):
        return self.binary(c, "QLinearAdd")

    def mul(self, c):
        return self.binary(c, "QLinearMul")

    def concat(self, c):
        one_type(c, "QLinearConcat")
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
        one_type(c, operator)
        inputs = {"x": self.image(c), **of(c, "x", c["x_dtype"]), **output(c)}
        return self.run(single_node(operator, inputs, finish, domain=onnx_model.MS, **attributes))

    def check_global_multiplier(self, c):
        """MlasQLinearGlobalAveragePool refuses others (core/mlas/lib/qlgavgpool.cpp)."""
        divisor = single(real(c["out_scale"]) * single(c["H"] * c["W"]))
        multiplier = single(real(c["x_scale"]) / divisor) if divisor else math.inf
        if not 2.0**-32 <= multiplier < 256:
            raise Skip("the multiplier of a global average must be in [2^-32, 256)")

    def avg_pool(self, c):
        finish, attributes = self.pool(c)
        if (c["R"], c["S"]) == (c["H"], c["W"]) and not any(c["pad"]):
            self.check_global_multiplier(c)  # then it is the global one
        return self.average(c, "QLinearAveragePool", finish,
                            count_include_pad=1 if c["count_include_pad"] else 0, **attributes)

    def global_avg_pool(self, c):
        self.check_global_multiplier(c)
        return self.average(c, "QLinearGlobalAveragePool", flat_nhwc)

    depthwise = conv2d


if __name__ == "__main__":
    serve(Engine, ("", "constant"))
