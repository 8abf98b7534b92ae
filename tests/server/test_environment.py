import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.config import Options, load
from server.environment import told

KUBERNETES = {
    "PACELINE_PORT": "tcp://10.96.0.7:8000",
    "PACELINE_PORT_8000_TCP": "tcp://10.96.0.7:8000",
    "PACELINE_PORT_8000_TCP_ADDR": "10.96.0.7",
    "PACELINE_PORT_8000_TCP_PORT": "8000",
    "PACELINE_PORT_8000_TCP_PROTO": "tcp",
    "PACELINE_SERVICE_HOST": "10.96.0.7",
    "PACELINE_SERVICE_PORT": "8000",
    "PACELINE_SERVICE_PORT_HTTP_API": "8000",
}
ANOTHER = {name.replace("PACELINE_", "PACELINE_HOST_"): value for name, value in KUBERNETES.items()}
"""Of a Service called paceline-host."""


@pytest.mark.parametrize("variables", [KUBERNETES, ANOTHER], ids=["paceline", "paceline-host"])
def test_what_kubernetes_sets_for_a_service_is_ignored_with_one_word(variables: dict[str, str]) -> None:
    effective = load({}, {**variables, "PACELINE_SLOTS": "3"}, None)
    assert effective.options == Options(slots=3)
    assert effective.origins["port"] == "default"
    (note,) = effective.notes
    assert all(name in note for name in variables)
    assert "Kubernetes" in note


@pytest.mark.parametrize("value", ["tcp://10.96.0.7:8000", "udp://[fd00::7]:53", "SCTP://10.96.0.7:1"])
def test_a_port_in_the_form_of_a_link_does_not_hide_the_file_s(value: str) -> None:
    said = told({"PACELINE_PORT": value}, ["port"], [])
    assert said.values == {}
    assert f"PACELINE_PORT={value} is ignored" in said.notes[0]


def test_an_unknown_variable_is_told_with_the_nearest_name_and_without_its_value() -> None:
    effective = load({}, {"PACELINE_API_KEYS": "secret", "PACELINE_PROT": "1", "OTHER_PORT": "x"}, None)
    assert effective.options == Options()
    assert [note.split(" names ")[0] for note in effective.notes] == ["PACELINE_API_KEYS", "PACELINE_PROT"]
    assert effective.notes[0].endswith("the nearest is PACELINE_API_KEY")
    assert effective.notes[1].endswith("the nearest is PACELINE_PORT")
    assert "secret" not in "".join(effective.notes)


@given(st.sampled_from(Options.__struct_fields__), st.sampled_from(["", " ", "\n", "\t "]))
def test_an_empty_variable_is_not_set(option: str, nothing: str) -> None:
    effective = load({}, {f"PACELINE_{option.upper()}": nothing}, None)
    assert effective.options == Options()
    assert effective.origins[option] == "default"
    assert effective.notes == ()


def test_white_space_around_values_and_entries_is_not_part_of_them() -> None:
    options = load({}, {"PACELINE_PORT": " 1\n", "PACELINE_API_KEY": "a, b,,\n"}, None).options
    assert (options.port, options.api_key) == (1, ["a", "b"])
