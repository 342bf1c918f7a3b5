"""Readiness, liveness and startup probes of containers.

A container that has just started is probed again after milliseconds, then less and less often until the probe's own
period is reached: so a pod is ready as soon as it can be, and an idle cluster does next to nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from pathways_jupyter.local.apiserver.resources import Object
from pathways_jupyter.local.node.environment import SpecError

_FIRST_DELAY = 0.005

Dial = Callable[[int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
Run = Callable[[list[str]], Awaitable[int]]


class Probe:
    """One probe of one container.

    Args:
      spec: The probe as the container's spec has it.
      container: That spec, for named ports.
      dial: Connects to a port of the pod.
      run: Runs a command in the container and gives its exit code.

    Raises:
      SpecError: The kind of probe is not served here.
    """

    def __init__(self, spec: Object, container: Object, *, dial: Dial, run: Run) -> None:
        self._spec = spec
        self._container = container
        self._dial = dial
        self._run = run
        self._period = float(spec.get("periodSeconds") or 10)
        self._timeout = float(spec.get("timeoutSeconds") or 1)
        if not {"tcpSocket", "httpGet", "exec"} & spec.keys():
            raise SpecError("a probe must be tcpSocket, httpGet or exec on an embedded cluster")

    async def results(self) -> AsyncIterator[bool]:
        """Yield the probe's result each time that it changes; a failure counts once the threshold is reached."""
        await asyncio.sleep(float(self._spec.get("initialDelaySeconds") or 0))
        thresholds = {
            True: int(self._spec.get("successThreshold") or 1),
            False: int(self._spec.get("failureThreshold") or 3),
        }
        reported: bool | None = None
        last, times, delay, began = None, 0, _FIRST_DELAY, asyncio.get_running_loop().time()
        while True:
            try:
                result = await asyncio.wait_for(self._attempt(), self._timeout)
            except (OSError, LookupError, TimeoutError, asyncio.IncompleteReadError, ValueError):
                result = False
            times = times + 1 if result is last else 1
            last = result
            # The quick early attempts must not use up the time to start that the spec grants.
            patient = (
                result
                or reported is not None
                or asyncio.get_running_loop().time() - began >= (self._period * (thresholds[False] - 1))
            )
            if result is not reported and times >= thresholds[result] and patient:
                reported = result
                yield result
            delay = self._period if reported or delay * 2 > self._period else delay * 2
            await asyncio.sleep(delay)

    async def _attempt(self) -> bool:
        if "exec" in self._spec:
            return await self._run(list(self._spec["exec"].get("command") or ())) == 0
        get = self._spec.get("httpGet")
        reader, writer = await self._dial(self._port((get or self._spec["tcpSocket"])["port"]))
        try:
            if get is None:
                return True
            writer.write(f"GET {get.get('path') or '/'} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            return 200 <= int((await reader.readline()).split()[1]) < 400
        finally:
            writer.close()

    def _port(self, port: Any) -> int:
        for each in self._container.get("ports") or ():
            if each.get("name") == port:
                return int(each["containerPort"])
        return int(port)
