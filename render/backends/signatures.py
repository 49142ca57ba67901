"""What every kernel takes: names, types and shapes, once for all backends; launches are checked against it.

A signature reads like the C declaration it mirrors. Items are separated by commas; those after "->" are written.

    camera, raster      the structs CameraArgs and RasterArgs
    means[N 3]          a contiguous tensor of Real; letters are bound at the first use and compared afterwards
    order[N]:i32        a tensor of another type
    depths?[N]          may be None
    shN~[N _ 3]         rows may be strided
    N:i64, w:f64        scalars
"""

from __future__ import annotations

import ctypes
import math
import re
from dataclasses import dataclass
from typing import Any

from render.config import FOOTPRINT_MARGIN, TILE_SIZE, RasterConfig
from render.types import Camera

_ITEM = re.compile(r"(?P<name>\w+)(?P<flags>[?~]*)(\[(?P<shape>[^\]]*)\])?(:(?P<type>\w+))?$")


@dataclass(frozen=True)
class Arg:
    name: str
    type: str                 # camera, raster, real, u8, i16, i32, i64, f64
    shape: tuple[str, ...] | None  # None = scalar or struct
    nullable: bool = False
    strided: bool = False
    written: bool = False


def parse(text: str) -> tuple[Arg, ...]:
    """The arguments of one signature, in order."""
    arguments = []
    for written, part in enumerate(text.split("->")):
        for item in filter(None, (word.strip() for word in part.split(","))):
            match = _ITEM.match(item)
            assert match, f"signature item {item!r} is malformed"
            name, flags = match["name"], match["flags"]
            if name in ("camera", "raster"):
                arguments.append(Arg(name, name, None))
                continue
            shape = None if match["shape"] is None else tuple(match["shape"].split())
            arguments.append(Arg(name, match["type"] or "real", shape, "?" in flags, "~" in flags, bool(written)))
    return tuple(arguments)


