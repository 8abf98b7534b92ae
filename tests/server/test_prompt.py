import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from scheduler.errors import ModelFolderError
from server.errors import BadRequest, ContextLengthExceeded
from server.prompt import Prompt, Prompter
from server.schema import parse_chat, parse_completion, parse_detokenize, parse_tokenize
from tests.conftest import FOLDERS

CONTEXT = 64
VOCAB = 640
BEGIN, END = 1, 2
LLAMA = FOLDERS["llama-int4"]


def prompter(folder: Path = LLAMA) -> Prompter:
    return Prompter.from_folder(folder, CONTEXT, VOCAB, frozenset({END}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("genai_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(LLAMA / name, tmp_path)
    return tmp_path


def edit(path: Path, **fields: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def complete(prompt: object, to: Prompter | None = None, **fields: object) -> Prompt:
    call = parse_completion(json.dumps({"prompt": prompt, **fields}).encode())
    (ready,) = (to or PROMPTER).completion(call)
    return ready


def chat(messages: list[dict[str, Any]], to: Prompter | None = None, **fields: object) -> Prompt:
    (ready,) = (to or PROMPTER).chat(parse_chat(json.dumps({"messages": messages, **fields}).encode()))
    return ready


PROMPTER = prompter()
TOKENIZER = Tokenizer.from_file(str(LLAMA / "tokenizer.json"))
USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize("name", FOLDERS)
def test_every_folder_encodes_text_as_its_tokenizer_says(name: str) -> None:
    tokenizer = Tokenizer.from_file(str(FOLDERS[name] / "tokenizer.json"))
    for text in ("hello world", "  \n\n  tabs\t", "e\u0301 \u212b 日本語 😀", "<|im_start|>user"):
        assert list(complete(text, prompter(FOLDERS[name])).tokens) == tokenizer.encode(text).ids


def test_a_chat_is_rendered_by_the_template_and_special_tokens_are_tokens() -> None:
    text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert list(chat([USER]).tokens) == TOKENIZER.encode(text).ids
    assert chat([USER]).tokens[0] == BEGIN


def test_the_answers_turn_is_opened_unless_the_client_does_not_want_it() -> None:
    closed = chat([USER], add_generation_prompt=False).tokens
    assert list(closed) == TOKENIZER.encode("<|im_start|>user\nhi<|im_end|>\n").ids


@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12))
def test_any_text_reaches_the_model_unchanged(text: str) -> None:
    assert TOKENIZER.decode(list(complete("a" + text).tokens), skip_special_tokens=False) == "a" + text
    shown = TOKENIZER.decode(list(chat([{"role": "user", "content": text}]).tokens), skip_special_tokens=False)
    assert shown == f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


def test_begin_tokens_are_added_to_completions_and_not_doubled_in_chats(folder: Path) -> None:
    begin = {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}
    edit(
        folder / "tokenizer.json",
        post_processor={
            "type": "TemplateProcessing",
            "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [BEGIN], "tokens": ["<|im_start|>"]}},
        },
    )
    adding = prompter(folder)
    assert complete("hi", adding).tokens == (BEGIN, *complete("hi").tokens)
    assert chat([USER], adding).tokens == chat([USER]).tokens
    assert complete("", adding).tokens == (BEGIN,)


def test_a_completion_of_nothing_begins_from_the_begin_token() -> None:
    assert complete("").tokens == (BEGIN,)


def test_a_completion_of_nothing_is_refused_where_there_is_no_begin_token(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    edit(folder / "genai_config.json", model={})
    with pytest.raises(BadRequest, match="no token to begin from") as caught:
        complete("", prompter(folder))
    assert caught.value.param == "prompt"


def test_token_ids_are_taken_as_they_are() -> None:
    assert complete([5, VOCAB - 1]).tokens == (5, VOCAB - 1)


@pytest.mark.parametrize(("fields", "param"), [({"prompt": [VOCAB]}, "prompt"), ({"stop_token_ids": [VOCAB]}, None)])
def test_ids_outside_the_vocabulary_are_refused(fields: dict[str, Any], param: str | None) -> None:
    with pytest.raises(BadRequest, match=f"below {VOCAB}") as caught:
        complete(**{"prompt": "hi", **fields})
    assert caught.value.param == (param or "stop_token_ids")


def test_a_prompt_must_leave_room_for_a_token() -> None:
    assert complete([5] * (CONTEXT - 1)).params.max_tokens == 1
    with pytest.raises(ContextLengthExceeded, match=rf"{CONTEXT} tokens.* {CONTEXT}") as caught:
        complete([5] * CONTEXT)
    assert (caught.value.param, caught.value.code) == ("prompt", "context_length_exceeded")
    with pytest.raises(ContextLengthExceeded) as caught:
        chat([{"role": "user", "content": "a b" * CONTEXT}])
    assert caught.value.param == "messages"


def test_a_text_that_cannot_fit_is_refused_unread() -> None:
    with pytest.raises(ContextLengthExceeded, match="at least"):
        complete("a" * 10_000_000)


def test_max_tokens_is_the_rest_of_the_context_at_the_most() -> None:
    assert complete([5] * 60).params.max_tokens == 4
    assert complete([5] * 60, max_tokens=3).params.max_tokens == 3
    assert complete([5] * 60, max_tokens=10**30).params.max_tokens == 4
    assert complete([5] * 60, max_tokens=0).params.max_tokens == 0


def test_sampling_parameters_arrive() -> None:
    params = complete("hi", temperature=0.5, top_p=0.9, top_k=10**30, seed=4).params
    assert (params.temperature, params.top_p, params.top_k, params.seed) == (0.5, 0.9, 10**30, 4)


@pytest.mark.parametrize(
    ("fields", "end_tokens"),
    [({}, {END}), ({"stop_token_ids": [7]}, {7, END}), ({"ignore_eos": True}, set()),
     ({"ignore_eos": True, "stop_token_ids": [7]}, {7})],
)  # fmt: skip
def test_stop_ids_come_beside_the_models_end_tokens(fields: dict[str, Any], end_tokens: set[int]) -> None:
    prepared = complete("hi", **fields)
    assert prepared.params.end_tokens == end_tokens
    assert prepared.stop.end_tokens == end_tokens


def test_stop_strings_arrive_at_the_text() -> None:
    rule = complete("hi", stop=["a", "b"], include_stop_str_in_output=True).stop
    assert (rule.strings, rule.include) == (("a", "b"), True)


def test_a_folder_without_a_template_points_to_completions(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    without = prompter(folder)
    assert not without.has_template
    assert complete("hi", without).tokens == complete("hi").tokens
    with pytest.raises(BadRequest, match="/v1/completions"):
        chat([USER], without)


def test_the_template_may_be_in_the_tokenizers_config(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    edit(folder / "tokenizer_config.json", chat_template="{{ messages[0].content }}")
    assert chat([USER], prompter(folder)).tokens == complete("hi").tokens


@pytest.mark.parametrize(
    ("source", "role"), [("{{ messages[0].role }}", "system"), ("{# developer #}{{ messages[0].role }}", "developer")]
)
def test_a_developer_speaks_as_the_system_to_templates_that_know_no_developer(
    folder: Path, source: str, role: str
) -> None:
    (folder / "chat_template.jinja").write_text(source)
    assert chat([{"role": "developer", "content": "x"}], prompter(folder)).tokens == complete(role).tokens


def test_names_and_call_ids_reach_the_template(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages[0].name }} {{ messages[0].tool_call_id }}")
    message = {"role": "tool", "content": "x", "name": "clock", "tool_call_id": "c1"}
    assert chat([message], prompter(folder)).tokens == complete("clock c1").tokens


def test_what_a_template_refuses_is_the_clients_to_mend(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ raise_exception('Roles must alternate') }}")
    with pytest.raises(BadRequest, match=r"Roles must alternate$") as caught:
        chat([USER], prompter(folder))
    assert caught.value.param == "messages"


def test_a_chat_rendered_to_nothing_is_refused(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{% if false %}x{% endif %}")
    with pytest.raises(BadRequest, match="empty"):
        chat([USER], prompter(folder))


def test_a_folder_without_a_tokenizer_is_refused_at_start(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelFolderError, match=r"tokenizer\.json"):
        prompter(folder)


def test_several_prompts_are_prepared_each_by_itself() -> None:
    call = parse_completion(json.dumps({"prompt": ["a", "hello world", "a"]}).encode())
    assert [p.tokens for p in PROMPTER.completion(call)] == [
        complete(text).tokens for text in ("a", "hello world", "a")
    ]
    with pytest.raises(BadRequest) as caught:
        PROMPTER.completion(parse_completion(json.dumps({"prompt": [[5], [5], [VOCAB]]}).encode()))
    assert caught.value.param == "prompt[2]"


def test_an_echo_with_logprobs_knows_where_each_token_begins() -> None:
    text = "hello, world"
    prompt = complete(text, echo=True, logprobs=1)
    starts = [start for start, _ in TOKENIZER.encode(text).offsets]
    assert (prompt.text, list(prompt.offsets)) == (text, starts)
    assert complete(text, logprobs=1).offsets == ()


def test_the_prompt_is_scored_as_far_as_anyone_wants_it() -> None:
    def scored(logprobs: int | None = None, echo: bool = False, prompt_logprobs: int | None = None) -> int | None:
        prompt = complete("hi", logprobs=logprobs, echo=echo, prompt_logprobs=prompt_logprobs)
        return prompt.params.prompt_logprobs

    assert (scored(logprobs=3), scored(echo=True), scored(prompt_logprobs=0)) == (None, None, 0)
    assert (scored(echo=True, logprobs=3), scored(echo=True, logprobs=3, prompt_logprobs=5)) == (3, 5)


def test_ids_of_a_bias_are_the_vocabulary_s() -> None:
    assert complete("hi", logit_bias={"5": 2, "6": 0}).params.logit_bias == ((5, 2.0),)
    with pytest.raises(BadRequest) as caught:
        complete("hi", logit_bias={str(VOCAB): 1})
    assert caught.value.param == "logit_bias"


def test_some_token_must_be_left_where_ends_may_not_come_yet() -> None:
    with pytest.raises(BadRequest) as caught:
        complete("hi", min_tokens=1, stop_token_ids=list(range(VOCAB)))
    assert caught.value.param == "min_tokens"


def test_tokens_of_a_text_and_of_a_chat_and_back() -> None:
    def tokens(**fields: object) -> list[int]:
        return list(PROMPTER.tokenize(parse_tokenize(json.dumps(fields).encode())))

    assert tokens(prompt="hello world") == list(complete("hello world").tokens)
    assert tokens(messages=[USER]) == list(chat([USER]).tokens)
    back = PROMPTER.detokenize(parse_detokenize(json.dumps({"tokens": tokens(messages=[USER])}).encode()))
    assert back == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
