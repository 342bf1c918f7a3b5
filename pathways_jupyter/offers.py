"""Values for tab completion in notebooks and shells, read from files on this machine.

They are computed on every press of Tab, so no cluster is contacted.
"""

from __future__ import annotations


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
