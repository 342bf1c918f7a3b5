"""The files of a trace in a bucket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pathways_jupyter.base import packages
from pathways_jupyter.base.errors import ConfigError, PathwaysError
from pathways_jupyter.base.google import open_bucket
from pathways_jupyter.base.text import count
from pathways_jupyter.profile import summary, xplane

LIMIT_BYTES = 256 << 20
"""Largest part of a trace that is read: in the kernel's memory, events need about ten times as much."""
_BLOCK_BYTES = 4 << 20


def directory(to: str, name: str) -> str:
    """Return where the hosts write the files of trace `name`; XProf looks for it below `to`."""
    return f"{to.rstrip('/')}/plugins/profile/{name}"


def check(to: str) -> None:
    """Check that a trace can be written to `to` and read from there; contacts nothing.

    Raises:
      ConfigError: It is not in a bucket, or the package that reads buckets is missing.
    """
    bucket = to.removeprefix("gs://").partition("/")[0]
    if not to.startswith("gs://") or not bucket:
        raise ConfigError(
            f"A trace is written by the TPU hosts, to a bucket, not to {to or 'nowhere'}.",
            hint="For example: --to gs://my-bucket/traces.",
        )
    packages.require("profile", "Reading a trace from a bucket", "gcsfs")


def summarize(location: str, progress: Callable[[str], None]) -> summary.Summary:
    """Read the files in `location`, and sum them up.

    Args:
      location: A directory in a bucket, as :func:`directory` returns it.
      progress: Called with a sentence now and then.

    Raises:
      PathwaysError: There are none, or they cannot be read.
    """
    from gcsfs.retry import HttpError
    from google.auth.exceptions import GoogleAuthError

    bucket = open_bucket()
    try:
        listing = sorted(bucket.find(location.removeprefix("gs://"), detail=True).items())
        files = [(name, info["size"]) for name, info in listing if name.endswith(".xplane.pb")]
        hosts, read, left_out = [], 0, []
        for number, (name, size) in enumerate(files):
            file = name.rpartition("/")[2]
            if read + size > LIMIT_BYTES:
                left_out.append(file.removesuffix(".xplane.pb"))
                continue
            content = _download(bucket, name, size, f"file {number + 1} of {len(files)}", progress)
            try:
                hosts.append(xplane.read(content))
            except ValueError as error:
                raise PathwaysError(
                    f"{file} in {location} is {error}.", hint="Its host may have ended early: take the trace again."
                ) from error
            read += size
    except (OSError, ValueError, HttpError, GoogleAuthError) as error:
        raise PathwaysError(
            f"The trace in {location} cannot be read: {str(error).rstrip('.')}.",
            hint="The account here needs to read the bucket.",
        ) from error
    if not files:
        raise PathwaysError(
            f"No host has written a trace to {location}.",
            hint="Where its proxy ended before the trace was stopped, take it again. Otherwise the proxy's account "
            "needs to write to the bucket.",
        )
    limit = f"Only {LIMIT_BYTES >> 20} MB of a trace are read here; {count(len(left_out), 'host')} left out: "
    return summary.summarize(hosts, location, f"{limit}{', '.join(left_out)}." if left_out else "")


def _download(bucket: Any, name: str, size: int, which: str, progress: Callable[[str], None]) -> bytes:
    content = bytearray()
    with bucket.open(name, "rb", block_size=_BLOCK_BYTES) as file:
        while block := file.read(_BLOCK_BYTES):
            content += block
            progress(f"reading the trace, {which}: {len(content) >> 20} of {size >> 20} MB")
    return bytes(content)
