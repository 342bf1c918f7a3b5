"""A differential equation by Diffrax, and its gradient."""

import os

os.environ["EQX_ON_ERROR"] = "nan"  # Its own checks are host callbacks.

import diffrax
import jax
import jax.numpy as jnp


def end(rate):
    term = diffrax.ODETerm(lambda t, y, args: -rate * y + jnp.sin(t))
    controller = diffrax.PIDController(rtol=1e-5, atol=1e-5)
    solution = diffrax.diffeqsolve(
        term, diffrax.Tsit5(), 0.0, 5.0, 0.1, jnp.array([1.0, 2.0]), stepsize_controller=controller
    )
    return solution.ys[0].sum()


print("end", f"{end(0.7):.4f}")
print("gradient", f"{jax.jit(jax.grad(end))(0.7):.4f}")
