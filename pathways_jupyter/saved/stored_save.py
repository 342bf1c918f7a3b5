"""One save as its bucket has it: the index, and the directories with arrays beside it.

Of two saves of one name at the same time one is whole, and the other one fails: an index is written only over the one
that was there when the save began, which the bucket itself decides.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.saved.index import LARGEST_BYTES, Index

INDEX = "index.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
"""Of a save."""
NO_GENERATION = "0"
"""For Google's storage, that of an object that is not there."""


def kept_in(bucket: Path) -> dict[str, int]:
    """Return the bytes of each save of any user, by its name, where the bucket is a directory of this machine.

    Without those of its index, as ``saved`` counts.
    """
    saves = sorted(index.parent for index in bucket.glob(f"**/saved/*/*/{INDEX}"))
    return {each.name: sum(path.stat().st_size for path in each.glob("*/**/*") if path.is_file()) for each in saves}


class StoredSave:
    """One save.

    Args:
      bucket: As a file system.
      directory: ``BUCKET/PATH`` of the save.
      name: Of the save.
    """

    def __init__(self, bucket: Any, directory: str, name: str) -> None:
        self._bucket = bucket
        self._directory = directory
        self._name = name

    def place(self, content: str) -> str:
        """Return the directory of the arrays that an index with this `content` names."""
        return f"{self._directory}/{content}"

    def index(self) -> tuple[str, bytes]:
        """Read the index; return its generation and its bytes, of which there may be too many.

        Raises:
          FileNotFoundError: There is none.
        """
        url = self._bucket.url(f"{self._directory}/{INDEX}")
        headers, data = self._bucket.call("GET", url, headers={"Range": f"bytes=0-{LARGEST_BYTES}"})
        return headers["X-Goog-Generation"], data

    def present(self) -> tuple[str, Index | None]:
        """Return the generation of the index that is there and what it says, None if that cannot be read."""
        try:
            generation, data = self.index()
        except FileNotFoundError:
            return NO_GENERATION, None
        with contextlib.suppress(PathwaysError):
            return generation, Index.parse(self._name, data)
        return generation, None

    def publish(self, index: Index, generation: str) -> None:
        """Write an index, if that of this generation is still there.

        Raises:
          PathwaysError: It is too large, another save was written meanwhile, or the files of this one are gone.
        """
        data = index.encode()
        if len(data) > LARGEST_BYTES:
            raise PathwaysError(
                f"{self._name} cannot be saved: what is not on TPUs is larger than 48 MB.",
                hint="Put large arrays on TPUs with jax.device_put, or save fewer variables.",
            )
        bucket_name, _, key = f"{self._directory}/{INDEX}".partition("/")
        try:
            # gcsfs' own calls have a condition for objects that are not there, and none for a generation.
            url = f"{self._bucket.base.replace('/storage/', '/upload/storage/')}b/{quote(bucket_name)}/o"
            condition = {"uploadType": "media", "name": key, "ifGenerationMatch": generation}
            headers = {"Content-Type": "application/octet-stream"}
            own = self._bucket.call("POST", url, headers=headers, data=data, json_out=True, **condition)["generation"]
        except FileExistsError:
            # Perhaps the request was repeated because its answer was lost on the way.
            own, present = self.present()
            if present is None or present.content != index.content:
                raise PathwaysError(
                    f"{self._name} was not saved: it was saved or deleted by another kernel meanwhile.",
                    hint=advice("{saved} shows what is there now; save it again, or under another name."),
                ) from None
        if self.files(index.content) != index.files:
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                self._bucket.call("DELETE", "b/{}/o/{}", bucket_name, key, ifGenerationMatch=own)
            raise self.interfered()

    def files(self, content: str) -> dict[str, list[Any]]:
        """Return the size and the checksum of each file of the arrays in `content`, as the bucket has them."""
        infos = self._bucket.find(self.place(content), detail=True)
        return {
            path.removeprefix(f"{self.place(content)}/"): [info["size"], info.get("md5Hash") or info.get("crc32c")]
            for path, info in infos.items()
        }

    def remove(self, content: str) -> None:
        """Remove the arrays in `content`."""
        remove(self._bucket, self._bucket.find(self.place(content)))

    def discard(self, content: str) -> None:
        """Remove the arrays in `content`, of a save that failed; what cannot be removed is removed by a sweep."""
        with contextlib.suppress(Exception):
            self.remove(content)

    def interfered(self) -> PathwaysError:
        """Return the error of a save whose files are not those that it wrote."""
        return PathwaysError(
            f"{self._name} was not saved: its files were changed or deleted meanwhile.", hint="Save it again."
        )


def remove(bucket: Any, paths: Sequence[str]) -> None:
    """Remove files; none is no error."""
    if paths:
        bucket.rm(list(paths))
