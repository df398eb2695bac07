# SPDX-License-Identifier: Apache-2.0
"""What the functions of the package return: objects with a text, and with HTML for notebooks."""
from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Iterable, Sequence

import numpy as np

if TYPE_CHECKING:
    from ._native import Case

Array = np.ndarray[Any, Any]


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    def line(tag: str, cells: Sequence[object]) -> str:
        return "<tr>" + "".join(
            f'<{tag} style="text-align:left">{html.escape(str(cell))}</{tag}>' for cell in cells
        ) + "</tr>"
    return "<table>" + line("th", heads) + "".join(line("td", row) for row in rows) + "</table>"


class _Html:
    """str() of the object as HTML."""

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


@dataclass(frozen=True)
class Exact(_Html):
    """The exact output of a case: the real result, rounded once half to even, then clamped.

    ``y`` has the NumPy type and the shape of the output. The object is an array to NumPy.
    """

    case: "Case"
    y: Array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.y, dtype=dtype) if dtype is not None or copy else self.y

    def derive(self, index: int = 0) -> str:
        """Step by step, how output ``index`` (row by row) comes about. InputError where there is none."""
        from . import _native
        return _native.derive(self.case, index)

    def __str__(self) -> str:
        return f"exact output of {self.case}:\n{self.y}"


@dataclass(frozen=True)
class Explanation(_Html):
    """Why an answer is not exact, or that it is."""

    text: str
    exact: bool
    y: Array
    kind: str  #: of the fault: "rounding", "clamp", ...; "" of an exact answer
    cause: str  #: one sentence; "" of an exact answer
    evidence: list[str] = field(default_factory=list)
    conventions: list[str] = field(default_factory=list)  #: those that give exactly this answer

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Identified(_Html):
    """Which named conventions give a function's answers bit for bit."""

    op: str
    drawn: int  #: cases asked
    answered: int
    breakage: str  #: how the first call that broke ended; "" if none did
    rows: list[tuple[str, str, int, str, "Case | None"]]
    """(convention, "bit-equal", "ruled out" or "no verdict", cases, reason, the case that rules out)"""

    @property
    def bit_equal(self) -> list[str]:
        """The conventions that gave every answer, "exact" among them."""
        return [name for name, state, *_ in self.rows if state == "bit-equal"]

    def dataframe(self) -> Any:
        """The rows as a pandas DataFrame. Raises ImportError where pandas is absent."""
        import pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]
        return pandas.DataFrame(self.rows, columns=["convention", "state", "cases", "reason", "case"])

    def __str__(self) -> str:
        same = self.bit_equal
        lines = [f"{self.op}, {self.answered} of {self.drawn} cases answered: "
                 + (f"bit-equal to {', '.join(same)}" if same else "bit-equal to no known convention")]
        if self.breakage:
            lines.append(f"broke: {self.breakage}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rank = {"bit-equal": 0, "ruled out": 1, "no verdict": 2}
        rows = sorted(self.rows, key=lambda row: (rank[row[1]], -row[2]))
        return (f"<p>{html.escape(str(self))}</p>"
                + _table(["convention", "", "cases", "why"], [row[:4] for row in rows]))


@dataclass(frozen=True)
class Tree(_Html):
    """In which order a function adds, and with which steps."""

    products: int
    text: str  #: "((0+1)+2)", or that the sum is exact, or why there is no tree
    parts: Any  #: nested tuples of the indices of products; None where there is no tree
    exact: bool  #: no step rounds, so no order can be seen
    order: str  #: the simplest named order with this tree; "" if none has it
    steps: str  #: those that gave the bits of every random sum; "" if none did
    compared: int  #: random sums
    questions: int
    witness: "tuple[Array, Array, float, float] | None"
    """Without steps: a, b, what the best steps give, what the function gave."""
    report: str

    def __str__(self) -> str:
        return self.report


@dataclass(frozen=True)
class Certificate(_Html):
    """Whether the sums of a layer fit, if a kernel adds them as ``scheme`` does."""

    scheme: str
    conventions: list[str]  #: that add so
    channels: int
    sums: int  #: narrow sums that were proved
    unsafe: list[tuple[int, int, int]]
    """(channel, how many of its sums can overflow, the exact value of the worst one)"""
    accumulators: tuple[int, int]  #: the smallest and largest whole sum, of all channels
    witness: "Case | None"  #: an input on which the first unsafe channel comes out wrong

    @property
    def safe(self) -> bool:
        """No narrow sum can overflow: proved, for every input in the range."""
        return not self.unsafe

    def __str__(self) -> str:
        low, high = self.accumulators
        told = (f"safe, proven for {self.channels} channels and {self.sums} sums" if self.safe else
                f"UNSAFE in {len(self.unsafe)} of {self.channels} channels")
        return f"{self.scheme}: {told}; accumulators in {low}..{high}"


@dataclass(frozen=True)
class Exhausted(_Html):
    """What a function gave on every input of an operation."""

    op: str
    judged: int  #: outputs that this speaks for: 2**32 of quantize
    asked: int  #: outputs that the function was asked for
    wrong: int
    wrong_nan: int  #: those of NaN
    worst: "Case | None"  #: the most distant wrong output alone, with what the function gave as observed
    first: "Case | None"  #: the wrong one with the lowest input
    monotone: str  #: "assumed" where the inputs between those asked are taken to rise; docs/proofs.md
    failed: str  #: why the function could not be judged, "crash: ..." and the like; "" if it could
    certificate: str  #: as `qualm exhaust --output` writes it
    text: str

    @property
    def ok(self) -> bool:
        """No output is wrong."""
        return not self.failed and self.wrong == 0

    def __str__(self) -> str:
        return self.text.rstrip()


@dataclass(frozen=True)
class Claim(_Html):
    """The judgement of one claim: "passed", "failed", "skipped", "vacuous" or "not_applicable"."""

    claim: str
    judgement: str
    text: str  #: the finding and its explanation, or why nothing was judged; "" if passed
    kind: str  #: of the fault; "" unless failed
    judged: int  #: cases that the claim was judged on
    compares: bool  #: whether the claim compares every number with what is promised
    smallest: "Case | None"  #: of a failure
    wrong_type: str = ""  #: "an array of float64, expected ..." where the function returned such

    @property
    def failed(self) -> bool:
        return self.judgement == "failed"

    def __str__(self) -> str:
        return self.text or f"{self.claim}: {self.judgement} ({self.judged} cases)"


@dataclass(frozen=True)
class Report(_Html):
    """The judgements of all claims of one operation."""

    op: str
    name: str
    claims: list[Claim]

    @property
    def ok(self) -> bool:
        """No claim fails."""
        return not any(claim.failed for claim in self.claims)

    @property
    def failures(self) -> list[Claim]:
        return [claim for claim in self.claims if claim.failed]

    def __str__(self) -> str:
        passed = sum(claim.judgement == "passed" for claim in self.claims)
        head = f"{self.name}, {self.op}: {passed} claims hold, {len(self.failures)} fail"
        return "\n\n".join([head, *(claim.text for claim in self.failures)])

    def _repr_html_(self) -> str:
        rows = [(c.claim, c.judgement, c.judged, c.text.split("\n", 2)[-1] if c.failed else c.text)
                for c in self.claims]
        return (f"<p>{html.escape(str(self).splitlines()[0])}</p>"
                + _table(["claim", "judgement", "cases", ""], rows))
