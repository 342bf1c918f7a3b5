"""Render typed values as text and HTML: pure functions that display nothing themselves."""
