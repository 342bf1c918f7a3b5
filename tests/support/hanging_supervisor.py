"""A supervisor that does not get to its first line, as on a machine that is very busy."""

import time

if __name__ == "__main__":
    time.sleep(600)
