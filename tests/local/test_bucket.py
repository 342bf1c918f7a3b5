"""The cluster's bucket, through the libraries that read and write ``gs://``: each in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

import psutil
import pytest

from pathways_jupyter.local import bucket
from pathways_jupyter.local.bucket import Bucket
from pathways_jupyter.local.node.spawner import Spawner
from pathways_jupyter.local.settings import RetryDelay

DEADLINE = 100.0

FILES = """
import fsspec
from etils import epath

fs = fsspec.filesystem("gs")
blocks = [bytes([number]) * (5 << 20) for number in range(4)]
with fs.open("gs://pathways-local/deep/er/large", "wb") as file:
    for block in blocks:
        file.write(block)
assert fs.size("gs://pathways-local/deep/er/large") == 20 << 20
assert fs.cat_file("gs://pathways-local/deep/er/large", start=(5 << 20) - 1, end=(5 << 20) + 1) == b"\\0\\1"
with fs.open("gs://pathways-local/deep/er/large", "rb") as file:
    assert file.read() == b"".join(blocks)
path = epath.Path("gs://pathways-local/texts")
path.mkdir(parents=True)
(path / "one.txt").write_text("one")
(path / "none.txt").write_text("")
(path / "one.txt").copy(path / "two.txt")
(path / "two.txt").copy(path / "two.txt", overwrite=True)
assert sorted(each.name for each in path.iterdir()) == ["none.txt", "one.txt", "two.txt"]
(path / "one.txt").rename(path / "three.txt")
assert (path / "three.txt").read_text() == (path / "two.txt").read_text() == "one"
path.rmtree()
assert not path.exists()
try:
    epath.Path("gs://missing/x").write_text("x")
except FileNotFoundError:
    print("done")
"""

CLIENT = """
from google.cloud import storage

place = storage.Client().bucket("pathways-local")
place.blob("a/b").upload_from_string(b"x" * 100)
assert place.blob("a/b").download_as_bytes(start=10, end=19) == b"x" * 10
assert [each.name for each in place.list_blobs(prefix="a/")] == ["a/b"]
place.blob("a/b").delete()
assert not place.blob("a/b").exists()
print("done")
"""

LISTING = """
import io, json, urllib.request, urllib.error
from google.api_core import exceptions
from google.cloud import storage

client = storage.Client(project="any")
place = client.bucket("pathways-local")
for name in ("g/1/a.txt", "g/1/b.txt", "g/2/commit_success.txt", "h"):
    place.blob(name).upload_from_string(name)

def names(**options):
    return [each.name for each in client.list_blobs("pathways-local", **options)]

assert names(match_glob="g/1/commit_success*") == []
assert names(match_glob="g/*/*.txt", prefix="g/1/") == ["g/1/a.txt", "g/1/b.txt"]
assert names(match_glob="**/commit_{failure,success}.txt") == ["g/2/commit_success.txt"]
assert names(max_results=1) == ["g/1/a.txt"]
pages = list(client.list_blobs("pathways-local", delimiter="/", page_size=1).pages)
assert [([each.name for each in page], sorted(page.prefixes)) for page in pages] == [([], ["g/"]), (["h"], [])]
pages = client.list_blobs("pathways-local", page_size=3).pages
assert [[each.name for each in page] for page in pages] == [["g/1/a.txt", "g/1/b.txt", "g/2/commit_success.txt"], ["h"]]


def below(**options):
    found = client.list_blobs("pathways-local", delimiter="/", **options)
    return [each.name for each in found], sorted(found.prefixes)

assert below(start_offset="g/1/b.txt") == (["h"], ["g/"])
assert below(prefix="g/", start_offset="g/1/b.txt") == ([], ["g/1/", "g/2/"])
assert below(prefix="g/", start_offset="g/1/c", end_offset="g/2/d") == ([], ["g/2/"])
assert below(end_offset="g/1/a.txt") == below(prefix="g/", start_offset="g/3") == ([], [])
assert names(versions=False) == names(soft_deleted=False) == names()

def refused(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)

for option in ("versions", "soft_deleted", "include_trailing_delimiter"):
    refused(exceptions.BadRequest, "does not serve", lambda: names(**{option: True}))
refused(exceptions.BadRequest, "only supported delimiter", lambda: names(match_glob="*", delimiter="-"))
refused(exceptions.BadRequest, "does not serve GET", lambda: list(client.list_hmac_keys()))

# What holds for an object as it was is not done to another.
blob = place.blob("h")
blob.reload()
first = blob.generation
fresh = {"if_generation_match": 0}
refused(exceptions.PreconditionFailed, "ifGenerationMatch=0", lambda: blob.upload_from_string("x", **fresh))
assert blob.download_as_bytes() == b"h"
blob.upload_from_string("second", if_generation_match=first)
refused(exceptions.PreconditionFailed, "ifGenerationMatch", lambda: place.blob("h").delete(if_generation_match=first))
refused(exceptions.NotFound, "There is no generation", lambda: place.blob("h", generation=first).download_as_bytes())
place.blob("new").upload_from_string("x", **fresh)
large = place.blob("h", chunk_size=1 << 18)
refused(exceptions.PreconditionFailed, "ifGenerationMatch", lambda: large.upload_from_file(
    io.BytesIO(b"y" * (1 << 20)), if_generation_match=first))
large.upload_from_file(io.BytesIO(b"y" * (1 << 20)), if_generation_match=blob.generation)
place.blob("h").delete(if_generation_match=large.generation)
assert names() == ["g/1/a.txt", "g/1/b.txt", "g/2/commit_success.txt", "new"]

