# SPDX-License-Identifier: Apache-2.0
"""The plugin for pytest: a test for each claim of a function under @qualm.property."""
from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from . import _native
from ._errors import InputError
from ._native import Case
from ._property import CASES, Property, Suite

_SUITES = pytest.StashKey[dict[Any, Suite]]()
#: Suite.wrong_type of all suites of a function with the same parameters.
_WRONG_TYPES = pytest.StashKey[dict[Any, dict[str, str]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("qualm", "tests of quantized arithmetic")
    group.addoption("--qualm-cases", type=int, default=None, metavar="N",
                    help=f"cases that each claim is judged on (default: the property's, {CASES})")
    group.addoption("--qualm-seed", type=int, default=1, metavar="SEED",
                    help="same seed, same cases (default: 1)")


def pytest_configure(config: pytest.Config) -> None:
    for option, least in (("--qualm-cases", 1), ("--qualm-seed", 0)):
        value = config.getoption(option)
        if value is not None and not least <= value < 2**63:
            raise pytest.UsageError(f"{option}: is {value}, expected {least} or more")
    config.stash[_SUITES] = {}
    config.stash[_WRONG_TYPES] = {}


def _property_of(function: Any) -> Property | None:
    found = getattr(function, "qualm_property", None)
    return found if isinstance(found, Property) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    prop = _property_of(metafunc.function)
    if prop is not None:
        metafunc.parametrize("qualm_claim", [claim for claim, *_ in _native.claims(prop.op)])


def _folder(config: pytest.Config) -> Path | None:
    """Where failing cases are kept: in pytest's cache, if it has one."""
    cache = getattr(config, "cache", None)
    return None if cache is None else Path(cache.mkdir("qualm"))


def _kept(item: pytest.Function) -> Path | None:
    folder = _folder(item.config)
    name = re.sub(r"[^\w.\[\]-]+", "-", item.nodeid)
    return None if folder is None else folder / f"{name[-180:]}.case.json"


def _suite(item: pytest.Function, prop: Property, call: Any, first: list[Case]) -> Suite:
    """One for all claims of a function, unless fixtures or kept cases make each call another. It keeps
    answers, so a parameter that the function does not take, but may see, makes another one."""
    config = item.config
    cases = config.getoption("--qualm-cases")
    seed = config.getoption("--qualm-seed")
    suites = config.stash[_SUITES]
    parameters = sorted((name, repr(value)) for name, value in item.callspec.params.items()
                        if name != "qualm_claim")
    key = (prop.function, item.cls, str(parameters))
    if first or call is not prop.function:
        suite = prop.suite(call, cases=cases, seed=seed, first=first)
    else:
        if key not in suites:
            suites[key] = prop.suite(cases=cases, seed=seed)
        suite = suites[key]
    suite.wrong_type = config.stash[_WRONG_TYPES].setdefault(key, suite.wrong_type)
    return suite


def _read(path: Path | None, op: str) -> list[Case]:
    """The case that failed last time, if there is one and it can still be read."""
    try:
        case = Case.read(path) if path is not None and path.exists() else None
    except InputError:  # of another version
        return []
    return [] if case is None or case.op != op else [case]


def _call(item: pytest.Function, prop: Property) -> Any:
    """The function as one of a case alone: its fixtures and its self bound."""
    names = list(inspect.signature(prop.function).parameters)
    bound = [item.instance] if names[0] == "self" else []
    fixtures = {name: item.funcargs[name] for name in names[len(bound) + 1:]
                if name in item.funcargs}
    if not bound and not fixtures:
        return prop.function
    return lambda case: prop.function(*bound, case, **fixtures)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    prop = _property_of(pyfuncitem.function)
    if prop is None:
        return None
    kept = _kept(pyfuncitem)
    wrong = ""
    try:
        suite = _suite(pyfuncitem, prop, _call(pyfuncitem, prop), _read(kept, prop.op))
        result = suite.run(str(pyfuncitem.funcargs["qualm_claim"]))
    except InputError as error:
        wrong = f"{prop.name}: {error}"
    if wrong:
        pytest.fail(wrong, pytrace=False)
    if result.failed:
        text = result.text
        if kept is not None and result.smallest is not None:
            result.smallest.write(kept)
            text += f"\nkept for the next run: {kept}"
        pytest.fail(text, pytrace=False)
    if kept is not None:
        kept.unlink(missing_ok=True)
    if result.judgement != "passed":
        # The summary then names the line of the test, not this one.
        raise pytest.skip.Exception(result.text, _use_item_location=True)
    return True
