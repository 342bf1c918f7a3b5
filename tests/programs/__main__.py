"""Whole programs of JAX's users, unchanged, on the embedded cluster and beside plain CPU devices: `make programs`.

Each prints what it found, such as its losses; the lines must be the same on both sides. Prints the table that
docs/programs.md has. `python tests/programs NAME...` runs some. The cluster is one of its own, which ends with it.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
LIMIT_SECONDS = 3600
SLICES = "tpuv6e:2x2=2"
PATHWAYS = [sys.executable, "-m", "pathways_jupyter"]
INJECTION = ["elastic", "inject", "slice-down", "0", "--for", "20s"]


@dataclass(frozen=True)
class Program:
    """One program.

    Attributes:
      packages: The first is what it is about.
      arguments: Of Python; the script of its name by default.
      own: Arguments for plain CPU devices, and for the embedded cluster.
      line: What the lines that count look like; its groups are what counts of them.
      fault: What the line looks like at which the cluster loses a slice for 20 s. The program computes some lines again
        then.
      tolerance: How much the last number of a line may differ from plain CPU devices'.
    """

    name: str
    packages: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    own: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    line: str = ".+"
    fault: str = ""
    tolerance: float = 0.0

    def run(self, on_cluster: bool) -> tuple[list[str], float, str]:
        """Return the lines that count, the seconds that it took, and what is wrong with its end."""
        arguments = self.arguments or (str(HERE / f"{self.name}.py"),)
        command = [sys.executable, *arguments, *self.own[on_cluster]]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        if on_cluster:
            command = [*PATHWAYS, "run", "-q", "--local", "--tpu", SLICES, "--wait", "60", "--", *command]
        else:
            environment |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as directory:
            code, output = self._watched(command, environment, directory, self.fault if on_cluster else "")
        found = [match for line in output if (match := re.search(self.line, line))]
        lines = [" ".join(match.groups() or [match[0]]) for match in found]
        last = "\n".join(line.rstrip()[:300] for line in output[-60:])
        wrong = "" if code == 0 and lines else f"exit code {code}:\n{last}"
        return lines, time.monotonic() - began, wrong

    def _watched(
        self, command: list[str], environment: dict[str, str], directory: str, fault: str
    ) -> tuple[int, list[str]]:
        """Return the exit code and the lines of a program that loses a slice at the line that looks like `fault`."""
        injections: list[subprocess.Popen[bytes]] = []
        output = []
        with subprocess.Popen(
            command, env=environment, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            limit = threading.Timer(LIMIT_SECONDS, process.kill)
            limit.start()
            assert process.stdout
            for line in process.stdout:
                output.append(line)
                if fault and not injections and re.search(fault, line):
                    injections.append(subprocess.Popen([*PATHWAYS, *INJECTION], env=environment))
            limit.cancel()
        failed = any(injection.wait() for injection in injections) or (fault and not injections)
        return (process.returncode or int(bool(failed))), output


def maxtext(
    name: str = "maxtext",
    steps: int = 10,
    here: tuple[str, ...] = ("dcn_data_parallelism=2",),
    fault: str = "",
) -> Program:
    """Two small layers over two slices, with MaxText's own synthetic data; `here` are its options on the cluster."""
    sizes = {
        "base_emb_dim": 64,
        "base_mlp_dim": 128,
        "base_num_decoder_layers": 2,
        "base_num_kv_heads": 2,
        "base_num_query_heads": 2,
        "head_dim": 32,
        "max_target_length": 64,
        "per_device_batch_size": 1,
        "steps": steps,
        "vocab_size": 512,
    }
    package = find_spec("maxtext")
    places = package.submodule_search_locations if package else None
    configuration = Path(places[0] if places else "") / "configs" / "base.yml"
    plain = {
        "attention": "dot_product",
        "dataset_type": "synthetic",
        "enable_goodput_recording": "false",
        "gcs_metrics": "false",
        "log_config": "false",
        "run_name": "tiny",
        "skip_jax_distributed_system": "true",
    }
    without_checkpoints = ("enable_checkpointing=false", "base_output_directory=.")
    return Program(
        name,
        ("maxtext",),
        (
            *("-m", "maxtext.trainers.pre_train.train", str(configuration)),
            *(f"{option}={value}" for option, value in {**sizes, **plain}.items()),
        ),
        (
            ("hardware=cpu", "ici_fsdp_parallelism=8", *without_checkpoints),
            ("enable_single_controller=true", *(() if fault else without_checkpoints), *here),
        ),
        r"completed step: (\d+),.* (loss: [\d.]+),",
        fault,
        # The last digit that it prints: sums over two slices are made in another order.
        0.0011,
    )