for name, words in {
    "a/../b": "'..'", "a//b": "empty", "n" * 3000: "1024 bytes", "n" * 300: "255 bytes",
    "new/below": "objects as files", "g": "objects as files",
}.items():
    refused(exceptions.BadRequest, words, lambda: place.blob(name).upload_from_string("x"))
refused(exceptions.BadRequest, "onto itself", lambda: place.move_blob(place.blob("new"), "new"))
assert names() == ["g/1/a.txt", "g/1/b.txt", "g/2/commit_success.txt", "new"]
print("done")
"""

ARRAYS = """
import numpy as np, tensorstore as ts

beside = {name: ts.KvStore.open(f"gs://pathways-local/{name}").result() for name in ("arraz/", "arra/", "array0/")}
for store in beside.values():
    store["kept"] = b"x"
spec = {"driver": "zarr", "kvstore": "gs://pathways-local/array"}
layout = ts.ChunkLayout(chunk_shape=[2, 4])
array = ts.open(spec, create=True, delete_existing=True, dtype=ts.bfloat16, shape=[4, 4], chunk_layout=layout).result()
array[...] = np.arange(16).reshape(4, 4).astype(ts.bfloat16.numpy_dtype)
again = ts.open(spec).result()
# From the same chunk at the same time: the second is read by the generation of the first.
reads = [again[row, 2:].read() for row in (1, 0)]
assert [each.result().tolist() for each in reads] == [[6, 7], [2, 3]]
assert all(store.list().result() == [b"kept"] for store in beside.values())
print("done")
"""


@pytest.fixture
async def spawner(tmp_path):
    made = Spawner(log=tmp_path / "zygote.log")
    made.start()
    yield made
    await asyncio.wait_for(made.close(), DEADLINE)


@pytest.fixture
async def served(tmp_path, spawner):
    made = Bucket(tmp_path, "", spawner)
    made.start()
    yield made
    await made.close()


async def run(code: str, variables: dict[str, str]) -> str:
    command = [sys.executable, "-c", code]
    environment = {**os.environ, **variables}
    options = {"env": environment, "capture_output": True, "text": True, "timeout": DEADLINE, "check": False}
    done = await asyncio.to_thread(subprocess.run, command, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "code",
    [FILES, CLIENT, LISTING, ARRAYS],
    ids=["gcsfs and etils", "google-cloud-storage", "what requests ask for", "tensorstore"],
)
async def test_libraries_work_unchanged(served, code):
    assert await run(code, served.variables) == "done\n"


async def test_without_the_secret_there_is_nothing(served):
    address = served.variables["STORAGE_EMULATOR_HOST"].rpartition("/")[0]

    def code(path: str) -> int:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(address + path, timeout=DEADLINE)
        return refused.value.code

    for path in ("/", "/wipe", "/storage/v1/b", "/pathways-local/a", f"/{'0' * 32}/storage/v1/b"):
        assert await asyncio.to_thread(code, path) == 403


async def test_a_process_that_ends_is_started_again_with_all_objects_and_no_upload_that_was_cut_short(tmp_path, served):
    begin = "import fsspec\nfs = fsspec.filesystem('gs')\n"
    store = begin + "fs.pipe({'pathways-local/one/two': b'here'})"
    await run(store, served.variables)
    part = tmp_path / "bucket" / "_resumable" / "large"
    part.parent.mkdir()
    part.write_bytes(b"a part")
    (process,) = [each for each in psutil.Process().children(recursive=True) if each.name() == "pathways-bucket"]
    process.kill()
    read = begin + "print(fs.find('pathways-local'), fs.cat_file('pathways-local/one/two'))"
    assert await run(read, served.variables) == "['pathways-local/one/two'] b'here'\n"
    assert (tmp_path / "bucket" / bucket.NAME / "one" / "two").read_bytes() == b"here"
    assert not part.exists()


class Ending:
    """A spawner whose processes end at once."""

    def __init__(self) -> None:
        self.starts = 0

    async def spawn(self, request, streams):
        self.starts += 1
        return self

    async def wait(self) -> int:
        await asyncio.sleep(0)
        return 1


async def test_a_process_that_ends_each_time_is_started_again_with_pauses(tmp_path, monkeypatch):
    monkeypatch.setattr(bucket, "FAST_RESTARTS", RetryDelay(600.0, 600.0, at_once=1))
    spawner = Ending()
    made = Bucket(tmp_path, "", spawner)
    made.start()
    for _ in range(100):
        await asyncio.sleep(0)
    await made.close()
    assert spawner.starts == 2


async def test_other_processes_find_it_by_a_file_that_only_its_owner_can_read(tmp_path, served):
    path = tmp_path / "storage.json"
    assert path.stat().st_mode & 0o077 == 0
    assert json.loads(path.read_text()) == {"bucket": "gs://pathways-local", "variables": served.variables}


async def test_objects_in_a_directory_of_the_users_outlive_the_cluster(tmp_path, spawner):
    kept = tmp_path / "mine"
    (kept / bucket.NAME).mkdir(parents=True)
    (kept / bucket.NAME / "note").write_text("earlier")
    made = Bucket(tmp_path, str(kept), spawner)
    made.start()
    await run("import fsspec\nfsspec.filesystem('gs').cp('pathways-local/note', 'pathways-local/copy')", made.variables)
    await made.close()
    assert (kept / bucket.NAME / "copy").read_text() == "earlier"
