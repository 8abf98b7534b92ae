import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.json_pieces import MOST_MARKS, TooMany, check, pieces

TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\[]{},'))
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def count(value: object) -> int:
    """Commas and opening brackets, and one."""
    if isinstance(value, list | dict):
        inner = value.values() if isinstance(value, dict) else value
        return 2 + sum(count(item) for item in inner) - bool(value)
    return 1


@given(st.lists(VALUES, min_size=1), st.integers(0, 50), st.booleans(), st.sampled_from([None, 2]))
def test_the_pieces_hold_the_items_in_order_and_none_is_larger_than_it_must_be(
    items: list[Any], size: int, ascii_: bool, indent: int | None
) -> None:
    text = json.dumps(items, ensure_ascii=ascii_, indent=indent).encode()
    made = list(pieces(b" " + text + b"\n", size, 10**9))
    decoded = [json.loads(piece) for piece in made]
    assert [item for piece in decoded for item in piece] == items
    for piece, held in zip(made, decoded, strict=True):
        last = json.dumps(held[-1], ensure_ascii=ascii_, indent=indent)
        assert len(held) == 1 or len(piece) <= size + 2 * len(last.encode()) + 100 * (indent or 0) + 4


@given(VALUES, st.sampled_from([None, 2]))
def test_values_are_counted_wherever_they_stand_and_never_in_strings(value: object, indent: int | None) -> None:
    text = json.dumps(value, indent=indent).encode()
    check(text, count(value))
    with pytest.raises(TooMany):
        check(text, count(value) - 1)


def test_a_long_string_and_a_long_row_of_numbers_are_searched_to_their_ends() -> None:
    text = '\\"[,' * 10**5
    items = [[text], *range(10**5), {text: text}]
    made = list(pieces(json.dumps(items).encode(), 1000, 10**4))
    assert [item for piece in made for item in json.loads(piece)] == items
    assert len(made) > 100


@pytest.mark.parametrize("item", ['""', "[]", "{}", '{"a": "b"}'])
def test_more_marks_than_anybody_needs_are_not_gone_through(item: str) -> None:
    with pytest.raises(TooMany):
        list(pieces(f"[{', '.join([item] * (MOST_MARKS + 1))}]".encode(), 1000, 10**4))
