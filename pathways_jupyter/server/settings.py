"""Settings that an administrator makes in ``jupyter_server_config.py``, beside those that users make themselves."""

from __future__ import annotations

import os

from traitlets import Unicode
from traitlets.config import Configurable


class PathwaysJupyter(Configurable):
    """Settings of the server extension: ``c.PathwaysJupyter.kubeconfig = "/etc/team/kubeconfig"``."""

    kubeconfig = Unicode(
        "",
        config=True,
        help="""Kubeconfig of this server and of the kernels that it starts, in place of what KUBECONFIG says; several
        files are separated as in KUBECONFIG. Pages cannot name one: it may contain programs that are run.""",
    )

    def apply(self) -> None:
        """Set the environment of this process, which its kernels inherit, so that the sidebar and `connect` agree."""
        if self.kubeconfig:
            os.environ["KUBECONFIG"] = os.pathsep.join(
                os.path.abspath(os.path.expanduser(part)) for part in self.kubeconfig.split(os.pathsep) if part
            )
