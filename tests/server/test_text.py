import codecs
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.text import Delta, StopRule, TextStream
from server.vocabulary import Vocabulary

EURO = "€".encode()


def vocabulary(*pieces: bytes) -> Vocabulary:
    return Vocabulary(dict(enumerate(pieces)))


def deltas(stream: TextStream, steps: Sequence[Sequence[int]]) -> list[Delta]:
    return [*(stream.push(step) for step in steps), stream.finish()]


def naive_end(text: str, stops: Sequence[str]) -> tuple[str, str, str] | None:
    """Text before the match, the match, and the text through it: reads ever longer beginnings of the text."""
    for end in range(len(text) + 1):
        met = [stop for stop in stops if text[:end].endswith(stop)]
        if met:
            stop = max(met, key=len)
            return text[: end - len(stop)], stop, text[:end]
    return None


few_letters = st.text(alphabet="abé€\ufffd", max_size=6)
pieces_of_text = st.text(alphabet="abé€😀", max_size=3).map(str.encode)
broken_pieces = st.sampled_from(
    [b"\xe2", b"\x82", b"\xac", b"\xff", b"\xc3", b"\xa9", b"a\xe2\x82", b"\xf0\x9f", b"\x98\x80b"]
)
pieces_lists = st.lists(pieces_of_text | broken_pieces, min_size=1, max_size=8)
stop_lists = st.lists(few_letters.filter(bool), max_size=4)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[bytes], list[int], list[str]]:
    pieces = draw(pieces_lists)
    tokens = draw(st.lists(st.integers(0, len(pieces) - 1), max_size=20))
    return pieces, tokens, draw(stop_lists)


@st.composite
def cuts(draw: st.DrawFn, tokens: list[int]) -> list[list[int]]:
    places = draw(st.lists(st.integers(0, len(tokens)), max_size=6))
    return [tokens[a:b] for a, b in pairwise([0, *sorted(places), len(tokens)])]


@given(case=cases(), include=st.booleans(), data=st.data())
def test_joined_deltas_are_the_plain_text_cut_at_the_first_completed_stop_string(
    case: tuple[list[bytes], list[int], list[str]], include: bool, data: st.DataObject
) -> None:
    pieces, tokens, stops = case
    stream = TextStream(vocabulary(*pieces), StopRule(strings=tuple(stops), include=include))
    got = deltas(stream, data.draw(cuts(tokens)))
    plain = b"".join(pieces[token] for token in tokens).decode(errors="replace")
    end = naive_end(plain, stops)
    joined = "".join(delta.text for delta in got)
    if end is None:
        assert (joined, got[-1].stop) == (plain, None)
        assert sum(delta.counted for delta in got) == len(tokens)
    else:
        before, stop, through = end
        assert (joined, got[-1].stop) == (through if include else before, stop)


@given(case=cases(), include=st.booleans(), data=st.data())
def test_the_cuts_into_steps_change_neither_text_nor_count_nor_offsets(
    case: tuple[list[bytes], list[int], list[str]], include: bool, data: st.DataObject
) -> None:
    pieces, tokens, stops = case
    rule = StopRule(strings=tuple(stops), include=include)

    def run(steps: list[list[int]]) -> tuple[str, list[int], str | None]:
        got = deltas(TextStream(vocabulary(*pieces), rule), steps)
        return "".join(d.text for d in got), [offset for d in got for offset in d.offsets], got[-1].stop

    assert run(data.draw(cuts(tokens))) == run([[token] for token in tokens]) == run([tokens])


@given(case=cases(), data=st.data())
def test_nothing_of_a_completed_stop_string_leaks_at_any_moment(
    case: tuple[list[bytes], list[int], list[str]], data: st.DataObject
) -> None:
    pieces, tokens, stops = case
    stream = TextStream(vocabulary(*pieces), StopRule(strings=tuple(stops)))
    sent = ""
    for delta in deltas(stream, data.draw(cuts(tokens))):
        sent += delta.text
        assert not any(stop in sent for stop in stops)


@given(tokens=st.lists(st.sampled_from("abcé"), max_size=20), stops=st.lists(st.text("abcé", min_size=1), max_size=3))
def test_no_more_is_held_back_than_may_begin_a_stop_string(tokens: list[str], stops: list[str]) -> None:
    letters = "abcé"
    stream = TextStream(vocabulary(*(letter.encode() for letter in letters)), StopRule(strings=tuple(stops)))
    sent = text = ""
    for letter in tokens:
        delta = stream.push([letters.index(letter)])
        text, sent = text + letter, sent + delta.text
        if delta.stop is not None:
            break
        held = [text[i:] for i in range(len(text)) if any(stop.startswith(text[i:]) for stop in stops)]
        assert sent + (held[0] if held else "") == text


