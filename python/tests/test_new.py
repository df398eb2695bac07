# SPDX-License-Identifier: Apache-2.0
"""What `qualm new python` writes, under pytest."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

import qualm

COMMAND = Path(os.environ.get("QUALM_BUILD_DIR", Path(__file__).parents[2] / "build" / "dev"), "bin", "qualm")
OPS = [op for op in qualm.ops() if op != "choose_qparams"]  # which no kernel computes


@pytest.fixture
def new(tmp_path, monkeypatch):
    if not COMMAND.is_file():
        pytest.skip(f"{COMMAND} is not built")
    monkeypatch.chdir(tmp_path)

    def made(name, *arguments):
        told = subprocess.run([COMMAND, "new", "python", name, *arguments], check=True, capture_output=True,
                              text=True).stdout
        assert told.startswith(f"{name}/test_{name}.py  your function goes into test_{name}()\n")
        return Path(name, f"test_{name}.py")
    return made


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
                          capture_output=True, text=True, check=False)


def test_every_operation_asks_its_function(new):
    for op in OPS:
        assert "@NAME@" not in new(op, "--op", op).read_text(encoding="utf-8")
    # Nothing before the line that refuses is wrong.
    ran = run("-k", "matches_exact", "--qualm-cases", "9")
    assert f"{len(OPS)} failed" in ran.stdout, ran.stdout
    for op in OPS:
        assert f"NotImplementedError: {op} has no {op} yet" in ran.stdout


def test_a_function_that_is_filled_in_is_judged(new):
    file = new("mine")
    before = file.read_text(encoding="utf-8")
    before = before[:before.index("    raise ")]
    total = "(x.astype(np.int32) - x_zp) @ (w.astype(np.int32) - w_zp).T"
    file.write_text(f"{before}    return {total}\n", encoding="utf-8")
    ran = run(str(file), "--qualm-cases", "50")
    assert ran.returncode == 0, ran.stdout
    file.write_text(f"{before}    return {total} + (c.K > 7)\n", encoding="utf-8")
    ran = run(str(file), "--qualm-cases", "50", "-k", "matches_exact")
    assert "test_mine[matches_exact]" in ran.stdout and ran.returncode == 1


def test_types_of_weights_and_real_activations(new):
    text = new("few", "--dtype", "f32u4f32").read_text(encoding="utf-8")
    assert 'x="f32", w="u4", out="f32"' in text and "x_scale" not in text
