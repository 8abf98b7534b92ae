import gc
import sys
from collections.abc import Iterator

import pytest

from server.interpreter import SWITCH, keep_what_is_there, share_the_interpreter


@pytest.fixture
def restored() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)
    gc.unfreeze()


@pytest.mark.usefixtures("restored")
def test_threads_wait_less_and_what_is_there_is_not_looked_at_again() -> None:
    share_the_interpreter()
    assert sys.getswitchinterval() == pytest.approx(SWITCH)
    before = gc.get_freeze_count()
    keep_what_is_there()
    assert gc.get_freeze_count() > before
