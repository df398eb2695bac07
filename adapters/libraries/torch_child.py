# SPDX-License-Identifier: Apache-2.0
"""PyTorch's quantized operators behind qualm's pipe protocol (docs/pipe.md).

    python3 torch_child.py ENGINE[+kept]        ENGINE: fbgemm, x86, onednn or qnnpack
    python3 torch_child.py decomposed           the operators quantized_decomposed.* of PT2E

One JSON object per line on stdin and stdout. A case is answered by the operator that a quantized
module would call, on one thread. With "+kept" the last layers stay packed, as a module's do, and
cases that differ in input or output alone run on the same one: what a packed layer remembers of its
first run shows only so. Without it each case packs its weights anew. What an operator cannot do is said in the handshake; what only
shows in the numbers of a case is answered with a "skip" and its reason. What PyTorch asserts on is
answered with an "error": that is a fault of its own, declared in adapters/contracts.cc. The instruction set is
chosen by who starts this program: ONEDNN_MAX_CPU_ISA, FBGEMM_ENABLE_INSTRUCTIONS and
ATEN_CPU_CAPABILITY are read only once. What then runs is asked by what it computes.
"""
import collections
import ctypes
import math
import os
import re

from library_child import (Skip, is_normal, judged, processor_flags, real, serve, single, text,
                           version_of)


def inverse(value):
    """fl(1/value)"""
    return single(1.0 / value) if value else math.inf


def has_empty_window(c):
    """Whether a row or column of windows meets no row or column of the image."""
    for size, taps, axis in ((c["H"], c["R"], 0), (c["W"], c["S"], 1)):
        before, after = c["pad"][2 * axis: 2 * axis + 2]
        stride, dilation = c["stride"][axis], c["dilation"][axis]
        last = size + before + after - dilation * (taps - 1) - 1
        for first in range(-before, last - before + 1, stride):
            if not any(0 <= first + k * dilation < size for k in range(taps)):
                return True
    return False


def has_window_around_image(c):
    """Whether a window reaches past both ends of a row or column."""
    return (c["dilation"][0] * (c["R"] - 1) + 1 > c["H"] or
            c["dilation"][1] * (c["S"] - 1) + 1 > c["W"])


def loses_compensation(c):
    """Whether oneDNN 2.6's jit:uni, which lays out the weights of a gemm, forgets the compensation
    for the zero point of x: it transposes tiles of 8 by 8, or scatters four codes at once
    (src/cpu/x64/jit_uni_reorder.cpp; adapters/libraries/onednn/conv.cc)."""
    taps, channels, depth = c["R"] * c["S"], c["OC"], c["IC"] // c["groups"]
    if taps * depth == 1:
        return False
    if channels == 8 and taps * depth == 8 and (taps == 1 or depth == 1):
        return True
    step, inner = (taps, depth) if depth > 1 else (1, taps)
    blocked = (taps * depth % 64 == 0 and channels > 16) or (step % 16 == 0 and inner > 16)
    return blocked and (channels * depth if taps > 1 else channels) % 4 != 0


def is_prepacked_dummy(c):
    """Whether ideep's cache takes the convolution for the one that it made up to lay the weights
    out: one image of 4R by 4S, no bias, no relu, multiplier 1 (ideep b2f8044
    include/ideep/operators/conv.hpp, expected_weights_desc). That one writes int32."""
    w = c["w_scale"] if isinstance(c["w_scale"], list) else [c["w_scale"]]
    if (c["N"], c["H"], c["W"]) != (1, 4 * c["R"], 4 * c["S"]) or len(w) > 1:
        return False
    accumulator = single(inverse(real(c["x_scale"])) * inverse(real(w[0])))
    multiplier = inverse(real(c["out_scale"])) / accumulator if accumulator else math.inf
    return c.get("bias") is None and not c["relu"] and single(multiplier) == 1.0


# The versions that the conventions were held to, by recordings or by drawn cases
# (oracles/conventions/torch.cc). Between them and beyond them the nearest is taken.
HELD = {"wheel": ((2, 11), (2, 13)), "distribution": ((1, 13), (2, 6))}

# Of oneDNN, from the newest: the name in oracles/conventions, that in ONEDNN_MAX_CPU_ISA, and the
# flag of a processor that has it.
ONEDNN_ISAS = (("amx", "AVX512_CORE_AMX", "amx_int8"), ("vnni", "AVX512_CORE_VNNI", "avx512_vnni"),
               ("avx512core", "AVX512_CORE", "avx512bw"), ("avx2vnni", "AVX2_VNNI", "avx_vnni"),
               ("avx2", "AVX2", "avx2"), ("sse41", "SSE41", "sse4_1"))
