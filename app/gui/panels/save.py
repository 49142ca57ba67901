"""Save: the Gaussians of now as a PLY that other tools read, or the picture of now with its legend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, button, label, open_centred, put, show, tooltip
from app.messages import SavePicture, SavePly

WIDTH = 620
LARGEST_SIDE = 8192   # px, as the engine draws at most
FIELD = 62            # px at 100 %


class SaveDialog:
    title = "Save"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self.shown = False

    def build(self, parent: int) -> None:
        ui = self.ui
        with dpg.window(show=False, label="Save", no_collapse=True, no_resize=True, autosize=True,
                        on_close=self.close, no_saved_settings=True) as window:
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(6)):
                button(ui, "Gaussians (.ply)", self._on_ply, "All Gaussians, in the layout of graphdeco's point_cloud.ply")
                button(ui, "This view (.png)", self._on_png, "The picture as it is shown, drawn whole, with its legend")
            self._what = label(ui, "", Palette.muted)
            dpg.add_spacer(width=ui.px(WIDTH - 24))
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(6), show=False) as size:
                self._width = self._side("Width of the picture, px", self._on_width)
                label(ui, "×")
                self._height = self._side("Height of the picture, px", self._on_height)
                label(ui, "px")
                self._keep = int(dpg.add_checkbox(label="keep the shape", default_value=True, callback=self._on_keep))
                tooltip(ui, self._keep, "One side follows the other. Without it the height shows the same, more or less is "
                        "seen to the sides, and nothing is stretched")
                button(ui, "As shown", self._on_own_size, "The size that it has in the window")
            self._size = int(size)
            with dpg.group(horizontal=True):
                self._path = int(dpg.add_input_text(hint="Path of the new file", width=ui.px(WIDTH - 24 - 84), on_enter=True,
                                                    callback=self._on_save))
                ui.typing.append(self._path)
                button(ui, "Save", self._on_save, "Write the file; an existing one is replaced", width=78,
                       theme=ui.theme.primary)
            self._complaint = label(ui, "", Palette.bad, wrap=ui.px(WIDTH - 30))
        self.window = int(window)
        dpg.bind_item_theme(window, ui.theme.floating)

    def _side(self, tip: str, callback: Callable[..., None]) -> int:
        item = int(dpg.add_input_text(width=self.ui.px(FIELD), callback=callback))
        self.ui.typing.append(item)
        tooltip(self.ui, item, tip)
        return item

    def update(self) -> None:
        pass

    def open(self) -> None:
        """Show it with a proposal: scene and iteration in the folder that the program was started in."""
        model = self.ui.model
        if model.scene is None:
            self.ui.actions.notify("There is nothing to save yet; open a scene first.", "warning")
            return
        self._propose(".ply")
        show(self._complaint, False)
        open_centred(self.ui, self.window, WIDTH)
        dpg.focus_item(self._path)
        self.shown = True

    def _propose(self, ending: str) -> None:
        model = self.ui.model
        assert model.scene is not None
        name, iteration = Path(model.scene.path).stem or "gaussians", model.snapshot.iteration
        if ending == ".png":
            name = f"{name}_{self.ui.view.mode}"
        dpg.set_value(self._path, f"{name}_{iteration}{ending}")
        show(self._size, ending == ".png")
        if ending == ".png":
            self._on_own_size()
        put(self._what, "A PLY in the layout of graphdeco's point_cloud.ply; training goes on meanwhile." if ending == ".ply"
            else f"A PNG of this view, drawn anew at any size up to {LARGEST_SIDE} px, with the legend of its colours below.")

    def _on_ply(self) -> None:
        self._propose(".ply")

    def _on_png(self) -> None:
        self._propose(".png")

    # ------------------------------------------------------------------------------------------ the size of a picture
    def _own_size(self) -> tuple[int, int] | None:
        request = self.ui.view.whole_request()
        return None if request is None else (request.camera.width, request.camera.height)

    def _on_own_size(self) -> None:
        own = self._own_size()
        if own is not None:
            dpg.set_value(self._width, str(own[0]))
            dpg.set_value(self._height, str(own[1]))

    def _on_width(self, sender: int, text: str) -> None:
        self._follow(text, self._height, 0)

    def _on_height(self, sender: int, text: str) -> None:
        self._follow(text, self._width, 1)

    def _on_keep(self, sender: int, on: bool) -> None:
        self._follow(dpg.get_value(self._width), self._height, 0)

    def _follow(self, text: str, other: int, side: int) -> None:
        """The other side of the picture, where the shape is kept and a number was typed."""
        own = self._own_size()
        if own is not None and dpg.get_value(self._keep) and text.strip().isdecimal():
            dpg.set_value(other, str(max(1, round(int(text) * own[1 - side] / own[side]))))

    def _picture_size(self) -> tuple[int, int] | None:
        """The size that was typed; None where it cannot be."""
        sides = [dpg.get_value(item).strip() for item in (self._width, self._height)]
        if not all(side.isdecimal() and 1 <= int(side) <= LARGEST_SIDE for side in sides):
            return None
        return int(sides[0]), int(sides[1])

    # ------------------------------------------------------------------------------------------ done
    def close(self) -> None:
        dpg.configure_item(self.window, show=False)
        self.shown = False

    def _on_save(self) -> None:
        text = dpg.get_value(self._path).strip()
        path = Path(text).expanduser()
        if not text:
            complaint = "Type the path of the file to write."
        elif path.suffix.lower() not in (".ply", ".png"):
            complaint = "The name must end in .ply, or in .png for a picture of this view."
        elif not path.absolute().parent.is_dir():
            complaint = f"There is no folder {path.absolute().parent}; make it first or choose another."
        elif path.suffix.lower() == ".png" and dpg.is_item_shown(self._size) and self._picture_size() is None:
            complaint = f"Width and height must be whole numbers from 1 to {LARGEST_SIDE}."
        else:
            request = self.ui.view.whole_request(self._picture_size() if dpg.is_item_shown(self._size) else None)
            if path.suffix.lower() == ".ply":
                self.ui.send(SavePly(str(path.absolute())))
            elif request is not None:
                self.ui.send(SavePicture(str(path.absolute()), request))
            self.close()
            return
        put(self._complaint, complaint)
        show(self._complaint, True)
