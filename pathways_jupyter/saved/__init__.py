"""Variables with their arrays on TPUs, saved in the session's bucket under a name; they outlive the kernel."""
