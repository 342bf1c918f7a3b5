"""Reads the protocol's schema, so that the ``.proto`` files themselves are what the server runs on.

No generated code is kept beside them: generated modules are tied to a range of protobuf versions, and this package is
installed next to whatever protobuf a notebook has. The reader knows as much of proto3 as ``schema/`` uses: messages,
enums, oneofs, maps, ``optional`` and ``repeated``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FILES = ("xla.proto", "status.proto", "types.proto", "ifrt.proto", "proxy.proto")
"""In an order in which each file comes after those it imports."""

_TOKEN = re.compile(r'//[^\n]*|"[^"]*"|[A-Za-z_][\w.]*|\d+|[{}=;<>,]')
_SCALARS = {
    name: getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in ("bool", "bytes", "double", "fixed32", "fixed64", "float", "int32", "int64", "sfixed64", "string")
} | {"uint64": descriptor_pb2.FieldDescriptorProto.TYPE_UINT64}


class Schema:
    """Every message class of the protocol, by its full name."""

    def __init__(self) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        for file in descriptors():
            self._pool.Add(file)

    def message(self, name: str) -> Any:
        """The class of the message with this full name, e.g. ``xla.ifrt.proxy.IfrtRequest``."""
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))


def descriptors() -> list[descriptor_pb2.FileDescriptorProto]:
    """The schema's files, each after those it imports."""
    folder = resources.files(__package__) / "schema"
    return [_Reader(name, (folder / name).read_text(encoding="utf-8")).file() for name in FILES]


class _Reader:
    """One file's tokens, read once from front to back."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._tokens: Iterator[str] = (token for token in _TOKEN.findall(text) if not token.startswith("//"))

    def file(self) -> descriptor_pb2.FileDescriptorProto:
        file = descriptor_pb2.FileDescriptorProto(name=self._name)
        for token in self._tokens:
            if token == "syntax":
                self._expect("=")
                file.syntax = self._next().strip('"')
                self._expect(";")
            elif token == "package":
                file.package = self._next()
                self._expect(";")
            elif token == "import":
                file.dependency.append(self._next().strip('"'))
                self._expect(";")
            elif token == "message":
                self._message(file.message_type.add())
            elif token == "enum":
                self._enum(file.enum_type.add())
            else:
                raise SyntaxError(f"{self._name}: did not expect {token!r}")
        return file

    def _message(self, message: descriptor_pb2.DescriptorProto) -> None:
        message.name = self._next()
        self._expect("{")
        optional: list[descriptor_pb2.FieldDescriptorProto] = []
        while (token := self._next()) != "}":
            if token == "message":
                self._message(message.nested_type.add())
            elif token == "enum":
                self._enum(message.enum_type.add())
            elif token == "oneof":
                self._oneof(message)
            elif token == "map":
                self._map(message)
            elif token in {"optional", "repeated"}:
                field = self._field(message, self._next())
                if token == "repeated":
                    field.label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
                else:
                    optional.append(field)
            else:
                self._field(message, token)
        # Proto3 spells `optional` as a oneof of its own; these must come after the written ones.
        for field in optional:
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")

    def _oneof(self, message: descriptor_pb2.DescriptorProto) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._next())
        self._expect("{")
        while (token := self._next()) != "}":
            self._field(message, token).oneof_index = index

    def _map(self, message: descriptor_pb2.DescriptorProto) -> None:
        self._expect("<")
        key = self._next()
        self._expect(",")
        value = self._next()
        self._expect(">")
        field = self._field(message, "")
        entry = message.nested_type.add(name="".join(map(str.capitalize, field.name.split("_"))) + "Entry")
        entry.options.map_entry = True
        for number, (name, kind) in enumerate((("key", key), ("value", value)), start=1):
            _typed(entry.field.add(name=name, number=number), kind)
        field.label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
        field.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = entry.name

    def _field(self, message: descriptor_pb2.DescriptorProto, kind: str) -> descriptor_pb2.FieldDescriptorProto:
        field = message.field.add(name=self._next())
        self._expect("=")
        field.number = int(self._next())
        self._expect(";")
        _typed(field, kind)
        return field

    def _enum(self, enum: descriptor_pb2.EnumDescriptorProto) -> None:
        enum.name = self._next()
        self._expect("{")
        while (token := self._next()) != "}":
            self._expect("=")
            enum.value.add(name=token, number=int(self._next()))
            self._expect(";")

    def _next(self) -> str:
        return next(self._tokens)

    def _expect(self, wanted: str) -> None:
        if (token := self._next()) != wanted:
            raise SyntaxError(f"{self._name}: expected {wanted!r}, found {token!r}")


def _typed(field: descriptor_pb2.FieldDescriptorProto, kind: str) -> None:
    field.label = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    elif kind:
        # Left without a type: the pool finds out whether the name is a message or an enum.
        field.type_name = kind