CPU_KERNELS: dict[str, tuple[Arg, ...]] = {name: parse(text) for name, text in {
    "activate_fwd": "N:i64, quats[N 4], log_scales[N 3], logit_opacities[N] -> unit_quats[N 4], scales[N 3], opacities[N]",
    "activate_bwd": "N:i64, quats[N 4], scales[N 3], opacities[N], v_unit_quats[N 4], v_scales[N 3], v_opacities[N]"
                    " -> v_quats[N 4], v_log_scales[N 3], v_logit_opacities[N]",
    "project_fwd": "camera, raster, N:i64, means[N 3], quats[N 4], scales[N 3], opacities[N]"
                   " -> means2d[N 2], conics[N 3], depths[N], extents[N 2], compensations[N]",
    "project_bwd": "camera, raster, N:i64, means[N 3], quats[N 4], scales[N 3], extents[N 2], v_means2d[N 2], v_conics[N 3],"
                   " v_depths?[N], v_compensations?[N] -> v_means[N 3], v_quats[N 4], v_scales[N 3]",
    "sh_fwd": "camera, N:i64, degree:i32, means[N 3], sh0~[N _ 3], stride0:i64, shN~[N _ 3], strideN:i64, extents?[N 2]"
              " -> colors[N 3]",
    "sh_bwd": "camera, N:i64, degree:i32, total:i32, means[N 3], sh0~[N _ 3], stride0:i64, shN~[N _ 3], strideN:i64,"
              " extents?[N 2], colors[N 3], v_colors[N 3] -> v_means[N 3], v_sh0~[N _ 3], v_stride0:i64, v_shN~[N _ 3],"
              " v_strideN:i64",
    "binning_order": "camera, N:i64, means2d[N 2], depths[N], extents[N 2] -> order[N]:i32, bounds[_]:i64",
    "binning_count": "camera, raster, N:i64, V:i64, means2d[N 2], conics[N 3], extents[N 2], opacities[N], order[N]:i32,"
                     " bounds[_]:i64 -> pairs[P]:i32, rows[P 2]:u8, emit_offsets[_]:i64, tile_offsets[_]:i64, cursors[_]:i64",
    "binning_emit": "T:i64, N:i64, V:i64, order[N]:i32, bounds[_]:i64, pairs[P]:i32, rows[P 2]:u8, emit_offsets[_]:i64,"
                    " cursors[_]:i64 -> flatten_ids[M]:i32, emit_ids[M]:i32, tile_rows[M 2]:u8",
    "rasterize_pack": "N:i64, means2d[N 2], conics[N 3], extents[N 2], opacities[N], colors[N 3], depths?[N] -> records[N _]",
    "rasterize_fwd": "camera, raster, background[3], tile_offsets[_]:i64, flatten_ids[M]:i32, rows[M 2]:u8, records[N _]"
                     " -> colors[H W 3], transmittances[H W], depths?[H W], last_ids[H W]:i32",
    "rasterize_bwd": "camera, raster, background[3], tile_offsets[_]:i64, flatten_ids[M]:i32, emit_ids[M]:i32, rows[M 2]:u8,"
                     " records[N _], transmittances[H W], last_ids[H W]:i32, v_colors[H W 3], v_transmittances?[H W],"
                     " v_depths?[H W], absolute:i32 -> pairs[M _]",
    "rasterize_count": "camera, raster, tile_offsets[_]:i64, flatten_ids[M]:i32, rows[M 2]:u8, records[N _]"
                       " -> counts[H W]:i32",
    "rasterize_work": "camera, raster, tile_offsets[_]:i64, flatten_ids[M]:i32, rows[M 2]:u8, records[N _], last_ids[H W]:i32"
                      " -> work[2]:i64",
    "rasterize_gather": "N:i64, emit_offsets[_]:i64, pairs[_ _], conics[N 3], opacities[N] -> v_means2d[N 2], v_conics[N 3],"
                        " v_opacities[N], v_colors[N 3], v_depths?[N], v_abs_means2d?[N 2]",
    "ssim_fwd": "height:i32, width:i32, image[H W 3], target[H W 3] -> partials[_ 3]:f64, maps?[3 H W 3]",
    "ssim_bwd": "height:i32, width:i32, image[H W 3], target[H W 3], maps?[3 H W 3], w_l1:f64, w_mse:f64, w_ssim:f64"
                " -> v_image[H W 3]",
    "adam_step": "n:i64 -> param[n], grad[n], exp_avg[n], exp_avg_sq[n], step_size:f64, beta1:f64, beta2:f64,"
                 " rsqrt_bias2:f64, eps:f64, extents?[_ 2], row:i32",
}.items()}


_LIST = "camera, raster, epsilon:real, V:i32, order[V]:i32, means2d[N 2], conics[N 3], extents[N 2], opacities[N]"
_SPLATS = ("camera, raster, background[3], tile_offsets[_]:i64, flatten_ids[M]:i32, means2d[N 2], conics[N 3], opacities[N],"
           " colors[N 3], depths?[N]")
