"""``accept``: the checks of this package on a user's cluster; and ``demo``: some of them on one of its own."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from pathways_jupyter.accept import plan, report
from pathways_jupyter.accept.acceptance import Acceptance, private_runtime_directory
from pathways_jupyter.accept.plan import Broken, CheckResult, Outcome
from pathways_jupyter.accept.report import Report
from pathways_jupyter.actions import cluster
from pathways_jupyter.actions.doctor import examine
from pathways_jupyter.actions.shell import INTERRUPTED, Action, LiveDisplay, Shell, Values
from pathways_jupyter.base import tasks
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.sentences import worded
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.commands.accept import OWN
from pathways_jupyter.kube.client import Client
from pathways_jupyter.render import checks as render
from pathways_jupyter.render import text
from pathways_jupyter.render.view import View
from pathways_jupyter.service import discovery, status
from pathways_jupyter.session import clusters

_MOST_SLICES = 2
_DEMO = ("compute", "all-reduce", "interruption", "slice-lost", "elastic")
_DEMO_SLICES = {"tpuv6e:2x2": 2}
_DEMO_IDLE_SECONDS = 300.0
_END_SECONDS = 10.0
_NEXT = "  In a notebook: %load_ext pathways_jupyter, then %pathways connect --local"


def accept(shell: Shell, values: Values) -> View:
    """Run the checks, and write the report.

    Raises:
      ConfigError: An option is invalid, or the report cannot be written; nothing was done.
      CapacityError: No slice is free.
    """
    destructive = bool(values.get("destructive"))
    left_out = plan.choose(values.get("only", ()), values.get("skip", ()), destructive=destructive)
    if values.get("dry_run"):
        return render.planned(left_out)
    own = {option.name for option in OWN}
    path = _report_path(values)
    requested = cluster.resolve({name: value for name, value in values.items() if name not in own})
    with cluster.Located(requested, confirm=shell.confirm if shell.can_answer else None) as config:
        # The checks connect one after the other.
        pass
    config = dataclasses.replace(config, relay=config.relay is not False)
    reached = tasks.run(clusters.resolve(config))
    config = clusters.ask(config, lambda *where: _sized(config, *where))
    shell.say(f"The checks use {text.instances(config.instances)}; their report will be {path}.")
    if destructive and not values.get("yes"):
        if not shell.can_answer:
            raise ConfigError("Taking a slice down needs an answer, and there is no terminal.", hint="Add --yes.")
        shell.confirm("Kill the workers of a slice of the checks' own session, twice? Kubernetes replaces them.")

    # In the user's own runtime directory, where sessions may have left something.
    findings = () if "doctor" in left_out else examine(config, faults=destructive)

    def doctor() -> Iterator[str]:
        failed = [each for each in findings if each.level is Tone.FAIL]
        for each in findings:
            # The permissions that there are would be half of the list.
            if each not in failed and (each.level is Tone.WARN or not each.name.startswith("permission ")):
                yield f"{each.level} {each.name}: {each.message}"
        if failed:
            raise Broken(" ".join(f"{each.name}: {each.message} {worded(each.hint, shell.face)}" for each in failed))

    with private_runtime_directory(), shell.live(lambda: None) as live:
        made = _run(shell, live, Acceptance(config, left_out, doctor))
    made = report.publishable(made, config, reached)
    path.write_text(report.markdown(made, render.verdict(made)), encoding="utf-8")
    return _view(made, f"  The report: {path}")


def demo(shell: Shell, values: Values) -> View:
    """Start a cluster on this machine, run some of the checks there, and end it."""
    from pathways_jupyter.local import cluster as embedded

    left_out = plan.choose(_DEMO, (), destructive=True)
    with private_runtime_directory(), shell.live(lambda: None) as live:
        live.line("Pathways on this machine: two slices of four TPU chips, simulated on CPUs")
        try:
            running = embedded.up(_DEMO_SLICES, name="demo", idle_seconds=_DEMO_IDLE_SECONDS, fast_heal=True)
            daemon = psutil.Process(running.pid)
            processes = [daemon, *daemon.children(recursive=True)]
            # Without the user's profile and environment.
            config = ConnectConfig(_DEMO_SLICES, kubeconfig=str(running.kubeconfig), local=True, relay=True)
            made = _run(shell, live, Acceptance(config, left_out))
        finally:
            embedded.down(name="demo")
        _, alive = psutil.wait_procs(processes, timeout=_END_SECONDS)
    left = (*made.left, *(f"process {each.pid}" for each in alive))
    return _view(dataclasses.replace(made, left=left), _NEXT)


def _run(shell: Shell, live: LiveDisplay, acceptance: Acceptance) -> Report:
    """Run the checks, and show each of them."""
    at, results, interrupted = time.time(), list[CheckResult](), False

    def end(result: CheckResult) -> None:
        results.append(result)
        if result.lines != (plan.NOT_CHOSEN,):
            live.line(render.ended(result))

    try:
        acceptance.run(begin=lambda check: shell.say(render.begun(check)), end=end)
    except KeyboardInterrupt:
        interrupted = True
        shell.say("Interrupted; what was created is being removed.")
        left_out = plan.CHECKS[len(results) :]
        results += [CheckResult(each.name, each.title, Outcome.SKIPPED, 0.0, ("interrupted",)) for each in left_out]
    left = tuple(acceptance.left())
    return Report(at, round(time.time() - at, 1), tuple(results), left, interrupted)


def _view(made: Report, more: str) -> View:
    code = INTERRUPTED if made.interrupted else int(made.failed)
    return dataclasses.replace(render.outcome(made, more), exit_code=code)


def _report_path(values: Values) -> Path:
    path = Path(values.get("report") or time.strftime("pathways-accept-%Y%m%d-%H%M%S.md"))
    # Not at the end of some minutes.
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(f"The report {path} cannot be written.", hint="Name another file with --report.")
    return path


async def _sized(config: ConnectConfig, client: Client, namespace: str) -> ConnectConfig:
    """Return `config` with slices: where it has none, at most two that are free."""
    if config.instances:
        return config
    service = await discovery.find(client, namespace, config.service)
    (model,) = await status.fetch(client, service.namespace, service.name)
    instances = {model.instance_type: max(1, min(_MOST_SLICES, model.free))}
    if not model.free:
        raise status.capacity_error(model, instances)
    return dataclasses.replace(config, service=service.name, namespace=service.namespace, instances=instances)


ACTIONS: Mapping[str, Action] = {"accept": accept, "demo": demo}
