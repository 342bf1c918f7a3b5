"""Wait for one byte, then become the program; run as a file, without the package.

The process exists before the program does, so that the watchdog knows its process group in time: no moment is left in
which a SIGKILL of the parent would leave a program behind.
"""

import os
import signal
import sys

_NO_PARENT, _NOT_EXECUTABLE, _NOT_FOUND = 125, 126, 127


def main(arguments: list[str]) -> int:
    """Execute ``arguments[1:]`` once a byte can be read from the descriptor ``arguments[0]``."""
    gate, command = int(arguments[0]), arguments[1:]
    # What Python has changed for itself would be inherited by the program.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if not os.read(gate, 1):
        return _NO_PARENT
    os.close(gate)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"pathways-jupyter: {command[0]} cannot be run: {error.strerror}\n")
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
