import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler.tokens import TokenIds, TokenList, common

tokens = st.lists(st.integers(0, 2), max_size=30).map(lambda ids: np.array(ids, np.int32))


@given(tokens, tokens)
def test_what_two_texts_have_in_common_is_what_a_loop_finds(a: TokenIds, b: TokenIds) -> None:
    count = 0
    while count < min(len(a), len(b)) and a[count] == b[count]:
        count += 1
    assert common(a, b) == count


@given(st.lists(st.integers(0, 9), max_size=5), st.lists(st.integers(0, 9), max_size=200))
def test_a_list_is_its_prompt_and_what_was_appended_and_earlier_views_of_it_stay(
    prompt: list[int], more: list[int]
) -> None:
    grown = TokenList(prompt)
    views = [grown.ids]
    for token in more:
        grown.append(token)
        views.append(grown.ids)
    assert [view.tolist() for view in views] == [[*prompt, *more[:count]] for count in range(len(more) + 1)]
