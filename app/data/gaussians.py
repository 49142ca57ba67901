"""Gaussians as files hold them: graphdeco's PLY layout, in memory without torch.

A file holds logit opacities, log scales, wxyz quaternions and SH coefficients channel by channel
(all of red's higher bands, then green's, then blue's); so does every other tool that reads it (Kerbl et al. 2023).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from app.data import compressed_ply
from app.data.ply import columns, read_header, read_table, write_table
from app.data.scene import SceneError

REST_COUNTS = (0, 9, 24, 45)
"""f_rest properties at SH degree 0, 1, 2, 3."""
MAX_LOGIT = 20.0
"""What an infinite logit opacity becomes: sigmoid(20) is 1 in float32, and the optimiser can move it."""
OTHER_FORMATS = {".spz": "SPZ", ".splat": "antimatter15 .splat", ".ksplat": "ksplat", ".sog": "SOG", ".glb": "glTF",
                 ".gltf": "glTF"}


@dataclass
class GaussianArrays:
    """Raw parameters of N Gaussians; names and shapes as render.types.GaussianParams, all float32."""

    means: np.ndarray            # [N,3] world
    quats: np.ndarray            # [N,4] wxyz
    log_scales: np.ndarray       # [N,3]
    logit_opacities: np.ndarray  # [N]
    sh0: np.ndarray              # [N,1,3]
    shN: np.ndarray              # [N,K-1,3]

    def __len__(self) -> int:
        return len(self.means)

    @property
    def sh_degree(self) -> int:
        return math.isqrt(self.shN.shape[1] + 1) - 1

    def rows(self, index: np.ndarray) -> GaussianArrays:
        """A copy of the rows that a mask or an index array selects."""
        return GaussianArrays(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    def finite(self) -> np.ndarray:
        """Mask [N]: every parameter of the Gaussian is finite."""
        mask = np.ones(len(self), bool)
        for f in fields(self):
            values = getattr(self, f.name)
            mask &= np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
        return mask


@dataclass(frozen=True)
class LoadedGaussians:
    gaussians: GaussianArrays
    notices: tuple[str, ...]  # what was changed on the way in, one sentence each


def read_gaussians(path: str | Path) -> LoadedGaussians:
    """Read a graphdeco PLY (ascii, little or big endian, extra properties allowed) or a SuperSplat compressed PLY.

    Quaternions are normalised. Rows with a zero quaternion or a value that is not finite are left out, and infinite
    opacities become +-20 (both with a notice). Raises SceneError for anything that is not a splat PLY.
    """
    path = Path(path)
    check_format(path)
    header = read_header(path)
    vertex = header.element("vertex")
    names = vertex.properties if vertex else ()
    if "packed_position" in names:
        gaussians = GaussianArrays(**compressed_ply.read_columns(path))
    else:
        check_properties(path, names)
        gaussians = _from_rows(read_table(path, "vertex"), sh_rest_count(path, names))
    return _cleaned(gaussians, path)


def write_gaussians(path: str | Path, gaussians: GaussianArrays) -> int:
    """Write graphdeco's binary PLY, atomically; returns how many rows were left out because they were not finite."""
    keep = gaussians.finite()
    kept = gaussians if keep.all() else gaussians.rows(keep)
    count, bands = len(kept), kept.shN.shape[1]
    zeros = np.zeros(count, np.float32)
    rest = kept.shN.transpose(0, 2, 1).reshape(count, 3 * bands)
    values = {**_named(("x", "y", "z"), kept.means), "nx": zeros, "ny": zeros, "nz": zeros,
              **_named([f"f_dc_{i}" for i in range(3)], kept.sh0.reshape(count, 3)),
              **_named([f"f_rest_{i}" for i in range(3 * bands)], rest),
              "opacity": kept.logit_opacities.astype(np.float32),
              **_named([f"scale_{i}" for i in range(3)], kept.log_scales),
              **_named([f"rot_{i}" for i in range(4)], kept.quats)}
    write_table(Path(path), values)
    return len(gaussians) - count


