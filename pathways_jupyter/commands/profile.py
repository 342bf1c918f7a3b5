"""``%%pathways profile``: what the chips did while a cell ran, also from the terminal."""

from __future__ import annotations

from pathways_jupyter.base.sentences import Face
from pathways_jupyter.commands.declaration import Command, Option, Source, ValueKind, Word

_TRACE = (
    Option(
        "--to", "where the hosts write the trace: gs://BUCKET/PATH", metavar="gs://...", default="the session's bucket"
    ),
    Option(
        "--device",
        "what is recorded on the chips: off, xla (operations), compute, or sync (waits too)",
        metavar="LEVEL",
        default="the proxy's",
    ),
    Option("--host", "what is recorded on the hosts: 0 nothing to 3 everything", ValueKind.NUMBER, default="2"),
)
CELL = Command(
    "%%pathways profile",
    "Run a cell, and show what the chips did meanwhile: each chip's time, and the operations that cost most.",
    options=_TRACE,
    examples={"%%pathways profile": "then the code of some steps; compile them in a cell before"},
    details="An Interrupt stops the cell and the trace, and shows what there is. The files stay in the bucket.",
    json=False,
)
COMMANDS = (
    Command(
        "profile start",
        "Start a trace of this session's chips, for cells that follow.",
        options=_TRACE,
        examples={"profile start --to gs://my-bucket/traces": "then some cells, then profile stop"},
        details="A cell with its own trace is %%pathways profile.",
        only=Face.NOTEBOOK,
    ),
    Command("profile stop", "Stop the trace, and show what the chips did.", only=Face.NOTEBOOK),
    Command(
        "profile show",
        "Show a trace that was taken before.",
        words=(Word("location", "the directory of its files, gs://...", required=True),),
        examples={"profile show gs://my-bucket/traces/plugins/profile/2026_11_25_10_00_00": "as it was shown then"},
    ),
    Command(
        "profile",
        "Trace the chips of a session for some seconds, while its notebook or program computes, and sum it up.",
        options=(
            Option("--session", "session id, or the beginning of one", metavar="ID", source=Source.SESSIONS),
            Option("--seconds", "how long: seconds, or 30s, 2m", metavar="TIME", default="5"),
            *_TRACE,
        ),
        examples={
            "profile --seconds 5": "the only session on this machine",
            "profile --session 4f2a --to gs://my-bucket/traces": "another one, to a bucket of yours",
        },
        in_terminal="An Interrupt ends the trace early and shows what there is.",
        only=Face.TERMINAL,
    ),
)
