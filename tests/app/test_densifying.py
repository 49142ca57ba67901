"""The plan of the next densification in the window's terms, events asked for, and their record."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from app import messages as m
from app.config import DensifyConfig, TrainConfig
from app.engine.model import Model
from app.engine.pictures import with_legend
from app.engine.view_modes import MODES, Sight
from app.inspection.densification import event, foreseen
from app.inspection.densification_results import KINDS, CandidatesQuestion, EventQuestion
from app.inspection.questions import Unanswerable
from app.training.densify.records import keep_within, nbytes
from app.training.trainer import Trainer
from tests.app.engine_doubles import running_engine
from tests.training.cases import set_statistic
from tests.training.test_strategies import GROWING, trainer_of
from tests.training.tiny import make_params, make_scene


def model_of(strategy: str, steps: int = 3, **fields) -> Model:
    trainer = trainer_of(strategy, **fields)
    for _ in range(steps):
        trainer.step()
    return Model("tiny", trainer=trainer, scene=trainer.scene)


@pytest.mark.parametrize("strategy", GROWING)
def test_what_is_foreseen_is_what_densify_now_does(strategy):
    model = model_of(strategy, cap=75)
    trainer = model.trainer
    trainer.schedule = replace(trainer.schedule, start=0, every=1, stop=6)   # so that now and the next event are judged alike
    told = foreseen(model, CandidatesQuestion())
    assert (told.strategy, told.count, told.cap, told.next_event) == (strategy, 60, 75, 4)
    record = trainer.strategy.densify_now(trainer.state, 4, trainer.config, trainer.schedule)
    done = record.event
    assert (told.clone, told.split, told.dead, told.added) == (done.cloned, done.split, done.relocated, done.added)
    assert told.after == done.count == len(trainer.params)
    assert told.prune + sum(1 for why in record.why if "born" in why.label for _ in why.uids) == done.pruned


def test_a_plan_is_kept_until_something_moves_and_nothing_else_moves_it():
    model = model_of("adc", grad_threshold=0.5)
    first = model.candidates()
    assert model.candidates() is first
    model.trainer.set_option("densify.grad_threshold", 1e-5)
    model.moved()
    second = model.candidates()
    assert second is not first and int(second.clone.sum() + second.split.sum()) > int(first.clone.sum() + first.split.sum())


def test_the_picture_of_candidates_shows_each_kind_in_its_colour():
    model = model_of("adc", percent_dense=0.03, grad_threshold=0.5)
    trainer = model.trainer
    set_statistic(trainer.state, np.where(np.arange(60) < 25, 1.0, 0.0).astype(np.float32))
    model.moved()
    camera = trainer.views[0].camera
    picture = MODES["candidates"](Sight(model, m.ViewRequest(camera, "candidates"), camera))
    counts = {label: count for label, _, count in picture.legend.entries}
    plan = model.candidates()
    assert counts == {kind.label: n for kind in KINDS if (n := int(getattr(plan, kind.name).sum()))}
    assert sum(counts.values()) == 25
    saturated = picture.rgb.max(axis=2) - picture.rgb.min(axis=2) > 0.2
    assert saturated.any() and not saturated.all()
    set_statistic(trainer.state, np.zeros(60, np.float32))
    model.moved()
    quiet = MODES["candidates"](Sight(model, m.ViewRequest(camera, "candidates"), camera))
    assert not (quiet.rgb.max(axis=2) - quiet.rgb.min(axis=2) > 0.2).any() and "Nothing would happen" in quiet.note
    assert quiet.legend is None


def test_a_saved_picture_of_candidates_names_its_colours():
    entries = (("clone", (0.25, 0.85, 0.45), 1234), ("split", (1.0, 0.67, 0.15), 5))
    saved = with_legend(np.zeros((40, 300, 3), np.float32), m.Legend("next densification", "", 0.0, 1.0, "viridis",
                                                                     entries=entries))
    pixels = np.asarray(saved)
    assert pixels.shape[0] > 60
    for _, color, _ in entries:
        assert (pixels == np.round(255 * np.array(color)).astype(np.uint8)).all(axis=2).sum() > 60


def test_a_ply_has_no_candidates():
    model = Model("a.ply", fixed_params=make_params(5), fixed_backend="cpu")
    camera = make_scene(1).views[0].camera
    assert "PLY" in MODES["candidates"](Sight(model, m.ViewRequest(camera, "candidates"), camera)).note
    for ask, question in ((foreseen, CandidatesQuestion()), (event, EventQuestion(1))):
        with pytest.raises(Unanswerable, match="PLY"):
            ask(model, question)


@pytest.mark.parametrize("strategy", GROWING)
def test_the_record_of_an_event_says_who_and_why_and_what_became(strategy):
    model = model_of(strategy, steps=13, cap=90, grad_threshold=1e-6, absgs_threshold=1e-6)
    trainer = model.trainer
    record = trainer.records[-1]
    detail = event(model, EventQuestion(record.event.iteration, count=1000))
    assert detail.strategy == strategy and detail.total == len(detail.parts) == sum(n for _, n in detail.counts)
    alive = set(trainer.params.uids.tolist())
    for part in detail.parts:
        assert all(trainer.lineage.parent(child) in (part.uid, *record.parents.tolist()) for child in part.became)
        assert part.reason and (part.select == -1 or part.select in alive)
    done = record.event
    assert dict(detail.counts) == {name: count for name, count in (
        ("cloned", done.cloned), ("split", done.split), ("pruned", done.pruned), ("relocated", done.relocated),
        ("added", dict(detail.counts).get("added", 0))) if count}
    first = next(iter(dict(detail.counts)))
    page = event(model, EventQuestion(record.event.iteration, action=first, first=1, count=2))
    assert page.parts == tuple(part for part in detail.parts if part.action == first)[1:3]
    with pytest.raises(Unanswerable, match="not kept"):
        event(model, EventQuestion(7))


def test_old_records_keep_their_counts_alone():
    model = model_of("mcmc", steps=26)
    records = model.trainer.records
    first, last = records[0], records[-1]
    keep_within(records, budget=nbytes(last))
    assert records[-1] is last and records[0].event is first.event and nbytes(records[0]) == 0
    with pytest.raises(Unanswerable, match="only the counts"):
        event(model, EventQuestion(first.event.iteration))
    assert event(model, EventQuestion(last.event.iteration)).parts


def test_reasons_state_the_value_and_the_limit():
    model = model_of("adc", grad_threshold=0.5)
    set_statistic(model.trainer.state, np.where(np.arange(60) == 4, 0.75, 0.0).astype(np.float32))
    model.trainer.densify_now()
    part, = event(model, EventQuestion(3)).parts
    assert part.uid == 4 and part.action in ("cloned", "split") and "0.75 ≥ 0.5" in part.reason and part.became


def test_densify_now_from_the_window():
    config = TrainConfig(iterations=500, densify=DensifyConfig(strategy="mcmc", cap=21))
    with running_engine(config, make_trainer=Trainer) as window:
        window.open()
        window.send(m.Step(2))
        window.until(lambda: window.snapshot.iteration == 2 and window.snapshot.state == "paused")
        window.send(m.DensifyNow())
        window.until(lambda: window.of(m.Densified))
        done, = window.of(m.Densified)
        assert (done.iteration, done.added, done.count, done.asked, done.strategy) == (2, 1, 21, True, "mcmc")
        window.until(lambda: window.snapshot.gaussians == 21)
        for _ in range(2):   # it is said each time
            window.send(m.DensifyNow())
            window.sync()
        told = [n.text for n in window.of(m.Notice) if "Nothing was densified" in n.text]
        assert len(told) >= 2 and "the cap leaves no room" in told[0]
        assert window.snapshot.state == "paused"


def test_densify_now_without_a_run_is_refused():
    with running_engine() as window:
        window.send(m.DensifyNow())
        window.until(lambda: any("no run to densify" in n.text for n in window.of(m.Notice)))


def test_candidates_and_events_are_answered_to_a_panel():
    densify = DensifyConfig(strategy="mcmc", start=0, every=5, stop=400)
    config = TrainConfig(iterations=500, schedule_iterations=30_000, densify=densify)
    with running_engine(config, make_trainer=Trainer) as window:
        window.open()
        window.look(m.ViewRequest(window.opened.views[0].camera, "candidates"))
        questions = {"candidates": CandidatesQuestion(), "event": EventQuestion(5)}
        window.engine.inspect_requests.put(m.InspectRequest(questions))
        window.send(m.Step(7))
        window.until(lambda: window.snapshot.iteration == 7 and all(
            (a := window.snapshot.answers.get(name)) is not None and a.value is not None and a.iteration == 7
            for name in questions))
        assert window.snapshot.answers["candidates"].value.next_event == 10
        assert window.snapshot.answers["event"].value.counts == (("added", 1),)
