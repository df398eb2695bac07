# SPDX-License-Identifier: Apache-2.0
"""The plugin, in runs of pytest of its own."""
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import qualm
from test_new import COMMAND

HEAD = """
import numpy as np
import pytest
import qualm

def exact(c):
    return qualm.exact(c).y

def half_up(c):
    codes = np.floor(c.x.astype(np.float64) / np.float64(c.out_scale) + 0.5)
    codes = np.nan_to_num(codes, nan=0, posinf=1e9, neginf=-1e9) + c.out_zp
    return np.clip(codes, 0, 255).astype(np.uint8)

"""


class Run:
    def __init__(self, folder):
        self.folder = folder

    def command(self, *arguments):
        plugin = [] if _is_found() else ["-p", "qualm.pytest_plugin"]
        return [sys.executable, "-m", "pytest", "-q", "-rA", "-W", "ignore", *plugin, *arguments]

    def __call__(self, text, *arguments):
        """(outcome by test, everything that was printed, exit status)"""
        (self.folder / "test_it.py").write_text(HEAD + text)
        done = subprocess.run(self.command(*arguments), cwd=self.folder, env=_environment(),
                              capture_output=True, text=True, timeout=240)
        outcomes = dict(
            (name, outcome) for outcome, name in
            re.findall(r"^(PASSED|FAILED|ERROR|XFAIL|XPASS) test_it\.py(?:::([^\s]+))?", done.stdout, re.M))
        return outcomes, done.stdout + done.stderr, done.returncode

    def kept(self):
        return sorted((self.folder / ".pytest_cache/d/qualm").glob("*.case.json"))


def _environment():
    drop = ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST")
    kept = {key: value for key, value in os.environ.items() if key not in drop}
    # The runs have folders of their own, where a relative path leads elsewhere.
    package = str(Path(qualm.__file__).resolve().parents[1])
    kept["PYTHONPATH"] = os.pathsep.join([package, kept.get("PYTHONPATH", "")])
    return kept


def _is_found():
    found = entry_points()
    plugins = found.select(group="pytest11") if hasattr(found, "select") else found.get("pytest11", [])
    return any(plugin.name == "qualm" for plugin in plugins)


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def test_a_right_function_passes_every_claim_that_applies(run):
    outcomes, text, status = run("""
@qualm.property("quantize", contract="numpy@float32")
def test_quantize(c):
    codes = np.rint(c.x / c.out_scale) + c.out_zp
    return np.clip(np.nan_to_num(codes, nan=0), 0, 255).astype(np.uint8)
""", "--qualm-cases", "100")
    assert status == 0, text
    assert set(outcomes.values()) == {"PASSED"}
    assert "test_quantize[matches_model]" in outcomes and "test_quantize[clamp]" in outcomes
    claims = qualm.claims("quantize")
    skipped = sum(int(n) for n in re.findall(r"^SKIPPED \[(\d+)\] test_it.py:\d+: \w+: ", text, re.M))
    assert len(outcomes) + skipped == len(claims), "each claim is a test, and each skip has a reason"


def test_a_wrong_function_shows_its_smallest_case_and_its_cause(run):
    outcomes, text, status = run("""
@qualm.property("quantize")
def test_wrong(c):
    return half_up(c)
""", "--qualm-cases", "100")
    assert status == 1
    assert {name for name, outcome in outcomes.items() if outcome == "FAILED"} == {
        "test_wrong[matches_exact]", "test_wrong[negation]"}
    # In the words of `qualm check` on the same function behind a pipe.
    assert "FINDING: quantize.matches_exact fails on python:test_wrong [tie]" in text
    assert ("cause: the subject rounds ties up, as plain@up does, or computes as plain@away+zp_first does [tie]"
            in text)
    assert "0.5, exactly half way, goes to the even one = 0" in text
    assert '"x": ["0x1p-1"]' in text and '"M": 1' in text and '"N": 1' in text
    assert "Traceback" not in text


PIPE = """
import json, sys
sys.stdin.readline()
print(json.dumps({"qualm_pipe": 1, "name": "it", "contract": "exact",
                  "ops": {"linear": {"x": ["u8"], "w": ["s8"], "out": ["s32"]}}}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    c = request["case"]
    x, w = ([[code - c[zp] for code in c[name][row * c["K"]:(row + 1) * c["K"] - 1]] for row in range(c[rows])]
            for name, zp, rows in (("x", "x_zp", "M"), ("w", "w_zp", "N")))
    print(json.dumps({"id": request["id"], "y": [sum(map(int.__mul__, a, b)) for a in x for b in w]}), flush=True)
"""


