"""The messages that travel, the version that is spoken, and how the gRPC methods are called.

Everything that only the wire knows is here, so that the rest of the package speaks of arrays and programs.

The messages are those of the ``.proto`` files in ``schema/``, compiled into descriptors and not into code: generated
modules are tied to a range of protobuf versions, and this package has to work with whatever protobuf a notebook has.
After a change: ``pip install grpcio-tools``, then in ``schema/`` ``python -m grpc_tools.protoc -I.
--descriptor_set_out=schema.binpb xla.proto status.proto types.proto ifrt.proto
proxy.proto xplane.proto``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "xla.ifrt.proxy.GrpcIfrtService"
STORE_METADATA_KEY = "ifrt-proxy-grpc-host-buffer-store-metadata-bin"

FIRST_SERVER_HANDLE = 1 << 63
"""Handles below are made by the client, from here on by the server."""

_PROXY = "xla.ifrt.proxy."

DESCRIPTORS = descriptor_pb2.FileDescriptorSet.FromString(
    (resources.files(__package__) / "schema" / "schema.binpb").read_bytes()
)
_pool = descriptor_pool.DescriptorPool()
for _file in DESCRIPTORS.file:
    _pool.Add(_file)


def message_class(name: str) -> Any:
    """Return the class of the message with this full name, e.g. ``xla.ifrt.proxy.IfrtRequest``."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(name))


# Messages have no static types: their classes are built from the schema when this module is imported.

IfrtRequest: Any = message_class(_PROXY + "IfrtRequest")
IfrtResponse: Any = message_class(_PROXY + "IfrtResponse")
GetVersionRequest: Any = message_class(_PROXY + "GrpcGetVersionRequest")
GetVersionResponse: Any = message_class(_PROXY + "GrpcGetVersionResponse")
StoreMetadata: Any = message_class(_PROXY + "GrpcHostBufferStoreMetadata")
LookupRequest: Any = message_class(_PROXY + "GrpcHostBufferLookupRequest")
DeleteRequest: Any = message_class(_PROXY + "GrpcHostBufferDeleteRequest")

Sharding: Any = message_class("xla.ifrt.ShardingProto")
SingleDeviceSharding: Any = message_class("xla.ifrt.SingleDeviceShardingProto")
HloSharding: Any = message_class("xla.ifrt.HloShardingProto")
ConcreteEvenSharding: Any = message_class("xla.ifrt.ConcreteEvenShardingProto")
HloModule: Any = message_class("xla.HloModuleProto")
CustomCallProgram: Any = message_class("xla.ifrt.CustomCallProgramProto")
XlaCompileOptions: Any = message_class("xla.ifrt.XlaCompileOptionsProto")
StringArrayContents: Any = message_class("xla.ifrt.proto.StringArrayContents")
XEvent: Any = message_class("tensorflow.profiler.XEvent")
XPlane: Any = message_class("tensorflow.profiler.XPlane")
XSpace: Any = message_class("tensorflow.profiler.XSpace")


@dataclass(frozen=True)
class Version:
    """Versions that one side may speak: the proxy protocol, and the encoding of IFRT's own types inside it."""

    protocol: int
    serdes: int


PINNED_PROTOCOL = 19
"""Spoken with every client whose range has it, as those of jaxlib 0.10 and 0.12: all run the same paths here."""

NEWEST = Version(protocol=25, serdes=3)
"""The newest version whose messages the schema covers."""


def choose_version(oldest: Version, newest: Version) -> Version | None:
    """Return the version to speak with a client that offers `oldest` to `newest`; None when there is none.

    The client aborts its whole process when the answer lies outside of its offer. Of the encodings the
    newest is chosen: some clients cannot write programs in the older ones that they offer.
    """
    if oldest.protocol > NEWEST.protocol or oldest.serdes > NEWEST.serdes:
        return None
    return Version(
        protocol=min(max(PINNED_PROTOCOL, oldest.protocol), newest.protocol), serdes=min(newest.serdes, NEWEST.serdes)
    )


Attribute = bool | int | float | Sequence[int]


def write_attributes(message: Any, values: Mapping[str, Attribute]) -> None:
    """Fill an AttributeMapProto."""
    message.SetInParent()
    for name, value in values.items():
        entry = message.attributes[name]
        if isinstance(value, bool):
            entry.bool_value = value
        elif isinstance(value, int):
            entry.int64_value = value
        elif isinstance(value, float):
            entry.float_value = value
        else:
            entry.int64_list_value.SetInParent()
            entry.int64_list_value.elements.extend(value)
