"""Structural similarity (Wang et al. 2004) and the photometric loss of Kerbl et al. 2023, equation 7."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from render.reference.rasterize import Between, uninterrupted
from render.shapes import check

WINDOW = 11
SIGMA = 1.5
C1 = 0.01**2  # stabilise the ratios where means or variances vanish; colours span [0,1]
C2 = 0.03**2


def gaussian_window(like: Tensor) -> Tensor:
    """[11] Gaussian of sigma 1.5 px that sums to 1."""
    x = torch.arange(WINDOW, dtype=like.dtype, device=like.device) - WINDOW // 2
    window = torch.exp(-x * x / (2 * SIGMA**2))
    return window / window.sum()


def blur(images: Tensor, between: Between = uninterrupted) -> Tensor:
    """[B,1,H,W] -> the same size; outside the image there is zero, as in graphdeco's loss.

    One image at a time: a large picture takes hundreds of milliseconds, and `between`,
    called before each, on the way back too, may end it.
    """
    return torch.cat([_blurred(image, between) for image in images.split(1)])


def _blurred(image: Tensor, between: Between) -> Tensor:
    between()
    window = gaussian_window(image)
    image = F.conv2d(image, window.reshape(1, 1, 1, WINDOW), padding=(0, WINDOW // 2))
    image = F.conv2d(image, window.reshape(1, 1, WINDOW, 1), padding=(WINDOW // 2, 0))
    if image.requires_grad:
        image.register_hook(lambda gradient: between())
    return image


def ssim_map(image: Tensor, target: Tensor, between: Between = uninterrupted) -> Tensor:
    """[H,W,3] SSIM of each pixel and channel; image, target [H,W,3] in [0,1]."""
    x, y = (t.permute(2, 0, 1).unsqueeze(1) for t in (image, target))
    mean_x, mean_y, xx, yy, xy = blur(torch.cat([x, y, x * x, y * y, x * y]), between).split(3)
    var_x, var_y, cov = xx - mean_x**2, yy - mean_y**2, xy - mean_x * mean_y
    luminance = (2 * mean_x * mean_y + C1) / (mean_x**2 + mean_y**2 + C1)
    structure = (2 * cov + C2) / (var_x + var_y + C2)
    return (luminance * structure).squeeze(1).permute(1, 2, 0)


def ssim(image: Tensor, target: Tensor, between: Between = uninterrupted) -> Tensor:
    """Mean SSIM over pixels and channels, a scalar."""
    return ssim_map(image, target, between).mean()


def photometric_loss(image: Tensor, target: Tensor, *, kind: str = "l1_ssim", lambda_dssim: float = 0.2,
                     between: Between = uninterrupted) -> tuple[Tensor, Tensor]:
    """(loss, terms): loss = (1 - lambda) L1 + lambda (1 - SSIM) for "l1_ssim", the mean squared error for "mse".

    image, target [H,W,3] in [0,1]. terms [3] = (l1, mse, ssim), for display, without gradient.
    Raises ValueError for another kind or another size.
    """
    check(image=(image, "H W 3"), target=(target, "H W 3"))
    l1 = (image - target).abs().mean()
    mse = ((image - target) ** 2).mean()
    similarity = ssim(image, target, between)
    if kind == "l1_ssim":
        loss = (1 - lambda_dssim) * l1 + lambda_dssim * (1 - similarity)
    elif kind == "mse":
        loss = mse
    else:
        raise ValueError(f"loss kind is {kind!r}; choose l1_ssim or mse")
    return loss, torch.stack([l1, mse, similarity]).detach()
