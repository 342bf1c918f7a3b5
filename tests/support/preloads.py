"""What fork servers of tests import beforehand."""


def jax_and_grpc():
    import grpc  # noqa: F401
    import jax  # noqa: F401


def fails():
    import no_such_module  # noqa: F401
