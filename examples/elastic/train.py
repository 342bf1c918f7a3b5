"""The program of an elastic PathwaysJob: it trains through losses of slices, and logs a line for each step.

It goes on until the job is deleted. Its image needs JAX, pathwaysutils and pathways_jupyter.
"""

import logging
import sys

import numpy as np
import pathwaysutils

from pathways_jupyter import elastic

FEATURES, ROWS = 64, 48


def step(state, batch):
    """One step of a linear model: the new state, and the loss."""
    import jax

    def loss(weights):
        return ((batch["x"] @ weights - batch["y"]) ** 2).mean()

    value, slope = jax.value_and_grad(loss)(state["weights"])
    return {"weights": state["weights"] - 0.05 * slope}, {"loss": value}


class Batches:
    """Random batches; the position can be saved, so that a repeated step gets its own batch again."""

    def __init__(self):
        self.number = 0
        self.truth = np.random.default_rng(0).normal(size=(FEATURES, 1)).astype(np.float32)

    def __iter__(self):
        return self

    def __next__(self):
        x = np.random.default_rng(self.number).normal(size=(ROWS, FEATURES)).astype(np.float32)
        self.number += 1
        return {"x": x, "y": x @ self.truth}

    def get_state(self):
        """Return the position."""
        return self.number

    def set_state(self, number):
        """Go to a position."""
        self.number = number


def main():
    """Train."""
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s", force=True)
    pathwaysutils.initialize()
    manager = elastic.Manager()
    # In a job there is no session that reports when a slice is back, so its devices are asked.
    manager.start_monitoring(poll_interval=1)
    state = {"weights": np.zeros((FEATURES, 1), np.float32)}
    elastic.train_loop(step, state, Batches(), steps=10_000_000, manager=manager)


if __name__ == "__main__":
    main()
