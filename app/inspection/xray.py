"""Instrument "xray": every Gaussian that a pixel is made of, the gradient there, and its backward walk.

With C = sum_k w_k c_k + T_N b, w_k = T_k alpha_k (render/reference/composite.py):

    dC/dalpha_k = T_k c_k  -  (sum_{m>k} w_m c_m) / (1 - alpha_k)  -  T_N b / (1 - alpha_k)                      (1)
                  own         occlusion                                background
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from app.config import TrainConfig
from app.data.scene import View
from app.inspection.questions import Sight, Unanswerable, XRayQuestion
from app.inspection.results import Refused, XRay
from app.training.arrays import host
from app.training.marks import HIDDEN
from app.training.views import to_target
from render.config import TILE_SIZE, RasterConfig
from render.pipeline import render
from render.reference.pixel import PixelContributions, pixel_contributions
from render.reference.rasterize import blend, clamp_alpha, fade
from render.reference.ssim import WINDOW, ssim_map
from render.types import Camera, Projected, RenderOutput, TileBins

if TYPE_CHECKING:
    from app.engine.model import Model

SSIM_REACH = WINDOW // 2
"""px: a pixel of the SSIM map reads the picture so far around itself."""
MARGIN = 2 * SSIM_REACH
"""px around a pixel that the gradient of the loss there depends on."""


def xray(model: Model, question: XRayQuestion) -> XRay:
    """Raises Unanswerable for a pixel outside the picture."""
    x, y, camera = question.x, question.y, question.sight.camera
    if not (0 <= x < camera.width and 0 <= y < camera.height):
        raise Unanswerable(f"Pixel ({x}, {y}) lies outside the picture of {camera.width} x {camera.height} px.")
    view = photograph(model, question)
    margin = 0 if view is None else MARGIN
    left, top = max(0, x - margin), max(0, y - margin)
    width, height = min(camera.width, x + margin + 1) - left, min(camera.height, y + margin + 1) - top
    part = camera.cropped(left, top, width, height)
    with torch.no_grad():
        output = render(model.gaussians(), part, model.options.raster, background=model.background,
                        sh_degree=model.sh_degree, backend=model.backend)
    column, row = x - left, y - top
    image = output.colors.detach().cpu().double()
    cotangent, loss = torch.ones(3, dtype=torch.float64), ""
    if view is not None:
        pixels = view.load()[top:top + height, left:left + width]
        target = to_target(np.ascontiguousarray(pixels), model.background.cpu()).double()
        cotangent = loss_cotangent(image, target, column, row, camera, model.options)
        loss = model.options.loss
    found, refused = contributions(output, part, model.background, model.options.raster, column, row)
    answer = taken_apart(found, model.options.raster, cotangent)
    uids, mark = host(model.params.uids), model.mark(HIDDEN)
    hidden = 0 if mark is None else int(mark[found.ids.to(mark.device)].sum())
    if refused is not None:
        refused = replace(refused, uid=int(uids[refused.uid]))
    return replace(answer, x=x, y=y, width=camera.width, height=camera.height, view=view.name if view is not None else "",
                   uids=uids[answer.uids], refused=refused, rendered=image[row, column].numpy(), loss=loss, hidden=hidden)


def photograph(model: Model, question: XRayQuestion) -> View | None:
    """The scene view whose pixels the question is about; None where it asks about another picture."""
    index, scene = question.view, model.scene
    if index is None or scene is None or not 0 <= index < len(scene.views):
        return None
    view = scene.views[index]
    return view if Sight.of(view.camera) == question.sight else None


def loss_cotangent(image: Tensor, target: Tensor, x: int, y: int, whole: Camera, options: TrainConfig) -> Tensor:
    """[3] dL/dC of column x, row y of a part [h,w,3] of the picture `whole`, which reaches MARGIN around or to its edge."""
    image = image.detach().requires_grad_()
    count = 3 * whole.width * whole.height
    here = image[y, x] - target[y, x]
    if options.loss == "mse":
        loss = (here * here).sum() / count
    else:
        rows, columns = (slice(max(0, i - SSIM_REACH), i + SSIM_REACH + 1) for i in (y, x))
        similar = ssim_map(image, target)[rows, columns].sum()   # the others do not read this pixel
        loss = ((1 - options.lambda_dssim) * here.abs().sum() - options.lambda_dssim * similar) / count
    return torch.autograd.grad(loss, image)[0][y, x]


def contributions(output: RenderOutput, camera: Camera, background: Tensor, config: RasterConfig, x: int, y: int
                  ) -> tuple[PixelContributions, Refused | None]:
    """The pixel's rows in float64 on the CPU, and who was refused; ids and `uid` are rows of the model."""
    tile = y // TILE_SIZE * camera.tiles[0] + x // TILE_SIZE
    start, end = output.bins.tile_offsets[tile:tile + 2].tolist()
    ids = output.bins.flatten_ids[start:end].long()
    count, total = end - start, camera.tiles[0] * camera.tiles[1]

    def rows(tensor: Tensor) -> Tensor:
        return tensor.detach()[ids].cpu().double()

    projected = Projected(*(rows(getattr(output.projected, name))
                            for name in ("means2d", "conics", "depths", "extents", "compensations")))
    colors, opacities = rows(output.splat_colors), rows(output.splat_opacities)
    bins = TileBins(torch.tensor([0] * (tile + 1) + [count] * (total - tile)), torch.arange(count, dtype=torch.int32))
    found = pixel_contributions(projected, colors, opacities, bins, camera, background.cpu().double(), config, x, y)
    ids = ids.cpu()
    refused = None
    if found.stopped_by is not None:
        k = found.stopped_by
        center = torch.tensor([[x + 0.5, y + 0.5]], dtype=torch.float64)
        mixed = blend(projected.means2d, projected.conics, opacities, center, config)
        offered = mixed.offered[:, 0]
        out = int(((offered > 0) & (mixed.alphas[:, 0] == 0)).sum())
        refused = Refused(int(ids[k]), float(projected.depths[k]), float(offered[k]),
                          float(found.transmittance * (1 - offered[k])), out)
    return replace(found, ids=ids[found.ids]), refused


