"""The model as it was at one iteration: what takes many turns to draw shows one state while training goes on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from app.engine.model import Model
from app.messages import ViewRequest
from app.training.densify.base import Candidates
from app.training.quantities.registry import Reading, Unreadable
from render.types import Camera, GaussianParams


@dataclass
class FrozenModel(Model):
    """A copy of a model's Gaussians, with the numbers per Gaussian that were asked for; it has no trainer."""

    iteration_then: int = 0
    degree_then: int = 0
    backdrop: torch.Tensor | None = None                                  # [3] behind everything; None = as training has it
    readings_then: dict[str, Reading | Unreadable] = field(default_factory=dict)
    plan_then: tuple[Candidates, int] | None = None                       # of the next densification, and its iteration

    @property
    def iteration(self) -> int:
        return self.iteration_then

    @property
    def sh_degree(self) -> int:
        return self.degree_then

    @property
    def background(self) -> torch.Tensor:
        return super().background if self.backdrop is None else self.backdrop

    def reading(self, name: str, camera: Camera | None = None) -> Reading:
        held = self.readings_then.get(name)
        if isinstance(held, Unreadable):
            raise held
        return super().reading(name, camera) if held is None else held


    def candidates(self) -> Candidates | None:
        return self.plan_then[0] if self.plan_then is not None else None

    @property
    def planned_at(self) -> int:
        return self.plan_then[1] if self.plan_then is not None else 0


def freeze(model: Model, requests: Iterable[ViewRequest], marks: Iterable[str]) -> FrozenModel:
    """A copy of what is drawn for the requests: parameters, the marks of these names, and the heatmaps' and filters'
    quantities, and what the next densification would do. A quantity of a view is worked out for each camera later."""
    from app.training.probes import PROBES

    with torch.no_grad():
        tensors = {name: tensor.detach().clone() for name, tensor in model.params.trained().items()}
        params = GaussianParams(**tensors, uids=model.params.uids.clone())
        readings: dict[str, Reading | Unreadable] = {}
        for name in {name for request in requests for name in _quantities(request)}:
            if name in PROBES and PROBES[name].needs == "view":
                continue
            try:
                found = model.reading(name)
                readings[name] = Reading(found.probe, found.values.clone(), found.unseen.clone())
            except Unreadable as refusal:
                readings[name] = refusal
        kept = {name: mark.clone() for name in marks if (mark := model.mark(name)) is not None}
        plan = model.candidates() if any(_shows(request, "candidates") for request in requests) else None
    return FrozenModel(model.path, scene=model.scene, fixed_params=params, fixed_config=model.options,
                       fixed_backend=model.backend, marks=kept, iteration_then=model.iteration, degree_then=model.sh_degree,
                       readings_then=readings, plan_then=None if plan is None else (plan, model.planned_at))


def _shows(request: ViewRequest, mode: str) -> bool:
    return mode in (request.mode, request.beside.mode if request.beside is not None else "")


def _quantities(request: ViewRequest) -> list[str]:
    names = [request.quantity] if request.mode == "heatmap" else []
    if request.beside is not None and request.beside.mode == "heatmap":
        names.append(request.beside.quantity)
    return names if request.keep is None else [*names, request.keep.quantity]
