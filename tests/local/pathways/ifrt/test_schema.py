"""The schema here is what the installed jaxlib speaks: its library carries the descriptors of its own messages."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, message

from pathways_jupyter.local.pathways.ifrt import messages

_FILE = re.compile(rb"\n([\x05-\x7f])((?:xla|tensorflow|google|tsl)/[\w/]+\.proto)")
_FIELD = descriptor_pb2.FieldDescriptorProto
_LONGEST = 1 << 18


@pytest.fixture(scope="module")
def installed():
    """Every message of jaxlib's by its full name."""
    import jaxlib

    library = Path(jaxlib.__file__).with_name("libjax_common.so")
    if not library.exists():
        pytest.skip(f"jaxlib {jaxlib.__version__} has no {library.name}, in which its descriptors are looked for")
    found: dict[str, descriptor_pb2.DescriptorProto] = {}
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
        for match in _FILE.finditer(content):
            if match[1][0] == len(match[2]):
                _collect(_carve(content[match.start() : match.start() + _LONGEST]), found)
    assert "xla.ifrt.proxy.IfrtRequest" in found
    return found


def _carve(data: bytes) -> descriptor_pb2.FileDescriptorProto:
    """The file that `data` begins with; what follows it is anything."""
    end = 0
    last = 0
    while end < len(data):
        tag = data[end]
        number, kind = tag >> 3, tag & 7
        # Fields are in order, and nothing else of the library looks like one for long.
        if number < last or number not in (1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12) or kind not in (0, 2):
            break
        if number == 1 and last == 1:
            break
        position, value, shift = end + 1, 0, 0
        while True:
            value |= (data[position] & 0x7F) << shift
            shift += 7
            position += 1
            if data[position - 1] < 0x80:
                break
        end = position + (value if kind == 2 else 0)
        last = number
        if number == 12:
            break
    file = descriptor_pb2.FileDescriptorProto()
    try:
        file.ParseFromString(data[:end])
    except message.DecodeError:
        return descriptor_pb2.FileDescriptorProto()
    return file


def _collect(file, found) -> None:
    def walk(prefix, each):
        name = f"{prefix}.{each.name}"
        found[name] = each
        for nested in each.nested_type:
            walk(name, nested)

    for each in file.message_type:
        walk(file.package, each)


def _ours():
    found = {}
    for file in messages.DESCRIPTORS.file:
        _collect(file, found)
    return found


@pytest.mark.parametrize("name", sorted(name for name in _ours() if not name.endswith("Entry")))
def test_a_message_is_as_jaxlib_has_it(installed, name):
    theirs = {field.name: field for field in installed[name].field}
    for field in _ours()[name].field:
        other = theirs[field.name]
        assert (field.number, field.label) == (other.number, other.label), field.name
        if field.type_name:
            assert other.type in (_FIELD.TYPE_MESSAGE, _FIELD.TYPE_ENUM)
            assert other.type_name.split(".")[-1] == field.type_name.split(".")[-1], field.name
        else:
            # Carried as it came, or as the number that it is.
            same_on_the_wire = {
                _FIELD.TYPE_BYTES: (_FIELD.TYPE_BYTES, _FIELD.TYPE_MESSAGE),
                _FIELD.TYPE_INT32: (_FIELD.TYPE_INT32, _FIELD.TYPE_ENUM),
            }.get(field.type, (field.type,))
            assert other.type in same_on_the_wire, field.name


def test_every_request_of_a_client_is_known_or_left_out_on_purpose(installed):
    left_out = {
        name
        for name in (field.name for field in installed["xla.ifrt.proxy.IfrtRequest"].field)
        if name not in {field.name for field in _ours()["xla.ifrt.proxy.IfrtRequest"].field}
    }
    assert left_out <= {
        "loaded_executable_mpmd_metadata_request",
        "loaded_executable_mpmd_cost_analysis_request",
        "loaded_host_callback_poll_request",
        "loaded_host_callback_return_request",
    }


@pytest.mark.parametrize("file", messages.DESCRIPTORS.file, ids=lambda file: file.name)
def test_the_descriptors_are_those_of_the_files_beside_them(file):
    text = (Path(messages.__file__).parent / "schema" / file.name).read_text(encoding="utf-8")
    written = sorted(re.findall(r"(\w+) = (\d+);", re.sub(r"//.*|map<[^>]*>", "", text)))
    found = {}
    _collect(file, found)
    fields = [field for name, each in found.items() if not name.endswith("Entry") for field in each.field]
    enums = [*file.enum_type, *(enum for each in found.values() for enum in each.enum_type)]
    values = [value for enum in enums for value in enum.value]
    assert written == sorted((each.name, str(each.number)) for each in [*fields, *values])
