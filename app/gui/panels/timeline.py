"""The timeline between picture and plots: drag to any earlier iteration, look, compare, go on from there."""

from __future__ import annotations

from collections.abc import Callable

from app.gui import looking_back
from app.gui.formatting import count
from app.gui.layout import Rect
from app.gui.theme import BODY, Color, Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, button, shortened, show, text_width, tooltip
from app.messages import BranchState, Moment, Replay, TimelineState

HEIGHT = 34
COMBO, NARROW = 104, 500      # px at 100 %; below the second only the most needed has room
ARROW = 38                    # px at 100 % of the box that hold no text
BUTTONS, BUTTONS_NARROW = 44 + 52 + 70 + 76 + 4 * 4, 44 + 76 + 4 * 2   # widths and gaps
LINE = 24                     # y of the axis
GRAB = 9
REDRAW = 0.25                 # s between two drawings while the axis grows by a pixel or more
NUMBERS = 10                  # px at 100 %, of the scale
LEGEND = ("Drag to look at an earlier iteration; End is now.\n"
          "Up, grey: a moment kept in memory. Up, white and longer: a checkpoint on disk.\n"
          "Down, grey: a densification. Amber: an opacity reset. Green: an evaluation. Teal: an option was changed. "
          "Red: Gaussians were edited by hand.\nViolet triangle: a branch begins.")
NOW, AT_NOW = "Back to the run as it is  (End)", "The picture shows the run as it is now: drag the handle to look back"
EXACT = ("Reach this very iteration: a copy of the run trains to it from the kept moment before it, with the options changed "
         "as they were")
IS_EXACT = "What is shown is a moment that was kept: there is nothing to replay. Between two kept moments this reaches it."
BRANCH = "The branch that the timeline shows. The one that trains goes on meanwhile."
FORK: Color = (196, 131, 184, 255)
LEFT = 0


