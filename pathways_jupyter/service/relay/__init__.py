"""Streams that outlive the connections that carry them, and the program beside the proxy that keeps one end of each."""
