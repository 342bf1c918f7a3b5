"""Run the checks, one after the other, and see that nothing is left of their sessions, however they end."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psutil

from pathways_jupyter.accept.kernel_process import Kernel
from pathways_jupyter.accept.plan import CHECKS, CONNECT, DISCONNECT, Broken, Check, CheckResult, Outcome, outcome_of
from pathways_jupyter.base import tasks
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.service import abandoned
from pathways_jupyter.service.names import SESSION_LABEL
from pathways_jupyter.session import clusters, registry, sweep
from pathways_jupyter.session.registry import SessionRecord

_LEASE_SECONDS = 10.0
"""The shortest that a session may ask for."""
_WAIT_SECONDS = 60.0
"""Longest time that a session waits for the slices of the previous one."""
_LIFETIME_SECONDS = 2 * 3600.0
_GONE_SECONDS = 120.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 1.0
_RUNTIME = "JUPYTER_RUNTIME_DIR"
_KINDS = (objects.JOBS, objects.PODS, objects.LEASES)


@contextlib.contextmanager
def private_runtime_directory() -> Iterator[None]:
    """Keep the sessions apart from the user's own, whose programs would clean up after them; remove their files."""
    before = os.environ.get(_RUNTIME)
    with tempfile.TemporaryDirectory(prefix="pathways-", ignore_cleanup_errors=True) as directory:
        os.environ[_RUNTIME] = directory
        try:
            yield
        finally:
            if before is None:
                del os.environ[_RUNTIME]
            else:
                os.environ[_RUNTIME] = before


