"""Values for tab completion in notebooks and shells, read from files on this machine.

They are computed on every press of Tab, so no cluster is contacted.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

_JOBS_KEPT = 500


@dataclass(frozen=True)
class SeenJob:
    """A job as a command has seen it last.

    Attributes:
      headless: Whether it has no program of its own, so that a notebook can attach to it.
      over: Whether it has ended.
    """

    headless: bool
    over: bool = False


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
    # A record has the service's address.
    used |= {names.service_of(record.service)[0] or record.service for record in registry.sessions()}
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


def jobs(*, headless: bool = False) -> list[str]:
    """Return the names of the jobs that commands on this machine have seen last, in all clusters.

    Args:
      headless: Only those to which a notebook can attach.
    """
    return sorted(
        {
            name
            for seen in _seen_jobs().values()
            for name, job in seen.items()
            if not headless or (job.headless and not job.over)
        }
    )


def remember_jobs(place: str, change: Callable[[Mapping[str, SeenJob]], Mapping[str, SeenJob]]) -> None:
    """Remember the jobs of `place` for :func:`jobs`; a file that cannot be written is no error.

    Args:
      place: A cluster and namespace.
      change: Returns its jobs by name, given those that are known.
    """
    seen = _seen_jobs()
    changed = change(seen.pop(place, {}))
    jobs = {name: asdict(changed[name]) for name in sorted(changed)[:_JOBS_KEPT]}
    # The places that were asked last come last, and the oldest ones are forgotten first.
    others = {other: {name: asdict(job) for name, job in known.items()} for other, known in seen.items()}
    kept = dict([*others.items(), *([(place, jobs)] if jobs else [])][-20:])
    with contextlib.suppress(OSError):
        path = _jobs_path()
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(kept), encoding="utf-8")
        temporary.replace(path)


def _seen_jobs() -> dict[str, dict[str, SeenJob]]:
    try:
        found = json.loads(_jobs_path().read_text(encoding="utf-8"))
        return {
            str(place): {str(name): SeenJob(bool(job["headless"]), bool(job["over"])) for name, job in seen.items()}
            for place, seen in found.items()
        }
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        # Broken, or written by another version.
        return {}


def _jobs_path() -> Path:
    from pathways_jupyter import config

    return config.runtime_dir() / "jobs.seen"
