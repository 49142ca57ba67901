"""Which moments of the past the window looks at, and what it sees of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from app.engine.background import Background
from app.engine.timeline.branches import Branch
from app.engine.timeline.ring import Kept
from app.messages import Moment, ViewRequest

if TYPE_CHECKING:
    from app.engine.loop import Engine
    from app.engine.model import Model
    from app.engine.timeline.timeline import Timeline


class Looks:
    """`held` are the moments that a picture is of now."""

    def __init__(self, engine: Engine, timeline: Timeline) -> None:
        self._engine, self._timeline = engine, timeline
        self.reading: tuple[Branch, int, Background] | None = None   # a file that is read to be looked at
        self.forget()

    def forget(self) -> None:
        """Another run."""
        self.held: tuple[Kept, ...] = ()
        self._found: tuple[Any, tuple[Kept | None, Kept | None]] = (None, (None, None))
        self._models: dict[tuple[int, str], Model] = {}
        if self.reading is not None:
            self.reading[2].cancel()
            self.reading = None

    def again(self) -> None:
        """There may be nearer moments than before."""
        self._found = None, (None, None)

    def let_go(self, kept: Kept) -> None:
        """A moment is not in memory any more."""
        self._models = {key: model for key, model in self._models.items() if key[0] != kept.serial}

    def sides(self, request: ViewRequest | None) -> tuple[Kept | None, Kept | None]:
        """The moments in the left and right part of a picture; None = the run as it is now, or no right part."""
        if request is None or not self._timeline.current:
            return None, None
        beside = request.beside.moment if request.beside is not None else None
        if request.moment is None and beside is None:
            self.held = ()
            return None, None
        key = request.moment, beside, self._timeline.ring.version
        if self._found[0] != key:
            self._found = key, (self._look(request.moment), self._look(beside))
            self.held = tuple(kept for kept in self._found[1] if kept is not None)
        return self._found[1]

    def _look(self, moment: Moment | None) -> Kept | None:
        if moment is None or moment.branch not in self._timeline.branches:
            return None
        kept = self._timeline.nearest(moment)
        away = abs(kept.iteration - moment.iteration) if kept is not None else 1 << 62
        file = min(self._timeline.files(moment.branch), key=lambda found: abs(found[1] - moment.iteration), default=None)
        if file is not None and abs(file[1] - moment.iteration) < away and self.reading is None:
            self._read(*file)
        return kept

    def _read(self, of: Branch, iteration: int) -> None:
        """Begin to read a file in a helper thread; advance() takes in what it brings."""
        from app.engine.timeline.replay import read_file

        path = of.on_disk[iteration]
        self.reading = of, iteration, self._engine.background(lambda report: read_file(path), "moment")

    def advance(self) -> None:
        """Each turn: take in a moment that was read from disk."""
        if self.reading is None or not self.reading[2].done.is_set():
            return
        of, iteration, helper = self.reading
        self.reading = None
        if helper.error is not None or of.name not in self._timeline.branches:   # thinned out, or damaged: looked for no more
            of.on_disk.pop(iteration, None)
        else:
            if not self._timeline.put(self._timeline.from_file(of, iteration, helper.result)):
                of.on_disk.pop(iteration, None)   # it does not fit: do not read it again and again
        self.again()
        self._timeline.changed()

    def model_of(self, kept: Kept) -> Model:
        """Its Gaussians, to be drawn."""
        from app.engine.timeline.replay import MomentModel

        live = self._engine.model
        assert live is not None
        key = kept.serial, live.backend
        if key not in self._models:
            looked = {kept.serial for kept in self.held}
            self._models = {old: model for old, model in self._models.items() if old[0] in looked and old[1] == key[1]}
            self._models[key] = MomentModel.of(kept, live)
        return self._models[key]

    def models(self, request: ViewRequest) -> tuple[Model, Model]:
        """What the left and the right part of a picture are drawn of."""
        live = self._engine.model
        assert live is not None
        left, right = self.sides(request)
        return live if left is None else self.model_of(left), live if right is None else self.model_of(right)

    def model_under(self, request: ViewRequest, share: float) -> Model:
        """What is drawn at a share of the picture's width."""
        left, right = self.models(request)
        return right if request.beside is not None and share >= request.beside.share else left

    def shown(self, request: ViewRequest) -> tuple[Moment | None, Moment | None]:
        """Which moments a picture that answers the request is of."""
        left, right = self.sides(request)
        asked = request.moment, request.beside.moment if request.beside is not None else None
        return tuple(None if kept is None or moment is None else Moment(moment.branch, kept.iteration)   # type: ignore[return-value]
                     for kept, moment in zip((left, right), asked, strict=True))

    def key(self, request: ViewRequest | None) -> tuple[Any, int]:
        """Equal as long as a picture that answers the request would be the same."""
        model = self._engine.model
        left, right = self.sides(request)
        beside = request.beside if request is not None else None
        live = left is None or (beside is not None and right is None)
        looked = tuple(kept.serial for kept in (left, right) if kept is not None)
        version = model.version if model is not None and live else 0
        return (id(model), model.backend if model is not None and looked else "", looked), version if model is not None else -1
