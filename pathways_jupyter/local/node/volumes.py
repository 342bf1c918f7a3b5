"""Volumes of persistent volume claims: a directory each, which outlives the pods that mount it.

Pods are processes of this machine and share its file system, so a mount is a link below the pod's own directory. A
variable that names a path in the volume, as ``HOME`` often does, is given the directory's real path.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path

from pathways_jupyter.local.apiserver.resources import PERSISTENT_VOLUME_CLAIMS, Object
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.apiserver.watch_delivery import ChangeType, Watch
from pathways_jupyter.local.node.environment import SpecError


def mount(
    container: Object, pod: Object, variables: Mapping[str, str], *, directory: Path, store: Store
) -> dict[str, str]:
    """Link the claims that `container` mounts into its pod's directory, and return its variables with real paths.

    Args:
      directory: The cluster's directory.

    Raises:
      SpecError: A claim does not exist.
    """
    root = directory / "pods" / pod["metadata"]["uid"] / "root"
    claims = {
        each["name"]: str(each["persistentVolumeClaim"]["claimName"])
        for each in pod["spec"].get("volumes") or ()
        if each.get("persistentVolumeClaim")
    }
    places: dict[str, Path] = {}
    for each in container.get("volumeMounts") or ():
        claim = claims.get(each["name"])
        if claim is None:
            continue
        found = store.find(PERSISTENT_VOLUME_CLAIMS, pod["metadata"]["namespace"], claim)
        if found is None:
            raise SpecError(f'persistentvolumeclaim "{claim}" not found')
        place = _volume(directory, found) / str(each.get("subPath") or "")
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = str(each["mountPath"]).rstrip("/")
        link = root / path.lstrip("/")
        if not link.is_symlink():
            link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            link.symlink_to(place)
        places[path] = place
    moved = dict(variables)
    for name, value in variables.items():
        for path, place in places.items():
            if value == path or value.startswith(f"{path}/"):
                moved[name] = f"{place}{value[len(path) :]}"
                break
    return moved


class VolumeCleaner:
    """Deletes the volumes of claims that are gone."""

    def __init__(self, store: Store, directory: Path) -> None:
        self._store = store
        self._directory = directory
        self._watch: Watch | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Delete the volumes without a claim, and begin to watch the claims."""
        self._watch = self._store.watch(PERSISTENT_VOLUME_CLAIMS)
        known = {_volume(self._directory, each) for each in self._store.list(PERSISTENT_VOLUME_CLAIMS)}
        for volume in (self._directory / "volumes").glob("*"):
            if volume not in known:
                shutil.rmtree(volume, ignore_errors=True)
        self._task = asyncio.create_task(self._follow(self._watch))

    async def close(self) -> None:
        """Stop watching."""
        if self._watch is not None and self._task is not None:
            self._watch.close()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self, watch: Watch) -> None:
        while changes := await watch.batch():
            for change in changes:
                if change.type is ChangeType.DELETED:
                    shutil.rmtree(_volume(self._directory, change.object), ignore_errors=True)


def _volume(directory: Path, claim: Object) -> Path:
    return directory / "volumes" / str(claim["metadata"]["uid"])
