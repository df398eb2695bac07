# SPDX-License-Identifier: Apache-2.0
"""What the programs share that run whole models for `qualm explain MODEL`.

The first line on stdout is `hello ` and the name of the runtime. Each line on stdin is a folder with
the question: `model`, and question.txt, whose lines are `folder PATH` (of data outside of the model),
`node INDEX` where one node alone is to run, `input N TYPE DIMS NAME`, the elements being in N.bin, and
`output N NAME`. TYPE is TensorProto.DataType, DIMS are numbers between commas or `-`. The answer is one
line, `ok` or `error WHY`, and for each output that was given a line `N TYPE DIMS` in answer.txt, the
elements in answer-N.bin.
"""
import os
import sys

TYPES = {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
         9: "bool"}


def one_line(error):
    return " ".join(str(error).split())


def lines_of(path):
    with open(path, encoding="utf-8", newline="\n") as text:
        return text.read().split("\n")


class Question:
    """`model` has the bytes of its file, `inputs` arrays by their names, `wanted` the names of outputs."""

    def __init__(self, np, folder):
        self.np, self.path = np, folder
        with open(os.path.join(folder, "model"), "rb") as file:
            self.model = file.read()
        self.folder, self.node, self.inputs, self.wanted, self.places = ".", None, {}, [], []
        for line in lines_of(os.path.join(folder, "question.txt")):
            word, _, rest = line.partition(" ")
            if word == "folder":
                self.folder = rest
            elif word == "node":
                self.node = int(rest)
            elif word == "input":
                place, kind, dims, name = rest.split(" ", 3)
                shape = [] if dims == "-" else [int(d) for d in dims.split(",")]
                self.inputs[name] = np.fromfile(os.path.join(folder, place + ".bin"),
                                                dtype=TYPES[int(kind)]).reshape(shape)
            elif word == "output":
                place, name = rest.split(" ", 1)
                self.places.append(place)
                self.wanted.append(name)

    def answer(self, values):
        numbers = {name: number for number, name in TYPES.items()}
        with open(os.path.join(self.path, "answer.txt"), "w", encoding="utf-8") as told:
            for place, value in zip(self.places, values):
                if not isinstance(value, self.np.ndarray) or value.dtype.name not in numbers:
                    continue
                told.write("%s %d %s\n" % (place, numbers[value.dtype.name],
                                           ",".join(str(d) for d in value.shape) or "-"))
                self.np.ascontiguousarray(value).tofile(
                    os.path.join(self.path, "answer-%s.bin" % place))


def serve(make_runtime):
    """make_runtime(option) imports the library; the runtime has a `name`, and run(question) gives the
    values of question.wanted."""
    # A library that prints must not touch the lines of the protocol.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        import numpy
        runtime = make_runtime(sys.argv[1] if len(sys.argv) > 1 else "")
    except Exception as reason:  # pylint: disable=broad-except
        sys.exit("%s: %s" % (type(reason).__name__, one_line(reason)))
    out.write("hello %s\n" % runtime.name)
    out.flush()
    for line in sys.stdin:
        try:
            question = Question(numpy, line.rstrip("\n"))
            question.answer(runtime.run(question))
            told = "ok"
        except Exception as error:  # pylint: disable=broad-except
            told = "error " + one_line(error)[:400]
        out.write(told + "\n")
        out.flush()
