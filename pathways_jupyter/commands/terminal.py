"""The commands of ``pathways-jupyter`` that are made from their declarations; the others have a module of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pathways_jupyter.commands.declaration import Command
from pathways_jupyter.commands.elastic import ELASTIC_HEAL, ELASTIC_INJECT
from pathways_jupyter.commands.job import (
    JOB_APPLY,
    JOB_DELETE,
    JOB_LIST,
    JOB_LOGS,
    JOB_NEW,
    JOB_RESUME,
    JOB_SHOW,
    JOB_SUSPEND,
)
from pathways_jupyter.commands.lab import LAB_DOWN, LAB_OPEN, LAB_STATUS, LAB_UP
from pathways_jupyter.commands.local import LOCAL_DOWN, LOCAL_KUBECONFIG, LOCAL_RESTART_API, LOCAL_STATUS, LOCAL_UP
from pathways_jupyter.commands.multihost import MULTIHOST
from pathways_jupyter.commands.service import (
    DOCTOR,
    NETWORK_POLICY,
    SERVICE_DELETE,
    SERVICE_DEPLOY,
    SERVICE_SHOW,
    SERVICE_WAIT,
    SERVICES,
    SLICES,
    USAGE,
)
from pathways_jupyter.commands.session import CLEAN, LOGS, SESSIONS, SESSIONS_DISCONNECT


@dataclass(frozen=True)
class Group:
    """A group of commands, whose names begin with its name.

    Attributes:
      summary: For the list of all commands.
      help: What they are about.
      examples: Command lines, without ``pathways-jupyter``.
    """

    summary: str
    help: str
    examples: tuple[str, ...]


GROUPS: Mapping[str, Group] = {
    "local": Group(
        "The embedded cluster on this machine: up, down, status, kubeconfig.",
        "The embedded cluster: a Kubernetes API, pods as processes, and a Pathways for CPUs.",
        ("local up --tpu tpuv6e:2x2=2", "local status", "local down"),
    ),
    "lab": Group(
        "JupyterLab in the cluster: up, open, status, down.",
        "JupyterLab in the cluster, next to the TPUs.\n\nIts notebooks reach their proxies without a tunnel, and keep "
        "running while this machine sleeps.",
        ("lab up --local", "lab open", "lab down --keep-volume"),
    ),
    "sessions": Group(
        "Sessions on this machine; end one from here.",
        "List the sessions of all notebooks and scripts on this machine.",
        ("sessions", "sessions disconnect 4f2a"),
    ),
    "service": Group(
        "Deploy a service; follow its start, show it, delete it.",
        "Deploy a Shared Pathways Service, follow its start, look at it, delete it.",
        (
            "service deploy team --tpu tpuv6e:2x2 --slices 2 --gcs-bucket gs://my-bucket/pathways",
            "service show team",
        ),
    ),
    "job": Group(
        "PathwaysJobs: new, apply, list, show, logs, suspend, resume, delete.",
        "PathwaysJobs: programs on TPUs that run in the cluster without this machine.",
        (
            "job new train --tpu tpuv6e:2x2=2 --image IMAGE -o train.yaml -- python train.py",
            "job apply train.yaml --wait",
            "job logs train -f",
        ),
    ),
    "elastic": Group(
        "Faults on purpose in the slices of a session or a job: inject, heal.",
        "Faults on purpose: take slices of one of your sessions or jobs down, drain their nodes, make them slow.",
        ("elastic inject slice-down 1 --for 30s", "elastic heal"),
    ),
    "multihost": Group(
        "Run a command on many hosts: TPU VMs, a list of hosts, pods.",
        "Run a command on many hosts: content is sent once, logs come back, nothing is left running.\n\nThe flags in "
        "capitals are those of multihost_runner.py: pathways-jupyter multihost --TPU_PREFIX=my-tpu "
        '--COMMAND="bash setup.sh"',
        ("multihost run --hosts hosts.txt -- python3 train.py", "multihost status"),
    ),
}
TERMINAL: Mapping[str, Command] = {
    command.name: command
    for command in (
        LOCAL_UP,
        LOCAL_DOWN,
        LOCAL_STATUS,
        LOCAL_KUBECONFIG,
        LOCAL_RESTART_API,
        LAB_UP,
        LAB_OPEN,
        LAB_STATUS,
        LAB_DOWN,
        SESSIONS,
        SESSIONS_DISCONNECT,
        SLICES,
        SERVICES,
        SERVICE_DEPLOY,
        SERVICE_SHOW,
        SERVICE_WAIT,
        SERVICE_DELETE,
        JOB_NEW,
        JOB_APPLY,
        JOB_LIST,
        JOB_SHOW,
        JOB_LOGS,
        JOB_SUSPEND,
        JOB_RESUME,
        JOB_DELETE,
        ELASTIC_INJECT,
        ELASTIC_HEAL,
        LOGS,
        USAGE,
        DOCTOR,
        CLEAN,
        *MULTIHOST,
        NETWORK_POLICY,
    )
}