def taken_apart(found: PixelContributions, config: RasterConfig, cotangent: Tensor) -> XRay:
    """What follows from the rows of a pixel and dL/dC [3]; place, photograph and uids (rows here) are left open."""
    colors, alphas, weights = found.colors.numpy(), found.alphas.numpy(), found.weights.numpy()
    before, final, background = found.transmittances.numpy(), float(found.transmittance), found.background.numpy()
    parts = weights[:, None] * colors
    running = np.cumsum(parts, axis=0)
    through = (1.0 - alphas)[:, None]
    own = before[:, None] * colors
    occlusion = -(np.cumsum(parts[::-1], axis=0)[::-1] - parts) / through
    backdrop = -final * background / through
    v_alphas = (own + occlusion + backdrop) @ cotangent.numpy()                                                  # (1)
    slopes = alpha_slopes(found.raw_alphas, config).numpy()
    forward, rebuilt = walks(alphas)
    return XRay(
        x=found.x, y=found.y, width=0, height=0, view="", uids=found.ids.numpy(), depths=found.depths.numpy(),
        powers=found.powers.numpy(), raw_alphas=found.raw_alphas.numpy(), alphas=alphas, clamped=found.clamped.numpy(),
        transmittances=before, weights=weights, colors=colors, running=running, transmittance=final, background=background,
        refused=None, composed=found.composite().numpy(), rendered=np.full(3, np.nan), cotangent=cotangent.numpy(), loss="",
        own=own, occlusion=occlusion, backdrop=backdrop, v_alphas=v_alphas, slopes=slopes,
        v_opacities=v_alphas * slopes * np.exp(found.powers.numpy()), forward=forward, rebuilt=rebuilt,
        alpha_max=config.alpha_max, alpha_gradient=config.alpha_gradient)


def alpha_slopes(raw: Tensor, config: RasterConfig) -> Tensor:
    """[n] dalpha/draw of clamp and cutoff, by the gradient mode in force."""
    with torch.enable_grad():
        leaf = raw.detach().requires_grad_()
        return torch.autograd.grad(fade(clamp_alpha(leaf, config), config).sum(), leaf)[0]


def walks(alphas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """T [n+1] forwards, T_{k+1} = T_k (1 - alpha_k), and backwards from T_N, T_k = T_{k+1} / (1 - alpha_k); float32."""
    through = np.float32(1.0) - alphas.astype(np.float32)
    forward = np.ones(len(alphas) + 1, np.float32)
    for k, share in enumerate(through):
        forward[k + 1] = forward[k] * share
    rebuilt = forward.copy()
    for k in reversed(range(len(through))):
        rebuilt[k] = rebuilt[k + 1] / through[k]
    return forward, rebuilt
