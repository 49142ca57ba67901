"""What the engine and the window have to say: cards over the picture, and the full text of a failure."""

from __future__ import annotations

from app.gui import formatting
from app.gui.layout import Rect
from app.gui.theme import BODY, TITLE, Palette
from app.gui.toolkit import dpg
from app.gui.view_model import ShownNotice, ViewModel
from app.gui.widgets import Ui, button, folded, heading, label, pressed, put, show
from app.messages import EngineFailed

CARDS = 4
WIDTH = 380
TEXT = WIDTH - 30
FAILURE = 680
COLORS = {"info": Palette.accent, "warning": Palette.second, "error": Palette.bad}
WORDS = {"info": "Note", "warning": "Warning", "error": "Error"}


class Notices:
    title = "Notices"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self._area = Rect(0, 0, 0, 0)
        self._cards: list[tuple[int, int, int, int]] = []   # window, heading, text, cross
        self._shown: list[ShownNotice] = []
        self._notices: list[ShownNotice | None] = [None] * CARDS
        self._failure: EngineFailed | None = None
        self.failure_shown = False

    def build(self, parent: int) -> None:
        ui = self.ui
        for index in range(CARDS):
            with dpg.window(show=False, no_title_bar=True, no_resize=True, no_move=True, no_scrollbar=True,
                            no_focus_on_appearing=True, autosize=True, no_saved_settings=True,
                            min_size=(ui.px(WIDTH), ui.px(20))) as window:
                with dpg.group(horizontal=True, xoffset=ui.px(WIDTH - 52)):
                    word = label(ui, "", small=True)
                    dismiss = dpg.add_button(label="×", callback=self._on_dismiss, user_data=index, small=True)
                    dpg.bind_item_theme(dismiss, ui.theme.flat)
                text = int(dpg.add_text("", wrap=ui.px(TEXT)))   # breaks what is wider than a line, such as a path
            dpg.bind_item_theme(window, ui.theme.floating)
            self._cards.append((int(window), word, text, int(dismiss)))
        self._build_failure()

    def _build_failure(self) -> None:
        ui = self.ui
        with dpg.window(show=False, label="The engine stopped", no_collapse=True, width=ui.px(720), height=ui.px(420),
                        on_close=self._hide_failure, no_saved_settings=True) as window:
            self._summary = heading(ui, "", first=True)
            dpg.configure_item(self._summary, wrap=ui.px(FAILURE), color=Palette.bad)
            self._ways = label(ui, "", Palette.muted, wrap=ui.px(FAILURE))
            self._traceback = int(dpg.add_input_text(multiline=True, readonly=True, width=-1, height=ui.px(-36)))
            dpg.bind_item_font(self._traceback, ui.theme.mono)
            button(ui, "Copy", self._on_copy, "Copy the text to the clipboard", width=80)
        self._failure_window = int(window)
        dpg.bind_item_theme(window, ui.theme.floating)

    def layout(self, area: Rect) -> None:
        self._area = area

    def update(self) -> None:
        ui, now = self.ui, self.ui.actions.clock()
        if not pressed(dismiss for *_, dismiss in self._cards):
            self._shown = ui.model.visible_notices(now, CARDS)
        shown = self._shown
        bottom = self._area.y + self._area.height - ui.px(12)
        x = self._area.x + self._area.width - ui.px(WIDTH + 12)
        for index in range(CARDS):
            window, word, text, _ = self._cards[index]
            notice = shown[len(shown) - 1 - index] if index < len(shown) else None
            if notice is not None and notice is not self._notices[index]:
                put(text, "\n".join(folded(formatting.spaced(notice.text), ui.px(BODY), ui.px(TEXT - 2))))
            self._notices[index] = notice
            show(window, notice is not None)
            if notice is None:
                continue
            put(word, WORDS[notice.level])
            dpg.configure_item(word, color=COLORS[notice.level])
            height = max(dpg.get_item_rect_size(window)[1], ui.px(40))
            bottom -= height
            dpg.configure_item(window, pos=(max(x, ui.px(8)), max(bottom, 0)))
            bottom -= ui.px(6)
        failure = ui.model.failure
        if failure is not None:   # a checkpoint may still be on its way
            put(self._ways, ways_on(ui.model))
        if failure is not self._failure:
            self._failure = failure
            self.failure_shown = failure is not None
            show(self._failure_window, self.failure_shown)
            if failure is not None:
                put(self._summary, "\n".join(folded(failure.summary, ui.px(TITLE), ui.px(FAILURE - 60))))   # bold is wider
                put(self._traceback, failure.traceback)
                width, height = dpg.get_viewport_client_width(), dpg.get_viewport_client_height()
                dpg.configure_item(self._failure_window, pos=(max(0, (width - ui.px(720)) // 2),
                                                              max(0, (height - ui.px(420)) // 2)))

    def escape(self) -> bool:
        """Esc: the failure goes, else the newest card."""
        if self.failure_shown:
            self._hide_failure()
            return True
        for notice in reversed(self._notices):
            if notice is not None:
                notice.dismissed = True
                return True
        return False

    def _hide_failure(self) -> None:
        """Also after the cross, which hides the window without telling anyone else."""
        self.failure_shown = False
        show(self._failure_window, False)

    def _on_dismiss(self, sender: int, value: object, index: int) -> None:
        notice = self._notices[index]
        if notice is not None:
            notice.dismissed = True

    def _on_copy(self) -> None:
        if self._failure is not None:
            dpg.set_clipboard_text(f"{self._failure.summary}\n{self._failure.traceback}")


def ways_on(model: ViewModel) -> str:
    """What is known after a failure, and what can be done."""
    if not model.can_train:
        return "Open a scene to go on. The text below says where it happened."
    run, saved = model.snapshot, model.saved
    known = f"The newest checkpoint is of iteration {formatting.count(saved.iteration)}." if saved is not None else \
        "There is no checkpoint of this run yet." if run.run_folder else "This run is not recorded, so it has no checkpoints."
    back = ", and Open takes the run's folder up from the checkpoint" if saved is not None else ""
    return (f"Training is paused at iteration {formatting.count(run.iteration)}. {known} Train tries to go on from here; Reset "
            f"begins anew{back}. The text below says where it happened.")