def test_a_mistake_has_the_row_that_it_has_behind_a_pipe_and_in_a_plugin(run):
    if not COMMAND.is_file() or not shutil.which("cc"):
        pytest.skip(f"{COMMAND} is not built, or there is no cc")
    outcomes, text, status = run("""
@qualm.property("linear", x="u8", w="s8", out="s32")
def test_it(c):
    return (c.x[:, :-1].astype(np.int32) - c.x_zp) @ (c.w[:, :-1].astype(np.int32) - c.w_zp).T
""", "--qualm-cases", "100")
    failed = {re.search(r"\[(\w+)\]", name)[1] for name, outcome in outcomes.items() if outcome == "FAILED"}
    assert status == 1 and "matches_exact" in failed
    small = next(json.loads(path.read_text()) for path in run.kept() if "matches_exact" in path.name)
    assert (small["x"], small["w"], small["expected"], small["observed"]["y"]) == ([1], [1], [1], [0])
    own = ("by", "evidence")  # which counts the outputs of the case that came first

    sources = Path(__file__).parents[2]
    plugin = (sources / "examples/plugin/example_plugin.c").read_text()
    for whole, part in ((r"k < depth", "k + 1 < depth"), (r"features = QUALM_CAN_BIAS_I32[^,]*", "features = 0"),
                        (r"x_dtypes = .*", "x_dtypes = QUALM_TYPE_BIT(QUALM_U8),")):
        plugin, times = re.subn(whole, part, plugin, count=1)
        assert times == 1, whole
    (run.folder / "it.c").write_text(plugin)
    subprocess.run(["cc", "-shared", "-fPIC", "-I", sources / "adapters", "-o", "it.so", "it.c"], cwd=run.folder, check=True)
    (run.folder / "it.py").write_text(PIPE)
    for subject in (f"pipe:{sys.executable} it.py", "plugin:./it.so"):
        ran = subprocess.run([COMMAND, "check", "--op", "linear", "-s", subject, "-n", "100", "--out", "out", "--json", "out.json"],
                             cwd=run.folder, capture_output=True, text=True, check=False)
        assert ran.returncode == status, ran.stderr
        told = json.loads((run.folder / "out.json").read_text())
        assert {name.partition(".")[2] for name, counts in told["properties"].items() if "failed" in counts} == failed
        [row] = told["faults"]
        assert (row["kind"], row["sentence"]) == (small["observed"]["kind"], small["note"])
        path = next(f["case_file"] for f in told["findings"] if f["fingerprint"] == row["findings"][0])
        case = json.loads((run.folder / path).read_text())
        for name in own:
            case["observed"][name] = small["observed"][name]
        assert case == small


def test_a_function_that_computes_as_a_convention_is_told_the_contract(run):
    function = """
@qualm.property("quantize"CONTRACT)
def test_numpy(c):
    codes = np.rint(c.x / c.out_scale) + c.out_zp
    return np.clip(np.nan_to_num(codes, nan=0), 0, 255).astype(np.uint8)
"""
    _, text, status = run(function.replace("CONTRACT", ""), "-k", "matches_exact", "--qualm-cases", "300")
    assert status == 1
    told = re.search(r"contract: not exact, but the arithmetic of .*numpy@float32.* \(equal in all \d+.* answers"
                     r".*\n.* judge it by that: (contract=\"model:[^\"]+\")", text)
    assert told, text
    _, text, status = run(function.replace("CONTRACT", ", " + told[1]), "-k", "matches_model", "--qualm-cases", "300")
    assert status == 0, text


def test_a_failing_case_is_kept_and_judged_first(run):
    wrong = """
calls = []

@qualm.property("linear")
def test_wrong(c):
    calls.append(c.shape)
    y = exact(c).copy()
    if c.K >= 3 and c.x.size and c.x.ravel()[2] > 200:
        y ^= 1
    return y

def test_calls():
    print("CALLS", calls[:1])
"""
    only = ("-k", "matches_exact or calls")
    _, text, status = run(wrong, *only, "--qualm-cases", "200")
    assert status == 1
    [path] = run.kept()
    small = qualm.Case.read(path)
    assert small.K == 3 and small.M == 1 and small.property == "linear.matches_exact"
    assert str(path) in text
    # The first drawn case is larger; --qualm-cases 1 alone would find nothing.
    _, text, status = run(wrong, *only, "--qualm-cases", "1")
    assert status == 1 and "CALLS [(1, 1)]" in text
    # What is mended is judged again, and then forgotten.
    _, text, status = run(wrong.replace("y ^= 1", "pass"), *only)
    assert status == 0 and "CALLS [(1, 1)]" in text
    assert run.kept() == []
    _, text, status = run(wrong.replace("y ^= 1", "pass"), *only)
    assert status == 0 and "CALLS [(1, 1)]" not in text


