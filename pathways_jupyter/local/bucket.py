"""The cluster's bucket, which needs no cloud: Google's JSON API for objects, on the loopback interface.

gcp-storage-emulator serves it, in a process of its own, so that large objects delay neither the API server nor tunnels.
Clients send it no credentials, so its address has a secret in it. Objects are plain files, and what else the emulator
knows of them is read from these files when it starts.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import mmap
import os
import secrets
import shutil
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pathways_jupyter.base import runtime_files, tasks
from pathways_jupyter.base.errors import LocalClusterError
from pathways_jupyter.local.directory import BUCKET
from pathways_jupyter.local.node.spawner import Spawner
from pathways_jupyter.local.node.zygote import SpawnRequest, function_name
from pathways_jupyter.local.settings import FAST_RESTARTS, Failures

NAME = runtime_files.LOCAL_BUCKET

_log = logging.getLogger(__name__)

_STALLED_SECONDS = 60
"""After which a client that sends nothing is dropped: the server has one thread."""
_WAITING_CLIENTS = 512
_CHECKED_BYTES = 1 << 20
"""At a time, because the checksum takes no mapped file."""


class Bucket:
    """The bucket's process, and the address under which it is served for as long as the cluster runs.

    Args:
      directory: The cluster's.
      objects: Where the objects go; below `directory` if empty.
      spawner: Starts the process.
    """

    def __init__(self, directory: Path, objects: str, spawner: Spawner) -> None:
        self._directory = directory
        self._objects = Path(objects) if objects else directory / BUCKET
        self._spawner = spawner
        self._secret = secrets.token_hex(16)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=_WAITING_CLIENTS)
        self._serving: asyncio.Task[None] | None = None

    @property
    def variables(self) -> dict[str, str]:
        """The variables by which the clients of Google Cloud Storage find it."""
        address = f"http://127.0.0.1:{self._listener.getsockname()[1]}/{self._secret}"
        return {
            "STORAGE_EMULATOR_HOST": address,
            "TENSORSTORE_GCS_HTTP_URL": address,
            # By default gcsfs asks Google what kind of bucket it is.
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        }

    def start(self) -> None:
        """Serve the bucket; clients may connect from now on.

        Raises:
          LocalClusterError: The directory that the user has named cannot be created.
          OSError: The cluster's own files cannot be.
        """
        place = self._objects / NAME
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            if self._objects == self._directory / BUCKET:
                raise
            raise LocalClusterError(
                f"The bucket's directory {place} cannot be created: {error.strerror}.",
                hint="Name another one with --bucket.",
            ) from error
        facts = {"bucket": f"gs://{NAME}", "variables": self.variables}
        runtime_files.write(self._directory / runtime_files.STORAGE, json.dumps(facts))
        self._serving = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        with contextlib.ExitStack() as stack:
            log = stack.enter_context((self._directory / "bucket.log").open("ab")).fileno()
            streams = (self._listener.fileno(), log, log)
            failures = Failures(FAST_RESTARTS)
            while True:
                request = SpawnRequest(
                    [str(self._objects), self._secret],
                    dict(os.environ),
                    str(self._directory),
                    "bucket",
                    program=function_name(main),
                    name="pathways-bucket",
                )
                process = await self._spawner.spawn(request, streams)
                _log.error("The bucket's process ended with code %s, and is started again.", await process.wait())
                # One that cannot read its objects, for example, ends each time.
                await asyncio.sleep(failures.add())

    async def close(self) -> None:
        """Stop serving; the process ends with its spawner."""
        if self._serving is not None:
            await tasks.stop(self._serving)
        self._listener.close()


def main(argv: Sequence[str]) -> int:
    """Serve the objects below ``argv[0]`` on the listening socket that is descriptor 0; ``argv[1]`` is the secret."""
    directory, prefix = Path(argv[0]), f"/{argv[1]}"
    listener = socket.socket(fileno=os.dup(0))
    # An object that does not exist is an error to the emulator; what it does not expect goes to the log anyway.
    logging.disable(logging.ERROR)
    from gcp_storage_emulator import settings

    # Read when the next module is imported, which makes its routes of them. All others are for no client of ours.
    for name in ("API_ENDPOINT", "UPLOAD_API_ENDPOINT", "BATCH_API_ENDPOINT", "DOWNLOAD_API_ENDPOINT"):
        setattr(settings, name, prefix + getattr(settings, name))
    from http.server import HTTPServer

    from gcp_storage_emulator.handlers import objects

    from pathways_jupyter.local import bucket_requests

    objects.download = partial(bucket_requests.download, objects.download)
    from gcp_storage_emulator import server

    handlers = [each for each in server.HANDLERS if prefix in each[0]]
    server.HANDLERS = bucket_requests.routes(settings.API_ENDPOINT, handlers)

    class Handler(server.RequestHandler):  # type: ignore[misc]
        timeout = _STALLED_SECONDS

        path: str

        def parse_request(self) -> bool:
            if not super().parse_request():
                return False
            if not self.path.startswith(f"{prefix}/"):
                self.send_error(403)
                return False
            # The emulator puts the host before a path to make the addresses that it answers with.
            self.path = self.path.removeprefix(prefix)
            self.headers.replace_header("Host", f"{self.headers['Host']}{prefix}")
            self.storage.only_reads = self.command == server.GET
            return True

        def send_response(self, code: int, message: str | None = None) -> None:
            # Clients repeat what "is not implemented" for half a minute.
            super().send_response(400 if code == 501 else code, message)

    address = listener.getsockname()
    httpd = HTTPServer(address, partial(Handler, _storage(directory, prefix, address)), bind_and_activate=False)
    httpd.socket.close()
    httpd.socket = listener
    httpd.serve_forever()
    return 0


def _storage(directory: Path, prefix: str, address: tuple[str, int]) -> Any:
    """Return the emulator's storage, of the files that exist and without what is slow in it."""
    from gcp_storage_emulator import storage
    from gcp_storage_emulator.exceptions import BadRequest
    from gcp_storage_emulator.handlers import buckets, objects

    from pathways_jupyter.local import bucket_requests

    class Files(storage._FileStore):  # type: ignore[misc]
        def write_bytes(self, rel: str, content: bytes) -> None:
            """Replace the file as a whole, so that it is never half of one."""
            path = self._disk_path(rel)
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self._root / f"{storage.RESUMABLE_DIR}.new"
            fresh.write_bytes(content)
            fresh.replace(path)

    class FileStorage(storage.Storage):  # type: ignore[misc]
        only_reads = False

        def __init__(self) -> None:
            super().__init__(use_memory_fs=True)
            self._checked: dict[Path, tuple[int, int]] = {}

        def _object_path(self, bucket_name: str, file_name: str) -> str:
            bucket_requests.check_name(file_name)
            return f"{bucket_name}/{file_name}"

        def _write_config_to_file(self) -> None:
            """Write nothing: the emulator would write all that it knows of all objects with each of them."""

        def _read_config_from_file(self) -> None:
            for name in ("buckets", "objects", "resumable", "bucket_iam_policies", "soft_deleted"):
                setattr(self, name, {})

        def _bucket_soft_delete_retention_seconds(self, bucket_name: str) -> int:
            """Return the retention of deleted objects: none."""
            return 0

        def create_file(
            self, bucket_name: str, file_name: str, content: bytes, file_obj: Any, file_id: str | None = None
        ) -> None:
            """Write a file, whose time is the object's generation: it is the same after a restart."""
            super().create_file(bucket_name, file_name, content, file_obj, file_id)
            generation = int(file_obj["generation"])
            os.utime(self._store._disk_path(self._object_path(bucket_name, file_name)), ns=(generation, generation))

        def get_file(self, bucket_name: str, file_name: str, show_error: bool = True) -> Any:
            """Map a file that is only read: a client that reads a piece of it has the emulator ask for all of it."""
            path = self._store._disk_path(self._object_path(bucket_name, file_name))
            if not self.only_reads or not path.is_file() or not path.stat().st_size:
                return super().get_file(bucket_name, file_name, show_error)
            with path.open("rb") as file:
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                info = os.fstat(file.fileno())
            # Google's storage does not return other bytes than were written either.
            state = info.st_mtime_ns, info.st_size
            if self._checked.get(path) != state:
                checksum = objects.google_crc32c.Checksum()
                for start in range(0, len(content), _CHECKED_BYTES):
                    checksum.update(content[start : start + _CHECKED_BYTES])
                written = self.get_file_obj(bucket_name, file_name)["crc32c"]
                if base64.b64encode(checksum.digest()).decode() != written:
                    raise BadRequest(f"{file_name} is damaged: its file was changed on the disk.")
                self._checked[path] = state
            return content

        def get_resumable_byte_count(self, file_id: str) -> int:
            """Return the size of what has been received so far, all of which the emulator would read."""
            path = self._store._disk_path(self._object_path(storage.RESUMABLE_DIR, self.safe_id(file_id)))
            return path.stat().st_size if path.exists() else 0

        def add_to_resumable_upload(
            self, file_id: str, content: bytes, total_size: int | None = None, expected_start: int | None = None
        ) -> Any:
            """Append: the emulator writes again what it has received so far with each piece."""
            name = self.safe_id(file_id)
            path = self._store._disk_path(self._object_path(storage.RESUMABLE_DIR, name))
            size = self.get_resumable_byte_count(file_id)
            if expected_start is not None and expected_start != size:
                raise storage.BadRequest(f"Invalid Content-Range start: expected {size}, got {expected_start}")
            path.parent.mkdir(exist_ok=True)
            with path.open("ab") as file:
                file.write(content or b"")
            if total_size is None or size + len(content or b"") < total_size:
                return None
            return self.get_file(storage.RESUMABLE_DIR, name)[:total_size]

    # No client can go on with an upload of which an earlier process received a part.
    shutil.rmtree(directory / storage.RESUMABLE_DIR, ignore_errors=True)
    emulated = FileStorage()
    emulated._store = Files(use_memory=False, root=directory)
    base = f"http://{address[0]}:{address[1]}{prefix}"
    for top in directory.iterdir():
        if not top.is_dir() or top.name.startswith("_"):
            continue
        buckets.create_bucket(top.name, emulated)
        for path in top.rglob("*"):
            if path.is_file():
                name, info = str(path.relative_to(top)), path.stat()
                size, written = str(info.st_size), datetime.fromtimestamp(info.st_mtime, UTC)
                described = objects._make_object_resource(base, top.name, name, "application/octet-stream", size)
                described["generation"] = str(info.st_mtime_ns)
                described["timeCreated"] = described["updated"] = written.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
                content = emulated.get_file(top.name, name)
                emulated.objects.setdefault(top.name, {})[name] = objects._checksums(content, described)
    return emulated
