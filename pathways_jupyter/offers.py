"""Values that Tab offers, in a notebook and in a shell: names that files of this machine know.

They are asked for on every press of Tab, so nothing here asks a cluster.
"""

from __future__ import annotations


def contexts(kubeconfig: str = "") -> list[str]:
    """Contexts of `kubeconfig`, or of the user's own files."""
    from pathways_jupyter.kube import kubeconfig as kubeconfigs

    return sorted(kubeconfigs.read(kubeconfigs.paths(kubeconfig)).contexts)


def profiles() -> list[str]:
    """Named settings in ``pathways.toml``."""
    from pathways_jupyter import config

    return sorted(config.profiles())


def services(*, local: bool = False) -> list[str]:
    """Services that were used: by profiles, and by sessions of this machine.

    Args:
      local: Also the embedded cluster's.
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
    """Ids of the sessions of this machine."""
    from pathways_jupyter.session import registry

    return [record.id for record in registry.sessions()]
