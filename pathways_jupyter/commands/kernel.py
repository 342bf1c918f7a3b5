"""``pathways-jupyter kernel``: kernels beside the chips, for the front ends of this machine."""

from __future__ import annotations

from pathways_jupyter.base.sentences import Face
from pathways_jupyter.commands.declaration import CLUSTER, Command, Word, assume_yes
from pathways_jupyter.commands.lab import LAB, NAME

COMMANDS = (
    Command(
        "fetch",
        "Bring files that this notebook's cells have written to its folder on your machine.",
        words=(
            Word(
                "paths", "files, directories or patterns in the copy of the notebook's folder", required=True, many=True
            ),
        ),
        examples={
            "fetch results.csv": "one file; what has the same content there already is not sent",
            "fetch plots/*.png runs": "several, and all files below a directory",
        },
        details="For a kernel beside the chips, which has a copy of the folder. A file of the same name is replaced, "
        "when everything has arrived. Notebooks and hidden files do not come along.",
        in_terminal="It is a command of the notebook whose kernel has the files.",
        only=Face.NOTEBOOK,
    ),
    Command(
        "move",
        "Go on with a kernel beside the chips, or from there with one on your machine, with this notebook's variables.",
        words=(Word("name", "the kernel, as `kernel list` shows it; the only one by default"),),
        options=(assume_yes("do not ask if some variables cannot be kept"),),
        examples={"move": "to the chips, and from there back"},
        details="Variables are saved in the session's bucket, the session ends, and the next cell runs in the other "
        "kernel, which has connected with the same settings and loaded them. The front end keeps its kernel, and so "
        "its name for it; Restart starts one of that name anew. What it has imported is imported again; functions and "
        "classes come from their cells.",
        in_terminal="It is a command of the notebook that moves.",
        only=Face.NOTEBOOK,
    ),
    Command(
        "kernel add",
        "Add a kernel that runs in the cluster to the Launcher of this machine's JupyterLab, and to VS Code.",
        options=(*LAB, NAME, *CLUSTER),
        examples={
            "kernel add --local": "in the embedded cluster",
            "kernel add --image REPOSITORY/lab:1 --cpu 8 --memory 32G": "in the cluster of your current context",
        },
        details="Notebook, settings and extensions stay here; the kernel is a process in your lab's pod, beside the "
        "TPUs, so that nothing of JAX goes over the line. The first kernel starts the lab if it does not run, and "
        "`pathways-jupyter lab down` ends it. It ends when its notebook is shut down, or the process that has started "
        "it has ended; a cut of up to two hours, or a sleeping machine, costs nothing.",
        only=Face.TERMINAL,
    ),
    Command(
        "kernel list",
        "The kernels beside the chips that this machine's front ends offer.",
        examples={"kernel list": "names, and the lab of each"},
        only=Face.TERMINAL,
    ),
    Command(
        "kernel remove",
        "Remove one from the Launcher; kernels that run go on, and so does the lab.",
        words=(Word("name", "as kernel list shows it; the only one by default"),),
        examples={"kernel remove": "the only one"},
        only=Face.TERMINAL,
    ),
)
