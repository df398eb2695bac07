# SPDX-License-Identifier: Apache-2.0
"""torchao's microscaling (MX) behind qualm's pipe protocol: the shared scales of blocks, which are the
rows of a choose_qparams, and their elements.

    python3 torchao_child.py
"""
from library_child import Skip, array, flat, judged, serve, text

HELD = ((0, 18),)
MODES = {"mx_floor": "FLOOR", "mx_ceil": "CEIL", "mx_even": "EVEN", "mx_rceil": "RCEIL"}


class Engine:
    def __init__(self, _):
        import torch
        import torchao
        from torchao.prototype.mx_formats import mx_tensor

        torch.set_num_threads(1)
        self.torch, self.library, self.mx = torch, torchao, mx_tensor
        self.elements = {"f8e4m3fn": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2,
                         "f6e2m3fn": "fp6_e2m3", "f6e3m2fn": "fp6_e3m2",
                         "f4e2m1fn": torch.float4_e2m1fn_x2}

    def hello(self):
        return {"name": "torchao", "version": judged(self.library.__version__, *HELD),
                "contract": "model:torchao-mx",
                "ops": {"choose_qparams": {"features": ["per_channel", "codes"],
                                           "rules": list(MODES)}}}

    def choose_qparams(self, c):
        import numpy

        if c["batches"] != 1:
            raise Skip("torchao looks at one batch")
        rows, columns = (c["M"], c["N"]) if c["gran"] == "channel" else (1, c["M"] * c["N"])
        if columns % 2 and c["dtype"] == "f4e2m1fn":
            raise Skip("torchao packs two elements of f4e2m1fn in a byte")
        x = self.torch.from_numpy(array(c["x"], "f32", (rows, columns)))
        mode = getattr(self.mx.ScaleCalculationMode, MODES[c["qparams_rule"]])
        scales, elements = self.mx.to_mx(x, self.elements[c["dtype"]], columns, mode)
        numbers = [text(v) for v in scales.to(self.torch.float).reshape(-1).tolist()] + rows * [text(0.0)]
        if not c.get("codes"):
            return numbers
        if c["dtype"].startswith("f8"):
            return numbers + flat(elements.to(self.torch.float).numpy())
        codes = elements.view(self.torch.uint8).numpy().reshape(-1)
        if c["dtype"] == "f4e2m1fn":
            codes = numpy.stack([codes & 15, codes >> 4], axis=-1).reshape(-1)
        return numbers + [self.number(code, c["dtype"]) for code in codes.tolist()]

    @staticmethod
    def number(code, dtype):
        """What a code of f6 or f4 means, which PyTorch has no type for."""
        exponent_bits, fraction_bits = int(dtype[3]), int(dtype[5])
        magnitude = code & (1 << exponent_bits + fraction_bits) - 1
        exponent, fraction = magnitude >> fraction_bits, magnitude & (1 << fraction_bits) - 1
        if exponent:
            fraction += 1 << fraction_bits
        bias = (1 << exponent_bits - 1) - 1
        value = fraction * 2.0 ** (max(exponent, 1) - bias - fraction_bits)
        return text(-value if code > magnitude else value)


serve(Engine)
