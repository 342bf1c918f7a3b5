"""What ``%%colocated`` and ``%colocated`` take, declared as all commands are."""

from __future__ import annotations

from collections.abc import Mapping

from pathways_jupyter.commands.declaration import UNPICKLE, Command, Kind, Option, Source, Word

_SLICES = Option("--slices", "only hosts of these slices, such as 0,1 or 0-3", metavar="N[,N]", source=Source.SLICES)
_HOSTS = Option("--hosts", "only these hosts, such as 0,2 or 0-3", metavar="N[,N]", source=Source.HOSTS)

CELL = Command(
    "%%colocated",
    "Run this cell on the TPU hosts of the session.",
    options=(
        Option(
            "--in", "notebook variables that the cell sees; arrays keep their sharding", name="inputs", metavar="X,Y"
        ),
        Option("--out", "variables of the cell that come back to the notebook", name="outputs", metavar="Z"),
        _SLICES,
        _HOSTS,
        Option("--once", "run on one host only, the first of those", Kind.FLAG),
        Option("--cpu", "leave what --out names on the hosts' CPUs, not on chips", Kind.FLAG, name="on_cpu"),
        Option("--quiet", "do not show what is printed", Kind.FLAG, short="-q"),
        Option("--collapse", "show equal output of several hosts once", Kind.FLAG),
        UNPICKLE,
    ),
    examples={
        "%%colocated": "on every host; what it prints comes back under the host's name",
        "%%colocated --in x --out z": "x as a variable of the cell, z back as a global array",
        "%%colocated --slices 1 --collapse": "on the hosts of slice 1",
        "%%colocated --once": "on one host, for instance to download something to a shared disk",
    },
)

WHO = Command("who", "Names that %%colocated cells defined on the hosts, with their types.", options=(_SLICES, _HOSTS))
RESET = Command("reset", "Forget the names that %%colocated cells defined.", options=(_SLICES, _HOSTS))
RESTART = Command(
    "restart",
    "Restart Python on the hosts: ends a cell that Interrupt does not end, and forgets all names.",
    options=(_SLICES, _HOSTS),
    examples={"restart": "on all hosts", "restart --hosts 1": "on one"},
)
HOSTS = Command("hosts", "The session's hosts: slice, process, directory, versions.", options=(_SLICES, _HOSTS))
HELP = Command(
    "help",
    "These commands, and %%colocated itself.",
    words=(Word("command", "which", source=Source.HOST_COMMANDS),),
)

LINE: Mapping[str, Command] = {command.name: command for command in (HOSTS, WHO, RESET, RESTART, HELP)}
"""What ``%colocated`` knows."""
