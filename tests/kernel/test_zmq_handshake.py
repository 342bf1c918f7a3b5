import asyncio
import contextlib
import functools

import pytest
import zmq
import zmq.asyncio

from pathways_jupyter.kernel.zmq_handshake import SOCKETS, FrontEndConnection, KernelConnection
from pathways_jupyter.tunnel import portforward
from pathways_jupyter.tunnel.multiplexer import Multiplexer

SECONDS = 10
PEERS = {"shell": zmq.DEALER, "stdin": zmq.DEALER, "control": zmq.DEALER, "hb": zmq.REQ, "iopub": zmq.SUB}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kernel"


@pytest.fixture
async def near(path, tmp_path):
    """The addresses for a front end, by the socket's name; the kernel's socket, at `path`, may come later."""
    joins, exists = [], asyncio.Event()

    async def dial(protocol):
        await exists.wait()
        await asyncio.get_running_loop().create_unix_connection(protocol, str(path))

    def accept(channel, request):
        joins.append(asyncio.create_task(portforward.join(channel, dial, KernelConnection)))

    sent, answered, news = [], [], asyncio.Event()

    async def to_far(data):
        sent.append(data)
        news.set()
        far.feed(data)

    async def to_near(data):
        answered.append(data)
        near.feed(data)

    near, far = Multiplexer(to_far), Multiplexer(to_near, accept=accept, first=2)

    async def open_stream():
        return near.open({})

    async with contextlib.AsyncExitStack() as stack:

        async def listen(name):
            local = functools.partial(FrontEndConnection, socket=name)
            forward = await portforward.listen(None, path=tmp_path / name, open_stream=open_stream, local=local)
            stack.push_async_callback(forward.close)
            return f"ipc://{forward.address}"

        listen.kernel_exists, listen.sent, listen.answered, listen.news = exists.set, sent, answered, news
        yield listen
    await asyncio.gather(near.close(), far.close())
    await asyncio.gather(*joins, return_exceptions=True)


@pytest.fixture
def zmq_socket():
    with zmq.asyncio.Context() as context, contextlib.ExitStack() as stack:

        def make(kind):
            made = stack.enter_context(context.socket(kind))
            made.linger = 0
            return made

        yield make


async def within(work):
    return await asyncio.wait_for(work, SECONDS)


@pytest.mark.parametrize("name", PEERS)
async def test_messages_go_both_ways(name, near, path, zmq_socket):
    address = await near(name)
    client, kernel = zmq_socket(PEERS[name]), zmq_socket({b"ROUTER": zmq.ROUTER, b"PUB": zmq.XPUB}[SOCKETS[name]])
    if name == "iopub":
        client.subscribe(b"")
    elif name != "hb":
        client.identity = b"front end"
    client.connect(address)
    if name != "iopub":
        await within(client.send(b"x" * 100_000))
    kernel.bind(f"ipc://{path}")
    near.kernel_exists()
    if name == "iopub":
        assert await within(kernel.recv()) == b"\x01"
        await within(kernel.send_multipart([b"topic", b"text" * 1000]))
        assert await within(client.recv_multipart()) == [b"topic", b"text" * 1000]
        client.unsubscribe(b"")
        assert await within(kernel.recv()) == b"\x00"
        return
    who, *_, asked = await within(kernel.recv_multipart())
    assert asked == b"x" * 100_000
    assert name == "hb" or who == b"front end"
    await within(kernel.send_multipart([who, b"", b"answer"] if name == "hb" else [who, b"answer"]))
    assert await within(client.recv()) == b"answer"


async def test_what_a_front_end_says_first_waits_for_no_answer_of_the_kernel(near, path, zmq_socket):
    address = await near("shell")
    client = zmq_socket(zmq.DEALER)
    client.connect(address)
    await within(client.send(b"question"))
    while not any(b"question" in each for each in near.sent):
        await within(near.news.wait())
        near.news.clear()
    # So that what the kernel says first is its answer.
    kernel = zmq_socket(zmq.ROUTER)
    kernel.bind(f"ipc://{path}")
    near.kernel_exists()
    who, asked = await within(kernel.recv_multipart())
    assert asked == b"question"
    assert near.answered == []
    await within(kernel.send_multipart([who, b"answer"]))
    assert await within(client.recv()) == b"answer"
    assert b"READY" not in b"".join(near.answered)


async def test_a_front_end_that_wants_encryption_greets_the_kernel_itself(near, path, zmq_socket):
    address = await near("shell")
    client, kernel = zmq_socket(zmq.DEALER), zmq_socket(zmq.ROUTER)
    public, kernel.curve_secretkey = zmq.curve_keypair()
    kernel.curve_server, client.curve_serverkey = True, public
    client.curve_publickey, client.curve_secretkey = zmq.curve_keypair()
    kernel.bind(f"ipc://{path}")
    near.kernel_exists()
    client.connect(address)
    await within(client.send(b"secret"))
    assert (await within(kernel.recv_multipart()))[-1] == b"secret"


@pytest.mark.parametrize("words", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff\0\0\0\0\0\0\0\x01\x7f"])
async def test_what_is_no_front_end_gets_the_kernels_answer(words, near, path, zmq_socket):
    address = await near("shell")
    kernel = zmq_socket(zmq.ROUTER)
    kernel.bind(f"ipc://{path}")
    near.kernel_exists()
    reader, writer = await asyncio.open_unix_connection(address.removeprefix("ipc://"))
    writer.write(words)
    writer.write_eof()
    # The kernel closes what does not greet it.
    assert (await within(reader.read())).startswith(b"\xff")
    writer.close()
