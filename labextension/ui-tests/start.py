"""Starts what the browser tests need: the embedded cluster and a JupyterLab, each with directories of its own.

Usage: start.py PORT [without|bench]. Everything ends with this process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
BUILT = HERE.parents[1] / "pathways_jupyter" / "labextension"
UNREACHABLE = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "unreachable",
    "contexts": [{"name": "unreachable", "context": {"cluster": "nowhere", "user": "nobody"}}],
    "clusters": [{"name": "nowhere", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "nobody", "user": {"token": "none"}}],
}


def main(port: str, kind: str = "") -> int:
    """Runs until it is told to end."""
    with tempfile.TemporaryDirectory(prefix="pathways-ui-") as directory:
        place = Path(directory)
        for name in ("files", "runtime", "config"):
            (place / name).mkdir(mode=0o700)
        # What was built here last, and not what was copied when the package was installed.
        (place / "labextensions").mkdir()
        (place / "labextensions" / "pathways-jupyter").symlink_to(BUILT)
        (place / "kubeconfig").write_text(json.dumps(UNREACHABLE), encoding="utf-8")
        os.environ |= {
            "JUPYTER_RUNTIME_DIR": str(place / "runtime"),
            "JUPYTER_CONFIG_DIR": str(place / "config"),
            "JUPYTER_PATH": str(place),
            "KUBECONFIG": str(place / "kubeconfig"),
            "PATHWAYS_UI_PORT": port,
            "PATHWAYS_UI_ROOT": str(place / "files"),
            "PATHWAYS_UI_WITHOUT": "yes" if kind == "without" else "",
        }
        from pathways_jupyter.local import cluster

        kubeconfig, pid = HERE / f".kubeconfig{port}", HERE / f".server-pid{port}"
        if kind != "without":
            slices = int(os.environ.get("PATHWAYS_UI_SLICES", "2"))
            instance = os.environ.get("PATHWAYS_UI_TYPE", "tpuv6e:2x2")
            running = cluster.up({instance: slices}, hollow=kind == "bench", wait=kind != "bench", fast_heal=True)
            # The tests break and mend things with kubectl.
            kubeconfig.write_text(running.kubeconfig.read_text(encoding="utf-8"), encoding="utf-8")
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", "--config", str(HERE / "jupyter_server_config.py")]
        )
        if kind != "without":
            pid.write_text(str(server.pid), encoding="utf-8")
        signal.signal(signal.SIGTERM, lambda *_: server.terminate())
        signal.signal(signal.SIGINT, lambda *_: server.terminate())
        try:
            return server.wait()
        finally:
            if kind != "without":
                cluster.down()
                kubeconfig.unlink()
                pid.unlink()


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
