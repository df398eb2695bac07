# SPDX-License-Identifier: Apache-2.0
"""XLA's CPU compiler behind qualm's pipe protocol, by JAX's wheel: StableHLO's quantized types
(stablehlo.py), lowered by the pass that jaxlib brings.

    python3 jax_child.py
"""
import os

from library_child import Skip, judged, processor_flags, serve
from stablehlo import Engine

HELD = ((0, 10),)


class Xla(Engine):
    def __init__(self, _):
        os.environ.update(JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="3")
        import jax
        from jax._src.interpreters import mlir
        from jax._src.lib import xla_client
        from jaxlib.mlir import ir, passmanager
        from jaxlib.mlir.dialects import stablehlo

        if "fma" not in processor_flags():
            raise Skip("held only on processors with FMA")
        self.jax, self.ir, self.xla = jax, ir, xla_client
        self.device = jax.local_devices()[0]
        stablehlo.register_stablehlo_passes()
        self.context = mlir.make_ir_context()
        with self.context:
            # JAX registers no quantized types; reading any artifact does.
            nothing = stablehlo.serialize_portable_artifact_str(
                "func.func @main(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> }",
                "1.0.0")
            stablehlo.deserialize_portable_artifact(self.context, nothing)
            self.lower = passmanager.PassManager.parse(
                "builtin.module(func.func(stablehlo-legalize-quant-to-math,"
                "chlo-legalize-to-stablehlo),canonicalize)")

    def hello(self):
        version = self.jax.__version__
        return {"name": "XLA through JAX", "version": judged(version, *HELD),
                "contract": "model:stablehlo", "ops": self.capabilities()}

    def run(self, text, inputs):
        import numpy

        with self.context:
            module = self.ir.Module.parse(text)
            self.lower.run(module.operation)
            program = self.device.client.compile_and_load(
                str(module), self.xla.DeviceList((self.device,)), self.xla.CompileOptions())
        return numpy.asarray(program.execute([self.jax.device_put(x, self.device)
                                              for x in inputs])[0])


serve(Xla)
