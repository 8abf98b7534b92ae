from hypothesis import given
from hypothesis import strategies as st

from server.patience import RATE, Patience

SECONDS = 10.0
PAUSES = st.lists(st.tuples(st.floats(0.001, 9), st.integers(1, 10**6)), max_size=30)


def begun() -> Patience:
    patience = Patience(SECONDS)
    patience.begin(100.0)
    return patience


def test_who_sends_nothing_has_the_time_once() -> None:
    patience = begun()
    assert patience.awaiting
    assert patience.deadline == 110.0


@given(PAUSES)
def test_no_pause_is_longer_than_allowed_and_no_trickle_slower(pauses: list[tuple[float, int]]) -> None:
    patience, now, size = begun(), 100.0, 0
    for pause, bytes_ in pauses:
        now, size = now + pause, size + bytes_
        patience.heard(bytes_, now)
        assert patience.deadline <= now + SECONDS
        assert patience.deadline <= 100.0 + SECONDS + size / RATE


@given(st.floats(0.1, 9.9), st.integers(1, 100))
def test_who_sends_without_pauses_at_that_rate_is_never_too_late(pause: float, count: int) -> None:
    patience, now = begun(), 100.0
    for _ in range(count):
        assert now < patience.deadline
        now += pause
        patience.heard(int(pause * RATE) + 1, now)


@given(st.floats(0, 1000))
def test_what_was_not_the_client_s_fault_is_not_counted(waited: float) -> None:
    patience = begun()
    patience.excuse(100.0 + waited)
    assert abs(patience.deadline - (110.0 + waited)) < 1e-6


def test_the_next_request_starts_anew() -> None:
    patience = begun()
    patience.heard(10**6, 101.0)
    patience.end()
    assert not patience.awaiting
    patience.begin(200.0)
    assert (patience.deadline, patience.received) == (210.0, 0)
