"""Arrays that are kept in a bucket: ``suspend`` and ``resume`` of a session, ``save`` and ``load`` of variables."""

from __future__ import annotations

from dataclasses import replace

from pathways_jupyter.base.sentences import Face
from pathways_jupyter.commands.declaration import CLUSTER, OF_NEXT_PROXY, Command, Option, ValueKind, Word, assume_yes

_IN_TERMINAL = "Hosts write and read for a session; a script says session.save() and session.load()."
_WHERE = (Option("--gcs-bucket", "look in this bucket", metavar="gs://...", default="the session's"), *CLUSTER)
_NAME = Word("name", "the name of the save: letters, digits, dots, dashes and underscores", required=True)

COMMANDS = (
    Command(
        "suspend",
        "Save all arrays on TPUs, then remove the proxy, so that its slices are free for others.",
        options=(assume_yes("do not ask if some arrays cannot be kept"),),
        examples={"suspend": "says how much is kept, and names what cannot be"},
        details="The notebook's kernel keeps running; %pathways resume brings the arrays back. An Interrupt while they "
        "are written leaves the session as it was.",
        in_terminal="A script says session.suspend().",
        only=Face.NOTEBOOK,
    ),
    Command(
        "resume",
        "Get slices again, and put the arrays of a suspend where they were.",
        options=(
            *OF_NEXT_PROXY,
            assume_yes("do not ask if some arrays do not fit fewer slices"),
        ),
        examples={
            "resume": "the same slices as before",
            "resume --wait 600": "ten minutes at most until they are free",
            "resume --tpu tpuv6e:2x2=1": "on one slice; arrays that do not fit are named",
        },
        details="Variables, containers, attributes, meshes and shardings have the new devices then. On another number "
        "of slices, meshes over all slices become smaller or larger, and arrays keep their partitions.",
        in_terminal="A script says session.resume().",
        only=Face.NOTEBOOK,
    ),
    Command(
        "save",
        "Save variables with their arrays on TPUs in the session's bucket; the hosts write them.",
        words=(_NAME, Word("variables", "which variables; default: all that can be kept", many=True)),
        examples={
            "save friday": "all variables; what cannot be kept is named",
            "save friday params step": "these two; an error if one cannot be kept",
        },
        details="A save is whole or not there: an older one of that name stays until the new one is whole.",
        in_terminal=_IN_TERMINAL,
        only=Face.NOTEBOOK,
    ),
    Command(
        "load",
        "Set the variables of a save, in this notebook or another one; the hosts read the arrays.",
        words=(replace(_NAME, required=False),),
        options=(Option("--last", "the last save of this notebook, whichever kernel made it", ValueKind.FLAG),),
        examples={
            "load friday": "values, types and places are those that were saved",
            "load --last": "the morning after: what this notebook has saved last",
        },
        details="Models, optimizers and other objects of these names get their leaves, where paths, shapes and types "
        "agree; run the cells that make them first. Without one, its leaves come back as a dictionary by path.",
        in_terminal=_IN_TERMINAL,
        only=Face.NOTEBOOK,
    ),
    Command(
        "saved",
        "Your saves in the session's bucket: size, age, notebook, variables.",
        options=_WHERE,
        examples={
            "saved": "in the bucket of this notebook's session, of its settings, or of the embedded cluster",
            "saved --gcs-bucket gs://my-bucket/me": "in another one",
        },
    ),
    Command(
        "saved delete",
        "Delete a save, after a question.",
        words=(_NAME,),
        options=(assume_yes("do not ask"), *_WHERE),
        examples={"saved delete friday": "also one that is damaged"},
    ),
)
