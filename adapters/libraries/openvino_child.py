# SPDX-License-Identifier: Apache-2.0
"""OpenVINO's CPU plugin behind qualm's pipe protocol: each case is an ONNX model of QuantizeLinear and
DequantizeLinear, in which all but the first input is constant, as in models that people deploy.

    python3 openvino_child.py
"""
from library_child import Skip, array, flat, judged, processor_flags, serve
import onnx_model
from onnx_operators import CODES, Operators, Plan, of, output

HELD = ((2026, 4),)
# float32 stays float32 where the processor has bfloat16.
CONFIG = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}


class Engine(Operators):
    mixed_types = True

    def __init__(self, _option):
        import openvino

        flags = processor_flags()
        if "avx512_vnni" in flags:
            self.contract = "model:openvino"
        elif {"avx2", "fma"} <= flags and not {"avx512bw", "avx_vnni"} & flags:
            self.contract = "model:openvino@avx2"
        else:
            raise Skip("held only on x86 processors with AVX-512 VNNI, or with AVX2 and neither "
                       "AVX-512 nor AVX-VNNI")
        self.openvino, self.core = openvino, openvino.Core()

    def hello(self):
        each = ["per_channel"]
        return {"name": "OpenVINO", "version": judged(self.openvino.__version__, *HELD),
                "contract": self.contract,
                "ops": {"quantize": {"out": CODES, "features": each},
                        "dequantize": {"x": CODES, "features": each},
                        "linear": {"x": CODES, "w": ["s8"], "out": CODES, "w_zp": [0, 0],
                                   "features": each + ["bias_i32"]}}}

    def run(self, plan):
        fed = dict(list(plan.inputs.items())[:1])
        constants = {name: v for name, v in plan.inputs.items() if name not in fed}
        model = onnx_model.model(plan.nodes, fed, constants, plan.output, shapes=True)
        try:
            compiled = self.core.compile_model(self.core.read_model(model), "CPU", CONFIG)
        except RuntimeError as error:
            if "could not append an elementwise post-op" not in str(error):
                raise
            raise Skip("a scale or shift that oneDNN does not take behind a sum") from error
        return plan.finish(compiled(list(fed.values()))[0])

    def linear(self, c):
        """x and w dequantized, multiplied, a dequantized bias added, and quantized: what is left
        of a layer between two others when a model was quantized."""
        import numpy

        node = onnx_model.node
        inputs = {"x": array(c["x"], c["x_dtype"], (c["M"], c["K"])), **of(c, "x", c["x_dtype"]),
                  "w": self.weights(c), **of(c, "w", c["w_dtype"]), **output(c)}
        nodes = [node("DequantizeLinear", "x x_scale x_zp", "a"),
                 node("DequantizeLinear", "w w_scale w_zp", "b"), node("MatMul", "a b", "product")]
        real = "product"
        if c.get("bias_i32"):
            inputs["bias"] = array(c["bias_i32"], "s32", (c["N"],))
            inputs["bias_scale"] = inputs["x_scale"] * inputs["w_scale"]
            inputs["bias_zp"] = numpy.zeros(inputs["bias_scale"].shape, "int32")
            nodes += [node("DequantizeLinear", "bias bias_scale bias_zp", "real_bias", axis=0),
                      node("Add", "product real_bias", "sum")]
            real = "sum"
        nodes.append(node("QuantizeLinear", real + " y_scale y_zp", "y"))
        return self.run(Plan(nodes, inputs, inputs["y_zp"].dtype.name, flat))


serve(Engine)
