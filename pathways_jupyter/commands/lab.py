"""``pathways-jupyter lab``: JupyterLab in the cluster."""

from __future__ import annotations

from pathways_jupyter.base.sentences import Face
from pathways_jupyter.commands.declaration import CLUSTER, Command, Option, ValueKind

NAME = Option("--name", "distinguishes several labs of yours", default="the one without a name")
LAB = (
    Option("--image", "image with JupyterLab and pathways_jupyter", default="the embedded cluster's own"),
    Option("--cpu", "CPUs of its pod", metavar="N", default="as the cluster decides"),
    Option("--memory", "memory of its pod, e.g. 32G", metavar="SIZE", default="as the cluster decides"),
    Option("--volume", "size of its home volume", metavar="SIZE", default="10Gi"),
    Option("--storage-class", "storage class of its home volume", default="the cluster's"),
)
"""Options of all that may start a lab."""
COMMANDS = (
    Command(
        "lab up",
        "Start JupyterLab in the cluster, or find yours, and forward a local port to it.",
        options=(
            *LAB,
            Option("--port", "local port", ValueKind.NUMBER, default="any free one"),
            NAME,
            Option("--dry-run", "print what would be created, as YAML", ValueKind.FLAG),
            *CLUSTER,
        ),
        examples={
            "lab up --local": "in the embedded cluster",
            "lab up --image REPOSITORY/lab:1 --cpu 8 --memory 32G": "in the cluster of your current context",
            "lab up": "reach the one that runs",
            "lab up --image REPOSITORY/lab:1 --dry-run | kubectl diff -f -": "look first",
        },
        details="It runs as a service account with the Role of docs/permissions.md, and has a home volume that stays "
        "until it is deleted. The forward follows the lab when the cluster moves it to another pod, and ends with "
        "Ctrl-C or with the lab, which keeps running until `pathways-jupyter lab down`. With --json, the first line is "
        "an object with the address.",
        only=Face.TERMINAL,
    ),
    Command(
        "lab down",
        "End a lab; its home volume stays unless it is to be deleted.",
        options=(
            Option("--delete-volume", "delete the home volume too, with all files in it", ValueKind.FLAG),
            NAME,
            *CLUSTER,
        ),
        details="Its kernels end with their proxies.",
        examples={"lab down": "the next lab up finds all files again"},
        only=Face.TERMINAL,
    ),
)
