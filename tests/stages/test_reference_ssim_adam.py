"""Loss and update of the reference renderer."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from render.reference.adam import adam_step
from render.reference.ssim import photometric_loss, ssim, ssim_map
from tests.gradients import assert_gradients


def images(height=19, width=23, seed=0):
    rng = torch.Generator().manual_seed(seed)
    pair = torch.rand(2, height, width, 3, generator=rng, dtype=torch.float64)
    return pair[0], (0.6 * pair[0] + 0.4 * pair[1])


def test_ssim_map_equals_the_definition_written_out_per_pixel():
    image, target = images(14, 13)
    got = ssim_map(image, target).numpy()
    offsets = np.arange(-5, 6)
    window = np.exp(-(offsets[:, None] ** 2 + offsets[None] ** 2) / (2 * 1.5**2))
    window /= window.sum()
    x, y = (np.pad(t.numpy(), ((5, 5), (5, 5), (0, 0))) for t in (image, target))
    for row, column, channel in [(0, 0, 0), (7, 6, 1), (13, 12, 2), (0, 12, 1), (6, 1, 0)]:
        a, b = (t[row:row + 11, column:column + 11, channel] for t in (x, y))
        ma, mb = (window * a).sum(), (window * b).sum()
        va, vb, cov = (window * a * a).sum() - ma**2, (window * b * b).sum() - mb**2, (window * a * b).sum() - ma * mb
        expected = ((2 * ma * mb + 1e-4) * (2 * cov + 9e-4)) / ((ma**2 + mb**2 + 1e-4) * (va + vb + 9e-4))
        assert got[row, column, channel] == pytest.approx(expected, rel=1e-10)


def test_equal_images_have_ssim_one_and_loss_zero():
    image, _ = images()
    assert ssim(image, image).item() == pytest.approx(1.0, abs=1e-14)
    loss, terms = photometric_loss(image, image)
    assert loss.item() == pytest.approx(0.0, abs=1e-14)
    assert terms.tolist() == pytest.approx([0, 0, 1], abs=1e-14)


@pytest.mark.parametrize("size", [(19, 23), (5, 40), (1, 1)])
@pytest.mark.parametrize("kind, lambda_dssim", [("l1_ssim", 0.2), ("l1_ssim", 0.0), ("l1_ssim", 1.0), ("mse", 0.2)])
def test_gradient(kind, lambda_dssim, size):
    image, target = images(*size)
    image.requires_grad_()
    assert_gradients(lambda: photometric_loss(image, target, kind=kind, lambda_dssim=lambda_dssim)[0], {"image": image})


def test_terms_are_l1_mse_ssim_and_make_up_the_loss():
    image, target = images()
    loss, terms = photometric_loss(image.requires_grad_(), target, lambda_dssim=0.3)
    l1, mse, similarity = terms.tolist()
    assert l1 == pytest.approx((image - target).abs().mean().item())
    assert mse == pytest.approx((image - target).square().mean().item())
    assert loss.item() == pytest.approx(0.7 * l1 + 0.3 * (1 - similarity))
    assert not terms.requires_grad
    assert photometric_loss(image, target, kind="mse")[0].item() == pytest.approx(mse)


def test_unknown_loss_and_wrong_size_are_named():
    image, target = images()
    with pytest.raises(ValueError, match="loss kind is 'l2'; choose l1_ssim or mse"):
        photometric_loss(image, target, kind="l2")
    with pytest.raises(ValueError, match="target: expected shape"):
        photometric_loss(image, target[1:])


def test_adam_equals_torch():
    rng = torch.Generator().manual_seed(0)
    ours = torch.randn(7, 3, generator=rng, dtype=torch.float64)
    theirs = ours.clone().requires_grad_()
    optimizer = torch.optim.Adam([theirs], lr=0.03, eps=1e-15)
    m, v = torch.zeros_like(ours), torch.zeros_like(ours)
    for step in range(1, 51):
        gradient = torch.randn(7, 3, generator=rng, dtype=torch.float64) * 10.0 ** (step % 5 - 4)
        theirs.grad = gradient.clone()
        optimizer.step()
        adam_step(ours, gradient, m, v, step=step, lr=0.03, eps=1e-15)
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(m, optimizer.state[theirs]["exp_avg"], rtol=1e-12, atol=1e-18)
    torch.testing.assert_close(v, optimizer.state[theirs]["exp_avg_sq"], rtol=1e-12, atol=1e-24)


def test_adam_leaves_rows_without_gradient_history_where_they_are():
    param, m, v = torch.ones(2), torch.zeros(2), torch.zeros(2)
    adam_step(param, torch.tensor([0.0, 1e-20]), m, v, step=1, lr=0.1, eps=1e-15)
    assert param[0] == 1 and math.isfinite(param[1].item())
    with pytest.raises(ValueError, match="counts steps from 1"):
        adam_step(param, param, m, v, step=0, lr=0.1, eps=1e-15)


def test_adam_with_extents_updates_seen_rows_only():
    """Seen rows as if they stood alone; the others keep parameter and moments although they have momentum and a gradient."""
    rng = torch.Generator().manual_seed(1)
    param, gradient, m, v = (torch.randn(9, 2, 3, generator=rng, dtype=torch.float64) for _ in range(4))
    v = v.abs()
    extents = torch.tensor([[2.0, 1.0], [0.0, 0.0]], dtype=torch.float64).repeat(5, 1)[:9]
    before = [t.clone() for t in (param, m, v)]
    alone = [t[::2].clone() for t in (param, gradient, m, v)]
    gradient[1::2] = math.nan
    adam_step(param, gradient, m, v, step=3, lr=0.03, eps=1e-15, extents=extents)
    adam_step(*alone, step=3, lr=0.03, eps=1e-15)
    for got, old, want in zip((param, m, v), before, (alone[0], *alone[2:])):
        assert torch.equal(got[::2], want) and not torch.equal(got[::2], old[::2])
        assert torch.equal(got[1::2], old[1::2])
