"""Find the variables over which jaxlib would end the process, before a session is made.

XLA, gRPC and the client of the proxy read variables when the first client is made, and abort the process on what they
cannot read: a kernel is gone in the middle of a connect, without one word in the notebook. TPU notebooks set flags of
the TPU's own compiler in ``XLA_FLAGS`` at their top, which only a process with TPUs knows. So another process reads
them first. It is started only if one of the variables is set, and once for each of their values.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.service.names import INSECURE_CREDENTIALS
from pathways_jupyter.session import native_trial

XLA_FLAGS = "XLA_FLAGS"
_OF_CLIENT = ("GRPC_POLL_STRATEGY", "IFRT_PROXY_")
"""Beginnings of the names of variables that the proxy's client reads, and aborts on."""
_CRASH = "IFRT_PROXY_CRASH_ON_DISCONNECT"
_FILES = "IFRT_PROXY_GRPC_LARGE_TRANSFER_OPTIMIZATION_DIRECTORY"
_TRUE = {"true", "t", "yes", "y", "1"}
_TRIAL_SECONDS = 30.0
_FATAL = re.compile(r"[EF]\d{4} [\d:.]+ +\d+ [\w.]+:\d+\] (?:Check failed: \S.*?\) {1,2})?(?P<said>.+)")
"""A line of jaxlib's log before it aborts; the condition of a check says nothing to users."""
_UNKNOWN = re.compile(r"Unknown flags? in XLA_FLAGS: (?P<flags>.+)")
_SHOWN_CHARACTERS = 300

_tried: dict[tuple[str, ...], str] = {}
"""The words of jaxlib before it aborted, by Python and values; empty if it did not."""


def check(*, python: str = sys.executable, is_kernel: bool = True, has_clients: bool = False) -> None:
    """Have another process read this one's variables as jaxlib would here; no-op if none of them is set.

    Args:
      python: The Python whose jaxlib would read them.
      is_kernel: Whether the process must outlive its proxy.
      has_clients: Whether the process has a client already, and so has read ``XLA_FLAGS``.

    Raises:
      ConfigError: JAX would end the process, or could send nothing to the proxy.
      KeyboardInterrupt: Interrupted.
    """
    set_here = {name: value for name, value in sorted(os.environ.items()) if value and name != INSECURE_CREDENTIALS}
    if is_kernel and set_here.get(_CRASH, "").lower() in _TRUE:
        raise ConfigError(
            f"{_CRASH}={set_here[_CRASH]} would end this kernel together with its proxy.", hint=_unset(_CRASH)
        )
    if _FILES in set_here:
        raise ConfigError(
            f"{_FILES} has JAX pass large arrays to the proxy in files, which a proxy in a pod does not see.",
            hint=_unset(_FILES),
        )
    if XLA_FLAGS in set_here and not has_clients:
        said = _trial(native_trial.FLAGS, {XLA_FLAGS: set_here[XLA_FLAGS]}, python)
        if unknown := _UNKNOWN.fullmatch(said):
            raise ConfigError(
                f"JAX would end this process: {XLA_FLAGS} has flags that it does not know here: {unknown['flags']}.",
                hint=advice(
                    "Flags for TPUs are the proxy's: take them out of XLA_FLAGS, and give them with {proxy_options}."
                ),
            )
        if said:
            raise ConfigError(f"JAX would end this process because of {XLA_FLAGS}: {said}", hint="Correct its value.")
    of_client = {name: value for name, value in set_here.items() if name.startswith(_OF_CLIENT)}
    if of_client and (said := _trial(native_trial.CLIENT, of_client, python)):
        raise ConfigError(
            f"JAX would end this process because of {' or '.join(of_client)}: {said}", hint=_unset(*of_client)
        )


def _unset(*names: str) -> str:
    return f"Take {' and '.join(names)} out of the environment."


def _trial(step: str, variables: Mapping[str, str], python: str) -> str:
    """Return what jaxlib says before it aborts in `step`; empty if it does not, or if `python` has none."""
    key = (python, step, *(f"{name}={value}" for name, value in variables.items()))
    if key not in _tried:
        _tried[key] = tasks.run(_run_trial(step, python))
    return _tried[key]


async def _run_trial(step: str, python: str) -> str:
    # -P: a notebook's directory, or that of the file, may have modules with the names of others.
    process = await asyncio.create_subprocess_exec(
        *(python, "-P", str(Path(native_trial.__file__)), step),
        env={**os.environ, INSECURE_CREDENTIALS: "true"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # An Interrupt of the kernel would end it, which is no abort.
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_TRIAL_SECONDS):
            printed, complaint = await process.communicate()
    except TimeoutError:
        # A busy machine; what was not found out stops no connect.
        return ""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if printed.decode().split() != ["begin", step]:
        return ""
    lines = complaint.decode(errors="replace").splitlines()
    said = next((match["said"] for line in lines if (match := _FATAL.fullmatch(line))), lines[-1] if lines else "")
    return textwrap.shorten(said, _SHOWN_CHARACTERS) or "it gave no reason."
