"""Commands about a session once it is connected, and about what sessions leave behind."""

from __future__ import annotations

from pathways_jupyter.base.sentences import Face
from pathways_jupyter.commands.declaration import CLUSTER, SETTING_OPTIONS, Command, Option, Source, ValueKind, Word

COMMANDS = (
    Command(
        "disconnect",
        "Remove the proxy and restore JAX.",
        examples={"disconnect": "arrays on TPUs become unusable; the output lists them"},
        in_terminal="Here, pathways-jupyter sessions disconnect does it.",
        only=Face.NOTEBOOK,
    ),
    Command(
        "reconnect",
        "Replace the proxy by a new one, whether it is lost or not.",
        options=(Option("--yes", "do not ask before arrays are lost", ValueKind.FLAG, short="-y"),),
        examples={"reconnect": "the same service and slices as before"},
        details="A new proxy has none of the arrays: where the old one works and has some, it asks first. "
        "An Interrupt stops it: the session stays, without a proxy, and can be reconnected again.",
        only=Face.NOTEBOOK,
    ),
    Command(
        "status",
        "This notebook's session: state, service, age, devices by slice, last event.",
        in_terminal="Here, pathways-jupyter sessions does it.",
        only=Face.NOTEBOOK,
    ),
    Command(
        "panel",
        "Buttons to connect, reconnect and disconnect, for front ends without the sidebar.",
        examples={"panel": "for example in VS Code; the buttons act when no cell is running"},
        details="The card above the buttons is kept in the notebook's file. The buttons are widgets, which need their "
        "kernel: in a notebook opened again they are an error message until the cell is run again.",
        only=Face.NOTEBOOK,
    ),
    Command(
        "logs",
        "The log of the resource manager, a worker, or a session's proxy or supervisor.",
        words=(
            Word(
                "program",
                "which program's log; default: the session's proxy",
                choices=("rm", "worker", "proxy", "supervisor"),
            ),
            Word(
                "slice",
                "the service's number of the worker's slice, or SLICE-HOST such as 1-0; default: the session's first",
                source=Source.SLICES,
            ),
        ),
        options=(
            Option("--follow", "keep printing new lines until interrupted", ValueKind.FLAG, short="-f"),
            Option("--tail", "number of last lines; default: 100", ValueKind.NUMBER),
            Option("--session", "session id, or the beginning of one", metavar="ID", source=Source.SESSIONS),
            SETTING_OPTIONS["service"],
            *CLUSTER,
        ),
        examples={
            "logs": "the proxy of this session",
            "logs rm --tail 20": "the resource manager",
            "logs worker 1 -f": "the worker of slice 1, continuously",
        },
        in_terminal='With --json each line is an object with "pod" and "line".',
    ),
    Command("events", "The events of this session: stages, slices down and healed, proxy lost.", only=Face.NOTEBOOK),
    Command("sessions", "Sessions of all notebooks and scripts on this machine.", examples={"sessions": "all of them"}),
    Command(
        "sessions disconnect",
        "End a session, and wait until it is removed.",
        words=(
            Word("session", "an id, or the beginning of one; the only session if left out", source=Source.SESSIONS),
        ),
        examples={"sessions disconnect 4f2a": "its notebook is notified"},
        details="SESSION is an id or the beginning of one; the only session if left out. Its notebook is notified. "
        "When this returns, the proxy, its Lease and the tunnel are removed.",
        only=Face.TERMINAL,
    ),
    Command(
        "env",
        "The environment variables by which %%bash, !python and other processes share this session.",
        options=(Option("--set", "set them for every process that this notebook starts from now on", ValueKind.FLAG),),
        examples={"env": "to copy into a terminal", "env --set": "then: !python train.py"},
        only=Face.NOTEBOOK,
    ),
    Command(
        "clean",
        "Remove proxies whose owner is gone, and files of sessions that ended.",
        options=(Option("--dry-run", "only list what would be removed", ValueKind.FLAG), *CLUSTER),
        examples={"clean --dry-run": "look first"},
        details="A proxy counts as abandoned once its Lease has expired; live sessions are never touched.",
        in_terminal="Exit code 1 if something could not be removed.",
        only=Face.TERMINAL,
    ),
    Command("traceback", "The full traceback of the last Pathways error.", only=Face.NOTEBOOK),
)
