"""Arguments of a call under the server's own names, and the errors that teach."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atlas_gym.toolspace import ArgumentError, Tool, bind, parse_listing
from atlas_gym.toolspace.signatures import parameters

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no failure."""


def tool(properties: dict[str, Any], required: list[str], **more: Any) -> Tool:
    schema = {"type": "object", "properties": properties, "required": required, **more}
    (made,) = parse_listing("s", "", [{"name": "get-mail", "inputSchema": schema}]).tools
    return made


@pytest.fixture
def mail() -> Tool:
    text = {"type": "string"}
    return tool({"limit": {"type": "integer"}, "from": text, "x-id": text, "x_id": text}, ["from"])


def test_positional_keyword_and_real_names(mail: Tool) -> None:
    assert bind(mail, ["ann"], {}) == {"from": "ann"}
    assert bind(mail, ["ann", 3], {"x_id_2": "a", "x_id": "b"}) == {
        "from": "ann",
        "limit": 3,
        "x-id": "a",
        "x_id": "b",
    }
    assert bind(mail, [], {"from": "ann", "x-id": "a"}) == {"from": "ann", "x-id": "a"}


def test_none_is_sent_only_when_given_and_types_are_the_servers_business(mail: Tool) -> None:
    assert bind(mail, [5], {"limit": None}) == {"from": 5, "limit": None}
    assert bind(mail, ["ann", ...], {}) == {"from": "ann"}


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ([], {}, "get_mail() misses 'from_'. Signature: get_mail(from_: str, limit: int = ..., "),
        ([], {"limit": 3}, "misses 'from_'"),
        (
            ["a", 1, "b", "c", "d"],
            {},
            "takes at most 4 positional arguments, 5 were given. Signature: get_mail(",
        ),
        (["a"], {"from_": "b"}, "got the argument 'from_' twice."),
        ([], {"from": "a", "from_": "b"}, "got the argument 'from_' twice."),
        (["a"], {"limits": 3}, "has no argument 'limits'; did you mean 'limit'? Signature: "),
        (["a"], {"qqqqqq": 3}, "has no argument 'qqqqqq'. Signature: "),
        ([...], {}, "misses 'from_'"),
    ],
)
def test_errors_teach(mail: Tool, args: list[Any], kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError) as error:
        bind(mail, args, kwargs)
    assert message in str(error.value)


def test_open_tools_pass_on_what_is_not_listed() -> None:
    assert bind(tool({"a": {}}, [], additionalProperties=True), [1], {"b": 2}) == {"a": 1, "b": 2}
    (unknown,) = parse_listing("s", "", [{"name": "t", "inputSchema": None}]).tools
    assert bind(unknown, [], {"anything": 1}) == {"anything": 1}
    with pytest.raises(ArgumentError, match="takes at most 0"):
        bind(unknown, [1], {})


NAMES = st.text(max_size=10) | st.sampled_from(
    ["a", "from", "class", "a-b", "a_b", "a b", "_meta", "self", "1"]
)


@UNHURRIED
@given(st.dictionaries(NAMES, st.booleans(), max_size=6), st.data())
def test_arguments_that_fit_the_signature_reach_their_real_names(
    names: dict[str, bool], data: st.DataObject
) -> None:
    made = tool({name: {} for name in names}, [name for name, required in names.items() if required])
    known = parameters(made).items
    assert {p.name for p in known} == {p.name for p in known if p.name in made.input_schema["properties"]}
    positional = data.draw(st.integers(0, len(known)))
    by_name = [p for p in known[positional:] if p.required or data.draw(st.booleans())]
    sent = {p.name: index for index, p in enumerate([*known[:positional], *by_name])}
    kwargs = {p.python_name: sent[p.name] for p in by_name}
    assert bind(made, range(positional), kwargs) == sent
    with pytest.raises(ArgumentError):
        bind(made, range(len(known) + 1), {})
