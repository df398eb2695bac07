# SPDX-License-Identifier: Apache-2.0
"""IREE's CPU compiler behind qualm's pipe protocol: StableHLO's quantized types (stablehlo.py).

    python3 iree_child.py
"""
from library_child import Skip, judged, processor_flags, serve
from stablehlo import Engine

HELD = ((3, 13),)


class Iree(Engine):
    def __init__(self, _):
        import iree.runtime
        from iree.compiler import api
        from importlib import metadata

        if "fma" not in processor_flags():
            raise Skip("held only on processors with FMA")
        self.version = metadata.version("iree-base-compiler")
        self.api, self.runtime = api, iree.runtime
        self.session = api.Session()
        self.session.set_flags("--iree-hal-target-backends=llvm-cpu",
                               "--iree-input-type=stablehlo", "--iree-llvmcpu-target-cpu=host")
        self.config = iree.runtime.Config("local-sync")

    def hello(self):
        return {"name": "IREE", "version": judged(self.version, *HELD),
                "contract": "model:stablehlo", "ops": self.capabilities()}

    def compile(self, text):
        invocation = self.session.invocation()
        source = self.api.Source.wrap_buffer(self.session, text.encode() + b"\0")
        if not invocation.parse_source(source) or not invocation.execute():
            raise RuntimeError("the compiler refuses the program")
        output = self.api.Output.open_membuffer()
        invocation.output_vm_bytecode(output)
        return bytes(output.map_memory())

    def run(self, text, inputs):
        context = self.runtime.SystemContext(config=self.config)
        context.add_vm_module(self.runtime.VmModule.copy_buffer(context.instance,
                                                                self.compile(text)))
        return context.modules.m["main"](*inputs).to_host()


serve(Iree)
