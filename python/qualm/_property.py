# SPDX-License-Identifier: Apache-2.0
"""A function of a case under the claims of an operation."""
from __future__ import annotations

import difflib
import functools
import inspect
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Callable, Iterable, NoReturn, Sequence, TypeVar, Union

from . import _native
from ._errors import InputError
from ._results import Claim

if TYPE_CHECKING:
    from ._native import Case

F = TypeVar("F", bound=Callable[..., Any])

#: Cases that each claim is judged on where nobody says another number.
CASES = 500
#: A claim that compares numbers has to be judged on this part of the cases, or nothing is proved.
_LEAST_PART = 10

_FEATURES = ("relu", "clamp", "per_channel", "per_row", "per_block", "empty", "empty_k", "dilation", "groups",
             "asymmetric_padding", "ceil_mode", "count_padding", "cast_scales", "codes", "strides")
_LIMITS = ("x", "w", "out", "x_zp", "w_zp", "out_zp", "m_max", "n_max", "k_max", "n_multiple",
           "k_multiple", "domain", "w_formats", "rules")
_BIASES = {"f32": ["bias_f32"], "s32": ["bias_i32"], "both": ["bias_f32", "bias_i32"]}

Types = Union[str, Sequence[str], None]


def _meant(key: str) -> str:
    """What somebody may have meant by a keyword that there is not."""
    for value, (feature, *others) in _BIASES.items():
        if key == feature and not others:  # as plugins and pipes call it
            return f'expected bias="{value}"'
    known = (*_LIMITS, *_FEATURES, "bias")
    near = difflib.get_close_matches(key, known, 1, 0.75)
    return f"nearest is {near[0]}" if near else "expected one of " + ", ".join(known)


def require_function(argument: str, given: Any, command: str) -> None:
    """Raises InputError for anything else, as the name of a subject, which the command takes."""
    if callable(given):
        return
    what = repr(given) if isinstance(given, str) else f"of type {type(given).__name__}"
    raise InputError(f"{argument}: is {what}, expected a function of a case; `qualm {command} --subject NAME` "
                     "asks a subject by its name")


def limits_of(op: str, options: dict[str, Any]) -> dict[str, Any]:
    """The limits of keyword arguments, checked. Raises InputError."""
    options = {key: value for key, value in options.items() if value is not None}
    features = [name for name in _FEATURES if options.pop(name, False)]
    bias = options.pop("bias", False)
    if bias:
        bias = "s32" if bias is True else bias
        if bias not in _BIASES:
            raise InputError(f"bias: is {bias!r}, expected True or one of {', '.join(_BIASES)}")
        features += _BIASES[bias]
    for key in options:
        if key not in _LIMITS:
            raise InputError(f"{key}: is no argument, {_meant(key)}")
    limits = {**options, "features": features}
    _native.check_limits(op, limits)
    return limits


@dataclass
class Property:
    """A function of a case, the operation that it claims to compute, and its limits."""

    op: str
    function: Callable[..., Any]
    contract: str = ""
    limits: dict[str, Any] = field(default_factory=dict)
    cases: int | None = None

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def suite(self, call: Callable[["Case"], Any] | None = None, *, cases: int | None = None,
              seed: int = 1, first: Iterable["Case"] = ()) -> "Suite":
        """All claims over one set of drawn cases; ``first`` are judged before these."""
        default = CASES if self.cases is None else self.cases
        return Suite(self, call or self.function, default if cases is None else cases, seed,
                     list(first))


