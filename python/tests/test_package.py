# SPDX-License-Identifier: Apache-2.0
"""Cases, exact results, explanations, and what a function may answer."""
import importlib.metadata
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

import qualm
from qualm import _native

ROOT = Path(__file__).resolve().parents[2]


def exact(case):
    return qualm.exact(case).y


def judged(function, op="quantize", claim="matches_exact", **options):
    return qualm.check(op, function, claim=claim, **{"cases": 60, **options}).claims[0]


def half_up(case):
    codes = np.floor(case.x.astype(np.float64) / np.float64(case.out_scale) + 0.5)
    codes = np.nan_to_num(codes, nan=0, posinf=1e9, neginf=-1e9) + case.out_zp
    return np.clip(codes, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("op", qualm.ops())
def test_every_operation_reaches_a_function(op):
    types = sorted({qualm.draw(op, seed).out_type for seed in range(20)} & {"u8", "s8", "s32", "f32"})
    result = judged(exact, op, out=types, per_channel=True, relu=True, clamp=True, empty=True)
    assert result.judgement == "passed", result
    assert result.judged >= 30


def test_a_cast_has_scales_and_no_zero_points():
    case = qualm.Case("cast", x=np.array([[3, -100]], np.float32), out_dtype="f8e4m3fn", out_scale=0.25)
    assert (case.x_scale, case.out_scale) == (1, 0.25)
    assert exact(case).reshape(-1).tolist() == [0x54, 0xFC]  # 12, and -384 of -400, a tie
    with pytest.raises(AttributeError, match="cast has no out_zp"):
        case.out_zp


def spread(case, scale):
    """The scales of a cast, quantize or dequantize, one for each element."""
    if case.x_block:
        return np.repeat(scale, case.x_block, axis=1)[:, :case.N]
    return np.broadcast_to(scale, case.shape)


def test_a_function_that_takes_scales_of_casts_is_asked_them():
    shapes, others = set(), set()

    def cast(case):
        shapes.add((case.gran, bool(case.x_block), np.ndim(case.x_scale), np.ndim(case.out_scale)))
        others.update(np.ravel(case.x_scale), np.ravel(case.out_scale))
        if (case.rounding, case.overflow) != ("nearest_even", "infinity"):
            return exact(case)
        # Of 24 bits each: the product is exact in float64, and a quotient beside no tie of float32.
        with np.errstate(all="ignore"):
            wide = case.x.astype(np.float64) * spread(case, case.x_scale) / spread(case, case.out_scale)
            return wide.astype(np.float32)

    scalars, rows, blocks = ("tensor", False, 0, 0), ("channel", False, 1, 1), ("tensor", True, 2, 2)
    for features, expected in [({}, {scalars}), ({"cast_scales": True}, {scalars}),
                               ({"cast_scales": True, "per_channel": True}, {scalars, rows}),
                               ({"cast_scales": True, "per_channel": True, "per_block": True}, {scalars, rows, blocks})]:
        shapes.clear(), others.clear()
        result = judged(cast, "cast", x="f32", out="f32", cases=300, **features)
        assert result.judgement == "passed", result
        assert shapes == expected and (len(others) > 1) == bool(features)


def test_scales_of_blocks_of_a_row():
    shapes = set()

    def quantize(case):
        shapes.add(np.ndim(case.out_scale))
        codes = np.rint(case.x.astype(np.float64) / spread(case, case.out_scale))
        codes = np.nan_to_num(codes, nan=0, posinf=1e12, neginf=-1e12) + spread(case, case.out_zp)
        return np.clip(codes, 0, 255).astype(np.uint8)

    result = judged(quantize, per_block=True)
    assert result.judgement == "passed", result
    assert shapes == {0, 2}


@pytest.mark.parametrize("op", qualm.ops())
def test_a_case_is_the_same_from_its_text_and_from_its_arrays(op):
    for seed in range(30):
        case = qualm.draw(op, seed)
        assert qualm.Case.parse(case.json()) == case
    assert case != qualm.draw(op, 99)


@pytest.mark.parametrize("op", qualm.ops())
def test_a_case_has_the_keys_of_its_file_as_attributes(op):
    images = op in ("conv2d", "depthwise", "max_pool", "avg_pool", "global_avg_pool")
    for seed in range(30):
        case = qualm.draw(op, seed)
        keys = json.loads(case.json())
        for key in keys.keys() - {"qualm_case"}:
            value = getattr(case, key)
            if key in ("M", "K", "H", "W", "R", "S", "IC", "OC", "C", "NA", "NB", "batches", "gran"):
                assert value == keys[key], key
            elif key == "N":
                assert value == (case.shape[-1] if images else keys[key])
            elif key.endswith("_dtype"):
                assert value == {"x_dtype": lambda: case.x.dtype, "w_dtype": lambda: case.w.dtype,
                                 "out_dtype": lambda: qualm.exact(case).y.dtype}[key]()
    with pytest.raises(AttributeError, match=f"{op} has no "):
        case.NA if images else case.R  # pylint: disable=pointless-statement


def test_a_case_of_arrays_in_any_order(tmp_path):
    x = np.array([[0.5, 1, 2], [3, -4, 5]], np.float32)
    fields = {"out_scale": 0.5, "out_zp": 3}
    case = qualm.Case("quantize", x=x, **fields)
    assert case == qualm.Case("quantize", x=np.asfortranarray(x), **fields)
    assert case == qualm.Case("quantize", x=np.repeat(x, 2, axis=1)[:, ::2], **fields)
    np.testing.assert_array_equal(case.x, x)
    # 0.5 / 0.5 + 3 and so on; -4 / 0.5 + 3 is -5, below the lowest code.
    np.testing.assert_array_equal(exact(case), np.array([[4, 5, 7], [9, 0, 13]], np.uint8))
    case.write(tmp_path / "a.case.json")
    assert qualm.Case.read(tmp_path / "a.case.json") == case
    with pytest.raises(ValueError, match="read-only"):
        case.x[0, 0] = 1


def test_a_case_has_the_sizes_of_its_arrays():
    case = qualm.Case("conv2d", x=np.zeros((2, 5, 6, 4), np.uint8), w=np.ones((6, 3, 2, 2), np.int8),
                      x_scale=0.5, x_zp=0, w_scale=np.full(6, 0.25, np.float32), w_zp=np.zeros(6, int),
                      out_scale=2.0, out_zp=7, stride=(2, 1), pad=(1, 1, 0, 0))
    assert (case.groups, case.kernel, case.stride, case.pad) == (2, (3, 2), (2, 1), (1, 1, 0, 0))
    assert case.shape == (2, 3, 5, 6)
    np.testing.assert_array_equal(case.multiplier, np.full(6, 0.5 * 0.25 / 2))
    assert np.all(exact(case) == 7)


@pytest.mark.parametrize("fields, error", [
    ({}, "Case: N: is missing|Case: M: is missing"),
    ({"x": np.zeros((2, 2))}, "x: is an array of float64, expected"),
    ({"x": np.zeros(4, np.float32)}, "x: has 1 dimensions, expected 2"),
    ({"x": np.zeros((2, 2), np.float32), "out_scale": -1, "out_zp": 0}, "Case: out_scale: "),
    ({"x": np.zeros((2, 2), np.float32), "out_scal": 1, "out_zp": 0}, "nearest is \"out_scale\""),
])
def test_a_wrong_field_is_named(fields, error):
    with pytest.raises(qualm.InputError, match=error):
        qualm.Case("quantize", **fields)


def test_an_attribute_of_another_operation_is_no_attribute():
    with pytest.raises(AttributeError, match="quantize has no w"):
        qualm.draw("quantize").w
    assert not hasattr(qualm.draw("dequantize"), "out_scale")


def test_the_stub_has_what_the_module_has():
    stub = (Path(qualm.__file__).parent / "_native.pyi").read_text()
    of_case = stub[stub.index("class Case:"):stub.index("class Suite:")]
    assert set(re.findall(r"def (\w+)", of_case)) - {"__init__"} == {
        name for name in dir(qualm.Case) if not name.startswith("_") or name == "_repr_html_"}
    told = set(re.findall(r"^(?:def|class) (\w+)", stub, re.M))
    assert told == {name for name in dir(_native) if not name.startswith("_")}
    for name in ("Suite", "Model", "ModelRun"):
        body = re.search(rf"^class {name}:\n((?: .*\n|\n)*)", stub, re.M)
        assert body is not None
        assert set(re.findall(r"def (\w+)", body.group(1))) - {"__init__"} == {
            member for member in dir(getattr(_native, name)) if not member.startswith("_")}


def test_the_version_is_that_of_the_project():
    if not (ROOT / "CMakeLists.txt").exists():
        pytest.skip("installed: the project is elsewhere")
    version = re.search(r"project\(qualm VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert importlib.metadata.version("qualm") == version.group(1)


def test_codes_of_sixteen_bits():
    case = qualm.Case("quantize", x=np.array([[0.5, 1e9, -1e9]], np.float32), out_dtype="u16",
                      out_scale=0.25, out_zp=40000)
    y = np.asarray(qualm.exact(case).y)
    assert (y.dtype, y.tolist()) == (np.uint16, [[40002, 65535, 0]])
    back = qualm.Case("dequantize", x=np.array([[-32768, 5]], np.int16), x_scale=0.5, x_zp=0)
    assert np.asarray(qualm.exact(back).y).tolist() == [[-16384.0, 2.5]]


def sums_of_16_bits(case, accumulator):
    off = np.asarray(case.x, np.int64) - case.x_zp, np.asarray(case.w, np.int64) - case.w_zp
    sums = (off[0] @ off[1].T).astype(accumulator).astype(np.float64)
    scale = np.float64(1)
    for name, power in (("x_scale", 1), ("w_scale", 1), ("out_scale", -1)):
        scale *= np.float64(np.ravel(getattr(case, name))[0]) ** power
    return np.clip(np.rint(sums * scale) + case.out_zp, -32768, 32767).astype(np.int16)


def test_products_of_sixteen_bits():
    limits = dict(op="linear", x="s16", w="s8", out="s16")
    case = qualm.Case("linear", x=np.full((1, 520), 32767, np.int16), w=np.full((1, 520), 127, np.int8),
                      x_scale=1, x_zp=0, w_scale=1, w_zp=0, out_dtype="s16", out_scale=2.0**18, out_zp=0)
    assert np.asarray(qualm.exact(case).y).tolist() == [[8255]]  # 2163932680 / 2^18
    found = qualm.explain(case, sums_of_16_bits(case, np.int32), by="a kernel")
    assert "wrap in int32" in found.cause
    assert judged(lambda c: sums_of_16_bits(c, np.int32), **limits).judgement == "failed"


def in_blocks(case):
    """Sums of whole numbers and scales that are powers of two: NumPy computes them exactly."""
    blocks = case.w_scale.shape[1] if case.w_block else 1
    size = case.w_block or max(case.K, 1)
    scale, zero = (np.broadcast_to(np.reshape(v, (-1, blocks)), (case.N, blocks)).astype(np.float64)
                   for v in (case.w_scale, case.w_zp))
    of = np.arange(case.K) // size
    w = (case.w.astype(np.float64) - zero[:, of]) * scale[:, of]
    return (((case.x.astype(np.float64) - case.x_zp) @ w.T) * np.float64(case.x_scale)).astype(
        np.float32)


def test_weights_in_blocks():
    case = qualm.Case("linear", x=np.array([[2, 5, 4]], np.uint8), w=np.array([[3, 3, -2]], np.int8),
                      x_scale=0.25, x_zp=1, w_scale=[[0.5, 8.0]], w_zp=[[0, -4]], w_block=2,
                      out_dtype="f32")
    assert case.w_scale.shape == (1, 2) and case.w_zp.tolist() == [[0, -4]]
    assert np.asarray(qualm.exact(case).y).tolist() == [[13.875]]
    assert in_blocks(case).tolist() == [[13.875]]
    shapes = set()

    def asked(given):
        shapes.add((given.w_block, np.shape(given.w_scale)))
        return exact(given)

    limits = {"x": "u8", "w": ["s8", "u4"], "out": "f32", "per_channel": True}
    assert judged(asked, "linear", **limits).judgement == "passed"
    assert {block for block, _ in shapes} == {0}
    assert judged(asked, "linear", per_block=True, **limits).judgement == "passed"
    assert any(block and len(shape) == 2 for block, shape in shapes)


def q4_0(case, offset=8):
    w, x = (rows.reshape(len(rows), -1, size) for rows, size in ((case.w_packed, 18), (case.x_packed, 34)))
    w_scale, x_scale = (np.ascontiguousarray(a[..., :2]).view(np.float16)[..., 0].astype(np.float32) for a in (w, x))
    codes = np.concatenate([w[..., 2:] & 15, w[..., 2:] >> 4], axis=-1).astype(np.int32) - offset
    sums = np.einsum("mbk,nbk->mnb", x[..., 2:].astype(np.int8).astype(np.int32), codes)
    return (sums.astype(np.float32) * (x_scale[:, None] * w_scale)).sum(axis=-1, dtype=np.float32)


def test_bytes_of_blocks():
    shapes = set()

    def told(case):
        shapes.add((case.w_format, case.w_packed.dtype, case.w_packed.shape[1] * 32 == case.k_packed * 18))
        return q4_0(case)

    limits = {"op": "linear", "contract": "sum", "w_formats": "q4_0", "claim": "matches_model"}
    result = judged(told, **limits)
    assert result.judgement == "passed" and result.judged >= 30, result
    assert shapes == {("q4_0", np.dtype(np.uint8), True)}
    assert judged(lambda case: q4_0(case, 7), **limits).failed

    def spoils(case):
        y = q4_0(case)
        case.w_packed[0, 0] ^= 1
        return y
    assert "modified w_packed" in judged(spoils, **limits).text
    seen = set()

    def exact_sum(case):
        seen.add(case.w_format)
        return exact(case)
    limits["w_formats"] = ["q8_0", "q4_k"]
    assert judged(exact_sum, **{**limits, "contract": "sum+offsets"}).judgement == "passed"
    assert seen == {"q8_0", "q4_k"}
    with pytest.raises(AttributeError, match="functions that declare w_formats"):
        qualm.draw("linear").w_packed  # noqa: B018


def test_real_activations():
    case = qualm.Case("linear", x=np.array([[1.5, 2]], np.float32), w=np.array([[3, 4]], np.int8),
                      w_scale=0.5, w_zp=1, out_dtype="f32")
    assert np.asarray(qualm.exact(case).y).tolist() == [[4.5]]
    for name in ("x_scale", "x_zp", "multiplier"):
        with pytest.raises(AttributeError):
            getattr(case, name)
    types, blocks = set(), set()

    def weight_only(c, least=0):
        types.add(c.x.dtype.name)
        blocks.add(bool(c.w_block))
        of = np.arange(c.K) // (c.w_block or c.K)
        scale, zero = (np.reshape(v, (-1, of[-1] + 1))[:, of] for v in (c.w_scale, c.w_zp))
        with np.errstate(over="ignore", invalid="ignore"):
            return c.x[:, least:] @ ((c.w - zero.astype(np.float32)) * scale)[:, least:].T

    limits = {"x": "f32", "w": ["s8", "u4"], "out": "f32", "per_channel": True, "per_block": True,
              "contract": "sum", "claim": "matches_model"}
    assert judged(weight_only, "linear", **limits).judgement == "passed"
    assert types == {"float32"} and blocks == {False, True}
    # Without the first product.
    assert judged(lambda c: weight_only(c, 1), "linear", **limits).judgement == "failed"


def test_explanations():
    # The first page's sum: 255*127 twice leaves int16.
    case = qualm.Case("linear", x=np.array([[255, 255]], np.uint8), w=np.array([[127, 127]], np.int8),
                      x_scale=1, x_zp=0, w_scale=1, w_zp=0, out_scale=256, out_zp=0)
    answer = qualm.explain(case, np.array([[128]], np.uint8), by="a kernel")
    assert (answer.exact, answer.kind) == (False, "pair-saturation")
    assert "fbgemm@avx2" in answer.conventions
    assert "saturating int16" in answer.cause and "a kernel" in str(answer)
    right = qualm.explain(case, exact(case))
    assert (right.exact, right.kind, right.cause) == (True, "", "")
    asked = qualm.explain(qualm.Case("quantize", x=np.array([[0.5]], np.float32), out_scale=1, out_zp=0),
                          half_up)
    assert asked.kind == "tie" and "rounds ties up" in asked.cause
    html = qualm.explain(case, exact(case), by="<b>")._repr_html_()
    assert "&lt;b&gt;" in html and "<b>" not in html
    assert "<td" in qualm.check("quantize", exact, cases=10)._repr_html_()
    with pytest.raises(qualm.InputError, match="y: is an array of int64, expected an array of uint8"):
        qualm.explain(case, np.array([[128]]))
    with pytest.raises(qualm.InputError, match="index: is 1, expected less than 1"):
        qualm.exact(case).derive(1)
    assert "255*127 + 255*127" in qualm.exact(case).derive(0)


def test_identify():
    found = qualm.identify(half_up, "quantize", cases=200)
    assert "plain@up" in found.bit_equal and "exact" not in found.bit_equal
    state = {row[0]: row for row in found.rows}["exact"]
    assert state[1] == "ruled out" and state[4].observed is not None
    assert "plain@up" in str(found) and "plain@up" in found._repr_html_()
    again = qualm.identify(state[4])
    assert "plain@up" in again[0].bit_equal


def test_certify():
    # 255*127 + 255*1 = 32640 fits int16, 255*127 + 255*2 = 32895 does not.
    w = np.array([[127, 1], [127, 2]], np.int8)
    [pairs] = qualm.certify(w, schemes=["pairs"])
    assert (pairs.safe, pairs.channels, pairs.unsafe) == (False, 2, [(1, 1, 32895)])
    assert pairs.accumulators == (0, 32895)
    assert "UNSAFE in 1 of 2 channels" in str(pairs) and "UNSAFE" in pairs._repr_html_()
    np.testing.assert_array_equal(pairs.witness.w, [[127, 2]])
    assert int(pairs.witness.x.astype(int)[0] @ [127, 2]) > 32767
    [safe] = qualm.certify(w, schemes=["pairs"], x_range=(0, 254))
    assert safe.safe and safe.witness is None and "safe, proven for 2 channels" in str(safe)
    assert any("fbgemm@avx2" in one.conventions for one in qualm.certify(w))
    assert qualm.certify(np.full((2, 3, 3, 4), 127, np.int8), schemes=["pairs"])[0].unsafe
    for wrong, error in [({"schemes": ["pears"]}, "pears"), ({"x": "s32"}, "x: is 's32'"),
                         ({"x_range": (0, 256)}, "x_range: is (0, 256)")]:
        with pytest.raises(qualm.InputError, match=re.escape(error)):
            qualm.certify(w, **wrong)
    with pytest.raises(qualm.InputError, match="w: is an array of float64"):
        qualm.certify(np.zeros((2, 2)))


def test_tree():
    def chain(a, b):
        total = np.float32(0)
        for x, y in zip(a, b):
            total += x * y
        return total

    found = qualm.tree(chain, 6, cases=50)
    assert (found.text, found.order) == ("(((((0+1)+2)+3)+4)+5)", "a chain")
    assert found.parts == (((((0, 1), 2), 3), 4), 5)
    assert (found.steps, found.compared) == ("products rounded, then added", 50)
    assert "0 + 1 + ... + 5" in str(found) and "a chain" in found._repr_html_()
    lanes = qualm.tree(lambda a, b: chain(a[::2], b[::2]) + chain(a[1::2], b[1::2]), 8)
    assert lanes.order == "2 lanes, added one after the other"
    exact = qualm.tree(lambda a, b: math.fsum(a.astype(float) * b), 9)
    assert exact.exact and exact.parts is None and exact.steps == "rounded once"
    nobody = qualm.tree(lambda a, b: chain(a, b) if (b == 1).all() else
                        np.nextafter(chain(a, b), np.float32(9e9)), 9)
    a, b, expected, actual = nobody.witness
    assert nobody.steps == "" and expected != actual == np.nextafter(chain(a, b), np.float32(9e9))
    with pytest.raises(qualm.InputError, match="function: gives .*str.*expected a number"):
        qualm.tree(lambda a, b: "none", 4)
    with pytest.raises(ZeroDivisionError):
        qualm.tree(lambda a, b: 1 / 0, 4)
    with pytest.raises(qualm.InputError, match="products: is 1, expected 2 to 1024"):
        qualm.tree(chain, 1)


def test_the_contract_sum():
    def honest(c):
        x = (c.x.astype(np.float32) - np.float32(c.x_zp)) * c.x_scale
        w = (c.w.astype(np.float32) - np.float32(c.w_zp)) * c.w_scale
        return np.asarray(x[:, ::-1] @ w.T[::-1], np.float32)

    assert judged(honest, "linear", "matches_model", contract="sum", out="f32").judgement == "passed"
    zeros = judged(lambda c: np.zeros(c.shape, np.float32), "linear", "matches_model",
                   contract="sum", out="f32")
    assert zeros.judgement == "failed"
    with pytest.raises(qualm.InputError, match="sum has no quantize"):
        qualm.check("quantize", honest, contract="sum")


@pytest.mark.parametrize("made", [np.asfortranarray, lambda y: y[::-1].copy()[::-1], np.asmatrix,
                                  lambda y: memoryview(np.ascontiguousarray(y))])
def test_an_array_of_any_order_is_an_array(made):
    assert judged(lambda case: made(exact(case))).judgement == "passed"


class Lends:
    def __init__(self, y):
        self.y = y


class LendsAnArray(Lends):
    def __array__(self, dtype=None, copy=None):
        return self.y


class LendsByDLPack(Lends):
    def __dlpack__(self, **options):
        return self.y.copy().__dlpack__(**options)

    def __dlpack_device__(self):
        return self.y.__dlpack_device__()


@pytest.mark.parametrize("made", [LendsAnArray, LendsByDLPack])
def test_an_object_with_an_array_is_an_array(made):
    assert judged(lambda case: made(exact(case))).judgement == "passed"


def raises(case):
    raise ValueError("no such tile\nand more")


def modifies(case):
    y = exact(case)
    case.x[...] = 0
    return y


@pytest.mark.parametrize("function, kind, text", [
    (raises, "crash", "crashed: raised ValueError: no such tile (test_package.py, line "),
    (modifies, "memory", "modified-input: modified x"),
    (lambda case: None, "unknown", "returned None, expected an array of uint8 with shape ("),
    (lambda case: exact(case).ravel(), "unknown", "returned an array with shape ("),
    (lambda case: exact(case).astype(np.int64), "unknown", "returned an array of int64, expected"),
    (lambda case: exact(case).tolist(), "unknown", "returned a list, expected an array"),
    (half_up, "tie", "the subject rounds ties up"),
])
def test_what_is_wrong_is_told(function, kind, text):
    result = judged(function)
    assert (result.judgement, result.kind) == ("failed", kind)
    assert text in result.text, result.text


def test_a_modified_list_is_told():
    def modifies_scales(case):
        y = exact(case)
        if case.per_channel:
            case.out_scale[0] = 1e9
        return y

    result = judged(modifies_scales, per_channel=True)
    assert "modified out_scale" in result.text


def test_nan_is_an_answer():
    result = judged(lambda case: np.full(case.shape, np.nan, np.float32), "dequantize")
    assert result.judgement == "failed" and "actual nan" in result.text


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_run_ends_it(stop):
    calls = []

    def stops(case):
        calls.append(case)
        if len(calls) == 3:
            raise stop
        return exact(case)

    with pytest.raises(stop):
        judged(stops)
    assert len(calls) == 3


def test_a_function_that_takes_nothing_is_no_pass():
    def skips(case):
        raise qualm.Skip("no tiles")

    result = judged(skips)
    assert result.failed and "only 0 of 60 answers were judged (skipped: no tiles)" in result.text


@pytest.mark.parametrize("options, error", [
    ({"contract": "numpy@float33"}, "nearest is 'numpy@float32'"),
    ({"op": "conv2d", "contract": "numpy@float32"}, "numpy@float32 has no conv2d"),
    ({"op": "quantise"}, "op: 'quantise' is no operation, nearest is 'quantize'"),
    ({"op": "linear", "w": "u9"}, "w: is 'u9', expected s8 or u8"),
    ({"tiles": 3}, "tiles: is no argument, expected one of x, w, "),
    ({"per_chanel": True}, "per_chanel: is no argument, nearest is per_channel"),
    ({"bias_i32": True}, 'bias_i32: is no argument, expected bias="s32"'),
    ({"bias_f32": True}, 'bias_f32: is no argument, expected bias="f32"'),
    ({"x_zp": (3, 1), "op": "linear"}, "x_zp: is "),
    ({"bias": "f64", "op": "linear"}, "bias: is 'f64'"),
    ({"op": "linear", "n_multiple": 4096}, "takes only 0 of "),
    ({"cases": 0}, "cases: is 0"),
    ({"domain": 3}, "domain: is 3, expected a dict"),
    ({"op": "linear", "w_formats": "q9_9"}, "w_formats: is 'q9_9', expected some of q8_0, q4_0"),
    ({"op": "linear", "w_formats": 3}, "w_formats: is 3, expected some of q8_0, q4_0"),
    ({"op": "add", "w_formats": "q4_0"}, "w_formats: is 'q4_0', expected none: it is of linear alone"),
    ({"rules": "onnx"}, "rules: is 'onnx', expected none: they are of choose_qparams and dynamic_linear"),
    ({"op": "choose_qparams", "rules": ["onnx", "ort"]}, "rules: is ['onnx', 'ort'], expected some of observer, aten"),
    ({"domain": {"x_scal": (1, 2)}}, "domain: x_scal: is no range of a domain, nearest is 'x_scale'"),
    ({"domain": {"x": 3}}, "domain: x: is 3, expected a pair"),
    ({"domain": {"shapes": ["1x2x3"]}}, "domain: shape: '1x2x3' is no shape of quantize"),
])
def test_a_wrong_argument_is_an_error(options, error):
    with pytest.raises(qualm.InputError, match=re.escape(error)):
        judged(exact, **options)
    if "cases" not in options and "takes only" not in error:  # these are found when cases are drawn
        with pytest.raises(qualm.InputError, match=re.escape(error)):
            qualm.property(**{"op": "quantize", **options})


def test_a_subject_is_a_function_and_no_name():
    case = qualm.draw("quantize")
    for call, argument, verb in [
            (lambda name: qualm.check("quantize", name), "function", "check"),
            (lambda name: qualm.identify(name, "quantize"), "what", "identify"),
            (lambda name: qualm.exhaust(name, "quantize"), "function", "exhaust"),
            (lambda name: qualm.explain(case, name), "answer", "explain CASE")]:
        with pytest.raises(qualm.InputError) as raised:
            call("onednn@avx2")
        assert str(raised.value) == (f"{argument}: is 'onednn@avx2', expected a function of a case; "
                                     f"`qualm {verb} --subject NAME` asks a subject by its name")
    with pytest.raises(qualm.InputError, match="function: is of type ndarray, expected a function"):
        qualm.check("quantize", np.zeros(3))


@pytest.mark.parametrize("w, codes", [("u4", range(16)), ("s4", [0]), (["u4", "s4"], range(-8, 16))])
def test_small_weights_have_the_zero_points_of_their_type(w, codes):
    seen = set()

    def looks(case):
        seen.update(np.ravel(case.w_zp).tolist())
        return exact(case)

    assert judged(looks, "linear", w=w, cases=300).judgement == "passed"
    assert seen <= set(codes) and (len(seen) > 1) == (len(codes) > 1)


def test_a_domain_is_kept():
    def looks(case):
        assert 0.125 <= case.out_scale <= 0.5 and np.abs(case.x).max(initial=0) <= 8
        assert case.x.shape == (3, 5)
        return exact(case)

    domain = {"out_scale": (0.125, 0.5), "x": (-8, 8), "shapes": ["3x5"]}
    assert judged(looks, domain=domain).judgement == "passed"


def dynamic_quantize(case, rounded=np.rint):
    """ONNX's DynamicQuantizeLinear in NumPy: the scale, then the zero point."""
    f = np.float32
    x = case.x.reshape(1, -1) if case.gran == "tensor" else case.x.transpose(1, 0, 2).reshape(case.M, -1)
    with np.errstate(all="ignore"):
        low, high = np.minimum(x.min(1), f(0)), np.maximum(x.max(1), f(0))
        scale = np.where(low == high, f(1), np.maximum((high - low) / f(255), f(2.0**-149)))
        zero_point = rounded(np.clip(f(0) - low / scale, 0, 255))
    return np.stack([scale, zero_point]).astype(f)


def test_the_rule_of_a_choice_is_one_of_its_own():
    onnx = {"rules": "onnx", "per_channel": True, "cases": 200}
    for result in qualm.check("choose_qparams", dynamic_quantize, **onnx).claims:
        assert not result.failed, result
    away = judged(lambda case: dynamic_quantize(case, lambda v: np.floor(v + np.float32(0.5))),
                  "choose_qparams", **onnx)
    assert away.failed and "rounds ties of the zero point away from zero" in away.text
    seen = set()

    def looks(case):
        seen.add(case.qparams_rule)
        return exact(case)

    for rules, kinds in [(None, {"observer"}), (["aten", "onnx"], {"aten", "onnx"})]:
        seen.clear()
        assert judged(looks, "choose_qparams", rules=rules, cases=200).judgement == "passed"
        assert seen == kinds


def test_the_codes_of_a_choice():
    """All that DynamicQuantizeLinear answers, by one function."""
    def answer(case, rounded=np.rint):
        chosen = dynamic_quantize(case)
        if not case.codes:
            return chosen
        assert case.shape == (1, chosen.size + case.x.size)
        scale, zero_point = (v.reshape(1, -1, 1).astype(np.float64) for v in chosen)
        with np.errstate(all="ignore"):
            codes = np.clip(rounded(case.x.astype(np.float64) / scale) + zero_point, 0, 255)
        return np.concatenate([chosen.ravel(), codes.ravel()]).astype(np.float32).reshape(case.shape)

    options = {"rules": "onnx", "per_channel": True, "codes": True, "cases": 200}
    for result in qualm.check("choose_qparams", answer, **options).claims:
        assert not result.failed, result
    away = judged(lambda case: answer(case, lambda v: np.copysign(np.floor(abs(v) + 0.5), v)),
                  "choose_qparams", **options)
    assert away.failed and "rounds ties away from zero" in away.text


def test_limits_are_kept():
    seen = []

    def looks(case):
        seen.append((case.x_type, case.w_type, case.out_type, case.per_channel, case.bias_i32 is None,
                     case.x.flags.c_contiguous, case.x_zp, np.max(np.abs(case.w_zp))))
        return exact(case)

    assert judged(looks, "linear", out="s8", x_zp=(1, 3)).judgement == "passed"
    assert {one[:6] for one in seen} == {("u8", "s8", "s8", False, True, True)}
    assert {one[6] for one in seen} <= {1, 2, 3} and {one[7] for one in seen} == {0}
    seen.clear()
    judged(looks, "linear", "alignment_and_stride", x=["u8", "s8"], per_channel=True, bias=True, strides=True)
    assert {one[0] for one in seen} == {"u8", "s8"}
    for at in (3, 4, 5):
        assert {one[at] for one in seen} == {True, False}, at


def test_each_function_is_asked_for_itself():
    # Two functions of one name: triage makes a subject anew by its name.
    def kernel(case):
        return exact(case)

    first = judged(kernel)

    def kernel(case):  # noqa: F811
        return half_up(case)

    assert (first.judgement, judged(kernel).kind) == ("passed", "tie")
