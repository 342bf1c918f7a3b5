"""Sessions that hold slices of the embedded cluster, with the test's process for their kernel."""

import os
from typing import Any

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.session import protocol
from pathways_jupyter.session.kernel import spawn
from pathways_jupyter.session.kernel.supervisor_link import SupervisorLink
from pathways_jupyter.session.protocol import Method

DEADLINE = 90.0


def start(config: ConnectConfig, notebook: str = "") -> tuple[SupervisorLink, dict[str, Any]]:
    """Start a session and wait until it is connected; return the link, which the caller closes, and its record."""
    link = spawn.supervisor()
    asked = {"config": protocol.config_to_json(config), "kernel_pid": os.getpid(), "notebook": notebook}
    try:
        return link, link.answer(link.ask(Method.START, **asked), patience=DEADLINE)
    except BaseException:
        link.close(patience=DEADLINE)
        raise


def hold(kubeconfig: object, **settings: object) -> SupervisorLink:
    """Start a session of one slice and wait until it is connected; the caller closes the link."""
    config = ConnectConfig(
        **{"instances": {"tpuv6e:2x2": 1}, "kubeconfig": str(kubeconfig), "wait": DEADLINE, **settings}
    )
    link, _ = start(config, notebook="work/holder.ipynb")
    return link