CUDA_KERNELS: dict[str, tuple[Arg, ...]] = {name: parse(text) for name, text in {
    "activate_fwd": "N:i32, quats[N 4], log_scales[N 3], logit_opacities[N] -> unit_quats[N 4], scales[N 3], opacities[N]",
    "activate_bwd": "N:i32, quats[N 4], scales[N 3], opacities[N], v_unit_quats[N 4], v_scales[N 3], v_opacities[N]"
                    " -> v_quats[N 4], v_log_scales[N 3], v_logit_opacities[N]",
    "project_fwd": "camera, raster, N:i32, means[N 3], quats[N 4], scales[N 3], opacities[N]"
                   " -> means2d[N 2], conics[N 3], depths[N], extents[N 2], compensations[N]",
    "project_bwd": "camera, raster, N:i32, means[N 3], quats[N 4], scales[N 3], extents[N 2], v_means2d[N 2], v_conics[N 3],"
                   " v_depths?[N], v_compensations?[N] -> v_means[N 3], v_quats[N 4], v_scales[N 3]",
    "sh_fwd": "camera, N:i32, degree:i32, means[N 3], sh0~[N _ 3], stride0:i32, shN~[N _ 3], strideN:i32, extents?[N 2]"
              " -> colors[N 3]",
    "sh_bwd": "camera, N:i32, degree:i32, total:i32, means[N 3], sh0~[N _ 3], stride0:i32, shN~[N _ 3], strideN:i32,"
              " extents?[N 2], colors[N 3], v_colors[N 3] -> v_means[N 3], v_sh0~[N _ 3], v_stride0:i32, v_shN~[N _ 3],"
              " v_strideN:i32",
    "gaussian_fwd": "camera, raster, N:i32, degree:i32, rest:i32, means[N 3], quats[N 4], log_scales[N 3], logit_opacities[N],"
                    " sh0[N 1 3], shN[N K 3] -> means2d[N 2], conics[N 3], depths[N], extents[N 2], compensations[N],"
                    " colors[N 3], opacities_eff[N]",
    "gaussian_bwd": "camera, raster, N:i32, degree:i32, rest:i32, means[N 3], quats[N 4], log_scales[N 3], logit_opacities[N],"
                    " shN[N K 3], extents[N 2], colors[N 3], v_means2d[N 2], v_conics[N 3], v_depths?[N], v_colors[N 3],"
                    " v_opacities_eff[N] -> v_means[N 3], v_quats[N 4], v_log_scales[N 3], v_logit_opacities[N],"
                    " v_sh0[N 1 3], v_shN?[N K 3]",
    "binning_count": _LIST + " -> counts[V]:i32",
    "binning_emit16": _LIST + ", offsets[V]:i64, counts[V]:i32 -> tiles[M]:i16, ids[M]:i32",
    "binning_emit32": _LIST + ", offsets[V]:i64, counts[V]:i32 -> tiles[M]:i32, ids[M]:i32",
    "binning_ranges16": "M:i64, T:i32, tiles[M]:i16 -> tile_offsets[_]:i64",
    "binning_ranges32": "M:i64, T:i32, tiles[M]:i32 -> tile_offsets[_]:i64",
    "rasterize_fwd": _SPLATS + " -> image[H W 3], transmittances[H W], depth_image?[H W], last_ids[H W]:i32",
    "rasterize_bwd": _SPLATS + ", transmittances[H W], last_ids[H W]:i32, v_image[H W 3], v_transmittances?[H W],"
                     " v_depth_image?[H W] -> v_means2d[N 2], v_conics[N 3], v_opacities[N], v_colors[N 3], v_depths?[N],"
                     " v_abs_means2d?[N 2]",
    "rasterize_count": _SPLATS + " -> counts[H W]:i32",
    "rasterize_buckets_states": _SPLATS + ", bucket_offsets[_]:i64, transmittances[H W], last_ids[H W]:i32, v_image[H W 3],"
                                " v_transmittances?[H W], v_depth_image?[H W] -> bucket_tiles[B]:i32, states[B 2 _]",
    "rasterize_buckets_bwd": _SPLATS.replace(" background[3],", "") + ", bucket_offsets[_]:i64, bucket_tiles[B]:i32,"
                             " states[B 2 _], last_ids[H W]:i32, v_image[H W 3], v_depth_image?[H W] -> v_means2d[N 2],"
                             " v_conics[N 3], v_opacities[N], v_colors[N 3], v_depths?[N], v_abs_means2d?[N 2]",
    "ssim_fwd": "height:i32, width:i32, window[6], image[H W 3], target[H W 3] -> partials[_ 3]:f64, maps?[3 H W 3]",
    "ssim_bwd": "height:i32, width:i32, window[6], image[H W 3], target[H W 3], maps?[3 H W 3], scale[1], w_l1:real,"
                " w_mse:real, w_ssim:real -> v_image[H W 3]",
    "adam_step": "n:i64 -> param[n], grad[n], exp_avg[n], exp_avg_sq[n], step_size:real, beta1:real, rest1:real, beta2:real,"
                 " rest2:real, rsqrt_bias2:real, eps:real, extents?[_ 2], row:i32, ok?[1]:i32",
}.items()}
"""Kernels of the .cu files. Launch shapes are the launcher's business; arrays that kernels add to arrive zeroed."""
CUDA_FILES = ("activate", "project", "sh", "gaussian", "binning", "rasterize", "rasterize_buckets", "ssim", "adam")


def cuda_file(kernel: str) -> str:
    """The .cu file a kernel stands in, without .cu: the longest of CUDA_FILES that the kernel's name begins with."""
    return max((file for file in CUDA_FILES if kernel.startswith(f"{file}_")), key=len, default=kernel.split("_")[0])


