"""Trees of files as tar streams: links, parents, times, and files that change."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from atlas_gym.errors import InstallError
from atlas_gym.runtime.image_tar import Tree


def opened(tree: Tree) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(b"".join(tree.stream())))


def test_what_was_added_comes_out(tmp_path: Path) -> None:
    big = os.urandom((1 << 20) + 700)
    (tmp_path / "big").write_bytes(big)
    (tmp_path / "run").write_text("#!/bin/sh\n")
    (tmp_path / "run").chmod(0o700)
    tree = Tree(mtime=1_577_836_800)
    tree.file("usr/share/big", tmp_path / "big")
    tree.file("usr/bin/run", tmp_path / "run")
    tree.text("etc/note", "hällo")
    tree.link("bin", "usr/bin")
    tree.directory("tmp", 0o1777)
    tree.text("etc/note", "what comes second is not taken")
    with opened(tree) as archive:
        members = {member.name: member for member in archive}
        assert list(members) == sorted(members)
        note, copy = archive.extractfile("etc/note"), archive.extractfile("usr/share/big")
        assert note is not None
        assert note.read().decode() == "hällo"
        assert copy is not None
        assert copy.read() == big
    assert members["usr/share"].isdir()
    assert (members["bin"].issym(), members["bin"].linkname) == (True, "usr/bin")
    assert members["tmp"].mode == 0o1777
    assert members["usr/bin/run"].mode == 0o755
    assert {(m.uid, m.gid, m.mtime) for m in members.values() if not m.isdir()} == {(0, 0, 1_577_836_800)}
    assert tree.size == len(big) + len("#!/bin/sh\n") + len("hällo".encode())
    assert "usr/bin/run" in tree
    assert len(tree) == 5


def test_long_names_survive(tmp_path: Path) -> None:
    path = "/".join(["d" * 90] * 3) + "/ünïcode"
    tree = Tree()
    tree.text(path, "x")
    with opened(tree) as archive:
        assert path in archive.getnames()


def test_a_directory_is_copied_without_what_is_skipped_or_leads_out(tmp_path: Path) -> None:
    source, outside = tmp_path / "source", tmp_path / "outside"
    (source / "deep" / "junk").mkdir(parents=True)
    outside.mkdir()
    (outside / "file").write_text("from outside")
    (source / "deep" / "real").write_text("real")
    (source / "deep" / "junk" / "no").write_text("no")
    (source / "inner").symlink_to("deep/real")
    (source / "leaves").symlink_to(outside / "file")
    (source / "folder").symlink_to(outside)
    (source / "broken").symlink_to("nowhere")
    os.mkfifo(source / "pipe")
    tree = Tree()
    tree.copy("opt", source, lambda path: path.name == "junk")
    with opened(tree) as archive:
        names = set(archive.getnames())
        assert names == {"opt", "opt/deep", "opt/deep/real", "opt/inner", "opt/leaves"}
        assert archive.getmember("opt/inner").linkname == "deep/real"
        leaves = archive.extractfile("opt/leaves")
        assert leaves is not None
        assert leaves.read() == b"from outside"


def test_equal_files_make_equal_streams_and_digests(tmp_path: Path) -> None:
    trees = []
    for name, when in (("a", 1_000_000_000), ("b", 1_500_000_000)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "one.py").write_text("1")
        os.utime(folder / "one.py", (when, when))
        trees.append(Tree(mtime=7))
        trees[-1].copy("x", folder)
    first, second = trees
    assert b"".join(first.stream()) == b"".join(second.stream())
    assert first.digest() == second.digest()
    before = first.digest()
    first.text("x/__pycache__/one.pyc", "bytecode comes and goes")
    assert first.digest() == before
    first.text("x/two.py", "2")
    assert first.digest() != before


def test_the_times_of_files_count_unless_one_is_given(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1")
    os.utime(tmp_path / "f", (5, 5))
    tree = Tree()
    tree.file("f", tmp_path / "f")
    with opened(tree) as archive:
        assert archive.getmember("f").mtime == 5


def test_a_file_that_shrinks_or_goes_is_an_error(tmp_path: Path) -> None:
    tree = Tree()
    (tmp_path / "f").write_text("long enough")
    tree.file("f", tmp_path / "f")
    (tmp_path / "f").write_text("short")
    with pytest.raises(InstallError, match="became shorter"):
        b"".join(tree.stream())
    (tmp_path / "f").unlink()
    with pytest.raises(InstallError, match="Try again"):
        b"".join(tree.stream())
    with pytest.raises(InstallError, match="cannot be read"):
        tree.file("g", tmp_path / "g")
    with pytest.raises(InstallError, match="cannot be read"):
        tree.copy("g", tmp_path / "g")
