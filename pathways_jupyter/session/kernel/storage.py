"""The embedded cluster's bucket in this process: ``gs://`` leads there from connecting until disconnecting.

The clients of Google Cloud Storage (gcsfs, TensorStore, google-cloud-storage) find it by environment variables. JAX's
own has no such variable, so the one thing for which JAX uses it, writing a trace, is done here.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.base.runtime_files import LOCAL_BUCKET
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.session.clusters import Storage
from pathways_jupyter.session.kernel import jax_internals
from pathways_jupyter.session.variables import STORAGE_HOST, ChangedEnvironment

_SCHEME = "gs://"


class AdoptedStorage:
    """Changes that this process makes for a bucket, from :meth:`adopt` until :meth:`restore`."""

    def __init__(self) -> None:
        self._environment = ChangedEnvironment()
        self._replaced: list[tuple[Any, str, Any]] = []

    def adopt(self, storage: Storage | None) -> None:
        """Lead ``gs://`` to the bucket of an embedded cluster.

        No-op without one, or if the user has an address of another storage in the environment.
        """
        if storage is None:
            return
        # A process that another session's kernel has started inherits the address.
        address = storage.variables[STORAGE_HOST]
        if not self._environment.is_changed and os.environ.get(STORAGE_HOST, address) != address:
            return
        if os.environ.get(STORAGE_HOST) != address:
            self._environment.set(storage.variables)
            _forget_clients()
        if self._replaced:
            return
        if "jax" in sys.modules:
            self._replace_profiler()
        if (extended := _imported("gcsfs.extended_gcsfs", "ExtendedGcsFileSystem")) is not None:
            # It has been imported without the variable that keeps it from asking Google, for a minute and a half.
            async def bucket_type(*_: Any) -> Any:
                return sys.modules["gcsfs.extended_gcsfs"].BucketType.NON_HIERARCHICAL

            self._replace(extended, "_get_bucket_type", bucket_type)

    def _replace_profiler(self) -> None:
        jaxlib = jax_internals.load().profiler._profiler
        original = jaxlib.ProfilerSession
        self._replace(jaxlib, "ProfilerSession", lambda *options: _ProfilerSession(original(*options)))
        if (export := getattr(jaxlib, "export_to_xprof", None)) is not None:
            # From JAX 0.12 on, instead of the session's method.
            def export_to_xprof(data: Any, log_dir: str, **options: Any) -> None:
                _export(lambda directory: export(data, directory, **options), log_dir)

            self._replace(jaxlib, "export_to_xprof", export_to_xprof)

    def restore(self) -> None:
        """Undo :meth:`adopt`; no-op if it changed nothing."""
        if not self._environment.is_changed:
            return
        while self._replaced:
            where, name, original = self._replaced.pop()
            setattr(where, name, original)
        _forget_clients()
        self._environment.restore()

    def _replace(self, where: Any, name: str, value: Any) -> None:
        self._replaced.append((where, name, getattr(where, name)))
        setattr(where, name, value)


def of_environment() -> Storage | None:
    """Return the bucket to which this process's environment leads already, that of a program; None without one."""
    host = os.environ.get(STORAGE_HOST)
    return Storage("", {STORAGE_HOST: host}) if host else None


@contextlib.contextmanager
def adopted(storage: Storage | None) -> Iterator[None]:
    """Context manager: ``gs://`` leads to the bucket of an embedded cluster inside, as :meth:`AdoptedStorage.adopt`."""
    inside = AdoptedStorage()
    inside.adopt(storage)
    try:
        yield
    finally:
        inside.restore()


def require_adopted(location: str) -> None:
    """Check that ``gs://`` leads to the bucket of an embedded cluster, if `location` is in that.

    Its name counts, also where no such cluster runs any more: it is not one to find at Google.

    Raises:
      SessionError: It does not. Clients would ask Google, for most of a minute.
    """
    if not location.startswith(_SCHEME) or STORAGE_HOST in os.environ:
        return
    bucket = f"{_SCHEME}{LOCAL_BUCKET}"
    if f"{location}/".startswith(f"{bucket}/"):
        raise SessionError(
            f"{bucket} is the embedded cluster's bucket, and this process is not connected to that cluster.",
            hint=advice("{connect:--local} connects to it. Otherwise name a bucket of your own."),
        )


def _forget_clients() -> None:
    """Drop the clients that gcsfs and etils keep: each was made for one storage, and remembers what is in it."""
    if (clients := _imported("gcsfs", "GCSFileSystem")) is not None:
        clients.clear_instance_cache()
    if (backend := _imported("etils.epath.backend", "_FileSystemSpecBackend")) is not None:
        backend._get_filesystem.cache_clear()


def _imported(module: str, name: str) -> Any:
    """Return `name` of an imported module; None if it is not imported, or another thread is about to."""
    return getattr(sys.modules.get(module), name, None)


class _ProfilerSession:
    """jaxlib's profiler session, which can write to the bucket too."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def stop_and_export(self, log_dir: str) -> None:
        """End the trace, and write it to a directory or to ``gs://BUCKET/DIRECTORY``."""
        _export(self._session.stop_and_export, log_dir)


def _export(write: Callable[[str], None], log_dir: str) -> None:
    """Have jaxlib write to a directory, and copy what it wrote if it belongs into a bucket."""
    # Without the variable, the trace has outlived its session.
    if not log_dir.startswith(_SCHEME) or STORAGE_HOST not in os.environ:
        write(log_dir)
        return
    with tempfile.TemporaryDirectory() as written:
        write(written)
        for path in Path(written).rglob("*"):
            if path.is_file():
                _upload(path, f"{log_dir}/{path.relative_to(written)}")


def _upload(path: Path, address: str) -> None:
    # Here, because each connect would have to wait for this import.
    import requests

    bucket, _, name = address.removeprefix(_SCHEME).partition("/")
    with path.open("rb") as file:
        requests.post(
            f"{os.environ[STORAGE_HOST]}/upload/storage/v1/b/{bucket}/o",
            params={"uploadType": "media", "name": name},
            data=file,
            timeout=60,
        ).raise_for_status()
