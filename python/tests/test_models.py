# SPDX-License-Identifier: Apache-2.0
"""Models layer by layer: qualm.record_onnx beside runtimes of Python, and beside ONNX Runtime."""
import importlib.util
import math
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import qualm

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "adapters" / "libraries"))
import onnx_model  # noqa: E402  (a writer of ONNX models)

RNG = np.random.default_rng(1)
W = {"w1": RNG.integers(-127, 128, (8, 16)).astype(np.int8),
     "w2": RNG.integers(-127, 128, (16, 4)).astype(np.int8)}
X = RNG.uniform(-1, 1, (6, 8)).astype(np.float32)
SCALES = {"x": np.float32(2**-7), "w1": np.float32(2**-8), "a": np.float32(2**-5), "w2": np.float32(2**-8),
          "y": np.float32(2**-4)}
ZEROS = {"x": np.uint8(128), "w1": np.int8(0), "a": np.uint8(130), "w2": np.int8(0), "y": np.uint8(120)}


@pytest.fixture
def model(tmp_path):
    """x, two products of codes, and the reals y."""
    constants = dict(W)
    for name, scale in SCALES.items():
        constants[name + "_s"], constants[name + "_z"] = np.array(scale), np.array(ZEROS[name])

    def product(x, w, y):
        return onnx_model.node("QLinearMatMul", f"{x}q {x}_s {x}_z {w} {w}_s {w}_z {y}_s {y}_z", f"{y}q")
    nodes = [onnx_model.node("QuantizeLinear", "x x_s x_z", "xq"), product("x", "w1", "a"),
             product("a", "w2", "y"), onnx_model.node("DequantizeLinear", "yq y_s y_z", "y")]
    path = tmp_path / "two.onnx"
    path.write_bytes(onnx_model.model(nodes, {"x": X}, constants, "float32", shapes=True))
    return path


def product(x, w, y, codes):
    real = (codes.astype(float) - ZEROS[x]) @ W[w].astype(float) * float(SCALES[x]) * float(SCALES[w])
    return real, np.clip(np.rint(real / float(SCALES[y])) + ZEROS[y], 0, 255).astype(np.uint8)


class Exact:
    """Computes the model as it is defined; one output of the second product is off by 3 codes."""

    name = "somebody 1.0"

    def __init__(self, off=3):
        self.off = off

    def run(self, question):
        assert question.model and question.node is None
        values = dict(question.inputs)
        values["xq"] = np.clip(np.rint(values["x"] / SCALES["x"]) + 128, 0, 255).astype(np.uint8)
        _, values["aq"] = product("x", "w1", "a", values["xq"])
        _, values["yq"] = product("a", "w2", "y", values["aq"])
        values["yq"][2, 1] += np.uint8(self.off)
        values["y"] = (values["yq"].astype(np.float32) - 120) * SCALES["y"]
        return [values[name] for name in question.wanted]


def by_definition(real, codes):
    """SQNR and cosine of codes of y against these reals."""
    given = (codes.astype(float) - ZEROS["y"]) * float(SCALES["y"])
    noise = np.sum((given - real)**2)
    return (10 * math.log10(np.sum(real**2) / noise),
            np.sum(given * real) / math.sqrt(np.sum(given**2) * np.sum(real**2)))


