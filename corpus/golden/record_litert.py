#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes litert.jsonl: drawn cases as `qualm check` asks LiteRT, and its answers.

    python3 record_litert.py QUALM PYTHON CHILD > litert.jsonl

QUALM is the command, PYTHON the one of the environment of `scripts/install-wheel litert`, CHILD
adapters/libraries/litert_child.py. The first small cases of each operation and subject are kept.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

OPS = ("linear conv2d depthwise add sub mul max_pool avg_pool global_avg_pool concat table softmax "
       "quantize dequantize rescale").split()
# Subjects, as litert_child.py calls them, and how many records of each operation.
SUBJECTS = {"reference": 8, "builtin": 8, "xnnpack": 6}
MOST_VALUES = 80


def main():
    qualm, python, child = sys.argv[1:]
    for subject, most in SUBJECTS.items():
        for op in OPS:
            with tempfile.TemporaryDirectory() as folder:
                asked, told = Path(folder, "asked"), Path(folder, "told")
                pipe = "pipe:tee -a %s | %s %s %s | tee -a %s" % (asked, python, child, subject, told)
                subprocess.run([qualm, "check", "--quiet", "--subject", pipe, "--op", op, "-p",
                                "*.matches_model", "--cases", "400", "--out", folder + "/out"],
                               stdout=subprocess.DEVNULL, check=False)
                asked = [json.loads(line) for line in asked.read_text().splitlines()]
                told = [json.loads(line) for line in told.read_text().splitlines()]
            # The child is started more than once, and says hello each time.
            requests = [line for line in asked if "case" in line]
            answers = [line for line in told if "id" in line]
            hello = told[0]
            isa = subject
            if subject == "xnnpack":
                isa = hello["contract"].split(",")[0].replace("model:xnnpack2026", "xnnpack")
                if op == "concat":
                    continue  # codes are copied
            kept = 0
            for request, reply in zip(requests, answers):
                case = request["case"]
                size = sum(len(case.get(key) or []) for key in ("x", "w", "a", "b"))
                if "y" not in reply or size > MOST_VALUES or kept == most:
                    continue
                case["qualm_case"] = 1
                record = {"id": "%s-%s-%d" % (subject, op, kept), "op": "case",
                          "backend": "litert@" + hello["version"], "isa": isa,
                          "case": json.dumps(case, separators=(",", ":")), "y": reply["y"]}
                print(json.dumps(record, separators=(",", ":")))
                kept += 1


if __name__ == "__main__":
    main()
