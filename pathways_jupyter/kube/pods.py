"""Read the log of a pod."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from pathways_jupyter.base.errors import ApiError, ClusterError, ConnectionLost
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import PODS, Object, find

LONGEST_LINE = 1024 * 1024
"""A longer line of a log is split."""
_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 5.0


async def logs(
    client: Client,
    name: str,
    *,
    namespace: str,
    container: str = "",
    follow: bool = False,
    tail: int | None = None,
    since_seconds: int | None = None,
    patience: float = 0.0,
    pod: Object | None = None,
    timestamps: bool = False,
) -> AsyncGenerator[str, None]:
    """Yield the lines of a container's log, without line ends.

    Following continues after a dropped connection or a restart of the API server, without losing or repeating a line.
    It ends when the container ends, or when the pod is gone.

    Args:
      tail: Only this number of last lines.
      since_seconds: Only lines of this number of last seconds.
      patience: Seconds for which to go on following, once the log was opened, while the server cannot be reached or
        refuses the credentials.
      pod: The pod as it was last seen, whose container's run is meant; asked for when left out.
      timestamps: Begin each line with the time at which it was written, as RFC 3339 has it, and a space.

    Raises:
      ApiError: There is no such pod or container, or it has not started yet (400).
      ClusterError: The server could not be reached.
    """
    query = {"follow": "true"} if follow else {}
    if follow or timestamps:
        query["timestamps"] = "true"
    options = {"container": container, "tailLines": tail, "sinceSeconds": since_seconds}
    query |= {key: str(value) for key, value in options.items() if value not in {None, ""}}
    path = PODS.item(namespace, name, "log")
    if not follow:
        async with client.stream(path, query=query) as chunks:
            async for line in _lines(chunks):
                yield line
        return
    position = _LogPosition()
    identity = _run(pod, container) if pod is not None else ""
    backoff, opened = Backoff(_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, seconds=patience), False
    while True:
        try:
            async with client.stream(path, query=query) as chunks:
                opened = True
                identity = identity or await _running(client, namespace, name, container)
                backoff = Backoff(_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, seconds=patience)
                async for stamped in _lines(chunks):
                    fresh = position.take(stamped)
                    if fresh is not None:
                        yield stamped if timestamps else fresh
        except ClusterError as error:
            if isinstance(error, ApiError) and error.status == 404 and position.since:
                return
            waits = opened and bool(identity) and patience > 0 and not backoff.is_over
            if not isinstance(error, ConnectionLost) and not waits:
                raise
        # An API server that shuts down ends its streams properly, as if the container had ended. So ask whether the
        # same container still runs.
        try:
            if not identity or await _running(client, namespace, name, container) != identity:
                return
        except ClusterError:
            if not patience or backoff.is_over:
                raise
        await backoff.wait()
        # The next stream starts at the last line's time, and `position` drops the lines that were read already.
        query.pop("tailLines", None)
        query.pop("sinceSeconds", None)
        if position.since:
            query["sinceTime"] = position.since
        position.rewind()


async def _running(client: Client, namespace: str, name: str, container: str) -> str:
    """Return an id of this run of a container, which changes when it restarts; empty when it does not run."""
    pod = await find(client, PODS, name, namespace=namespace)
    return _run(pod, container) if pod is not None else ""


def _run(pod: Object, container: str) -> str:
    if pod["metadata"].get("deletionTimestamp"):
        return ""
    pod_status = pod.get("status") or {}
    every = (*(pod_status.get("containerStatuses") or ()), *(pod_status.get("initContainerStatuses") or ()))
    status: Object = next((each for each in every if not container or each.get("name") == container), {})
    if "running" not in (status.get("state") or {}):
        return ""
    return f"{pod['metadata'].get('uid')}/{status.get('containerID')}/{status.get('restartCount')}"


class _LogPosition:
    """The position in a log with timestamps, so that a second stream can continue where the first one ended.

    ``sinceTime`` counts in whole seconds, so a new stream repeats some lines: those with older timestamps, and as many
    lines with the last timestamp as were read already.

    Attributes:
      since: The time at which to start the next stream; empty for the beginning, before a line was read.
    """

    def __init__(self) -> None:
        self.since = ""
        self._count = 0
        self._again = ""
        self._skip = 0

    def rewind(self) -> None:
        """Prepare for a new stream, whose first lines may have been read already."""
        self._again, self._skip = self.since, self._count

    def take(self, stamped: str) -> str | None:
        """Return a line without its timestamp; None when it was read already."""
        stamp, _, line = stamped.partition(" ")
        if self._again:
            # RFC 3339 in UTC, so texts are in the order of time, but for fractions without their zeros at the end.
            this, last = (each.rstrip("Z").partition(".") for each in (stamp, self._again))
            if (this[0], this[2].ljust(9, "0")) < (last[0], last[2].ljust(9, "0")):
                return None
            if stamp != self._again:
                self._again = ""
            elif self._skip:
                self._skip -= 1
                return None
        self._count = self._count + 1 if stamp == self.since else 1
        self.since = stamp
        return line


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    partial = b""
    async for chunk in chunks:
        *complete, partial = (partial + chunk).split(b"\n")
        for line in complete:
            yield line.decode(errors="replace").removesuffix("\r")
        if len(partial) > LONGEST_LINE:
            yield partial.decode(errors="replace")
            partial = b""
    if partial:
        yield partial.decode(errors="replace")
