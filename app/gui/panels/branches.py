"""The branches of the run: go on from a moment, go on with another branch, rename, delete."""

from __future__ import annotations

from typing import NamedTuple

from app.gui import looking_back
from app.gui.formatting import count, size
from app.gui.theme import BODY, Palette
from app.gui.toolkit import dpg
from app.gui.widgets import (
    Ui,
    button,
    forget,
    heading,
    label,
    open_centred,
    pressed,
    put,
    relabel,
    shortened,
    show,
    text_width,
    tooltip,
)
from app.messages import BranchFrom, BranchState, DeleteBranch, Moment, RenameBranch, SwitchBranch, TimelineState

WIDTH = 720
COLUMNS = (20, 165, 175, 125, 165)   # px at 100 %


class Row(NamedTuple):
    """What changes in the row of a branch."""

    name: int
    origin: int
    tip: int


class BranchesDialog:
    title = "Branches"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self.shown = False
        self._key: object = None
        self._rows: dict[str, Row] = {}    # of the branch
        self._items: list[int] = []      # what is held while the mouse is down on it, or typed in
        self._deleting = ""

    def build(self, parent: int) -> None:
        ui = self.ui
        with dpg.window(show=False, label="Resume", no_collapse=True, no_resize=True, autosize=True,
                        on_close=self.close, no_saved_settings=True) as window:
            dpg.add_spacer(width=ui.px(WIDTH - 24))
            self._from = heading(ui, "Go on from here", first=True)
            with dpg.group(horizontal=True) as group:
                self._name = int(dpg.add_input_text(hint="Name of the new branch, or nothing for one of its own",
                                                    width=ui.px(WIDTH - 24 - 124), on_enter=True, callback=self._on_resume))
                ui.typing.append(self._name)
                button(ui, "Resume here", self._on_resume, "The run goes back to this moment and goes on as a new branch; what "
                       "was trained after it is kept as the old branch", width=112, theme=ui.theme.primary)
            self._resume = int(group)
            with dpg.group(horizontal=True):
                button(ui, "Reach it exactly", ui.actions.replay_moments, "A copy of the run trains to this very iteration "
                       "from the kept moment before it, with the options changed as they were")
                button(ui, "Compare with now", ui.actions.compare_moments, "This moment beside now, and off again  (M)")
            label(ui, "What was trained after this moment stays as a branch, with its curves and events.", Palette.muted,
                  small=True)
            heading(ui, "Branches")
            self._table = int(dpg.add_group())
            with dpg.group(show=False) as confirm:
                self._question = label(ui, "", Palette.second, wrap=ui.px(WIDTH - 30))
                self._files = int(dpg.add_checkbox(label="its files on disk, too"))
                tooltip(ui, self._files, "Checkpoints of this branch in the run's folder")
                with dpg.group(horizontal=True):
                    button(ui, "Delete it", self._on_delete, "Where no checkpoints of it stay there is no way back",
                           theme=ui.theme.danger)
                    button(ui, "Keep it", self._on_keep, "Nothing happens")
            self._confirm = int(confirm)
            dpg.add_spacer(height=ui.px(4))
            self._curves = int(dpg.add_checkbox(label="Curves of other branches in the plots", callback=self._on_curves,
                                                default_value=ui.preferences.branch_curves))
            tooltip(ui, self._curves, "Dashed, in the colour that the branch has in this list")
            self._memory = label(ui, "", Palette.muted, small=True)
        self.window = int(window)
        dpg.bind_item_theme(window, ui.theme.floating)

    def open(self) -> None:
        if not self.ui.model.snapshot.timeline.branches:
            self.ui.actions.notify("There is no run with a past yet; open a scene folder and train.", "warning")
            return
        open_centred(self.ui, self.window, WIDTH)
        dpg.set_value(self._name, "")
        self.shown, self._key = True, None
        self._ask("")
        self.update()

    def close(self) -> None:
        dpg.configure_item(self.window, show=False)
        self.shown = False

    # ------------------------------------------------------------------------------------------ each frame
    def update(self) -> None:
        if not self.shown:
            return
        model, state = self.ui.model, self.ui.model.snapshot.timeline
        here = looking_back.place(state, model.snapshot.iteration, self.ui.view.moment)
        name = self._label(state, here.branch)
        now = "" if here.moment is not None else ", which is now"
        put(self._from, f"Go on from iteration {count(here.at)} of {name}{now}")
        share = f"{size(state.nbytes)} of {size(state.budget)}"
        put(self._memory, f"Moments in memory take {share}; where it is full, the closest ones go first.")
        if self._deleting and state.branch(self._deleting) is None:
            self._ask("")
        self._list(state)

    @staticmethod
    def _label(state: TimelineState, name: str) -> str:
        branch = state.branch(name)
        return branch.label if branch is not None else name

    def _list(self, state: TimelineState) -> None:
        """What the rows say. They are made again only for other branches, or where another one trains: a timeline changes
        several times a second while training, and a button that is made again while it is pressed is never clicked."""
        key = state.current, tuple(branch.name for branch in state.branches)
        if key != self._key and not pressed(self._items):
            self._key = key
            self._make(state)
        for branch in state.branches:
            row = self._rows.get(branch.name)
            if row is not None:
                self._say(state, branch, row)

    def _make(self, state: TimelineState) -> None:
        ui = self.ui
        for row in self._rows.values():
            ui.typing.remove(row.name)
            forget(row.name, row.origin, row.tip)
        self._rows, self._items = {}, []
        dpg.delete_item(self._table, children_only=True)
        with dpg.table(parent=self._table, header_row=False, policy=dpg.mvTable_SizingFixedFit, no_host_extendX=True):
            for width in COLUMNS:
                dpg.add_table_column(init_width_or_weight=ui.px(width), width_fixed=True)
            for branch in state.branches:
                with dpg.table_row():
                    self._rows[branch.name] = self._row(state, branch)

    def _row(self, state: TimelineState, branch: BranchState) -> Row:
        ui, current = self.ui, branch.name == state.current
        color = ui.theme.branch(branch_slot(state, branch.name)) if not current else Palette.accent
        dpg.add_text("■", color=color)
        item = int(dpg.add_input_text(default_value=branch.label, width=ui.px(160), on_enter=True, user_data=branch.name,
                                      callback=self._on_rename))
        ui.typing.append(item)
        tooltip(ui, item, "Type another name and press Enter")
        row = Row(item, label(ui, ""), label(ui, ""))
        self._items.append(item)
        if not current:
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(4)):
                self._items += [
                    button(ui, "Look", self._on_look, "Show its end; the run goes on meanwhile", user_data=branch.name),
                    button(ui, "Go on", self._on_switch, "Train this branch on from its end", user_data=branch.name),
                    button(ui, "Delete", self._on_ask, "Forget it, after a question", user_data=branch.name,
                           theme=ui.theme.flat)]
        return row

    def _say(self, state: TimelineState, branch: BranchState, row: Row) -> None:
        """A name that is being typed in stays."""
        if not dpg.is_item_active(row.name) and dpg.get_value(row.name) != branch.label:
            dpg.set_value(row.name, branch.label)
        origin = "from the start"
        if branch.parent:
            name, at = self._label(state, branch.parent), f" at {count(branch.fork)}"
            letters, room = self.ui.px(BODY), self.ui.px(COLUMNS[2] - 8)
            origin = f"from {shortened(name, letters, room - text_width(f'from {at}', letters))}{at}"
            tooltip(self.ui, row.origin, f"from {name}{at}" if name not in origin else "")
        put(row.origin, origin)
        put(row.tip, "trains now" if branch.name == state.current else f"to iteration {count(branch.tip)}")

    # ------------------------------------------------------------------------------------------ buttons
    def _on_resume(self) -> None:
        model, view = self.ui.model, self.ui.view
        here = looking_back.place(model.snapshot.timeline, model.snapshot.iteration, view.moment)
        self.ui.send(BranchFrom(Moment(here.branch, here.at), dpg.get_value(self._name).strip()))
        self._taken_up()

    def _on_switch(self, sender: int, value: object, name: str) -> None:
        self.ui.send(SwitchBranch(name))
        self._taken_up()

    def _taken_up(self) -> None:
        self.ui.view.look_at(None)
        self.ui.view.stop_comparing()
        self.close()

    def _on_look(self, sender: int, value: object, name: str) -> None:
        branch = self.ui.model.snapshot.timeline.branch(name)
        if branch is not None:
            self.ui.view.look_at(Moment(name, branch.tip))

    def _on_rename(self, sender: int, text: str, name: str) -> None:
        self.ui.send(RenameBranch(name, text))

    def _on_ask(self, sender: int, value: object, name: str) -> None:
        self._ask(name)

    def _ask(self, name: str) -> None:
        self._deleting = name
        branch = self.ui.model.snapshot.timeline.branch(name)
        show(self._confirm, branch is not None)
        if branch is not None:
            kept, files = len(branch.kept), len(branch.on_disk)
            back = " While checkpoints of it are left, it comes back when the run is opened again." if files else ""
            put(self._question, f"Delete branch {branch.label}? Its {kept} moment{'s' if kept != 1 else ''} in memory and its "
                f"curves go. What other branches have in common with it stays theirs.{back}")
            dpg.set_value(self._files, False)
            relabel(self._files, f"its {files} checkpoint{'s' if files != 1 else ''} on disk, too")
            show(self._files, bool(files))

    def _on_delete(self) -> None:
        self.ui.send(DeleteBranch(self._deleting, bool(dpg.get_value(self._files))))
        self._ask("")

    def _on_keep(self) -> None:
        self._ask("")

    def _on_curves(self, sender: int, value: bool) -> None:
        self.ui.preferences.branch_curves = bool(value)


def branch_slot(state: TimelineState, name: str) -> int:
    """Place among all branches, which gives a branch its colour."""
    return next((place for place, branch in enumerate(state.branches) if branch.name == name), 0)
