import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.errors import ModelFolderError
from server.chat_template import ChatTemplate
from server.errors import BadRequest
from server.schema import parse_chat
from tests.conftest import FOLDERS

MOST = 10_000
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
USER = {"role": "user", "content": " hi "}


def render(source: str, messages: list[dict[str, Any]] | None = None, most: int = MOST, **fields: object) -> str | None:
    body = {"messages": messages or [USER], **fields}
    return ChatTemplate(source, SPECIAL).render(parse_chat(json.dumps(body).encode()).chat, most)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ messages[0].content.strip().upper().split('I')[0] }}", "H"),
        ("{{ bos_token + messages[0]['content'] + eos_token }}", "<s> hi </s>"),
        ("{{ {'a': 'é<'} | tojson }}", '{"a": "é<"}'),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{% generation %}{{ messages[0].role }}{% endgeneration %}", "user"),
        ("  {% if true %}\n  x\n  {% endif %}\n", "  x\n"),
        ("{{ tools is none and documents is none }}", "True"),
        ("{{ 'open' if add_generation_prompt else 'shut' }}", "open"),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{{ style | default('plain') }}", "plain"),
    ],
)
def test_templates_find_what_transformers_gives_them(source: str, text: str) -> None:
    assert render(source) == text


def test_the_client_s_variables_reach_the_template_and_overwrite_nothing_of_ours() -> None:
    assert render("{{ style }}", chat_template_kwargs={"style": "brief"}) == "brief"
    for name in ("messages", "tools", "bos_token", "raise_exception", "add_generation_prompt"):
        with pytest.raises(BadRequest, match=name) as caught:
            render("x", chat_template_kwargs={name: 1})
        assert caught.value.param == "chat_template_kwargs"


TURNS = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)


@pytest.mark.parametrize("said", ["Well, ", "a", "", "</>"])
def test_a_last_message_that_goes_on_is_left_open(said: str) -> None:
    messages = [USER, {"role": "assistant", "content": said}]
    text = render(TURNS, messages, continue_final_message=True)
    assert text is not None
    assert text == f"<user>hi</><assistant>{said}"


def test_a_template_that_hides_the_last_message_cannot_let_it_go_on() -> None:
    with pytest.raises(BadRequest) as caught:
        render("{{ messages[0].role }}", continue_final_message=True)
    assert caught.value.param == "continue_final_message"


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no') }}",
        "{{ messages[7].content.x.y }}",
        "{{ 1 + 'a' }}",
        "{% for i in range(10 ** 9) %}x{% endfor %}",
        "{{ 'x' * 10 ** 12 }}",
        "{{ messages[0].content * 999999 }}",
        "{{ [1] * 9999999 }}",
        "{{ 9 ** 9 ** 999999 }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages | tojson(indent=99999) }}",
        "{{ 1 / 0 }}",
    ],
)
def test_what_a_template_cannot_do_is_a_refusal_of_the_messages(source: str) -> None:
    with pytest.raises(BadRequest) as caught:
        render(source)
    assert caught.value.param == "messages"


def test_no_more_is_rendered_than_fits() -> None:
    assert render("{% for i in range(100000) %}{{ messages[0].content }}{% endfor %}") is None
    assert render("x", [{"role": "user", "content": "a" * 200}], most=100) is None
    assert render("x", [{"role": "user", "content": ""}] * 200, most=100) is None


BY_PARTS = "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}"
BY_STRING = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
BY_EITHER = (
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{{ p['text'] }}{% endfor %}{% endif %}{% endfor %}"
)
VISION = (
    "{% for m in messages %}{% if loop.first and m.role != 'system' %}<d>{% endif %}<{{ m.role }}>"
    "{% if m['content'][0]['type'] == 'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}"
    "{% for line in m['content'] %}{% if line['type'] == 'text' %}{{ line['text'] }}{% endif %}{% endfor %}{% endfor %}"
)
STRICT = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + BY_PARTS
MIXED = (
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'user' %}{{ m.content[0].text }}"
    "{% else %}{{ m.content + '!' }}{% endif %}{% endfor %}"
)
TWO = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


