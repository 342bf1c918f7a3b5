"""The server side of JAX's IFRT proxy protocol, on CPU devices that pose as TPU chips."""
