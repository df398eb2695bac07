# SPDX-License-Identifier: Apache-2.0
"""Finds the native module: installed beside this file, or in a build folder of the source tree."""
from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path


def _holds_module(folder: Path) -> bool:
    return any((folder / f"_native{suffix}").is_file() for suffix in EXTENSION_SUFFIXES)


def load() -> None:
    """Lets `qualm._native` be imported. Raises ImportError that says what to build."""
    package = Path(__file__).resolve().parent
    if _holds_module(package):
        return
    chosen = os.environ.get("QUALM_BUILD_DIR")
    builds = [Path(chosen)] if chosen else sorted(
        package.parent.parent.glob("build/*"),
        key=lambda build: (build.name != "dev", build.name))
    for build in builds:
        if _holds_module(build / "python" / "qualm"):
            sys.modules[__package__ or "qualm"].__path__.append(str(build / "python" / "qualm"))
            return
    version = ".".join(map(str, sys.version_info[:2]))
    raise ImportError(
        f"qualm: its native module is not built for Python {version}: looked in {package} and in "
        + (", ".join(map(str, builds)) or "no build folder")
        + "; 'scripts/build dev qualm_python' builds it, 'pip install ./python' installs the package")
