"""``multihost``: a command on many hosts from its start to its end, and the queued resources that make hosts."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from pathways_jupyter.actions import cluster
from pathways_jupyter.actions.shell import Action, LiveDisplay, Shell, Values
from pathways_jupyter.base import outgoing, tasks
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import parse_path, parse_seconds, parse_whole_number
from pathways_jupyter.multihost import host_connections, output, queued_resources, records, run_actions, targets
from pathways_jupyter.multihost.errors import MultihostError, UnknownRun
from pathways_jupyter.multihost.pack import pack
from pathways_jupyter.multihost.queued_resources import DEFAULT_RUNTIME, TIERS, Spec
from pathways_jupyter.multihost.records import RunRecord
from pathways_jupyter.multihost.run import LEASE_SECONDS, LOG_FOLDER, RunRequest
from pathways_jupyter.multihost.run_events import Changed, HostStatus, Note, Output, RunEnded
from pathways_jupyter.multihost.targets import Selection
from pathways_jupyter.render import multihost as picture
from pathways_jupyter.render.view import View, said

_HOST_OPTIONS = (
    *("hosts", "tpu_prefix", "job", "service"),
    *("user", "known_hosts", "accept_new", "internal_ip", "project", "zone", "keep_going"),
)


class RunFailed(MultihostError):
    """A run has ended, and not well; the exit code is the worst of its hosts."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(
            f"Run {name} ended with exit code {code}.",
            hint=advice("{multihost_logs:{name}} shows the output.", name=name),
        )
        self.exit_code = code


def run(shell: Shell, values: Values) -> View | None:
    """Send a directory to all hosts, and run the command of the line on them."""
    words = values.get("command", ())
    # A single word is a command for a shell already.
    return start(shell, values, words[0] if len(words) == 1 else shlex.join(words))


def start(shell: Shell, values: Values, command: str) -> View | None:
    """Run `command` on the hosts that the values name, and show it until its end; or return what would be sent.

    Raises:
      PathwaysError: It could not start, or a host failed.
    """
    if values.get("dry_run"):
        directory = outgoing.directory(values.get("directory", ""))
        return picture.content(pack(directory, _excluded(values), [_log_folder(values)]))
    request = _request(values, command)
    connections = host_connections.here()

    async def events() -> AsyncIterator[Any]:
        # Finding the hosts may take long, and is interrupted like the run itself.
        found = await host_connections.find(_selection(values))
        async with contextlib.aclosing(run_actions.start(found, request, connections)) as started:
            async for event in started:
                yield event

    _follow(shell, events, None, connections.background)
    return None


def attach(shell: Shell, values: Values) -> None:
    """Follow a run that was detached, or whose client has gone."""
    record = _record(values)
    _follow(shell, lambda: run_actions.attach(record), record, None)


def _follow(
    shell: Shell,
    source: Callable[[], AsyncIterator[Any]],
    record: RunRecord | None,
    background: tasks.Background | None,
) -> None:
    """Show a run until its end, and at last its table with the logs.

    Raises:
      RunFailed: A host failed.
    """
    hosts: dict[str, HostStatus] = {}
    last = None

    def table() -> View | None:
        return picture.hosts(record, list(hosts.values())) if record is not None and hosts else None

    with shell.live(table) as live:
        try:
            with tasks.iterate(source, background) as events:
                for event in events:
                    match event:
                        case RunRecord():
                            record = event
                        case Note():
                            shell.say(event.text)
                        case Changed(status=now):
                            label, phase = now.target.label, now.phase
                            # Replaced, never changed: the table is drawn by a thread, which must see a whole one.
                            hosts = {**hosts, label: now}
                            if not live.in_place and phase != last and not phase.over:
                                shell.say(f"[{label}] {phase} ...")
                            last = phase
                        case Output(status=now):
                            label = now.target.label
                            if label in hosts:
                                hosts = {**hosts, label: now}
                            for line in event.lines:
                                live.line(f"[{label}] {line}")
                        case RunEnded():
                            assert record is not None
                            _end(shell, live, record, event)
        except KeyboardInterrupt:
            _leave(shell, live, record)
            raise


def _end(shell: Shell, live: LiveDisplay, record: RunRecord, ended: RunEnded) -> None:
    """Show the last table of a run.

    Raises:
      RunFailed: A host failed.
    """
    # Read again: it has an end now.
    live.finish(picture.hosts(records.read(record.id), ended.hosts, logs=True))
    if ended.code is None:
        shell.say(_goes_on(record))
    elif ended.code:
        raise RunFailed(record.name, ended.code)


def _leave(shell: Shell, live: LiveDisplay, record: RunRecord | None) -> None:
    """Show what there is of a run that is no longer followed: one that ends with this command has ended by it."""
    try:
        latest = None if record is None else records.read(record.id)
    except UnknownRun:
        latest = None
    if latest is None or not latest.hosts:
        shell.say("Interrupted; nothing was started.")
        return
    live.finish(picture.hosts(latest, latest.hosts, logs=True))
    if not all(each.phase.over for each in latest.hosts):
        shell.say(_goes_on(latest))


def _goes_on(record: RunRecord) -> str:
    if record.detached:
        return advice("It goes on without this machine. Come back: {multihost_attach:{name}}", name=record.name)
    return advice(
        "Without a client, the hosts end it after {seconds} s. Come back before: {multihost_attach:{name}}",
        name=record.name,
        seconds=f"{LEASE_SECONDS:.0f}",
    )


def status(shell: Shell, values: Values) -> View:
    """Return the state of a run on each host."""
    record = _record(values)
    return picture.hosts(record, tasks.run(run_actions.refresh(record)), logs=True)


