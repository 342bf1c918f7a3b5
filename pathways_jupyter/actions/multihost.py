"""``multihost``: a command on many hosts from its start to its end."""

from __future__ import annotations

import contextlib
import functools
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from pathways_jupyter.actions import cluster
from pathways_jupyter.actions.shell import Action, LiveDisplay, Shell, Values
from pathways_jupyter.base import outgoing, tasks
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.text import absolute_path, count, parse_seconds
from pathways_jupyter.multihost import host_connections
from pathways_jupyter.multihost import run as runs
from pathways_jupyter.multihost.errors import MultihostError
from pathways_jupyter.multihost.pack import pack
from pathways_jupyter.multihost.run import LEASE_SECONDS, LOG_FOLDER, Runner, RunRequest
from pathways_jupyter.multihost.run_events import Changed, Note, Output, RunEnded
from pathways_jupyter.multihost.targets import Selection
from pathways_jupyter.render import multihost as render
from pathways_jupyter.render.view import View, said

_HOST_OPTIONS = (
    *("hosts", "tpu_prefix", "job", "service"),
    *("user", "known_hosts", "accept_new", "internal_ip", "project", "zone", "keep_going"),
)


class RunFailed(MultihostError):
    """A run has ended, and not well; the exit code is the worst of its hosts."""

    def __init__(self, name: str, logs: Path, code: int) -> None:
        super().__init__(f"Run {name} ended with exit code {code}.", hint=f"The output is in {logs}.")
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
        return render.content(pack(directory, _excluded(values), [_log_folder(values)]))
    request = _request(values, command)
    connections = host_connections.here()
    runner: Runner | None = None

    def table() -> View | None:
        return None if runner is None else render.hosts(runner.run, runner.hosts)

    @contextlib.contextmanager
    def ending_said() -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt:
            left = [each for each in runner.hosts if not each.phase.over] if runner and runner.started else []
            if left:
                where = count(len(left), "host")
                shell.say(f"Interrupted. Ending the run on {where}, which may take {request.grace:g} s …")
            raise

    # Finding the hosts may take long, and is interrupted like the run itself.
    source = functools.partial(runs.start, _selection(values), request, connections)
    with shell.live(table) as live:
        try:
            with tasks.iterate(source, connections.background) as events, ending_said():
                last = None
                for event in events:
                    match event:
                        case Runner():
                            runner = event
                        case Note():
                            shell.say(event.text)
                        case Changed(status=now):
                            if not live.in_place and now.phase != last and not now.phase.over:
                                shell.say(f"[{now.target.label}] {now.phase} ...")
                            last = now.phase
                        case Output(status=now):
                            for line in event.lines:
                                live.line(f"[{now.target.label}] {line}")
                        case RunEnded():
                            assert runner is not None
                            live.finish(render.hosts(runner.run, event.hosts, logs=True))
                            if event.code:
                                raise RunFailed(runner.run.name, runner.run.logs, event.code)
        except KeyboardInterrupt:
            _leave(shell, live, runner)
            raise
    return None


def _leave(shell: Shell, live: LiveDisplay, runner: Runner | None) -> None:
    """Show what has become of a run that was interrupted, which has ended it."""
    if runner is None or not runner.started:
        nothing = "Interrupted; nothing was started."
        if live.in_place:
            # In the place of hosts that connect.
            live.finish(said(nothing))
        else:
            shell.say(nothing)
        return
    live.finish(render.hosts(runner.run, runner.hosts, logs=True))
    if not all(each.phase.over for each in runner.hosts):
        shell.say(f"Hosts that did not answer end it {LEASE_SECONDS:.0f} s after the connection was lost.")


def _selection(values: Values) -> Selection:
    """Return the hosts that the options name; starts nothing.

    Raises:
      ConfigError: A value is invalid.
      SessionError: There is no such session.
    """
    options = {name: values[name] for name in _HOST_OPTIONS if values.get(name)}
    if session := values.get("session"):
        record = cluster.find_session(session)
        held = {"job": record.pathways_job} if record.pathways_job else {"session": record.service}
        options |= {**held, "cluster": cluster.of_session(record)}
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
        free_chips=bool(values.get("free_chips")),
        grace=parse_seconds("--grace", values.get("grace", 10)),
    )


def _log_folder(values: Values) -> Path:
    return absolute_path(values.get("logs") or LOG_FOLDER)


def _excluded(values: Values) -> tuple[str, ...]:
    return tuple(values.get("exclude") or ())


ACTIONS: Mapping[str, Action] = {"multihost run": run}
