# SPDX-License-Identifier: Apache-2.0
# A quantized linear layer in NumPy, put under test by
#   qualm check --op linear --subject 'pipe:python3 examples/pipe/numpy_linear.py'
# docs/pipe.md is the protocol: a line in, a line out; print what else there is to say to stderr.
import json
import sys
from fractions import Fraction

import numpy as np

HELLO = {"qualm_pipe": 1, "name": "numpy_linear", "version": np.__version__, "contract": "exact",
         "ops": {"linear": {"out": ["u8", "s8"],
                            "features": ["bias_i32", "relu", "clamp", "per_channel", "empty",
                                         "empty_k"]}}}


def real(text):  # a float32 as the case has it: an exact number
    return Fraction(float.fromhex(text))


def linear(case):
    x = np.array(case["x"], np.int64).reshape(case["M"], case["K"])
    w = np.array(case["w"], np.int64).reshape(case["N"], case["K"])
    w_scale, w_zp = (v if isinstance(v, list) else [v] * case["N"]
                     for v in (case["w_scale"], case["w_zp"]))
    acc = (x - case["x_zp"]) @ (w.T - np.array(w_zp, np.int64))
    acc += np.array(case.get("bias_i32", 0), np.int64)
    m = [real(case["x_scale"]) * real(s) / real(case["out_scale"]) for s in w_scale]
    low = max(case["out_min"], case["out_zp"]) if case["relu"] else case["out_min"]
    # round() of a Fraction rounds once, half to even. Multiplied in floats it would not be exact.
    return [min(max(round(int(a) * m[n]) + case["out_zp"], low), case["out_max"])
            for row in acc for n, a in enumerate(row)]


sys.stdin.readline()  # {"qualm_pipe": 1}
print(json.dumps(HELLO), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"id": request["id"], "y": linear(request["case"])}), flush=True)
