"""Values for tab completion in notebooks and shells, read from files on this machine.

They are computed on every press of Tab, so no cluster is contacted.
"""

from __future__ import annotations

from pathways_jupyter.base import pages, setting_sources
from pathways_jupyter.commands.declaration import Source


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
            return sorted(setting_sources.profiles())
        case Source.SERVICES:
            from pathways_jupyter.service import names

            used = {
                str(setting_sources.canonical(profile).get("service", ""))
                for profile in setting_sources.profiles().values()
            }
            # A record has the service's address.
            used |= {names.service_of(record.service)[0] or record.service for record in registry.sessions()}
            return sorted((used | ({names.DEFAULT_SERVICE} if local else set())) - {""})
        case Source.SESSIONS:
            return [record.id for record in registry.sessions()]
        case Source.TOPICS:
            return list(pages.topics())
        case Source.CONTAINERS:
            from pathways_jupyter.service import job_parts

            return list(job_parts.PROGRAMS)
    return []
