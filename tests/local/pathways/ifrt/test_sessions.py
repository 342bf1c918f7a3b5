"""Sessions: apart from each other, gone when their client is, and unharmed by nonsense."""

from __future__ import annotations

import grpc
import numpy as np
import pytest

from pathways_jupyter.local.pathways.ifrt import messages

ONE = np.float32([1, 2, 3])


def test_two_clients_on_one_proxy_do_not_see_each_other(raw):
    first, second = raw(), raw()
    array, _ = first.make_array(ONE)
    with pytest.raises(Exception, match="KeyError"):
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
