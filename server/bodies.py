"""The fields of each endpoint's body, declared once: name, type, range, meaning, default.

Requests are parsed by these declarations and `/openapi.json` is made of them. Two tables beside them say which fields
are not acted on: `NOT_YET` ones are refused by name unless they ask for the default, and `IGNORED` ones are ignored
on purpose, each for its reason.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from server.message_bodies import MessageBody, about

TokenId = Annotated[int, Meta(ge=0)]
IdList = Annotated[list[TokenId], Meta(min_length=1)]
RequestId = Annotated[str, Meta(pattern=r"^[!-~]{1,256}(?!\n)$")]
NonEmpty = Annotated[str, Meta(min_length=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Count = Annotated[int, Meta(ge=0, le=20)]


def own(text: str) -> Meta:
    """The meaning of a field whose default is the model's."""
    return about(f"{text} By default the model's own, which /v1/models tells.")


class StreamOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a stream carries beside the text."""

    include_usage: Annotated[bool | None, about("A last chunk with the counts and no choices.")] = None
    continuous_usage_stats: Annotated[bool | None, about("The counts so far in every chunk as well.")] = None
    include_obfuscation: Annotated[bool | None, about("Ignored: chunks are not padded.")] = None


class ModelBody(Struct, frozen=True, kw_only=True):
    """The field that every body has."""

    model: Annotated[str, about("The served name or an alias of it; absent means the one served.")] = ""


class NamedBody(Struct, frozen=True):
    """The one field that is read before the others, so that their refusal goes by its name too."""

    request_id: RequestId | None = None


class CommonBody(ModelBody, frozen=True, kw_only=True):
    """The fields that completions and chats have."""

    request_id: Annotated[RequestId, about("Printable ASCII, to find and cancel it by.")] = ""
    max_tokens: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        about("New tokens at the most; by default the model's own, or the rest of the context."),
    ] = None
    max_completion_tokens: Annotated[
        Annotated[int, Meta(ge=0)] | None, about("The newer name of max_tokens; where both are sent they must agree.")
    ] = None
    min_tokens: Annotated[int, Meta(ge=0), about("No end before that many new tokens.")] = 0
    temperature: Annotated[Annotated[float, Meta(ge=0, le=2)] | None, own("Divides the logits; 0 is argmax.")] = None
    top_p: Annotated[Annotated[float, Meta(gt=0, le=1)] | None, own("The smallest set of that probability.")] = None
    top_k: Annotated[Annotated[int, Meta(ge=-1)] | None, own("The k likeliest tokens; -1 or 0 is off.")] = None
    min_p: Annotated[Annotated[float, Meta(ge=0, le=1)] | None, own("Tokens that likely, of the likeliest's.")] = None
    seed: Annotated[
        int | None, about("Any 64-bit integer; the same request and seed give the same answer. -1 draws one.")
    ] = None
    stop: Annotated[NonEmpty | Annotated[list[NonEmpty], Meta(max_length=16)], about("Strings that end the text.")] = (
        field(default_factory=list)
    )
    stop_token_ids: Annotated[list[TokenId], about("Tokens that end the request beside the model's own.")] = []
    ignore_eos: Annotated[bool, about("Whether the model's own end tokens do not end the request.")] = False
    include_stop_str_in_output: Annotated[bool, about("Whether what ended the text is shown.")] = False
    frequency_penalty: Annotated[Penalty, about("Taken off a logit for each time its token was generated.")] = 0.0
    presence_penalty: Annotated[Penalty, about("Taken off a logit whose token was generated.")] = 0.0
    repetition_penalty: Annotated[
        Annotated[float, Meta(gt=0, le=10)] | None, own("Divides or multiplies logits of tokens seen.")
    ] = None
    logit_bias: Annotated[dict[TokenId, Annotated[float, Meta(ge=-100, le=100)]], about("Added to logits, by id.")] = {}
    n: Annotated[int, Meta(ge=1, le=128), about("Choices for each prompt; the i-th has the seed plus i.")] = 1
    prompt_logprobs: Annotated[
        Count | None, about("Logprobs of the prompt's tokens, beside so many of the likeliest.")
    ] = None
    stream: Annotated[bool, about("Whether to answer by server-sent events.")] = False
    stream_options: Annotated[StreamOptions | None, about("Only with stream.")] = None
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1), about("Lower goes first.")] = 0
    timeout: Annotated[
        Annotated[float, Meta(gt=0, le=86_400)] | None, about("Seconds until the request is given up, a day at most.")
    ] = None
    cache_salt: Annotated[NonEmpty | None, about("Prompts are shared only with requests of the same salt.")] = None
    response_format: Annotated[dict[str, Any], about("The form of the answer.")] = field(
        default_factory=lambda: {"type": "text"}
    )
    guided_json: Annotated[Any, about("A JSON schema the text must follow.")] = None
    guided_regex: Annotated[str | None, about("A regular expression the text must match.")] = None
    guided_choice: Annotated[list[str] | None, about("Strings of which the text must be one.")] = None
    guided_grammar: Annotated[str | None, about("A grammar the text must follow.")] = None
    skip_special_tokens: Annotated[bool, about("Whether special tokens are left out of the text.")] = True
    use_beam_search: Annotated[bool, about("Whether to search by beams.")] = False


class CompletionBody(CommonBody, frozen=True, kw_only=True):
    """The fields of `POST /v1/completions`."""

    prompt: Annotated[
        str | Annotated[list[str | TokenId | IdList], Meta(min_length=1)],
        about("A string, token ids, or a list of either."),
    ]
    logprobs: Annotated[Count | None, about("Logprobs of each token, beside so many of the likeliest.")] = None
    echo: Annotated[bool, about("Whether the prompt is part of the text, and of the logprobs.")] = False
    best_of: Annotated[int, Meta(ge=1), about("Choices to draw and choose n from; only as many as are shown.")] = 1
    suffix: Annotated[str, about("What comes after the text.")] = ""


Opens = Annotated[
    bool | None, about("Whether the template opens the assistant's turn; it does unless the last one goes on.")
]
GoesOn = Annotated[bool, about("Whether the answer continues the last message.")]
Variables = Annotated[dict[str, Any], about("Variables for the chat template.")]
Tools = Annotated[list[Any], about("Functions the model may call.")]


class ChatBody(CommonBody, frozen=True, kw_only=True):
    """The fields of `POST /v1/chat/completions`."""

    messages: Annotated[list[MessageBody], Meta(min_length=1), about("The chat so far.")]
    max_tokens: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        about("New tokens at the most; by default the model's own, or the rest of the context."),
    ] = None
    max_completion_tokens: Annotated[
        Annotated[int, Meta(ge=1)] | None, about("The newer name of max_tokens; where both are sent they must agree.")
    ] = None
    logprobs: Annotated[bool, about("Logprobs of each token.")] = False
    top_logprobs: Annotated[Count, about("Of how many of the likeliest tokens as well; only with logprobs.")] = 0
    add_generation_prompt: Opens = None
    continue_final_message: GoesOn = False
    chat_template_kwargs: Variables = {}
    tools: Tools = []
    tool_choice: Annotated[str | dict[str, Any], about("Which function must be called.")] = "none"
    parallel_tool_calls: Annotated[bool | None, about("Whether several calls may come at once.")] = None
    functions: Annotated[list[Any], about("The older name of tools.")] = []
    function_call: Annotated[str | dict[str, Any], about("The older name of tool_choice.")] = "none"
    reasoning_effort: Annotated[str | None, about("A variable of that name for the chat template.")] = None
    modalities: Annotated[list[str], about("What the answer is made of.")] = field(default_factory=lambda: ["text"])
    audio: Annotated[dict[str, Any] | None, about("The voice of a spoken answer.")] = None
    moderation: Annotated[dict[str, Any] | None, about("What is examined before and after.")] = None
    web_search_options: Annotated[dict[str, Any] | None, about("How the web is searched.")] = None


class TokenizeBody(ModelBody, frozen=True, kw_only=True):
    """The fields of `POST /tokenize`: a prompt, or messages."""

    prompt: Annotated[str | None, about("A text, cut as a completion's prompt is.")] = None
    messages: Annotated[
        Annotated[list[MessageBody], Meta(min_length=1)] | None, about("A chat, rendered by the model's template.")
    ] = None
    add_special_tokens: Annotated[
        bool | None, about("Whether the tokenizer adds its own; it does to a prompt, and not to a chat.")
    ] = None
    add_generation_prompt: Opens = None
    continue_final_message: GoesOn = False
    chat_template_kwargs: Variables = {}
    tools: Tools = []
    return_token_strs: Annotated[bool, about("Whether each token's text is told as well.")] = False


class DetokenizeBody(ModelBody, frozen=True, kw_only=True):
    """The fields of `POST /detokenize`."""

    tokens: Annotated[list[TokenId], about("Token ids.")]


# Refused unless the value asks for the default, or is one of those that change nothing here. A row leaves the table
# when its field is built.
NOT_YET: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(("response_format", "guided_json", "guided_regex", "guided_choice", "guided_grammar"), ()),
    **dict.fromkeys(("suffix", "skip_special_tokens", "use_beam_search", "tools", "functions"), ()),
    **dict.fromkeys(("modalities", "audio", "moderation", "web_search_options"), ()),
    **dict.fromkeys(("tool_choice", "function_call"), ("auto",)),  # there is no function to choose
    "parallel_tool_calls": (True, False),
}

# Ignored on purpose, whatever the value.
IGNORED = {
    "user": "there are no accounts to attribute a request to",
    "metadata": "nothing is stored",
    "store": "nothing is stored",
    "service_tier": "there is one tier",
    "safety_identifier": "nobody is reported",
    **dict.fromkeys(
        ("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"), "prefixes are found by content"
    ),
    "prediction": "it would change no token",
    "verbosity": "a hint to models that were trained for it",
    "include_reasoning": "thoughts are part of the text",
    "spaces_between_special_tokens": "special tokens are not shown",
}
