# SPDX-License-Identifier: Apache-2.0
"""Functions of other libraries' arrays under test: PyTorch, Triton and JAX, on the processor or a GPU.

    pytest -rs test_arrays.py

A test whose library or GPU is missing is skipped, and -rs says why. TRITON_INTERPRET=1 runs Triton's
kernel without a GPU. The case has NumPy arrays; the answer may be anything that NumPy takes as an array
(``__array__``, DLPack), so what lies on a GPU is brought back first.
"""
import os

import numpy as np
import pytest

import qualm


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    torch = pytest.importorskip("torch")
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("PyTorch finds no CUDA device")
    return request.param


@qualm.property("quantize", contract="numpy@float32")
def test_torch_quantize(c, device):
    import torch
    codes = torch.round(torch.tensor(c.x, device=device) / float(c.out_scale)) + c.out_zp
    return torch.clamp(torch.nan_to_num(codes, nan=0), 0, 255).to(torch.uint8).cpu()


@qualm.property("linear", x="u8", w="s8", out="s32", k_max=512)
def test_torch_linear(c, device):
    import torch
    x, w = (torch.tensor(a, device=device, dtype=torch.float64) for a in (c.x, c.w))  # exact below 2**53
    return ((x - c.x_zp) @ w.T).to(torch.int32).cpu()


@pytest.fixture(scope="session")
def triton_linear():
    torch = pytest.importorskip("torch")
    triton = pytest.importorskip("triton")
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("PyTorch finds no CUDA device, and TRITON_INTERPRET is not 1")
    tl = pytest.importorskip("triton.language")
    where = "cuda" if torch.cuda.is_available() else "cpu"

    @triton.jit
    def one_output(x, w, y, x_zp, N, K, BLOCK: tl.constexpr):
        m, n = tl.program_id(0), tl.program_id(1)
        acc = tl.zeros((BLOCK,), tl.int32)
        for begin in range(0, K, BLOCK):
            k = begin + tl.arange(0, BLOCK)
            of_x = tl.load(x + m * K + k, mask=k < K, other=0).to(tl.int32)
            of_w = tl.load(w + n * K + k, mask=k < K, other=0).to(tl.int32)
            acc += (of_x - x_zp) * of_w
        tl.store(y + m * N + n, tl.sum(acc, 0))

    def linear(c):
        x, w = (torch.tensor(a, device=where) for a in (c.x, c.w))
        y = torch.empty(c.shape, dtype=torch.int32, device=where)
        one_output[(c.M, c.N)](x, w, y, c.x_zp, c.N, c.K, BLOCK=64)
        return y.cpu()

    return linear


@qualm.property("linear", x="u8", w="s8", out="s32", m_max=4, n_max=8, k_max=200, cases=20)
def test_triton_linear(c, triton_linear):
    return triton_linear(c)


@pytest.fixture(scope="session")
def jax_quantize():
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    @jax.jit
    def quantize(x, scale, zero_point):
        codes = jnp.rint(x / scale) + zero_point
        return jnp.clip(jnp.nan_to_num(codes, nan=0), 0, 255).astype(jnp.uint8)

    return quantize


# Each shape is compiled, so there are two. XLA takes float32 denormals for zero on processors, and since
# JAX 0.10 (if not before) multiplies by the inverse of a scale that is one number: by an array it divides.
@qualm.property("quantize", contract="numpy@float32", cases=50,
                domain={"out_scale": (1e-6, 1e3), "shapes": ["4x33", "1x256"]})
def test_jax_quantize(c, jax_quantize):
    return jax_quantize(c.x, np.full(c.x.shape, c.out_scale), c.out_zp)
