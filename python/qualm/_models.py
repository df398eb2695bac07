# SPDX-License-Identifier: Apache-2.0
"""Models layer by layer: what a runtime gives beside the exact result."""
from __future__ import annotations

import html
import importlib.util
import json
import math
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

import numpy as np

from . import _native
from ._errors import InputError
from ._property import require_function
from ._results import Array, _table

if TYPE_CHECKING:
    from ._native import Case

#: Runtimes by name: the file of their class Runtime, and its argument.
_RUNTIMES = {
    True: {"onnxruntime": ("onnxruntime_models", "")},
    False: {"tflite": ("litert_models", "xnnpack"), "tflite@builtin": ("litert_models", "builtin"),
            "tflite@reference": ("litert_models", "reference")},
}


def _module_beside(file: str) -> Any:
    """A module that stands in the source tree where others read it too. Raises ImportError where it, or
    the library that it imports, is missing."""
    package = Path(__file__).resolve().parent
    source = package.parent.parent
    for folder in (package / "runtimes", source / "adapters" / "libraries", source / "tools" / "pytorch"):
        path = folder / f"{file}.py"
        if path.is_file():
            spec = importlib.util.spec_from_file_location(f"qualm._{file}", path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    raise ImportError(f"{file}.py is not installed beside the package")


def _make_runtime(is_onnx: bool, name: str | None) -> Any:
    """Raises ImportError where the library is missing, InputError for a name that is none."""
    known = _RUNTIMES[is_onnx]
    if name is not None and name not in known:
        raise InputError(f"runtime: is {name!r}, expected " + ", ".join(known))
    file, option = known[name] if name else next(iter(known.values()))
    return _module_beside(file).Runtime(option)


@dataclass(frozen=True)
class Error:
    """A part of an error, in output codes."""

    rms: float  #: root mean square over all outputs
    worst: float

    def __str__(self) -> str:
        return f"{self.rms:.3g} (at most {self.worst:.3g})" if self.worst else "0"


@dataclass(frozen=True)
class Layer:
    """A layer of a model that ran, on the inputs that the runtime gave it."""

    name: str
    op: str  #: qualm's operation
    operators: str  #: the nodes that it is made of: "DequantizeLinear, Conv, QuantizeLinear"
    output: str  #: type and shape: "u8 [1,16,12,12]"
    outputs: int
    not_exact: int  #: outputs
    worst_lsb: float  #: the largest distance from the exact output: codes, of float32 ulps
    whose: str  #: "exact", or whose arithmetic in words
    arithmetic: list[str]  #: conventions that give every output; empty of an exact layer
    wrong: bool  #: not exact, and no known arithmetic gives it
    explanation: str  #: of a wrong one, a sentence; else ""
    sqnr_db: float | None
    """Signal to noise against the real results, or the reference, in decibel; None of reals."""
    cosine: float | None
    quantization: Error | None  #: the exact code less the real result: what any kernel costs
    kernel: Error | None  #: the answer less the exact code: what nothing asks for
    against_reference: bool  #: of a float model, and not the real result on the layer's own inputs
    cases: "list[Case]" = field(default_factory=list, repr=False)
    """Where it is not exact: cases with what the runtime gave as observed (one for most layers)."""


_NUMBERS = ("layer", "operation", "output", "not exact", "at most", "SQNR", "cosine", "quantization",
            "kernel error", "whose arithmetic")


@dataclass(frozen=True)
class Recording:
    """The layers of a model, the worst first."""

    file: str
    by: str  #: whose answers are judged: "ONNX Runtime 1.32.0"; "" for nobody's
    summary: str  #: "of 12 layers: 11 exact, 1 WRONG: conv1."
    layers: list[Layer]
    others: list[tuple[str, str]]  #: (node, why it is not judged)
    notes: list[str]  #: what was drawn for inputs that were not given, and why nobody ran the model
    _run: Any = field(repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Every layer is exact, or has a known arithmetic."""
        return not any(layer.wrong for layer in self.layers)

    def __getitem__(self, name: str) -> Layer:
        """The layer of this name. Raises KeyError."""
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(name)

    def _rows(self) -> list[list[str]]:
        def number(value: float | None, form: str) -> str:
            return "-" if value is None else format(value, form)
        return [[layer.name, layer.op, layer.output, str(layer.not_exact), f"{layer.worst_lsb:.4g}",
                 number(layer.sqnr_db, ".1f"), number(layer.cosine, ".6f"),
                 str(layer.quantization or "-"), str(layer.kernel or "-"), layer.whose]
                for layer in self.layers]

    def dataframe(self) -> Any:
        """A row for each layer, as a pandas DataFrame. Raises ImportError where pandas is absent."""
        import pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]
        return pandas.DataFrame([{
            "layer": layer.name, "op": layer.op, "output": layer.output, "outputs": layer.outputs,
            "not_exact": layer.not_exact, "worst_lsb": layer.worst_lsb, "sqnr_db": layer.sqnr_db,
            "cosine": layer.cosine,
            "quantization": layer.quantization.rms if layer.quantization else None,
            "kernel": layer.kernel.rms if layer.kernel else None,
            "whose": layer.whose, "wrong": layer.wrong} for layer in self.layers])

    def page(self, path: "str | os.PathLike[str]") -> Path:
        """Writes a page of HTML that needs nothing else, with bars for each layer and a histogram of
        the errors of those that are not exact."""
        target = Path(path)
        target.write_text(self._run.page(self.notes), encoding="utf-8")
        return target

    def write(self, folder: "str | os.PathLike[str]") -> list[Path]:
        """Writes the cases of the layers that are not exact, as `qualm explain -o` does, and returns
        their files."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        files = []
        for number, layer in enumerate(self.layers):
            for part, case in enumerate(layer.cases):
                name = "".join(c if c.isalnum() or c in "-_." else "_" for c in layer.name)[-80:]
                files.append(target / f"{number:03}-{name}-{part}.case.json")
                case.write(files[-1])
        return files

    def __str__(self) -> str:
        rows = [list(_NUMBERS), *self._rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_NUMBERS))]
        lines = [f"{Path(self.file).name}: {self.by or 'exact results alone'}",
                 *(f"  {note}" for note in self.notes)]
        if self.layers:
            lines += ["  ".join(["", *(cell.ljust(width) for cell, width in zip(row, widths))]).rstrip()
                      for row in rows]
        return "\n".join([*lines, f"  {self.summary}"])

    def _repr_html_(self) -> str:
        head = "".join(f"<p>{html.escape(line)}</p>" for line in
                       (f"{Path(self.file).name}: {self.by or 'exact results alone'}", self.summary,
                        *self.notes))
        bars = self._run.bars() if any(layer.kernel for layer in self.layers) else ""
        return head + bars + (_table(_NUMBERS, self._rows()) if self.layers else "")


