"""Instruments of densification: what the next event would do, and what an event did."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from app.inspection.densification_results import KINDS, CandidatesQuestion, EventDetail, EventQuestion, Foreseen, Part
from app.inspection.questions import Unanswerable
from app.training.arrays import host

if TYPE_CHECKING:
    from app.engine.model import Model
    from app.training.densify.base import DensifyRecord, Why

WITHOUT_RUN = "A PLY does not train, so nothing densifies."


def foreseen(model: Model, question: CandidatesQuestion) -> Foreseen:
    """Of the plan that the picture of candidates shows too."""
    plan, trainer = model.candidates(), model.trainer
    if plan is None or trainer is None:
        raise Unanswerable(WITHOUT_RUN)
    counts = {kind.name: int(getattr(plan, kind.name).sum()) for kind in KINDS}
    event = trainer.schedule.next_densification(trainer.iteration)
    return Foreseen(
        trainer.config.densify.strategy, **counts, added=plan.added, stillborn=int(plan.stillborn.sum()),
        count=len(trainer.params), after=plan.count, cap=trainer.cap, left_out=plan.left_out, iteration=model.planned_at,
        next_event=event if event is not None and event <= trainer.config.iterations else None, problem=plan.problem)


def event(model: Model, question: EventQuestion) -> EventDetail:
    """A page of the record of an event. Old records are dropped after some hundred events."""
    trainer = model.trainer
    if trainer is None:
        raise Unanswerable(WITHOUT_RUN)
    records = [r for r in trainer.records if r.event.iteration == question.iteration]
    if question.which >= len(records):
        raise Unanswerable(f"The record of the event at iteration {question.iteration:,} is not kept any more.")
    record, done = records[question.which], records[question.which].event
    if not record.why and done.cloned + done.split + done.pruned + done.relocated + done.added:
        raise Unanswerable(f"Who took part at iteration {question.iteration:,} is not kept any more; only the counts are.")
    whys = [why for why in record.why if question.action in ("", why.action)]
    counts: dict[str, int] = {}
    for why in record.why:
        counts[why.action] = counts.get(why.action, 0) + len(why.uids)
    heirs = _heirs(record)
    alive = set(host(trainer.params.uids).tolist())
    parts = []
    for why, row in _page(whys, question.first, question.count):
        uid = int(why.uids[row])
        became = heirs.get(uid, ())
        living = next((u for u in (uid, *became) if u in alive), -1)
        parts.append(Part(uid, why.action, reason(why, row), became, living))
    return EventDetail(question.iteration, record.event.strategy, tuple(counts.items()), sum(len(w.uids) for w in whys),
                       tuple(parts))


def reason(why: Why, row: int) -> str:
    """In words: the value, the limit that it passed, and what was looked at."""
    value = float(why.values[row])
    if math.isnan(value):
        return why.label if not why.relation else f"{why.label} is not a number"
    if not why.relation:
        return f"{value:.3g}, {why.label}"
    return f"{value:.3g} {why.relation} {why.limit:.3g}, {why.label}"   # the numbers first: columns are narrow


def _page(whys: list[Why], first: int, count: int) -> Iterator[tuple[Why, int]]:
    for why in whys:
        for row in range(first, min(len(why.uids), first + count)):
            yield why, row
            count -= 1
        first = max(0, first - len(why.uids))


def _heirs(record: DensifyRecord) -> dict[int, tuple[int, ...]]:
    """Children by uid; of a moved one, what was born in its stead."""
    heirs: dict[int, tuple[int, ...]] = {}
    moved = len(record.relocated)
    order = np.argsort(record.parents[moved:], kind="stable") + moved
    for child, parent in zip(record.born[order].tolist(), record.parents[order].tolist(), strict=True):
        heirs[parent] = (*heirs.get(parent, ()), child)
    return heirs | {uid: (child,) for uid, child in zip(record.relocated.tolist(), record.born[:moved].tolist(), strict=True)}
