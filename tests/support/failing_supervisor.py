"""A supervisor that cannot write files any more from its n-th record on, as on a full disk.

``FAIL_FROM`` is n, or 0 for never; the number of records so far is kept in the file ``WRITES``.
"""

import os
import resource
import sys
from pathlib import Path

from pathways_jupyter.session import registry
from pathways_jupyter.session.supervisor import main as supervisor

_write = registry.write
_writes = 0


def write(record: registry.SessionRecord) -> None:
    global _writes
    _writes += 1
    if _writes == int(os.environ["FAIL_FROM"]):
        # From here on every write of this process fails (EFBIG), also to its log.
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    elif not int(os.environ["FAIL_FROM"]):
        Path(os.environ["WRITES"]).write_text(str(_writes), encoding="ascii")
    _write(record)


if __name__ == "__main__":
    registry.write = write
    raise SystemExit(supervisor.main(sys.argv[1:]))