def test_the_worst_layer_is_first_with_its_error_in_parts(model, tmp_path):
    run = qualm.record_onnx(model, X, runtime=Exact())
    assert [layer.name for layer in run.layers][0] == "yq"
    assert {layer.name for layer in run.layers} == {"xq", "aq", "yq", "y"}
    assert run.by == "somebody 1.0" and not run.ok and "of 4 layers: 3 exact, 1 WRONG: yq." == run.summary
    worst = run["yq"]
    assert (worst.op, worst.not_exact, worst.worst_lsb, worst.outputs) == ("linear", 1, 3, 24)
    assert worst.kernel.worst == 3 and worst.kernel.rms == pytest.approx(3 / math.sqrt(24))
    codes = Exact().run(type("Q", (), {"model": b"m", "node": None, "inputs": {"x": X}, "wanted": ["aq", "yq"]}))
    real, exact = product("a", "w2", "y", codes[0])
    clipped = np.abs((exact.astype(float) - 120) - real / float(SCALES["y"]))
    assert worst.quantization.worst == pytest.approx(clipped.max())
    assert worst.quantization.rms == pytest.approx(math.sqrt(np.mean(clipped**2)))
    sqnr, cosine = by_definition(real, codes[1])
    assert worst.sqnr_db == pytest.approx(sqnr) and worst.cosine == pytest.approx(cosine)
    assert run["aq"].kernel.worst == 0 and run["aq"].whose == "exact" and run["aq"].cases == []
    assert run["y"].sqnr_db is None  # reals have no codes
    # The case of the layer explains itself.
    assert worst.cases[0].observed_by == "somebody 1.0"
    assert not qualm.explain(worst.cases[0]).exact
    assert [path.suffix for path in run.write(tmp_path / "cases")] == [".json"]
    text = str(run)
    assert text.index("yq ") < text.index("aq ") and "0.612 (at most 3)" in text
    assert "yq" in run._repr_html_() and "<svg" in run._repr_html_()
    page = run.page(tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and "WRONG: yq" in page and "kernel error" in page


def test_an_exact_runtime_is_ok(model):
    run = qualm.record_onnx(model, {"x": X}, runtime=Exact(off=0))
    assert run.ok and run.summary == "of 4 layers: 4 exact."
    assert all(layer.kernel is None or layer.kernel.worst == 0 for layer in run.layers)


def test_against_the_model_before_it_was_quantized(model):
    real = np.zeros((6, 4), np.float32) + np.float32(0.25)
    run = qualm.record_onnx(model, X, runtime=Exact(off=0), reference={"yq": real, "other": real})
    assert run["yq"].against_reference and not run["aq"].against_reference
    codes = Exact(off=0).run(type("Q", (), {"model": b"m", "node": None, "inputs": {"x": X}, "wanted": ["yq"]}))[0]
    sqnr, cosine = by_definition(real.astype(float), codes)
    assert run["yq"].sqnr_db == pytest.approx(sqnr) and run["yq"].cosine == pytest.approx(cosine)
    assert run["yq"].kernel.worst == 0  # which is the runtime's against the exact code still


def test_layers_without_noise_or_without_signal(model):
    zero = np.zeros((6, 4), np.float32)
    for codes, sqnr in ((np.full((6, 4), 120, np.uint8), math.inf), (np.zeros((6, 4), np.uint8), -math.inf)):
        run = qualm.record_onnx(model, X, runtime="", observed={"yq": codes}, reference={"yq": zero})
        assert run["yq"].sqnr_db == sqnr and math.isnan(run["yq"].cosine) and "inf" in str(run)


def test_observed_values_are_judged_without_a_runtime(model):
    codes = np.zeros((6, 4), np.uint8)
    run = qualm.record_onnx(model, X, runtime="", observed={"yq": codes})
    assert [layer.name for layer in run.layers] == ["yq"] and run.by == "observed"
    assert ("aq", "exact, compared with nobody") in run.others


def test_a_function_answers_the_layers(model):
    ops = []

    def exact(case):
        ops.append(case.op)
        return qualm.exact(case).y

    recording = qualm.record_onnx(model, {"x": X}, runtime="", subject=exact)
    assert recording.by == "python:exact" and recording.ok and len(recording.layers) == 4
    assert ops == ["quantize", "linear", "linear", "dequantize"]

    def off(case):
        if case.op != "linear":
            raise qualm.Skip("linear alone")
        y = qualm.exact(case).y.copy()
        y.flat[0] ^= 3
        return y

    recording = qualm.record_onnx(model, {"x": X}, runtime="", subject=off)
    assert [layer.not_exact for layer in recording.layers] == [1, 1] and not recording.ok
    assert any("linear alone" in why for _, why in recording.others)
    with pytest.raises(qualm.InputError, match="observed: is what somebody gave"):
        qualm.record_onnx(model, X, subject=off, observed={"yq": np.zeros((6, 4), np.uint8)})
    with pytest.raises(qualm.InputError, match="subject: is 'native', expected a function of a case; `qualm explain"):
        qualm.record_onnx(model, X, subject="native")


def test_inputs_in_files(model, tmp_path):
    def varint(number):
        return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)

    # A TensorProto: dims, data_type float, raw_data.
    raw = X.tobytes()
    (tmp_path / "x.pb").write_bytes(b"\x08\x06\x08\x08\x10\x01" + b"\x4a" + varint(len(raw)) + raw)
    np.save(tmp_path / "x.npy", X)
    runs = [qualm.record_onnx(model, given, runtime=Exact()) for given in
            (X, {"x": str(tmp_path / "x.pb")}, tmp_path / "x.npy")]
    assert len({str(run) for run in runs}) == 1 and not runs[0].notes
    (tmp_path / "bad.pb").write_bytes(raw)
    for name in ("bad.pb", "none.pb", "none.npy"):
        with pytest.raises(qualm.InputError, match=name) as raised:
            qualm.record_onnx(model, tmp_path / name, runtime="")
        assert "\n" not in str(raised.value)


