"""The notebook's folder, of which the lab's pod gets a copy: at the kernel's start, and what has changed before a cell.

What leaves this machine is chosen where all is chosen (:mod:`pathways_jupyter.base.outgoing`), and sent as to the hosts
of a run (:mod:`pathways_jupyter.multihost.pack`), so that only content crosses the line which the pod does not have.
Notebooks stay here: the front end has them. So do large files, which a save of each would send again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pathways_jupyter.base import outgoing, tasks
from pathways_jupyter.base.errors import ClusterError, ConfigError
from pathways_jupyter.base.text import count, size, some
from pathways_jupyter.kernel import fetch
from pathways_jupyter.multihost.errors import PackError
from pathways_jupyter.multihost.pack import Packed, Sending
from pathways_jupyter.tunnel.multiplexer import StreamChannel

_LARGEST_BYTES = 10_000_000
_NOT_SENT = ("*.ipynb", f"{fetch.SCRATCH}*")
_PATTERN, _ESCAPED = re.compile(r"[\\*?\[\]!# ]"), r"\\\g<0>"
"""Characters with a meaning in a pattern of files to ignore, and such a character itself."""
_LONGEST_ANSWER = 64 * 1024 * 1024
"""The names of all contents that the pod does not have."""
_READ_BYTES = 256 * 1024


class SentFolder:
    """One folder, and what the pod has of it.

    Attributes:
      root: Resolved; None if nothing is sent.
      name: Of the copy, in the home directory there; empty if nothing is sent.
      note: What was sent and what stays here, as sentences.
    """

    def __init__(self, path: str) -> None:
        self.root: Path | None = None
        self.name, self.note = "", ""
        self._sent: object = None
        self._sending = asyncio.Lock()
        here, home = Path(path).resolve(), Path.home().resolve()
        try:
            if here == home or here in home.parents:
                raise ConfigError(f"{here} is your home directory, or above it.")
            root = self.root = outgoing.directory(str(here))
        except ConfigError as error:
            self.note = f"No files were sent: {error}"
            return
        # Folders of the same name are not the same.
        self.name = f"{root.name}-{hashlib.sha256(f'{os.uname().nodename}:{root}'.encode()).hexdigest()[:6]}"

    async def send(self, open_channel: Callable[[], StreamChannel]) -> None:
        """Send what has changed since the last time.

        Raises:
          PathwaysError: It cannot be read here, or written there.
        """
        if self.root is None:
            return
        async with self._sending:
            found, large = await asyncio.to_thread(_look, self.root)
            if found == self._sent:
                return
            with Sending(self.root, [*_NOT_SENT, *(f"/{_PATTERN.sub(_ESCAPED, each)}" for each in large)]) as sending:
                packed = await sending.packed()
                await _transfer(open_channel(), packed, sending)
            self._sent, self.note = found, _note(packed, large)


def _look(root: Path) -> tuple[list[tuple[str, int, int]], list[str]]:
    """Return what there is to send, with times and sizes, and the files that are too large."""
    found, large = [], []
    try:
        for each in outgoing.choose(root, _NOT_SENT, (), []):
            if each.folder:
                # Its own time changes with each notebook that is saved in it.
                found.append((each.path, 0, 0))
            elif (about := os.lstat(root / each.path)).st_size > _LARGEST_BYTES:
                large.append(each.path)
            else:
                found.append((each.path, about.st_mtime_ns, about.st_size))
    except OSError as error:
        hint = "Fix its permissions." if isinstance(error, PermissionError) else "The pod has it as it was."
        raise PackError(f"{error.filename} cannot be read: {error.strerror}.", hint=hint) from error
    return found, large


async def _transfer(channel: StreamChannel, packed: Packed, sending: Sending) -> None:
    """Send what the pod lacks.

    Raises:
      ClusterError: It could not be written there.
    """
    reader = asyncio.StreamReader(limit=_LONGEST_ANSWER)

    async def take(data: memoryview) -> None:
        reader.feed_data(bytes(data))

    receiving = asyncio.create_task(channel.deliver(take))
    receiving.add_done_callback(lambda _: reader.feed_eof())

    async def answer() -> dict[str, Any]:
        # However long a cut takes: the channel ends with the stream.
        line = await reader.readline()
        found: dict[str, Any] = json.loads(line) if line else {"error": "the connection was lost"}
        if "error" in found:
            raise ClusterError(
                f"Files of {packed.root} could not be written in the lab: {found['error']}.",
                hint="Where one place has a directory and the other one a file of that name, rename one of them.",
            )
        return found

    try:
        entries = json.dumps([[each.path, each.kind, each.mode, each.content, each.size] for each in packed.entries])
        await channel.send(f"{len(entries.encode())}\n{entries}".encode())
        if missing := (await answer())["missing"]:
            archive = await sending.archive(tuple(missing))
            length, position = archive.seek(0, os.SEEK_END), 0
            await channel.send(f"{length}\n".encode())
            while data := os.pread(archive.fileno(), _READ_BYTES, position):
                position += len(data)
                await channel.send(data)
        await answer()
    finally:
        channel.close()
        await tasks.stop(receiving)


def _note(packed: Packed, large: Sequence[str]) -> str:
    stays = {**packed.reasons, **({f"larger than {size(_LARGEST_BYTES)}": list(large)} if large else {})}
    left = "".join(f" Stays here, {reason}: {some(paths)}." for reason, paths in stays.items())
    return f"The pod has {count(len(packed.files), 'file')} of {packed.root}.{left}"
