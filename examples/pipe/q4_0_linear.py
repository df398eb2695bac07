# SPDX-License-Identifier: Apache-2.0
# A linear layer on the very bytes of llama.cpp's q4_0 and q8_0, put under test by
#   qualm check --op linear --subject 'pipe:python3 examples/pipe/q4_0_linear.py'
# docs/blocks.md has the formats, docs/pipe.md the protocol.
import base64
import json
import sys

import numpy as np

HELLO = {"qualm_pipe": 1, "name": "q4_0_linear", "contract": "sum",
         "ops": {"linear": {"w_formats": ["q4_0"]}}}


def blocks(text, rows, size):  # an f16 scale for each block, and the bytes behind it
    data = np.frombuffer(base64.b64decode(text), np.uint8).reshape(rows, -1, size)
    return data[..., :2].copy().view(np.float16)[..., 0].astype(np.float32), data[..., 2:]


def linear(request):
    w_scale, nibbles = blocks(request["w_packed"], request["case"]["N"], 18)
    x_scale, x = blocks(request["x_packed"], request["case"]["M"], 34)
    w = np.concatenate([nibbles & 15, nibbles >> 4], axis=-1).astype(np.int32) - 8
    sums = np.einsum("mbk,nbk->mnb", x.view(np.int8).astype(np.int32), w)
    return (sums.astype(np.float32) * (x_scale[:, None] * w_scale)).sum(axis=-1, dtype=np.float32)


sys.stdin.readline()  # {"qualm_pipe": 1}
print(json.dumps(HELLO), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    y = [float(v).hex() for v in linear(request).flat]
    print(json.dumps({"id": request["id"], "y": y}), flush=True)
