# SPDX-License-Identifier: Apache-2.0
"""The functions of the package."""
from __future__ import annotations

from typing import Any, Callable, Iterable, Sequence

import numpy as np

from . import _native
from ._errors import InputError
from ._native import Case
from ._property import CASES, Property, limits_of, require_function
from ._results import (
    Array,
    Certificate,
    Exact,
    Exhausted,
    Explanation,
    Identified,
    Report,
    Tree,
)


def ops() -> list[str]:
    """The names of all operations, as `qualm list ops` prints them."""
    return _native.ops()


def claims(op: str) -> dict[str, str]:
    """The claims about an operation, each with its statement. InputError for an unknown operation."""
    return {claim: sentence for claim, sentence, _ in _native.claims(op)}


def draw(op: str, seed: int = 1) -> Case:
    """A drawn case, as `qualm check` draws them: the same for the same seed (0 to 2**64 - 1)."""
    return _native.draw(op, seed)


def exact(case: Case) -> Exact:
    """The exact output: the real result, rounded once half to even, then clamped."""
    return Exact(case, _native.exact(case))


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def explain(case: Case, answer: "Array | Callable[[Case], Any] | None" = None, *,
            by: str = "somebody", index: int = -1, **limits: Any) -> Explanation:
    """Why an answer to a case is not exact.

    ``answer``
        the output, an array of ``case.out_dtype`` with shape ``case.shape``; or a function of a
        case, which is then asked further cases, and so says more; or None for the output that the
        case holds as observed.
    ``by``
        who gave the array, for the text.
    ``index``
        the output that is derived, row by row; -1 for the first that is not exact.
    ``limits``
        of a function, as in :func:`qualm.property`.

    Raises InputError for an array of another type or shape, and where the function breaks.
    """
    if callable(answer):
        told = limits_of(case.op, limits) if limits else None
        return Explanation(**_native.explain_function(case, answer, _name_of(answer), told, index))
    if isinstance(answer, str):
        require_function("answer", answer, "explain CASE")
    if answer is None and case.observed is None:
        raise InputError("answer: is None, and the case has no observed output")
    if answer is None:
        return Explanation(**_native.explain_answer(case, case.observed, case.observed_by, index))
    return Explanation(**_native.explain_answer(case, answer, by, index))


def identify(what: "Callable[[Case], Any] | Case | Iterable[Case]", op: str | None = None, *,
             cases: int = 1000, seed: int = 1, **limits: Any) -> "Identified | list[Identified]":
    """Whose arithmetic is this?

    ``what``
        a function of a case, asked ``cases`` cases of operation ``op``; or one or several cases
        with observed outputs, which gives a list with an entry for each operation.
    ``limits``
        of a function, as in :func:`qualm.property`.
    """
    if callable(what):
        if op is None:
            raise TypeError("identify: a function needs the name of its operation: op='linear'")
        told = _native.identify_function(op, what, _name_of(what), limits_of(op, limits), cases, seed)
        return Identified(**told)
    if isinstance(what, str):
        require_function("what", what, "identify")
    observed = [what] if isinstance(what, Case) else list(what)
    return [Identified(**told) for told in _native.identify_cases(observed)]


def certify(w: Array, *, x: str = "u8", x_range: "tuple[int, int] | None" = None, x_zp: int = 0,
            w_zp: int = 0, groups: int = 1,
            schemes: "Sequence[str] | None" = None) -> list[Certificate]:
    """Can a narrow sum of this layer overflow, for any input? A proof, or an input that shows it.

    ``w``
        uint8 or int8 codes: (N, K) of a linear layer, (N, R, S, C/groups) of a convolution.
    ``x``, ``x_range``, ``x_zp``
        the type of the inputs, "u8" or "s8"; the smallest and largest code that they can have (all
        of the type); the code of real 0, which stands in the padding of a convolution.
    ``schemes``
        names as of `qualm certify --scheme`: "pairs", "acc16", "fbgemm@avx2". Without them one for
        each way in which known libraries add this layer in 16 bits; none if there is no such way.
    """
    found = _native.certify(np.asarray(w), x, x_range, x_zp, w_zp, groups,
                            None if schemes is None else list(schemes))
    return [Certificate(**one) for one in found]


