"""``pathways-jupyter lab``: JupyterLab in the cluster."""

from __future__ import annotations

from pathways_jupyter.commands.declaration import CLUSTER, Command, Kind, Option

LAB_NAME = Option("--name", "name", "distinguishes several labs of yours", default="your user name")
LAB_PORT = Option("--port", "port", "local port", kind=Kind.NUMBER, default="any free one")
NO_BROWSER = Option("--no-browser", "no_browser", "print the address instead of opening a browser", kind=Kind.FLAG)
LAB_UP = Command(
    "up",
    "Start JupyterLab in the cluster, and open it in the browser.",
    options=(
        Option("--image", "image", "image with JupyterLab and pathways_jupyter", default="the embedded cluster's own"),
        Option("--cpu", "cpu", "CPUs of its pod", metavar="N", default="as the cluster decides"),
        Option("--memory", "memory", "memory of its pod, e.g. 32G", metavar="SIZE", default="as the cluster decides"),
        Option("--volume", "volume", "size of its home volume", metavar="SIZE", default="10Gi"),
        Option("--storage-class", "storage_class", "storage class of its home volume", default="the cluster's"),
        Option("--no-open", "no_open", "return once it runs, without a forward", kind=Kind.FLAG),
        NO_BROWSER,
        LAB_PORT,
        LAB_NAME,
        Option("--dry-run", "dry_run", "print what would be created, as YAML", kind=Kind.FLAG),
        *CLUSTER,
    ),
    examples={
        "lab up --local": "in the embedded cluster",
        "lab up --image REPOSITORY/lab:1 --cpu 8 --memory 32G --volume 50Gi": "in the cluster of your current context",
        "lab up --image REPOSITORY/lab:1 --dry-run | kubectl diff -f -": "look first",
    },
)
LAB_OPEN = Command(
    "open",
    "Open a running lab in the browser, until interrupted.",
    options=(NO_BROWSER, LAB_PORT, LAB_NAME, *CLUSTER),
    examples={"lab open": "a loopback port, forwarded to the lab"},
)
LAB_STATUS = Command(
    "status",
    "Show a lab: state, pod, image, home volume.",
    options=(LAB_NAME, *CLUSTER),
    examples={"lab status": "yours"},
)
LAB_DOWN = Command(
    "down",
    "End a lab; asks whether its home volume should be deleted too.",
    options=(
        Option("--keep-volume", "keep_volume", "keep the home volume, without asking", kind=Kind.FLAG),
        Option("--delete-volume", "delete_volume", "delete the home volume, without asking", kind=Kind.FLAG),
        LAB_NAME,
        *CLUSTER,
    ),
    examples={"lab down --keep-volume": "the next lab up finds all files again"},
)
