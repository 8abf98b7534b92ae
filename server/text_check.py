"""Whether a folder's text can be served, asked before the minutes of an import. Knows the files; not what they hold."""

from pathlib import Path

from scheduler.model.importing.genai_source import CONFIG
from server.chat_template import ChatTemplate
from server.prompt import read_tokenizer
from server.vocabulary import Vocabulary


def check_text(source: Path) -> None:
    """See that the tokenizer and the chat template of a folder are usable, whatever its weights become.

    A GGUF file's tokenizer is made, and refused, as the file is read. What is no model at all the import refuses.

    Raises:
        ModelFolderError: one is missing, cut short or of a kind that is not served.
    """
    if (source / CONFIG).is_file():
        read_tokenizer(source)
        Vocabulary.from_folder(source)
        ChatTemplate.from_folder(source)
