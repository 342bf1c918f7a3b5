"""A state that has no values any more when it is given to a training run."""

from __future__ import annotations

import numpy as np
import pytest
from small_training import Data, first_state, step

from pathways_jupyter import elastic
from pathways_jupyter.elastic.record import Kind, Record


def everywhere(session):
    import jax

    return jax.sharding.NamedSharding(jax.sharding.Mesh(session.devices(), "x"), jax.P())


def test_a_state_that_was_on_a_slice_that_went_down_is_named_at_once(session, take_down_and_up):
    """Though the slice is back: what was on it is not."""
    import jax

    state, record = first_state(), Record()
    state["w"] = jax.block_until_ready(jax.device_put(state["w"], everywhere(session)))
    take_down_and_up(1)
    with pytest.raises(elastic.ElasticRuntimeError, match=r"state\['w'\] was on slice 1, which went down") as said:
        elastic.train_loop(step, state, Data(), steps=20, record=record)
    assert "Make the state again" in said.value.hint
    assert record.count(Kind.DETECTED) == 0, "nothing was lost in this run, and nothing survived"


def test_a_state_that_was_deleted_is_named(session):
    import jax

    state = {**first_state(), "w": jax.device_put(np.zeros((16, 4), np.float32), everywhere(session))}
    state["w"].delete()
    with pytest.raises(elastic.ElasticRuntimeError, match=r"no values: state\['w'\] was deleted, donated, or lost"):
        elastic.train_loop(step, state, Data(), steps=20)
