from hypothesis import given
from hypothesis import strategies as st

from server.queue import FEW, Turnover, stalled


def busy(count: int, every: float, begin: float = 0.0) -> tuple[Turnover, float]:
    turnover = Turnover()
    turnover.begin(begin)
    for i in range(count):
        turnover.ended(begin + (i + 1) * every)
    return turnover, begin + count * every


@given(st.integers(FEW, 100), st.floats(0.01, 60), st.integers(0, 300))
def test_the_wait_is_so_many_endings_at_the_pace_of_the_last_ones(count: int, every: float, ahead: int) -> None:
    turnover, now = busy(count, every)
    assert abs(turnover.wait(ahead, now) - ahead * every) < 1e-6 * (1 + ahead * every)


def test_a_pause_does_not_count_as_slowness() -> None:
    turnover, now = busy(20, 0.5)
    turnover.begin(now + 3600)
    for i in range(FEW):
        turnover.ended(now + 3600 + (i + 1) * 0.5)
    assert turnover.seconds(now + 3600 + FEW * 0.5) == 0.5


def test_nobody_is_turned_away_by_a_guess() -> None:
    turnover, now = busy(FEW - 1, 100.0)
    assert turnover.wait(50, now) == 0.0
    assert Turnover().seconds(5.0) == 1.0


def test_a_scheduler_counts_as_stalled_by_what_its_steps_should_take() -> None:
    assert not stalled(0, 3600.0, 0.1)
    assert not stalled(1, 29.0, 0.1)
    assert stalled(1, 31.0, 0.1)
    assert not stalled(1, 31.0, 5.0)
    assert stalled(1, 51.0, 5.0)
