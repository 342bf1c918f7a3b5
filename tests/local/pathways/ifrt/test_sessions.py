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
    with pytest.raises(Exception, match="NOT_FOUND"):
        second.call("check_value_ready", value_handles=[array])
    assert first.id != second.id
    assert min(first.id, second.id) > 1 << 32, "ids must not be guessable"


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


def test_unknown_handles_are_reported_by_what_is_made_of_them(raw):
    session = raw()
    made = session.handle()
    session.call("copy_arrays", array_handles=[], result_handles=[])
    with pytest.raises(Exception, match="NOT_FOUND: there is no array 99"):
        session.call("copy_arrays", array_handles=[99], device_ids=[0], result_handles=[made])
    with pytest.raises(Exception, match="NOT_FOUND: there is no array 99"):
        session.call("check_value_ready", value_handles=[made])
    with pytest.raises(Exception, match="NOT_FOUND: there is no executable"):
        session.call("loaded_executable_metadata", loaded_executable_handle=5)
    with pytest.raises(Exception, match="NOT_FOUND: there is no future"):
        session.call("check_future", future_handle=5)


def test_requests_that_make_no_sense_are_refused_and_the_session_goes_on(raw):
    session = raw()
    with pytest.raises(Exception, match="UNIMPLEMENTED: shardings of type "):
        session.call("make_array_from_host_buffer", array_handle=session.handle())
    with pytest.raises(Exception, match="INVALID_ARGUMENT: there are no devices"):
        session.make_array(ONE, device=99)
    with pytest.raises(Exception, match="UNIMPLEMENTED: programs of type nonsense"):
        session.call("compile", lambda message: setattr(message.program, "type_name", "nonsense"))
    with pytest.raises(Exception, match=r"[A-Z_]+: "):
        session.call("compile", _not_a_program)
    unknown = messages.IfrtRequest()
    unknown.request_metadata.op_id = 1 << 40
    session.send_bytes(unknown.SerializeToString())
    assert session.answer(1 << 40).response_metadata.status.code == 12
    array, _ = session.make_array(ONE)
    np.testing.assert_array_equal(session.read(array, np.float32), ONE)


def test_requests_of_the_protocol_that_this_server_does_not_know_are_refused_by_name(raw):
    session = raw()
    array, _ = session.make_array(ONE)
    made = session.handle()
    with pytest.raises(Exception, match="UNIMPLEMENTED: BitcastArrays is not supported by the embedded proxy"):
        session.call("bitcast_arrays", array_handles=[array], result_handles=[made])
    # The client goes on with the handle that it made.
    with pytest.raises(Exception, match="UNIMPLEMENTED: BitcastArrays"):
        session.call("check_value_ready", value_handles=[made])


def test_bytes_that_are_no_message_end_that_session_only(raw):
    broken, whole = raw(), raw()
    broken.send_bytes(b"\xff\xff\xff\xff")
    assert broken.ended.wait(60)
    array, _ = whole.make_array(ONE)
    np.testing.assert_array_equal(whole.read(array, np.float32), ONE)


def test_a_buffer_that_is_too_small_fails_the_array_and_not_the_request(raw):
    session = raw()
    array, buffer = session.make_array(ONE, store=False)
    session.store(buffer, b"\0\0\0\0")
    with pytest.raises(Exception, match="INVALID_ARGUMENT: a host buffer of 4 bytes does not hold float32"):
        session.call("check_value_ready", value_handles=[array])


@pytest.mark.parametrize("size", [1, 100, -1, 1 << 60])
def test_a_buffer_of_another_size_than_announced_is_refused(raw, size):
    session = raw()
    with pytest.raises(grpc.RpcError):
        session.store(session.handle(), b"12345678", size=size)
    array, _ = session.make_array(ONE)
    np.testing.assert_array_equal(session.read(array, np.float32), ONE)


def test_buffers_of_a_session_that_is_not_there_are_refused(raw):
    session = raw()
    with pytest.raises(grpc.RpcError) as caught:
        session.store(session.handle(), b"12345678", session=session.id + 2)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


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


def test_a_deleted_program_is_deleted_and_its_handle_stays(raw):
    session = raw()
    program = session.call("compile", _sine).loaded_executable_handle
    assert not session.call("loaded_executable_is_deleted", loaded_executable_handle=program).is_deleted
    future = session.call("loaded_executable_delete", loaded_executable_handle=program).future_handle
    session.call("check_future", future_handle=future)
    assert session.call("loaded_executable_is_deleted", loaded_executable_handle=program).is_deleted
    with pytest.raises(Exception, match="INVALID_ARGUMENT: the program has been deleted"):
        session.call("loaded_executable_execute", loaded_executable_handle=program)
    session.call("loaded_executable_destruct", loaded_executable_handle=program)
    with pytest.raises(Exception, match="NOT_FOUND"):
        session.call("loaded_executable_is_deleted", loaded_executable_handle=program)


def _sine(message) -> None:
    """Fills in a program for one device."""
    import jax
    from jax._src.lib import xla_client
    from jaxlib.mlir.dialects import stablehlo

    text, version = jax.jit(jax.numpy.sin).lower(ONE).as_text(), stablehlo.get_current_version()
    message.program.type_name = "xla::ifrt::XlaProgram"
    message.program.data = stablehlo.serialize_portable_artifact_str(text, version)
    options = messages.XlaCompileOptions()
    options.compile_options.MergeFromString(xla_client.CompileOptions().SerializeAsString())
    message.compile_options.data = options.SerializeToString()


def _not_a_program(message) -> None:
    message.program.type_name = "xla::ifrt::XlaProgram"
    message.program.data = b"not StableHLO"
