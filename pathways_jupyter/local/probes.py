"""Readiness, liveness and startup probes of containers.

A container that has just started is probed again after milliseconds, then less and less often until the probe's own
period is reached: so a pod is ready as soon as it can be, and an idle cluster does next to nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from pathways_jupyter.local.apiserver.resources import Object
from pathways_jupyter.local.environment import SpecError

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
        self._attempt = self._choose()

    async def results(self) -> AsyncIterator[bool]:
        """Yield the probe's result each time that it changes; a failure counts once the threshold is reached."""
        await asyncio.sleep(float(self._spec.get("initialDelaySeconds") or 0))
        thresholds = {
            True: int(self._spec.get("successThreshold") or 1),
            False: int(self._spec.get("failureThreshold") or 3),
        }
        known: bool | None = None
        last, times, delay, began = None, 0, _FIRST_DELAY, asyncio.get_running_loop().time()
        while True:
            result = await self._once()
            times = times + 1 if result is last else 1
            last = result
            # The quick early attempts must not use up the time to start that the spec grants.
            patient = (
                result
                or known is not None
                or asyncio.get_running_loop().time() - began >= (self._period * (thresholds[False] - 1))
            )
            if result is not known and times >= thresholds[result] and patient:
                known = result
                yield result
            delay = self._period if known or delay * 2 > self._period else delay * 2
            await asyncio.sleep(delay)

    async def _once(self) -> bool:
        try:
            return await asyncio.wait_for(self._attempt(), self._timeout)
        except (OSError, LookupError, TimeoutError, asyncio.IncompleteReadError, ValueError):
            return False

    def _choose(self) -> Callable[[], Awaitable[bool]]:
        if "tcpSocket" in self._spec:
            return self._tcp
        if "httpGet" in self._spec:
            return self._http
        if "exec" in self._spec:
            return self._exec
        raise SpecError("a probe must be tcpSocket, httpGet or exec on an embedded cluster")

    async def _tcp(self) -> bool:
        _, writer = await self._dial(self._port(self._spec["tcpSocket"]["port"]))
        writer.close()
        return True

    async def _http(self) -> bool:
        get = self._spec["httpGet"]
        reader, writer = await self._dial(self._port(get["port"]))
        try:
            writer.write(f"GET {get.get('path') or '/'} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            status = int((await reader.readline()).split()[1])
        except IndexError:
            return False
        finally:
            writer.close()
        return 200 <= status < 400

    async def _exec(self) -> bool:
        return await self._run(list(self._spec["exec"].get("command") or ())) == 0

    def _port(self, port: Any) -> int:
        for each in self._container.get("ports") or ():
            if each.get("name") == port:
                return int(each["containerPort"])
        return int(port)
