"""A trace in a bucket that cannot be read."""

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import fsspec
import pytest

from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.profile import trace_files

READ = "from pathways_jupyter.profile import trace_files; trace_files.summarize('gs://b/traces', print)"


class _Refusing(BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'{"error": {"code": 400, "message": "Invalid argument."}}'
        self.send_response(400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_a_refusal_that_is_no_error_of_the_system_is_one_of_this_package():
    with HTTPServer(("127.0.0.1", 0), _Refusing) as storage:
        threading.Thread(target=storage.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{storage.server_port}"
        # In a process of its own: gcsfs reads the second variable when it is imported.
        environ = {**os.environ, "STORAGE_EMULATOR_HOST": address, "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
        ran = subprocess.run([sys.executable, "-c", READ], env=environ, capture_output=True, text=True, timeout=60)
        storage.shutdown()
    assert "PathwaysError: The trace in gs://b/traces cannot be read: Invalid argument." in ran.stderr


def test_a_file_that_is_broken_is_named(monkeypatch):
    files = fsspec.filesystem("memory")
    files.pipe("/b/traces/slice-0-host-1.xplane.pb", b"not a trace")
    monkeypatch.setattr(trace_files, "open_bucket", lambda: files)
    with pytest.raises(PathwaysError, match=r"slice-0-host-1\.xplane\.pb in gs://b/traces is not a trace") as caught:
        trace_files.summarize("gs://b/traces", lambda _: None)
    assert "take the trace again" in caught.value.hint
