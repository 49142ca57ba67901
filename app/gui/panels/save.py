"""Save: the Gaussians of now as a PLY that other tools read, or the picture of now with its legend."""

from __future__ import annotations

from pathlib import Path

from app.gui.theme import Palette
from app.gui.toolkit import dpg
from app.gui.widgets import Ui, button, label, put, show
from app.messages import SavePicture, SavePly

WIDTH, HEIGHT = 620, 180


class SaveDialog:
    title = "Save"

    def __init__(self, ui: Ui) -> None:
        self.ui = ui
        self.shown = False

    def build(self, parent: int) -> None:
        ui = self.ui
        with dpg.window(show=False, label="Save", no_collapse=True, no_resize=True, width=ui.px(WIDTH),
                        height=ui.px(HEIGHT), on_close=self.close, no_saved_settings=True) as window:
            with dpg.group(horizontal=True, horizontal_spacing=ui.px(6)):
                button(ui, "Gaussians (.ply)", self._on_ply, "All Gaussians, in the layout of graphdeco's point_cloud.ply")
                button(ui, "This view (.png)", self._on_png, "The picture as it is shown, drawn whole, with its legend")
            self._what = label(ui, "", Palette.muted)
            with dpg.group(horizontal=True):
                self._path = int(dpg.add_input_text(hint="Path of the new file", width=ui.px(WIDTH - 24 - 84), on_enter=True,
                                                    callback=self._on_save))
                ui.typing.append(self._path)
                button(ui, "Save", self._on_save, "Write the file; an existing one is replaced", width=78,
                       theme=ui.theme.primary)
            self._complaint = label(ui, "", Palette.bad, wrap=ui.px(WIDTH - 30))
        self.window = int(window)
        dpg.bind_item_theme(window, ui.theme.floating)

    def update(self) -> None:
        pass

    def open(self) -> None:
        """Show it with a proposal: scene and iteration in the folder that the program was started in."""
        model, px = self.ui.model, self.ui.px
        if model.scene is None:
            self.ui.actions.notify("There is nothing to save yet; open a scene first.", "warning")
            return
        self._propose(".ply")
        show(self._complaint, False)
        width, height = dpg.get_viewport_client_width(), dpg.get_viewport_client_height()
        dpg.configure_item(self.window, show=True, pos=(max(0, (width - px(WIDTH)) // 2), max(0, (height - px(HEIGHT)) // 3)))
        dpg.focus_item(self._path)
        self.shown = True

    def _propose(self, ending: str) -> None:
        model = self.ui.model
        assert model.scene is not None
        name, iteration = Path(model.scene.path).stem or "gaussians", model.snapshot.iteration
        if ending == ".png":
            name = f"{name}_{self.ui.view.mode}"
        dpg.set_value(self._path, str(Path.cwd() / f"{name}_{iteration}{ending}"))
        put(self._what, "A PLY in the layout of graphdeco's point_cloud.ply; training goes on meanwhile." if ending == ".ply"
            else "A PNG of this view, drawn at the window's full size, with the legend of its colours below.")

    def _on_ply(self) -> None:
        self._propose(".ply")

    def _on_png(self) -> None:
        self._propose(".png")

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
        else:
            request = self.ui.view.whole_request()
            if path.suffix.lower() == ".ply":
                self.ui.send(SavePly(str(path.absolute())))
            elif request is not None:
                self.ui.send(SavePicture(str(path.absolute()), request))
            self.close()
            return
        put(self._complaint, complaint)
        show(self._complaint, True)
