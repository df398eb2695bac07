# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's wheel behind qualm's pipe protocol: its quantized operators, as
onnxruntime_child.mjs asks those of the Node package.

    python3 onnxruntime_child.py [constant+][fused|nbits[+level4]] [INSTRUCTION_SET]

A model has one node; of dynamic_linear the nodes that quantize_dynamic makes, with "fused" the one
DynamicQuantizeMatMul, and nothing else is offered. Scales, zero points and weights are inputs of the
model and shapes are left open, so that one session serves all cases of an operator, its types and
attributes. With "constant" all but the first input are part of the model, and
one session serves the cases that differ in the first input alone. With "nbits" linear is MatMulNBits,
of f32 x, and nothing else is offered; with "level4" of codes in blocks. Graph optimizations are off: each
answer is that of the operator's own kernel, not of a fusion. INSTRUCTION_SET (avx2, sse41) is that of
the processor that is emulated; it names the contract.
"""
import collections
import math

from library_child import (EIGHT_BITS, Skip, array, flat, float8_codes, float8_texts, float_codes, integers,
                           judged, processor_flags, real, reals, serve, single)
import onnx_model
from onnx_operators import CODES, FEW_BITS, SMALL_CODES, WIDE_CODES, Operators

# The releases whose recordings and drawn cases hold the conventions (docs/onnxruntime.md).
HELD = ((1, 21), (1, 30), (1, 32))
FLOAT8 = ["f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"]  # QuantizeLinear has them


def own_instruction_set():
    """What MLAS finds (onnxruntime/core/mlas/lib/platform.cpp). AVX-512 without VNNI saturates pairs
    as AVX2 does."""
    flags = processor_flags()
    if not {"avx2", "fma"} <= flags:
        return "sse41"
    return "vnni" if {"avx_vnni", "avx512_vnni"} & flags else "avx2"


def signed_weights(c, operator):
    if c["x_dtype"] == "s8" and c["w_dtype"] == "u8":
        raise Skip("%s takes s8 activations with s8 weights only" % operator)


def not_nan(c):
    """A vector minimum with NaN forgets what its lane has seen."""
    x = array(c["x"], "f32", -1)
    if (x != x).any():
        raise Skip("the range of values with NaN depends on their order")


class Engine(Operators):
    shapes = False  # part of the model

    def __init__(self, option, instruction_set=None):
        import onnxruntime

        self.ort = onnxruntime
        self.constant = option.startswith("constant")
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
            "contract": "model:onnxruntime@%s,cast=model:onnxruntime1.30-cast" % self.isa,
            "instruction_set": self.isa,
            "ops": {
                "linear": {"x": CODES, "w": CODES, "out": CODES + ["s32"],
                           "features": ["bias_i32", "per_channel", "empty"]},
                "dynamic_linear": {"x": ["f32"], "w": CODES, "out": ["f32"],
                                   "features": ["bias_f32", "per_channel", "empty"]},
                "choose_qparams": {"rules": ["onnx"], "features": ["codes"]},
                "conv2d": dict(convolution, features=convolution["features"] + ["groups"]),
                "depthwise": convolution,
                "quantize": {"out": WIDE_CODES + SMALL_CODES,
                             "features": ["per_channel", "x_per_block", "empty"]},
                "dequantize": {"x": WIDE_CODES + SMALL_CODES,
                               "features": ["per_channel", "x_per_block", "empty"]},
                "add": pair, "mul": pair, "concat": pair,
                "max_pool": dict(codes, features=window + ["dilation"]),
                "avg_pool": dict(codes, features=window + ["count_padding"]),
                "global_avg_pool": codes,
                "table": dict(codes, features=["empty"]),
                "softmax": codes,
                "cast": {"x": ["f32", "f16", "bf16"] + FLOAT8, "out": list(EIGHT_BITS) + ["f32"],
                         "features": ["cast_scales", "per_channel", "x_per_block"]},
            },
        }

    def session(self, model):
        session = self.sessions.pop(model, None) or self.ort.InferenceSession(
            model, self.options, providers=["CPUExecutionProvider"])
        self.sessions[model] = session
        if len(self.sessions) > self.most_sessions:
            self.sessions.popitem(last=False)
        return session

    def run(self, plan):
        fed = dict(list(plan.inputs.items())[:1]) if self.constant else plan.inputs
        constants = {name: v for name, v in plan.inputs.items() if name not in fed}
        model = onnx_model.model(plan.nodes, fed, constants, plan.output, opset=plan.opset,
                                 shapes=self.shapes)
        return plan.finish(self.session(model).run(["y"], fed)[0])

    def cast(self, c):
        """Cast; with scales QuantizeLinear and, of float8 in any case, DequantizeLinear."""
        of_x, of_out = ([single(v) for v in reals(c.get(key, 1))] for key in ("x_scale", "out_scale"))
        scales_x, scales_out = ({*scales} != {1} for scales in (of_x, of_out))
        if c["overflow"] == "nan":
            raise Skip("Cast gives infinity or the largest value where a number overflows")
        attributes = {"saturate": 1 if c["overflow"] == "saturate" else 0}
        if c["x_dtype"] in FLOAT8:
            if scales_out or c["out_dtype"] != "f32":
                raise Skip("DequantizeLinear gives f32, and takes the scale of x alone")
            return self.cast_by(c, "DequantizeLinear", 23, of_x)
        if scales_out or scales_x:
            if scales_x or c["x_dtype"] != "f32" or c["out_dtype"] not in FLOAT8:
                raise Skip("QuantizeLinear takes f32 to float8, and the scale of the output alone")
            if c["rounding"] != "nearest_even":
                raise Skip("QuantizeLinear rounds to the nearest")
            return self.cast_by(c, "QuantizeLinear", 23, of_out, **attributes,
                                output_dtype=onnx_model.FLOATS[c["out_dtype"]])
        if c["out_dtype"] == "f32":
            raise Skip("Cast is asked to 8 bits")
        opset = 21
        if c["out_dtype"] == "f8e8m0fnu":
            modes = {"nearest_even": "nearest", "up": "up", "toward_zero": "down"}
            attributes["round_mode"], opset = modes[c["rounding"]], 24
        elif c["rounding"] != "nearest_even":
            raise Skip("Cast rounds to the nearest")
        return self.cast_by(c, "Cast", opset, to=onnx_model.FLOATS[c["out_dtype"]], **attributes)

    def cast_by(self, c, operator, opset, scales=None, **attributes):
        """NumPy has no float8: the bytes are bound to the model, by their numbers of ONNX."""
        import numpy

        of_scales = ()
        if scales and len(scales) > 1:  # of one entry: for all
            of_scales = (c["M"], len(scales) // c["M"]) if c.get("x_block") else (c["N"],)
            attributes["axis"] = 1
            if c.get("x_block"):
                attributes["block_size"] = min(c["x_block"], c["N"])
        session = self.session(onnx_model.cast_model(operator, c["x_dtype"], c["out_dtype"], opset,
                                                     None if scales is None else len(of_scales),
                                                     **attributes))
        shape = (c["M"], c["N"])
        x = float8_codes(c["x"], c["x_dtype"]) if c["x_dtype"] in FLOAT8 else float_codes(c["x"], c["x_dtype"])
        y = numpy.zeros(x.size, "float32" if c["out_dtype"] == "f32" else "uint8")
        binding = session.io_binding()
        binding.bind_input("x", "cpu", 0, onnx_model.FLOATS[c["x_dtype"]], shape, x.ctypes.data)
        of_scale = numpy.array(scales or [], "float32")
        if scales is not None:
            binding.bind_input("scale", "cpu", 0, onnx_model.FLOAT, of_scales, of_scale.ctypes.data)
        binding.bind_output("y", "cpu", 0, onnx_model.FLOATS[c["out_dtype"]], shape, y.ctypes.data)
        session.run_with_iobinding(binding)
        if c["out_dtype"] == "f32":
            return flat(y)
        texts = float8_texts(c["out_dtype"])
        return [texts[code] for code in y.tolist()]

    def linear(self, c):
        if c["out_dtype"] != "s32":
            signed_weights(c, "QLinearMatMul")
        return super().linear(c)

    def dynamic_linear(self, c):
        not_nan(c)
        return super().dynamic_linear(c)

    def conv2d(self, c):
        signed_weights(c, "QLinearConv")
        if len(set(integers(c["w_zp"]))) > 1:
            raise Skip("QLinearConv takes one zero point for all weights")
        return super().conv2d(c)

    def check_global_multiplier(self, c):
        """MlasQLinearGlobalAveragePool refuses others (core/mlas/lib/qlgavgpool.cpp)."""
        divisor = single(real(c["out_scale"]) * single(c["H"] * c["W"]))
        multiplier = single(real(c["x_scale"]) / divisor) if divisor else math.inf
        if not 2.0**-32 <= multiplier < 256:
            raise Skip("the multiplier of a global average must be in [2^-32, 256)")

    def avg_pool(self, c):
        if (c["R"], c["S"]) == (c["H"], c["W"]) and not any(c["pad"]):
            self.check_global_multiplier(c)  # then it is the global one
        return super().avg_pool(c)

    def global_avg_pool(self, c):
        self.check_global_multiplier(c)
        return super().global_avg_pool(c)


class Fused(Engine):
    """dynamic_linear alone, as the operator that ONNX Runtime fuses its nodes into."""

    def hello(self):
        hello = super().hello()
        return dict(hello, contract="model:onnxruntime@" + self.isa,
                    ops={"dynamic_linear": hello["ops"]["dynamic_linear"]})

    def dynamic_linear(self, c):
        not_nan(c)
        return self.fused_dynamic_linear(c)


class NBits(Engine):
    """accuracy_level 0 is float32 here (core/mlas/lib/qnbitgemm.cpp)."""
    shapes = True  # MatMulNBits asks for that of its bias

    def hello(self):
        linear = {"x": ["f32"], "w": FEW_BITS, "out": ["f32"],
                  "features": ["float_x", "per_block", "per_channel", "bias_f32"]}
        return dict(super().hello(), contract="sum", ops={"linear": linear})

    def linear(self, c):
        return self.few_bits_linear(c, array(c["x"], "f32", (c["M"], c["K"])), accuracy_level=0)


class NBitsOfCodes(NBits):
    """accuracy_level 4: it makes codes of each block of x, scale max|x|/127, and takes out zero points
    in float32 (core/mlas/lib/sqnbitgemm_kernel_avx512.cpp, QuantizeARow_CompInt8_avx512). x is given as
    reals of which it makes the case's codes again (adapters/libraries/onnxruntime.cc)."""

    def hello(self):
        linear = {"x": ["s8"], "w": FEW_BITS, "out": ["f32"], "x_zp": [0, 0],
                  "features": ["x_per_block", "per_block", "per_channel", "bias_f32"]}
        return dict(super().hello(), contract="sum+offsets", ops={"linear": linear})

    def linear(self, c):
        import numpy

        m, k = c["M"], c["K"]
        block = min(c["x_block"], k)
        scales = array(integers(c["x_scale"]), "f32", (m, -1))
        reals = array(c["x"], "f32", (m, k)) * numpy.repeat(scales, block, axis=1)[:, :k]
        return self.few_bits_linear(c, reals, accuracy_level=4)


def engine(option, *more):
    kinds = {"fused": Fused, "nbits": NBits, "level4": NBitsOfCodes}
    return kinds.get(option.rpartition("+")[2], Engine)(option, *more)


serve(engine, [constant + kind for constant in ("", "constant+") for kind in ("fused", "nbits", "nbits+level4")] +
      ["", "constant"])