class Suite:
    """The claims of one function, judged one at a time over the same cases."""

    def __init__(self, prop: Property, call: Callable[["Case"], Any], cases: int, seed: int,
                 first: list["Case"]) -> None:
        self.cases = cases
        self.name = prop.name
        #: The claim that found the function returning no array of the output's type, and the sentence.
        #: No other claim is then judged.
        self.wrong_type: dict[str, str] = {}
        self._native = _native.Suite(prop.name, prop.op, call, prop.limits, prop.contract, cases,
                                     seed, first)

    def run(self, claim: str) -> Claim:
        """Judges one claim. Raises InputError for an unknown contract, for one that lacks the
        operation, and where the function's limits leave hardly any case."""
        found = next(iter(self.wrong_type), claim)
        if found != claim:
            return Claim(claim, "skipped", f"{self.wrong_type[found]} (failed in {found})", "", 0, False, None)
        result = Claim(**self._native.run(claim))
        what = result.wrong_type.partition(" with shape")[0]
        if result.failed and what and f"returned {what}" in result.text:
            text = f"{self.name} returned {result.wrong_type}"
            self.wrong_type[claim] = text
            return replace(result, text=text)
        least = max(self.cases // _LEAST_PART, 1)
        applies = result.judgement not in ("failed", "not_applicable")
        if result.compares and applies and result.judged < least:
            why = f" ({result.text})" if result.text else ""
            text = (f"{claim}: nothing is known of this function: only {result.judged} of "
                    f"{self.cases} answers were judged{why}")
            return Claim(claim, "failed", text, "", result.judged, True, None)
        return result


def property(op: str, *, contract: str = "", cases: int | None = None,  # noqa: A001
             x: Types = None, w: Types = None, out: Types = None,
             x_zp: Any = None, w_zp: Any = None, out_zp: Any = None,
             bias: bool | str = False, relu: bool = False, clamp: bool = False,
             per_channel: bool = False, per_row: bool = False, per_block: bool = False,
             empty: bool = False,
             empty_k: bool = False, dilation: bool = False, groups: bool = False,
             asymmetric_padding: bool = False, ceil_mode: bool = False,
             count_padding: bool = False, cast_scales: bool = False, codes: bool = False,
             strides: bool = False,
             m_max: int | None = None, n_max: int | None = None, k_max: int | None = None,
             n_multiple: int | None = None, k_multiple: int | None = None,
             domain: dict[str, Any] | None = None, w_formats: Types = None, rules: Types = None,
             **unknown: NoReturn) -> Callable[[F], F]:
    """Makes tests of a function: one for each claim of operation ``op``.

    The function gets a :class:`qualm.Case` and returns the output: an array of ``c.out_dtype``
    with shape ``c.shape``, in any order of elements. Further arguments are pytest's fixtures.

    ``contract``
        what is right: "" or "exact"; "numpy@float32" or "model:numpy@float32", bit-equal to that
        convention; "within:V1,V8"; "sum", what float32 sums of any order can give, or "sum+offsets".
    ``cases``
        how many cases each claim is judged on (500; ``--qualm-cases`` overrides it).
    ``x``, ``w``, ``out``
        element types, one or several: "u8", ["u8", "s8"]. Without them the first type of the
        operation: u8, of weights s8, of quantize f32 -> u8. A linear with ``x="f32", out="f32"``
        gets real activations, which have no scale and no zero point.
    ``x_zp``, ``w_zp``, ``out_zp``
        a zero point, or the smallest and the largest. Without them every code of the type; of s8
        weights 0 alone.
    ``bias``, ``relu``, ``clamp``, ``per_channel``, ...
        what the function can do besides. With ``per_block`` it also gets weights in blocks along K
        (``c.w_block``; ``w_scale`` and ``w_zp`` are then arrays of shape (N, blocks)). Cases that it does not take are brought into its limits.
        A quantize, dequantize or cast gets blocks of rows (``c.x_block``; arrays of shape
        (M, blocks)). A cast gets ``c.x_scale`` and ``c.out_scale`` other than 1 with
        ``cast_scales``, with ``per_channel`` or ``per_block`` as arrays too. A
        choose_qparams with ``codes`` also gets cases with ``c.codes``: it then returns one row,
        scales, zero points and the code of each value of x.
        ``bias=True`` or "s32" is ``c.bias_i32``, "f32" is ``c.bias``, "both" draws either.
    ``strides``
        the function also takes arrays with gaps between their rows.
    ``m_max``, ``n_max``, ``k_max``, ``n_multiple``, ``k_multiple``
        sizes, as in docs/pipe.md.
    ``domain``
        which cases are meant: ``{"x_scale": (1e-6, 1e3), "bias": (-100, 100), "shapes":
        ["64x512x1024"]}``, ranges and shapes as in docs/domains.md.
    ``w_formats``
        of linear: block formats of llama.cpp (docs/blocks.md), one or several. The function gets
        the bytes, uint8 arrays ``c.w_packed`` and ``c.x_packed`` with a row of each channel and of
        each row of x; ``c.w_format`` and ``c.k_packed`` beside them.
    ``rules``
        of dynamic_linear and choose_qparams: "observer", "aten", "onnx", one or several: the
        ``c.qparams_rule`` that the function chooses by. Without it all of them; of choose_qparams
        "observer".

    Raises :class:`qualm.InputError` for a wrong argument.
    """
    given = {key: value for key, value in locals().items()
             if key not in ("op", "contract", "cases", "unknown") and value is not False}
    given.update(unknown)
    limits = limits_of(op, given)
    if contract:
        _native.check_contract(op, contract)

    def decorate(function: F) -> F:
        prop = Property(op, function, contract, limits, cases)
        parameters = list(inspect.signature(function).parameters.values())
        bound = bool(parameters) and parameters[0].name == "self"
        if len(parameters) < 1 + bound:
            raise InputError(f"{prop.name}: has no parameter, expected one that takes the case")

        @functools.wraps(function)
        def test(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        # pytest takes the parameters for fixtures: all but the case, and the claim as one of them.
        del parameters[1 if bound else 0]
        claim = inspect.Parameter("qualm_claim", inspect.Parameter.KEYWORD_ONLY)
        test.__signature__ = inspect.Signature([*parameters, claim])  # type: ignore[attr-defined]
        test.qualm_property = prop  # type: ignore[attr-defined]
        return test  # type: ignore[return-value]

    return decorate
