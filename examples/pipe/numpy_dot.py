# SPDX-License-Identifier: Apache-2.0
# The order in which NumPy adds the products of two float32 vectors, found out by
#   qualm identify --tree 'pipe:python3 examples/pipe/numpy_dot.py'
# docs/sums.md says how. Put another function of two vectors in the place of np.dot to ask it.
import json
import sys

import numpy as np

HELLO = {"qualm_pipe": 1, "name": "numpy_dot", "version": np.__version__, "ops": {}, "dot": True}


def vector(texts):
    return np.array([float.fromhex(text) for text in texts], np.float32)


sys.stdin.readline()  # {"qualm_pipe": 1}
print(json.dumps(HELLO), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    dot = request["dot"]
    y = np.dot(vector(dot["a"]), vector(dot["b"]))
    print(json.dumps({"id": request["id"], "y": [float(y).hex()]}), flush=True)