def test_nobody_is_judged(model):
    run = qualm.record_onnx(model, runtime="")
    assert run.by == "" and run.layers == [] and run.ok and "of 4 layers" in str(run)
    assert run.notes == ["input x: f32 [6,8], random, -1 to 0.9922, the range of its QuantizeLinear (seed 1)"]
    assert "<table" not in run._repr_html_()


def test_what_a_runtime_raises_is_told(model):
    class Broken:
        name = "broken"

        def run(self, question):
            raise ValueError("no such\noperator")
    run = qualm.record_onnx(model, X, runtime=Broken())
    assert run.notes == ["refused: no such operator"] and run.layers == []

    class Stopped(Broken):
        def run(self, question):
            raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        qualm.record_onnx(model, X, runtime=Stopped())


@pytest.mark.parametrize("arguments, error", [
    ({"inputs": {"z": X}}, "inputs: the model has no input 'z', expected one of x"),
    ({"inputs": [X, X]}, "inputs: are 2, expected 1"),
    ({"inputs": X[:, :7]}, "inputs x: is float .6,7., expected float .6,8."),
    ({"inputs": X.astype(np.float64)}, "inputs x: is an array of float64, expected float32, uint8"),
    ({"runtime": "onnx"}, "runtime: is 'onnx', expected onnxruntime"),
    ({"observed": {"z": X}, "runtime": ""}, "observed z: is no value of the model"),
    ({"observed": {"yq": X}, "runtime": ""}, "yq: is f32 .6,8., expected u8 .6,4."),
    ({"reference": "float.onnx", "runtime": ""}, "reference: is a file, and there is no runtime to run it"),
])
def test_a_wrong_argument_is_one_line(model, arguments, error):
    with pytest.raises(qualm.InputError, match=error) as raised:
        qualm.record_onnx(model, **{"inputs": X, **arguments})
    assert "\n" not in str(raised.value)


def test_a_frame_has_a_row_for_each_layer(model):
    pytest.importorskip("pandas")
    frame = qualm.record_onnx(model, X, runtime=Exact()).dataframe()
    assert list(frame["layer"])[0] == "yq" and frame["kernel"][0] > 0


def test_a_model_of_tensorflow_lite():
    run = qualm.record_onnx(ROOT / "corpus" / "fuzz" / "weights_reader" / "model.tflite", runtime="")
    assert run.others


def borrow(monkeypatch, folder, wheel, *names):
    """The library of this Python, else that of scripts/install-wheel without the NumPy beside it."""
    if importlib.util.find_spec(names[0]):
        return
    cache = os.environ.get("QUALM_CACHE_DIR") or Path.home() / ".cache" / "qualm"
    site = Path(cache, wheel, "lib", "python%d.%d" % sys.version_info[:2], "site-packages")
    for pattern in names:
        found = list(site.glob(pattern))
        if not found:
            pytest.skip(f"{names[0]} is neither in this Python nor in {site}")
        for one in found:
            (folder / one.name).symlink_to(one)
    monkeypatch.syspath_prepend(str(folder))


@pytest.fixture
def onnxruntime(tmp_path, monkeypatch):
    borrow(monkeypatch, tmp_path, "onnxruntime", "onnxruntime", "packaging", "flatbuffers", "google")


@pytest.fixture
def litert(tmp_path, monkeypatch):
    borrow(monkeypatch, tmp_path, "litert", "ai_edge_litert", "ai_edge_litert-*", "backports", "ml_dtypes", "tqdm",
           "typing_extensions.py", "flatbuffers", "google")


def test_onnx_runtime_in_this_process(model, onnxruntime):
    run = qualm.record_onnx(model, X)
    assert run.by.startswith("ONNX Runtime 1."), run.notes
    assert run.ok and len(run.layers) == 4


