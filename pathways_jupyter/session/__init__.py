"""A notebook's session: the supervisor that owns it, the protocol between both, and the switch of the kernel's JAX."""
