"""All commands of ``%pathways`` and of ``pathways-jupyter``, by name."""

from __future__ import annotations

from collections.abc import Mapping

from pathways_jupyter.base.sentences import Face
from pathways_jupyter.commands import (
    accept,
    colocated,
    elastic,
    job,
    kernel,
    lab,
    local,
    multihost,
    profile,
    saved,
    service,
    session,
)
from pathways_jupyter.commands.declaration import HELP, Command

_ALL = (
    *session.COMMANDS,
    *saved.COMMANDS,
    *service.COMMANDS,
    *job.COMMANDS,
    *elastic.COMMANDS,
    *profile.COMMANDS,
    *multihost.COMMANDS,
    *lab.COMMANDS,
    *kernel.COMMANDS,
    *local.COMMANDS,
    *accept.COMMANDS,
    *colocated.COMMANDS,
    HELP,
)
MAGIC: Mapping[str, Command] = {each.name: each for each in _ALL if each.only is not Face.TERMINAL}
"""The commands of ``%pathways``; a name of two words is a command of a group."""
TERMINAL: Mapping[str, Command] = {each.name: each for each in _ALL if each.only is not Face.NOTEBOOK}
"""The commands of ``pathways-jupyter`` that are made from their declarations; others have a module in ``cli``."""
CELLS = (colocated.CELL, job.CELL, multihost.CELL, profile.CELL)
"""The cell magics."""
GROUPS: Mapping[str, str] = {
    "local": "The embedded cluster on this machine: up, down, status, kubeconfig.\n\nA Kubernetes API, pods as "
    "processes, and a Pathways for CPUs.",
    "lab": "JupyterLab in the cluster: up, down.\n\nIts notebooks reach their proxies without a tunnel, "
    "and keep running while this machine sleeps.",
    "kernel": "Kernels in the cluster for the notebooks of this machine: add, list, remove.\n\nThe notebook stays "
    "here, the kernel runs beside the TPUs.",
    "sessions": "Sessions of all notebooks and scripts on this machine; end one from here.",
    "service": "Deploy a Shared Pathways Service, follow its start, show it, delete it.",
    "job": "PathwaysJobs: new, apply, list, show, logs, suspend, resume, delete.\n\nPrograms on TPUs that run in the "
    "cluster without this machine.",
    "elastic": "Faults on purpose in the slices of a session or a job: inject, heal.\n\nSlices are taken down or made "
    "slow, or their nodes drained.",
    "saved": "Variables that notebooks have saved with their arrays: list them, delete one.",
    "profile": "What a session's chips do: trace them for some seconds, show a trace again.",
    "multihost": "Run a command on many hosts: TPU VMs, a list of hosts, pods.\n\nContent is sent once, logs come "
    "back, nothing is left running. The flags in capitals are those of multihost_runner.py: pathways-jupyter multihost "
    '--TPU_PREFIX=my-tpu --COMMAND="bash setup.sh"',
    "operator": "The controller of PathwaysJobs and sweeper of dead sessions: run it, or print its manifests.",
    "manifests": "Manifests for kubectl: roles.",
    "sidecar": "Build the image that runs %%colocated cells on TPU hosts.",
}
"""Subjects of the groups of ``pathways-jupyter``: a line for the list of all commands, then more for their help."""
