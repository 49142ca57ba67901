"""SuperSplat's compressed PLY: chunks of 256 Gaussians, four 32-bit words each, quantised between chunk bounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from app.data.ply import columns, read_header, read_table
from app.data.scene import SceneError
from render.config import SH_C0

CHUNK = 256
_BOUNDS = ("x", "y", "z", "scale_x", "scale_y", "scale_z")


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a GaussianArrays, by name. Alpha 0 and 255 decode to infinite logits, which the caller bounds."""
    header = read_header(path)
    if header.element("chunk") is None:
        raise SceneError(f"{path} has packed vertices but no chunk element; export it again")
    chunks, rows = read_table(path, "chunk"), read_table(path, "vertex")
    count = len(rows)
    if len(chunks) * CHUNK < count:
        raise SceneError(f"{path} has {len(chunks)} chunks for {count:,} Gaussians, {CHUNK} each; export it again")
    names = chunks.dtype.names or ()
    colors = ("r", "g", "b") if "min_r" in names else ()
    _require(path, "chunks", chunks, [f"{end}_{name}" for end in ("min", "max") for name in (*_BOUNDS, *colors)], "f")
    _require(path, "vertices", rows, [f"packed_{name}" for name in ("position", "rotation", "scale", "color")], "u")
    of_chunk = np.arange(count) // CHUNK

    def spread(unit: np.ndarray, bounds: tuple[str, ...]) -> np.ndarray:
        low = columns(chunks, tuple(f"min_{name}" for name in bounds))[of_chunk]
        high = columns(chunks, tuple(f"max_{name}" for name in bounds))[of_chunk]
        return low + unit * (high - low)

    color = _unpack(rows["packed_color"], (8, 8, 8, 8))
    rgb = spread(color[:, :3], colors) if colors else color[:, :3]
    with np.errstate(divide="ignore", over="ignore"):  # infinities are judged by the caller
        logits = np.log(color[:, 3]) - np.log1p(-color[:, 3])
        sh0 = (rgb - 0.5) / SH_C0
    return {"means": spread(_unpack(rows["packed_position"], (11, 10, 11)), _BOUNDS[:3]),
            "quats": _quats(rows["packed_rotation"]),
            "log_scales": spread(_unpack(rows["packed_scale"], (11, 10, 11)), _BOUNDS[3:]),
            "logit_opacities": logits, "sh0": sh0[:, None, :],
            "shN": _higher_bands(path, count)}


def _require(path: Path, what: str, rows: np.ndarray, names: list[str], kind: str) -> None:
    """SceneError unless `rows` has the 4-byte properties `names` of one numpy kind."""
    there = rows.dtype.fields or {}
    wrong = [name for name in names if name not in there or there[name][0] != np.dtype(f"{kind}4")]
    if wrong:
        raise SceneError(f"{path} has {what} without {', '.join(wrong)} as 4-byte {'floats' if kind == 'f' else 'words'}; "
                         "export it again")


def _unpack(words: np.ndarray, bits: tuple[int, ...]) -> np.ndarray:
    """[N,len(bits)] float32 in [0,1], first field in the highest bits."""
    result = np.empty((len(words), len(bits)), np.float32)
    shift = 32
    for index, width in enumerate(bits):
        shift -= width
        limit = (1 << width) - 1
        result[:, index] = ((words >> np.uint32(shift)) & np.uint32(limit)) / limit
    return result


def _quats(words: np.ndarray) -> np.ndarray:
    """[N,4] wxyz: two bits name the largest component, which is left out; the others span +-1/sqrt(2)."""
    largest = (words >> np.uint32(30)).astype(np.int64)
    others = (_unpack(words << np.uint32(2), (10, 10, 10)) - 0.5) * np.sqrt(2.0)
    left = np.sqrt(np.maximum(0.0, 1.0 - (others**2).sum(axis=1)))
    quats = np.empty((len(words), 4), np.float32)
    slots = np.array([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]])[largest]
    np.put_along_axis(quats, slots, others.astype(np.float32), axis=1)
    np.put_along_axis(quats, largest[:, None], left[:, None].astype(np.float32), axis=1)
    return quats


def _higher_bands(path: Path, count: int) -> np.ndarray:
    """[N,K-1,3]: bytes 1..254 stand for the middles of 256 steps of [-4,4], 0 and 255 for its ends."""
    element = read_header(path).element("sh")
    rest = len(element.properties) if element else 0
    if rest not in (0, 9, 24, 45) or (element is not None and element.count != count):
        raise SceneError(f"{path} has an sh element of {element.count if element else 0:,} rows and {rest} properties "
                         f"for {count:,} Gaussians; export it again")
    if rest == 0:
        return np.zeros((count, 0, 3), np.float32)
    table = read_table(path, "sh")
    names = tuple(f"f_rest_{i}" for i in range(rest))
    if set(table.dtype.names or ()) != set(names):
        raise SceneError(f"{path} has an sh element whose properties are not f_rest_0 to f_rest_{rest - 1}; export it again")
    codes = columns(table, names)
    unit = np.where(codes == 0.0, 0.0, np.where(codes == 255.0, 1.0, (codes + 0.5) / 256.0))
    values = ((unit - 0.5) * 8.0).astype(np.float32)
    return np.ascontiguousarray(values.reshape(count, 3, rest // 3).transpose(0, 2, 1))