# Values of ONEDNN_MAX_CPU_ISA that give the arithmetic of another one.
ONEDNN_SYNONYMS = {"AVX512_CORE_BF16": "AVX512_CORE_VNNI", "AVX10_1_512": "AVX512_CORE_VNNI",
                   "AVX512_CORE_FP16": "AVX512_CORE_VNNI", "AVX2_VNNI_2": "AVX2_VNNI"}


MOST_LAYERS = 8
# Of ideep, which keeps 1,024. A wrong answer that a primitive of long ago gives could not be found
# again by asking what was asked lately (fuzz/recent_runs.h). More than the questions about one case,
# because claims compare answers to the first of them with answers to the last.
# LRU_CACHE_CAPACITY in the environment says otherwise.
MOST_PRIMITIVES = 32


class Engine:
    def __init__(self, name, keeps_layers):
        os.environ.setdefault("LRU_CACHE_CAPACITY", str(MOST_PRIMITIVES))  # ideep lru_cache.hpp
        import torch

        self.torch = torch
        self.name = name
        self.keeps_layers = keeps_layers
        self.version = version_of(torch.__version__)
        self.is_113 = self.version == (1, 13)
        config = torch.__config__.show()
        self.build = "wheel" if "-DUSE_FBGEMM" in config else "distribution"
        onednn = re.search(r"MKL-DNN v(\d+)\.(\d+)", config)
        self.onednn_version = tuple(int(n) for n in onednn.groups()) if onednn else (0, 0)
        torch.set_num_threads(1)
        if name not in torch.backends.quantized.supported_engines:
            raise Skip("this PyTorch has no engine %s" % name)
        torch.backends.quantized.engine = name
        self.dtypes = {"u8": torch.quint8, "s8": torch.qint8}
        self.plain = {"u8": torch.uint8, "s8": torch.int8}
        self.layers = collections.OrderedDict()  # the one asked last comes last
        self.isa, self.contract = self.find_contract()

    # Handshake -----------------------------------------------------------------------------------

    def capability(self):
        """ATen's own vector code: default, avx2, avx512."""
        for line in self.torch.__config__.show().splitlines():
            if "CPU capability usage:" in line:
                return line.split(":")[1].strip().lower().replace("no avx", "default")
        raise Skip("this PyTorch does not tell its CPU capability")

    def one_product(self, x, w, out_scale):
        """The code of the sum of x[i]*w[i]; x and w are (codes, scale) with zero point 0."""
        torch, ops = self.torch, self.torch.ops.quantized
        make = torch._make_per_tensor_quantized_tensor
        x = make(torch.tensor([x[0]], dtype=torch.uint8), x[1], 0)
        w = make(torch.tensor([w[0]], dtype=torch.int8), w[1], 0)
        return int(ops.linear(x, ops.linear_prepack(w, None), out_scale, 0).int_repr()[0, 0])

    def saturates(self):
        """Whether pairs of products saturate: 4*255*127 is 126.5 times 1024, 2*32767 is 64."""
        return self.one_product(([255] * 4, 1.0), ([127] * 4, 1.0), 1024.0) == 64

    def scales_in_turn(self):
        """Whether a sum is multiplied by the scale of x and then by that of w, as oneDNN 3.10 does
        on AVX-512. By their product it stays below half of a code, so it does not."""
        return self.one_product(([71], float.fromhex("0x1.35p-3")),
                                ([1], float.fromhex("0x1.043b24p-1")),
                                float.fromhex("0x1.5c766p+3")) == 1

    def onednn_isa(self):
        """What the oneDNN in this process uses, in the names of oracles/conventions."""
        with open("/proc/self/maps", encoding="utf-8") as maps:
            paths = {line.split()[-1] for line in maps if "libdnnl" in line}
        if len(paths) != 1:
            return self.linked_onednn_isa()
        effective = ctypes.CDLL(paths.pop()).dnnl_get_effective_cpu_isa()
        # dnnl_cpu_isa_t: each value includes the bits of the sets it builds upon.
        for bits, name in ((0x200, "amx"), (0x40, "vnni"), (0x20, "avx512core"),
                           (0x8, "avx2vnni"), (0x4, "avx2"), (0x1, "sse41")):
            if effective & bits:
                return name
        raise Skip("oneDNN runs without SSE4.1")

    def linked_onednn_isa(self):
        """The same of a oneDNN that has no name of its own in this process: what processor and
        environment allow, if it computes so."""
        most = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
        most = ONEDNN_SYNONYMS.get(most, most)
        known = [value for _, value, _ in ONEDNN_ISAS]
        first = known.index(most) if most in known else 0
        flags = processor_flags()
        # AVX2 with VNNI is no part of AVX-512.
        isa = next((name for name, _, flag in ONEDNN_ISAS[first:] if flag in flags), None)
        if isa is None:
            raise Skip("oneDNN runs without SSE4.1")
        engine, self.torch.backends.quantized.engine = (self.torch.backends.quantized.engine,
                                                        "onednn")
        saturates, in_turn = self.saturates(), self.scales_in_turn()
        self.torch.backends.quantized.engine = engine
        if saturates != (isa in ("avx512core", "avx2", "sse41")):
            raise Skip("oneDNN should run on %s, but its pairs of products %s" %
                       (isa, "saturate" if saturates else "do not saturate"))
        if self.onednn_version >= (3, 10) and in_turn != (isa in ("amx", "vnni", "avx512core")):
            raise Skip("oneDNN should run on %s, but multiplies by its scales as it does on "
                       "another one" % isa)
        return isa

    def fbgemm_isa(self):
        if not self.saturates():
            return "vnni"
        switch = os.environ.get("FBGEMM_ENABLE_INSTRUCTIONS", "").upper()
        return "avx2" if switch == "AVX2" or "avx512bw" not in processor_flags() else "avx512"

    def adds_before_rounding(self):
        """Whether quantize adds the zero point before it rounds: 0.5 + 1 is 1.5, and not 0 + 1."""
        torch = self.torch
        y = torch.quantize_per_tensor(torch.tensor([0.5]), 1.0, 1, torch.quint8)
        return int(y.int_repr()[0]) == 2

    def find_contract(self):
        """The instruction set, and the conventions that this version, build and engine follow."""
        if self.build == "wheel":
            return self.wheels_contract()
        if self.name == "qnnpack":
            return "sse2", "model:torch-qnnpack"
        if self.name != "onednn" or not self.is_113:
            raise Skip("the arithmetic of engine %s is known for PyTorch's own wheels%s, this is %s "
                       "without FBGEMM" %
                       (self.name, " and for 1.13" if self.name == "onednn" else "",
                        self.torch.__version__))
        isa = self.onednn_isa()
        # The conventions torch-onednn@ISA have one capability of ATen each.
        expected = "default" if isa == "sse41" else "avx2"
        if self.capability() != expected:
            raise Skip("ATen uses %s beside oneDNN's %s: set ATEN_CPU_CAPABILITY=%s" %
                       (self.capability(), isa, expected))
        return isa, "model:torch-onednn@" + isa

    def wheels_contract(self):
        newer = self.adds_before_rounding()
        if self.name == "qnnpack":
            return "sse2", "model:torch%s-qnnpack" % ("2.13" if newer else "2.11")
        capability = self.capability()
        if capability not in ("avx2", "avx512"):
            raise Skip("ATen runs without vector code (ATEN_CPU_CAPABILITY, which +sse41 sets too), "
                       "which no convention of PyTorch's wheels describes")
        aten = "torch2.13-aten@" + capability if newer else "torch2.11-aten"
        if self.name == "onednn":
            isa = self.onednn_isa()
            product = convolution = self.onednn_convention(isa)
        else:
            isa = self.fbgemm_isa()
            product = "fbgemm@" + isa
            held = isa != "vnni" and "avx512_vnni" in processor_flags()
            convolution = "torch-fbgemm@" + isa + ("+held" if held else "")
        if self.name == "x86" and "avx512_vnni" in processor_flags():
            onednn = self.onednn_isa()
            pairs = {"avx2": "avx2", "avx512core": "avx512", "vnni": "vnni", "amx": "vnni"}
            if pairs.get(onednn) != isa or self.onednn_version < (3, 10):
                raise Skip("no convention has FBGEMM on %s beside oneDNN %d.%d on %s" %
                           ((isa,) + self.onednn_version + (onednn,)))
            convolution = "torch-x86@" + onednn
            isa = "amx" if onednn == "amx" else isa
        contract = "model:" + aten
        for op, convention in (("linear", product), ("conv2d", convolution),
                               ("depthwise", convolution), ("dynamic_linear", product)):
            contract += ",%s=model:%s" % (op, convention)
        return isa, contract

    def onednn_convention(self, isa):
        if self.onednn_version < (3, 0):
            return "torch-onednn@" + isa
        if self.onednn_version < (3, 10) or isa in ("sse41", "avx2vnni"):
            raise Skip("what oneDNN %d.%d computes on %s no convention describes as a whole" %
                       (self.onednn_version + (isa,)))
        return "onednn3.10@" + isa

    def hello(self):
        qnnpack = self.name == "qnnpack"
        w_zp = [0, 0] if self.name == "onednn" else [-128, 127]
        sums = {"x": ["u8"], "w": ["s8"], "out": ["u8"], "w_zp": w_zp,
                "features": ["bias_f32", "relu", "per_channel"]}
        convolution = dict(sums, features=sums["features"] + ["dilation", "groups"])
        pair = {"features": ["relu"]}
        codes = {"x": ["u8", "s8"], "features": ["per_channel", "empty"]}
        dynamic = ["bias_f32", "relu", "per_channel", "empty"]
        # Without terms the wheels' FBGEMM and oneDNN leave the output as its memory was.
        if self.build != "wheel" or qnnpack:
            dynamic.append("empty_k")
        pool = {"x": ["u8"], "features": ["dilation"]} if qnnpack else {
            "features": ["dilation", "ceil_mode"]}
        average = {"x": ["u8"], "out": ["u8"], "features": ["count_padding"]} if qnnpack else {
            "features": ["count_padding", "ceil_mode"]}
        return {
            "name": "PyTorch",
            "version": judged(self.torch.__version__, *HELD[self.build]),
            "contract": self.contract,
            "instruction_set": self.isa,
            "ops": {
                "quantize": {"out": ["u8", "s8"], "features": ["per_channel", "empty"]},
                "dequantize": codes,
                "linear": sums,
                "conv2d": convolution,
                "depthwise": convolution,
                "add": pair,
                "mul": pair,
                "max_pool": pool,
                "avg_pool": average,
                "global_avg_pool": {key: average[key] for key in average if key != "features"},
                "table": {"x": ["u8"], "out": ["u8"]},
                "softmax": {"x": ["u8"], "out": ["u8"]} if qnnpack else {},
                "concat": {"features": ["relu", "empty"]},
                "choose_qparams": {"features": ["per_channel", "codes"],
                                   "rules": ["observer", "aten"]},
                "dynamic_linear": {"w": ["s8"], "w_zp": w_zp, "features": dynamic},
            },
        }

    # Tensors -------------------------------------------------------------------------------------

    def quantized(self, codes, shape, dtype, scale, zero_point, axis=None):
        """Codes under one scale, or under a list of them along `axis`; images come as NHWC."""
        torch = self.torch
        whole = torch.tensor(codes, dtype=self.plain[dtype]).reshape(shape)
        if len(shape) == 4:
            whole = whole.permute(0, 3, 1, 2)
        if not isinstance(scale, list):
            return torch._make_per_tensor_quantized_tensor(whole, real(scale), zero_point)
        scales = torch.tensor([real(s) for s in scale], dtype=torch.double)
        zero_points = torch.tensor(zero_point, dtype=torch.long)
        return torch._make_per_channel_quantized_tensor(whole, scales, zero_points, axis)

    def codes(self, y):
        y = y.int_repr()
        if y.dim() == 4:
            y = y.permute(0, 2, 3, 1)
        return y.reshape(-1).tolist()

    def bias(self, c):
        if c.get("bias") is None:
            return None
        return self.torch.tensor([real(b) for b in c["bias"]], dtype=self.torch.float)

    def layer(self, c, prepack, w_shape, *window):
        """The packed layer of these weights, bias and window; `prepack` makes it."""
        def pack():
            w = self.quantized(c["w"], w_shape, c["w_dtype"], c["w_scale"], c["w_zp"], 0)
            return prepack(w, self.bias(c), *window)

        if not self.keeps_layers:
            return pack()
        parameters = [c[key] for key in ("w_dtype", "w", "w_scale", "w_zp")] + [c.get("bias")]
        key = repr([str(prepack), w_shape, parameters, window])
        packed = self.layers.pop(key) if key in self.layers else pack()
        self.layers[key] = packed
        if len(self.layers) > MOST_LAYERS:
            self.layers.popitem(last=False)
        return packed

    # Operations ----------------------------------------------------------------------------------

    def quantize(self, c):
        torch = self.torch
        x = torch.tensor([real(v) for v in c["x"]], dtype=torch.float).reshape(c["M"], c["N"])
        dtype = self.dtypes[c["out_dtype"]]
        if c["gran"] == "tensor":
            y = torch.quantize_per_tensor(x, real(c["out_scale"]), c["out_zp"], dtype)
        else:
            scales = torch.tensor([real(s) for s in c["out_scale"]], dtype=torch.double)
            zero_points = torch.tensor(c["out_zp"], dtype=torch.long)
            y = torch.quantize_per_channel(x, scales, zero_points, 1, dtype)
        return self.codes(y)

    def dequantize(self, c):
        x = self.quantized(c["x"], (c["M"], c["N"]), c["x_dtype"], c["x_scale"], c["x_zp"], 1)
        return [text(v) for v in x.dequantize().reshape(-1).tolist()]

    def check_scales(self, c, onednn):
        """What the engines refuse to prepare, and scales that make infinities and NaN."""
        x, out = real(c["x_scale"]), real(c["out_scale"])
        w = c["w_scale"] if isinstance(c["w_scale"], list) else [c["w_scale"]]
        if self.name == "qnnpack" and not is_normal(single(x * inverse(out))):
            raise Skip("x_scale/out_scale is not finite, positive and normal: PyTorch appends "
                       "channels whose weights have the scale 1, and QNNPACK refuses those")
        for scale in w:
            if onednn:
                product = single(inverse(x) * inverse(real(scale)))
                if math.isinf(product) or math.isinf(inverse(out)):
                    raise Skip("the reciprocals of the scales are not finite")
                continue
            accumulator = single(real(scale) * x)
            if not is_normal(single(accumulator * inverse(out))):
                raise Skip("the requantization scale is not finite, positive and normal")
            if math.isinf(inverse(accumulator)):
                raise Skip("the reciprocal of x_scale*w_scale is not finite: without a bias "
                           "PyTorch quantizes a bias of 0 by it, and NaN becomes INT32_MIN")

    def check_unchanged(self, c):
        """Pools and relu keep type, scale and zero point."""
        if (c["x_scale"], c["x_zp"], c["x_dtype"]) != (c["out_scale"], c["out_zp"],
                                                      c["out_dtype"]):
            raise Skip("the output has the type, scale and zero point of the input")
        if self.name == "qnnpack" and not is_normal(real(c["x_scale"])):
            raise Skip("a scale is no normal number")

    def linear(self, c):
        self.check_scales(c, self.name == "onednn")
        ops = self.torch.ops.quantized
        x = self.quantized(c["x"], (c["M"], c["K"]), c["x_dtype"], c["x_scale"], c["x_zp"])
        packed = self.layer(c, ops.linear_prepack, (c["N"], c["K"]))
        run = ops.linear_relu if c["relu"] else ops.linear
        return self.codes(run(x, packed, real(c["out_scale"]), c["out_zp"]))

    def check_convolution(self, c):
        """What corrupts memory on oneDNN, or loses zero points there."""
        depthwise = c["groups"] == c["IC"] == c["OC"] > 1
        if self.build == "wheel":
            if not depthwise and self.isa != "avx2" and has_empty_window(c):
                raise Skip("oneDNN on AVX-512 crashes in some convolutions of which a window lies "
                           "wholly in the padding")
            return
        if self.isa == "amx" and (has_empty_window(c) or has_window_around_image(c)):
            raise Skip("oneDNN on AMX crashes or writes beyond the output where a window lies "
                       "wholly in the padding or is larger than the image")
        taps = (c["R"], c["S"])
        if self.isa == "amx" and any(t == 1 < d for t, d in zip(taps, c["dilation"])):
            raise Skip("oneDNN on AMX crashes in some convolutions that dilate a single tap")
        depthwise = c["groups"] == c["IC"] == c["OC"]
        gemm = self.isa in ("avx512core", "vnni", "amx") and c["groups"] > 1 and not depthwise
        if gemm and loses_compensation(c):
            raise Skip("oneDNN 2.6 loses the compensation of these weights in its jit:uni reorder")
        if is_prepacked_dummy(c):
            raise Skip("PyTorch writes int32 over the codes: ideep's cache takes this convolution "
                       "for the one that it laid the weights out by")

    def conv2d(self, c):
        onednn = self.name in ("onednn", "x86")
        self.check_scales(c, onednn)
        if onednn:
            self.check_convolution(c)
        ops = self.torch.ops.quantized
        shape = (c["N"], c["H"], c["W"], c["IC"])
        x = self.quantized(c["x"], shape, c["x_dtype"], c["x_scale"], c["x_zp"])
        shape = (c["OC"], c["R"], c["S"], c["IC"] // c["groups"])
        packed = self.layer(c, ops.conv2d_prepack, shape, c["stride"], [c["pad"][0], c["pad"][2]],
                            c["dilation"], c["groups"])
        run = ops.conv2d_relu if c["relu"] else ops.conv2d
        return self.codes(run(x, packed, real(c["out_scale"]), c["out_zp"]))

    def operands(self, c, sizes):
        return [self.quantized(c[k], (c["M"], n), c["x_dtype"], c[k + "_scale"], c[k + "_zp"])
                for k, n in zip("ab", sizes)]

    def check_pair(self, c, low, factors):
        """What XNNPACK, which takes s8 operands, refuses to prepare."""
        scales = [real(c[key]) for key in ("a_scale", "b_scale", "out_scale")]
        if not all(is_normal(scale) for scale in scales):
            raise Skip("a scale is no normal number")
        if not all(low <= factor < 2.0**8 for factor in factors):
            raise Skip("a scale over that of the output is outside [2^%d, 2^8)" % math.log2(low))

    def add(self, c):
        out = real(c["out_scale"])
        if c["x_dtype"] != c["out_dtype"]:
            raise Skip("the output has the type of the operands")
        atens = self.name != "qnnpack" or (self.build == "wheel" and c["x_dtype"] == "s8")
        if not atens and c["x_dtype"] == "s8":
            if c["out_zp"] == 127:  # BinaryOps.cpp: zero_point < q_max
                raise Skip("at output zero point 127 the sum is ATen's, whatever the engine")
            self.check_pair(c, 2.0**-10,
                            [single(real(c[key]) / out) for key in ("a_scale", "b_scale")])
        elif not atens:
            scales = [real(c[k]) for k in ("a_scale", "b_scale")]
            if not all(is_normal(s) for s in scales + [out]):
                raise Skip("a scale is no normal number")
            ratios = [single(s / out) for s in scales]
            if not all(2.0**-14 <= r < 2.0**8 for r in ratios):
                raise Skip("an operand's scale over that of the output is outside [2^-14, 2^8)")
            if max(ratios) < 2.0**-10:
                raise Skip("both operands' scales over that of the output are below 2^-10: the "
                           "shift exceeds 31, which is undefined there")
        elif c["relu"]:
            most = 255.0 * (real(c["a_scale"]) + real(c["b_scale"]))
            if not (most < min(2.0**30 * out, 2.0**127) and is_normal(out)):
                raise Skip("a sum under relu leaves 2^30 output units, and wraps")
        ops = self.torch.ops.quantized
        a, b = self.operands(c, (c["N"], c["N"]))
        return self.codes((ops.add_relu if c["relu"] else ops.add)(a, b, out, c["out_zp"]))

    def mul(self, c):
        ops = self.torch.ops.quantized
        if c["x_dtype"] != c["out_dtype"]:
            raise Skip("the output has the type of the operands")
        product = single(real(c["a_scale"]) * real(c["b_scale"]))
        xnnpacks = self.build != "wheel" and c["x_dtype"] == "s8" and c["out_zp"] < 127  # qmul.cpp: zero_point < q_max
        if xnnpacks:
            self.check_pair(c, 2.0**-16, [single(product / real(c["out_scale"]))])
        product = single(product * inverse(real(c["out_scale"])))
        if not xnnpacks and not product * 65025.0 < 2.0**31:
            raise Skip("a product leaves 2^31 output units, and converts as the code at hand does")
        a, b = self.operands(c, (c["N"], c["N"]))
        run = ops.mul_relu if c["relu"] else ops.mul
        return self.codes(run(a, b, real(c["out_scale"]), c["out_zp"]))

    def max_pool(self, c):
        if self.name == "qnnpack" and c["R"] * c["S"] == 1:
            raise Skip("QNNPACK has no window of one element")
        if c["pad"][0] > c["R"] // 2 or c["pad"][2] > c["S"] // 2:
            raise Skip("padding of more than half of the window")
        shape = (c["N"], c["H"], c["W"], c["C"])
        x = self.quantized(c["x"], shape, c["x_dtype"], c["x_scale"], c["x_zp"])
        return self.codes(self.torch.ops.quantized.max_pool2d(
            x, [c["R"], c["S"]], c["stride"], [c["pad"][0], c["pad"][2]], c["dilation"],
            c["ceil_mode"]))

    def avg_pool(self, c):
        self.check_unchanged(c)
        if not is_normal(real(c["x_scale"])):
            raise Skip("a scale is no normal number")
        if self.name == "qnnpack" and c.get("R", c["H"]) * c.get("S", c["W"]) == 1:
            raise Skip("QNNPACK has no window of one element")
        shape = (c["N"], c["H"], c["W"], c["C"])
        x = self.quantized(c["x"], shape, c["x_dtype"], c["x_scale"], c["x_zp"])
        functional = self.torch.nn.functional
        if c["op"] == "global_avg_pool":
            return self.codes(functional.adaptive_avg_pool2d(x, (1, 1)))
        if c["pad"][0] > c["R"] // 2 or c["pad"][2] > c["S"] // 2:
            raise Skip("padding of more than half of the window")
        return self.codes(functional.avg_pool2d(
            x, (c["R"], c["S"]), c["stride"], (c["pad"][0], c["pad"][2]), c["ceil_mode"],
            c["count_include_pad"]))

    def table(self, c):
        out = real(c["out_scale"])
        qnnpack = self.name == "qnnpack"
        # These outputs have fixed parameters; only ATen's sigmoid accepts others.
        given = {"sigmoid": (2.0**-8, 0), "tanh": (2.0**-7, 128)}.get(c["function"])
        ask = c["function"] == "sigmoid" and not qnnpack
        if given and not ask and (out, c["out_zp"]) != given:
            raise Skip("the output of %s has scale 2^%d and zero point %d" %
                       (c["function"], math.log2(given[0]), given[1]))
        if c["function"] == "leaky_relu" and qnnpack:
            raise Skip("leaky_relu is ATen's, whatever the engine")
        if qnnpack and not (is_normal(out) and is_normal(real(c["x_scale"]))):
            raise Skip("a scale is no normal number")
        torch = self.torch
        ops = torch.ops.quantized
        x = self.quantized(c["x"], (c["M"], c["N"]), c["x_dtype"], c["x_scale"], c["x_zp"])
        if c["function"] == "relu":
            self.check_unchanged(c)
            return self.codes(torch.relu(x))
        if ask:
            return self.codes(ops.sigmoid(x, out, c["out_zp"]))
        if given:
            return self.codes(getattr(torch, c["function"])(x))
        if c["function"] == "hardswish":
            return self.codes(ops.hardswish(x, out, c["out_zp"]))
        return self.codes(ops.leaky_relu(x, real(c["negative_slope"]), False, out, c["out_zp"]))

    def check_softmax(self, c, scale):
        """What QNNPACK refuses, and a sum of its numerators that is a multiple of 2^32."""
        if not is_normal(scale):
            raise Skip("a scale is no normal number")
        n = c["N"]
        largest = min((2.0**32 - 1) / n, 8388607.0)
        for first in range(0, len(c["x"]), n):
            row = c["x"][first:first + n]
            top = max(row)
            total = sum(round(largest * math.exp((code - top) * scale)) for code in row)
            if total % 2**32 == 0:
                raise Skip("QNNPACK's softmax divides by a sum that has wrapped to 0")

    def softmax(self, c):
        scale = real(c["x_scale"])
        if self.name == "qnnpack":
            self.check_softmax(c, scale)
        x = self.quantized(c["x"], (c["M"], c["N"]), c["x_dtype"], scale, c["x_zp"])
        zero_point = 0 if c["x_dtype"] == "u8" else -128
        return self.codes(self.torch.ops.quantized.softmax(x, 1, 2.0**-8, zero_point))

    def concat(self, c):
        if c["x_dtype"] != c["out_dtype"]:
            raise Skip("the output has the type of the inputs")
        ops = self.torch.ops.quantized
        inputs = self.operands(c, (c["NA"], c["NB"]))
        run = ops.cat_relu if c["relu"] else ops.cat
        return self.codes(run(inputs, 1, real(c["out_scale"]), c["out_zp"]))

    def choose_qparams(self, c):
        from torch.ao.quantization import observer as observers

        torch = self.torch
        x = torch.tensor([real(v) for v in c["x"]], dtype=torch.float)
        per_channel = c["gran"] == "channel"
        if c["qparams_rule"] == "aten":
            if per_channel:
                raise Skip("_choose_qparams_per_tensor has one scale")
            if self.name == "qnnpack" and c["reduce_range"]:
                raise Skip("the engine qnnpack ignores reduce_range, as a warning says")
            codes = []
            if c.get("codes"):
                y = torch.quantize_per_tensor_dynamic(x, torch.quint8, c["reduce_range"])
                chosen, codes = (y.q_scale(), y.q_zero_point()), y.int_repr().float().tolist()
            else:
                chosen = torch._choose_qparams_per_tensor(x, c["reduce_range"])
            # The scale is a double.
            return [text(v) for v in torch.tensor(chosen, dtype=torch.float).tolist() + codes]
        if c["observer"] == "histogram" and self.build != "wheel" and not self.is_113:
            raise Skip("the histogram observer of distributions is known for PyTorch 1.13, this is "
                       "%s" % torch.__version__)
        kinds = {
            ("min_max", False): observers.MinMaxObserver,
            ("min_max", True): observers.PerChannelMinMaxObserver,
            ("moving_average", False): observers.MovingAverageMinMaxObserver,
            ("moving_average", True): observers.MovingAveragePerChannelMinMaxObserver,
            ("histogram", False): observers.HistogramObserver,
        }
        kind = kinds.get((c["observer"], per_channel))
        if kind is None:
            raise Skip("there is no histogram observer per channel")
        schemes = {(False, False): torch.per_tensor_affine,
                   (True, False): torch.per_tensor_symmetric,
                   (False, True): torch.per_channel_affine,
                   (True, True): torch.per_channel_symmetric}
        options = {"dtype": self.dtypes[c["dtype"]], "reduce_range": c["reduce_range"],
                   "qscheme": schemes[c["symmetric"], per_channel]}
        if (c["quant_min"], c["quant_max"]) != ((0, 255) if c["dtype"] == "u8" else (-128, 127)):
            options.update(quant_min=c["quant_min"], quant_max=c["quant_max"])
        if c["observer"] == "moving_average":
            options["averaging_constant"] = real(c["averaging_constant"])
        observer = kind(**options)
        for batch in x.reshape(c["batches"], c["M"], c["N"]):
            observer(batch)
        scale, zero_point = observer.calculate_qparams()
        values = scale.reshape(-1).tolist() + zero_point.reshape(-1).tolist()
        return [text(float(v)) for v in values]

    def dynamic_linear(self, c):
        if c["qparams_rule"] != "aten":
            raise Skip("linear_dynamic has the rule aten")
        torch = self.torch
        ops = torch.ops.quantized
        x = torch.tensor([real(v) for v in c["x"]], dtype=torch.float).reshape(c["M"], c["K"])
        if not torch.isfinite(x).all():
            raise Skip("x holds NaN or infinities, " + (
                "which QNNPACK refuses" if self.name == "qnnpack"
                else "for which no convention says what linear_dynamic answers"))
        packed = self.layer(c, ops.linear_prepack, (c["N"], c["K"]))
        run = ops.linear_relu_dynamic if c["relu"] else ops.linear_dynamic
        try:
            y = run(x, packed, c["reduce_range"])
        except RuntimeError as error:
            if "requantization scale must be finite and positive" not in str(error):
                raise
            raise Skip("w_scale*x_scale is not finite, positive and normal, which QNNPACK refuses")
        return [text(v) for v in y.reshape(-1).tolist()]

    def told(self, error):
        # Without a request that stands in front of what went wrong: long texts are cut.
        return str(error).partition("\n")[0].replace("please report a bug to PyTorch. ", "")

    depthwise = conv2d
    global_avg_pool = avg_pool


class Decomposed:
    """What PT2E makes of an operation, not compiled: float32 between dequantize and quantize. Sums of
    products are not asked: BLAS adds them in an order of its own."""

    def __init__(self):
        import torch
        if version_of(torch.__version__) < (2, 0):
            raise Skip("PyTorch %s has no decomposed operators" % torch.__version__)
        import torch.ao.quantization.fx._decomposed  # defines the operators

        torch.set_num_threads(1)
        self.torch, self.ops = torch, torch.ops.quantized_decomposed
        self.codes = {"u8": (0, 255, torch.uint8), "s8": (-128, 127, torch.int8)}

    def hello(self):
        pair = {"x": ["u8", "s8"], "out": ["u8", "s8"], "features": ["relu", "clamp", "empty"]}
        codes = {"x": ["u8", "s8"], "features": ["per_channel", "empty"]}
        return {"name": "PyTorch", "version": judged(self.torch.__version__, (2, 13)),
                "contract": "model:torch-decomposed",
                "ops": {"quantize": {"out": ["u8", "s8"],
                                     "features": ["per_channel", "clamp", "empty"]},
                        "dequantize": codes,
                        "rescale": dict(pair, features=["clamp", "empty"]),
                        "add": pair, "sub": pair, "mul": pair}}

    def real(self, c, key, shape):
        """An operand, dequantized."""
        torch = self.torch
        low, high, dtype = self.codes[c["x_dtype"]]
        codes = torch.tensor(c[key], dtype=dtype).reshape(shape)
        scale, zero_point = c[key + "_scale"], c[key + "_zp"]
        if not isinstance(scale, list):
            return self.ops.dequantize_per_tensor(codes, real(scale), zero_point, low, high, dtype)
        return self.ops.dequantize_per_channel(
            codes, torch.tensor([real(s) for s in scale]), torch.tensor(zero_point), 1, low, high,
            dtype)

    def made(self, c, x):
        """The codes of x."""
        torch, (low, high, dtype) = self.torch, self.codes[c["out_dtype"]]
        low, high = c.get("out_min", low), c.get("out_max", high)
        scale, zero_point = c["out_scale"], c["out_zp"]
        if not isinstance(scale, list):
            y = self.ops.quantize_per_tensor(x, real(scale), zero_point, low, high, dtype)
        else:
            y = self.ops.quantize_per_channel(x, torch.tensor([real(s) for s in scale]),
                                              torch.tensor(zero_point), 1, low, high, dtype)
        return y.reshape(-1).tolist()

    def quantize(self, c):
        x = self.torch.tensor([real(v) for v in c["x"]], dtype=self.torch.float)
        return self.made(c, x.reshape(c["M"], c["N"]))

    def dequantize(self, c):
        return [text(v) for v in self.real(c, "x", (c["M"], c["N"])).reshape(-1).tolist()]

    def rescale(self, c):
        return self.made(c, self.real(c, "x", (c["M"], c["N"])))

    def pair(self, c):
        a, b = (self.real(c, key, (c["M"], c["N"])) for key in "ab")
        y = getattr(self.torch, c["op"])(a, b)
        return self.made(c, self.torch.relu(y) if c["relu"] else y)

    add = sub = mul = pair


if __name__ == "__main__":
    ENGINES = ("fbgemm", "x86", "onednn", "qnnpack")
    serve(lambda name: Decomposed() if name == "decomposed" else
          Engine(name.removesuffix("+kept"), keeps_layers=name.endswith("+kept")),
          [name + kept for name in ENGINES for kept in ("", "+kept")] + ["decomposed"])
