"""Write ``protobuf.json``: the numbers that the built-in kinds' fields have in Kubernetes' protobuf encoding.

Run by hand (``python tools/make_protobuf.py [KUBECTL]``): any kubectl carries the
descriptors of the types that it was built with.
"""

from __future__ import annotations

import json
import shutil
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pathways_jupyter.local.apiserver.resources import BUILTIN
from pathways_jupyter.service.builtin_kinds import fields, kinds

TARGET = Path(__file__).parents[1] / "pathways_jupyter" / "local" / "apiserver" / "protobuf.json"
_PACKAGES = (
    "k8s.io.api.core.v1",
    "k8s.io.api.batch.v1",
    "k8s.io.api.coordination.v1",
    "k8s.io.api.networking.v1",
    "k8s.io.api.rbac.v1",
    "k8s.io.api.authorization.v1",
    "k8s.io.api.authentication.v1",
    "k8s.io.api.policy.v1",
    "k8s.io.apimachinery.pkg.apis.meta.v1",
    "k8s.io.apimachinery.pkg.api.resource",
    "k8s.io.apimachinery.pkg.util.intstr",
    "k8s.io.apimachinery.pkg.runtime",
)
_ASKED = (
    "Eviction",
    "DeleteOptions",
    "SelfSubjectReview",
    "SelfSubjectAccessReview",
)
_WITHOUT = ("apiextensions.k8s.io", "visibility.kueue.x-k8s.io")
"""Groups of which kubectl has no messages."""
_GZIP = b"\x1f\x8b\x08\x00\x00\x00\x00\x00"


def make(kubectl: Path) -> dict[str, dict[str, list[str]]]:
    """Fields by kind and number: name and type, with an empty name where JSON has the inner fields in its place."""
    messages = {
        (file.package, message.name): message
        for file in _descriptors(kubectl.read_bytes())
        if file.package in _PACKAGES
        for message in file.message_type
    }
    waiting = [
        next(key for package in _PACKAGES if (key := (package, name)) in messages)
        for name in [*(each.kind for each in BUILTIN if not each.group.startswith(_WITHOUT)), *_ASKED]
    ]
    made: dict[str, dict[str, list[str]]] = {}
    while waiting:
        key = waiting.pop()
        if key[1] in made:
            continue
        made[key[1]] = {}
        for field in messages[key].field:
            kind, inner = _type(field, messages[key])
            inline = inner is not None and key[1] in kinds() and field.name not in fields(key[1])
            made[key[1]][str(field.number)] = ["" if inline else field.name, kind]
            if inner in messages:
                waiting.append(inner)
    return dict(sorted(made.items()))


def _descriptors(data: bytes) -> Iterator[Any]:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    position = data.find(_GZIP)
    while position >= 0:
        try:
            plain = zlib.decompressobj(31).decompress(data[position : position + (1 << 20)])
            if b"generated.proto" in plain[:200]:
                yield FileDescriptorProto.FromString(plain)
        except (zlib.error, DecodeError):
            pass
        position = data.find(_GZIP, position + 1)


def _type(field: Any, message: Any) -> tuple[str, tuple[str, str] | None]:
    names = {field.TYPE_STRING: "string", field.TYPE_BYTES: "bytes", field.TYPE_BOOL: "boolean"}
    if field.type != field.TYPE_MESSAGE:
        kind, inner = names.get(field.type, "integer"), None
    else:
        package, _, name = field.type_name.lstrip(".").rpartition(".")
        entry = next((each for each in message.nested_type if each.name == name), None)
        if entry is not None:
            value, inner = _type(entry.field[1], entry)
            return "{}" + value, inner
        kind, inner = name, (package, name)
    return ("[]" if field.label == field.LABEL_REPEATED else "") + kind, inner


if __name__ == "__main__":
    found = sys.argv[1] if len(sys.argv) > 1 else shutil.which("kubectl")
    if found is None:
        sys.exit("make_protobuf: no kubectl was found; name one")
    TARGET.write_text(json.dumps(make(Path(found)), indent=None, separators=(",", ":")).replace("},", "},\n") + "\n")
