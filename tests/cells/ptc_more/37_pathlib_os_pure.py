from pathlib import PurePosixPath, Path, PureWindowsPath
import os.path, posixpath, fnmatch, shlex, glob, os
p = PurePosixPath("/workspace/reports/2025.03.tar.gz")
print(p.name, p.stem, p.suffix, p.suffixes, p.parent, p.parts, p.with_suffix(".zip"), p.relative_to("/workspace"), p.match("*.gz"), p / ".." / "x")
print(Path("a") / "b", Path("/a/b/../c"), os.path.join("a", "/b"), os.path.splitext("x.tar.gz"), os.path.normpath("/a/../b/./c"), os.path.commonpath(["/a/b", "/a/c"]), os.path.basename("/x/y/"), os.sep)
print(PureWindowsPath("C:\\a\\b.txt").as_posix(), fnmatch.filter(["a.py", "b.txt"], "*.py"), shlex.split("a 'b c' d"), shlex.quote("it's"))
print(os.path.exists("/definitely/not/here"), Path("/definitely/not/here").exists(), os.path.isdir("/nope"), glob.glob("/nope/*"), Path("/nope").is_file(), os.environ.get("NOPE", "unset"))
