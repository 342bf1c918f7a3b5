"""A notebook's connection: the supervisor that owns it, its protocol, and the switch of the kernel's JAX."""
