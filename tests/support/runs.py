"""Runs of commands on the hosts of a farm, and what they report."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from pathways_jupyter.multihost import run as runs
from pathways_jupyter.multihost.run_events import Changed, HostPhase, Note, Output, RunEnded
from pathways_jupyter.multihost.targets import Selection

DEADLINE = 60.0


@dataclass
class Watched:
    """Events that a run has reported so far."""

    runner: runs.Runner | None = None
    lines: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    phases: dict[str, list[HostPhase]] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    ended: RunEnded | None = None

    def take(self, event):
        if isinstance(event, runs.Runner):
            self.runner = event
        elif isinstance(event, Output):
            self.lines.setdefault(event.status.target.label, []).extend(event.lines)
        elif isinstance(event, Note):
            self.notes.append(event.text)
        elif isinstance(event, Changed):
            self.phases.setdefault(event.status.target.label, []).append(event.status.phase)
            self.sent[event.status.target.label] = event.status.total
        elif isinstance(event, RunEnded):
            self.ended = event

    @property
    def run(self):
        return self.runner.run

    @property
    def code(self):
        return self.ended.code

    def status(self, label):
        return next(each for each in self.ended.hosts if each.target.label == label)

    def log(self, number=0):
        return self.run.log(self.run.targets[number]).read_bytes()


class Lab:
    """Runs commands on the hosts of a farm, with this machine's files in a directory of the test."""

    def __init__(self, farm, directory):
        self.farm, self.directory = farm, directory
        self.code = directory / "code"
        self.code.mkdir()
        (self.code / "main.py").write_text("print('hello')\n")
        self.names = 0

    def selection(self, count=None, **given):
        chosen = self.farm.hosts[:count]
        values = {
            "hosts": ",".join(f"127.0.0.1:{host.port}" for host in chosen),
            "keys": (str(self.farm.key),),
            "known_hosts": str(self.farm.known_hosts),
        }
        return Selection(**{**values, **given})

    async def events(self, command, count=2, selection=None, **request):
        given = {"directory": self.code, "logs": self.directory / "logs", "grace": 0.5, **request}
        started = runs.start(selection or self.selection(count), runs.RunRequest(command, **given))
        async with contextlib.aclosing(started) as events:
            async for event in events:
                yield event

    async def run(self, command, count=2, *, until=None, **request):
        """Run to the end, or until `until` is true of what was reported."""
        seen = Watched()
        async with asyncio.timeout(DEADLINE):
            events = self.events(command, count, **request)
            try:
                async for event in events:
                    seen.take(event)
                    if until is not None and until(seen):
                        break
            finally:
                await events.aclose()
        return seen

    def commands(self):
        """The shells that run the commands on the hosts."""
        every = [each for host in self.farm.hosts for each in host.processes("PATHWAYS_MULTIHOST_RUN")]
        # Not each.name(), which psutil remembers from before the shell replaced the keeper's copy.
        found = []
        for each in every:
            with contextlib.suppress(OSError):
                if Path(f"/proc/{each.pid}/comm").read_text().strip() == "bash":
                    found.append(each)
        # Without the copies of a shell that are about to become what it runs.
        shells = {each.pid for each in found}
        commands = []
        for each in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                if each.ppid() not in shells:
                    commands.append(each)
        return commands