def test_a_kept_case_of_another_format_is_no_obstacle(run):
    good = '\n@qualm.property("rescale")\ndef test_good(c):\n    return exact(c)\n'
    run(good.replace("exact(c)", "exact(c) ^ np.uint8(1)"), "-k", "matches_exact")
    [path] = run.kept()
    path.write_text('{"qualm_case": 9}')
    _, text, status = run(good, "-k", "matches_exact")
    assert status == 0, text
    run(good, "-p", "no:cacheprovider", "-k", "matches_exact")


@pytest.mark.parametrize("decorator, error", [
    ('"conv2d", contract="numpy@float32"', "contract: model:numpy@float32 has no conv2d"),
    ('"add", contract="numpy@float33"', "nearest is 'numpy@float32'"),
    ('"ad"', "op: 'ad' is no operation"),
    ('"add", x="f16"', "x: is 'f16', expected u8 or s8"),
])
def test_a_wrong_argument_is_an_error_of_collection(run, decorator, error):
    outcomes, text, status = run(f"\n@qualm.property({decorator})\ndef test_it(c):\n    return exact(c)\n")
    assert status == 2 and "PASSED" not in outcomes.values()
    assert error in text


@pytest.mark.parametrize("contract, body, text_of", [
    # The wrong contract: a function that keeps another one.
    ("plain@floor", "return exact(c)", r"quantize.matches_model fails on python:test_it "),
    ("numpy@float32", "raise qualm.Skip('no tiles')", "only 0 of 50 answers were judged"),
    ("", "raise qualm.Skip('no tiles')", "only 0 of 50 answers were judged"),
])
def test_nothing_judged_is_not_green(run, contract, body, text_of):
    outcomes, text, status = run(
        f'\n@qualm.property("quantize", contract="{contract}", cases=50)\ndef test_it(c):\n    {body}\n')
    assert status == 1
    assert re.search(text_of, text), text


def test_marks_fixtures_classes_and_other_tests(run):
    outcomes, text, status = run("""
@pytest.fixture
def engine():
    return exact

@qualm.property("add", cases=20)
def test_fixture(c, engine):
    return engine(c)

class TestKernels:
    answer = staticmethod(exact)

    @qualm.property("mul", cases=20)
    def test_method(self, c):
        return self.answer(c)

@pytest.mark.xfail(reason="known")
@qualm.property("rescale", cases=20)
def test_known(c):
    return exact(c) ^ np.uint8(1)

@pytest.mark.parametrize("engine", [exact, half_up])
@qualm.property("quantize", cases=100)
def test_both(c, engine):
    return engine(c)

class TestSeen:  # what the function does not take, and yet sees
    @pytest.fixture(autouse=True, params=[exact, half_up])
    def engine(self, request):
        global engine_in_use
        engine_in_use = request.param

    @staticmethod
    @qualm.property("quantize", cases=100)
    def test_seen(c):
        return engine_in_use(c)

def test_other():
    pass
""", "-k", "matches_exact or other")
    assert outcomes == {
        "test_fixture[matches_exact]": "PASSED",
        "TestKernels::test_method[matches_exact]": "PASSED",
        "test_known[matches_exact]": "XFAIL",
        "test_both[matches_exact-exact]": "PASSED",
        "test_both[matches_exact-half_up]": "FAILED",
        "TestSeen::test_seen[exact-matches_exact]": "PASSED",
        "TestSeen::test_seen[half_up-matches_exact]": "FAILED",
        "test_other": "PASSED",
    }, text
    assert status == 1