def test_the_float_model_is_the_reference(model, tmp_path, onnxruntime):
    reals = {name: W[name] * SCALES[name] for name in W}
    nodes = [onnx_model.node("MatMul", "x w1", "aq"), onnx_model.node("Relu", "aq", "relu"),
             onnx_model.node("MatMul", "relu w2", "yq"), onnx_model.node("Relu", "yq", "y")]
    before = tmp_path / "before.onnx"
    before.write_bytes(onnx_model.model(nodes, {"x": X}, reals, "float32", shapes=True))
    run = qualm.record_onnx(model, X, reference=before)
    real = np.maximum(X @ reals["w1"], 0) @ reals["w2"]
    between = Exact(off=0).run(type("Q", (), {"model": b"m", "node": None, "inputs": {"x": X}, "wanted": ["aq"]}))[0]
    # Without VNNI pairs of these products saturate.
    _, codes = product("a", "w2", "y", run["aq"].cases[0].observed if run["aq"].cases else between)
    sqnr, cosine = by_definition(real.astype(float), codes)
    assert run["yq"].against_reference
    assert run["yq"].sqnr_db == pytest.approx(sqnr, rel=1e-4) and run["yq"].cosine == pytest.approx(cosine)
    # The quantized model has no Relu before aq's reader: the range of its codes is meant to be one.
    real = np.maximum(X @ reals["w1"], 0)
    codes, _ = product("x", "w1", "a", np.clip(np.rint(X / SCALES["x"]) + 128, 0, 255).astype(np.uint8))
    assert run["aq"].against_reference and run["aq"].cosine < 0.95 < np.corrcoef(codes.ravel(), (X @ reals["w1"]).ravel())[0, 1]


