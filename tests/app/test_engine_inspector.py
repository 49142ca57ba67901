"""Open panels get answers beside training, at a bounded share of it; what nobody asks costs nothing."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass

import pytest

from app import messages as m
from app.engine import inspector
from app.engine.inspector import Unanswerable
from tests.app.engine_doubles import request_for, running_engine, trainer_class


@dataclass(frozen=True)
class Question:
    value: int = 1


@pytest.fixture
def instrument(monkeypatch):
    """An instrument "count" whose function a test may replace; counts its calls."""
    module = types.ModuleType("instruments_of_a_test")
    module.calls = []
    module.function = lambda model, question: (model.iteration, question.value)
    module.count = lambda model, question: (module.calls.append(question), module.function(model, question))[1]
    monkeypatch.setitem(sys.modules, "instruments_of_a_test", module)
    monkeypatch.setitem(inspector.INSTRUMENTS, "count", "instruments_of_a_test:count")
    return module


def ask(window, **questions) -> None:
    window.engine.inspect_requests.put(m.InspectRequest(questions))


def answered(window, question, iteration=None):
    """The answer to `question` (at an iteration) once it is there."""
    def there():
        answer = window.snapshot.answers.get("count")
        return answer is not None and answer.question == question and (iteration is None or answer.iteration == iteration)
    window.until(there)
    return window.snapshot.answers["count"]


def test_a_question_is_answered_once_and_again_when_it_or_the_model_changes(instrument):
    with running_engine(make_trainer=trainer_class()) as window:
        window.open()
        ask(window, count=Question(1))
        assert answered(window, Question(1)).value == (0, 1)
        ask(window, count=Question(2))
        assert answered(window, Question(2)).value == (0, 2)
        window.send(m.Step(1))
        assert answered(window, Question(2), 1).value == (1, 2)
        window.send(m.Pause())
        window.sync()
        assert len(instrument.calls) <= 4   # pausing asks nothing again
        ask(window)
        window.until(lambda: not window.snapshot.answers)


def test_while_training_answers_take_a_bounded_share_of_the_time(instrument):
    import time

    def slow(model, question):
        time.sleep(0.02)
        return model.iteration
    instrument.function = slow
    with running_engine(make_trainer=trainer_class(step_seconds=0.002)) as window:
        window.open(play=True)
        ask(window, count=Question())
        begun = time.monotonic()
        window.until(lambda: len(instrument.calls) >= 5)
        assert len(instrument.calls) * 0.02 <= 0.3 * (time.monotonic() - begun) + 0.02
        assert window.snapshot.iteration > 20


def test_nothing_is_answered_while_nobody_can_look(instrument):
    with running_engine(make_trainer=trainer_class(step_seconds=0.002)) as window:
        window.open(play=True)
        window.look(request_for(window, hidden=True))
        at = window.snapshot.iteration
        window.until(lambda: window.snapshot.iteration > at + 3)
        ask(window, count=Question())
        at = window.snapshot.iteration
        window.until(lambda: window.snapshot.iteration > at + 10)
        assert not instrument.calls
        window.look(request_for(window))
        answered(window, Question())


def test_a_question_without_an_answer_gets_a_sentence_and_an_instrument_that_breaks_is_said_once(instrument):
    def refuse(model, question):
        raise Unanswerable("No pixel is pinned.")
    instrument.function = refuse
    with running_engine() as window:
        window.open()
        ask(window, count=Question(1))
        answer = answered(window, Question(1))
        assert answer.value is None and answer.problem == "No pixel is pinned."

        def broken(model, question):
            raise KeyError("oh")
        instrument.function = broken
        ask(window, count=Question(2))
        window.until(lambda: window.of(m.EngineFailed))
        calls = len(instrument.calls)
        window.send(m.Pause())
        window.sync()
        assert len(instrument.calls) == calls and len(window.of(m.EngineFailed)) == 1


def test_an_unknown_instrument_is_said(instrument):
    with running_engine() as window:
        window.open()
        ask(window, nothing=Question())
        window.until(lambda: "nothing" in window.snapshot.answers)
        assert "no instrument nothing" in window.snapshot.answers["nothing"].problem
