"""Where on the timeline the window looks: which moments there are, and what is said of them. No Dear PyGui."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from app.gui import formatting
from app.messages import BranchState, Frame, Moment, TimelineState

AT_ONCE = 5.0
"""A replay that takes no more seconds begins when the handle is let go; a longer one waits for its button."""
GUESS = 20.0
"""Steps a second, before any were counted."""


def past(state: TimelineState, name: str) -> Iterator[tuple[BranchState, int]]:
    """(branch, up to which of its iterations it counts) of a branch and those that it grew from."""
    last, branch = 1 << 62, state.branch(name)
    while branch is not None:
        yield branch, last
        last, branch = min(last, branch.fork), state.branch(branch.parent) if branch.parent else None


def kept(state: TimelineState, name: str, *, disk: bool = True) -> list[int]:
    """Iterations of a branch that can be looked at, its parents' included; rising."""
    found: set[int] = set()
    for branch, last in past(state, name):
        found |= {iteration for iteration in branch.kept if iteration <= last}
        if disk:
            found |= {iteration for iteration in branch.on_disk if iteration <= last}
    return sorted(found)


@dataclass(frozen=True)
class Place:
    """The branch that the timeline shows, its last iteration, and the moment that is looked at; None = now."""

    branch: str
    end: int
    moment: Moment | None

    @property
    def at(self) -> int:
        return self.end if self.moment is None else self.moment.iteration


def place(state: TimelineState, now: int, moment: Moment | None) -> Place:
    """A moment of a branch that is gone is now."""
    branch = state.branch(moment.branch) if moment is not None else None
    if moment is None or branch is None:
        return Place(state.current, now, None)
    return Place(moment.branch, now if moment.branch == state.current else branch.tip, moment)


def at(state: TimelineState, branch: str, iteration: int, now: int) -> Moment | None:
    """The look at an iteration of a branch: the end of the one that trains is now."""
    end = place(state, now, Moment(branch, iteration)).end
    iteration = min(max(iteration, 0), end)
    return None if branch == state.current and iteration >= now else Moment(branch, iteration)


def stepped(state: TimelineState, now: int, moment: Moment | None, step: int) -> Moment | None:
    """The kept moment before (-1) or after (1) the one that is looked at."""
    here = place(state, now, moment)
    found = kept(state, here.branch)
    if step < 0:
        before = [iteration for iteration in found if iteration < here.at]
        return at(state, here.branch, before[-1], now) if before else moment
    after = [iteration for iteration in found if iteration > here.at]
    return at(state, here.branch, after[0] if after else here.end, now)


def steps_to(state: TimelineState, moment: Moment) -> int:
    """How many steps a replay of a moment takes; 0 where it is kept."""
    before = [iteration for iteration in kept(state, moment.branch) if iteration <= moment.iteration]
    return moment.iteration - before[-1] if before else moment.iteration


def at_once(state: TimelineState, moment: Moment, steps_per_second: float) -> bool:
    """Whether a replay may begin without being asked for."""
    return 0 < steps_to(state, moment) <= AT_ONCE * (steps_per_second or GUESS)


def words(state: TimelineState, moment: Moment, frame: Frame | None, progress: float | None, *, right: bool = False) -> str:
    """What is said of a moment that is looked at, and of the picture that stands for it."""
    iteration = f"iteration {formatting.count(moment.iteration)}"
    if moment.branch != state.current:
        branch = state.branch(moment.branch)
        iteration = f"{branch.label if branch is not None else moment.branch}: {iteration}"
    if progress is not None:
        return f"{iteration} · replaying, {progress:.0%}"
    shown = None if frame is None else frame.moment_beside if right else frame.moment
    if shown is None:
        return iteration
    if shown == moment:
        again = any(moment.iteration in branch.replayed for branch, _ in past(state, moment.branch))
        return f"{iteration} · {('replayed exactly' if state.exact else 'replayed, close') if again else 'kept'}"
    return f"{iteration} · shown: {formatting.count(shown.iteration)}, kept nearest to it"


def short(state: TimelineState, moment: Moment, frame: Frame | None, *, right: bool = False) -> str:
    """The iteration that a picture shows for a moment."""
    shown = None if frame is None else frame.moment_beside if right else frame.moment
    shown = shown or moment
    branch = state.branch(shown.branch) if shown.branch != state.current else None
    return f"{branch.label}: {formatting.count(shown.iteration)}" if branch is not None else \
        f"iteration {formatting.count(shown.iteration)}"
