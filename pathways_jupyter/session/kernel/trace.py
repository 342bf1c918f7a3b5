"""Take a trace of a proxy's chips: what ran on them, and when.

The proxy runs *plugin programs*, requests in JSON inside an IFRT program. One of them is a trace: its first execution
starts the trace, its second ends it and returns when the hosts have written their files to a bucket. pathwaysutils'
``profiling`` module sends the same requests; this one needs nothing but a client of the proxy, so that another process
than the session's can take a trace while the session's is busy.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ConfigError, SessionError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.profile import trace_files
from pathways_jupyter.profile.summary import Summary
from pathways_jupyter.session import clusters
from pathways_jupyter.session.kernel.storage import adopted, require_adopted

DEVICE_LEVELS: Mapping[str, str] = {
    "off": "TRACE_ONLY_HOST",
    "xla": "TRACE_ONLY_XLA",
    "compute": "TRACE_COMPUTE",
    "sync": "TRACE_COMPUTE_AND_SYNC",
}
"""Recordings of the chips, and the profiler's word for each."""
HOST_LEVELS = range(4)
"""Recordings of the hosts: nothing, what a user has annotated, what is expensive, everything."""
DEFAULT_HOST_LEVEL = 2
MOST_HOSTS = 16
"""Hosts that take part in a trace; more files would not be read."""
_START_SECONDS, _STOP_SECONDS = 30.0, 600.0
"""Longest time that a proxy may take to start a trace, and the hosts to write it."""


@dataclass(frozen=True)
class Options:
    """Contents of a trace, and the place where it is written.

    Attributes:
      to: Directory in a bucket, ``gs://...``.
      device: One of `DEVICE_LEVELS`; the proxy's default if empty.
      host: One of `HOST_LEVELS`.
    """

    to: str
    device: str = ""
    host: int = DEFAULT_HOST_LEVEL

    def check(self) -> None:
        """Check them; contacts nothing.

        Raises:
          ConfigError: One cannot be used, or what reads the trace is not installed.
        """
        if not self.to:
            raise ConfigError(
                "This session has no bucket for a trace.",
                hint=advice("Connect with {gcs_bucket:gs://BUCKET/PATH}, or name a place for the trace."),
            )
        if self.device and self.device not in DEVICE_LEVELS:
            raise ConfigError(
                f"There is no device level {self.device}.", hint=f"There are: {', '.join(DEVICE_LEVELS)}."
            )
        if self.host not in HOST_LEVELS:
            raise ConfigError(f"There is no host level {self.host}.", hint="From 0, nothing, to 3, everything.")
        trace_files.check(self.to)


def scratch(gcs_bucket: str) -> str:
    """Return where traces of a session with this bucket are written if nothing else is said; empty without one."""
    return f"{gcs_bucket.rstrip('/')}/profiles" if gcs_bucket else ""


class Trace:
    """A trace of a proxy's chips; at most one at a time is taken of a proxy.

    Args:
      client: JAX's client of the proxy.
      taken: Has it while it is being taken.

    Attributes:
      location: Directory in the bucket where its files are after :meth:`stop`.
    """

    def __init__(self, client: Any, options: Options, taken: set[Trace] | None = None) -> None:
        # Not the time alone: hosts write their files under the same names, over those of a trace of the same second.
        self._name = f"{time.strftime('%Y_%m_%d_%H_%M_%S')}_{secrets.token_hex(3)}"
        self.location = trace_files.directory(options.to, self._name)
        self._client = client
        self._options = options
        self._taken = set() if taken is None else taken
        self._lock = threading.Lock()
        self._program: Any = None
        self._is_over = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it.

        Raises:
          ConfigError: It cannot be written to that place.
          SessionError: The proxy takes no trace, or is taking one already.
          KeyboardInterrupt: Interrupted; if it has begun, it is stopped.
        """
        self._options.check()
        try:
            _wait(self._begin, "start a trace", _START_SECONDS)
        except BaseException:
            # It may begin later: whichever thread comes last ends it.
            with self._lock:
                self._is_over = True
                begun = self._take_program()
            if begun is not None:
                threading.Thread(target=_execute, args=(begun,), name="trace-stop", daemon=True).start()
            raise

    def _begin(self) -> None:
        from jax.extend.ifrt_programs import ifrt_programs

        request = json.dumps({"profileRequest": _request(self._options, self._name)})
        program = self._client.compile_ifrt_program(
            ifrt_programs.make_plugin_program(request), ifrt_programs.make_plugin_compile_options()
        )
        _execute(program)
        with self._lock:
            if not self._is_over:
                self._program = program
                self._taken.add(self)
                return
        _execute(program)

    def stop(self) -> None:
        """Stop it, and return when its files are written; no-op if it is not being taken.

        Raises:
          SessionError: The proxy, or a host, could not write it.
          KeyboardInterrupt: Interrupted; it is stopped, but files may still be missing.
        """
        with self._lock:
            program = self._take_program()
        if program is not None:
            _wait(lambda: _execute(program), "write a trace", _STOP_SECONDS)

    def _take_program(self) -> Any:
        self._taken.discard(self)
        program, self._program = self._program, None
        return program

    def summary(self, progress: Callable[[str], None] = lambda _: None) -> Summary:
        """Return what it says, once it is stopped.

        Args:
          progress: Called with a sentence now and then.

        Raises:
          PathwaysError: Its files cannot be read.
        """
        # Also after the session, as the command reads it.
        with adopted(clusters.storage_of(self.location)):
            require_adopted(self.location)
            return trace_files.summarize(self.location, progress)


def _request(options: Options, name: str) -> dict[str, Any]:
    details: dict[str, Any] = {
        "traceDirectory": options.to,
        "traceSessionName": name,
        "hostTraceLevel": options.host,
    }
    if options.device:
        mode = {"stringValue": DEVICE_LEVELS[options.device]}
        details["pwTraceOptions"] = {"advancedConfiguration": {"tpu_trace_mode": mode}}
    return {
        "traceLocation": options.to,
        "maxNumHosts": MOST_HOSTS,
        "includeResourceManagers": False,
        "xprofTraceOptions": details,
    }


def _execute(program: Any) -> None:
    """Execute a plugin program; return when it has ended, or raise JAX's error."""
    program.execute_sharded([], with_tokens=True).consume_token().block_until_ready()


def _wait(work: Callable[[], object], what: str, seconds: float) -> None:
    """Run `work` in a thread, as JAX waits in C++, where no interrupt is handled; `what` is for errors."""
    try:
        tasks.abandonable(work, name="trace", seconds=seconds)
    except TimeoutError:
        raise SessionError(
            f"The proxy did not {what} within {seconds:.0f} s.", hint=advice("{status} shows its state.")
        ) from None
    except Exception as error:
        hint = advice("{status} shows the session; if its proxy is gone, {reconnect} gets a new proxy.")
        if "UNAVAILABLE" in str(error):
            raise SessionError(f"The proxy did not {what}: it has ended, or cannot be reached.", hint=hint) from error
        if "already" in str(error):
            hint = advice("End the other one where it was begun, or wait for its end.")
        if "NOT_FOUND" in str(error) or "PERMISSION_DENIED" in str(error):
            hint = advice("Check the bucket's name, and that the proxy's account may write to it.")
        if "UNIMPLEMENTED" in str(error):
            hint = advice("The image of this proxy takes no traces.")
        raise SessionError(f"The proxy did not {what}: {error}", hint=hint) from error
