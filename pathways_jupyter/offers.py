"""Values for tab completion in notebooks and shells, read from files on this machine.

They are computed on every press of Tab, so no cluster is contacted.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

_JOBS_KEPT = 500


def contexts(kubeconfig: str = "") -> list[str]:
    """Return the contexts of `kubeconfig`, by default of the user's own files."""
    from pathways_jupyter.kube import kubeconfig as kubeconfigs

    return sorted(kubeconfigs.read(kubeconfigs.paths(kubeconfig)).contexts)


def profiles() -> list[str]:
    """Return the profiles in ``pathways.toml``."""
    from pathways_jupyter import config

    return sorted(config.profiles())


def services(*, local: bool = False) -> list[str]:
    """Return the services named in profiles and used by sessions of this machine.

    Args:
      local: Include the embedded cluster's.
    """
    from pathways_jupyter import config
    from pathways_jupyter.service import names
    from pathways_jupyter.session import registry

    used = {str(config.canonical(profile).get("service", "")) for profile in config.profiles().values()}
    used |= {record.service for record in registry.sessions()}
    if local:
        used.add(names.DEFAULT_SERVICE)
    return sorted(used - {""})


def sessions() -> list[str]:
    """Return the ids of the sessions of this machine."""
    from pathways_jupyter.session import registry

    return [record.id for record in registry.sessions()]


def runs() -> list[str]:
    """Return the names of the runs on many hosts of this machine."""
    from pathways_jupyter.multihost import records

    return list(dict.fromkeys(record.name for record in records.runs()))


def jobs() -> list[str]:
    """Return the names of the jobs that commands on this machine have seen last, in all clusters."""
    return sorted({name for names in _seen_jobs().values() for name in names})


def remember_jobs(place: str, change: Callable[[set[str]], set[str]]) -> None:
    """Remember the jobs of `place` for :func:`jobs`; a file that cannot be written is no error.

    Args:
      place: A cluster and namespace.
      change: Returns the names of its jobs, given those that are known.
    """
    seen = _seen_jobs()
    names = sorted(change(set(seen.pop(place, ()))))[:_JOBS_KEPT]
    # The places that were asked last come last, and the oldest ones are forgotten first.
    kept = dict([*seen.items(), *([(place, names)] if names else [])][-20:])
    with contextlib.suppress(OSError):
        path = _jobs_path()
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(kept), encoding="utf-8")
        temporary.replace(path)


def _seen_jobs() -> dict[str, list[str]]:
    try:
        found = json.loads(_jobs_path().read_text(encoding="utf-8"))
        return {str(place): [str(name) for name in names] for place, names in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _jobs_path() -> Path:
    from pathways_jupyter import config

    return config.runtime_dir() / "jobs.seen"
