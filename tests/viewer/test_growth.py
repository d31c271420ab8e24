"""The picture of context growth: means over the same episodes, files that open, errors that help."""

from __future__ import annotations

from pathlib import Path

import pytest

from atlas_gym.errors import ConfigError, StorageError
from atlas_gym.viewer.growth import draw, mean_growth, missing


def test_ended_episodes_keep_their_last_value_in_the_mean() -> None:
    assert mean_growth([[100, 200], [100, 400, 600]]) == [100, 300, 400]
    assert mean_growth([]) == []
    assert mean_growth([[], [5]]) == [5]


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_the_picture_is_drawn_the_same_each_time(tmp_path: Path) -> None:
    series = {
        "eager/json": [[20_000, 21_000, 22_000], [20_000, 23_000]],
        "tools/json": [[500, 900, 1_500, 2_000]],
        "tools/code": [[500, 900]],
        "search/code": [[400]],
    }
    first = draw(series, tmp_path / "a", budget=31_000, title="Zeichen: ä")
    second = draw(series, tmp_path / "b", budget=31_000, title="Zeichen: ä")
    assert [p.name for p in first] == ["context_growth.png", "context_growth.svg"]
    assert first[0].read_bytes().startswith(b"\x89PNG")
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes()


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_nothing_to_draw_and_an_unwritable_folder_are_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to draw"):
        draw({}, tmp_path, budget=31_000, title="")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="Writing the picture"):
        draw({"eager/json": [[1, 2]]}, tmp_path / "file", budget=31_000, title="")
