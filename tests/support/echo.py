"""A program for pods that sends back what it receives."""

PORT = 7000

# The kubelet tries a unix socket first.
_PROGRAM = """
import os, socket, threading
listener = socket.socket(socket.AF_UNIX)
listener.bind(os.path.join(os.environ["PATHWAYS_LOCAL_SOCKETS"], "{port}"))
listener.listen(64)
def serve(connection):
    {greeting}
    while data := connection.recv(262144):
        connection.sendall(data)
    connection.close()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


def command(greeting: str = "pass") -> tuple[str, str, str]:
    """Return a command that echoes on `PORT`; `greeting` is what it does first with each `connection`, as Python."""
    return "python", "-c", _PROGRAM.format(port=PORT, greeting=greeting)