def check_format(path: Path) -> None:
    """SceneError for a path that is missing, or a splat format other than PLY."""
    if not path.is_file():
        raise SceneError(f"{path} is not a file; choose a splat PLY")
    other = OTHER_FORMATS.get(path.suffix.lower())
    if other:
        raise SceneError(f"{path} is in the {other} format, which is not read; convert it to PLY first, "
                         f"for example with `splat-transform {path.name} {path.stem}.ply`")


def check_properties(path: Path, names: tuple[str, ...]) -> None:
    """SceneError naming the splat properties that are absent."""
    needed = ("x", "y", "z", "f_dc_0", "f_dc_1", "f_dc_2", "opacity", "scale_0", "scale_1", "scale_2",
              "rot_0", "rot_1", "rot_2", "rot_3")
    absent = [name for name in needed if name not in names]
    if absent:
        what = "no splat PLY but a mesh or point cloud" if len(absent) > 6 else "an incomplete splat PLY"
        raise SceneError(f"{path} is {what}: it has no {', '.join(absent)}; export it as a 3D Gaussian splatting PLY")


def sh_rest_count(path: Path, names: tuple[str, ...]) -> int:
    """Number of f_rest properties: 0, 9, 24 or 45 (C02); SceneError otherwise."""
    present = {name for name in names if name.startswith("f_rest_")}
    count = len(present)
    if count not in REST_COUNTS or present != {f"f_rest_{i}" for i in range(count)}:
        raise SceneError(f"{path} has {count} f_rest properties; SH degree 0, 1, 2, 3 have 0, 9, 24, 45, "
                         "numbered from 0: export it again")
    return count


def _from_rows(rows: np.ndarray, rest: int) -> GaussianArrays:
    count = len(rows)
    shN = columns(rows, tuple(f"f_rest_{i}" for i in range(rest))).reshape(count, 3, rest // 3).transpose(0, 2, 1)
    return GaussianArrays(
        means=columns(rows, ("x", "y", "z")), quats=columns(rows, ("rot_0", "rot_1", "rot_2", "rot_3")),
        log_scales=columns(rows, ("scale_0", "scale_1", "scale_2")), logit_opacities=columns(rows, ("opacity",))[:, 0],
        sh0=columns(rows, ("f_dc_0", "f_dc_1", "f_dc_2")).reshape(count, 1, 3), shN=np.ascontiguousarray(shN))


def _cleaned(gaussians: GaussianArrays, path: Path) -> LoadedGaussians:
    notices = []
    infinite = np.isinf(gaussians.logit_opacities)
    if infinite.any():
        gaussians.logit_opacities = gaussians.logit_opacities.clip(-MAX_LOGIT, MAX_LOGIT)
        notices.append(f"{int(infinite.sum()):,} infinite opacities in {path.name} became {MAX_LOGIT:g} "
                       "as logits (opaque, or transparent).")
    finite = gaussians.finite()
    with np.errstate(invalid="ignore"):  # a signalling NaN in a damaged file; `finite` has it
        # float64, because the square of a large float32 overflows
        norms = np.linalg.norm(gaussians.quats.astype(np.float64), axis=1)
    usable = finite & (norms > 0.0)
    if not usable.all():
        notices.append(f"{int((~usable).sum()):,} of {len(gaussians):,} Gaussians in {path.name} are left out: "
                       f"{int((~finite).sum()):,} with values that are not finite, "
                       f"{int((finite & ~usable).sum()):,} with a zero quaternion.")
        gaussians, norms = gaussians.rows(usable), norms[usable]
    gaussians.quats = (gaussians.quats / norms[:, None]).astype(np.float32)
    return LoadedGaussians(gaussians, tuple(notices))


def _named(names: list[str] | tuple[str, ...], values: np.ndarray) -> dict[str, np.ndarray]:
    values = np.asarray(values, np.float32)
    return {name: values[:, index] for index, name in enumerate(names)}
