"""How a process ends before it serves, and where it cannot end by itself. Serving has ends of its own: `http.py`."""

import logging
import os
import signal
import sys
import threading
from types import FrameType
from typing import NoReturn


class Terminated(KeyboardInterrupt):
    """SIGTERM came. What is being done ends by way of `finally`, as with Ctrl-C, and leaves nothing half made."""


def hear_signals() -> None:
    """Have SIGTERM raise Terminated in the main thread and SIGINT KeyboardInterrupt, as they end a server.

    That holds for process 1 of a container too, which the kernel sends only what it has a handler for, and for one in
    the background of a script, where SIGINT is ignored. A second SIGTERM ends the process there and then.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _raise)
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _raise(number: int, _: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + number))
    raise Terminated


def leave(status: int) -> NoReturn:
    """End the process though a thread of it still computes.

    Python's own end would stop the thread in the midst of C++ code, which aborts the process.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status)
