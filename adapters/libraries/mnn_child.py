# SPDX-License-Identifier: Apache-2.0
"""MNN behind qualm's pipe protocol: FloatToInt8 and Int8ToFloat, by its expressions.

    python3 mnn_child.py

A matrix is one image: its columns are the channels, its rows the height.
"""
from library_child import (Skip, array, flat, is_normal, judged, processor_flags, reals, serve,
                           single)

HELD = ((3, 6),)


class Engine:
    def __init__(self, _):
        import MNN
        import MNN.expr

        if "sse4_1" not in processor_flags():
            raise Skip("held only on x86 processors with SSE4.1")
        self.version, self.expr = MNN.version(), MNN.expr

    def hello(self):
        codes = {"features": ["per_channel"]}
        return {"name": "MNN", "version": judged(self.version, *HELD),
                "contract": "model:mnn,dequantize=exact",
                "ops": {"quantize": dict(codes, out=["s8"], out_zp=[0, 0]),
                        "dequantize": dict(codes, x=["s8"], x_zp=[0, 0])}}

    def constant(self, values, dtype):
        return self.expr.const(values.reshape(-1).tolist(), list(values.shape), self.expr.NCHW,
                               dtype)

    def answer(self, function, matrix, dtype, scales):
        """What a function of an image and scales gives, as a matrix."""
        import numpy

        expr, (m, n) = self.expr, matrix.shape
        image = expr.convert(self.constant(matrix.T.reshape(1, n, m, 1), dtype), expr.NC4HW4)
        y = expr.convert(function(image, self.constant(scales, expr.float)), expr.NCHW)
        return numpy.array(y.read()).reshape(n, m).T

    def quantize(self, c):
        x = array(c["x"], "f32", (c["M"], c["N"]))
        # FloatToInt8 multiplies: a model holds reciprocals.
        scales = array([single(1 / scale) for scale in reals(c["out_scale"])], "f32", -1)
        if not all(map(is_normal, scales.tolist())):
            raise Skip("a reciprocal of a scale is no normal float32")
        y = self.answer(lambda image, s: self.expr.quant(image, s, -128, 127), x, self.expr.float,
                        scales)
        return flat(self.biased(y))

    def dequantize(self, c):
        x = self.biased(array(c["x"], "s8", (c["M"], c["N"])))
        return flat(self.answer(lambda image, s: self.expr.dequant(image, s, 0), x,
                                self.expr.int8, array(reals(c["x_scale"]), "f32", -1)))

    def biased(self, codes):
        """Codes as MNN keeps them on x86, unsigned by 128 more, and back."""
        return (codes.view("uint8") ^ 128).view("int8")


serve(Engine)
