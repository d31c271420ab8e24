"""The walks over hostile trees: what changes between a look and an open is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from atlas_gym.runtime import trees


def test_no_component_may_be_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "sub").mkdir(parents=True)
    (tmp_path / "tree" / "real").mkdir(parents=True)
    (tmp_path / "tree" / "swapped").symlink_to(outside)
    base = os.open(tmp_path / "tree", os.O_RDONLY)
    try:
        os.close(trees._walk(base, ("real",)))
        for parts in (("swapped",), ("swapped", "sub"), ("real", "..", "swapped")):
            with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
                trees._walk(base, parts)
    finally:
        os.close(base)


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_a_file_swapped_before_its_open_is_skipped(tmp_path: Path, kind: str) -> None:
    (tmp_path / "secret").write_text("hidden")
    tree = tmp_path / "tree"
    tree.mkdir()
    if kind == "link":
        (tree / "file").symlink_to(tmp_path / "secret")
    else:
        os.mkfifo(tree / "file")
    budget = trees.CopyBudget(1000, 10, 10)
    base = os.open(tree, os.O_RDONLY)
    try:
        trees._copy_file(base, "file", "tree/file", tmp_path / "copy", budget)
    finally:
        os.close(base)
    assert [path for path, _ in budget.skipped] == ["tree/file"]
    assert not (tmp_path / "copy").exists()


def test_removing_what_is_not_there(tmp_path: Path) -> None:
    trees.remove(tmp_path / "absent")
    trees.remove(tmp_path / "absent" / "below")


def test_a_link_in_the_place_of_the_root_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "keep").write_text("x")
    (tmp_path / "root").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        trees.remove(tmp_path / "root")
    assert (tmp_path / "outside" / "keep").exists()
