# SPDX-License-Identifier: Apache-2.0
"""Fields of a case, as Python values, written as the text of a case file."""
from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from ._errors import InputError

_TYPES = {"uint8": "u8", "int8": "s8", "int16": "s16", "uint16": "u16", "int32": "s32", "float32": "f32", "float16": "f16"}
_IMAGES = ("conv2d", "depthwise", "max_pool", "avg_pool", "global_avg_pool")
_PAIRS = ("add", "sub", "mul", "concat")
_RANKS = {op: 4 for op in _IMAGES} | {"choose_qparams": 3}


def _real(value: float) -> Any:
    """A float32 for the strict reader: exact, and of NaN the bits."""
    if math.isnan(value):
        return f"nan:{int(np.float32(value).view(np.uint32)):08x}"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return float(value).hex()


def _plain(key: str, value: Any) -> Any:
    """Arrays, NumPy's scalars and tuples as lists and numbers of JSON."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    array = np.asarray(value)
    if array.dtype == np.bool_ and array.ndim == 0:
        return bool(array)
    if array.dtype.kind in "iu":
        return array.ravel().tolist() if array.ndim else int(array)
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            values = array.astype(np.float32).ravel().tolist()
        return [_real(value) for value in values] if array.ndim else _real(values[0])
    raise InputError(f"{key}: is {value!r}, expected numbers")


def _tensor(op: str, key: str, value: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(value)
    rank = _RANKS.get(op, 2)
    if array.ndim != rank:
        raise InputError(f"{key}: has {array.ndim} dimensions, expected {rank}")
    return array


def _type(key: str, array: np.ndarray[Any, Any]) -> str:
    name = _TYPES.get(array.dtype.name)
    if name is None:
        raise InputError(f"{key}: is an array of {array.dtype}, expected one of "
                         + ", ".join(_TYPES) + f", or {key}_dtype beside it")
    return name


def _sizes(op: str, tensors: dict[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
    """The sizes that the arrays have."""
    x = tensors.get("x", tensors.get("a"))
    second = tensors.get("w", tensors.get("b"))
    sizes: dict[str, Any] = {}
    if x is None:
        return sizes
    if op in _IMAGES:
        sizes["N"], sizes["H"], sizes["W"] = x.shape[:3]
        sizes["IC" if op in ("conv2d", "depthwise") else "C"] = x.shape[3]
        if second is not None:
            sizes["OC"], sizes["R"], sizes["S"] = second.shape[:3]
            if op == "conv2d" and second.shape[3]:
                sizes["groups"] = x.shape[3] // second.shape[3]
    elif op in ("linear", "dynamic_linear"):
        sizes["M"], sizes["K"] = x.shape
        if second is not None:
            sizes["N"] = second.shape[0]
    elif op == "concat":
        sizes["M"], sizes["NA"] = x.shape
        if second is not None:
            sizes["NB"] = second.shape[1]
    elif op == "choose_qparams":
        sizes["batches"], sizes["M"], sizes["N"] = x.shape
    else:
        sizes["M"], sizes["N"] = x.shape
    return sizes


def case_text(op: str, **fields: Any) -> str:
    """The text of a case file: sizes and element types follow from the arrays where not given."""
    known: dict[str, Any] = {"qualm_case": 1, "op": op}
    names = ("a", "b") if op in _PAIRS else ("x", "w")
    tensors = {key: _tensor(op, key, fields[key]) for key in names if key in fields}
    known.update(_sizes(op, tensors))
    for key, dtype in zip(names, ("x_dtype", "w_dtype")):
        if key in tensors and dtype not in fields and not (op in _PAIRS and key == "b"):
            known[dtype] = _type(key, tensors[key])
    if op in _PAIRS and len(tensors) == 2 and tensors["a"].dtype != tensors["b"].dtype:
        raise InputError(f"b: is an array of {tensors['b'].dtype}, expected {tensors['a'].dtype}, "
                         "the type of a")
    for key in ("out_scale", "x_scale", "w_scale", "out_zp", "x_zp", "w_zp", "multiplier"):
        if "gran" not in fields and key in fields and np.ndim(fields[key]) >= 1:
            known["gran"] = "channel"
    known.update(fields)
    out = known.get("out_dtype")
    if out is not None and not isinstance(out, str):
        known["out_dtype"] = _TYPES.get(np.dtype(out).name, str(out))
    if fields.get("expected") is not None:
        known["expected"] = np.asarray(fields["expected"])
    observed = known.pop("observed", None)
    by = known.pop("observed_by", "somebody")
    text = {key: _plain(key, value) for key, value in known.items()}
    if observed is not None:
        text["observed"] = {"by": by, "y": _plain("observed", observed)}
    return json.dumps(text)