class Acceptance:
    """One run of the checks, in a runtime directory of its own.

    Args:
      config: What to connect to.
      left_out: Why checks do not run, by their names.
      doctor: The check of that name; it yields what it finds.
    """

    def __init__(
        self, config: ConnectConfig, left_out: Mapping[str, str], doctor: Callable[[], Iterator[str]] | None = None
    ) -> None:
        self.config = dataclasses.replace(
            config, job="", linger=0.0, at_least=0, wait=_WAIT_SECONDS, max_lifetime=_LIFETIME_SECONDS
        )
        self._left_out = left_out
        self._own = {"doctor": doctor, "kernel-killed": self._kernel_killed, "lease": self._lease}
        self._records: dict[str, SessionRecord] = {}
        self._kernels: list[Kernel] = []

    def run(self, *, begin: Callable[[Check], None], end: Callable[[CheckResult], None]) -> None:
        """Run all checks.

        Args:
          begin: Called with each check before it runs.
          end: Called with each result.

        Raises:
          KeyboardInterrupt: The sessions are being removed; see :meth:`left`.
        """
        kernel: Kernel | None = None
        try:
            for check in CHECKS:
                if check.name in self._left_out:
                    end(CheckResult(check.name, check.title, Outcome.SKIPPED, 0.0, (self._left_out[check.name],)))
                    continue
                if check.in_kernel and kernel is None:
                    kernel = self._kernel()
                begin(check)
                end(self._run(check, kernel))
        finally:
            self._note_records()
            for kernel in self._kernels:
                kernel.close()

    def left(self) -> list[str]:
        """Wait until nothing is left of any session; return what is left nevertheless."""
        # The supervisors clean up, also that of a session which was being made when it was interrupted.
        psutil.wait_procs([child for kernel in self._kernels for child in kernel.children], timeout=_GONE_SECONDS)
        self._note_records()
        tasks.run(sweep.sweep_dead())
        remains = []
        for record in self._records.values():
            try:
                self._until_nothing_is_left(record)
            except (Broken, PathwaysError) as error:
                remains.append(f"session {record.id}: {error}")
        return remains

    def _run(self, check: Check, kernel: Kernel | None) -> CheckResult:
        lines, outcome, began = list[str](), Outcome.PASSED, time.monotonic()
        try:
            for line in self._lines(check, kernel):
                lines.append(line)
        except Exception as error:
            outcome, why = outcome_of(error)
            lines.append(why)
        return CheckResult(check.name, check.title, outcome, round(time.monotonic() - began, 3), tuple(lines))

    def _lines(self, check: Check, kernel: Kernel | None) -> Iterator[str]:
        if (own := self._own.get(check.name)) is not None:
            yield from own()
            return
        assert kernel is not None
        yield from kernel.ask(check)
        self._note_records()
        if check is DISCONNECT:
            for record in self._records.values():
                yield self._until_nothing_is_left(record)

    def _kernel_killed(self) -> Iterator[str]:
        kernel, record = self._one_slice()
        kernel.kill()
        began = time.monotonic()
        left = self._until_nothing_is_left(record)
        yield f"{time.monotonic() - began:.1f} s after SIGKILL: {left}"

    def _lease(self) -> Iterator[str]:
        # Without a relay, which would keep the proxy for longer than its Lease.
        kernel, record = self._one_slice(relay=False, lease_seconds=_LEASE_SECONDS)
        supervisor = psutil.Process(record.pid)
        try:
            # So that neither notices the other's end, and cleans up.
            supervisor.suspend()
            kernel.kill()
        finally:
            supervisor.kill()
        began = time.monotonic()

        async def swept(client: Client, namespace: str) -> float:
            async for attempt in (waiting := tasks.Backoff(1.0, 1.0, seconds=_GONE_SECONDS)):
                # As each connect does.
                done = [each for each in await abandoned.sweep(client, namespace) if each.session == record.id]
                jobs = await objects.list_(client, objects.JOBS, namespace=namespace, labels=_of(record))
                if done and done[0].error:
                    raise Broken(done[0].error)
                # Another program that sweeps may have been first.
                if not jobs.items and attempt:
                    return time.monotonic() - began
                if not jobs.items:
                    raise Broken("The proxy was removed while its Lease was valid.")
                if waiting.is_over:
                    break
            raise Broken(f"After {_GONE_SECONDS:.0f} s, no sweep removes the proxy.")

        took = clusters.ask(record, swept)
        yield f"its Lease of {_LEASE_SECONDS:.0f} s protected the proxy; a sweep removed it {took:.0f} s after SIGKILL"
        # What is left on this machine.
        tasks.run(sweep.sweep(record))
        yield self._until_nothing_is_left(record)

    def _one_slice(self, **settings: Any) -> tuple[Kernel, SessionRecord]:
        """Return a process with a session on one slice, and the session's record."""
        kernel = self._kernel(instances={next(iter(self.config.instances)): 1}, **settings)
        for _ in kernel.ask(CONNECT):
            pass
        self._note_records()
        # A session that an earlier check has left may have been recorded meanwhile.
        return kernel, next(each for each in self._records.values() if each.kernel_pid == kernel.process.pid)

    def _kernel(self, **settings: Any) -> Kernel:
        kernel = Kernel(dataclasses.replace(self.config, **settings))
        self._kernels.append(kernel)
        return kernel

    def _note_records(self) -> None:
        self._records.update({each.id: each for each in registry.sessions()})

    def _until_nothing_is_left(self, record: SessionRecord) -> str:
        """Wait until nothing is left of a session; return what was counted.

        Raises:
          Broken: Something is left.
        """

        async def counted(client: Client, namespace: str) -> dict[str, int]:
            waiting = tasks.Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, seconds=_GONE_SECONDS)
            async for _ in waiting:
                counts = {}
                for kind in _KINDS:
                    listed = await objects.list_(client, kind, namespace=namespace, labels=_of(record))
                    counts[f"{kind.kind}s"] = len(listed.items)
                counts |= _on_this_machine(record)
                if not any(counts.values()) or waiting.is_over:
                    break
            return counts

        counts = clusters.ask(record, counted)
        if any(counts.values()):
            raise Broken(f"Left behind: {', '.join(f'{number} {name}' for name, number in counts.items() if number)}.")
        return ", ".join(f"{number} {name}" for name, number in counts.items())


def _of(record: SessionRecord) -> str:
    return f"{SESSION_LABEL}={record.id}"


def _on_this_machine(record: SessionRecord) -> dict[str, int]:
    try:
        runs = psutil.Process(record.pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        runs = False
    return {
        "sockets": sum(os.path.lexists(path) for path in (record.socket, record.tunnel)),
        "session files": sum(os.path.lexists(path) for path in (registry.record_path(record.id), record.log)),
        "supervisors": int(runs),
    }
