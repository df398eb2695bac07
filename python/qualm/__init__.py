# SPDX-License-Identifier: Apache-2.0
"""qualm tests quantized arithmetic: a function of a case, judged by exact oracles.

    import qualm

    @qualm.property("quantize", contract="numpy@float32")
    def test_quantize(c):
        return my.quantize(c.x, c.out_scale, c.out_zp)

pytest then runs one test for each claim of the operation. docs/python.md is the page.
"""
from ._load import load as _load

_load()

from ._api import (  # noqa: E402  (the native module must be found first)
    certify,
    check,
    claims,
    draw,
    exact,
    exhaust,
    explain,
    identify,
    ops,
    tree,
)
from ._errors import Failed, InputError, Skip  # noqa: E402
from ._models import Layer, Recording, record, record_onnx  # noqa: E402
from ._native import Case  # noqa: E402
from ._property import Property, property  # noqa: E402
from ._results import Certificate, Claim, Exact, Exhausted, Explanation, Identified, Report, Tree  # noqa: E402

__all__ = [
    "Case",
    "Certificate",
    "Claim",
    "Exact",
    "Exhausted",
    "Explanation",
    "Failed",
    "Identified",
    "InputError",
    "Layer",
    "Property",
    "Recording",
    "Report",
    "Skip",
    "Tree",
    "certify",
    "check",
    "claims",
    "draw",
    "exact",
    "exhaust",
    "explain",
    "identify",
    "ops",
    "property",
    "record",
    "record_onnx",
    "tree",
]