def runs(shell: Shell, values: Values) -> View:
    """Return the runs of this machine, the newest first."""
    return picture.runs(records.runs())


def logs(shell: Shell, values: Values) -> None:
    """Show the output of one host of a run, or of all."""
    record, host, lines = _record(values), values.get("host"), parse_whole_number("--tail", values.get("tail", 100))
    chosen = (targets.choose(record.targets, host),) if host else record.targets
    tasks.run(run_actions.refresh(record))
    for target in chosen:
        for line in output.tail(record.log(target), lines):
            shell.line(line if len(chosen) == 1 else f"[{target.label}] {line}", host=target.label, line=line)


def stop(shell: Shell, values: Values) -> View:
    """End a run on all hosts, and wait until it has ended."""
    record = _record(values)
    ended = tasks.run(run_actions.stop(record))
    failed = not all(each.phase.over and not each.message for each in ended)
    return dataclasses.replace(picture.hosts(record, ended, logs=True), exit_code=int(failed))


def create(shell: Shell, values: Values) -> View:
    """Ask for TPU VMs; return the queued resource."""
    spec = _spec(values)
    queued_resources.create(*_place(values), spec)
    return picture.queued(queued_resources.list_(*_place(values), spec.name))


def list_(shell: Shell, values: Values) -> View:
    """Return the queued resources of a zone, and their TPU VMs."""
    return picture.queued(queued_resources.list_(*_place(values), values.get("only", "")))


def wait(shell: Shell, values: Values) -> View:
    """Wait until a queued resource can be used; show each change."""
    longest = parse_seconds("--timeout", values.get("timeout", 3600))
    found = queued_resources.wait(
        *_place(values), values["name"], timeout=longest, changed=lambda now: shell.say(picture.queued_line(now))
    )
    return picture.queued([found])


def delete(shell: Shell, values: Values) -> View:
    """Delete a queued resource, after a question if TPU VMs would be deleted with it."""
    name, force, asynchronous = values["name"], bool(values.get("force")), bool(values.get("asynchronous"))
    if force and not values.get("yes"):
        question = queued_resources.question(*_place(values), name)
        if not shell.confirm(question):
            return said("Not deleted.")
    queued_resources.delete(*_place(values), name, force=force, asynchronous=asynchronous)
    done = f"{name} is being deleted." if asynchronous else f"{name} is deleted."
    return said(done, {"name": name, "deleted": not asynchronous})


def _record(values: Values) -> RunRecord:
    return records.find(values.get("run", ""))


def _place(values: Values) -> tuple[str, str]:
    return values.get("project", ""), values.get("zone", "")


def _selection(values: Values) -> Selection:
    """Return the hosts that the options name; starts nothing.

    Raises:
      ConfigError: A value is invalid.
      SessionError: There is no such session.
    """
    options = {name: values[name] for name in _HOST_OPTIONS if values.get(name)}
    if session := values.get("session"):
        record = cluster.find_session(session)
        options |= {"session": record.service, "cluster": cluster.of_session(record)}
    elif values.get("service") or values.get("job"):
        options["cluster"] = cluster.where({**values, "service": ""})
    return Selection(**options, keys=tuple(values.get("keys") or ()))


def _request(values: Values, command: str) -> RunRequest:
    """Return the run that `values` describe.

    Raises:
      ConfigError: There is no command, or values contradict each other.
    """
    if not command.strip():
        raise ConfigError("Which command?", hint="Write it after --, for example: -- python3 train.py.")
    if values.get("free_chips") and any(values.get(name) for name in ("service", "job", "session")):
        raise ConfigError(
            "The workers of a service or job hold its chips, and are not ended by a run.",
            hint="Leave --free-chips out.",
        )
    if values.get("existing") and not values.get("name"):
        raise ConfigError("Which existing folder?", hint="Name it with --run-name.")
    return RunRequest(
        command=command,
        directory=Path() if values.get("existing") else outgoing.directory(values.get("directory", "")),
        name=str(values.get("name") or ""),
        exclude=_excluded(values),
        send=not values.get("existing"),
        logs=_log_folder(values),
        keep_going=bool(values.get("keep_going")),
        detach=bool(values.get("detach")),
        free_chips=bool(values.get("free_chips")),
        grace=parse_seconds("--grace", values.get("grace", 10)),
    )


def _log_folder(values: Values) -> Path:
    return parse_path(values.get("logs") or LOG_FOLDER)


def _excluded(values: Values) -> tuple[str, ...]:
    return tuple(values.get("exclude") or ())


def _spec(values: Values) -> Spec:
    """Return the queued resource that `values` describe.

    Raises:
      ConfigError: A value is missing, or values contradict each other.
    """
    tiers = [tier for tier in TIERS if values.get(tier.replace("-", "_"))]
    if len(tiers) > 1:
        raise ConfigError(f"A queued resource has one tier, not {' and '.join(tiers)}.", hint="Leave one of them out.")
    if not values.get("accelerator"):
        raise ConfigError("Which TPU?", hint="Add --accelerator-type, for example v4-8.")
    nodes = parse_whole_number("--node-count", values.get("nodes") or 1)
    options = {name: values[name] for name in ("prefix", "network", "internal_only") if values.get(name)}
    runtime, tier = values.get("runtime") or DEFAULT_RUNTIME, tiers[0] if tiers else "on-demand"
    return Spec(values["name"], values["accelerator"], runtime, nodes=nodes, tier=tier, **options)


ACTIONS: Mapping[str, Action] = {
    "multihost run": run,
    "multihost attach": attach,
    "multihost status": status,
    "multihost runs": runs,
    "multihost logs": logs,
    "multihost stop": stop,
    "multihost create": create,
    "multihost list": list_,
    "multihost wait": wait,
    "multihost delete": delete,
}
