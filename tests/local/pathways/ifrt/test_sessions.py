"""Sessions: apart from each other, gone when their client is, and unharmed by nonsense."""

from __future__ import annotations

import random

import grpc
import numpy as np
import pytest

from pathways_jupyter.local.pathways.ifrt import messages
from pathways_jupyter.local.pathways.ifrt.statuses import Code

ONE = np.float32([1, 2, 3])


def test_two_clients_on_one_proxy_do_not_see_each_other(raw):
    first, second = raw(), raw()
    array, _ = first.make_array(ONE)
    with pytest.raises(Exception, match=f"INVALID_ARGUMENT: there is no array with the handle {array}"):
        second.call("check_value_ready", value_handles=[array])
    assert first.id != second.id


def test_a_client_that_vanishes_frees_everything(service, client):
    other = service.client("proxy")
    other.run("""
        import jax.numpy as jnp
        kept = [jax.device_put(jnp.ones(1000) * each, jax.devices()[each]) for each in range(8)]
        jax.block_until_ready(kept)
    """)
    log = service.programs[-1].log
    line = log.wait("Opened session")
    other.process.kill()
    log.wait(r"Closed session \w+: freed [1-9]\d* arrays and [1-9]\d* executables", after=line)
    assert client.run("result = float(jax.numpy.ones(3).sum())") == 3.0


def test_requests_of_the_protocol_that_this_server_does_not_know_are_refused_by_name(raw):
    session = raw()
    array, _ = session.make_array(ONE)
    made = session.handle()
    with pytest.raises(Exception, match="UNIMPLEMENTED: BitcastArrays is not supported by the embedded proxy"):
        session.call("bitcast_arrays", array_handles=[array], result_handles=[made])
    # The client goes on with the handle that it made.
    with pytest.raises(Exception, match="UNIMPLEMENTED: BitcastArrays"):
        session.call("check_value_ready", value_handles=[made])


def test_malformed_requests_are_the_clients_errors(raw):
    """Each kind of request with values that do not fit together; the session goes on."""
    session, chance = raw(), random.Random(0)
    kinds = [each.name.removesuffix("_request") for each in messages.IfrtRequest.DESCRIPTOR.oneofs[0].fields]
    known = [session.make_array(ONE, device=each)[0] for each in range(3)]

    def fill(message, depth=0) -> None:
        for field in message.DESCRIPTOR.fields:
            for _ in range(chance.choice([0, 1, 2]) if field.is_repeated else chance.choice([0, 1])):
                if field.message_type is not None:
                    child = getattr(message, field.name)
                    if depth < 4 and not field.message_type.GetOptions().map_entry:
                        fill(child.add() if field.is_repeated else child, depth + 1)
                    continue
                value = {
                    field.CPPTYPE_STRING: b"xla::ifrt::HloSharding" if field.type == field.TYPE_BYTES else "x",
                    field.CPPTYPE_BOOL: True,
                    field.CPPTYPE_ENUM: 1,
                }.get(field.cpp_type, chance.choice([0, 1, 3, 9, *known]))
                if field.is_repeated:
                    getattr(message, field.name).append(value)
                else:
                    setattr(message, field.name, value)

    # These wait for what never comes, such as a host buffer.
    waiting = ("init", "check_value_ready", "copy_to_host_buffer", "check_future")
    asked = [session.send(kind, fill) for kind in kinds * 40 if kind not in waiting]
    statuses = [session.answer(each).response_metadata.status for each in asked]
    wrong = {each.message for each in statuses if each.code not in (Code.OK, Code.INVALID_ARGUMENT, Code.UNIMPLEMENTED)}
    assert wrong == set()
    assert sum(each.code == Code.INVALID_ARGUMENT for each in statuses) > 100
    array, buffer = session.make_array(ONE, store=False)
    session.store(buffer, b"too short")
    with pytest.raises(Exception, match="INVALID_ARGUMENT: malformed request"):
        session.read(array, np.float32)
    with pytest.raises(Exception, match="INVALID_ARGUMENT: there is no executable with the handle 77"):
        session.call("loaded_executable_execute", loaded_executable_handle=77)
    assert np.array_equal(session.read(session.make_array(ONE)[0], np.float32), ONE)


def test_strings_travel_and_are_counted(raw):
    session = raw()
    array, buffer = session.handle(), session.handle()

    def fill(message) -> None:
        message.dtype.kind = 99
        message.shape.dims.append(2)
        message.sharding.serialized_sharding.type_name = "xla::ifrt::SingleDeviceSharding"
        message.sharding.serialized_sharding.data = messages.SingleDeviceSharding(device_id=8).SerializeToString()

    contents = messages.StringArrayContents(strings=["räksmörgås".encode(), b""]).SerializeToString()
    session.store(buffer, contents)
    session.call("make_array_from_host_buffer", fill, array_handle=array, host_buffer_handle=buffer)
    assert session.read(array, np.uint8).tobytes() == contents


def test_a_client_too_new_for_this_server_is_reported_and_not_aborted(service):
    channel = grpc.insecure_channel(service.target("proxy").removeprefix("grpc://"))
    ask = channel.unary_unary(
        f"/{messages.SERVICE}/GetVersion",
        request_serializer=messages.GetVersionRequest.SerializeToString,
        response_deserializer=messages.GetVersionResponse.FromString,
    )
    request = messages.GetVersionRequest()
    request.min_version.protocol_version, request.max_version.protocol_version = 900, 950
    with pytest.raises(grpc.RpcError) as caught:
        ask(request, timeout=60)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "newer than the proxy" in caught.value.details()
    channel.close()
