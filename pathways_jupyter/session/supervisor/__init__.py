"""What runs in the supervisor, the process that owns everything of a session outside the kernel."""
