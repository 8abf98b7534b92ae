"""How the process' threads share Python's interpreter, and what its garbage collector looks at. Knows no thread."""

import gc
import sys

SWITCH = 0.001
"""Seconds after which a thread that computes in Python makes way for one that waits. Python's own 5 ms add up: the
scheduler's thread asks for the interpreter a dozen times a step, the event loop's for each thing that happens."""


def share_the_interpreter() -> None:
    """Let threads wait less for each other."""
    sys.setswitchinterval(SWITCH)


def keep_what_is_there() -> None:
    """Take what there is now for what stays: a full collection, which stops everybody, then passes over it."""
    gc.collect()
    gc.freeze()
