import socket

from pathways_jupyter.tunnel.relay.proxy_stream import ProxyStream
from pathways_jupyter.tunnel.relay.sockets import Sockets
from pathways_jupyter.tunnel.relay.stream import Pool, StreamEnd
from pathways_jupyter.tunnel.relay.wire import ACCEPTED, WELCOME_BYTES, Welcome


def test_the_last_words_of_a_proxy_reach_a_carrier_that_comes_after_its_end():
    """An interruption of the network must not hide why a proxy ended."""
    sockets, peer = Sockets(), StreamEnd(Pool(1, 1))
    ours, proxy = socket.socketpair()
    stream = ProxyStream(sockets, Pool(2, 2), ours)
    proxy.sendall(b"out of memory")
    proxy.close()
    while not stream.end.finished:
        sockets.wait(60.0)
    carrier, theirs = socket.socketpair()
    with theirs:
        theirs.settimeout(60.0)
        stream.continue_on(carrier, peer.hello(b"s" * 32, b"i" * 16, is_new=True))
        assert Welcome.decode(theirs.recv(WELCOME_BYTES, socket.MSG_WAITALL)) == Welcome(ACCEPTED)
        received = b""
        while not peer.peer_finished:
            received += b"".join(peer.feed(theirs.recv(1 << 16)))
        assert received == b"out of memory"
        stream.close()
        assert theirs.recv(1) == b""
