# SPDX-License-Identifier: Apache-2.0
"""Runs whole models on ONNX Runtime's wheel for `qualm explain model.onnx`.

    python3 onnxruntime_models.py

Its first line on stdout is its name. Each line on stdin is a folder with the question: model.onnx and
question.txt, whose lines are `folder PATH` (of the model's external data), `input N TYPE DIMS NAME`, the
elements being in N.bin, and `output N NAME`. TYPE is TensorProto.DataType, DIMS are numbers between
commas or `-`. The answer is one line, `ok` or `error WHY`, and for each output that was given a line
`N TYPE DIMS` in answer.txt, the elements in answer-N.bin. Graph optimizations are ONNX Runtime's default.
"""
import os
import sys

TYPES = {1: "float32", 2: "uint8", 3: "int8", 6: "int32", 7: "int64", 9: "bool"}


def one_line(error):
    return " ".join(str(error).split())


def lines_of(path):
    with open(path, encoding="utf-8", newline="\n") as text:
        return text.read().split("\n")


def answer(ort, np, folder):
    feeds, names, places, options = {}, [], [], ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    for line in lines_of(os.path.join(folder, "question.txt")):
        word, _, rest = line.partition(" ")
        if word == "folder":
            options.add_session_config_entry(
                "session.model_external_initializers_file_folder_path", rest)
        elif word == "input":
            place, kind, dims, name = rest.split(" ", 3)
            shape = [] if dims == "-" else [int(d) for d in dims.split(",")]
            feeds[name] = np.fromfile(os.path.join(folder, place + ".bin"),
                                      dtype=TYPES[int(kind)]).reshape(shape)
        elif word == "output":
            place, name = rest.split(" ", 1)
            places.append(place)
            names.append(name)
    session = ort.InferenceSession(os.path.join(folder, "model.onnx"), options,
                                   providers=["CPUExecutionProvider"])
    wanted = {given.name for given in session.get_inputs()}
    values = session.run(names, {name: v for name, v in feeds.items() if name in wanted})
    numbers = {name: number for number, name in TYPES.items()}
    with open(os.path.join(folder, "answer.txt"), "w", encoding="utf-8") as told:
        for place, value in zip(places, values):
            if not isinstance(value, np.ndarray) or value.dtype.name not in numbers:
                continue
            told.write("%s %d %s\n" % (place, numbers[value.dtype.name],
                                       ",".join(str(d) for d in value.shape) or "-"))
            np.ascontiguousarray(value).tofile(os.path.join(folder, "answer-%s.bin" % place))


def main():
    # A library that prints must not touch the lines of the protocol.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        import numpy
        import onnxruntime
    except Exception as reason:  # pylint: disable=broad-except
        sys.exit("%s: %s" % (type(reason).__name__, one_line(reason)))
    out.write("ONNX Runtime %s\n" % onnxruntime.__version__)
    out.flush()
    for line in sys.stdin:
        try:
            answer(onnxruntime, numpy, line.rstrip("\n"))
            told = "ok"
        except Exception as error:  # pylint: disable=broad-except
            told = "error " + one_line(error)[:1000]
        out.write(told + "\n")
        out.flush()


main()
