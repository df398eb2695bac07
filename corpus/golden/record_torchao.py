#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes torchao.jsonl: linear layers that torchao quantizes to int8, weights and activations.

    ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI python3 record_torchao.py vnni 80 >torchao.jsonl
    ONEDNN_MAX_CPU_ISA=AVX2 python3 record_torchao.py avx2 80 >>torchao.jsonl

With PyTorch 2.13 and torchao 0.18. A third argument is the largest K, 24 unless told otherwise.
"""
import json
import random
import sys
import warnings

import torch
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
from torchao.quantization.granularity import PerRow, PerTensor
import torchao


def drawn(shape, exponents):
    """Reals of one size: normal ones, two opposite ones, or halves of codes."""
    x = torch.randn(shape) * 2.0 ** random.uniform(*exponents)
    kind = random.randrange(4)
    if kind == 1:
        x = x.sign() * x.abs().max()
    if kind == 2:
        x = torch.round(x / x.abs().max() * 255) / 2
    if kind == 3:
        x = torch.where(torch.rand(shape) < 0.5, torch.zeros(()), x)
    return x


def main():
    isa, count = sys.argv[1], int(sys.argv[2])
    most = int(sys.argv[3]) if len(sys.argv) > 3 else 24
    warnings.simplefilter("ignore")
    random.seed(11)
    torch.manual_seed(11)
    torch.set_num_threads(1)
    number = 0
    while number < count:
        # torch._int_mm leaves its output as memory was where there is one term.
        rows, channels, terms = (random.randint(*n) for n in ((1, 4), (1, 5), (2, most)))
        layer = torch.nn.Linear(terms, channels, bias=random.random() < 0.6)
        layer.weight = torch.nn.Parameter(drawn((channels, terms), (-12, 6)), requires_grad=False)
        if layer.bias is not None:
            layer.bias = torch.nn.Parameter(drawn((channels,), (-10, 10)), requires_grad=False)
        model, one_scale = torch.nn.Sequential(layer), random.random() < 0.2
        x = drawn((rows, terms), (-30, 30))
        try:
            quantize_(model, Int8DynamicActivationInt8WeightConfig(
                granularity=PerTensor() if one_scale else PerRow()))
            y = model(x)
        except RuntimeError:
            continue  # torchao 0.18 cannot reshape its scales where K or N is 1
        if not torch.isfinite(y).all():
            continue
        weight, scales = model[0].weight, model[0].weight.scale.reshape(-1).tolist()
        channel = len(scales) > 1
        case = {"qualm_case": 1, "op": "dynamic_linear", "M": rows, "N": channels, "K": terms,
                "w_dtype": "s8", "qparams_rule": "observer", "symmetric": True, "dtype": "s8",
                "x_gran": "tensor" if one_scale else "row",
                "gran": "channel" if channel else "tensor",
                "w_scale": [s.hex() for s in scales] if channel else scales[0].hex(),
                "w_zp": [0] * channels if channel else 0,
                "x": [v.hex() for v in x.reshape(-1).tolist()],
                "w": weight.qdata.reshape(-1).tolist()}
        if layer.bias is not None:
            case["bias"] = [v.hex() for v in layer.bias.tolist()]
        print(json.dumps({"id": "torchao-%s-%d" % (isa, number), "op": "case",
                          "backend": "torchao-" + torchao.__version__, "isa": isa,
                          "case": json.dumps(case, separators=(",", ":")),
                          "y": [v.hex() for v in y.reshape(-1).tolist()]},
                         separators=(",", ":")))
        number += 1


if __name__ == "__main__":
    main()
