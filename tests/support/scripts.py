"""Programs in Python processes of their own."""

import os
import subprocess
import sys


def run(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with the variables `environ` beside those of this process."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
