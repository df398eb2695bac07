# SPDX-License-Identifier: Apache-2.0
# A linear layer with 4-bit weights in blocks of 32 along K, as LLM runtimes have it, put under test by
#   qualm check --op linear --subject 'pipe:python3 examples/pipe/block_linear.py'
# docs/pipe.md is the protocol.
import json
import sys
from fractions import Fraction

HELLO = {"qualm_pipe": 1, "name": "block_linear", "contract": "exact",
         "ops": {"linear": {"x": ["s8"], "w": ["u4"], "out": ["s8"], "w_zp": [0, 15],
                            "features": ["per_channel", "per_block"]}}}


def real(text):  # a float32 as the case has it: an exact number
    return Fraction(float.fromhex(text))


def linear(case):
    size, n_k = case["w_block"], case["K"]
    blocks = -(-n_k // size)  # of each channel; the last one may be shorter
    scale, zero = [real(s) for s in case["w_scale"]], case["w_zp"]
    x = [v - case["x_zp"] for v in case["x"]]
    y = []
    for m in range(case["M"]):
        for n in range(case["N"]):
            total = sum(scale[n * blocks + k // size] * x[m * n_k + k] *
                        (case["w"][n * n_k + k] - zero[n * blocks + k // size])
                        for k in range(n_k))
            # round() of a Fraction rounds once, half to even.
            code = round(total * real(case["x_scale"]) / real(case["out_scale"])) + case["out_zp"]
            y.append(min(max(code, case["out_min"]), case["out_max"]))
    return y


sys.stdin.readline()  # {"qualm_pipe": 1}
print(json.dumps(HELLO), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if request["case"].get("w_block") != 32:
        answer = {"skip": "blocks of 32 alone"}
    else:
        answer = {"y": linear(request["case"])}
    print(json.dumps({"id": request["id"], **answer}), flush=True)
