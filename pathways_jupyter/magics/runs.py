"""What ``%%multihost`` and ``%pathways multihost`` do; imported by the first of them that is used."""

from __future__ import annotations

import contextlib
import shlex
import threading
import time
from collections.abc import Callable, Generator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pathways_jupyter import blocking, entry, interruptible
from pathways_jupyter.commands.multihost import LINE
from pathways_jupyter.magics import parser, queued
from pathways_jupyter.magics.screen import Screen
from pathways_jupyter.multihost import asked

if TYPE_CHECKING:
    from pathways_jupyter.multihost.records import Record
    from pathways_jupyter.multihost.run_events import HostStatus
    from pathways_jupyter.render.view import View

_REDRAW_SECONDS, _TICK_SECONDS = 0.3, 1.0


def line(screen: Screen, rest: str) -> Any:
    """Do what follows ``%pathways multihost`` on a line.

    Raises:
      ConfigError: The line cannot be parsed.
      PathwaysError: What it asks for failed.
    """
    from pathways_jupyter.render import help as picture

    before, separator, after = f"{rest} ".partition(" -- ")
    call = parser.parse(before, LINE)
    if call.help:
        return picture.command(call.command, "%pathways multihost")
    if call.command.name == "help":
        wanted = call.values.get("command")
        if wanted is None:
            return picture.overview(LINE, "%pathways multihost")
        if wanted not in LINE:
            raise parser.unknown(wanted, LINE)
        return picture.command(LINE[wanted], "%pathways multihost")
    if call.command.name == "run":
        words = shlex.split(after) if separator else []
        return run(screen, call.values, asked.shell(words) if words else "")
    return _ACTIONS[call.command.name](screen, call.values)


def run(screen: Screen, values: Mapping[str, Any], command: str) -> View | None:
    """Run `command` on the hosts that `values` name, and show it until its end; return what a dry run found.

    Raises:
      PathwaysError: It could not start, or a host failed.
    """
    from pathways_jupyter.multihost import host_connections, run_actions
    from pathways_jupyter.render import multihost as picture

    request = asked.request(values, command)
    found = blocking.run(host_connections.find(entry.hosts_wanted(values)))
    if values.get("dry_run"):
        packed, reports = blocking.run(run_actions.examine(found, request))
        return picture.reports(reports, packed, command)
    connections = host_connections.here()
    events = blocking.iterate(lambda: run_actions.start(found, request, connections), connections.background)
    _follow(screen, events, None)
    return None


