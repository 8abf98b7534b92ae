from pathlib import Path
from typing import get_args

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from scheduler.host import processor
from scheduler.model.kernels import library
from server.cli import main
from server.config import ConfigError, Options, load

CONFIGS = Path(__file__).parent.parent.parent / "configs"
DEFAULT = CONFIGS / "default.toml"


def test_the_default_file_holds_the_defaults_and_names_every_key() -> None:
    assert load({}, {}, DEFAULT).options == Options()
    keys = {line.lstrip("# ").split(" = ")[0] for line in DEFAULT.read_text().splitlines() if " = " in line}
    assert set(Options.__struct_fields__) <= keys


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.toml")), ids=lambda file: file.name)
def test_every_configuration_file_loads(file: Path) -> None:
    load({}, {}, file)


def test_a_later_source_wins_and_each_value_says_where_it_came_from(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("port = 1\nslots = 2\nstep_rows = 64\n")
    effective = load({"port": 3, "slots": None}, {"PACELINE_PORT": "2", "PACELINE_STEP_ROWS": "32", "HOME": "/"}, file)
    assert (effective.options.port, effective.options.slots, effective.options.step_rows) == (3, 2, 32)
    origins = effective.origins
    assert (origins["port"], origins["slots"], origins["step_rows"]) == ("flag", str(file), "environment")
    assert origins["host"] == "default"


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"PACELINE_PORT": "70000"}, "port"),
        ({"PACELINE_SLOTS": "0"}, "slots"),
        ({"PACELINE_LOG_LEVEL": "loud"}, "log_level"),
        ({"PACELINE_DRAIN_TIMEOUT": "soon"}, "drain_timeout"),
    ],
)
def test_a_wrong_value_is_told_with_its_name_and_source(environ: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        load({}, environ, None)
    assert "environment" in str(caught.value)


def test_an_unknown_key_of_the_file_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("prot = 1\n")
    with pytest.raises(ConfigError, match="did you mean port"):
        load({}, {}, tmp_path / "a.toml")


def test_a_file_that_is_no_toml_is_told(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("port: 1")
    with pytest.raises(ConfigError, match=r"a\.toml"):
        load({}, {}, file)
    with pytest.raises(ConfigError, match=r"b\.toml"):
        load({}, {}, tmp_path / "b.toml")


@given(st.text(min_size=1, max_size=20))
def test_an_unknown_key_is_refused(name: str) -> None:
    if name not in Options.__struct_fields__:
        with pytest.raises(ConfigError):
            load({name: 1}, {}, None)


def test_the_config_command_prints_a_file_that_loads_to_the_same_options(tmp_path: Path) -> None:
    flags = ["--slots", "3", "--served-model-name", "a", "--served-model-name", "b", "--no-page", "--api-key", "hidden"]
    shown = CliRunner().invoke(main, ["config", "folder", *flags], env={"PACELINE_CORS_ORIGINS": "x,y"}).stdout
    (tmp_path / "a.toml").write_text(shown)
    options = load({}, {}, tmp_path / "a.toml").options
    assert (options.model, options.slots, options.served_model_name, options.page) == ("folder", 3, ["a", "b"], False)
    assert options.cors_origins == ["x", "y"]
    assert "hidden" not in shown
    assert "slots = 3  # flag" in shown


def test_the_config_command_says_which_instructions_are_in_force() -> None:
    shown = CliRunner().invoke(main, ["config"]).stdout
    assert f'instruction_set = "auto"  # {library.available()[0]} on {processor().name}\n' in shown
    shown = CliRunner().invoke(main, ["config", "--instruction-set", "portable"]).stdout
    assert f'instruction_set = "portable"  # flag, portable on {processor().name}\n' in shown
    library.select()


def test_the_instruction_sets_are_those_of_the_library() -> None:
    declared = get_args(get_args(Options.__annotations__["instruction_set"])[0])
    assert declared == ("auto", *library.INSTRUCTION_SETS)


def test_the_help_shows_every_option_under_its_group() -> None:
    text = CliRunner().invoke(main, ["serve", "--help"]).stdout
    for name in Options.__struct_fields__:
        assert name == "model" or "--" + name.replace("_", "-") in text
    groups = [line.rstrip(":") for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert groups == ["Model", "Import", "Engine", "Server", "Access", "Logs", "General"]
