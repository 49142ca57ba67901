"""The stages in order, nothing else."""

from __future__ import annotations

import torch
from torch import Tensor

from render import interrupt
from render.backends import cpu, cuda
from render.config import BACKENDS, RasterConfig
from render.reference.rasterize import count_contributors
from render.stages.binning import bin_tiles
from render.stages.gaussian import splats, splats_of
from render.stages.rasterize import count_contributors as count_cpu
from render.stages.rasterize import count_contributors_cuda as count_cuda
from render.stages.rasterize import rasterize
from render.types import Camera, GaussianParams, Gaussians, GradientTap, Projected, RenderOutput


def resolve_backend(name: str) -> str:
    """The backend that "auto" stands for here; other names are returned as they are.

    Raises ValueError naming the choices for an unknown name or one that cannot run here.
    """
    if name not in BACKENDS:
        raise ValueError(f"backend is {name!r}; choose one of {', '.join(BACKENDS)}")
    if name == "auto":
        return "cuda" if cuda.available() else "cpu" if cpu.available() else "reference"
    if name == "cuda" and not cuda.available():
        raise ValueError(f"backend cuda cannot run here: {cuda.problem()}")
    if name == "cpu" and not cpu.available():
        raise ValueError("backend cpu needs a C++ compiler ($CXX, g++, clang++ or clang-cl): install g++, or pip install "
                         "'splatscope[zig]'; or choose reference")
    return name


def device_of(backend: str) -> torch.device:
    """Where a backend's tensors live."""
    return cuda.device() if backend == "cuda" else torch.device("cpu")


def usable_backends() -> tuple[str, ...]:
    """The names that resolve_backend takes here, "auto" first."""
    return tuple(name for name in BACKENDS if _resolves(name))


def _resolves(name: str) -> bool:
    try:
        resolve_backend(name)
    except ValueError:
        return False
    return True


def render(gaussians: Gaussians, camera: Camera, config: RasterConfig, *, background: Tensor, sh_degree: int,
           backend: str, depth: bool = False, colors: Tensor | None = None, tap: GradientTap | None = None
           ) -> RenderOutput:
    """Render N Gaussians. background [3]; `colors` [N,3] replace those from SH; `tap` is filled during backward()."""
    parts = splats_of(gaussians, camera, config, sh_degree, backend, colors)
    return _composite(*parts, camera, config, background, backend, depth, tap)


def render_params(params: GaussianParams, camera: Camera, config: RasterConfig, *, background: Tensor, sh_degree: int,
                  backend: str, depth: bool = False, tap: GradientTap | None = None) -> RenderOutput:
    """The same from raw parameters, as training does: what lies between them and the ellipses need not be kept."""
    parts = splats(params, camera, config, sh_degree, backend)
    return _composite(*parts, camera, config, background, backend, depth, tap)


def _composite(projected: Projected, colors: Tensor, opacities: Tensor, camera: Camera, config: RasterConfig,
               background: Tensor, backend: str, depth: bool, tap: GradientTap | None) -> RenderOutput:
    bins = bin_tiles(projected, opacities, camera, config, backend)
    picture, transmittances, depths, last_ids = rasterize(
        projected, colors, opacities, bins, camera, background, config, depth=depth, tap=tap, backend=backend)
    return RenderOutput(picture, transmittances, depths, last_ids, projected, bins, colors, opacities)


def contributors(output: RenderOutput, camera: Camera, config: RasterConfig, backend: str) -> Tensor:
    """[H,W] int32: how many Gaussians blend into each pixel."""
    if backend == "cuda":
        return count_cuda(output.projected, output.splat_opacities, output.splat_colors, output.bins, camera, config)
    if backend == "reference":
        return count_contributors(output.projected, output.splat_opacities, output.bins, camera, config,
                                  interrupt.check)
    return count_cpu(output.projected, output.splat_opacities, output.splat_colors, output.bins, camera, config)