class _Table:
    """The table of a run's hosts on the screen, drawn by a thread of its own: times go on while no host says anything.

    Attributes:
      record: The run, once it is known.
      hosts: Its hosts by label; replaced, never changed, so that the thread sees a whole one.
    """

    def __init__(self, screen: Screen, record: Record | None) -> None:
        self.record = record
        self.hosts: dict[str, HostStatus] = {}
        self._screen = screen
        self._place = screen.place() if screen.in_place else None
        self._over = interruptible.Event()
        self._thread = threading.Thread(target=self._draw, name="pathways-multihost", daemon=True)

    def __enter__(self) -> _Table:
        if self._place is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def finish(self, view: View) -> None:
        """Replace the table by the last one."""
        self._stop()
        self._place.draw(view) if self._place is not None else self._screen.line(view.text)

    def lines(self, label: str, lines: tuple[str, ...]) -> None:
        """Show new output: in a notebook its last line is in the table."""
        from pathways_jupyter.render import multihost as picture

        self.hosts = {**self.hosts, label: picture.with_last_line(self.hosts[label], lines)}
        for text in lines if self._place is None else ():
            self._screen.line(f"[{label}] {text}")

    def _stop(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _draw(self) -> None:
        from pathways_jupyter.render import multihost as picture

        drawn, at = self.hosts, 0.0
        while not self._over.wait(_REDRAW_SECONDS):
            hosts, now = self.hosts, time.monotonic()
            if self._place is None or self.record is None or not hosts:
                continue
            if hosts is not drawn or now - at > _TICK_SECONDS:
                drawn, at = hosts, now
                self._place.draw(picture.hosts(self.record, list(hosts.values())))


def _follow(screen: Screen, events: Generator[Any, None, None], record: Record | None) -> None:
    """Show a run until its end, and at last its table with the logs.

    Raises:
      MultihostError: A host failed.
    """
    from pathways_jupyter.multihost import run_actions
    from pathways_jupyter.multihost.errors import MultihostError
    from pathways_jupyter.multihost.records import Record
    from pathways_jupyter.multihost.run_events import Changed, Ended, Note, Output
    from pathways_jupyter.render import multihost as picture

    with contextlib.closing(events), _Table(screen, record) as table:
        try:
            for event in events:
                if isinstance(event, Record):
                    table.record = event
                elif isinstance(event, Note):
                    screen.line(event.text)
                elif isinstance(event, Changed):
                    table.hosts = {**table.hosts, event.status.target.label: event.status}
                elif isinstance(event, Output):
                    table.lines(event.target.label, event.lines)
                elif isinstance(event, Ended):
                    assert table.record is not None
                    table.finish(picture.hosts(table.record, event.hosts, logs=True))
                    if event.code:
                        name = table.record.name
                        raise MultihostError(
                            f"Run {name} ended with exit code {event.code}.",
                            hint=f"%pathways multihost logs {name} shows the output.",
                        )
        except KeyboardInterrupt:
            # Closed first: the run ends on the hosts by it, and the last table shall say so.
            events.close()
            if table.record is not None:
                hosts = run_actions.last_known(table.record)
                table.finish(picture.hosts(table.record, hosts, logs=True) if hosts else picture.nothing_started())
            raise


def _attach(screen: Screen, values: Mapping[str, Any]) -> None:
    from pathways_jupyter.multihost import records, run_actions

    record = records.find(values.get("run", ""))
    _follow(screen, blocking.iterate(lambda: run_actions.attach(record)), record)


def _status(screen: Screen, values: Mapping[str, Any]) -> View:
    from pathways_jupyter.multihost import records, run_actions
    from pathways_jupyter.render import multihost as picture

    record = records.find(values.get("run", ""))
    return picture.hosts(record, blocking.run(run_actions.status(record)), logs=True)


def _runs(screen: Screen, values: Mapping[str, Any]) -> View:
    from pathways_jupyter.multihost import records
    from pathways_jupyter.render import multihost as picture

    return picture.runs(records.runs())


def _logs(screen: Screen, values: Mapping[str, Any]) -> None:
    from pathways_jupyter.multihost import output, records, run_actions, targets

    record = records.find(values.get("run", ""))
    wanted = values.get("host")
    chosen = (targets.choose(record.targets, wanted),) if wanted else record.targets
    blocking.run(run_actions.fetch(record))
    for target in chosen:
        for text in output.tail(record.log(target), entry.whole_number("--tail", values.get("tail", 100))):
            screen.line(text if len(chosen) == 1 else f"[{target.label}] {text}")


def _stop(screen: Screen, values: Mapping[str, Any]) -> View:
    from pathways_jupyter.multihost import records, run_actions
    from pathways_jupyter.render import multihost as picture

    record = records.find(values.get("run", ""))
    return picture.hosts(record, blocking.run(run_actions.stop(record)))


def _hosts(screen: Screen, values: Mapping[str, Any]) -> View:
    from pathways_jupyter.multihost import host_connections, run_actions
    from pathways_jupyter.render import multihost as picture

    found = blocking.run(host_connections.find(entry.hosts_wanted(values)))
    _, reports = blocking.run(run_actions.examine(found))
    return picture.reports(reports)


_ACTIONS: Mapping[str, Callable[[Screen, Mapping[str, Any]], Any]] = {
    "attach": _attach,
    "status": _status,
    "runs": _runs,
    "logs": _logs,
    "stop": _stop,
    "hosts": _hosts,
    "create": queued.create,
    "list": queued.list_,
    "wait": queued.wait,
    "delete": queued.delete,
}
