"""The eight variants, their names and the choice of some."""

from __future__ import annotations

import pytest

from atlas_gym.errors import ConfigError, UnknownNameError
from atlas_gym.rollout.variants import VARIANTS, chosen, variant


def test_there_are_eight_and_the_paper_has_four() -> None:
    assert len({v.name for v in VARIANTS}) == 8
    assert [v.paper for v in VARIANTS if v.paper] == ["eager", "ISL", "ITL", "ITL + PTC"]


def test_a_name_is_found_or_the_closest_is_named() -> None:
    assert variant("tools/code").paper == "ITL + PTC"
    with pytest.raises(UnknownNameError, match=r"tool/code.*Did you mean 'tools/code'"):
        variant("tool/code")


def test_a_choice_keeps_the_order_of_the_table() -> None:
    assert chosen(None) == VARIANTS
    assert [v.name for v in chosen(["tools/code", "eager/json", "tools/code"])] == [
        "eager/json",
        "tools/code",
    ]
    with pytest.raises(ConfigError, match="No variant is named"):
        chosen([" "])