@pytest.mark.parametrize(
    ("source", "content", "text"),
    [
        (BY_PARTS, "hi", "<user>[hi]"),
        (BY_PARTS, TWO, "<user>[a][b]"),
        (BY_PARTS, "", "<user>[]"),
        (BY_STRING, "hi", "<user>hi"),
        (BY_STRING, TWO, "<user>a\nb"),
        (BY_EITHER, "hi", "<user>hi"),
        (BY_EITHER, TWO, "<user>a\nb"),
        (VISION, "hi", "<d><user>: hi"),
        (STRICT, "hi", "<user>[hi]"),
        (MIXED, "hi", "<user>hi"),
        ("{{ messages[0].content.upper() }}", "hi", "HI"),
        ("{{ messages[0].content[0].text.upper() }}", "hi", "HI"),
        ("{{ messages[0].content | tojson }}", "hi", '"hi"'),
        ("{{ raise_exception('always') if messages | length < 9 }}{{ messages[0].content }}", "hi", None),
    ],
)
def test_a_template_that_reads_parts_gets_parts_and_one_that_reads_a_string_a_string(
    source: str, content: object, text: str | None
) -> None:
    if text is None:  # nothing shows what it reads: it gets strings
        assert render(source, [{"role": "user", "content": "hi"}] * 9) == "hi"
    else:
        assert render(source, [{"role": "user", "content": content}]) == text


@pytest.mark.parametrize("content", [None, "", []])
@pytest.mark.parametrize(
    ("source", "text"),
    [
        (BY_PARTS, "<system>[s]<user>[q]<assistant>[]<tool>[t]"),
        (BY_STRING, "<system>s<user>q<assistant><tool>t"),
        (MIXED, "<system>s!<user>q<assistant>!<tool>t!"),
        (TURNS, "<system>s</><user>q</><assistant></><tool>t</><a>"),
    ],
)
def test_each_role_s_content_is_what_the_template_reads_and_an_assistant_may_have_said_nothing(
    source: str, text: str, content: object
) -> None:
    said = [("system", "s"), ("user", "q"), ("assistant", content), ("tool", "t")]
    assert render(source, [{"role": role, "content": what} for role, what in said]) == text


def test_a_last_message_goes_on_in_a_template_that_reads_parts() -> None:
    last = {"role": "assistant", "content": TWO}
    assert render(BY_PARTS, [USER, last], continue_final_message=True) == "<user>[ hi ]<assistant>[a][b"


def test_a_text_that_is_no_template_is_refused_at_start() -> None:
    with pytest.raises(ModelFolderError, match="chat template"):
        ChatTemplate("{% if %}", {})


def test_a_folder_s_own_special_tokens_and_named_templates_are_read(tmp_path: Path) -> None:
    config = {
        "bos_token": {"content": "<b>", "lstrip": False},
        "eos_token": "<e>",
        "chat_template": [
            {"name": "tool_use", "template": "no"},
            {"name": "default", "template": "{{ bos_token }}{{ eos_token }}"},
        ],
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    template = ChatTemplate.from_folder(tmp_path)
    assert template is not None
    assert template.render(parse_chat(json.dumps({"messages": [USER]}).encode()).chat, MOST) == "<b><e>"


@pytest.mark.parametrize("name", FOLDERS)
def test_every_folder_s_template_is_rendered_as_onnxruntime_genai_renders_it(name: str) -> None:
    import onnxruntime_genai as og  # noqa: PLC0415 - a second to load

    messages = [{"role": "system", "content": "Be brief."}, USER, {"role": "assistant", "content": "é\n"}, USER]
    template = ChatTemplate.from_folder(FOLDERS[name])
    assert template is not None
    ours = template.render(parse_chat(json.dumps({"messages": messages}).encode()).chat, MOST)
    source = (FOLDERS[name] / "chat_template.jinja").read_text()
    theirs = og.Tokenizer(str(FOLDERS[name])).apply_chat_template(
        json.dumps(messages), template_str=source, add_generation_prompt=True
    )
    assert ours == theirs
