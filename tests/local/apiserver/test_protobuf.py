"""Objects in Kubernetes' protobuf encoding, as bytes that a Go client would send."""

from __future__ import annotations

import pytest

from pathways_jupyter.local.apiserver.api_errors import StatusError
from pathways_jupyter.local.apiserver.protobuf import read_protobuf


def varint(value: int) -> bytes:
    out = bytearray()
    value &= (1 << 64) - 1
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def envelope(kind: str, body: bytes, version: str = "v1") -> bytes:
    return b"k8s\0" + field(1, field(1, version) + field(2, kind)) + field(2, body)


def test_an_object_is_read_as_its_json():
    metadata = field(1, "c") + field(3, "default") + field(11, field(1, "a") + field(2, "b"))
    body = field(1, metadata) + field(2, field(1, "key") + field(2, "value")) + field(4, 1)
    assert read_protobuf(envelope("ConfigMap", body)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "default", "labels": {"a": "b"}},
        "data": {"key": "value"},
        "immutable": True,
    }


def test_times_and_numbers_keep_their_precision():
    moment = field(1, 1_700_000_000) + field(2, 120_000_000)
    spec = field(1, "me") + field(2, 15) + field(4, moment)
    metadata = field(1, "l") + field(8, field(1, 1_700_000_000))
    found = read_protobuf(envelope("Lease", field(1, metadata) + field(2, spec), "coordination.k8s.io/v1"))
    assert found["metadata"]["creationTimestamp"] == "2023-11-14T22:13:20Z"
    assert found["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "renewTime": "2023-11-14T22:13:20.120000Z",
    }


def test_negative_numbers_and_unknown_fields():
    body = field(1, field(1, "p")) + field(2, field(25, -5) + field(1000, "new"))
    assert read_protobuf(envelope("Pod", body))["spec"] == {"priority": -5}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "the prefix of Kubernetes' encoding is missing"),
        (b'{"kind": "Pod"}', "the prefix of Kubernetes' encoding is missing"),
        (envelope("Nothing", b""), "the kind 'Nothing' is unknown"),
        (b"k8s\0" + b"\xff" * 5, "not valid protobuf"),
        (envelope("ConfigMap", b"\x0a\x7f"), "not valid protobuf"),
        (envelope("ConfigMap", field(1, 7)), "a number was not expected"),
        (envelope("ConfigMap", field(4, "x")), "a number was expected"),
        (envelope("ConfigMap", field(1, field(1, b"\xff"))), "text that is not UTF-8"),
        (envelope("ConfigMap", b"\x0b\x0c"), "a group"),
        (envelope("Lease", field(2, field(4, field(1, 1 << 62)))), "a time out of range"),
    ],
)
def test_bytes_that_are_no_object_are_refused(data, said):
    with pytest.raises(StatusError, match="the body of the request is not valid protobuf") as refused:
        read_protobuf(data)
    assert refused.value.status == 400
    assert said in str(refused.value)