ELASTIC = (
    *("elastic_enabled=true", "elastic_backup_kind=checkpoint", "elastic_min_slice_count=1"),
    *("dcn_data_parallelism=-1", "enable_checkpointing=true", "checkpoint_period=60"),
    "base_output_directory=gs://pathways-local/maxtext",
)
"""MaxText's own elastic training: it goes on with one slice from a checkpoint in the bucket, and takes two again.

The slice is lost between two checkpoints: MaxText deletes one that is being written, while Orbax goes on writing it.
"""

PROGRAMS = [
    Program("flax_nnx", ("flax", "optax"), line=r"^\d+ [\d.]+$"),
    Program("optax_optimizers", ("optax",), line=r"^(adafactor|lion|muon|l-bfgs) [\d.]+$"),
    Program("diffrax_equation", ("diffrax", "equinox"), line=r"^(end|gradient) [-\d.]+$"),
    Program("numpyro_sampling", ("numpyro",), line=r"^(noise|offset|slope) .+$"),
    Program("orbax_checkpoints", ("orbax-checkpoint",), line=r"^(kept|rows) .+$"),
    Program("pathways_plugins", ("pathwaysutils",), line=r"^(read|moved) .+$"),
    maxtext(),
    maxtext("maxtext_elastic", 500, ELASTIC, "completed step: 80,"),
]


def same(expected: list[str], found: list[str], tolerance: float) -> bool:
    """Say whether two lists of lines are equal but for their last numbers, which may differ by `tolerance`."""
    if not tolerance or len(expected) != len(found):
        return expected == found
    pairs = [(one.rsplit(" ", 1), other.rsplit(" ", 1)) for one, other in zip(expected, found, strict=True)]
    return all(one[0] == other[0] and abs(float(one[1]) - float(other[1])) < tolerance for one, other in pairs)


def compared(program: Program) -> tuple[str, str]:
    """Run a program on both sides; return its row of the table, and what is wrong."""
    (expected, plain_seconds, plain_wrong), (found, seconds, wrong) = program.run(False), program.run(True)
    # With fewer slices MaxText's batch is smaller, so the values are others from the first line that is computed again.
    steps = [line.split()[0] for line in found]
    alike = next((i for i, step in enumerate(steps) if step in steps[:i]), len(steps)) if program.fault else len(steps)
    compared_with = expected[:alike] if program.fault else expected
    if not (wrong := plain_wrong or wrong) and not same(compared_with, found[:alike], program.tolerance):
        wrong = f"plain: {expected}\nhere:  {found}"
    if program.fault and not wrong and (alike == len(found) or steps[-1] != expected[-1].split()[0]):
        wrong = f"It computed nothing again, or did not end: {steps}"
    versions = ", ".join(f"{name} {version(name)}" for name in program.packages)
    verdict = "**no**" if wrong else ("until the loss, " if program.fault else "all ") + f"{alike} lines"
    return f"| {program.name} | {versions} | {verdict} | {plain_seconds:.0f} s, {seconds:.0f} s |", wrong


def main(names: list[str]) -> int:
    print(f"Python {platform.python_version()}, JAX {version('jax')}.\n")
    print("| program | versions | the same as on plain CPU devices | time, plain and here |\n| --- | --- | --- | --- |")
    problems = []
    # Short: the path of a unix socket has 108 characters at most.
    with tempfile.TemporaryDirectory(prefix="p", ignore_cleanup_errors=True) as runtime:
        os.environ["JUPYTER_RUNTIME_DIR"] = runtime
        try:
            for program in PROGRAMS:
                if not names or program.name in names:
                    row, wrong = compared(program)
                    print(row, flush=True)
                    problems += [f"{program.name}: {wrong}"] if wrong else []
        finally:
            subprocess.run([*PATHWAYS, "local", "down", "--yes"], check=True)
    print(*problems, sep="\n\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
