# SPDX-License-Identifier: Apache-2.0
"""ncnn's int8 layers behind qualm's pipe protocol: each case is a network of one layer, whose weights
and scales are its model.

    python3 ncnn_child.py [winograd]

ncnn's int8 Winograd transform of 3x3 convolutions leaves int16 (docs/ncnn.md), so it is off unless
`winograd` is asked for.
"""
import struct
import tempfile

from library_child import (Skip, array, flat, flat_nhwc, judged, planes, processor_flags, reals,
                           serve)

HELD = ((1, 0),)
INT8_WEIGHTS = 0x000D4B38


class Engine:
    def __init__(self, option):
        import ncnn

        if "fma" not in processor_flags():
            raise Skip("held only on processors with FMA")
        self.ncnn, self.winograd = ncnn, option == "winograd"

    def hello(self):
        types = {"x": ["s8"], "w": ["s8"], "out": ["f32"], "x_zp": [0, 0], "w_zp": [0, 0]}
        features = ["bias_f32", "relu", "per_channel"]
        return {"name": "ncnn", "version": judged(self.ncnn.__version__, *HELD),
                "contract": "model:ncnn",
                "ops": {"linear": dict(types, features=features),
                        "conv2d": dict(types, features=features + [
                            "dilation", "asymmetric_padding"])}}

    def answer(self, layer, parameters, weights, c, channels, x):
        """The output of one layer; parameters are its numbered fields."""
        import numpy

        bias = c.get("bias")
        fields = " ".join("%d=%d" % one for one in parameters.items())
        text = "7767517\n2 2\nInput x 0 1 x\n%s l 1 1 x y %s\n" % (layer, fields)
        net = self.ncnn.Net()
        net.opt.num_threads = 1
        net.opt.use_vulkan_compute = False
        net.opt.use_winograd_convolution = self.winograd
        scales = reals(c["w_scale"])
        reciprocals = numpy.float32(1) / array(scales * (channels // len(scales)), "f32", -1)
        blobs = [struct.pack("<I", INT8_WEIGHTS) + weights.tobytes()]
        if bias is not None:
            blobs.append(array(bias, "f32", -1).tobytes())
        blobs.append(reciprocals.tobytes())
        blobs.append((numpy.float32(1) / array([c["x_scale"]], "f32", -1)).tobytes())
        # load_model takes a file; each blob begins at a multiple of four bytes.
        with tempfile.NamedTemporaryFile() as file:
            for blob in blobs:
                file.write(blob + b"\0" * (-len(blob) % 4))
            file.flush()
            if net.load_param_mem(text) != 0 or net.load_model(file.name) != 0:
                raise RuntimeError("the network does not load")
        extractor = net.create_extractor()
        extractor.input("x", self.ncnn.Mat(x))
        status, y = extractor.extract("y")
        if status != 0:
            raise RuntimeError("extract answers %d" % status)
        return numpy.array(y)

    def linear(self, c):
        m, n, k = c["M"], c["N"], c["K"]
        y = self.answer("InnerProduct", {0: n, 1: int(c.get("bias") is not None), 2: n * k, 8: 1,
                                         9: int(c["relu"])},
                        array(c["w"], "s8", (n, k)), c, n, array(c["x"], "s8", (m, k)))
        return flat(y.reshape(m, n))

    def conv2d(self, c):
        import numpy

        if min(c["x"], default=0) < -127:
            raise Skip("the code -128, which convolutions negate wrongly")
        if c["groups"] != 1:
            raise Skip("no groups")
        n, h, w, ic, oc = c["N"], c["H"], c["W"], c["IC"], c["OC"]
        top, bottom, left, right = c["pad"]
        filters = planes(c["w"], "s8", (oc, c["R"], c["S"], ic))
        images = planes(c["x"], "s8", (n, h, w, ic))
        parameters = {0: oc, 1: c["S"], 11: c["R"], 2: c["dilation"][1], 12: c["dilation"][0],
                      3: c["stride"][1], 13: c["stride"][0], 4: left, 15: right, 14: top,
                      16: bottom, 5: int(c.get("bias") is not None), 6: filters.size, 8: 1,
                      9: int(c["relu"])}
        y = [self.answer("Convolution", parameters, filters, c, oc, image) for image in images]
        return flat_nhwc(numpy.stack([one.reshape((oc,) + one.shape[-2:]) for one in y]))


serve(Engine, ("", "winograd"))
