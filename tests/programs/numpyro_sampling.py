"""A regression sampled by NumPyro's NUTS; its chains differ with the last bit of any number, its means do not."""

import jax
import jax.numpy as jnp
import numpyro
from numpyro import distributions
from numpyro.infer import MCMC, NUTS

x = jnp.linspace(-1, 1, 50)
y = 0.5 + 2 * x + 0.1 * jax.random.normal(jax.random.key(1), (50,))


def model(x, y):
    slope = numpyro.sample("slope", distributions.Normal(0, 5))
    offset = numpyro.sample("offset", distributions.Normal(0, 5))
    noise = numpyro.sample("noise", distributions.HalfNormal(1))
    numpyro.sample("y", distributions.Normal(offset + slope * x, noise), obs=y)


sampler = MCMC(NUTS(model), num_warmup=100, num_samples=100, progress_bar=False)
sampler.run(jax.random.key(0), x, y)
for name, values in sorted(sampler.get_samples().items()):
    print(name, f"{values.mean():.1f}")
