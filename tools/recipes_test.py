#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The workflows, the Slurm array and the Kubernetes Job that docs/ci.md and docs/campaigns.md give people to copy:
each is parsed, held against what its scheduler wants, and its commands are run in the order and the environment that
the scheduler would give them, with some thousand executions instead of minutes. What needs the network or another machine (apt-get,
uses:) is left out. Exit status 77 where there is no C compiler or no PyYAML."""
import argparse
import copy
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
runs = 2000  # --runs
RELU = "if (p->relu && sum < 0) sum = 0;"
BASELINE = "qualm check --subject plugin:./build/my_kernels.so --op linear --cases 500 --seed 1 --json ci/qualm-baseline.json"

failures = []
started = time.monotonic()


def expect(good, what):
    if not good:
        failures.append(what)
        print(f"FAILED  {what}", flush=True)
    return good


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def shorter(command):
    """Hours and minutes of fuzzing become executions: in minutes a machine that does other things may execute next to
    nothing, and find nothing."""
    return re.sub(r"--time \d+[mh]\b", f"--time 12h --runs {runs}", command)


def say(what):
    """What goes on, and since when: where the test is ended, its last lines say amid what."""
    print(f"{time.monotonic() - started:6.1f} s  {what}", flush=True)


class Place:
    """Somebody's folder: kernels of theirs, qualm beside them and in the path."""

    def __init__(self, folder, built, bug):
        self.folder = folder
        folder.mkdir()
        (folder / "qualm").symlink_to(ROOT)
        (folder / "tools").mkdir()
        (folder / "tools/qualm").symlink_to(built / "bin/qualm")
        self.environment = {name: text for name, text in os.environ.items()
                            if not name.startswith(("SLURM_", "GTEST_", "JOB_", "QUALM_"))}
        self.environment |= {"PATH": f"{folder}/tools:{os.environ['PATH']}", "HOME": str(folder)}
        self.kernels(bug)

    def kernels(self, bug):
        text = (ROOT / "examples/plugin/example_plugin.c").read_text()
        assert RELU in text
        (self.folder / "my_kernels.c").write_text(text.replace(RELU, "") if bug else text)

    def make(self):
        for name in ("build", "ci"):
            (self.folder / name).mkdir(exist_ok=True)
        subprocess.run("cc -O2 -shared -fPIC -I qualm/adapters -o build/my_kernels.so my_kernels.c", shell=True,
                       cwd=self.folder, check=True)

    def run(self, words, **environment):
        say(f"{self.folder.name}: {' '.join(words)[:100]}".splitlines()[0])
        return subprocess.run(words, cwd=self.folder, env=self.environment | environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


class Workflow:
    """A workflow of GitHub Actions with one job."""

    def __init__(self, document):
        self.name = document["name"]
        # YAML 1.1 takes the key `on` for a truth value.
        expect(set(document[True]) == {"push", "pull_request"}, f"{self.name}: runs on a push and a pull request")
        (self.job,) = document["jobs"].values()
        expect(self.job["timeout-minutes"] >= 30, f"{self.name}: time for the first build")
        for step in self.job["steps"]:
            expect(("run" in step) != ("uses" in step), f"{self.name}: a step either runs or uses: {step}")
            if "uses" in step:
                expect(re.fullmatch(r"actions/(checkout|cache|upload-artifact)@v\d+", step["uses"]), f"{self.name}: {step['uses']}")

    def run(self, place):
        """The status of the first step that fails, else 0, and the output."""
        paths = place.folder / "github_path"
        paths.write_text("")
        output = ""
        for step in self.job["steps"]:
            command = step.get("run", "")
            if not command or command.startswith("apt-get "):
                continue
            # A runner that adds the path of scripts/qualm would build; the command is there already.
            done = place.run(["sh", "-e", "-c", shorter(command)], GITHUB_PATH=str(paths), **self.job.get("env", {}))
            output += done.stdout
            if done.returncode != 0:
                return done.returncode, output
        expect(paths.read_text() == f"{place.folder}/qualm/scripts\n", f"{self.name}: puts scripts/qualm into the path")
        return 0, output


def paths_of_artifacts(workflow):
    (step,) = [step for step in workflow.job["steps"] if "upload-artifact" in step.get("uses", "")]
    return step["with"]["path"].split()


def workflows_of_ci(yaml):
    """The one of docs/ci.md, and the one that its three further steps make of it, as the page says."""
    first, further = (yaml.safe_load(text) for text in blocks("docs/ci.md", "yaml"))
    second = copy.deepcopy(first) | {"name": "qualm-fuzz"}
    (job,) = second["jobs"].values()
    steps, (cache, *others) = job["steps"], further
    clone = [step.get("run", "").find("git clone ") > 0 for step in steps].index(True)
    expect("qualm check" in steps[-2]["run"] and "upload" in steps[-1]["uses"], "docs/ci.md: what the others replace")
    job["steps"] = steps[:clone] + [cache] + steps[clone:-2] + others
    return first, second


def test_workflows(yaml, built, top):
    """Good kernels pass; a new bug fails; the same bug, accepted, passes."""
    for document in workflows_of_ci(yaml):
        workflow = Workflow(document)
        place = Place(top / workflow.name, built, bug=False)
        place.make()
        place.run(["sh", "-c", BASELINE])
        status, output = workflow.run(place)
        expect(status == 0, f"{workflow.name}: good kernels: status {status}\n{output}")
        place.kernels(bug=True)
        status, output = workflow.run(place)
        expect(status == 1 and "FINDING" in output, f"{workflow.name}: a new bug: status {status}\n{output}")
        for path in paths_of_artifacts(workflow):
            expect((place.folder / path).exists(), f"{workflow.name}: uploads {path}, which is not there")
        place.run(["sh", "-c", BASELINE])
        status, output = workflow.run(place)
        expect(status == 0 and "known" in output, f"{workflow.name}: a known bug: status {status}\n{output}")
        if workflow.name == "qualm-fuzz":
            inherits(workflow, place)


def inherits(workflow, place):
    """A campaign starts from the inputs of the one before, which the CI has kept."""
    kept = {path.name for path in (place.folder / "qualm-before/corpus").rglob("*") if path.is_file()}
    expect(kept, "qualm-fuzz: the campaign before kept inputs")
    expect((place.folder / "qualm-fuzz").is_dir(), "qualm-fuzz: the next campaign has a folder of its own")
    (cache,) = [step["with"] for step in workflow.job["steps"] if step.get("with", {}).get("path") == "qualm-fuzz"]
    expect(cache["key"].startswith(cache["restore-keys"]), "qualm-fuzz: a campaign that is kept is found again")


def test_slurm(built, top):
    """What sbatch reads, and that a task has time for more than its campaign. The commands themselves are run by
    tools/campaigns_page_test.cc, and the tasks are merged there."""
    (text,) = [text for text in blocks("docs/campaigns.md", "sh") if "#SBATCH" in text]
    options = dict(re.findall(r"--([\w-]+)=(\S+)", re.search(r"^#SBATCH (.*)$", text, re.MULTILINE)[1]))
    expect(re.fullmatch(r"0-\d+", options.get("array", "")), f"Slurm: --array={options.get('array')}")
    hours, minutes, _ = (int(part) for part in options["time"].split(":"))
    campaign = int(re.search(r"--time (\d+)h", text)[1])
    expect(hours * 60 + minutes > campaign * 60, "Slurm: ends a task before its campaign ends")
    expect(f"--jobs {options['cpus-per-task']} " in text, "Slurm: as many jobs as processors")
    place = Place(top / "slurm", built, bug=True)
    place.make()
    (place.folder / "job.sh").write_text(shorter(text))
    done = place.run(["sh", "job.sh"], SLURM_ARRAY_TASK_ID="3", SLURM_ARRAY_TASK_COUNT="64", SLURM_ARRAY_TASK_MIN="0")
    expect(done.returncode == 1 and "--shard 3/64" in done.stdout, f"Slurm: task 3: status {done.returncode}\n{done.stdout}")
    expect((place.folder / "shard-3/index.html").exists(), "Slurm: task 3 has a state of its own")


def test_kubernetes(yaml, built, top):
    (text,) = [text for text in blocks("docs/campaigns.md", "yaml") if "kind: Job" in text]
    job = yaml.safe_load(text)
    expect((job["apiVersion"], job["kind"]) == ("batch/v1", "Job"), "Kubernetes: a Job of batch/v1")
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    expect(spec["completionMode"] == "Indexed", "Kubernetes: without an index every pod is shard 0")
    expect(1 <= spec["parallelism"] <= spec["completions"], "Kubernetes: parallelism")
    expect(pod["restartPolicy"] in ("OnFailure", "Never"), "Kubernetes: a Job takes no other restartPolicy")
    (container,) = pod["containers"]
    expect({mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]},
           "Kubernetes: each volume is mounted")
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    expect(variables.get("JOB_COMPLETIONS") == str(spec["completions"]), "Kubernetes: JOB_COMPLETIONS is completions")

    place = Place(top / "kubernetes", built, bug=True)
    place.make()
    (mount,) = container["volumeMounts"]
    state = place.folder / "volume"
    state.mkdir()
    command = [shorter(word.replace(f"{mount['mountPath']}/", f"{state}/")) for word in container["command"]]

    def pod_of(index):
        return variables | {"JOB_COMPLETION_INDEX": str(index)}

    for index in (0, 5):
        done = place.run(command, **pod_of(index))
        expect(done.returncode == 0 and "FINDING" in done.stdout, f"Kubernetes: pod {index}: status {done.returncode}\n{done.stdout}")
        expect(f"--shard {index}/{spec['completions']}" in done.stdout, f"Kubernetes: pod {index} is another shard\n{done.stdout}")
    restarted(place, command, pod_of(7), state)
    done = place.run(["sh", "-c", f"qualm merge {state}/shard-* --state all && qualm report all"])
    rows = list((place.folder / "all/findings").glob("*"))
    expect(done.returncode in (0, 1) and len(rows) == 1, f"Kubernetes: merged: {done.returncode}, {rows}\n{done.stdout}")
    expect((place.folder / "all/index.html").exists(), "Kubernetes: the merged campaign has a page")