def _layer(row: dict[str, Any], cases: "list[Case]") -> Layer:
    split = row.get("error")

    def measure(key: str) -> float | None:
        if not split:
            return None
        if split[key] is not None:
            return float(split[key])
        # JSON has no infinities: there is no noise, or no signal.
        infinite = math.inf if split["total"]["rms"] == 0 else -math.inf
        return infinite if key == "sqnr_db" else math.nan
    far = row["worst_lsb"]
    return Layer(row["name"], row["op"], row["operators"], row["output"], row["outputs"],
                 row["not_exact"], math.inf if far is None else float(far), row["whose"], row["arithmetic"],
                 row["wrong"], row["explanation"] or "", measure("sqnr_db"), measure("cosine"),
                 Error(**split["quantization"]) if split else None,
                 Error(**split["kernel"]) if split else None,
                 split is not None and split["reference"] == "given", cases)


def _read(arrays: "Mapping[str, Any]") -> dict[str, Any]:
    """With the arrays of files in the place of their names."""
    def array(value: Any) -> Any:
        if not isinstance(value, (str, os.PathLike)):
            return value
        path = os.fspath(value)
        if path.endswith(".pb"):
            return _native.read_tensor(path)
        try:
            return np.load(path)
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: {error}") from None
    return {name: array(value) for name, value in arrays.items()}


