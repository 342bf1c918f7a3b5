"""Elastic training in a PathwaysJob, from its start to its end: lose a slice, go on with the others, get it back.

    python examples/elastic/end_to_end.py --local

The job has three slices, of which one may be missing. When it trains, the worker of one slice is killed and its node
cordoned; training continues on two slices. Then the node takes pods again, and training grows to three. At last the job
is deleted, and the steps at which the number of slices changed are printed.

On a real cluster: `--context NAME --yes --image IMAGE --bucket gs://BUCKET`, with an image that has JAX, pathwaysutils
and pathways_jupyter.
"""

import argparse
import contextlib
import json
import random
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent
SLICES = re.compile(r"\bstep=\d+ .*\belastic_manager\.good_slice_count=(\d+)")
LONGEST_SECONDS = 900


def manifest(name, image, bucket):
    """Return the job: three slices, of which one may be missing."""
    program = {"name": "main", "image": image, "command": ["python", "-c", (HERE / "train.py").read_text("utf-8")]}
    return {
        "apiVersion": "pathways-job.pathways.domain/v1",
        "kind": "PathwaysJob",
        "metadata": {"name": name},
        "spec": {
            "maxRestarts": 0,
            "workers": [{"type": "ct6e-standard-4t", "topology": "2x2", "numSlices": 3, "maxSliceRestarts": 2}],
            "pathwaysDir": bucket,
            "controller": {
                "deploymentMode": "default",
                "elasticSlices": 1,
                "template": {"spec": {"containers": [program]}},
            },
        },
    }


class Log:
    """The log of the job's program, written to a file while it grows."""

    def __init__(self, command, path):
        self._command = command
        self._path = path
        self._slices = []
        self._changed = threading.Condition()
        self._process = None
        self._over = False
        threading.Thread(target=self._read, daemon=True).start()

    def until(self, slices, steps=5):
        """Wait until the newest `steps` steps ran on that many slices."""
        with self._changed:
            done = self._changed.wait_for(lambda: self._slices[-steps:] == [slices] * steps, LONGEST_SECONDS)
        if not done:
            raise SystemExit(f"No {steps} steps on {slices} slices within {LONGEST_SECONDS} s; see {self._path}.")

    def close(self):
        """Stop reading."""
        self._over = True
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def _read(self):
        with self._path.open("w", encoding="utf-8") as file:
            while not self._over:
                # Until the job's pod runs there is no log; then this follows it.
                self._process = subprocess.Popen(
                    self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
                )
                for line in self._process.stdout:
                    file.write(line)
                    file.flush()
                    if found := SLICES.search(line):
                        with self._changed:
                            self._slices = [*self._slices[-99:], int(found[1])]
                            self._changed.notify_all()
                self._process.wait()
                time.sleep(0.5)


def main():
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--name", default="pathways-elastic")
    parser.add_argument("--local", action="store_true", help="on the embedded cluster, which must run")
    parser.add_argument("--context", help="context in the kubeconfig")
    parser.add_argument("--image", default="python:3.12", help="any, on the embedded cluster")
    parser.add_argument("--bucket", default="gs://bucket/tmp")
    parser.add_argument("--yes", action="store_true", help="kill a worker of a real cluster")
    parser.add_argument("--log", type=Path, default=Path("elastic.log"))
    given = parser.parse_args()
    place = ["--local"] if given.local else ["--context", given.context] if given.context else []

    def pathways(*words, stdin=""):
        command = [sys.executable, "-m", "pathways_jupyter", *words, *place]
        return subprocess.run(command, input=stdin, text=True, check=True)

    pathways("job", "apply", "-", stdin=json.dumps(manifest(given.name, given.image, given.bucket)))
    follow = [sys.executable, "-m", "pathways_jupyter", "job", "logs", given.name, "--follow"]
    log = Log([*follow, *place], given.log)
    try:
        log.until(3)
        target = ["--job", given.name, *(["--yes"] if given.yes else [])]
        pathways("elastic", "inject", "slice-down", str(random.randrange(3)), "--for", "10m", *target)
        log.until(2)
        pathways("elastic", "heal", "--job", given.name)
        log.until(3)
    finally:
        log.close()
        with contextlib.suppress(subprocess.CalledProcessError):
            pathways("job", "delete", given.name, "--yes")
    subprocess.run(["awk", "-f", str(HERE / "slice_changes.awk"), str(given.log)], check=True)


if __name__ == "__main__":
    main()
