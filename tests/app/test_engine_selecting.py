"""Selecting many Gaussians, what is done to them, undo: by real commands to a real engine on a tiny scene."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from app import messages as m
from app.config import DensifyConfig, TrainConfig
from app.engine import edits
from app.engine.drawn import OUTLINES, drawn
from app.engine.model import Model
from app.engine.picking import at_pixel, in_region, painted
from app.training.marks import FROZEN, HIDDEN, SELECTED
from app.training.trainer import Trainer
from tests.app.engine_doubles import Window, make_engine, request_for, running_engine
from tests.training.tiny import make_params, make_scene

SIZE = 48


def config(**densify) -> TrainConfig:
    return TrainConfig(iterations=1000, schedule_iterations=30_000, densify=DensifyConfig(strategy="none", **densify))


@pytest.fixture
def window():
    """An engine with a real trainer on the CPU, paused after three steps."""
    with running_engine(config(), make_trainer=Trainer, backend="cpu") as window:
        window.open()
        window.look(request_for(window, width=SIZE, height=SIZE))
        window.send(m.Step(3))
        window.until(lambda: window.snapshot.iteration == 3 and window.snapshot.state == "paused")
        yield window


def model_of(window: Window) -> Model:
    assert window.engine.model is not None
    return window.engine.model


def chosen(window: Window, mark: str = SELECTED) -> set[int]:
    """uids that carry a mark."""
    window.sync()
    model = model_of(window)
    mask = model.mark(mark)
    return set() if mask is None else set(model.params.uids[mask].tolist())


def uids(window: Window) -> list[int]:
    return model_of(window).params.uids.tolist()


def camera_of(window: Window):
    return request_for(window, width=SIZE, height=SIZE).camera


def whole(camera) -> np.ndarray:
    return np.array([[0, 0], [camera.width, 0], [camera.width, camera.height], [0, camera.height]], float)


def test_click_selects_shift_adds_ctrl_removes_and_alt_goes_through_the_contributors(window):
    camera = camera_of(window)
    ranked = at_pixel(model_of(window), camera, 24, 24).tolist()
    assert len(ranked) >= 3
    window.send(m.Select(camera, 24, 24))
    assert chosen(window) == {ranked[0]} and window.snapshot.selected.uid == ranked[0]
    for uid in (*ranked[1:], ranked[0]):   # and round again
        window.send(m.Select(camera, 24, 24, cycle=True))
        assert chosen(window) == {uid} and window.snapshot.selected.uid == uid
    window.send(m.Select(uid=ranked[1], how="add"))
    assert chosen(window) == {ranked[0], ranked[1]} and window.snapshot.selected.uid == ranked[1]
    window.send(m.Select(uid=ranked[1], how="remove"))
    assert chosen(window) == {ranked[0]}
    window.send(m.Select(camera, 0, 0, how="add"))   # nothing is there
    assert chosen(window) == {ranked[0]}
    window.send(m.Select(camera, 0, 0))
    assert chosen(window) == set() and window.snapshot.selection.selected == 0


def test_regions_take_the_means_inside_at_any_depth(window):
    camera, model = camera_of(window), model_of(window)
    means = model.params.means.detach().numpy().astype(float)
    local = means @ camera.viewmat[:3, :3].T + camera.viewmat[:3, 3]
    pixels = local[:, :2] / local[:, 2:] * camera.K[[0, 1], [0, 1]] + camera.K[:2, 2]
    left = np.array([[0, 0], [24, 0], [24, SIZE], [0, SIZE]], float)
    clear = np.abs(pixels[:, 0] - 24) > 1.0   # the outline goes through pixels
    inside = (pixels[:, 0] < 24) & (pixels[:, 0] >= 0) & (pixels[:, 1] >= 0) & (pixels[:, 1] < SIZE)
    window.send(m.SelectRegion(camera, left))
    found = chosen(window)
    assert 0 < len(found) < len(means)
    assert {uid for uid, c in zip(uids(window), clear) if c and uid in found} == {
        uid for uid, c, i in zip(uids(window), clear, inside) if c and i}
    middle = pixels[5]
    window.send(m.SelectRegion(camera, middle[None], 1.5))
    assert uids(window)[5] in chosen(window)
    window.send(m.SelectRegion(camera, whole(camera), how="add"))
    everything = chosen(window)
    window.send(m.SelectRegion(camera, left, how="remove"))
    assert chosen(window) == everything - found
    assert not painted(10, 10, np.array([[1.0, 1.0], [5.0, 5.0]]), None).any()   # two points enclose nothing


def test_by_value_all_none_invert_grow(window):
    camera, model = camera_of(window), model_of(window)
    reading = model.reading("largest_scale")
    lo, hi = np.quantile(reading.values.numpy(), [0.25, 0.5])
    window.send(m.SelectRange("largest_scale", float(lo), float(hi)))
    inside = ((reading.values >= lo) & (reading.values <= hi)).numpy()
    few = chosen(window)
    assert few == set(np.array(uids(window))[inside].tolist()) and few
    window.send(m.SelectMore("grow"))
    assert chosen(window) > few
    window.send(m.Undo(), m.SelectMore("invert"))
    assert chosen(window) == set(uids(window)) - few
    window.send(m.SelectMore("all"))
    assert chosen(window) == set(uids(window))
    window.send(m.SelectMore("none"))
    assert not chosen(window)
    window.send(m.SelectRange("contribution", 0.5, 1e9, camera=camera))
    assert chosen(window) and window.snapshot.selection.undo == "selecting by value"
    window.send(m.SelectRange("no such thing", 0.0, 1.0))
    window.sync()
    assert "no quantity" in window.of(m.Notice)[-1].text


def test_what_is_frozen_keeps_its_bits_while_the_rest_trains(window):
    model = model_of(window)
    window.send(m.Select(uid=3), m.Select(uid=4, how="add"), m.Operate("freeze"))
    assert chosen(window, FROZEN) == {3, 4}
    before = {name: tensor.detach().clone() for name, tensor in model.params.trained().items()}
    window.send(m.Step(5))
    window.until(lambda: window.snapshot.iteration == 8)
    frozen = model.mark(FROZEN)
    for name, tensor in model.params.trained().items():
        assert torch.equal(tensor[frozen], before[name][frozen]), name
        if name != "shN":
            assert not torch.equal(tensor[~frozen], before[name][~frozen]), name
    update = model.reading("adam_means").values
    assert (update[frozen] == 0).all() and (update[~frozen] > 0).any()
    window.send(m.Undo())
    assert chosen(window, FROZEN) == set()
    window.send(m.Redo(), m.Operate("unfreeze_all"))
    assert chosen(window, FROZEN) == set()
    window.send(m.Step(1))
    window.until(lambda: window.snapshot.iteration == 9)
    assert not torch.equal(model.params.means[3].detach(), before["means"][3])


def test_densification_and_resets_leave_the_frozen_alone_and_children_inherit(monkeypatch):
    trainer = Trainer(make_scene(), replace(config(), densify=DensifyConfig(grad_threshold=1e-9)), backend="cpu",
                      params=make_params(30))
    rows = trainer.state.rows
    for _ in range(2):
        trainer.step()
    frozen = torch.zeros(30, dtype=torch.bool)
    frozen[:5] = True
    rows.put(FROZEN, frozen)
    rows.put(SELECTED, ~frozen & (torch.arange(30) < 12))
    kept = trainer.params.log_scales[:5].detach().clone()
    logits = trainer.params.logit_opacities[:5].detach().clone()
    record = trainer.strategy.densify(trainer.state, 3, trainer.config.densify, after_reset=False)
    trainer.edited()
    assert record.event.split + record.event.cloned >= 20
    assert rows["uids"][:5].tolist() == [0, 1, 2, 3, 4] and torch.equal(rows["log_scales"][:5].detach(), kept)
    assert not rows[FROZEN][5:].any() and not set(record.parents.tolist()) & set(range(5))
    alive, selected = rows["uids"].tolist(), set(rows["uids"][rows[SELECTED]].tolist())
    ancestors = trainer.lineage.ancestors(np.array(alive), 30)
    assert selected == {uid for uid, old in zip(alive, ancestors) if 5 <= old < 12} and max(selected) >= 30
    from app.training.densify.operations import reset_opacities
    reset_opacities(trainer.state, 3, trainer.config)
    assert torch.equal(rows["logit_opacities"][:5].detach(), logits)
    assert rows["logit_opacities"][5:].max() < logits.min()
    monkeypatch.setattr(type(trainer.strategy), "after_step", lambda *_: None)
    trainer.step()   # every array still fits


def test_hidden_gaussians_are_neither_drawn_nor_picked_and_training_does_not_notice(window):
    camera, request = camera_of(window), window.engine.viewer.request
    strongest, second = at_pixel(model_of(window), camera, 24, 24)[:2].tolist()
    window.send(m.Select(camera, 24, 24), m.Operate("hide"))
    assert chosen(window, HIDDEN) == {strongest} and window.snapshot.selection.hidden == 1
    parts = drawn(model_of(window), request)
    assert "1 of 20 Gaussians are not drawn" in parts.note and parts.gaussians.opacities.min() == 0
    frame = window.frame_of(window.look(replace(request, histogram=False)))
    assert "not drawn" in frame.note
    window.send(m.Select(camera, 24, 24))
    assert chosen(window) == {second}
    window.send(m.Operate("isolate"))
    assert chosen(window, HIDDEN) == set(uids(window)) - {second}
    assert not in_region(model_of(window), camera, whole(camera), None, drawn(model_of(window), request)).sum() > 1
    window.send(m.Operate("show_all"))
    assert not chosen(window, HIDDEN)
    keep = m.Keep("opacity", 2.0, 3.0)   # no opacity is that large
    frame = window.frame_of(window.look(replace(request, keep=keep)))
    assert np.allclose(frame.rgba[..., :3], model_of(window).background.numpy(), atol=1e-6)
    assert "20 of 20" in frame.note


def test_deleting_and_its_undo_bring_back_all_that_belongs_to_a_gaussian(window):
    model = model_of(window)
    rows = model.trainer.state.rows
    before = {name: rows[name].detach().clone() for name in rows}
    window.send(m.Select(uid=3), m.Select(uid=7, how="add"), m.Operate("delete"))
    window.sync()
    assert len(rows) == 18 and not {3, 7} & set(uids(window)) and window.snapshot.gaussians == 18
    assert window.snapshot.selected is None and window.snapshot.selection.selected == 0
    window.send(m.Undo())
    assert chosen(window) == {3, 7}
    order = torch.argsort(rows["uids"])
    for name, old in before.items():
        assert torch.equal(rows[name].detach()[order], old), name
    window.send(m.Redo(), m.Step(2))
    window.until(lambda: window.snapshot.iteration == 5)
    assert len(rows) == 18
    window.send(m.Undo(), m.Step(1))
    window.until(lambda: window.snapshot.iteration == 6)
    assert len(rows) == 20
    window.send(m.SelectMore("all"), m.Operate("delete"))
    window.sync()
    assert len(rows) == 20 and "has to stay" in window.of(m.Notice)[-1].text


def test_resetting_opacities_of_the_selected_and_its_undo(window):
    model = model_of(window)
    before = model.params.logit_opacities.detach().clone()
    window.send(m.Step(1))
    window.until(lambda: window.snapshot.iteration == 4)
    before = model.params.logit_opacities.detach().clone()
    window.send(m.Select(uid=3), m.Operate("reset_opacity"))
    window.sync()
    opacity = torch.sigmoid(model.params.logit_opacities.detach())
    assert opacity[3] <= 0.0101 and torch.equal(model.params.logit_opacities.detach()[4:], before[4:])
    assert model.trainer.state.optimizer.moments("logit_opacities")[0][3] == 0
    window.send(m.Undo())
    window.sync()
    assert torch.equal(model.params.logit_opacities.detach(), before)


def test_undo_after_a_densification_selects_the_descendants():
    trainer = Trainer(make_scene(), replace(config(), densify=DensifyConfig(grad_threshold=1e-9)), backend="cpu",
                      params=make_params(30))
    trainer.step()
    model = Model("tiny", trainer, trainer.scene)
    old = edits.Marked.of(model, np.arange(30) < 4)
    trainer.strategy.densify(trainer.state, 2, trainer.config.densify, after_reset=False)
    later = edits.Marked.of(model, model.params.uids.numpy() < 4)    # of after: children born before it are not meant
    ancestors = trainer.lineage.ancestors(model.params.uids.numpy(), 30)
    assert (old.living(model) == (ancestors < 4)).all() and old.living(model).sum() >= 4
    assert (later.living(model) == (model.params.uids.numpy() < 4)).all()


def test_who_is_inspected_and_splits_hands_on_to_a_child():
    engine = make_engine()
    trainer = Trainer(make_scene(), replace(config(), densify=DensifyConfig(grad_threshold=1e-9)), backend="cpu",
                      params=make_params(30))
    trainer.step()
    engine.model = Model("tiny", trainer, trainer.scene)
    record = trainer.strategy.densify(trainer.state, 2, trainer.config.densify, after_reset=False)
    parent = int(record.split[0])
    assert engine.selection.heir(parent) is None   # it was not selected
    engine.model.set_mark(SELECTED, np.isin(trainer.params.uids.numpy(), record.born))
    heir = engine.selection.heir(parent)
    assert heir is not None and trainer.lineage.parent(heir) == parent


def test_a_ply_is_selected_hidden_and_cut_as_well():
    params = make_params(12)
    model = Model("still", fixed_params=params, fixed_backend="cpu")
    model.set_mark(SELECTED, np.arange(12) < 3)
    removal = edits.Removal(model, np.arange(12) < 3)
    removal.apply(model)
    assert len(model.params) == 9 and not bool(model.mark(SELECTED).any())
    removal.revert(model)
    assert sorted(model.params.uids.tolist()) == list(range(12)) and model.mark(SELECTED).sum() == 3
    model.set_mark(SELECTED, np.zeros(12, bool))
    assert model.mark(SELECTED) is None


def test_few_selected_come_as_outlines_and_many_as_a_tint(window, monkeypatch):
    request = window.engine.viewer.request
    plain = window.frame_of(window.look(replace(request, histogram=False)))
    assert plain.outlines is None
    window.send(m.SelectMore("all"))
    window.until(lambda: window.snapshot.frame.outlines is not None)
    frame = window.snapshot.frame
    assert 1 <= len(frame.outlines) <= 20 and np.array_equal(frame.rgba, plain.rgba)
    model, first = model_of(window), frame.outlines[0]
    assert first.shape == (5,) and first[2] > 0 and first[2] * first[4] > first[3] ** 2
    monkeypatch.setattr("app.engine.drawn.OUTLINES", 3)
    frame = window.frame_of(window.look(replace(request, log_scale=False)))
    assert frame.outlines is None
    output = model.render(request.camera)
    covered = 1.0 - output.transmittances.numpy()
    changed = np.abs(frame.rgba[..., :3] - plain.rgba[..., :3]).max(2)
    assert changed.max() > 0.1 and (changed[covered < 1e-6] < 1e-6).all()
    assert OUTLINES == 200


def test_what_comes_back_after_more_training_brings_no_gradients_of_then():
    """Card and heatmap call them those of the last step; rows that took no part in it have none."""
    import numpy as np
    import torch

    from app.config import TrainConfig
    from app.engine.edits import Removal
    from app.engine.model import Model
    from app.training.trainer import Trainer
    from tests.training.tiny import make_scene

    trainer = Trainer(make_scene(3, 12, size=32, points=30), TrainConfig(iterations=1000), backend="cpu")
    model = Model("", trainer, trainer.scene)
    trainer.step()
    mask = np.zeros(30, bool)
    mask[:5] = True
    for steps in (0, 1):
        uids = trainer.params.uids[:5].clone()
        moments = trainer.state.optimizer.moments("means")[0][:5].clone()
        edit = Removal(model, mask)
        edit.apply(model)
        for _ in range(steps):
            trainer.step()
        edit.revert(model)
        rows = trainer.state.rows
        assert torch.equal(rows["uids"][-5:], uids) and torch.equal(rows["adam.exp_avg.means"][-5:], moments)
        assert bool(rows["grad.means"][-5:].any()) == (steps == 0) == bool(rows["last.extents"][-5:].any())
        mask = np.zeros(30, bool)
        mask[:5] = True


def test_quantities_of_a_view_are_kept_for_a_few_cameras_only():
    from app.config import TrainConfig
    from app.engine.model import KEPT_VIEWS, Model
    from app.training.trainer import Trainer
    from tests.training.tiny import make_scene, ring

    trainer = Trainer(make_scene(3, 12, size=32, points=30), TrainConfig(iterations=1000), backend="cpu")
    model = Model("", trainer, trainer.scene)
    readings = [model.reading("contribution", camera) for camera in ring(9, 32, 32)]
    assert len(model._readings) <= KEPT_VIEWS
    assert model.reading("contribution", ring(9, 32, 32)[8]) is readings[-1]