def product_of_tensorflow_lite(path, w, scales):
    """y = x w', of reals, or of int8 with these scales and zero points of x, w and y."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    def tensor(name, shape, scale=None, zero_point=0, values=None):
        made = schema.TensorT()
        made.name, made.shape, made.buffer = name, shape, 0 if values is None else 1
        made.type = schema.TensorType.FLOAT32 if scale is None else schema.TensorType.INT8
        if scale is not None:
            made.quantization = schema.QuantizationParametersT()
            made.quantization.scale, made.quantization.zeroPoint = [scale], [zero_point]
        return made
    parts = scales or [()] * 3
    graph, model, code = schema.SubGraphT(), schema.ModelT(), schema.OperatorCodeT()
    graph.tensors = [tensor("x", [3, 8], *parts[0]), tensor("w", list(w.shape), *parts[1], values=w),
                     tensor("y", [3, w.shape[0]], *parts[2])]
    operator = schema.OperatorT()
    operator.opcodeIndex, operator.inputs, operator.outputs = 0, [0, 1, -1], [2]
    operator.builtinOptionsType = schema.BuiltinOptions.FullyConnectedOptions
    operator.builtinOptions = schema.FullyConnectedOptionsT()
    graph.operators, graph.inputs, graph.outputs = [operator], [0], [2]
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.FULLY_CONNECTED
    code.version = 4
    data = schema.BufferT()
    data.data = w.reshape(-1).view(np.uint8)
    model.version, model.operatorCodes, model.subgraphs, model.buffers = 3, [code], [graph], [schema.BufferT(), data]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))


def test_litert_in_this_process_and_reals_for_a_model_of_codes(tmp_path, litert):
    w = W["w1"].T[:4].copy()
    scales = [(0.5, 3), (2**-7, 0), (0.25, -5)]
    product_of_tensorflow_lite(tmp_path / "codes.tflite", w, scales)
    product_of_tensorflow_lite(tmp_path / "reals.tflite", (w * np.float32(2**-7)).astype(np.float32), None)
    x = RNG.integers(-128, 128, (3, 8)).astype(np.int8)
    run = qualm.record_onnx(tmp_path / "codes.tflite", x, reference=tmp_path / "reals.tflite")
    assert run.by.startswith("LiteRT 2.") and run.ok and run["y"].against_reference
    real = (x.astype(float) - 3) * 0.5 @ (w.T * 2.0**-7)
    exact = np.clip(np.rint(real / 0.25) - 5, -128, 127)
    noise = (exact + 5) * 0.25 - real
    assert run["y"].quantization.rms == pytest.approx(math.sqrt(np.mean((noise / 0.25)**2)))
    assert qualm.record_onnx(tmp_path / "codes.tflite", x, runtime="tflite@reference").by.endswith("reference kernels")


def recorded(y, reference=None, **fields):
    case = qualm.Case("linear", x=np.array([[3, 9], [200, 7]], np.uint8), w=np.array([[5, -2], [1, 1]], np.int8),
                      x_scale=1, x_zp=0, w_scale=1, w_zp=0, out_scale=4, out_zp=100, **fields)
    case = qualm.Case.parse(case.json().rstrip().rstrip("}") + ',"observed": {"by": "me", "y": %s}}' % y)
    return qualm._native.recorded("M", "me", [("fc", "linear", case, reference)])


def test_a_recorded_layer_is_judged_and_split():
    # 15 - 18, 12; 1000 - 14, 207: codes 99.25, 103; 346.5, 151.75.
    run = recorded([99, 103, 255, 152])
    assert run.summary == "of 1 layer: 1 exact." and run.cases(0) == []
    run = recorded([99, 103, 255, 155], np.array([-3, 12, 640, 207], np.float32))
    assert "1 WRONG: fc" in run.summary and len(run.cases(0)) == 1
    assert '"reference":"given"' in run.json and "fc" in run.bars()
    # Nobody knows outputs of the model, so the page has no heading of them.
    assert "kernel error" in run.page([]) and "Outputs of the model" not in run.page([])
    with pytest.raises(qualm.InputError, match="reference: "):
        recorded([99, 103, 255, 155], np.zeros(3, np.float32))


@pytest.fixture
def torch(tmp_path, monkeypatch):
    borrow(monkeypatch, tmp_path, "torch", "torch", "torchgen", "functorch", "sympy", "mpmath", "networkx", "jinja2",
           "markupsafe", "filelock", "fsspec", "typing_extensions.py")
    return pytest.importorskip("torch")


@pytest.mark.filterwarnings("ignore")  # PyTorch's own deprecations
def test_a_model_of_pytorch(torch, tmp_path):
    w, bias = np.array([[50, -3, 7], [1, 2, -100]], np.int8), np.array([0.5, -1], np.float32)

    class Net(torch.nn.Module):
        def __init__(self, quantized):
            super().__init__()
            self.fc = Linear(quantized)

        def forward(self, x):
            return self.fc(torch.quantize_per_tensor(x, 0.25, 10, torch.quint8) if self.fc.packed is not None else x)

    class Linear(torch.nn.Module):
        def __init__(self, quantized):
            super().__init__()
            codes = torch._make_per_tensor_quantized_tensor(torch.from_numpy(w), 0.125, 0)
            self.packed = torch.ops.quantized.linear_prepack(codes, torch.from_numpy(bias)) if quantized else None

        def forward(self, x):
            if self.packed is not None:
                return torch.ops.quantized.linear(x, self.packed, 2.0, 60)
            return x @ (torch.from_numpy(w).float() * 0.125).T + torch.from_numpy(bias)

    torch.backends.quantized.engine = "qnnpack"
    x = np.array([[1.1, -2, 3], [0.3, 5.2, 0.6]], np.float32)
    run = qualm.record(Net(True), torch.from_numpy(x), reference=Net(False), folder=tmp_path / "cases")
    assert run.file == "Net" and run.by == f"PyTorch {torch.__version__}, engine qnnpack" and run.ok
    assert {layer.name: layer.op for layer in run.layers} == {"000-model-quantize": "quantize",
                                                              "001-fc-linear": "linear"}
    layer = run["001-fc-linear"]
    assert layer.operators == "quantized::linear" and layer.output == "u8 [2,2]" and layer.against_reference
    real = x @ (w.T * np.float32(0.125)) + bias
    codes = (np.clip(np.rint(x / 0.25), -10, 245) @ w.T * 0.125 * 0.25 + bias) / 2
    noise = np.rint(codes) * 2 - real
    assert layer.kernel.worst == 0 and not run["000-model-quantize"].against_reference
    assert layer.sqnr_db == pytest.approx(10 * math.log10(np.sum(real**2) / np.sum(noise**2)), rel=1e-5)
    assert len(list((tmp_path / "cases").glob("*.case.json"))) == 2

    class Clamp(torch.nn.Module):
        def forward(self, x):
            return torch.clamp(torch.quantize_per_tensor(x, 0.25, 10, torch.quint8), 0, 1)
    assert qualm.record(Clamp(), torch.from_numpy(x)).others == [
        ("model", "aten::clamp: not an operation of case files")]
