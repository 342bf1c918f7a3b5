"""Volumes of persistent volume claims: a directory each, which outlives the pods that mount it.

Pods are processes of this machine and share its file system, so a mount is a link below the pod's own directory. A
variable that names a path in the volume, as ``HOME`` often does, is given the directory's real path.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from pathways_jupyter.local.apiserver.resources import PERSISTENT_VOLUME_CLAIMS, Object
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.controllers.reconciler import Key, Reconciler, everything
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
    paths: dict[str, Path] = {}
    for each in container.get("volumeMounts") or ():
        claim = claims.get(each["name"])
        if claim is None:
            continue
        claim_object = store.find(PERSISTENT_VOLUME_CLAIMS, pod["metadata"]["namespace"], claim)
        if claim_object is None:
            raise SpecError(f'persistentvolumeclaim "{claim}" not found')
        source = _volume(directory, claim_object) / str(each.get("subPath") or "")
        source.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = str(each["mountPath"]).rstrip("/")
        link = root / path.lstrip("/")
        if not link.is_symlink():
            link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            link.symlink_to(source)
        paths[path] = source
    moved = dict(variables)
    for name, value in variables.items():
        for path, source in paths.items():
            if value == path or value.startswith(f"{path}/"):
                moved[name] = f"{source}{value[len(path) :]}"
                break
    return moved


class VolumeCleaner(Reconciler):
    """Deletes the volumes of claims that are gone."""

    def __init__(self, store: Store, directory: Path) -> None:
        super().__init__(store, {PERSISTENT_VOLUME_CLAIMS: everything})
        self._directory = directory

    def reconcile(self, key: Key) -> None:
        """Delete the volumes without a claim."""
        claimed = {_volume(self._directory, each) for each in self._store.list(PERSISTENT_VOLUME_CLAIMS)}
        for volume in (self._directory / "volumes").glob("*"):
            if volume not in claimed:
                shutil.rmtree(volume, ignore_errors=True)


def _volume(directory: Path, claim: Object) -> Path:
    return directory / "volumes" / str(claim["metadata"]["uid"])