def test_the_examples_of_other_arrays_pass_or_say_what_is_missing(run):
    examples = Path(__file__).resolve().parents[2] / "examples" / "python"
    ran = subprocess.run(run.command("-k", "matches", examples), cwd=run.folder, timeout=240, check=False,
                         env={**_environment(), "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    needs = {"test_torch_quantize": ["torch"], "test_triton_linear": ["torch", "triton"], "test_jax_quantize": ["jax"]}
    for example, libraries in needs.items():
        missing = [name for name in libraries if importlib.util.find_spec(name) is None]
        said = f"could not import '{missing[0]}'" if missing else rf"PASSED \S*test_arrays.py::{example}\["
        assert re.search(said, ran.stdout), ran.stdout


def test_options(run):
    counts = """
seen = set()

@qualm.property("add")
def test_add(c):
    seen.add(c.json())
    return exact(c)

def test_seen():
    print("SEEN", len(seen), sorted(seen)[:1])
"""
    def seen(*options):
        _, text, status = run(counts, "-k", "matches_exact or seen", *options)
        assert status == 0, text
        return re.search(r"SEEN (\d+) (.*)", text).groups()

    one, again, other = seen("--qualm-cases=7"), seen("--qualm-cases=7"), seen(
        "--qualm-cases=7", "--qualm-seed=2")
    assert 5 <= int(one[0]) <= 7
    assert one == again and one != other
    _, text, status = run(counts, "--qualm-cases=0")
    assert status == 4 and "--qualm-cases: is 0, expected 1 or more" in text


WRONG_AND_RIGHT = """
@qualm.property("quantize", cases=60)
def test_wrong(c):
    return half_up(c)

@qualm.property("add", cases=60)
def test_right(c):
    return exact(c)
"""


@pytest.mark.skipif(importlib.util.find_spec("xdist") is None, reason="pytest-xdist is not installed")
def test_with_xdist(run):
    alone, *_ = run(WRONG_AND_RIGHT, "-p", "no:xdist")
    kept = [path.name for path in run.kept()]
    for path in run.kept():
        path.unlink()
    together, text, status = run(WRONG_AND_RIGHT, "-n", "2")
    assert together == alone and status == 1, text
    assert alone["test_wrong[matches_exact]"] == "FAILED"
    assert alone["test_right[matches_exact]"] == "PASSED"
    assert [path.name for path in run.kept()] == kept


@pytest.mark.skipif(importlib.util.find_spec("hypothesis") is None, reason="Hypothesis is not installed")
def test_beside_hypothesis(run):
    outcomes, text, status = run(WRONG_AND_RIGHT + """
from hypothesis import given, strategies

@given(strategies.integers(0, 255))
def test_hypothesis(code):
    assert np.uint8(code) == code
""", "-k", "matches_exact or hypothesis")
    assert outcomes == {"test_wrong[matches_exact]": "FAILED", "test_right[matches_exact]": "PASSED",
                        "test_hypothesis": "PASSED"}, text


def test_ctrl_c_ends_the_run(run):
    (run.folder / "test_it.py").write_text(HEAD + """
@qualm.property("quantize", cases=1000000)
def test_long(c):
    open("begun", "w").close()
    return exact(c)
""")
    child = subprocess.Popen(run.command("-k", "matches_exact", "--qualm-cases=20000"), cwd=run.folder,
                             env=_environment(), stdout=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 120
        while not (run.folder / "begun").exists() and time.monotonic() < until:
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        text, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == 2 and "KeyboardInterrupt" in text, text


def test_a_wrong_type_fails_once(run):
    text = """
@qualm.property("quantize")
def test_it(c):
    return exact(c).astype(np.int64)

@pytest.mark.parametrize("kind", [np.int32, np.uint8])
@qualm.property("quantize")
def test_kinds(c, kind):
    return exact(c).astype(kind)
"""
    for _ in range(2):  # the second run begins with the case that was kept
        outcomes, printed, status = run(text)
        failed = [name for name, outcome in outcomes.items() if outcome == "FAILED"]
        assert status == 1 and len(failed) == 2, printed
        assert any(name.startswith("test_it[") for name in failed)
        assert any("int32" in name or "kind0" in name for name in failed)
        assert "test_it returned an array of int64, expected an array of uint8" in printed
        assert sum(outcome == "PASSED" for outcome in outcomes.values()) > 3
    outcomes, *_ = run(text.replace("astype(np.int64)", "astype(np.uint8)"), "-k", "not kinds")
    assert "FAILED" not in outcomes.values()


def test_a_report_names_a_wrong_type_once():
    report = qualm.check("quantize", lambda c: None, cases=20)
    assert sum(claim.failed for claim in report.claims) == 1
    assert "returned None, expected an array of uint8" in str(report)


def test_functions_that_are_kept_until_the_process_ends_do_not_crash_it():
    # Three new instances of a wrong function are asked, and the last is kept; the second function takes its
    # name, so that nobody else has the first.
    script = """
import qualm
for _ in range(2):
    qualm.check("rescale", lambda c: qualm.exact(c).y ^ 1, cases=60)
print("to the end")
"""
    ran = subprocess.run([sys.executable, "-c", script], env=_environment(), capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "to the end\n"), ran.stderr
