#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the documented forum cases as case files from the recordings in corpus/golden.

Run from anywhere: python3 corpus/forum/make_cases.py. The suite checks that the committed files are
what this writes.
"""
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden"

RECORDS = {r["id"]: r for r in map(json.loads, (GOLDEN / "seeds.jsonl").open())}
POINTS = json.loads((GOLDEN / "seed000_sweep_info.json").read_text())["seed000"]


def hex32(text):
    """0x1.8b61ea0000000p-6 -> 0x1.8b61eap-6: the shortest exact spelling."""
    mantissa, exponent = text.split("p")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}p{exponent}"


def linear(record, x, rows, note, observed_by=None, y=None):
    case = {
        "qualm_case": 1,
        "op": "linear",
        "note": note,
        "M": rows, "N": record["N"], "K": record["K"],
        "gran": "tensor",
        "x_dtype": "u8", "w_dtype": "s8", "out_dtype": "u8",
        "x_scale": hex32(record["x_scale"]), "x_zp": record["x_zp"],
        "w_scale": hex32(record["w_scale"][0]), "w_zp": record["w_zp"][0],
        "out_scale": hex32(record["out_scale"]), "out_zp": record["out_zp"],
        "x": x, "w": record["w"],
    }
    if observed_by:
        case["observed"] = {"by": observed_by, "y": y}
    return case


def conv2d(record, note, observed_by):
    """A square convolution per tensor without bias, as all of thread 003 are."""
    assert record["gran"] == "tensor" and record["bias"] is None and not record["relu"]
    return {
        "qualm_case": 1,
        "op": "conv2d",
        "note": note,
        "N": record["N"], "H": record["H"], "W": record["W"],
        "IC": record["IC"], "OC": record["OC"], "R": record["R"], "S": record["S"],
        "stride": [record["stride"]] * 2,
        "pad": [record["pad"]] * 4,
        "dilation": [record["dil"]] * 2,
        "groups": record["G"],
        "gran": "tensor",
        "x_dtype": "u8", "w_dtype": "s8", "out_dtype": "u8",
        "x_scale": hex32(record["x_scale"]), "x_zp": record["x_zp"],
        "w_scale": hex32(record["w_scale"][0]), "w_zp": record["w_zp"][0],
        "out_scale": hex32(record["out_scale"]), "out_zp": record["out_zp"],
        "x": record["x"], "w": record["w"],
        "observed": {"by": observed_by, "y": record["y"]},
    }


def cases():
    r = RECORDS["seed000-avx2"]
    k = r["K"]
    yield "000-linear-sweep", linear(
        r, r["x"], r["M"],
        "Thread 000: a quantized Linear fed constant rows is not monotonic on FBGEMM AVX2.",
        "FBGEMM 71d6f8b, AVX2", r["y"])
    codes = POINTS["q_of_val"]
    table = {r["x"][m * k]: r["y"][m * r["N"]:(m + 1) * r["N"]] for m in range(r["M"])}
    yield "000-linear-points", linear(
        r, [q for q in codes for _ in range(k)], len(codes),
        "Thread 000 as plotted there: the real inputs -4.00, -3.99, ... 3.99, quantized.",
        "FBGEMM 71d6f8b, AVX2", [v for q in codes for v in table[q]])

    r = RECORDS["seed001"]
    n = len(r["x"])
    yield "001-quantize", {
        "qualm_case": 1,
        "op": "quantize",
        "note": "Thread 001: QuantStub and a hand-made quantize differ: reduce_range chose the scale and "
                "zero point that take calibrated values to 0..127, but quantize clamps to 0..255, and a "
                "clamp at 127 made by hand gives other codes.",
        "M": 1, "N": n,
        "gran": "tensor",
        "x_dtype": "f32", "out_dtype": "u8",
        "out_scale": hex32(r["scale"]), "out_zp": r["zp"],
        "x": [hex32(v) for v in r["x"]],
        "observed": {"by": "PyTorch 1.13.1 quantize_per_tensor, as printed in the thread",
                     "y": r["y_thread"]},
    }

    r = RECORDS["seed002-avx2"]
    yield "002-linear-2x2", linear(
        r, r["x"], r["M"],
        "Thread 002: what the library printed for a 2x2 linear layer: each zero point is subtracted "
        "from its own tensor, the sum is scaled and rounded once, then the output zero point added.",
        "FBGEMM 71d6f8b, all instruction sets, as printed in the thread", r["y"])
    yield "002-linear-by-hand", linear(
        r, r["x"], r["M"],
        "Thread 002: what the poster computed by hand, subtracting the weight zero point from x.",
        "a NumPy re-implementation in the thread", [0, 255])

    # Recorded on made-up images and weights, with the window, scales and zero points of the thread.
    r = RECORDS["seed003_0-avx2"]
    yield "003-conv1", conv2d(
        r,
        "Thread 003: conv1 with the thread's scales and zero points, data made up; on AVX2 channel 1, "
        "the one with large weights, is wrong; reduce_range only hides it, VNNI and QNNPACK do not have it.",
        "FBGEMM 71d6f8b, AVX2")
    r = RECORDS["seed003_3-avx2"]
    yield "003-conv1-all-codes", conv2d(
        r,
        "Thread 003: conv1 as in 003-conv1 on an image with codes from 0 to 255, where the same "
        "channel is wrong by up to 255.",
        "FBGEMM 71d6f8b, AVX2")

    r = RECORDS["seed004-qnnpack"]
    assert RECORDS["seed004-onednn"]["y_thread"] == r["y_thread"]
    yield "004-add", {
        "qualm_case": 1,
        "op": "add",
        "note": "Thread 004: what quantized add printed: both operands are dequantized, added, and quantized "
                "with the output's scale and zero point; a formula that adds codes gives other numbers.",
        "M": 1, "N": r["n"],
        "gran": "tensor",
        "x_dtype": "u8", "out_dtype": "u8",
        "a_scale": hex32(r["a_scale"]), "a_zp": r["a_zp"],
        "b_scale": hex32(r["b_scale"]), "b_zp": r["b_zp"],
        "out_scale": hex32(r["out_scale"]), "out_zp": r["out_zp"],
        "a": r["a"], "b": r["b"],
        "observed": {"by": "PyTorch quantized add, as printed in the thread", "y": r["y_thread"]},
    }


def text_of(case):
    text = json.dumps(case, indent=2)
    # Lists on one line.
    return re.sub(r"\[[^\[\]{}]*\]", lambda m: re.sub(r"\s+", "", m.group(0)), text) + "\n"


def main():
    stale = []
    for name, case in cases():
        path = HERE / f"{name}.case.json"
        text = text_of(case)
        if "--check" in sys.argv[1:]:
            if not path.exists() or path.read_text() != text:
                stale.append(path.name)
        else:
            path.write_text(text)
    if stale:
        sys.exit("stale, run corpus/forum/make_cases.py: " + ", ".join(stale))


if __name__ == "__main__":
    main()
