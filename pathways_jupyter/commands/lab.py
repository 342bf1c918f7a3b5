"""``pathways-jupyter lab``: JupyterLab in the cluster."""

from __future__ import annotations

from pathways_jupyter.commands.declaration import CLUSTER, Command, Kind, Option

LAB_NAME = Option("--name", "distinguishes several labs of yours", default="your user name")
LAB_PORT = Option("--port", "local port", Kind.NUMBER, default="any free one")
NO_BROWSER = Option("--no-browser", "print the address instead of opening a browser", Kind.FLAG)
LAB_UP = Command(
    "lab up",
    "Start JupyterLab in the cluster, and open it in the browser.",
    options=(
        Option("--image", "image with JupyterLab and pathways_jupyter", default="the embedded cluster's own"),
        Option("--cpu", "CPUs of its pod", metavar="N", default="as the cluster decides"),
        Option("--memory", "memory of its pod, e.g. 32G", metavar="SIZE", default="as the cluster decides"),
        Option("--volume", "size of its home volume", metavar="SIZE", default="10Gi"),
        Option("--storage-class", "storage class of its home volume", default="the cluster's"),
        Option("--no-open", "return once it runs, without a forward", Kind.FLAG),
        NO_BROWSER,
        LAB_PORT,
        LAB_NAME,
        Option("--dry-run", "print what would be created, as YAML", Kind.FLAG),
        *CLUSTER,
    ),
    examples={
        "lab up --local": "in the embedded cluster",
        "lab up --image REPOSITORY/lab:1 --cpu 8 --memory 32G --volume 50Gi": "in the cluster of your current context",
        "lab up --image REPOSITORY/lab:1 --dry-run | kubectl diff -f -": "look first",
    },
    details="One that runs already is found. It runs as a service account with the Role of docs/permissions.md, "
    "and has a home volume that stays until it is deleted. The forward to it ends with Ctrl-C; the lab "
    "keeps running until `pathways-jupyter lab down`.",
)
LAB_OPEN = Command(
    "lab open",
    "Open a running lab in the browser, until interrupted.",
    options=(NO_BROWSER, LAB_PORT, LAB_NAME, *CLUSTER),
    examples={"lab open": "a loopback port, forwarded to the lab"},
    details="The forward follows the lab when the cluster moves it to another pod, and ends with Ctrl-C or with "
    "the lab. With --json, the first line is an object with the address.",
)
LAB_STATUS = Command(
    "lab status",
    "Show a lab: state, pod, image, home volume.",
    options=(LAB_NAME, *CLUSTER),
    examples={"lab status": "yours"},
    in_terminal="Exit code 3 if there is none.",
)
LAB_DOWN = Command(
    "lab down",
    "End a lab; asks whether its home volume should be deleted too.",
    options=(
        Option("--keep-volume", "keep the home volume, without asking", Kind.FLAG),
        Option("--delete-volume", "delete the home volume, without asking", Kind.FLAG),
        LAB_NAME,
        *CLUSTER,
    ),
    details="Its kernels end with their proxies. Without a terminal, and with --keep-volume, the volume stays.",
    examples={"lab down --keep-volume": "the next lab up finds all files again"},
)
