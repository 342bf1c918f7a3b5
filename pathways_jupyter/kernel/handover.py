"""Find the near end of a lab, and hand over the two pipes of a kernelspec's process. This imports little.

A near end holds a file locked as long as it runs, which has the path of its socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathways_jupyter.base import runtime_files
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kernel import moved, places

_REQUEST_SECONDS = 5.0
_HANDOVER_SECONDS = 30.0
_LONGEST_REQUEST = 1 << 20
_LONGEST_PATH = 4096
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.02, 0.2
_PASSED_ON = ("JPY_SESSION_NAME", "TZ", "LANG", "COLUMNS", "LINES")
"""Variables of the front end that its kernel gets."""


@dataclass(frozen=True)
class KernelRequest:
    """The kernelspec's process's request for a kernel.

    Attributes:
      kernel_id: Jupyter's id, which a restart keeps.
      run: Unique, for what the two ends say to each other.
      pid: The process.
      connection: The content of the connection file.
      environment: Variables for the kernel.
      directory: The notebook's folder.
      moved: Of a kernel that has moved, :meth:`.Moved.to_json`; empty for a new one.
      lifeline: Descriptor that ends with the process; each byte before is an Interrupt.
      answer: Descriptor for lines that the process shows, and the exit code.
    """

    kernel_id: str
    run: str
    pid: int
    connection: dict[str, Any]
    environment: dict[str, str]
    directory: str
    moved: str
    lifeline: int
    answer: int


def request_of(connection_file: str, *, lifeline: int, answer: int) -> KernelRequest:
    """Return the request of this process's parent for the kernel with this connection file."""
    path = Path(connection_file)
    connection = json.loads(path.read_text(encoding="utf-8"))
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    kernel_id = path.stem.removeprefix("kernel-")
    return KernelRequest(
        kernel_id=kernel_id,
        run=os.urandom(8).hex(),
        pid=os.getppid(),
        connection=connection,
        environment=environment,
        directory=os.getcwd(),
        # Of this kernel only, and not of those that this process may run later.
        moved=os.environ.pop(moved.VARIABLE, ""),
        lifeline=lifeline,
        answer=answer,
    )


def path_of(arguments: Sequence[str]) -> Path:
    """Return the file that the near end of the lab of these arguments holds locked."""
    # A near end has the cluster of its own KUBECONFIG.
    about = json.dumps([*arguments, os.environ.get("KUBECONFIG", "")])
    return places.directory() / f"{hashlib.sha256(about.encode()).hexdigest()[:10]}.lock"


def taken(path: Path, request: KernelRequest | None) -> int:
    """Return the descriptor of the lock of a near end that begins; -1 if there is one, which has taken `request`."""
    for _ in (attempts := Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, seconds=_HANDOVER_SECONDS)):
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # One that has ended has removed its file, perhaps after this process has opened it.
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(lock), path.stat()):
                    return lock
        except BlockingIOError:
            # One that begins does not listen yet, and one that ends no longer does.
            if request is None or _handed_over(os.pread(lock, _LONGEST_PATH, 0).decode(), request):
                return -1
        os.close(lock)
        if attempts.is_over:
            raise TimeoutError(f"the process that runs the kernels of this lab takes no more of them: {path}")
    raise AssertionError("unreachable")


def _handed_over(path: str, request: KernelRequest) -> bool:
    """Hand a kernel to the near end that listens at `path`; return whether it has taken it."""
    about = dataclasses.asdict(request)
    descriptors = [about.pop("lifeline"), about.pop("answer")]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_REQUEST_SECONDS)
        connection.connect(path)
        socket.send_fds(connection, [json.dumps(about).encode() + b"\n"], descriptors)
        return bool(connection.recv(1))
    return False


class Doorbell:
    """The socket at which later processes hand over their kernels.

    Args:
      lock: Descriptor of the file that this process holds locked, which gets the socket's path.
      name: Of the socket.
      start: Called with each kernel.
    """

    def __init__(self, lock: int, name: str, start: Callable[[KernelRequest], None]) -> None:
        folder = places.directory()
        if not runtime_files.suits_sockets(folder, name):
            folder = runtime_files.socket_directory("pathways-", name)
        self._path, self._start = folder / name, start
        self._path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(self._path))
        self._socket.listen()
        self._socket.setblocking(False)
        os.truncate(lock, 0)
        os.pwrite(lock, str(self._path).encode(), 0)
        asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def close(self) -> None:
        """Take no more kernels."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._path.unlink(missing_ok=True)
        self._socket.close()
        if self._path.parent != places.directory():
            with contextlib.suppress(OSError):
                self._path.parent.rmdir()

    def _accept(self) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError), self._socket.accept()[0] as connection:
            connection.settimeout(_REQUEST_SECONDS)
            data, descriptors, _, _ = socket.recv_fds(connection, _LONGEST_REQUEST, 2)
            try:
                lifeline, answer = descriptors
                while not data.endswith(b"\n") and (more := connection.recv(_LONGEST_REQUEST)):
                    data += more
                self._start(KernelRequest(**json.loads(data), lifeline=lifeline, answer=answer))
            except BaseException:
                for each in descriptors:
                    os.close(each)
                raise
            connection.sendall(b"\n")
