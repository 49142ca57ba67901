"""What the left button can do in the viewport, and what a hand draws with it. No Dear PyGui in here."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from app.messages import SelectHow

MARK = (255, 92, 173, 255)   # selected things are pink; the engine's TINT in app/engine/drawn.py is the same
BRUSH = (4.0, 160.0)    # px at 100 %: the radii of the brush
STEP = 3.0              # px between two points of a lasso or a brush stroke
CLICK = 4.0             # px; a stroke that stays within is a click


@dataclass(frozen=True)
class Tool:
    name: str
    label: str
    key: str
    help: str
    hint: str = ""    # in the viewport while it is in hand


TOOLS: dict[str, Tool] = {tool.name: tool for tool in (
    Tool("navigate", "Click", "V", "Drag turns the camera, a click selects; Alt+click goes through the Gaussians behind it"),
    Tool("rectangle", "Rectangle", "R", "Drag a rectangle: selects the Gaussians whose middle lies inside, at any depth",
         "Rectangle: drag"),
    Tool("lasso", "Lasso", "T", "Drag around what you mean: selects the Gaussians whose middle lies inside, at any depth",
         "Lasso: drag around"),
    Tool("brush", "Brush", "B", "Paint over what you mean; , and . change its size", "Brush: paint, size by , and ."))}


@dataclass
class Stroke:
    """What was drawn since the button went down; px of the canvas."""

    tool: str
    points: list[tuple[float, float]] = field(default_factory=list)
    how: SelectHow = "replace"    # what Shift and Ctrl said when it began

    def extend(self, x: float, y: float) -> None:
        if self.tool == "rectangle":
            self.points[1:] = [(x, y)]
        elif max(abs(x - self.points[-1][0]), abs(y - self.points[-1][1])) >= STEP:
            self.points.append((x, y))

    @property
    def is_click(self) -> bool:
        x, y = np.ptp(np.array(self.points), axis=0)
        return bool(max(x, y) < CLICK)

    def outline(self) -> np.ndarray:
        """[P,2]"""
        points = np.array(self.points)
        if self.tool == "rectangle":
            (x0, y0), (x1, y1) = points[0], points[-1]
            return np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]])
        return points
