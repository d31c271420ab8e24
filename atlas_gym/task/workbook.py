"""Excel workbooks: making one from a setup, and reading one that an agent may have spoiled.

Does not know tasks or checks. openpyxl is imported on use: it costs half a second.
"""

from __future__ import annotations

import io
import zipfile
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any, Final

from atlas_gym.task.evidence import Unreadable
from atlas_gym.task.setup import EPOCH, Workbook

_STAMP: Final = datetime.fromtimestamp(EPOCH, tz=UTC).replace(tzinfo=None)
_MAX_FILE: Final = 16 * 1024 * 1024
_MAX_UNPACKED: Final = 64 * 1024 * 1024
_MAX_CELLS: Final = 200_000


def build(item: Workbook, target: Path) -> None:
    """Make the workbook: the same item gives the same bytes with the same openpyxl version."""
    from openpyxl import Workbook as Book

    book = Book()
    book.remove(book.active)
    for sheet in item.sheets:
        page = book.create_sheet(sheet.name)
        for row in sheet.rows:
            page.append(list(row))
    book.properties.creator = "atlas-gym"
    book.properties.created = _STAMP
    packed = io.BytesIO()
    book.save(packed)
    target.write_bytes(_restamped(packed))


def _restamped(packed: io.BytesIO) -> bytes:
    """The same archive with every member, and the time of saving inside, dated `EPOCH`."""
    out = io.BytesIO()
    with zipfile.ZipFile(packed) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "docProps/core.xml":
                data = _with_fixed_modified(data)
            info = zipfile.ZipInfo(name, date_time=_STAMP.timetuple()[:6])
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o600 << 16
            new.writestr(info, data)
    return out.getvalue()


def _with_fixed_modified(core: bytes) -> bytes:
    # openpyxl writes the time of saving whatever the properties say.
    head, opened, rest = core.partition(b"<dcterms:modified")
    if not opened:
        return core
    attributes, _, tail = rest.partition(b">")
    return head + opened + attributes + b">" + f"{_STAMP.isoformat()}Z".encode() + tail[tail.index(b"<") :]


def cells(path: Path, sheet: str, *, formulas: bool = False) -> dict[str, Any]:
    """Every non-empty cell of a sheet, as JSON values (dates as ISO text), by its name ("B7").

    Args:
        path: The workbook, closed by everybody.
        sheet: The sheet's name, letter case included.
        formulas: The formulas' text instead of the values that were last computed.

    Raises:
        Unreadable: In the agent's file; never for the machine's faults.
        OSError: The file cannot be read (not: it is absent).
    """
    from openpyxl import load_workbook

    if path.is_symlink() or not path.is_file():
        raise Unreadable(f"there is no workbook {path.name!r}")
    if path.stat().st_size > _MAX_FILE:
        raise Unreadable(f"{path.name}: larger than {_MAX_FILE} bytes")
    data = path.read_bytes()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(member.file_size for member in archive.infolist()) > _MAX_UNPACKED:
                raise Unreadable(f"{path.name}: unpacks to more than {_MAX_UNPACKED} bytes")
        book = load_workbook(io.BytesIO(data), read_only=True, data_only=not formulas)
        if sheet not in book.sheetnames:
            raise Unreadable(f"{path.name} has no sheet {sheet!r}; it has {', '.join(book.sheetnames)}")
        found: dict[str, Any] = {}
        for row in book[sheet].iter_rows(max_row=_MAX_CELLS):
            for cell in row:
                if cell.value is not None:
                    found[cell.coordinate] = _plain(cell.value)
            if len(found) > _MAX_CELLS:
                raise Unreadable(f"{path.name}: more than {_MAX_CELLS} cells")
        return found
    except Unreadable:
        raise
    except Exception as exc:
        raise Unreadable(f"{path.name} cannot be read as a workbook: {type(exc).__name__}: {exc}") from exc


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return value if isinstance(value, str | int | float | bool) else str(value)
