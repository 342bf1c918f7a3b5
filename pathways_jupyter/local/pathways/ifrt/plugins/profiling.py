"""Profiles of the proxy's devices: started by the first execution of a request, stopped and written by the second."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pathways_jupyter.local.pathways.ifrt import dtypes, session_arrays, statuses
from pathways_jupyter.local.pathways.ifrt.array_values import ArraySpec, Strings
from pathways_jupyter.local.pathways.ifrt.executables import OpaqueExecutable
from pathways_jupyter.local.pathways.ifrt.machine import Machine
from pathways_jupyter.local.pathways.ifrt.plugins import buckets, planes
from pathways_jupyter.local.pathways.ifrt.promises import Promise
from pathways_jupyter.local.pathways.ifrt.session_arrays import Array
from pathways_jupyter.local.pathways.ifrt.statuses import Code, IfrtStatusError

_LONGEST_SECONDS = 60.0
"""A trace that is not stopped would take up memory without end."""
_tracing = threading.Lock()
"""Held while a trace is taken: jaxlib has one profiler a process."""


class _Trace:
    """One trace under way."""

    def __init__(self, seconds: float) -> None:
        from jax._src.lib import _profiler

        if not _tracing.acquire(blocking=False):
            raise IfrtStatusError(Code.FAILED_PRECONDITION, "a trace is being taken on this proxy already")
        options = _profiler.ProfileOptions()
        # XLA reports what it does on CPUs as the host's work, and this process's Python is of no interest.
        options.host_tracer_level, options.python_tracer_level = 2, 0
        self._lock = threading.Lock()
        self._session = _profiler.ProfilerSession(options)
        self._content: bytes | None = None
        self._timer = threading.Timer(seconds, self.stop)
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> bytes:
        """Stop tracing, unless that is done, and return what jaxlib saw."""
        self._timer.cancel()
        with self._lock:
            if self._content is None:
                self._content = self._session.stop()
                _tracing.release()
            return self._content


class Profile(OpaqueExecutable):
    """A request for a trace."""

    kind = "requests for profiles"
    name = "profile"
    device_ids = (0,)

    def __init__(self, request: Mapping[str, Any], machine: Machine) -> None:
        options = request.get("xprofTraceOptions") or {}
        self._machine = machine
        self._bucket, directory = buckets.split(request["traceLocation"])
        # XProf takes what is below for runs, by name.
        run = options.get("traceSessionName") or time.strftime("%Y_%m_%d_%H_%M_%S")
        if "/" in run:
            raise statuses.invalid(f"{run!r} cannot be the name of a profile")
        self._directory = "/".join(each for each in (directory, "plugins/profile", run) if each)
        self._hosts = max(1, int(request.get("maxNumHosts", 1)))
        self._with_proxy = bool(request.get("includeResourceManagers"))
        self._seconds = min(float(request.get("maxDurationSecs") or _LONGEST_SECONDS), _LONGEST_SECONDS)
        self._with_host = options.get("hostTraceLevel", 2) > 0
        self._answers = "xprofTraceOptions" in request
        self._trace: _Trace | None = None

    def outputs(self, inputs: Sequence[Array]) -> list[ArraySpec]:
        """Return one string for clients that set options: the directory of the trace."""
        del inputs
        return [ArraySpec(dtypes.STRING, (1,), self._machine.shardings.single(0))] if self._answers else []

    def execute(self, inputs: Sequence[Array], outputs: Sequence[Array], options: Any) -> Promise:
        """Start the trace, or stop and write it."""

        def work(_: list[Any]) -> tuple[list[Any], None]:
            if self._trace is None:
                buckets.require(self._bucket)
                self._trace = _Trace(self._seconds)
            else:
                trace, self._trace = self._trace, None
                self._write(trace.stop())
            address = f"{buckets.SCHEME}{self._bucket}/{self._directory}"
            return [Strings(((address.encode(),),)) for _ in outputs], None

        return session_arrays.launch(work, inputs, outputs, start=session_arrays.on_thread(self.name))

    def release(self) -> None:
        """End a trace that its client did not."""
        if self._trace is not None:
            self._trace.stop()
            self._trace = None

    def _write(self, content: bytes) -> None:
        devices = self._machine.devices
        by_host = planes.by_host(content, devices, planes.instructions(devices.client.live_executables()))
        proxy = by_host.pop(planes.PROXY)
        spaces = [*list(by_host.values())[: self._hosts], *([proxy] if self._with_proxy else [])]
        for space in spaces:
            if not self._with_host:
                planes.drop_host(space)
            (name,) = space.hostnames
            buckets.write(self._bucket, f"{self._directory}/{name}.xplane.pb", space.SerializeToString())
