"""The panels in a notebook: slice map and event timeline."""