BUCKET = 32
"""Gaussians a bucket of rasterize_buckets.cu holds: a lane of a warp each."""
BUCKETS_A_BLOCK = 4
"""Warps that share a block of its backward, WARPS there."""


def bucket_bound(pairs: int, tiles: int) -> int:
    """No split of `pairs` into lists of `tiles` tiles has more buckets: sum of ceil(length / BUCKET), each list of them at
    most BUCKET - 1 short of full. Known without asking the device for the lengths."""
    return (pairs + (BUCKET - 1) * min(tiles, pairs)) // BUCKET


def bucket_bytes(pairs: int, tiles: int, real_bytes: int = 4) -> int:
    """Bytes that the bucket backward allocates beyond the default one: per bucket two Reals for each pixel of a tile
    (T and what lies behind) and its tile's index, and the offsets of the buckets by tile."""
    return bucket_bound(pairs, tiles) * (2 * TILE_SIZE**2 * real_bytes + 4) + 8 * (tiles + 1)


def camera_struct(real: Any) -> type[ctypes.Structure]:
    """CameraArgs of cuda_src/common.h for ctypes.c_float or c_double, field by field."""

    class CameraArgs(ctypes.Structure):
        _fields_ = [("R", real * 9), ("t", real * 3), ("center", real * 3), ("fx", real), ("fy", real), ("cx", real),
                    ("cy", real), ("lo_x", real), ("hi_x", real), ("lo_y", real), ("hi_y", real), ("near_z", real),
                    ("far_z", real), ("width", ctypes.c_int), ("height", ctypes.c_int), ("tiles_x", ctypes.c_int),
                    ("tiles_y", ctypes.c_int)]
    return CameraArgs


def raster_struct(real: Any) -> type[ctypes.Structure]:
    """RasterArgs of cuda_src/common.h."""

    class RasterArgs(ctypes.Structure):
        _fields_ = [("alpha_max", real), ("alpha_gradient_cap", real), ("cutoff", real), ("transmittance_min", real),
                    ("eps2d", real), ("footprint_margin", real), ("smooth_cutoff", ctypes.c_int),
                    ("antialiased", ctypes.c_int)]
    return RasterArgs


def camera_values(camera: Camera, config: RasterConfig) -> dict[str, object]:
    """The fields of CameraArgs. The limits of x/z, y/z inside the Jacobian span the image, wherever the principal point
    is, plus (clamp_fov - 1) tan(fov/2) on each side."""
    K, view = camera.K, camera.viewmat
    fx, fy, cx, cy = float(K[0, 0]), float(K[1, 1]), float(K[0, 2]), float(K[1, 2])
    left, top, width, height = camera.span
    margin_x = (config.clamp_fov - 1) * 0.5 * width / fx
    margin_y = (config.clamp_fov - 1) * 0.5 * height / fy
    across, down = camera.tiles
    return dict(R=tuple(view[:3, :3].ravel().tolist()), t=tuple(view[:3, 3].tolist()), center=tuple(camera.center.tolist()),
                fx=fx, fy=fy, cx=cx, cy=cy, lo_x=(left - cx) / fx - margin_x, hi_x=(left + width - cx) / fx + margin_x,
                lo_y=(top - cy) / fy - margin_y, hi_y=(top + height - cy) / fy + margin_y, near_z=camera.near,
                far_z=camera.far, width=camera.width, height=camera.height, tiles_x=across, tiles_y=down)


def raster_values(config: RasterConfig) -> dict[str, object]:
    """The fields of RasterArgs. The gradient mode becomes the cap of dalpha/dpower beyond alpha_max."""
    cap = {"exact": 0.0, "straight_through": math.inf, "straight_through_clamped": config.alpha_max}[config.alpha_gradient]
    return dict(alpha_max=config.alpha_max, alpha_gradient_cap=cap, cutoff=config.cutoff,
                transmittance_min=config.transmittance_min, eps2d=config.eps2d, footprint_margin=FOOTPRINT_MARGIN,
                smooth_cutoff=int(config.smooth_cutoff), antialiased=int(config.antialiased))
