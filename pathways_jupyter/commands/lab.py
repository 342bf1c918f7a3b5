"""``pathways-jupyter lab``: JupyterLab in the cluster."""

from __future__ import annotations

from pathways_jupyter.base.sentences import Face
from pathways_jupyter.commands.declaration import CLUSTER, Command, Kind, Option

_NAME = Option("--name", "distinguishes several labs of yours", default="your user name")
_PORT = Option("--port", "local port", Kind.NUMBER, default="any free one")
_NO_BROWSER = Option("--no-browser", "print the address instead of opening a browser", Kind.FLAG)
COMMANDS = (
    Command(
        "lab up",
        "Start JupyterLab in the cluster, and open it in the browser.",
        options=(
            Option("--image", "image with JupyterLab and pathways_jupyter", default="the embedded cluster's own"),
            Option("--cpu", "CPUs of its pod", metavar="N", default="as the cluster decides"),
            Option("--memory", "memory of its pod, e.g. 32G", metavar="SIZE", default="as the cluster decides"),
            Option("--volume", "size of its home volume", metavar="SIZE", default="10Gi"),
            Option("--storage-class", "storage class of its home volume", default="the cluster's"),
            Option("--no-open", "return once it runs, without a forward", Kind.FLAG),
            _NO_BROWSER,
            _PORT,
            _NAME,
            Option("--dry-run", "print what would be created, as YAML", Kind.FLAG),
            *CLUSTER,
        ),
        examples={
            "lab up --local": "in the embedded cluster",
            "lab up --image REPOSITORY/lab:1 --cpu 8 --memory 32G": "in the cluster of your current context",
            "lab up --image REPOSITORY/lab:1 --dry-run | kubectl diff -f -": "look first",
        },
        details="One that runs already is found. It runs as a service account with the Role of docs/permissions.md, "
        "and has a home volume that stays until it is deleted. The forward to it ends with Ctrl-C; the lab "
        "keeps running until `pathways-jupyter lab down`.",
        only=Face.TERMINAL,
    ),
    Command(
        "lab open",
        "Open a running lab in the browser, until interrupted.",
        options=(_NO_BROWSER, _PORT, _NAME, *CLUSTER),
        examples={"lab open": "a loopback port, forwarded to the lab"},
        details="The forward follows the lab when the cluster moves it to another pod, and ends with Ctrl-C or with "
        "the lab. With --json, the first line is an object with the address.",
        only=Face.TERMINAL,
    ),
    Command(
        "lab status",
        "Show a lab: state, pod, image, home volume.",
        options=(_NAME, *CLUSTER),
        examples={"lab status": "yours"},
        in_terminal="Exit code 3 if there is none.",
        only=Face.TERMINAL,
    ),
    Command(
        "lab down",
        "End a lab; asks whether its home volume should be deleted too.",
        options=(
            Option("--keep-volume", "keep the home volume, without asking", Kind.FLAG),
            Option("--delete-volume", "delete the home volume, without asking", Kind.FLAG),
            _NAME,
            *CLUSTER,
        ),
        details="Its kernels end with their proxies. Without a terminal, and with --keep-volume, the volume stays.",
        examples={"lab down --keep-volume": "the next lab up finds all files again"},
        only=Face.TERMINAL,
    ),
)
