"""Instrument "chain": from the loss to every parameter of one Gaussian, with the numbers of the last step.

The rasterizer's cotangents (the tap) and the parameters' gradients are the optimiser's own. What lies between is recomputed in
float64 at the parameters that the step saw, and has to end at those gradients: the residual says how well it does.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from app.inspection import links as l
from app.inspection.fate import fate, is_frozen
from app.inspection.questions import ChainQuestion, Unanswerable
from app.inspection.results import AdamState, Chain, Link, Relative, Trail
from app.training import schedule
from app.training.trainer import Trainer
from app.training.updates import gradient_iteration, last_rates, last_update, seen_in_step
from render.config import RasterConfig
from render.reference.project import project
from render.types import PARAM_GROUPS, Camera

if TYPE_CHECKING:
    from app.engine.model import Model

TRAIL = 240
"""Points of a sparkline."""
TRAILED = 16
"""Gaussians whose trails are kept."""
TAPS = {"color": "tap.v_colors", "opacity_eff": "tap.v_opacities", "conic": "tap.v_conics", "mean2D": "tap.v_means2d"}
TRAILS = ("densification statistic", "opacity", "largest scale", "|∂L/∂mean|", "|last update of mean|")
BOTH = "An off-diagonal entry stands for both of the matrix."
SHOWN: tuple[tuple[str, str, tuple[str, ...], str], ...] = (   # node, name, components, help
    ("color", "color", ("r", "g", "b"), "Of the spherical harmonics in this direction, cut off at 0."),
    ("opacity_eff", "opacity_eff", ("",), "Opacity times the compensation of the antialiased mode. Its cotangent is the sum "
                                          "over pixels of ∂L/∂α ∂α/∂raw G; the X-ray shows one pixel's."),
    ("conic", "conic", ("a", "b", "c"), f"Inverse of cov2D, 1/px². {BOTH}"),
    ("mean2D", "mean2D", ("x", "y"), "px; its cotangent feeds the densification statistic."),
    ("cov2D", "cov2D", ("xx", "xy", "yy"), f"px², low-pass included. {BOTH}"),
    ("cov3D", "cov3D", ("xx", "xy", "xz", "yy", "yz", "zz"), f"World units². {BOTH}"),
    ("mean_camera", "mean, camera", ("x", "y", "z"), "In camera space; z is the depth. Through mean2D and the Jacobian."),
    ("opacity", "opacity", ("",), "After the sigmoid."),
    ("scale", "scale", ("x", "y", "z"), "World units."),
    ("quat", "quat", ("w", "x", "y", "z"), "Of unit length."),
    ("mean_projected", "mean, projection", ("x", "y", "z"), "The part of ∂L/∂mean that comes through the projection."),
    ("mean_seen", "mean, SH direction", ("x", "y", "z"), "The part of ∂L/∂mean that comes through the viewing direction."))
RAW = {"means": ("mean", ("x", "y", "z")), "log_scales": ("log_scale", ("x", "y", "z")), "quats": ("quat, raw", tuple("wxyz")),
       "logit_opacities": ("logit_opacity", ("",)), "sh0": ("sh0", ("r", "g", "b")), "shN": ("shN", ())}


@dataclass
class _Recorder:
    """What was seen of Gaussians while their cards were open."""

    points: dict[int, deque[tuple[float, ...]]] = field(default_factory=dict)

    def add(self, uid: int, point: tuple[float, ...]) -> tuple[Trail, ...]:
        """`point`: the iteration, then a number for each of TRAILS."""
        kept = self.points.pop(uid, None) or deque(maxlen=TRAIL)
        self.points[uid] = kept
        while len(self.points) > TRAILED:
            del self.points[next(iter(self.points))]
        if kept and kept[-1][0] > point[0]:
            kept.clear()
        if kept and kept[-1][0] == point[0]:
            kept.pop()
        kept.append(point)
        table = np.array(kept, np.float64)
        return tuple(Trail(label, table[:, 0], table[:, i + 1]) for i, label in enumerate(TRAILS))


_recorders: WeakKeyDictionary[Trainer, _Recorder] = WeakKeyDictionary()


def chain(model: Model, question: ChainQuestion) -> Chain:
    """Raises Unanswerable for a Gaussian that is gone."""
    found = torch.nonzero(model.params.uids == question.uid)
    if not len(found):
        raise Unanswerable(f"Gaussian {question.uid} is gone: it was pruned or split.")
    index = int(found[0, 0])
    raw = {name: tensor.detach()[index:index + 1].cpu().double() for name, tensor in model.params.trained().items()}
    trainer = model.trainer
    if trainer is None or trainer.last_config is None or trainer.last_camera is None:
        return _still(model, question, index, raw)
    return _trained(trainer, question.uid, index, raw)


# ---------------------------------------------------------------------------------------------- without a gradient
def _still(model: Model, question: ChainQuestion, index: int, raw: dict[str, Tensor]) -> Chain:
    trainer = model.trainer
    notes = ["No step was taken yet: there are values, but no gradients." if trainer is not None else
             "This model is only looked at: there are values, but no gradients."]
    nodes: dict[str, Tensor] = {}
    config = model.options.raster
    if question.sight is not None and _in_sight(raw, question.sight.camera, config):
        nodes = l.forward(raw, question.sight.camera, config, model.sh_degree)
    else:
        notes.append("It is not in this picture.")
    links = [_link(name, shown, nodes[name], None, parts, help) for name, shown, parts, help in SHOWN
             if name in nodes and name not in ("mean_projected", "mean_seen")]
    links += [Link(shown, raw[group][0].numpy(), None, "", parts) for group, (shown, parts) in RAW.items()]
    relatives = {} if trainer is None else _relatives(trainer, question.uid)
    return Chain(question.uid, 0, "", tuple(notes), tuple(links), fate=fate(trainer, index) if trainer is not None else None,
                 **relatives)


def _in_sight(raw: dict[str, Tensor], camera: Camera, config: RasterConfig) -> bool:
    opacity = torch.sigmoid(raw["logit_opacities"])
    return bool(project(raw["means"], raw["quats"] / raw["quats"].norm(), raw["log_scales"].exp(), opacity, camera,
                        config).extents[0, 0] > 0)


def _link(node: str, shown: str, value: Tensor, cotangent: Tensor | None, parts: tuple[str, ...], help: str) -> Link:
    source = "rasterizer" if node in l.RASTERIZED and cotangent is not None else ""
    return Link(shown, value.detach().numpy(), None if cotangent is None else cotangent.numpy(), source, parts, help)


# ---------------------------------------------------------------------------------------------- at the last step
def _trained(trainer: Trainer, uid: int, index: int, raw: dict[str, Tensor]) -> Chain:
    rows, config = trainer.state.rows, trainer.last_config
    assert config is not None and trainer.last_camera is not None
    adam, iteration = _adam(trainer, index), gradient_iteration(trainer)
    lost = {state.group for state in adam if np.isnan(state.update).any()}
    updates = {state.group: torch.from_numpy(state.update)[None] for state in adam if state.group not in lost}
    before = {name: raw[name] - updates.get(name, 0.0) for name in PARAM_GROUPS}
    stored = {name: gradient[index].detach().cpu().double() for name, gradient in trainer.gradients().items()}
    notes = _notes(trainer, uid, index, lost)
    links: list[Link] = []
    recomputed: dict[str, Tensor] = {}
    if float(rows["last.extents"][index, 0]) > 0 and all(name in rows for name in TAPS.values()):
        tap = {name: rows[key][index].detach().cpu().double() for name, key in TAPS.items()}
        degree = schedule.resolve(config).sh_degree(iteration, math.isqrt(raw["shN"].shape[1] + 1) - 1)
        nodes = l.forward(before, trainer.last_camera, config.raster, min(degree, config.sh_degree))
        recomputed = l.backward(nodes, tap)
        links = _between(nodes, recomputed, rows.get("tap.v_abs_means2d"), index)
    exact = config.micro_batch == 1
    for group, (shown, parts) in RAW.items():
        gradient, source = stored.get(group), "optimizer"
        # the quaternion's gradient of a nearly round Gaussian is what is left of terms as large as log_scale's
        terms = stored.get("log_scales") if group == "quats" else None
        residual = _residual(recomputed.get(group), gradient, terms) if exact else math.nan
        if group in lost or "log_scales" in lost:   # what it was before is not known, and the size goes into all of them
            residual = math.nan
        links.append(Link(shown, before[group][0].numpy(), None if gradient is None else gradient.numpy(), source, parts,
                          residual=residual))
    view = trainer.views[trainer.last_view_index].name if trainer.last_view_index is not None else ""
    verdict = fate(trainer, index)
    return Chain(uid, iteration, view, tuple(notes), tuple(links), adam, trainer.state.optimizer.steps["means"],
                 verdict, trails=_record(trainer, uid, index, verdict.statistic, stored, adam), **_relatives(trainer, uid))


def _between(nodes: dict[str, Tensor], cotangents: dict[str, Tensor], absolute: Tensor | None, index: int) -> list[Link]:
    links = []
    for name, shown, parts, help in SHOWN:
        links.append(_link(name, shown, nodes[name], cotangents[name], parts, help))
        if name == "mean2D":
            if absolute is not None:
                links.append(Link("mean2D, absolute", nodes[name].detach().numpy(), absolute[index].cpu().double().numpy(),
                                  "rasterizer", parts, "Sum over pixels of |∂L/∂mean2D of that pixel| (AbsGS)."))
            links.append(Link("depth", nodes["mean_camera"][2].detach().numpy(), np.zeros(()), "rasterizer", ("",),
                              "The loss does not look at the depth that is blended, so its cotangent is 0."))
    return links


def _residual(recomputed: Tensor | None, stored: Tensor | None, terms: Tensor | None = None) -> float:
    """Largest difference over the largest entry (of `terms` too); 0 where there is none."""
    if stored is None or not stored.numel():
        return math.nan
    away = float((stored - (0.0 if recomputed is None else recomputed)).abs().max())
    largest = max(float(t.abs().max()) for t in (stored, terms) if t is not None)
    return away / largest if away > 0 and largest > 0 else away


def _adam(trainer: Trainer, index: int) -> tuple[AdamState, ...]:
    """What the optimiser remembers as it is, and what the last step made of it; no update while that is pending."""
    optimizer, rates, states = trainer.state.optimizer, last_rates(trainer), []
    for group, gradient in trainer.gradients().items():
        m, v = (moment[index].detach().cpu().double() for moment in optimizer.moments(group))
        rule, momentum, update = optimizer.rules[group], optimizer.momentum(group), last_update(trainer, group, index)
        if rule == "sgd":
            m, v = (torch.zeros_like(m) if momentum is None else momentum[index].cpu().double()), torch.zeros_like(v)
        states.append(AdamState(group, gradient[index].detach().cpu().double().numpy(), m.numpy(), v.numpy(), rates[group],
                                np.zeros(m.shape) if update is None else update.numpy(), rule))
    return tuple(states)


def _notes(trainer: Trainer, uid: int, index: int, lost: set[str]) -> list[str]:
    notes = []
    assert trainer.last_config is not None
    pending, born, seen = trainer.phase == "backward", trainer.lineage.born(uid), seen_in_step(trainer)
    if pending:
        notes.append("In the middle of a step: the gradients are known, the update is pending, so nothing has moved yet.")
    if born and born == trainer.iteration and not pending:
        notes.append("It was born after this step: the next one gives its first gradient.")
    elif seen is None or not float(seen[index, 0]) > 0:
        notes.append(("It was not in the last view" if trainer.last_config.micro_batch == 1 else
                      "It was in no view of the step") + ": its gradient there is exactly 0"
                     + ("." if pending else ", and sparse Adam let it stand still." if trainer.last_config.sparse_adam else
                        ", and the optimiser moved it by its momentum alone."))
    elif not float(trainer.state.rows["last.extents"][index, 0]) > 0:
        notes.append("It was in other views of the step, not in the last one, so there are no links.")
    if is_frozen(trainer, index):
        notes.append("It is frozen: the gradient is worked out, but the optimiser leaves it alone.")
    if trainer.last_config.micro_batch > 1:
        notes.append(f"The step averaged {trainer.last_config.micro_batch} views: the links are those of the last, the "
                     "gradients of the parameters those of all.")
    if lost:
        what = ", ".join(RAW[group][0] for group in RAW if group in lost)
        notes.append(f"After this step a reset, a relocation or an edit by hand changed it and zeroed what the optimiser "
                     f"remembered, so its update is not known any more ({what}).")
    return notes


def _record(trainer: Trainer, uid: int, index: int, statistic: float, stored: dict[str, Tensor], adam: tuple[AdamState, ...]
            ) -> tuple[Trail, ...]:
    gaussians = trainer.gaussians()
    gradient = float(stored["means"].norm()) if "means" in stored else math.nan
    update = next((float(np.linalg.norm(state.update)) for state in adam if state.group == "means"), math.nan)
    if trainer.phase == "backward":
        update = math.nan
    point = (float(gradient_iteration(trainer)), statistic, float(gaussians.opacities[index]),
             float(gaussians.scales[index].max()), gradient, update)
    return _recorders.setdefault(trainer, _Recorder()).add(uid, point)


def _relatives(trainer: Trainer, uid: int) -> dict[str, Any]:
    """The fields `parent` and `children` of a Chain."""
    parent, children = trainer.lineage.parent(uid), trainer.lineage.children(uid)
    family = [*children] if parent is None else [*children, parent]
    known = np.isin(family, trainer.params.uids.cpu().numpy()).tolist()
    relatives = tuple(Relative(*pair) for pair in zip(family, known, strict=True))
    return {"parent": None if parent is None else relatives[-1], "children": relatives[:len(children)]}
