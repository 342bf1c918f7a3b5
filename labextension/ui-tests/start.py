"""Start what the browser tests need: the embedded cluster and a JupyterLab, each with directories of its own.

Usage: start.py PORT [without|bare|bench]. Everything ends with this process.

Kinds: ``without`` the server extension; ``bare``, where no cluster was ever set up; ``bench`` for measuring.
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
    "contexts": [{"name": "unreachable", "context": {"cluster": "nowhere", "user": "none"}}],
    "clusters": [{"name": "nowhere", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "none", "user": {"token": "none"}}],
}


def main(port: str, kind: str = "") -> int:
    """Run until a signal ends it."""
    with tempfile.TemporaryDirectory(prefix="pathways-ui-") as directory:
        place = Path(directory)
        for name in ("files", "runtime", "config", "home"):
            (place / name).mkdir(mode=0o700)
        # Use the latest build in this tree, not the copy from the time of installation.
        (place / "labextensions").mkdir()
        (place / "labextensions" / "pathways-jupyter").symlink_to(BUILT)
        # Tests edit the server's kubeconfig, and use the other one to break and repair the cluster.
        user_kubeconfig, kubeconfig, pid = (
            HERE / f".kubeconfig{port}.user",
            HERE / f".kubeconfig{port}",
            HERE / f".server-pid{port}",
        )
        user_kubeconfig.write_text(json.dumps(UNREACHABLE), encoding="utf-8")
        os.environ |= {
            "JUPYTER_RUNTIME_DIR": str(place / "runtime"),
            "JUPYTER_CONFIG_DIR": str(place / "config"),
            "JUPYTER_DATA_DIR": str(place / "data"),
            "JUPYTER_PATH": str(place),
            "KUBECONFIG": str(user_kubeconfig),
            "PATHWAYS_UI_PORT": port,
            "PATHWAYS_UI_ROOT": str(place / "files"),
            "PATHWAYS_UI_WITHOUT": "yes" if kind == "without" else "",
        }
        if kind == "bare":
            del os.environ["KUBECONFIG"]
            os.environ["HOME"] = str(place / "home")
        from pathways_jupyter.local import cluster

        with_cluster = kind in {"", "bench"}
        if with_cluster:
            slices = int(os.environ.get("PATHWAYS_UI_SLICES", "2"))
            instance = os.environ.get("PATHWAYS_UI_TYPE", "tpuv6e:2x2")
            running = cluster.up({instance: slices}, hollow=kind == "bench", wait=kind != "bench", fast_heal=True)
            kubeconfig.write_text(running.kubeconfig.read_text(encoding="utf-8"), encoding="utf-8")
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", "--config", str(HERE / "jupyter_server_config.py")]
        )
        if with_cluster:
            pid.write_text(str(server.pid), encoding="utf-8")
        signal.signal(signal.SIGTERM, lambda *_: server.terminate())
        signal.signal(signal.SIGINT, lambda *_: server.terminate())
        try:
            return server.wait()
        finally:
            # Also without: a test may have started it from the sidebar.
            cluster.down()
            for file in (user_kubeconfig, kubeconfig, pid):
                file.unlink(missing_ok=True)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
