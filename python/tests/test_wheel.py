# SPDX-License-Identifier: Apache-2.0
"""The wheel of scripts/wheel, used outside of the source tree."""
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

TEST = """import numpy as np
import qualm


@qualm.property("rescale", x="u8", out="u8")
def test_rescale(c):
    codes = np.floor((c.x.astype(float) - c.x_zp) * (float(c.x_scale) / float(c.out_scale)) + 0.5) + c.out_zp
    return np.clip(codes, 0, 255).astype(np.uint8)


def test_place():
    assert qualm.__file__.startswith(%r)
    assert qualm._models._module_beside("onnxruntime_models").__file__.startswith(%r)
"""


def test_the_wheel_works_elsewhere(tmp_path):
    build = os.environ.get("QUALM_BUILD_DIR") or ROOT / "build" / "dev"
    made = subprocess.run([sys.executable, ROOT / "scripts" / "wheel", "--build", build, "--out", tmp_path],
                          capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    wheel, site = Path(made.stdout.strip()), tmp_path / "site"
    if importlib.util.find_spec("pip"):  # which looks at the format and at every hash
        pip = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
                              "--target", site, wheel], capture_output=True, text=True, check=False)
        assert pip.returncode == 0, pip.stderr
    else:
        zipfile.ZipFile(wheel).extractall(site)
    (tmp_path / "test_it.py").write_text(TEST % (str(site), str(site)), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(site)}
    environment.pop("QUALM_BUILD_DIR", None)
    ran = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py",
                          "--qualm-cases", "200"], cwd=tmp_path, env=environment, capture_output=True, text=True,
                         check=False)
    assert ran.returncode == 1 and "FAILED test_it.py::test_rescale[matches_exact]" in ran.stdout, ran.stdout + ran.stderr
    assert "test_place" not in ran.stdout, ran.stdout
    assert "the subject rounds ties up" in ran.stdout


def test_pip_compiles_as_preset_dev(tmp_path):
    """Or ccache would have nothing of it, and an installation took twenty minutes of one core again."""
    if not shutil.which("clang++-19"):
        pytest.skip("no clang++-19, so pip takes another compiler")
    presets = {p["name"]: p for p in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}

    def variables(name):
        base = variables(presets[name]["inherits"]) if "inherits" in presets[name] else {}
        return {**base, **presets[name].get("cacheVariables", {})}

    project = (ROOT / "python" / "pyproject.toml").read_text()
    assert 'cmake.args = ["-C", "as_dev.cmake"]' in project
    shown = subprocess.run(["cmake", "-N", "-L", "-C", ROOT / "python" / "as_dev.cmake", "-B", tmp_path],
                           capture_output=True, text=True, check=True).stdout
    pip = dict(re.findall(r"^(\w+):\w+=(.*)$", shown, re.M))
    pip["CMAKE_BUILD_TYPE"] = re.search(r'^cmake.build-type = "(\w+)"', project, re.M)[1]
    assert pip | variables("dev") == pip
