"""The three examples of Pathways' own documentation of colocated Python, as scripts write them."""

from __future__ import annotations

import jax
import numpy as np
from jax.experimental import colocated_python
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from pathways_jupyter.kube import auth, execute
from pathways_jupyter.kube.client import Client
from pathways_jupyter.service import names

WORKER = "pathways-cluster-worker-{}-{}"


async def read_in_worker(cluster, slice_index: int, host: int, path: str) -> bytes:
    """Return the output of ``kubectl exec <worker pod> -- cat PATH``."""
    from pathways_jupyter.kube.objects import PODS, list_

    async with Client(auth.load(str(cluster.kubeconfig), cluster.context)) as client:
        prefix = WORKER.format(slice_index, host)
        found = (await list_(client, PODS, namespace="default")).items
        name = next(pod["metadata"]["name"] for pod in found if pod["metadata"]["name"].startswith(prefix))
        container = names.SIDECAR_CONTAINER
        done = await execute.run(client, name, ["cat", "--", path], namespace="default", container=container)
        assert done.exit_code == 0, done.stderr
        return done.stdout


def test_simple(connection, local_cluster) -> None:
    @colocated_python.colocated_python
    def create_a_file(dummy):
        """Creates a simple file on the TPU worker."""
        filename = "my_new_file.txt"
        content_to_write = f"This is written on TPU worker {jax.process_index()}"
        try:
            with open(filename, "w", encoding="utf-8") as file:
                file.write(content_to_write)
                print(f"Content written to '{filename}'.")
            print(f"File '{filename}' created and closed.")
        except OSError as error:
            print(f"An error occurred: {error}")
        return dummy

    devices = jax.devices()
    dummy_array = np.array(1)
    dummy_array = jax.device_put(dummy_array, devices[0])
    out = create_a_file(dummy_array)
    assert int(out) == 1

    import asyncio

    written = asyncio.run(read_in_worker(local_cluster, 0, 0, "my_new_file.txt"))
    assert written == b"This is written on TPU worker 0"


def test_medium(connection, local_cluster) -> None:
    @colocated_python.colocated_python
    def create_and_save_primes_plot(dummy):
        """Creates a simple line plot and saves it as a PNG image on the TPU worker."""
        import matplotlib.pyplot as plt

        worker_id = jax.process_index()
        plot_filename = f"simple_line_plot_worker_{worker_id}.png"
        x_data = np.array([1, 2, 3, 4, 5])
        y_data = np.array([2, 3, 5, 7, 11])
        plt.figure(figsize=(6, 4))
        plt.plot(x_data, y_data, marker="o", linestyle="-")
        plt.xlabel("Nth Prime")
        plt.ylabel("Primes")
        plt.title(f"Simple Plot from TPU Worker {worker_id}")
        plt.grid(True)
        plt.savefig(plot_filename)
        print(f"Plot successfully saved to '{plot_filename}' on worker {worker_id}.")
        plt.close()
        return dummy

    devices = jax.devices()
    dummy_np_array = np.array(1, dtype=np.float32)
    dummy_device_array = jax.device_put(dummy_np_array, devices[0])
    out = create_and_save_primes_plot(dummy_device_array)
    assert float(out) == 1

    import asyncio

    written = asyncio.run(read_in_worker(local_cluster, 0, 0, "simple_line_plot_worker_0.png"))
    assert written.startswith(b"\x89PNG")


def test_advanced_an_iterator_on_every_host(mesh, cpu_mesh) -> None:
    @colocated_python.colocated_python_class
    class RemoteIterator:
        """Loads batches where the chips are: each host its own part."""

        def __init__(self, make_dataset, shape, sharding):
            self.iterator = iter(make_dataset(jax.process_index(), jax.process_count()))
            self.shape = shape
            self.sharding = sharding

        def get_next(self, dummy):
            return jax.make_array_from_process_local_data(self.sharding, next(self.iterator), self.shape)

    def make_dataset(host, count):
        for step in range(3):
            yield np.full((16 // count, 2), 10 * step + host, np.float32)

    sharding = NamedSharding(cpu_mesh, P("x"))
    iterator = RemoteIterator(make_dataset, (16, 2), sharding)
    dummy = jax.device_put(np.zeros(16, np.int32), sharding)
    for step in range(3):
        batch = jax.device_put(iterator.get_next(dummy), NamedSharding(mesh, P("x")))
        np.testing.assert_array_equal(batch[:, 0], np.repeat(10 * step + np.arange(4), 4))
