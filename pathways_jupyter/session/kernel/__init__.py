"""What runs in the kernel: the session as a user sees it, its link to the supervisor, and the switch of JAX."""
