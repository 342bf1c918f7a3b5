"""The messages that travel, the version that is spoken, and how the gRPC methods are called.

Everything that only the wire knows is here, so that the rest of the package speaks of arrays and programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.local.pathways.ifrt.proto_schema import Schema

SERVICE = "xla.ifrt.proxy.GrpcIfrtService"
STORE_METADATA_KEY = "ifrt-proxy-grpc-host-buffer-store-metadata-bin"

FIRST_SERVER_HANDLE = 1 << 63
"""Handles below are made by the client, from here on by the server."""

# Messages have no static types: their classes are built from the schema when this module is imported.
_schema = Schema()
_PROXY = "xla.ifrt.proxy."

IfrtRequest: Any = _schema.message(_PROXY + "IfrtRequest")
IfrtResponse: Any = _schema.message(_PROXY + "IfrtResponse")
GetVersionRequest: Any = _schema.message(_PROXY + "GrpcGetVersionRequest")
GetVersionResponse: Any = _schema.message(_PROXY + "GrpcGetVersionResponse")
StoreMetadata: Any = _schema.message(_PROXY + "GrpcHostBufferStoreMetadata")
LookupRequest: Any = _schema.message(_PROXY + "GrpcHostBufferLookupRequest")
DeleteRequest: Any = _schema.message(_PROXY + "GrpcHostBufferDeleteRequest")

Sharding: Any = _schema.message("xla.ifrt.ShardingProto")
SingleDeviceSharding: Any = _schema.message("xla.ifrt.SingleDeviceShardingProto")
HloSharding: Any = _schema.message("xla.ifrt.HloShardingProto")
ConcreteEvenSharding: Any = _schema.message("xla.ifrt.ConcreteEvenShardingProto")
CustomCallProgram: Any = _schema.message("xla.ifrt.CustomCallProgramProto")
XlaCompileOptions: Any = _schema.message("xla.ifrt.XlaCompileOptionsProto")
StringArrayContents: Any = _schema.message("xla.ifrt.proto.StringArrayContents")


@dataclass(frozen=True)
class Version:
    """What one side may speak: the proxy protocol, and the encoding of IFRT's own types inside it."""

    protocol: int
    serdes: int


PINNED_PROTOCOL = 19
"""Spoken with everyone who can: in the range of jaxlib 0.9, 0.10 and 0.12, so that all run the same paths here."""

NEWEST = Version(protocol=25, serdes=3)
"""The newest version whose messages the schema covers."""


def choose_version(oldest: Version, newest: Version) -> Version | None:
    """The version to speak with a client that offers `oldest` to `newest`; None when there is none.

    The client aborts its whole process when the answer lies outside of its offer. Of the encodings it is asked for the
    newest it has: some clients cannot write programs in the older ones that they offer.
    """
    if oldest.protocol > NEWEST.protocol or oldest.serdes > NEWEST.serdes:
        return None
    return Version(
        protocol=min(max(PINNED_PROTOCOL, oldest.protocol), newest.protocol), serdes=min(newest.serdes, NEWEST.serdes)
    )


Attribute = bool | int | float | str | Sequence[int]


def write_attributes(message: Any, values: Mapping[str, Attribute]) -> None:
    """Fills an AttributeMapProto."""
    message.SetInParent()
    for name, value in values.items():
        entry = message.attributes[name]
        if isinstance(value, bool):
            entry.bool_value = value
        elif isinstance(value, int):
            entry.int64_value = value
        elif isinstance(value, float):
            entry.float_value = value
        elif isinstance(value, str):
            entry.string_value = value.encode()
        else:
            entry.int64_list_value.SetInParent()
            entry.int64_list_value.elements.extend(value)
