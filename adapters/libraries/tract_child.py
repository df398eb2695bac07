# SPDX-License-Identifier: Apache-2.0
"""tract's quantized operators behind qualm's pipe protocol: each case is an ONNX model, in which all
but the first input is constant, as tract demands of scales.

    python3 tract_child.py
"""
import tempfile

from library_child import Skip, array, judged, serve
import onnx_model
from onnx_operators import CODES, Operators

HELD = ((0, 23),)


class Engine(Operators):
    mixed_types = True

    def __init__(self, _option):
        import tract

        self.tract = tract

    def hello(self):
        codes = {"x": CODES, "out": CODES}
        each = ["per_channel", "empty"]
        sums = {"x": CODES, "w": CODES, "out": CODES + ["s32"]}
        window = ["bias_i32", "per_channel", "dilation", "asymmetric_padding"]
        return {"name": "tract", "version": judged(self.tract.version(), *HELD),
                "contract": "model:tract,dynamic_linear=model:onnx@reference",
                "ops": {"quantize": {"out": CODES, "features": each},
                        "dequantize": {"x": CODES, "features": each},
                        "rescale": dict(codes, features=["empty"]),
                        "linear": dict(sums, features=each + ["empty_k"]),
                        "dynamic_linear": {"x": ["f32"], "w": CODES, "out": ["f32"],
                                           "features": ["bias_f32", "per_channel"]},
                        "choose_qparams": {"rules": ["onnx"], "features": ["codes"]},
                        "conv2d": dict(sums, features=window + ["groups"]),
                        "depthwise": dict(sums, features=window)}}

    def run(self, plan):
        fed = dict(list(plan.inputs.items())[:1])
        constants = {name: v for name, v in plan.inputs.items() if name not in fed}
        if any(v.shape == (0,) for v in constants.values()):
            raise Skip("a list of no scales, which aborts the process")
        model = onnx_model.model(plan.nodes, fed, constants, plan.output, shapes=True)
        with tempfile.NamedTemporaryFile(suffix=".onnx") as file:  # load takes a file
            file.write(model)
            file.flush()
            runnable = self.tract.onnx().load(file.name).into_model().into_runnable()
        return plan.finish(runnable.run(list(fed.values()))[0].to_numpy())

    def rescale(self, c):
        if c["out_dtype"] != c["x_dtype"]:
            raise Skip("DequantizeLinear and QuantizeLinear of two types do not load")
        return super().rescale(c)

    def ranged(self, c):
        import numpy

        x = array(c["x"], "f32", -1)
        with numpy.errstate(all="ignore"):
            span = max(x.max(initial=0), 0) - min(x.min(initial=0), 0)
            if not numpy.isfinite(span) or (span != 0 and span / numpy.float32(255) == 0):
                raise Skip("the range of x, or its scale, is beyond float32")

    def dynamic_linear(self, c):
        self.ranged(c)
        return super().dynamic_linear(c)

    def choose_qparams(self, c):
        self.ranged(c)
        return super().choose_qparams(c)


serve(Engine)
