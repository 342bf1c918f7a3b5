"""Values for tab completion in notebooks and shells, read from files on this machine.

They are computed on every press of Tab, so no cluster is contacted.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pathways_jupyter.base import config
from pathways_jupyter.commands.declaration import Source

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


def values(source: Source, *, kubeconfig: str = "", local: bool = False) -> list[str]:
    """Return the values of a source that files on this machine name; none for a source of another kind.

    Args:
      kubeconfig: The file that the line names; by default the user's own.
      local: Whether the line names the embedded cluster.

    Raises:
      PathwaysError: A file cannot be read.
    """
    from pathways_jupyter.session import registry

    match source:
        case Source.CONTEXTS:
            from pathways_jupyter.kube import kubeconfig as kubeconfigs

            return sorted(kubeconfigs.read(kubeconfigs.paths(kubeconfig)).contexts)
        case Source.PROFILES:
            return sorted(config.profiles())
        case Source.SERVICES:
            from pathways_jupyter.service import names

            used = {str(config.canonical(profile).get("service", "")) for profile in config.profiles().values()}
            # A record has the service's address.
            used |= {names.service_of(record.service)[0] or record.service for record in registry.sessions()}
            return sorted((used | ({names.DEFAULT_SERVICE} if local else set())) - {""})
        case Source.SESSIONS:
            return [record.id for record in registry.sessions()]
        case Source.RUNS:
            from pathways_jupyter.multihost import records

            return list(dict.fromkeys(record.name for record in records.runs()))
        case Source.JOBS:
            return jobs()
        case Source.HEADLESS_JOBS:
            return jobs(headless=True)
    return []


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
    return config.runtime_dir() / "jobs.seen"
