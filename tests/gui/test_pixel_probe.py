"""Which pixel is looked into: hovering, pinning, and where the mark stands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from app.gui import overlay
from app.gui.pixel_probe import HOVER_SECONDS, PixelProbe, along_ray, place, question_at
from app.messages import Frame, ViewRequest
from tests.gui.fake_engine import ring_of_views

VIEWS = ring_of_views(3, 320, 240)


def frame(width: int, height: int, view: int | None) -> Frame:
    camera = VIEWS[1].camera.resized(width, height)
    return Frame(np.zeros((1, 1, 4), np.float32), camera, "color", request=ViewRequest(camera, view_index=view))


def test_at_a_photograph_it_is_the_photographs_own_pixel_else_the_pictures() -> None:
    q = question_at(frame(640, 480, 1), 101.0, 51.0, VIEWS)
    assert (q.x, q.y, q.view, q.sight.width) == (50, 25, 1, 320)
    q = question_at(frame(640, 480, None), 101.5, 51.5, VIEWS)
    assert (q.x, q.y, q.view, q.sight.width) == (101, 51, None, 640)
    assert question_at(frame(640, 480, 1), 639.999, 479.999, VIEWS).x == 319
    assert question_at(frame(640, 480, 1), 101.0, 51.0, VIEWS) == question_at(frame(640, 480, 1), 101.2, 51.0, VIEWS)


def test_the_mark_stands_on_the_pixel_at_every_size_and_nowhere_from_elsewhere() -> None:
    q = question_at(frame(320, 240, 1), 50.5, 25.5, VIEWS)
    for width, height in ((320, 240), (640, 480), (100, 200)):
        at = place(q, VIEWS[1].camera.resized(width, height))
        assert at == pytest.approx((50.5 * width / 320, 25.5 * height / 240))
    assert place(q, VIEWS[2].camera) is None


def test_hovering_follows_at_a_bounded_rate_and_a_pin_stays() -> None:
    probe = PixelProbe()
    assert probe.question(0.0) is None and not probe.toggle()
    first = question_at(frame(320, 240, 1), 10, 10, VIEWS)
    other, third = (replace(first, x=x) for x in (90, 200))
    probe.point(first)
    assert probe.question(1.0) == first
    probe.point(other)
    assert probe.question(1.0 + 0.5 * HOVER_SECONDS) == first
    assert probe.question(1.0 + 1.5 * HOVER_SECONDS) == other
    probe.point(None)   # over a panel: the last pixel stays
    assert probe.question(9.0) == other
    assert probe.toggle() and probe.pinned == other
    probe.point(third)
    assert probe.question(10.0) == other
    assert probe.toggle() and probe.pinned == third   # another pixel: that one is pinned instead
    probe.point(replace(third, y=third.y + 2))
    assert not probe.toggle() and probe.pinned is None   # as good as the same one: let go
    probe.forget()
    assert probe.question(20.0) is None


def test_points_on_the_ray_project_onto_the_pixel_at_their_depth() -> None:
    q = question_at(frame(320, 240, 1), 50.5, 25.5, VIEWS)
    pixels, z = overlay.project(along_ray(q, np.array([0.5, 2.0, 7.0])), VIEWS[1].camera)
    np.testing.assert_allclose(pixels, [[50.5, 25.5]] * 3, atol=1e-9)
    np.testing.assert_allclose(z, [0.5, 2.0, 7.0])
