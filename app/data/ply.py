"""PLY tables: read any scalar element through plyfile after checking the header against the file's size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from plyfile import PlyData, PlyElement, PlyElementParseError, PlyHeaderParseError

from app.data.atomic import write_atomic
from app.data.regular import regular
from app.data.scene import PointCloud, SceneError
from render.config import SH_C0

_SIZES = {"char": 1, "int8": 1, "uchar": 1, "uint8": 1, "short": 2, "int16": 2, "ushort": 2, "uint16": 2, "int": 4,
          "int32": 4, "uint": 4, "uint32": 4, "float": 4, "float32": 4, "double": 8, "float64": 8}
_MAX_HEADER = 1 << 20


@dataclass(frozen=True)
class Element:
    """One element as the header declares it."""

    name: str
    count: int
    properties: tuple[str, ...]
    row_bytes: int      # of the scalar properties; a list has no fixed size
    has_lists: bool


@dataclass(frozen=True)
class Header:
    format: str
    elements: tuple[Element, ...]
    size: int           # bytes of the header itself

    def element(self, name: str) -> Element | None:
        return next((element for element in self.elements if element.name == name), None)


def read_header(path: Path) -> Header:
    """Parse the header and refuse what cannot be read: not a PLY, unknown types, a body shorter than announced."""
    try:
        with open(regular(path), "rb") as stream:
            head = stream.read(_MAX_HEADER)
        total = path.stat().st_size
    except OSError as error:
        raise SceneError(f"{path} cannot be read ({error.strerror or error})") from error
    if total == 0:
        raise SceneError(f"{path} is empty; export it again")
    lines, size = _header_lines(head, path)
    form, elements = "", []
    for line in lines:
        words = line.split()
        if not words or words[0] in ("ply", "comment", "obj_info", "end_header"):
            continue
        try:
            if words[0] == "format":
                form = words[1]
            elif words[0] == "element":
                elements.append([words[1], int(words[2]), [], 0, False])
            elif words[0] == "property" and words[1] == "list":
                elements[-1][4] = True
            elif words[0] == "property":
                elements[-1][3] += _SIZES[words[1]]
                elements[-1][2].append(words[2])
            else:
                raise ValueError
        except (ValueError, IndexError, KeyError):
            raise SceneError(f"{path} has a PLY header with the line {line.strip()!r}, which is not PLY; "
                             "export it again") from None
    header = Header(form, tuple(Element(name, count, tuple(props), row, lists)
                                for name, count, props, row, lists in elements), size)
    if form not in ("ascii", "binary_little_endian", "binary_big_endian"):
        raise SceneError(f"{path} has the PLY format {form or 'missing'!r}; ascii and binary are read: export it again")
    _check_size(path, header, total)
    return header


def read_table(path: Path, element: str) -> np.ndarray:
    """Rows of one element as a structured array in native byte order."""
    declared = read_header(path).element(element)
    if declared is None:
        raise SceneError(f"{path} has no element {element!r}; it is no point cloud and no splat PLY")
    if declared.has_lists:
        raise SceneError(f"{path} has lists in its element {element!r}, which no point cloud has; export it again")
    try:
        # Memory-mapped, because plyfile otherwise reads row by row in Python; the copy below lets go of the file.
        data = np.asarray(PlyData.read(str(path), mmap="c")[element].data)
    except (PlyHeaderParseError, PlyElementParseError, ValueError, OSError, MemoryError, UnicodeDecodeError) as error:
        raise SceneError(f"{path} is damaged ({str(error).splitlines()[0]}); copy or export it again") from error
    return np.array(data, dtype=data.dtype.newbyteorder("="), order="C")


def read_points(path: Path) -> PointCloud:
    """A point cloud (x y z, red green blue) or the centres and base colours of a splat PLY.

    Colours may be bytes or floats in [0,1]; without any, points are grey. Points that are not finite are left out.
    """
    rows = read_table(path, "vertex")
    names = rows.dtype.names or ()
    if not {"x", "y", "z"} <= set(names):
        raise SceneError(f"{path} has no x, y, z in its vertices; export it as a point cloud")
    positions = columns(rows, ("x", "y", "z"))
    if {"red", "green", "blue"} <= set(names):
        colors = columns(rows, ("red", "green", "blue"))
        if rows.dtype["red"].kind == "f":
            colors = colors * 255.0
    elif {"f_dc_0", "f_dc_1", "f_dc_2"} <= set(names):
        colors = (0.5 + SH_C0 * columns(rows, ("f_dc_0", "f_dc_1", "f_dc_2"))) * 255.0
    else:
        colors = np.full_like(positions, 128.0)
    finite = np.isfinite(positions).all(axis=1)
    rounded = np.nan_to_num(colors[finite] + 0.5).clip(0.0, 255.0).astype(np.uint8)
    return PointCloud(positions[finite], rounded)


def write_points(path: Path, points: PointCloud) -> None:
    """Write a binary point cloud: float x y z, uchar red green blue."""
    write_table(path, {**dict(zip("xyz", points.positions.T, strict=True)),
                       **dict(zip(("red", "green", "blue"), points.colors.T, strict=True))})


def write_table(path: Path, values: Mapping[str, np.ndarray]) -> None:
    """Write one binary little-endian vertex element, atomically; columns keep their dtype."""
    count = len(next(iter(values.values())))
    rows = np.empty(count, dtype=[(name, column.dtype.newbyteorder("<")) for name, column in values.items()])
    for name, column in values.items():
        rows[name] = column
    ply = PlyData([PlyElement.describe(rows, "vertex")], byte_order="<")

    def write(stream: IO[bytes]) -> None:
        ply.write(stream)

    write_atomic(path, write)


def columns(rows: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """[N,len(names)] float32 of the named properties."""
    result = np.empty((len(rows), len(names)), np.float32)
    with np.errstate(over="ignore"):  # a double that does not fit becomes infinite, which the callers judge
        for index, name in enumerate(names):
            result[:, index] = rows[name]
    return result


def _header_lines(head: bytes, path: Path) -> tuple[list[str], int]:
    if not head.startswith((b"ply\n", b"ply\r")):
        raise SceneError(f"{path} does not begin with 'ply', so it is no PLY file; choose a .ply")
    mark = head.find(b"end_header")
    end = head.find(b"\n", mark)
    if mark < 0 or end < 0:
        raise SceneError(f"{path} has no end_header in its PLY header; it is cut short: copy or export it again")
    return head[:end].decode("ascii", errors="replace").splitlines(), end + 1


def _check_size(path: Path, header: Header, total: int) -> None:
    """Refuse a short body before memory is reserved for the rows that the header promises."""
    if header.format == "ascii":
        # At least one character and a separator per value.
        needed = sum(element.count * 2 * len(element.properties) - (element.count > 0) for element in header.elements)
    else:
        needed = sum(element.count * element.row_bytes for element in header.elements)
    if total - header.size < needed or any(element.count < 0 for element in header.elements):
        vertices = header.element("vertex")
        raise SceneError(f"{path} is cut short: {total - header.size:,} bytes follow its header, and "
                         f"{vertices.count if vertices else 0:,} vertices need at least {needed:,}; "
                         "copy or export it again")
