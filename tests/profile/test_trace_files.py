"""A trace in a bucket that cannot be read."""

import fsspec
import json_server
import pytest
import scripts

from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.profile import trace_files

READ = "from pathways_jupyter.profile import trace_files; trace_files.summarize('gs://b/traces', print)"


def test_a_refusal_that_is_no_error_of_the_system_is_one_of_this_package():
    refusal = 400, {"error": {"code": 400, "message": "Invalid argument."}}
    with json_server.serving(lambda request, body: refusal) as address:
        # In a process of its own: gcsfs reads the second variable when it is imported.
        ran = scripts.run(READ, STORAGE_EMULATOR_HOST=address, GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT="false")
    assert "PathwaysError: The trace in gs://b/traces cannot be read: Invalid argument." in ran.stderr


def test_a_file_that_is_broken_is_named(monkeypatch):
    files = fsspec.filesystem("memory")
    files.pipe("/b/traces/slice-0-host-1.xplane.pb", b"not a trace")
    monkeypatch.setattr(trace_files, "open_bucket", lambda: files)
    with pytest.raises(PathwaysError, match=r"slice-0-host-1\.xplane\.pb in gs://b/traces is not a trace") as caught:
        trace_files.summarize("gs://b/traces", lambda _: None)
    assert "take the trace again" in caught.value.hint
