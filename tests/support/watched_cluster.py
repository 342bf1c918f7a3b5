"""An embedded cluster on a thread of the test's own process, whose tokens and requests the test can see."""

import asyncio
import threading
from concurrent.futures import Future
from pathlib import Path

import kubeconfigs
from permissions import Grant

from pathways_jupyter.local.apiserver.credentials import POD_NAME, POD_UID
from pathways_jupyter.local.node import programs
from pathways_jupyter.local.node.spawner import Spawner
from pathways_jupyter.local.running import RunningCluster
from pathways_jupyter.local.settings import ClusterSettings
from pathways_jupyter.service import names

DEADLINE = 90.0
TYPE = "tpuv6e:2x2"


class Watched:
    """An embedded cluster on a thread of this process, which notes who needed to be allowed what."""

    def __init__(self, directory: Path) -> None:
        # Its name is the cluster's, which must be a label's value; that of a temporary directory may end with "_".
        self.directory = directory / "cluster"
        self.directory.mkdir()
        self.asked: dict[str, set[Grant]] = {}
        self._ready: Future[None] = Future()
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Watched":
        self._thread.start()
        # What hinders the cluster is raised here; its own deadline comes first.
        self._ready.result(2 * DEADLINE)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(DEADLINE)

    @property
    def url(self) -> str:
        return self._cluster.api.url

    @property
    def ca(self) -> Path:
        return self._cluster.api.ca

    def new_token(self, serial: int) -> str:
        """A token of a robot that may do everything, for :meth:`revoke`."""
        return self._add_token("robot", extra={"serial": [str(serial)]})

    def revoke(self, serial: int) -> None:
        self._on_loop(lambda: self._cluster.api.users.revoke("serial", str(serial)))

    def _add_token(self, *arguments, **options) -> str:
        return self._on_loop(lambda: self._cluster.api.users.add(*arguments, **options))

    def _on_loop(self, do):
        """Call `do` where the cluster runs, which has tokens of its own to write."""

        async def done():
            return do()

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(DEADLINE)

    def kubeconfig(self, name: str, rules: list[dict] | None, pod: dict | None = None) -> str:
        """A kubeconfig of a new user, or of a service account whose token belongs to a pod."""
        token = self._add_token(name, rules)
        if pod is not None:
            extra = {POD_NAME: [pod["metadata"]["name"]], POD_UID: [pod["metadata"]["uid"]]}
            account = f"system:serviceaccount:{names.DEFAULT_NAMESPACE}:{name}"
            name, token = f"{name}-in-pod", self._add_token(account, rules, extra=extra)
        entry = {"server": self._cluster.api.url, "certificate-authority": str(self._cluster.api.ca)}
        return kubeconfigs.write(self.directory / f"kubeconfig-{name}", entry, {"token": token}, name=name)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _serve(self) -> None:
        cold, warm = (Spawner(each) for each in (programs.preload, programs.preload_jax))
        cold.start()
        warm.start()
        self._cluster = RunningCluster(self.directory, ClusterSettings({TYPE: 2}), cold=cold, warm=warm)
        self._cluster.api.audit = lambda user, question: self.asked.setdefault(user.name.rpartition(":")[2], set()).add(
            (question.group, question.resource, question.verb)
        )
        await self._cluster.start()
        try:
            async with asyncio.timeout(DEADLINE):
                await self._cluster.until_ready()
            self._ready.set_result(None)
            await self._ending.wait()
        finally:
            await self._cluster.close()
