"""``pathways-jupyter local``: the embedded cluster on this machine."""

from __future__ import annotations

from pathways_jupyter.base.sentences import Face
from pathways_jupyter.commands.declaration import SETTING_OPTIONS, Command, Option, Source, ValueKind, assume_yes

_NAME = Option("--name", "name of the cluster, if you run several", default="local")
COMMANDS = (
    Command(
        "local up",
        "Start it and wait until its service is ready.",
        options=(
            Option(
                "--tpu",
                "type and number of its slices",
                metavar="TYPE[=COUNT]",
                source=Source.INSTANCES,
                default="two of tpuv6e:2x2",
            ),
            Option("--spare", "nodes for more slices, without a service: for service deploy", metavar="TYPE[=COUNT]"),
            Option("--idle", "ends after this time without use", ValueKind.NUMBER, metavar="SECONDS", default="1800"),
            Option("--port", "port of its API on 127.0.0.1", ValueKind.NUMBER, metavar="PORT", default="any free one"),
            Option("--no-sidecar", "give the workers no colocated Python sidecar", ValueKind.FLAG),
            Option(
                "--fast-heal", "replace a dead worker within two seconds, without Kubernetes' back-off", ValueKind.FLAG
            ),
            Option(
                "--bucket", "directory of its bucket's objects", metavar="DIRECTORY", default="removed by local down"
            ),
            SETTING_OPTIONS["yes"],
            _NAME,
        ),
        examples={
            "local up --tpu tpuv6e:2x2=4": "four slices",
            "local up --tpu tpuv6e:2x2=2,tpuv5e:4x4=1": "two services, one of them with 4 hosts a slice",
            "local up --spare tpuv5e:4x4=1": "nodes for a service that you deploy",
        },
        details="One that runs already gets the slices that it lacks.",
        only=Face.TERMINAL,
    ),
    Command(
        "local down",
        "Stop it and everything that runs in it.",
        options=(assume_yes("do not ask whether sessions, jobs and deployed services may end with it"), _NAME),
        examples={"local down": "it also ends by itself when it is not used"},
        details="Sessions, jobs and deployed services on it would be lost: it lists them and asks.",
        only=Face.TERMINAL,
    ),
    Command(
        "local status",
        "Show whether it is running, and its slices.",
        options=(_NAME,),
        examples={"local status --json": "for a script"},
        in_terminal="Exit code 3 if it is not running.",
        only=Face.TERMINAL,
    ),
    Command(
        "local kubeconfig",
        "Print the path of its kubeconfig, for kubectl and other tools.",
        options=(_NAME,),
        examples={"local kubeconfig": "as in: kubectl --kubeconfig $(pathways-jupyter local kubeconfig) get pods"},
        only=Face.TERMINAL,
    ),
    Command(
        "local restart-api",
        "Restart its API server in place; pods keep running.",
        options=(_NAME, Option("--away", "how long it stays away", ValueKind.NUMBER, metavar="SECONDS", default="0")),
        examples={"local restart-api --away 10": "like an upgrade of a real cluster's control plane"},
        only=Face.TERMINAL,
    ),
)
