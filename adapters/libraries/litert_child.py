# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite's interpreter (LiteRT) behind qualm's pipe protocol (docs/pipe.md).

    python3 litert_child.py reference|builtin|xnnpack

Each case becomes a model of one operator (padding that is neither SAME nor VALID: of a PAD before
it), weights and bias constants in it, and runs on one thread: by the reference kernels, by the
optimized ones, or by the delegate XNNPACK, which a model gets unless one asks for less. A node that
XNNPACK leaves to the optimized kernels is skipped there. What TensorFlow Lite's quantization spec
leaves out, and what ends the process or is undefined in C++ there, is answered with a "skip" and its
reason. Upstream files below are of LiteRT v2.2.0, folder tflite/.
"""
import math
import os

from library_child import (Skip, array, flat, integers, is_normal, judged, processor_flags, real,
                           reals, serve, single)
from litert_models import RESOLVERS

# The version that the conventions were held to (oracles/conventions/tflite.cc).
HELD = (2, 3)

TYPES = {"u8": "UINT8", "s8": "INT8", "s16": "INT16", "s4": "INT4", "s2": "INT2"}
NARROW = {"s4": 4, "s2": 2}  # bits, of weights


def check_multiplier(multiplier, most=30):
    """Shifts from 2^31 on, beside s16 from 2^8 on, and infinities, are undefined in C++
    (kernels/internal/common.cc, quantization_util.cc)."""
    if not multiplier < 2.0**most:
        raise Skip("the multiplier is too large")


def packed(codes, bits):
    """Of int8 codes the bytes of a tensor, the first code lowest, rows without a gap."""
    import numpy

    count = 8 // bits
    fields = codes.reshape(-1).view("uint8") & (1 << bits) - 1
    fields = numpy.append(fields, numpy.zeros(-len(fields) % count, "uint8")).reshape(-1, count)
    return sum(fields[:, i] << bits * i for i in range(count)).astype("uint8")


def same_padding(size, taps, stride, dilation):
    """Before and after: kernels/padding.h, ComputePaddingWithOffset."""
    reach = (taps - 1) * dilation + 1
    total = max((-(-size // stride) - 1) * stride + reach - size, 0)
    return [total // 2, total - total // 2]


def largest_sum(c):
    """Of the exponentials of a row."""
    scale, n = real(c["x_scale"]), c["N"]
    rows = [c["x"][m * n:m * n + n] for m in range(c["M"])]
    return max(sum(math.exp((v - max(row)) * scale) for v in row) for row in rows)


class Model:
    """A model of few operators, and the tensors that are its inputs."""

    def __init__(self, engine):
        self.engine = engine
        self.schema = engine.schema
        self.tensors, self.codes, self.operators, self.inputs = [], [], [], []
        self.buffers = [self.schema.BufferT()]  # the empty one

    def tensor(self, shape, dtype, scale=None, zero_point=0, axis=0, data=None):
        tensor = self.schema.TensorT()
        tensor.shape, tensor.type = shape, getattr(self.schema.TensorType, dtype)
        tensor.buffer = 0
        if scale is not None:
            q = self.schema.QuantizationParametersT()
            q.scale, q.zeroPoint = reals(scale), integers(zero_point)
            q.quantizedDimension = axis
            tensor.quantization = q
        if data is not None:
            buffer = self.schema.BufferT()
            buffer.data = data.reshape(-1).view("uint8")
            tensor.buffer = len(self.buffers)
            self.buffers.append(buffer)
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def input(self, values, *args, **kwargs):
        index = self.tensor(list(values.shape), *args, **kwargs)
        self.inputs.append((index, values))
        return index

    def operator(self, name, version, inputs, output, options=None, **values):
        code = self.schema.OperatorCodeT()
        code.builtinCode = getattr(self.schema.BuiltinOperator, name)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        code.version = version
        self.codes.append(code)
        operator = self.schema.OperatorT()
        operator.opcodeIndex = len(self.codes) - 1
        operator.inputs, operator.outputs = inputs, [output]
        if options:
            operator.builtinOptionsType = getattr(self.schema.BuiltinOptions, options)
            operator.builtinOptions = getattr(self.schema, options + "T")()
            for key, value in values.items():
                setattr(operator.builtinOptions, key, value)
        self.operators.append(operator)

    def bytes(self, output):
        graph = self.schema.SubGraphT()
        graph.tensors, graph.operators = self.tensors, self.operators
        graph.inputs, graph.outputs = [index for index, _ in self.inputs], [output]
        model = self.schema.ModelT()
        model.version = 3
        model.operatorCodes, model.subgraphs, model.buffers = self.codes, [graph], self.buffers
        builder = self.engine.flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    def run(self, output):
        engine = self.engine
        if engine.name == "xnnpack":
            for tensor in self.tensors:
                scales = tensor.quantization.scale if tensor.quantization else []
                if not all(map(is_normal, scales)):
                    raise Skip("XNNPACK takes scales that are normal numbers")
        interpreter = engine.interpreter.Interpreter(
            model_content=self.bytes(output), num_threads=1,
            experimental_op_resolver_type=engine.resolver)
        interpreter.allocate_tensors()
        if engine.name == "xnnpack":
            # The delegate appends a node for those that it takes.
            node = interpreter._get_ops_details()[-1]  # pylint: disable=protected-access
            if node["op_name"] != "DELEGATE" or output not in node["outputs"]:
                raise Skip("XNNPACK leaves this to the optimized kernels: ask tflite@builtin")
        for index, values in self.inputs:
            interpreter.set_tensor(index, values)
        interpreter.invoke()
        return flat(interpreter.get_tensor(output))


class Engine:
    def __init__(self, name):
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        from importlib import metadata

        import flatbuffers
        from ai_edge_litert import interpreter
        from ai_edge_litert import schema_py_generated as schema

        self.name = name
        self.interpreter, self.schema, self.flatbuffers = interpreter, schema, flatbuffers
        self.resolver = getattr(interpreter.OpResolverType, RESOLVERS[name])
        self.version = metadata.version("ai-edge-litert")

    def hello(self):
        codes = {"x": ["u8", "s8"], "out": ["u8", "s8"]}
        sums = dict(codes, w_zp=[-128, 255], features=["bias_i32", "relu", "per_channel"])
        if self.name != "xnnpack":
            sums.update(x=codes["x"] + ["s16"], out=codes["out"] + ["s16"])
        convolution = dict(sums, features=sums["features"] + ["dilation", "groups",
                                                              "asymmetric_padding"])
        pair = dict(codes, features=["relu"])
        pool = dict(codes, features=["relu", "asymmetric_padding"])
        isa = "scalar"
        if self.name != "reference":
            flags = processor_flags()
            isa = "avx512" if "avx512bw" in flags else "avx2" if "avx2" in flags else "sse41"
        contract = "model:tflite@" + self.name
        if self.name == "xnnpack":
            new = "avx512" if isa == "avx512" or "avx_vnni" in processor_flags() else "avx2"
            contract = "model:xnnpack2026@%s,concat=model:tflite@reference" % new
        ops = {
            "quantize": {"out": ["u8", "s8", "s16"], "features": ["per_channel"]},
            "dequantize": {"x": ["u8", "s8", "s16"], "features": ["per_channel"]},
            "rescale": codes,
            "add": pair,
            "sub": pair,
            "mul": pair,
            "linear": dict(sums, w=["u8", "s8", "s4", "s2"]),
            "dynamic_linear": {"x": ["f32"], "w": ["s8"], "out": ["f32"], "w_zp": [0, 0],
                               "rules": ["observer"],
                               "features": ["bias_f32", "relu", "per_channel", "per_row"]},
            "conv2d": convolution,
            "depthwise": convolution,
            "max_pool": pool,
            "avg_pool": pool,
            "global_avg_pool": codes,
            "concat": codes,
            "table": codes,
            "softmax": codes,
        }
        if self.name == "xnnpack":  # it has these for float32 only
            for op in ("quantize", "dequantize", "avg_pool", "softmax"):
                del ops[op]
        return {
            "name": "LiteRT",
            "version": judged(self.version, HELD),
            "contract": contract,
            "instruction_set": isa,
            "ops": ops,
        }

    # Tensors -------------------------------------------------------------------------------------

    def input(self, model, c, key, shape, axis=0):
        dtype = c["x_dtype"]
        return model.input(array(c[key], dtype, shape), TYPES[dtype], c[key + "_scale"],
                           c[key + "_zp"], axis)

    def output(self, model, c, shape):
        return model.tensor(shape, TYPES[c["out_dtype"]], c["out_scale"], c["out_zp"])

    @staticmethod
    def activation(c):
        return 1 if c["relu"] else 0  # NONE, RELU

    @staticmethod
    def one_type(c):
        if c["x_dtype"] != c["out_dtype"]:
            raise Skip("input and output have one type")

    # Operations ----------------------------------------------------------------------------------

    def quantize(self, c):
        model = Model(self)
        x = model.input(array(c["x"], "f32", (c["M"], c["N"])), "FLOAT32")
        y = model.tensor([c["M"], c["N"]], TYPES[c["out_dtype"]], c["out_scale"],
                         c["out_zp"], axis=1)
        model.operator("QUANTIZE", 1, [x], y, "QuantizeOptions")
        return model.run(y)

    def dequantize(self, c):
        if c["x_dtype"] == "s16" and (len(reals(c["x_scale"])) > 1 or any(integers(c["x_zp"]))):
            raise Skip("s16 codes become reals per tensor, and their zero point is 0")
        model = Model(self)
        x = self.input(model, c, "x", (c["M"], c["N"]), axis=1)
        y = model.tensor([c["M"], c["N"]], "FLOAT32")
        model.operator("DEQUANTIZE", 2, [x], y, "DequantizeOptions")
        return model.run(y)

    def rescale(self, c):
        check_multiplier(real(c["x_scale"]) / real(c["out_scale"]))
        model = Model(self)
        x = self.input(model, c, "x", (c["M"], c["N"]))
        y = self.output(model, c, [c["M"], c["N"]])
        model.operator("QUANTIZE", 2, [x], y, "QuantizeOptions")
        return model.run(y)

    def pair(self, c, name, version, options):
        self.one_type(c)
        model = Model(self)
        shape = (c["M"], c["N"])
        inputs = [self.input(model, c, key, shape) for key in "ab"]
        y = self.output(model, c, list(shape))
        values = {} if name == "MUL" else {"potScaleInt16": False}
        model.operator(name, version, inputs, y, options,
                       fusedActivationFunction=self.activation(c), **values)
        return model.run(y)

    def check_sum(self, c):
        """kernels/add.cc, Prepare; QuantizeMultiplierSmallerThanOneExp aborts."""
        twice = single(2 * max(real(c["a_scale"]), real(c["b_scale"])))
        unit = single(2.0**20 * real(c["out_scale"]))
        if math.isinf(twice) or math.isinf(unit) or not twice / unit < 1:
            raise Skip("twice the larger scale must be below 2^20 times that of the output")

    def add(self, c):
        self.check_sum(c)
        return self.pair(c, "ADD", 2, "AddOptions")

    def sub(self, c):
        self.check_sum(c)
        return self.pair(c, "SUB", 3, "SubOptions")

    def mul(self, c):
        product = single(real(c["a_scale"]) * real(c["b_scale"]))
        check_multiplier(single(product / real(c["out_scale"])))
        return self.pair(c, "MUL", 2, "MulOptions")

    def check_products(self, c):
        self.one_type(c)
        u8, s16 = c["x_dtype"] == "u8", c["x_dtype"] == "s16"
        if c["w_dtype"] == "u8" and not u8:
            raise Skip("weights of s8 and s16 activations are s8")
        if c["w_dtype"] in NARROW and u8:
            raise Skip("activations of weights of fewer than 8 bits are signed")
        if not u8 and any(integers(c["w_zp"])):
            raise Skip("weights of s8 and s16 activations are symmetric")
        if s16 and (any(integers(c["x_zp"])) or any(integers(c["out_zp"]))):
            raise Skip("s16 activations are symmetric")
        if u8 and c["gran"] == "channel":
            raise Skip("weights of u8 activations have one scale")
        if c.get("bias") is not None:
            raise Skip("the bias is int32")
        x, out = real(c["x_scale"]), real(c["out_scale"])
        for scale in reals(c["w_scale"]):
            product = single(x * scale)
            if math.isinf(product):
                raise Skip("the product of scales is not finite")
            check_multiplier(x * scale / out, 7 if s16 and c["op"] != "linear" else 30)
            if self.name == "xnnpack" and not (single(product / out) < 256 and (
                    not u8 or single(product / out) >= 2.0**-32)):
                raise Skip("XNNPACK takes multipliers in [2^-32, 256)")

    def weights(self, model, c, shape, axis):
        """The tensors of weights and bias; of depthwise layers the channels are the last axis."""
        count = shape[0]
        wide = c["x_dtype"] == "s16"
        narrow = c["w_dtype"] in NARROW
        dtype = c["w_dtype"] if narrow else "s8" if wide else c["x_dtype"]
        # s8 weights of a u8 layer go as u8 codes, 128 higher, as their zero point: the same layer.
        up = 128 if dtype != c["w_dtype"] else 0
        w = array([code + up for code in c["w"]], dtype, shape)
        if axis == 3:
            w = w.transpose(1, 2, 3, 0).reshape(1, shape[1], shape[2], count).copy()
        per_channel = c["gran"] == "channel"
        zero_point = [0] * count if per_channel else [z + up for z in integers(c["w_zp"])]
        indices = [model.tensor(list(w.shape), TYPES[dtype], c["w_scale"], zero_point,
                                axis, packed(w, NARROW[dtype]) if narrow else w)]
        bias = c.get("bias_i32")
        if bias is None and c["op"] != "linear":
            bias = [0] * count  # kernels/conv.cc, Prepare, requires one
        if bias is not None:
            x = real(c["x_scale"])
            scale = [single(x * s) for s in reals(c["w_scale"])]
            # kernel_util.cc, GetQuantizedConvolutionMultipler
            off = 0 if per_channel else abs(x * reals(c["w_scale"])[0] - scale[0])
            if off / real(c["out_scale"]) > 0.02:
                raise Skip("the float32 scale of the bias is too far from the product of scales")
            # As converters write it: beside s16 activations of 64 bits.
            codes = array(bias, "s32", count)
            indices.append(model.tensor([count], "INT64" if wide else "INT32", scale,
                                        [0] * len(scale), 0,
                                        codes.astype("int64") if wide else codes))
        return indices

    def bias_type(self, c):
        """Of kernels that also add in 32 bits where the bias has them."""
        if c["x_dtype"] != "s16":
            return {}
        return {"quantizedBiasType": self.schema.TensorType.INT64}

    def linear(self, c):
        self.check_products(c)
        model = Model(self)
        x = self.input(model, c, "x", (c["M"], c["K"]))
        parameters = self.weights(model, c, (c["N"], c["K"]), 0)
        y = self.output(model, c, [c["M"], c["N"]])
        options = self.bias_type(c)
        version = 11 if options else 10 if c["w_dtype"] in NARROW else 4
        model.operator("FULLY_CONNECTED", version, [x] + parameters, y,
                       "FullyConnectedOptions", fusedActivationFunction=self.activation(c),
                       **options)
        return model.run(y)

    def dynamic_linear(self, c):
        """The interpreter quantizes each row of x by a scale of its own."""
        if c["M"] > 1 and c.get("x_gran") != "row":
            raise Skip("each row of x has a scale of its own")
        symmetric = c["symmetric"]
        if c["dtype"] != "s8" or c["reduce_range"] or (c["quant_min"], c["quant_max"]) != (
                -127 if symmetric else -128, 127):
            raise Skip("x is quantized to all codes of s8, symmetric to -127..127")
        if symmetric and self.name == "xnnpack":
            raise Skip("XNNPACK quantizes x with a zero point, whatever the model says")
        model = Model(self)
        x = model.input(array(c["x"], "f32", (c["M"], c["K"])), "FLOAT32")
        inputs = [x, model.tensor([c["N"], c["K"]], "INT8", c["w_scale"],
                                  [0] * len(reals(c["w_scale"])), 0,
                                  array(c["w"], "s8", (c["N"], c["K"])))]
        if c.get("bias") is not None:
            inputs.append(model.tensor([c["N"]], "FLOAT32", data=array(c["bias"], "f32", c["N"])))
        y = model.tensor([c["M"], c["N"]], "FLOAT32")
        model.operator("FULLY_CONNECTED", 9, inputs, y, "FullyConnectedOptions",
                       fusedActivationFunction=self.activation(c),
                       asymmetricQuantizeInputs=not symmetric)
        return model.run(y)

    def size(self, c, axis):
        """Rows or columns of the output."""
        reach = c.get("dilation", [1, 1])[axis] * (c["RS"[axis]] - 1) + 1
        padded = c["HW"[axis]] + sum(c["pad"][2 * axis: 2 * axis + 2])
        return (padded - reach) // c["stride"][axis] + 1

    def padding(self, c):
        """SAME (0), VALID (1), or None where it is neither."""
        if not any(c["pad"]):
            return 1
        dilation = c.get("dilation", [1, 1])
        same = [same_padding(c["HW"[i]], c["RS"[i]], c["stride"][i], dilation[i]) for i in (0, 1)]
        return 0 if c["pad"] == same[0] + same[1] else None

    def padded(self, model, c, x, channels):
        """PAD fills with the zero point of its input (kernels/pad.cc)."""
        top, bottom, left, right = c["pad"]
        amounts = array([0, 0, top, bottom, left, right, 0, 0], "s32", (4, 2))
        p = model.tensor([4, 2], "INT32", data=amounts)
        shape = [c["N"], c["H"] + top + bottom, c["W"] + left + right, channels]
        y = model.tensor(shape, TYPES[c["x_dtype"]], c["x_scale"], c["x_zp"])
        model.operator("PAD", 2, [x, p], y, "PadOptions")
        return y

    def convolution(self, c, depthwise):
        self.check_products(c)
        if self.size(c, 0) < 1 or self.size(c, 1) < 1:
            raise Skip("the output is empty")
        model = Model(self)
        x = self.input(model, c, "x", (c["N"], c["H"], c["W"], c["IC"]))
        padding = self.padding(c)
        if padding is None:
            x, padding = self.padded(model, c, x, c["IC"]), 1
        shape = (c["OC"], c["R"], c["S"], c["IC"] // c["groups"])
        parameters = self.weights(model, c, shape, 3 if depthwise else 0)
        y = self.output(model, c, [c["N"], self.size(c, 0), self.size(c, 1), c["OC"]])
        options = {"padding": padding, "strideH": c["stride"][0], "strideW": c["stride"][1],
                   "dilationHFactor": c["dilation"][0], "dilationWFactor": c["dilation"][1],
                   "fusedActivationFunction": self.activation(c)}
        if depthwise:
            options["depthMultiplier"] = c["OC"] // c["IC"]
            model.operator("DEPTHWISE_CONV_2D", 5 if c["x_dtype"] == "s16" else 3,
                           [x] + parameters, y, "DepthwiseConv2DOptions", **options)
        else:
            options.update(self.bias_type(c))
            model.operator("CONV_2D", 8 if c["x_dtype"] == "s16" else 3, [x] + parameters, y,
                           "Conv2DOptions", **options)
        return model.run(y)

    def conv2d(self, c):
        return self.convolution(c, False)

    def depthwise(self, c):
        return self.convolution(c, True)

    def pool(self, c, name, version):
        self.one_type(c)
        if (c["x_scale"], c["x_zp"]) != (c.get("out_scale", c["x_scale"]),
                                         c.get("out_zp", c["x_zp"])):
            raise Skip("the output has the scale and zero point of the input")
        padding = self.padding(c)
        if padding is None:
            raise Skip("pools pad as SAME or not at all")
        if self.size(c, 0) < 1 or self.size(c, 1) < 1:
            raise Skip("the output is empty")
        model = Model(self)
        x = self.input(model, c, "x", (c["N"], c["H"], c["W"], c["C"]))
        y = model.tensor([c["N"], self.size(c, 0), self.size(c, 1), c["C"]],
                         TYPES[c["x_dtype"]], c["x_scale"], c["x_zp"])
        model.operator(name, version, [x], y, "Pool2DOptions", padding=padding,
                       strideH=c["stride"][0], strideW=c["stride"][1], filterHeight=c["R"],
                       filterWidth=c["S"], fusedActivationFunction=self.activation(c))
        return model.run(y)

    def max_pool(self, c):
        return self.pool(c, "MAX_POOL_2D", 2)

    def avg_pool(self, c):
        return self.pool(c, "AVERAGE_POOL_2D", 2)

    def global_avg_pool(self, c):
        self.one_type(c)
        check_multiplier(real(c["x_scale"]) / real(c["out_scale"]))
        model = Model(self)
        x = self.input(model, c, "x", (c["N"], c["H"], c["W"], c["C"]))
        axes = model.tensor([2], "INT32", data=array([1, 2], "s32", 2))
        y = self.output(model, c, [c["N"], 1, 1, c["C"]])
        model.operator("MEAN", 2, [x, axes], y, "ReducerOptions", keepDims=True)
        return model.run(y)

    def concat(self, c):
        self.one_type(c)
        same = all((c[k + "_scale"], c[k + "_zp"]) == (c["out_scale"], c["out_zp"]) for k in "ab")
        if c["x_dtype"] == "s8" and not same:
            raise Skip("s8 operands have the scale and zero point of the output")
        model = Model(self)
        inputs = [self.input(model, c, key, (c["M"], c[size]))
                  for key, size in (("a", "NA"), ("b", "NB"))]
        y = self.output(model, c, [c["M"], c["NA"] + c["NB"]])
        model.operator("CONCATENATION", 2, inputs, y, "ConcatenationOptions", axis=1)
        return model.run(y)

    def table(self, c):
        self.one_type(c)
        name, version, options, values = {
            "relu": ("RELU", 2, None, {}),
            "leaky_relu": ("LEAKY_RELU", 2, "LeakyReluOptions", {}),
            "hardswish": ("HARD_SWISH", 1, "HardSwishOptions", {}),
            "sigmoid": ("LOGISTIC", 2, None, {}),
            "tanh": ("TANH", 2, None, {}),
        }[c["function"]]
        scale, out = real(c["x_scale"]), real(c["out_scale"])
        if c["function"] == "sigmoid" and out != 2.0**-8:
            raise Skip("the output of LOGISTIC has scale 2^-8")
        if c["function"] == "leaky_relu":
            values = {"alpha": real(c["negative_slope"])}
            check_multiplier(single(single(scale * values["alpha"]) / out))
        if c["function"] in ("relu", "leaky_relu"):
            check_multiplier(single(scale / out))
        if c["function"] == "tanh" and out < 2.0**-30 and self.name != "xnnpack":
            raise Skip("codes of tanh beyond int32 are undefined in C++")
        if c["function"] == "hardswish" and not single(single(scale / 128) / out) < 1:
            raise Skip("the output scale must be above 1/128 of the input's")
        model = Model(self)
        x = self.input(model, c, "x", (c["M"], c["N"]))
        y = self.output(model, c, [c["M"], c["N"]])
        model.operator(name, version, [x], y, options, **values)
        return model.run(y)

    def softmax(self, c):
        self.one_type(c)
        if not real(c["x_scale"]) > 2.0**-26:
            raise Skip("the scale of x must be above 2^-26")
        if self.name == "reference" and largest_sum(c) > 511.9:
            raise Skip("a row whose exponentials sum to 512 ends the process (TFLITE_CHECK in "
                       "kernels/internal/reference/softmax.h)")
        model = Model(self)
        x = self.input(model, c, "x", (c["M"], c["N"]))
        zero_point = -128 if c["x_dtype"] == "s8" else 0
        y = model.tensor([c["M"], c["N"]], TYPES[c["x_dtype"]], 2.0**-8, zero_point)
        model.operator("SOFTMAX", 2, [x], y, "SoftmaxOptions", beta=1.0)
        return model.run(y)


serve(Engine, tuple(RESOLVERS))
