"""What open panels ask about the model: answered beside training at the share of the time that SetPace allows, and only while
asked.

An instrument is a function (model, question) -> answer in app/inspection, entered in INSTRUMENTS and imported when the
first question for it arrives.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.data.scene import SceneError
from app.inspection.questions import Unanswerable
from app.messages import Answer, InspectRequest
from render import interrupt

if TYPE_CHECKING:
    from app.engine.loop import Engine
    from app.engine.model import Model

INSTRUMENTS: dict[str, str] = {
    "xray": "app.inspection.xray:xray",
    "chain": "app.inspection.chain:chain",
    "histogram": "app.inspection.quantities:histogram",
    "table": "app.inspection.quantities:table",
    "optimiser": "app.inspection.updates:updates",
    "summary": "app.inspection.quantities:summary",
    "candidates": "app.inspection.densification:foreseen",
    "event": "app.inspection.densification:event",
}
"""Where the function of each instrument stands: "module:function"."""
INTERVAL = 0.1
"""Seconds between two answers to the same question, at least, while the model moves."""


@dataclass
class _Kept:
    """The last answer of an instrument, what it answered and what it cost."""

    answer: Answer
    model: tuple[int, int]
    ended: float = -1e9
    seconds: float = 0.0


class Inspector:
    """Serves the newest InspectRequest, one instrument a turn. `answers` is what the next snapshot carries."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._request = InspectRequest()
        self._seen = 0
        self._kept: dict[str, _Kept] = {}
        self._functions: dict[str, Callable[[Model, Any], Any]] = {}

    @property
    def answers(self) -> dict[str, Answer]:
        return {name: kept.answer for name, kept in self._kept.items()}

    def poll(self) -> None:
        self._seen, newest = self._engine.inspect_requests.newer_than(self._seen)
        if newest is None:
            return
        self._request = newest
        gone = self._kept.keys() - newest.questions.keys()
        for name in gone:
            del self._kept[name]
        if gone:
            self._engine.publisher.dirty = True

    def forget(self) -> None:
        """Another model: no answer holds."""
        self._kept = {}

    # ------------------------------------------------------------------ when

    def due(self) -> float | None:
        """When the next answer should be worked out; None = all hold, or nobody looks."""
        times = [t for t in map(self._due, self._request.questions) if t is not None]
        return min(times) if times else None

    def _due(self, name: str) -> float | None:
        engine, model = self._engine, self._model(name)
        if model is None or engine.control.headless or (engine.viewer.request is not None and engine.viewer.request.hidden):
            return None
        kept = self._kept.get(name)
        if kept is None or kept.answer.question != self._request.questions[name]:
            return -1e9
        if kept.model == (id(model), model.version):
            return None
        return kept.ended + (max(INTERVAL, engine.control.pace.panel_wait * kept.seconds) if engine.training else 0.0)

    # ------------------------------------------------------------------ answering

    def answer(self) -> None:
        """Work out what has been due the longest. Raises interrupt.Interrupted when it was given up; it is due again."""
        now = self._engine.clock()
        due = {name: t for name in self._request.questions if (t := self._due(name)) is not None and t <= now}
        if due:
            self._answer(min(due, key=lambda name: due[name]))

    def _answer(self, name: str) -> None:
        engine, model, question = self._engine, self._model(name), self._request.questions[name]
        assert model is not None
        key, begun, value, problem = (id(model), model.version), engine.clock(), None, ""
        try:
            with interrupt.interruptible():
                value = self._function(name)(model, question)
        except (Unanswerable, SceneError) as error:
            problem = str(error)
        except interrupt.Interrupted:
            raise
        except Exception:   # not tried again until the question or the model changes
            self._kept[name] = _Kept(Answer(question, None, "This could not be worked out; see the message."), key)
            raise
        seconds = engine.clock() - begun
        answer = Answer(question, value, problem, model.iteration, 1e3 * seconds)
        self._kept[name] = _Kept(answer, key, engine.clock(), seconds)
        engine.publisher.dirty = True

    def _model(self, name: str) -> Model | None:
        """Whom a question is about: a pixel's is of the moment that the picture there shows, all others are of the run."""
        engine, question = self._engine, self._request.questions[name]
        if name != "xray" or engine.model is None or engine.viewer.request is None:
            return engine.model
        return engine.timeline.looks.model_under(engine.viewer.request, question.x / max(question.sight.camera.width, 1))

    def _function(self, name: str) -> Callable[[Model, Any], Any]:
        if name not in self._functions:
            if name not in INSTRUMENTS:
                raise Unanswerable(f"There is no instrument {name}.")
            module, function = INSTRUMENTS[name].split(":")
            self._functions[name] = getattr(importlib.import_module(module), function)
        return self._functions[name]