@given(case=cases())
def test_tokens_count_up_to_the_one_that_completed_the_stop_string(
    case: tuple[list[bytes], list[int], list[str]],
) -> None:
    pieces, tokens, stops = case
    one_by_one = TextStream(vocabulary(*pieces), StopRule(strings=tuple(stops)))
    count = 0
    for token in tokens:
        delta = one_by_one.push([token])
        count += delta.counted
        if delta.stop is not None:
            break
    assert TextStream(vocabulary(*pieces), StopRule(strings=tuple(stops))).push(tokens).counted == count


def test_a_character_split_over_tokens_is_sent_once_and_whole() -> None:
    stream = TextStream(vocabulary(EURO[:1], EURO[1:2], EURO[2:]), StopRule())
    assert [stream.push([token]).text for token in (0, 1, 2)] == ["", "", "€"]


def test_an_unfinished_character_becomes_one_replacement_character_at_the_end() -> None:
    stream = TextStream(vocabulary(b"a" + EURO[:2]), StopRule())
    assert [delta.text for delta in deltas(stream, [[0]])] == ["a", "\ufffd"]


def test_a_replacement_character_of_the_end_can_complete_a_stop_string() -> None:
    stream = TextStream(vocabulary(b"ab" + EURO[:2]), StopRule(strings=("b\ufffd",)))
    assert deltas(stream, [[0]]) == [Delta("a", (0,)), Delta("", (), "b\ufffd")]


def test_text_that_may_begin_a_stop_string_waits_until_it_cannot() -> None:
    stream = TextStream(vocabulary(b"a", b"b", b"c"), StopRule(strings=("abc",)))
    assert [stream.push([token]).text for token in (0, 1, 0, 1, 1)] == ["", "", "ab", "", "abb"]


def test_held_text_is_delivered_at_the_end() -> None:
    stream = TextStream(vocabulary(b"ab"), StopRule(strings=("abc",)))
    assert deltas(stream, [[0]]) == [Delta("", (0,)), Delta("ab")]


@pytest.mark.parametrize(
    ("stops", "text", "shown", "stop"),
    [
        (("abcd", "bc"), "abcd", "a", "bc"),  # "bc" is complete one character earlier
        (("abc", "bc"), "abc", "", "abc"),  # complete together: the one that starts first
        (("bc", "abc"), "abc", "", "abc"),  # whatever their order in the list
        (("ab", "abc"), "abc", "", "ab"),  # the text never reaches the longer one
        (("aab",), "aaab", "a", "aab"),
        (("b",), "ab\0b", "a", "b"),
    ],
)
def test_the_stop_string_complete_first_wins(stops: tuple[str, ...], text: str, shown: str, stop: str) -> None:
    for pieces in ([text.encode()], [char.encode() for char in text]):
        stream = TextStream(vocabulary(*pieces), StopRule(strings=stops))
        got = stream.push(range(len(pieces)))
        assert (got.text, got.stop) == (shown, stop)


def test_an_included_stop_string_ends_the_text() -> None:
    stream = TextStream(vocabulary(b"xENDyEND"), StopRule(strings=("END",), include=True))
    assert deltas(stream, [[0]]) == [Delta("xEND", (0,), "END"), Delta("", (), "END")]


def test_tokens_after_the_stop_string_are_neither_shown_nor_counted() -> None:
    stream = TextStream(vocabulary(b"a", b"!", b"z"), StopRule(strings=("!",)))
    assert stream.push([0, 1, 2, 2]) == Delta("a", (0, 1), "!")
    assert stream.push([2]) == Delta("", (), "!")


def test_an_end_token_counts_but_its_spelling_shows_only_when_asked_for() -> None:
    words = vocabulary(b"a", b"</s>")
    hidden = TextStream(words, StopRule(end_tokens=frozenset({1})))
    shown = TextStream(words, StopRule(end_tokens=frozenset({1}), include=True))
    assert hidden.push([0, 1]) == Delta("a", (0, 1))
    assert shown.push([0, 1]) == Delta("a</s>", (0, 1))


def test_offsets_say_where_each_token_begins_in_the_text() -> None:
    stream = TextStream(vocabulary(b"ab", EURO[:1], EURO[1:], b"c"), StopRule())
    assert stream.push([0, 1, 2, 3]).offsets == (0, 2, 2, 3)


