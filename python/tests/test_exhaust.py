# SPDX-License-Identifier: Apache-2.0
"""A function on every input of an operation."""
import json

import numpy as np
import pytest

import qualm


def quantize(case):
    with np.errstate(all="ignore"):
        codes = np.rint(case.x / case.out_scale) + case.out_zp
    return np.clip(np.nan_to_num(codes, nan=0, posinf=1e9, neginf=-1e9), 0, 255).astype(np.uint8)


def test_every_float_of_quantize():
    run = qualm.exhaust(quantize, "quantize", out_scale=0.1, out_zp=3, contract="numpy@float32")
    assert run.ok and run.judged == 2**32 and run.asked < 5000 and run.worst is None
    assert run.monotone == "assumed"
    certificate = json.loads(run.certificate)
    assert certificate["subject"] == "python:quantize" and certificate["wrong"] == 0
    # x / scale is rounded to float32 before it is rounded to an integer.
    run = qualm.exhaust(quantize, "quantize", out_scale=0.1, out_zp=3)
    assert not run.ok and run.wrong > run.wrong_nan > 0
    case = run.worst
    assert case.x.shape == (1, 1) and case.observed != qualm.exact(case).y
    assert qualm.explain(case).kind
    assert f"{run.wrong} of 4294967296 outputs wrong against exact" in str(run) == run._repr_html_()[5:-6]


def add(case, off=None):
    real = ((case.a.astype(float) - case.a_zp) * float(case.a_scale)
            + (case.b.astype(float) - case.b_zp) * float(case.b_scale))
    y = np.clip(np.rint(real / float(case.out_scale)) + case.out_zp, 0, 255)
    y[(case.a == 7) & (case.b == 200)] += off or 0
    return y.astype(np.uint8)


def test_every_pair_of_codes():
    asked = {"a_scale": 0.25, "b_scale": 0.5, "out_scale": 1, "out_zp": 2}
    assert qualm.exhaust(add, "add", **asked).ok
    run = qualm.exhaust(lambda case: add(case, 5), "add", **asked)
    assert (run.wrong, run.judged, run.asked) == (1, 65536, 65536)
    assert (run.worst.a[0, 0], run.worst.b[0, 0]) == (7, 200)
    assert run.worst.observed[0, 0] == qualm.exact(run.worst).y[0, 0] + 5


def test_the_sums_of_a_layer():
    layer = qualm.Case("linear", x=np.zeros((1, 3), np.uint8), w=np.ones((2, 3), np.int8), x_scale=0.5, x_zp=0,
                       w_scale=np.array([0.25, 0.5], np.float32), w_zp=[0, 0], out_scale=1, out_zp=0)
    multipliers = set()

    def requantize(case):
        multipliers.add(float(case.multiplier))
        codes = np.rint(case.x.astype(float) * np.float64(case.multiplier)) + case.out_zp
        return np.clip(codes, 0, 255).astype(np.uint8)
    run = qualm.exhaust(requantize, layer, op="requantize")
    assert run.ok and run.judged == 2 * 2**32 and multipliers == {0.125, 0.25}


def test_every_activation_of_two_weights():
    run = qualm.exhaust(lambda c: c.x.astype(np.int32) @ c.w.T.astype(np.int32), "linear",
                        w=np.array([[1, -128]], np.int8), out_dtype="s32")
    assert run.ok and run.judged == 65536


def test_in_full_as_by_steps():
    def table(case):
        return np.minimum(case.x, 250)
    for how in ({}, {"full": True}, {"each": True}):
        run = qualm.exhaust(table, "rescale", **how)
        assert (run.wrong, run.asked) == (5, 256)
        assert run.worst.x[0, 0] == 255 and run.first.x[0, 0] == 251


def test_a_function_that_breaks_proves_nothing():
    run = qualm.exhaust(lambda case: 1 / 0, "add")
    assert not run.ok and run.failed.startswith("crashed: raised ZeroDivisionError") and str(run) == run.failed

    def stop(done, of, wrong):
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        qualm.exhaust(add, "add", progress=stop)


def test_codes_of_16_bits():
    run = qualm.exhaust(lambda c: c.x.astype(np.float32) * np.float32(c.x_scale), "dequantize",
                        x_dtype="s16", x_scale=0.1)
    assert run.ok and run.judged == 65536
    run = qualm.exhaust(lambda c: np.int16(np.clip(np.rint(c.x / c.out_scale), -32768, 32767)),
                        "requantize", out_dtype="s16", multiplier=1, out_scale=1)
    assert run.ok and run.judged == 2**32


@pytest.mark.parametrize("arguments, error", [
    (("softmax",), "what: is 'softmax', expected one of quantize, requantize"),
    (("add", {"contract": "within:V1"}), "within:V1: permits intervals, expected exact or model:NAME"),
    (("add", {"contract": "numpy@float31"}), "nearest"),
    (("add", {"a_scale": -1}), "a_scale"),
    (([],), "what: is empty"),
    ((qualm.draw("max_pool"),), "max_pool"),
    ((qualm.draw("add"), {"a_scale": 1}), "a_scale: is a parameter, expected an operation"),
])
def test_a_wrong_argument_is_one_line(arguments, error):
    what, options = arguments[0], dict(*arguments[1:])
    with pytest.raises(qualm.InputError, match=error) as raised:
        qualm.exhaust(add, what, **options)
    assert "\n" not in str(raised.value)
