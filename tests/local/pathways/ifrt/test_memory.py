"""A client's upload is freed as soon as it is not needed, and not when Python's collector happens to run."""

from __future__ import annotations

import gc
import itertools
import queue
import shutil
import tempfile
import threading
import weakref
from pathlib import Path

import pytest

from pathways_jupyter.base.tpu import parse_instance_type
from pathways_jupyter.local.pathways.ifrt import buffers, messages
from pathways_jupyter.local.pathways.ifrt.ifrt_service import Server
from pathways_jupyter.local.pathways.ifrt.machine import Machine

_DEADLINE = 60.0
_SIZE = 64 << 20


@pytest.fixture
def target():
    """A server in this process, so that its memory can be watched."""
    machine = Machine([parse_instance_type("tpuv6e:2x2")], sidecars=False)
    machine.placed.settle(None)
    server = Server(machine)
    # Not pytest's own directory: its path is too long for a unix socket.
    directory = Path(tempfile.mkdtemp(prefix="pw"))
    server.listen(directory / "socket")
    yield f"unix:{directory / 'socket'}"
    shutil.rmtree(directory)


@pytest.fixture
def memory(monkeypatch):
    """Every piece of memory that uploads got: an event that is set when it is freed, without the collector's help."""
    made: queue.SimpleQueue[threading.Event] = queue.SimpleQueue()
    aligned = buffers.aligned

    def watched(size: int) -> memoryview:
        view = aligned(size)
        freed = threading.Event()
        weakref.finalize(view.obj, freed.set)
        made.put(freed)
        return view

    monkeypatch.setattr(buffers, "aligned", watched)
    gc.collect()
    gc.disable()
    yield made
    gc.enable()


def _store(session, buffer: int, chunks):
    metadata = messages.StoreMetadata(session_id=session.id, handle=buffer, buffer_size=_SIZE)
    return session.channel.stream_unary(f"/{messages.SERVICE}/HostBufferStore").future(
        chunks, metadata=[(messages.STORE_METADATA_KEY, metadata.SerializeToString())]
    )


def _chunk(length: int) -> bytes:
    return buffers.chunk_head(length) + bytes(length)


@pytest.fixture
def uploading(open_raw, target, memory):
    """A session, its upload that does not end by itself, and the event of its memory."""
    session = open_raw(target)
    ended = threading.Event()
    endless = (_chunk(8) for _ in itertools.takewhile(lambda number: number == 0 or ended.wait(), itertools.count()))
    # grpc cancels a call without references: this one must last until its client goes.
    upload = _store(session, 1, endless)
    yield session, upload, memory.get(timeout=_DEADLINE)
    ended.set()


def test_what_a_vanished_client_was_uploading_is_freed(uploading):
    session, upload, freed = uploading
    assert not freed.is_set()
    assert not upload.done()
    session.close()
    assert freed.wait(_DEADLINE)


def test_what_a_vanished_client_had_uploaded_is_freed(open_raw, target, memory):
    session = open_raw(target)
    _store(session, 1, iter([_chunk(_SIZE)])).result(_DEADLINE)
    freed = memory.get(timeout=_DEADLINE)
    assert not freed.is_set()
    session.close()
    assert freed.wait(_DEADLINE)


def test_a_cancelled_upload_is_freed(uploading):
    _, upload, freed = uploading
    upload.cancel()
    assert freed.wait(_DEADLINE)


def test_an_array_that_could_not_be_made_does_not_keep_its_bytes(open_raw, target, memory):
    session = open_raw(target)
    array, buffer = session.handle(), session.handle()

    def fill(message) -> None:
        message.dtype.kind = 11
        message.shape.dims.append(_SIZE)
        message.sharding.serialized_sharding.type_name = "xla::ifrt::SingleDeviceSharding"
        message.sharding.serialized_sharding.data = messages.SingleDeviceSharding(device_id=0).SerializeToString()

    session.call("make_array_from_host_buffer", fill, array_handle=array, host_buffer_handle=buffer)
    _store(session, buffer, iter([_chunk(_SIZE)])).result(_DEADLINE)
    for _ in range(2):
        with pytest.raises(Exception, match="buffer is too small"):
            session.call("check_value_ready", value_handles=[array])
    assert memory.get(timeout=_DEADLINE).wait(_DEADLINE)


def test_a_buffer_that_is_deleted_is_freed(open_raw, target, memory):
    session = open_raw(target)
    _store(session, 1, iter([_chunk(_SIZE)])).result(_DEADLINE)
    session.channel.unary_unary(f"/{messages.SERVICE}/HostBufferDelete")(
        messages.DeleteRequest(session_id=session.id, handle=1).SerializeToString(), timeout=_DEADLINE
    )
    assert memory.get(timeout=_DEADLINE).wait(_DEADLINE)
