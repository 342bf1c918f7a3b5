"""The data path: JAX's connections, carried to a port of a pod through the Kubernetes API server.

Two words: a **stream** is one connection of a local program, as that program sees it; a **carrier** is the WebSocket on
which its bytes go at the moment. Without a relay they are the same, and end together. With one, a stream goes on with
another carrier when its last one breaks::

    JAX                 supervisor                        API server      proxy's pod
    +------+  unix   +-------------------+  WebSocket   +----------+   +-------------------------------+
    | gRPC |---------| LocalConnection   |   Carrier    |          |   |                               |
    |      | socket  |   -> Forward      |--------------| kubelet  |---| proxy                         |  no relay
    |      |         |   -> Carrier      |              |          |   |                               |
    +------+         +-------------------+              +----------+   +-------------------------------+
    | gRPC |---------| LocalConnection   |   Carrier    |          |   | ProxyStream         TCP       |
    |      | socket  |   -> Forward      |--------------| kubelet  |---|  StreamEnd  ----------- proxy | with a relay
    |      |         |   -> Resumable-   |  and, when   |          |   |    (in the relay's            |
    |      |         |      Stream       | that breaks, |          |   |     container)                |
    |      |         |      StreamEnd    |   another    |          |   |                               |
    +------+         +-------------------+              +----------+   +-------------------------------+

`portforward` listens and connects the two sides of a stream; `resumable_stream` has and opens those that go on;
`relay/` has the protocol between the two ends of a stream, and the program beside the proxy.
"""
