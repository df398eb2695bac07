# SPDX-License-Identifier: Apache-2.0
# PyTorch on a GPU: casts between float types, int8 products (torch._int_mm) and, for
#   qualm identify --tree 'pipe:python3 examples/pipe/torch_cuda.py'
# the order in which torch.mm adds float32. `torch_cuda.py cpu` asks the CPU, and `torch_cuda.py triton` a
# kernel of Triton for the sums. What tensor cores do with float8 no case says: docs/backends.md.
import json
import sys

import torch

WHERE = sys.argv[1] if len(sys.argv) > 1 else "cuda"
DEVICE = "cpu" if WHERE == "cpu" else "cuda"
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f8e4m3fn": torch.float8_e4m3fn,
         "f8e5m2": torch.float8_e5m2}
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}  # by bytes of an element
INT_MM = {"x": ["s8"], "w": ["s8"], "out": ["s32"], "x_zp": [0, 0], "w_zp": [0, 0], "n_multiple": 8,
          "k_multiple": 8}
HELLO = {"qualm_pipe": 1, "name": f"torch_{WHERE}", "version": torch.__version__,
         "contract": "exact,cast=model:" + ("torch2.13-cast@cpu" if DEVICE == "cpu" else "torch2.11-cast@cuda"), "dot": True,
         "ops": {"linear": INT_MM, "cast": {"x": list(TYPES), "out": list(TYPES), "features": ["empty"]}}}


def real(text):
    return float("nan") if str(text).startswith("nan") else float.fromhex(text) if isinstance(text, str) else float(text)


def text(value):
    return "nan" if value != value else value.hex() if abs(value) != float("inf") else "inf" if value > 0 else "-inf"


def bits(tensor):
    """Bit patterns as Python's integers."""
    width = tensor.element_size()
    return [value & ((1 << 8 * width) - 1) for value in tensor.view(INTEGERS[width]).tolist()]


def with_bits(tensor, at, pattern):
    width = tensor.element_size()
    top = 1 << (8 * width - 1)
    tensor.view(INTEGERS[width])[at] = pattern if width == 1 else (pattern ^ top) - top


def cast(case):
    x = torch.tensor([real(value) for value in case["x"]], dtype=torch.float32).to(TYPES[case["x_dtype"]])  # exact
    for at, value in enumerate(case["x"]):
        if str(value).startswith("nan:"):
            with_bits(x, at, int(value[4:], 16))
    y = x.to(DEVICE).to(TYPES[case["out_dtype"]]).cpu()
    digits = 2 * y.element_size()
    return [f"nan:{pattern:0{digits}x}" if value != value else text(value)
            for value, pattern in zip(y.to(torch.float32).tolist(), bits(y))]


def int_mm(case):
    m, n, k = case["M"], case["N"], case["K"]
    x = torch.zeros(max(m, 17), k, dtype=torch.int8)  # the GPU takes no fewer rows
    x[:m] = torch.tensor(case["x"], dtype=torch.int8).reshape(m, k)
    w = torch.tensor(case["w"], dtype=torch.int8).reshape(n, k)
    return torch._int_mm(x.to(DEVICE), w.to(DEVICE).t())[:m].flatten().tolist()


def triton_dot():
    import triton
    import triton.language as tl

    @triton.jit
    def kernel(a, b, y, n, SIZE: tl.constexpr):
        at = tl.arange(0, SIZE)
        inside = at < n
        tl.store(y, tl.sum(tl.load(a + at, inside, 0.0) * tl.load(b + at, inside, 0.0)))

    def dot(a, b):
        y = torch.empty(1, device=DEVICE)
        kernel[(1,)](a, b, y, a.numel(), triton.next_power_of_2(a.numel()))
        return y.item()
    return dot


def mm_dot(a, b):
    return torch.mm(a[None], b[:, None]).item()


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    if DEVICE == "cuda" and not torch.cuda.is_available():
        sys.exit("torch_cuda.py: PyTorch sees no GPU; torch_cuda.py cpu asks the CPU")
    dot = triton_dot() if WHERE == "triton" else mm_dot
    answers = {"cast": cast, "linear": int_mm}
    sys.stdin.readline()  # {"qualm_pipe": 1}
    print(json.dumps(HELLO), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "dot" in request:
            a, b = (torch.tensor([real(v) for v in request["dot"][key]], device=DEVICE) for key in "ab")
            y = [text(dot(a, b))]
        else:
            y = answers[request["case"]["op"]](request["case"])
        print(json.dumps({"id": request["id"], "y": y}), flush=True)


main()