def restarted(place, command, variables, state):
    """The node dies; the same pod starts again and goes on in the same folder. The first fault is waited for, however
    long a busy machine takes. A pod that ends between two looks is not killed; what it found must stay all the same."""
    folder = state / f"shard-{variables['JOB_COMPLETION_INDEX']}"
    say("kubernetes: a pod that will be killed")
    with open(place.folder / "killed.txt", "w+") as said:
        pod = subprocess.Popen(command, cwd=place.folder, env=place.environment | variables,
                               start_new_session=True, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        end = time.monotonic() + 1200  # of a pod that will never find one
        while pod.poll() is None and not faults_in(folder) and time.monotonic() < end:
            time.sleep(0.05)
        if pod.poll() is None:
            os.killpg(pod.pid, signal.SIGKILL)
            pod.wait()
        said.seek(0)
        output = said.read()
    say(f"kubernetes: it ended with status {pod.returncode}")
    before = faults_in(folder)
    done = place.run(command, **variables)
    expect(done.returncode == 0, f"Kubernetes: a pod that was killed: status {done.returncode}\n{done.stdout}")
    expect(before and before <= faults_in(folder), f"Kubernetes: a kill lost a fault of {before}, there are "
           f"{faults_in(folder)}\nbefore the kill:\n{output}\nafter it:\n{done.stdout}")


def faults_in(state):
    """A folder with a dot is one that is being written."""
    return {path.parent.name for path in (state / "findings").glob("[!.]*/minimized.case.json")}


def test_committed(yaml):
    """Every other YAML file of the tree is one document."""
    listed = subprocess.run(["git", "ls-files", "-z", "*.yml", "*.yaml"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    for name in listed.stdout.split("\0"):
        if name:
            expect(isinstance(yaml.safe_load((ROOT / name).read_text()), dict), f"{name}: no document")


def main():
    global runs
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="the build folder")
    parser.add_argument("--runs", type=int, default=runs, help="executions that hours and minutes of fuzzing become")
    arguments = parser.parse_args()
    built = arguments.bin.resolve()
    runs = arguments.runs
    try:
        import yaml
    except ImportError:
        print("skipped: no PyYAML (Debian's python3-yaml)")
        return 77
    if not shutil.which("cc"):
        print("skipped: no C compiler cc")
        return 77
    with tempfile.TemporaryDirectory(prefix="qualm-recipes-") as top:
        top = pathlib.Path(top)
        test_committed(yaml)
        test_workflows(yaml, built, top)
        test_slurm(built, top)
        test_kubernetes(yaml, built, top)
    print(f"{len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
