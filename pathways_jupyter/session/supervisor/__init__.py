"""The supervisor process, which owns everything of a session outside the kernel."""
