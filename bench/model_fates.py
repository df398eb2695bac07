# SPDX-License-Identifier: Apache-2.0
"""Models through `qualm explain MODEL`: how many layers are exact, how many a named arithmetic, how many
neither. What bench/models and bench/tflite_models share."""
import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile


def fate(layer):
    if layer["not_run"]:
        return "not run"
    if layer["ran_by"]:
        return "run by the runtime"
    if "outputs" not in layer:
        return "not judged"
    if layer["not_exact"] == 0:
        return "exact"
    if layer["arithmetic"]:
        return "named"
    if "sums" in layer and not layer["wrong"]:
        return layer["whose"].partition(":")[0]  # "float32 sums"
    return "WRONG" if layer["wrong"] else "undefined"


def count(doc, models, runtimes=("",)):
    """models(folder) writes them and yields their paths. Exit status 1 where a layer has no known
    arithmetic, or is not run."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qualm", default="build/dev/bin/qualm")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--keep", help="a folder for the models")
    options = parser.parse_args()
    totals = {runtime: collections.Counter() for runtime in runtimes}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or temporary
        os.makedirs(folder, exist_ok=True)
        for path in models(folder):
            for runtime in runtimes:
                fates = fates_of(options, path, runtime)
                totals[runtime] += fates
    for runtime, total in totals.items():
        print("%-40s %s" % (" ".join(["all", runtime]).strip(), told(total)))
    sys.exit(1 if any(total["WRONG"] or total["not run"] for total in totals.values()) else 0)


def told(fates):
    return ", ".join("%d %s" % (number, name) for name, number in sorted(fates.items()))


def fates_of(options, path, runtime):
    fates, remarks = collections.Counter(), set()
    for seed in range(1, options.seeds + 1):
        command = [options.qualm, "explain", path, "--seed", str(seed), "--quiet", "--json", "-"]
        ran = subprocess.run(command + (["--runtime", runtime] if runtime else []), capture_output=True,
                             text=True, check=False)
        if ran.returncode > 1:
            sys.exit("%s: %s" % (path, ran.stderr))
        model = json.loads(ran.stdout)["model"]
        if model["by"] is None:
            sys.exit("%s: the runtime ran nothing: %s" % (path, model["refused"]))
        for layer in model["layers"]:
            fates[fate(layer)] += 1
            if fate(layer) in ("not run", "not judged", "WRONG", "undefined"):
                remarks.add("  %s: %s" % (layer["name"], layer["not_run"] or layer["not_judged"] or
                                          layer["explanation"] or fate(layer)))
    print("%-40s %s" % (" ".join([os.path.basename(path), runtime]).strip(), told(fates)), flush=True)
    for remark in sorted(remarks):
        print(remark)
    return fates
