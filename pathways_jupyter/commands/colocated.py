"""Options of ``%%colocated`` and ``%colocated``, and of ``sidecar build``, which makes the image of such cells."""

from __future__ import annotations

from collections.abc import Mapping

from pathways_jupyter.base.sentences import Face
from pathways_jupyter.commands.declaration import (
    BUILDS_ELSEWHERE,
    DRY_BUILD,
    HELP,
    PUSH,
    SETTING_OPTIONS,
    Command,
    Option,
    Source,
    ValueKind,
)

_SLICES = Option("--slices", "only hosts of these slices, such as 0,1 or 0-3", metavar="N[,N]", source=Source.SLICES)
_HOSTS = Option("--hosts", "only these hosts, such as 0,2 or 0-3", metavar="N[,N]", source=Source.HOSTS)

CELL = Command(
    "%%colocated",
    "Run this cell on the TPU hosts of the session.",
    options=(
        Option(
            "--in",
            "notebook variables that the cell sees; arrays keep their sharding; may be repeated",
            ValueKind.LIST,
            name="inputs",
            metavar="X,Y",
        ),
        Option(
            "--out",
            "variables of the cell that come back to the notebook; may be repeated",
            ValueKind.LIST,
            name="outputs",
            metavar="Z",
        ),
        _SLICES,
        _HOSTS,
        Option("--once", "run on one host only, the first of those", ValueKind.FLAG),
        Option("--cpu", "leave what --out names on the hosts' CPUs, not on chips", ValueKind.FLAG, name="on_cpu"),
        Option("--quiet", "do not show what is printed", ValueKind.FLAG, short="-q"),
        Option("--collapse", "show equal output of several hosts once", ValueKind.FLAG),
        SETTING_OPTIONS["unpickle"],
    ),
    examples={
        "%%colocated": "on every host; what it prints comes back under the host's name",
        "%%colocated --in x --out z": "x as a variable of the cell, z back as a global array",
        "%%colocated --slices 1 --collapse": "on the hosts of slice 1",
        "%%colocated --once": "on one host, for instance to download something to a shared disk",
    },
)

LINE: Mapping[str, Command] = {
    command.name: command
    for command in (
        Command("hosts", "The session's hosts: slice, process, directory, versions.", options=(_SLICES, _HOSTS)),
        Command(
            "who", "Names that %%colocated cells defined on the hosts, with their types.", options=(_SLICES, _HOSTS)
        ),
        Command("reset", "Forget the names that %%colocated cells defined.", options=(_SLICES, _HOSTS)),
        Command(
            "restart",
            "Restart Python on the hosts: ends a cell that Interrupt does not end, and forgets all names.",
            options=(_SLICES, _HOSTS),
            examples={"restart": "on all hosts", "restart --hosts 1": "on one"},
        ),
        HELP,
    )
}
"""Commands of ``%colocated``; ``%%colocated --help`` shows the cell's options."""
COMMANDS = (
    Command(
        "sidecar build",
        "Build a sidecar image with the packages of a requirements file.",
        options=(
            Option(
                "--requirements",
                "the packages to add, one per line",
                metavar="FILE",
                source=Source.FILES,
                default="requirements.txt",
            ),
            Option(
                "--jax-version",
                "JAX of the notebooks that will use it",
                default="the released one of the installed minor version",
            ),
            PUSH,
            Option("--base-image", "base image", metavar="IMAGE", default="the released sidecar"),
            Option("--netrc", "passwords of package indices, for the build only", metavar="FILE", source=Source.FILES),
            Option("--folder", "directory of the build context", source=Source.FILES, default="sidecar-image"),
            DRY_BUILD,
        ),
        examples={
            "sidecar build --requirements requirements.txt --jax-version 0.10.0 --dry-run": "look first",
            "sidecar build --jax-version 0.10.0 --push us-docker.pkg.dev/my-project/images": "build and push",
        },
        details=f"What the sidecar has keeps its version. {BUILDS_ELSEWHERE}",
        only=Face.TERMINAL,
    ),
)