def record_onnx(path: "str | os.PathLike[str]",
                inputs: "Mapping[str, Array] | Sequence[Array] | Array | None" = None, *,
                runtime: "str | Any | None" = None, observed: "Mapping[str, Array] | None" = None,
                reference: "Mapping[str, Array] | str | os.PathLike[str] | None" = None,
                subject: "Callable[[Case], Any] | None" = None, seed: int = 1) -> Recording:
    """Runs a quantized model layer by layer, exactly, beside ONNX Runtime (a .tflite: LiteRT).

    ``path``
        a .onnx or .tflite file. What is a layer, docs/models.md says.
    ``inputs``
        arrays by the names of the model's inputs, or in their order, or one array; or files of them,
        .npy or .pb (a TensorProto, as ONNX's test data are). Inputs that are missing are drawn from
        ``seed``.
    ``runtime``
        who is judged: None for the library of the format in this Python (ONNX Runtime; LiteRT with
        XNNPACK); "tflite@builtin" or "tflite@reference"; "" for nobody; an object with ``name`` and
        ``run(question)``, where question has ``model`` (bytes), ``node``, ``inputs`` and ``wanted``.
    ``observed``
        what somebody's software gave for values of the model, arrays or files; layers are judged on
        these.
    ``subject``
        a function of a case (``c.op`` says of which operation) that answers the layers in the place of
        the runtime, each on what it gave for those before; it raises :class:`qualm.Skip` for others.
    ``reference``
        the file of the model before it was quantized, which the runtime then runs on the same inputs
        (where a .tflite takes codes, on their reals),
        or float32 arrays by the names of its values: layers are compared with these, so that SQNR,
        cosine and quantization include all layers before. Without it, and where a layer's output has
        no namesake there, the real result on the layer's own inputs is the reference.

    Raises InputError for a broken model and inputs that do not fit. A library that is missing or
    refuses the model is told in ``notes``.
    """
    model = _native.Model(os.fspath(path))
    if inputs is None:
        given: dict[str, Any] = {}
    elif isinstance(inputs, Mapping):
        given = dict(inputs)
    else:
        listed = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        if len(listed) > len(model.inputs):
            raise InputError(f"inputs: are {len(listed)}, expected {len(model.inputs)}")
        given = dict(zip(model.inputs, listed))
    given, observed = _read(given), _read(observed or {})
    if subject is not None:
        require_function("subject", subject, "explain MODEL")
    if subject is not None and observed:
        raise InputError("observed: is what somebody gave, expected no subject, which is asked for it")
    for name in given:
        if name not in model.inputs:
            raise InputError(f"inputs: the model has no input {name!r}, expected one of "
                             + ", ".join(model.inputs))
    notes: list[str] = []
    if runtime is None or (isinstance(runtime, str) and runtime):
        try:
            runtime = _make_runtime(model.is_onnx, runtime)
        except ImportError as missing:
            notes.append(f"exact results alone: {missing}")
            runtime = None
    elif runtime == "":
        runtime = None
    drawn_inputs, drawn = model.draw(given, seed)
    if isinstance(reference, (str, os.PathLike)):
        if runtime is None:
            raise InputError("reference: is a file, and there is no runtime to run it; expected arrays")
        before = _native.Model(os.fspath(reference))
        reference = before.reference_for(model, {name: drawn_inputs[name] for name in before.inputs
                                                 if name in drawn_inputs}, runtime)
    run = model.run(drawn_inputs, runtime, observed, dict(reference or {}), drawn, subject,
                    getattr(subject, "__name__", type(subject).__name__))
    notes += [f"input {line} (seed {seed})" for line in drawn]
    return _recording(run, notes, [])


def _recording(run: Any, notes: list[str], others: list[tuple[str, str]]) -> Recording:
    told = json.loads(run.json)
    if told["refused"]:
        notes.append(f"refused: {told['refused']}")
    notes += run.notes
    rows = told["layers"]
    others += [(row["name"], why) for row, why in zip(rows, run.why_not_judged) if why]
    return Recording(told["file"], told["by"] or "", run.summary,
                     [_layer(rows[i], run.cases(i)) for i in run.worst_first], others, notes, run)


def record(model: Any, *inputs: Any, reference: Any = None, limit: int = 1 << 16,
           folder: "str | os.PathLike[str] | None" = None) -> Recording:
    """Runs a quantized PyTorch model, and judges what each of its layers computed, on its own inputs.

    ``model``
        eager or FX on whatever engine is set, PT2E, or torchao's int8 (docs/pytorch.md). PyTorch 1.13 or
        newer. It is called once, with ``inputs``.
    ``reference``
        the model before it was converted, with the same names of modules, called with the same inputs:
        SQNR, cosine and quantization then count against the float32 outputs of its layers and include
        all layers before. Without it, and where a layer has no namesake there, the real result on the
        layer's own inputs is the reference.
    ``limit``
        outputs of a layer that are judged at most: the first rows, images or channels.
    ``folder``
        where a case file of each layer is kept; none is if there is no folder.

    What is left out, and why, is in ``others``. Raises ImportError where PyTorch is missing.
    """
    exporter = _module_beside("qualm_export")
    import torch  # type: ignore[import-not-found,unused-ignore]
    with tempfile.TemporaryDirectory() as temporary:
        with torch.no_grad(), exporter.record(model, os.fspath(folder or temporary), limit, reference) as made:
            model(*inputs)
            if reference is not None:
                reference(*inputs)
        layers, by = [], f"PyTorch {torch.__version__}"
        for path, operators in zip(made.files, made.operators):
            case = _native.Case.read(path)
            beside = path[:-len(".case.json")]
            reals = beside + ".reference.npy"
            layers.append((Path(beside).name, operators, case,
                           np.load(reals) if reals in made.references else None))
            by = max(by, case.observed_by, key=len)  # one that names the engine, if it was asked
        run = _native.recorded(type(model).__name__, by, layers)
    return _recording(run, [], [(layer, f"{operator}: {why}") for layer, operator, why in made.left_out])