class TimelineBar:
    title = "Timeline"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._width = 10
        self._key: object = None
        self._drawn_at = -1e9
        self._held = ""             # "left" or "right": the handle that is dragged
        self._asked: Moment | None = None
        self._names: dict[str, str] = {}
        self.on_branches: Callable[[], None] = _nothing

    def build(self, parent: int) -> None:
        ui = self.ui
        with dpg.group(horizontal=True, parent=parent, horizontal_spacing=ui.px(4)):
            with dpg.group() as group:
                dpg.add_spacer(height=0)
                self._combo = int(dpg.add_combo([], width=ui.px(COMBO), callback=self._on_branch))
                tooltip(ui, self._combo, BRANCH)
            self._combo_group = int(group)
            self._canvas = int(dpg.add_drawlist(10, ui.px(HEIGHT - 6)))
            tooltip(ui, self._canvas, LEGEND)
            with dpg.group():
                dpg.add_spacer(height=0)
                with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
                    self._buttons()

    def _buttons(self) -> None:
        ui = self.ui
        self._now = button(ui, "Now", ui.actions.look_now, AT_NOW, width=44)
        self._exact = button(ui, "Exact", ui.actions.replay_moments, IS_EXACT, width=52)
        self._compare = button(ui, "Compare", ui.actions.compare_moments, "This moment beside now; drag the line between them, "
                               "and the amber handle to another moment  (M)", width=70)
        self._resume = button(ui, "Resume...", self._on_resume, "Go on from this moment as a new branch; what was trained "
                              "after it is kept as the old one. Also: go on with other branches, rename and delete them",
                              width=76)

    def layout(self, rect: Rect) -> None:
        px = self.ui.px
        wide = rect.width >= px(NARROW)
        for item in (self._combo_group, self._exact, self._compare):   # in a narrow window these are in the other window, too
            show(item, wide)
        taken = COMBO + 4 + BUTTONS if wide else BUTTONS_NARROW
        self._width = max(px(60), rect.width - 2 * px(6) - px(taken))
        dpg.configure_item(self._canvas, width=self._width)
        self._key = None

    # ------------------------------------------------------------------------------------------ mouse
    @property
    def state(self) -> TimelineState:
        return self.ui.model.snapshot.timeline

    @property
    def _place(self) -> looking_back.Place:
        return looking_back.place(self.state, self.ui.model.snapshot.iteration, self.ui.view.moment)

    def _iteration_at(self, x: float) -> int:
        inset = self._inset
        return round((x - inset) / max(self._width - 2 * inset, 1) * max(self._place.end, 1))

    def _x(self, iteration: float) -> float:
        inset = self._inset
        return inset + iteration / max(self._place.end, 1) * (self._width - 2 * inset)

    @property
    def _inset(self) -> int:
        return self.ui.px(8)

    def _mouse(self) -> tuple[float, float]:
        x, y = dpg.get_mouse_pos(local=False)
        x0, y0 = dpg.get_item_rect_min(self._canvas)
        return x - x0, y - y0

    def press(self, mouse_button: int) -> None:
        """A press takes the nearer handle and brings it to the pointer."""
        if mouse_button != LEFT or not self.state.branches or not dpg.is_item_hovered(self._canvas):
            return
        self._held, other = "left", self._right_at()
        if other is not None:
            x = self._mouse()[0]
            self._held = "right" if abs(x - self._x(other)) < abs(x - self._x(self._place.at)) else "left"

    def _right_at(self) -> int | None:
        """Iteration of the second handle; None where there is none."""
        view = self.ui.view
        if not view.comparing or view.beside is None:
            return None
        moment = view.beside.moment
        if moment is None:
            return self._place.end
        return moment.iteration if moment.branch == self._place.branch else None

    def follow(self, now: float) -> bool:
        """Once a frame: the held handle goes with the pointer. Whether one is held."""
        if not self._held:
            return False
        here, view = self._place, self.ui.view
        iteration = self._iteration_at(self._mouse()[0])
        moment = looking_back.at(self.state, here.branch, iteration, self.ui.model.snapshot.iteration)
        if self._held == "right":
            view.compare_with(moment)
        else:
            view.look_at(moment)
        view.touch(now)
        return True

    def release(self, mouse_button: int) -> None:
        if mouse_button != LEFT or not self._held:
            return
        view = self.ui.view
        moment = view.moment if self._held == "left" else view.beside.moment if view.beside is not None else None
        self._held = ""
        if moment is not None and looking_back.at_once(self.state, moment, self.ui.model.snapshot.steps_per_second):
            self.ui.send(Replay(moment))

    # ------------------------------------------------------------------------------------------ buttons
    def _on_branch(self, sender: int, label: str) -> None:
        name = self._names.get(label, "")
        branch = self.state.branch(name)
        if branch is not None:
            self.ui.view.look_at(None if name == self.state.current else Moment(name, branch.tip))

    def _on_resume(self) -> None:
        self.on_branches()

    # ------------------------------------------------------------------------------------------ each frame
    def update(self) -> None:
        state, view, snapshot = self.state, self.ui.view, self.ui.model.snapshot
        view.forget_gone(state, snapshot.iteration)
        now = self.ui.actions.clock()
        names = {branch.label: branch.name for branch in state.branches}
        if names != self._names:
            self._names = names
            dpg.configure_item(self._combo, items=list(names))
        here = self._place
        self._name(state.branch(here.branch))
        beside = view.beside.moment if view.comparing and view.beside is not None else None
        inset = self._inset
        pixel = max(here.end, 1) / max(self._width - 2 * inset, 1)
        scale = round(here.end / max(pixel, 1e-9) / 8) if self._held else here.end
        text = self._text(here)
        still = (id(state), here.branch, here.moment, beside, text, self._width, self._held, view.comparing)
        key = (still, scale)
        if key == self._key or (self._key is not None and still == self._key[0] and now - self._drawn_at < REDRAW):   # type: ignore
            return
        self._key, self._drawn_at = key, now
        pending = [moment for moment in view.moments() if looking_back.steps_to(state, moment)]
        for item, able, tip, why in ((self._exact, bool(pending), EXACT, IS_EXACT if here.moment is not None else AT_NOW),
                                     (self._now, here.moment is not None, NOW, AT_NOW)):
            dpg.configure_item(item, enabled=able)
            dpg.bind_item_theme(item, self.ui.theme.primary if able else 0)
            tooltip(self.ui, item, tip if able else why)
        dpg.bind_item_theme(self._compare, self.ui.theme.primary if view.comparing else 0)
        self._draw(state, here, text)

    def _name(self, branch: BranchState | None) -> None:
        """Of the branch that is shown, as far as the box has room; a choice in its list writes the whole name."""
        px, label = self.ui.px, branch.label if branch is not None else ""
        shown = shortened(label, px(BODY), px(COMBO - ARROW))
        if dpg.get_value(self._combo) != shown:
            dpg.set_value(self._combo, shown)
        tooltip(self.ui, self._combo, f"{label}\n{BRANCH}" if shown != label else BRANCH)

    def _text(self, here: looking_back.Place) -> str:
        model = self.ui.model
        if not self.state.branches:
            return ""
        if here.moment is None:
            return f"now · {count(model.snapshot.iteration)}" + ("" if here.end else "   Earlier iterations appear here.")
        job = model.job
        progress = job.fraction if job is not None and job.name == "replay" else None
        return looking_back.words(self.state, here.moment, model.frame, progress)

    def _draw(self, state: TimelineState, here: looking_back.Place, text: str) -> None:
        dpg.delete_item(self._canvas, children_only=True)
        px, layer, inset, y = self.ui.px, self._canvas, self._inset, self.ui.px(LINE - 3)
        for branch, last in looking_back.past(state, here.branch):
            self._draw_marks(branch, min(last, here.end), y)
        dpg.draw_line((inset, y), (self._width - inset, y), color=Palette.active, thickness=px(2), parent=layer)
        for branch in state.branches:
            if branch.parent and branch.fork <= here.end and branch.name != here.branch and any(
                    branch.parent == of.name and branch.fork <= last for of, last in looking_back.past(state, here.branch)):
                self._fork(self._x(branch.fork), y)
        own = state.branch(here.branch)
        if own is not None and own.parent:
            self._fork(self._x(own.fork), y)
        other = self._right_at()
        if other is not None:
            self._handle(self._x(other), y, Palette.second)
        color = Palette.accent if here.moment is None else Palette.text
        self._handle(self._x(here.at), y, color)
        size = px(12)
        shown = shortened(text, size, self._width - 2 * inset)
        width = text_width(shown, size)
        x = min(max(self._x(here.at) - width / 2, inset / 2), self._width - width - inset / 2)
        self._scale(here.end, x, x + width)
        color = Palette.muted if here.moment is None else Palette.second
        dpg.draw_text((x, -px(1)), shown, size=size, color=color, parent=layer)

    def _scale(self, end: int, start: float, stop: float) -> None:
        """Round iteration numbers over the axis, except where the text from `start` to `stop` px is."""
        px, size = self.ui.px, self.ui.px(NUMBERS)
        taken = -1e9
        for iteration in scale(end, max(2, self._width // px(90))):
            text, x = count(iteration), self._x(iteration)
            half = text_width(text, size) / 2
            left = min(max(x - half, 0), self._width - 2 * half)
            if left < taken or left + 2 * half + px(6) > start and left < stop + px(6):
                continue
            taken = left + 2 * half + px(6)
            dpg.draw_text((left, px(1)), text, size=size, color=Palette.faint, parent=self._canvas)
            dpg.draw_line((x, px(12)), (x, px(15)), color=Palette.faint, parent=self._canvas)

    def _draw_marks(self, branch: BranchState, last: int, y: float) -> None:
        """One mark of a kind per pixel: more cannot be seen. Upwards what is kept, higher where on disk; downwards events."""
        px, layer = self.ui.px, self._canvas

        def columns(iterations: tuple[int, ...]) -> list[int]:
            first = branch.fork + 1 if branch.parent else 0
            return sorted({round(self._x(i)) for i in iterations if first <= i <= last})

        for iterations, up, down, color in (
                (branch.densified, 0, 5, (*Palette.faint[:3], 150)), (branch.resets, 0, 6, Palette.second),
                (branch.evaluated, 0, 5, Palette.good),
                (branch.kept, 4, 0, Palette.muted), (branch.on_disk, 7, 0, Palette.text),
                (tuple(i for i, _ in branch.options), 0, 6, Palette.accent), (branch.edits, 0, 6, Palette.bad)):
            if iterations:
                dpg.draw_polyline(ticks(columns(iterations), y, px(down) - px(up)), color=color,
                                  thickness=px(1.5 if up else 1), parent=layer)

    def _fork(self, x: float, y: float) -> None:
        px = self.ui.px
        dpg.draw_triangle((x - px(4), y + px(7)), (x + px(4), y + px(7)), (x, y), fill=FORK, color=FORK, parent=self._canvas)

    def _handle(self, x: float, y: float, color: Color) -> None:
        px = self.ui.px
        dpg.draw_line((x, y - px(7)), (x, y + px(7)), color=color, thickness=px(2), parent=self._canvas)
        dpg.draw_circle((x, y), px(5), fill=color, color=Palette.panel, thickness=px(1), parent=self._canvas)


def scale(end: int, count: int) -> list[int]:
    """Multiples of 1, 2 or 5 times a power of ten in [0, end], about `count` of them."""
    if end <= 0:
        return []
    step = 1
    while end / step > count:
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return list(range(0, end + 1, step))


def ticks(columns: list[int], y: float, length: float) -> list[list[float]]:
    """A line from the axis to each tick and back: one item to draw however many there are. The axis covers the rest of it.

    Back along another column: a line that turns round in place has no width there.
    """
    return [[at, height] for x in columns for at, height in ((x, y), (x, y + length), (x + 1, y + length), (x + 1, y))]


def _nothing() -> None:
    pass
