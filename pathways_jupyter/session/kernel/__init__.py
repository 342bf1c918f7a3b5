"""The kernel's part of a session: the user's `Session`, the link to its supervisor, and the switch of JAX."""