def tree(function: Callable[[Array, Array], Any], products: int = 64, *, cases: int = 10_000,
         seed: int = 1) -> Tree:
    """In which order does a function add the products of two vectors?

    ``function``
        of two float32 arrays of ``products`` numbers (2 to 1024); it returns the sum of their products
        as a number. ``lambda a, b: np.sum(a * b)`` asks a plain sum.
    ``cases``
        random sums on which the steps of the order are tried.

    Exceptions of the function pass through.
    """
    return Tree(**_native.tree(function, products, cases, seed))


#: The operands of operations that have finitely many inputs: an array of one input where it is one, and
#: those that have a scale, 1 unless told otherwise, and a zero point, 0.
_EXHAUSTED: dict[str, tuple[str, str]] = {
    "quantize": ("x", "out"), "requantize": ("x", ""), "dequantize": ("x", "x"),
    "rescale": ("x", "x out"), "table": ("x", "x out"), "linear": ("x", "x w"),
    "add": ("a b", "a b out"), "sub": ("a b", "a b out"), "mul": ("a b", "a b out"),
}
_X_TYPES = {"quantize": np.float32, "requantize": np.int32}


def _problem(op: str, fields: dict[str, Any]) -> Case:
    """The case of these parameters with one input, which does not matter."""
    if op not in _EXHAUSTED:
        raise InputError(f"what: is {op!r}, expected one of {', '.join(_EXHAUSTED)}, or a case")
    inputs, scaled = _EXHAUSTED[op]
    codes = {"s8": np.int8, "s16": np.int16, "u16": np.uint16}.get(fields.pop("x_dtype", "u8"), np.uint8)
    made: dict[str, Any] = {name: np.zeros((1, 2 if op == "linear" else 1), _X_TYPES.get(op, codes))
                            for name in inputs.split()}
    for name in scaled.split():
        made |= {f"{name}_scale": 1, f"{name}_zp": 0}
    if op == "requantize":
        made["out_zp"] = 0
    if op == "linear" and fields.get("out_dtype") != "s32":
        made |= {"out_scale": 1, "out_zp": 0}
    return Case(op, **{**made, **fields})


def exhaust(function: Callable[[Case], Any], what: "str | Case | Iterable[Case]", *, op: str = "",
            contract: str = "exact", full: bool = False, each: bool = False,
            progress: "Callable[[int, int, int], Any] | None" = None, **fields: Any) -> Exhausted:
    """Judges a function on every input that an operation has with these parameters: 2**32 floats of
    quantize or sums of requantize, 256 or 65,536 codes, 65,536 pairs of codes (docs/proofs.md).

    ``what``
        the operation, with its parameters as keywords: ``exhaust(f, "quantize", out_scale=0.1,
        out_zp=3)``, ``x_dtype="s8"``; or a case, or several, whose inputs then do not matter.
    ``op``
        of cases: judge the parts of them that compute this, "requantize" of a linear layer.
    ``contract``
        "exact", or a convention: "numpy@float32".
    ``full``, ``each``
        ask every input, instead of those around the steps of an output that rises; ``each`` compares
        each with its own exact result. Of 2**32 inputs that takes minutes.
    ``progress``
        called now and then with outputs done, outputs in all, and wrong ones.

    Raises InputError for parameters whose inputs cannot be counted (per channel, windows).
    """
    require_function("function", function, "exhaust")
    if isinstance(what, str):
        cases = [_problem(what, fields)]
    else:
        if fields:
            raise InputError(f"{next(iter(fields))}: is a parameter, expected an operation as the "
                             "second argument, not a case")
        cases = [what] if isinstance(what, Case) else list(what)
    if not cases:
        raise InputError("what: is empty, expected one or several cases")
    judged = op or cases[0].op
    method = "each" if each else "full" if full else "steps"
    return Exhausted(**_native.exhaust(cases, op, function, _name_of(function), None,
                                       _native.contract_text(judged, contract), method, progress))


def check(op: str, function: Callable[[Case], Any], *, contract: str = "", cases: int = CASES,
          seed: int = 1, claim: str | None = None, **limits: Any) -> Report:
    """Judges a function by every claim of an operation, or by one, outside of pytest.

    Arguments as in :func:`qualm.property`. Raises InputError as it does, and for a contract that
    lacks the operation.
    """
    require_function("function", function, "check")
    prop = Property(op, function, contract, limits_of(op, limits))
    suite = prop.suite(cases=cases, seed=seed)
    names = [claim] if claim else list(claims(op))
    return Report(op, prop.name, [suite.run(name) for name in names])