def test_a_stop_string_of_a_hundred_thousand_characters_costs_only_what_was_matched() -> None:
    long = "a" * 100_000 + "b"
    stream = TextStream(vocabulary(b"aaaa", b"c"), StopRule(strings=(long,) * 16))
    assert stream.push([0] * 100).text == ""
    assert stream.push([1]).text == "a" * 400 + "c"


@given(case=cases(), least=st.integers(0, 22), data=st.data())
def test_stop_strings_are_looked_for_behind_the_tokens_that_are_wanted_first(
    case: tuple[list[bytes], list[int], list[str]], least: int, data: st.DataObject
) -> None:
    pieces, tokens, stops = case
    rule = StopRule(strings=tuple(stops), min_tokens=least)
    got = deltas(TextStream(vocabulary(*pieces), rule), data.draw(cuts(tokens)))
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    before = "".join(decoder.decode(pieces[token]) for token in tokens[:least])
    after = "".join(decoder.decode(pieces[token]) for token in tokens[least:])
    rest = decoder.decode(b"", final=True)
    end = naive_end(after + rest, stops) if len(tokens) > least else None
    expected = after + rest if end is None else end[0]
    assert "".join(delta.text for delta in got) == before + expected
    assert got[-1].stop == (None if end is None else end[1])


SPELLED = {3: "<s>", 4: "<s>>", 5: "ab"}
STEERED = Vocabulary({0: b"a", 1: b"b", 2: b"<", **{id_: s.encode() for id_, s in SPELLED.items()}}, frozenset(SPELLED))


@pytest.mark.parametrize(
    ("stop", "tokens", "shown"),
    [
        ("<s>", [0, 1, 3, 0], "ab"),
        ("<s>>", [0, 3, 1, 4, 0], "ab"),  # not the other one that is spelled like its beginning
        ("<s>", [0, 4, 1, 3, 0], "ab"),
        ("b<s>a", [0, 1, 3, 0, 1], "a"),
        ("<s><s>", [0, 3, 1, 3, 3, 1], "ab"),
        ("ab", [1, 5, 0], "b"),
        ("ab", [1, 0, 3, 1, 0], "b"),  # what is not shown does not part what is
    ],
)
def test_a_stop_string_meets_the_special_tokens_that_it_spells_though_they_are_not_shown(
    stop: str, tokens: list[int], shown: str
) -> None:
    got = deltas(TextStream(STEERED, StopRule(strings=(stop,))), [[token] for token in tokens])
    assert ("".join(delta.text for delta in got), got[-1].stop) == (shown, stop)


@given(
    tokens=st.lists(st.integers(0, 5), max_size=14),
    stops=st.lists(st.sampled_from(["<s>", "a", "b<s>", "<s>a", "<s><s>", "aa", "a<s>b", "<"]), max_size=3),
    include=st.booleans(),
    data=st.data(),
)
def test_what_is_shown_ends_before_the_first_stop_string_in_text_and_special_tokens(
    tokens: list[int], stops: list[str], include: bool, data: st.DataObject
) -> None:
    rule = StopRule(strings=tuple(stops), include=include)
    got = deltas(TextStream(STEERED, rule), data.draw(cuts(tokens)))
    marked = {0: "a", 1: "b", 2: "<", 3: "S", 4: "T", 5: "U"}
    end = first_end([marked[token] for token in tokens], stops)
    expected, stop = end if end is not None else ("".join(marked[token] for token in tokens), None)
    shown = "".join(char for char in expected if char.islower() or char == "<")
    assert "".join(delta.text for delta in got) == shown + (stop or "" if include else "")
    assert got[-1].stop == stop


def first_end(chars: list[str], stops: Sequence[str]) -> tuple[str, str] | None:
    """What is before the match, special tokens as capitals, and the match: reads ever longer beginnings."""
    for count in range(len(chars) + 1):
        met = []
        for stop in stops:
            pattern, text = stop.replace("<s>", "S"), "".join(chars[:count])
            if "S" in pattern:
                starts = [count - len(pattern)] if text.endswith(pattern) else []
            else:
                visible = [i for i, char in enumerate(text) if not char.isupper()]
                last = visible[-len(pattern) :]
                ends = bool(visible) and visible[-1] == count - 1 and "".join(text[i] for i in last) == pattern
                starts = [last[0]] if ends else []
            met += [(start, stop) for start in starts]
        if met:
            start, stop = min(met, key=lambda found: (found[0], stops.index(found[1])))
            return "".join(chars[:start]), stop
    return None
