"""Any program with a session of its own: it knows nothing of this package, only its environment does."""
