import socket

from pathways_jupyter.tunnel.relay.proxy_stream import ProxyStream
from pathways_jupyter.tunnel.relay.sockets import Sockets
from pathways_jupyter.tunnel.relay.stream import Pool, StreamEnd
from pathways_jupyter.tunnel.relay.wire import ACCEPTED, WELCOME_BYTES, Hello, Welcome


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


def test_a_carrier_that_was_overtaken_does_not_replace_the_one_that_came_later():
    sockets = Sockets()
    ours, proxy = socket.socketpair()
    stream = ProxyStream(sockets, Pool(2, 2), ours)
    late, late_end = socket.socketpair()
    later, later_end = socket.socketpair()
    with proxy, late_end, later_end:
        stream.continue_on(later, Hello(b"s" * 32, b"i" * 16, 2, 0, True))
        stream.continue_on(late, Hello(b"s" * 32, b"i" * 16, 1, 0, True))
        assert stream.carrier is later
        # Answered, and closed.
        assert len(late_end.recv(1 << 10)) == WELCOME_BYTES
        assert late_end.recv(1) == b""
        stream.close()


def test_the_proxys_connection_ends_when_the_program_at_the_other_end_has_finished():
    """Otherwise the proxy would keep a client that is gone, and all that it holds."""
    sockets, peer = Sockets(), StreamEnd(Pool(1, 1))
    ours, proxy = socket.socketpair()
    stream = ProxyStream(sockets, Pool(2, 2), ours)
    carrier, theirs = socket.socketpair()
    with proxy, theirs:
        proxy.settimeout(60.0)
        stream.continue_on(carrier, peer.hello(b"s" * 32, b"i" * 16, is_new=True))
        peer.out.write(b"goodbye")
        peer.finish()
        while frame := peer.next():
            theirs.sendall(b"".join(frame))
        while not stream.end.peer_finished:
            sockets.wait(60.0)
        assert proxy.recv(1 << 10) == b"goodbye"
        assert proxy.recv(1) == b""
        stream.close()
