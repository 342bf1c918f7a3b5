"""Settings for administrators, in ``jupyter_server_config.py``."""

from __future__ import annotations

import os

from traitlets import Unicode
from traitlets.config import Configurable


class PathwaysJupyter(Configurable):
    """Settings of the server extension: ``c.PathwaysJupyter.kubeconfig = "/etc/team/kubeconfig"``."""

    kubeconfig = Unicode(
        "",
        config=True,
        help="""Kubeconfig of this server and of its kernels; overrides KUBECONFIG. Several files are separated as in
        KUBECONFIG. Pages cannot choose a kubeconfig, because one can run programs.""",
    )

    def apply(self) -> None:
        """Set the environment of this process, which its kernels inherit, so that the sidebar and `connect` agree."""
        if self.kubeconfig:
            os.environ["KUBECONFIG"] = os.pathsep.join(
                os.path.abspath(os.path.expanduser(part)) for part in self.kubeconfig.split(os.pathsep) if part
            )
