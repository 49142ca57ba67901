"""What is asked and told of densification events, those to come and those that were. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CandidatesQuestion:
    """What would the next densification do as things stand now?"""


@dataclass(frozen=True)
class EventQuestion:
    """Who took part in an event? `which` counts those of one iteration; `action` "" = all actions."""

    iteration: int
    which: int = 0
    action: str = ""
    first: int = 0
    count: int = 60


@dataclass(frozen=True)
class Kind:
    """One thing that may happen to a Gaussian."""

    name: str                            # field of Foreseen, and mask of a plan
    label: str
    color: tuple[float, float, float]    # in pictures and legends
    help: str


KINDS: tuple[Kind, ...] = (
    Kind("clone", "clone", (0.25, 0.85, 0.45), "Gets an exact copy in its place."),
    Kind("split", "split", (1.0, 0.67, 0.15), "Is replaced by two smaller ones drawn from it."),
    Kind("prune", "prune", (0.95, 0.22, 0.2), "Is removed."),
    Kind("dead", "relocate", (0.35, 0.6, 1.0), "Dead: moves onto one that is alive."),
    Kind("sources", "get copies", (0.72, 0.5, 1.0), "Alive: dead ones move here, or copies are added; all in one place then "
         "share its opacity and size."))
"""In the order of painting: a later one wins where a Gaussian is in two."""


@dataclass(frozen=True)
class Foreseen:
    """Counts of what the next event would do."""

    strategy: str
    clone: int
    split: int
    prune: int
    dead: int
    sources: int
    added: int                # copies that add to the count (mcmc)
    stillborn: int            # children that would be pruned at once
    count: int                # Gaussians now
    after: int                # and then
    cap: int
    iteration: int            # of the Gaussians that were looked at
    left_out: int             # would grow without the cap
    next_event: int | None    # iteration; None = there is none to come
    problem: str              # why nothing would happen

    def of(self, kind: str) -> int:
        return int(getattr(self, kind))


@dataclass(frozen=True)
class Part:
    """What an event did to one Gaussian."""

    uid: int
    action: str               # cloned, split, pruned, relocated or added
    reason: str               # the value that decided, against its limit
    became: tuple[int, ...]   # uids that descend from it by this event
    select: int               # a uid that lives and stands for it; -1 = none


@dataclass(frozen=True)
class EventDetail:
    """An event, or a page of it."""

    iteration: int
    strategy: str
    counts: tuple[tuple[str, int], ...]   # of Gaussians by action
    total: int                            # of the actions asked for
    parts: tuple[Part, ...]
