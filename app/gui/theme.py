"""One palette, one spacing scale, one pair of fonts. Everything the window draws takes its looks from here."""

from __future__ import annotations

from pathlib import Path

from app.fonts import font_folder
from app.gui.toolkit import dpg

Color = tuple[int, int, int, int]


def _rgb(code: int, alpha: int = 255) -> Color:
    return (code >> 16, code >> 8 & 255, code & 255, alpha)


class Palette:
    """Dark and calm: three greys for depth, one accent, and a colour only where it carries meaning."""

    void = _rgb(0x0E1013)        # behind the picture
    window = _rgb(0x121418)
    panel = _rgb(0x191C22)
    floating = _rgb(0x1E222A)    # dialogs, menus, tooltips
    raised = _rgb(0x242932)      # controls at rest
    hover = _rgb(0x2F3642)
    active = _rgb(0x3A4352)
    line = _rgb(0x2A2F38)
    text = _rgb(0xD9DEE6)
    muted = _rgb(0x8C95A4)
    faint = _rgb(0x5C6573)
    accent = _rgb(0x5FB3C4)
    accent_dim = _rgb(0x2B5C68)
    accent_fill = _rgb(0x5FB3C4, 46)
    second = _rgb(0xE0A458)      # the other curve, thresholds
    good = _rgb(0x7FBF8A)
    bad = _rgb(0xE0736F)
    clear = _rgb(0x000000, 0)


STAGE_COLORS: dict[str, Color] = {
    "project": _rgb(0x5FB3C4), "sh": _rgb(0x7C9FD6), "binning": _rgb(0x9A8BD0), "rasterize": _rgb(0xC583B8),
    "loss": _rgb(0xE0A458), "backward": _rgb(0xD98666), "adam": _rgb(0x7FBF8A),
    "other": _rgb(0x6B7480)}
BRANCHES: tuple[Color, ...] = tuple(_rgb(code) for code in (0xC583B8, 0x7FBF8A, 0xD98666, 0x7C9FD6, 0xB8B36A, 0x9A8BD0))
BODY, SMALL, TITLE, MONO = 14, 12, 15, 12.5  # px at 100 %
SPACE = 6                                  # the unit of all distances, px at 100 %


class Theme:
    """Fonts and item themes at one scale; build() before the first frame."""

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.body = self.small = self.title = self.mono = 0
        self.flat = self.primary = self.danger = self.floating = 0
        self.view = self.tight = self.held_out = 0
        self._series: dict[tuple[Color, float], int] = {}

    def px(self, value: float) -> int:
        return round(value * self.scale)

    def build(self) -> None:
        """Register fonts and themes and bind the global ones."""
        folder = font_folder()
        with dpg.font_registry():
            self.body = self._font(folder / "DejaVuSans.ttf", BODY)
            self.small = self._font(folder / "DejaVuSans.ttf", SMALL)
            self.title = self._font(folder / "DejaVuSans-Bold.ttf", TITLE)
            self.mono = self._font(folder / "DejaVuSansMono.ttf", MONO)
        dpg.bind_font(self.body)  # globally: plot titles take no other (unbound they print "?" for alpha)
        dpg.bind_theme(self._global())
        self.view = self._item(dpg.mvChildWindow, {dpg.mvThemeCol_ChildBg: Palette.clear},
                               {dpg.mvStyleVar_WindowPadding: (0, 0)})
        self.floating = self._item(dpg.mvWindowAppItem, {
            dpg.mvThemeCol_WindowBg: Palette.floating, dpg.mvThemeCol_Border: Palette.active},
            {dpg.mvStyleVar_WindowPadding: (self.px(2 * SPACE), self.px(2 * SPACE)),
             dpg.mvStyleVar_WindowRounding: (self.px(6),), dpg.mvStyleVar_WindowMinSize: (self.px(60), self.px(20)),
             dpg.mvStyleVar_WindowBorderSize: (1,)})
        with dpg.theme_component(dpg.mvAll, parent=self.floating):   # on the lighter ground controls are lighter, too
            for name, color in (("Button", Palette.hover), ("ButtonHovered", Palette.active), ("FrameBg", Palette.hover),
                                ("FrameBgHovered", Palette.active)):
                dpg.add_theme_color(getattr(dpg, "mvThemeCol_" + name), color, category=dpg.mvThemeCat_Core)
        self.primary = self._button(Palette.accent_dim, _rgb(0x347080), _rgb(0x3D8294), _rgb(0xEAF6F8))
        self.danger = self._button(_rgb(0x5A2E30), _rgb(0x74393B), _rgb(0x8A4446), _rgb(0xF6DEDD))
        self.flat = self._button(Palette.clear, Palette.hover, Palette.active, Palette.muted)
        self.held_out = self._item(dpg.mvAll, {dpg.mvThemeCol_Text: Palette.second}, {})
        self.tight = self._item(dpg.mvAll, {}, {dpg.mvStyleVar_ItemSpacing: (self.px(SPACE), self.px(1))})

    def series(self, color: Color, weight: float = 1.6) -> int:
        """Theme of a plot series."""
        key = (color, weight)
        if key not in self._series:
            with dpg.theme() as theme, dpg.theme_component(dpg.mvAll):
                dpg.add_theme_color(dpg.mvPlotCol_Line, color, category=dpg.mvThemeCat_Plots)
                dpg.add_theme_color(dpg.mvPlotCol_Fill, (*color[:3], min(color[3], 90)), category=dpg.mvThemeCat_Plots)
                dpg.add_theme_color(dpg.mvPlotCol_MarkerFill, color, category=dpg.mvThemeCat_Plots)
                dpg.add_theme_color(dpg.mvPlotCol_MarkerOutline, color, category=dpg.mvThemeCat_Plots)
                dpg.add_theme_style(dpg.mvPlotStyleVar_LineWeight, weight * self.scale, category=dpg.mvThemeCat_Plots)
                dpg.add_theme_style(dpg.mvPlotStyleVar_MarkerSize, 2.5 * self.scale, category=dpg.mvThemeCat_Plots)
            self._series[key] = int(theme)
        return self._series[key]

    def branch(self, place: int) -> Color:
        """Of a branch that does not train."""
        return BRANCHES[place % len(BRANCHES)]

    def _font(self, file: Path, size: float) -> int:
        return int(dpg.add_font(str(file), round(size * self.scale)))

    def _item(self, kind: int, colors: dict[int, Color], styles: dict[int, tuple[float, ...]] | None = None) -> int:
        with dpg.theme() as theme, dpg.theme_component(kind):
            for target, color in colors.items():
                dpg.add_theme_color(target, color, category=dpg.mvThemeCat_Core)
            for target, values in (styles or {}).items():
                dpg.add_theme_style(target, *values, category=dpg.mvThemeCat_Core)
        return int(theme)

    def _button(self, rest: Color, hover: Color, active: Color, text: Color) -> int:
        colors = {dpg.mvThemeCol_Button: rest, dpg.mvThemeCol_ButtonHovered: hover,
                  dpg.mvThemeCol_ButtonActive: active, dpg.mvThemeCol_Text: text}
        return self._item(dpg.mvButton, colors)

    def _global(self) -> int:
        p, px = Palette, self.px
        core = {
            "Text": p.text, "TextDisabled": p.faint, "WindowBg": p.window, "ChildBg": p.clear, "PopupBg": p.floating,
            "Border": p.line, "BorderShadow": p.clear, "FrameBg": p.raised, "FrameBgHovered": p.hover,
            "FrameBgActive": p.active, "TitleBg": p.panel, "TitleBgActive": p.panel, "TitleBgCollapsed": p.panel,
            "MenuBarBg": p.panel, "ScrollbarBg": p.clear, "ScrollbarGrab": p.hover, "ScrollbarGrabHovered": p.active,
            "ScrollbarGrabActive": p.faint, "CheckMark": p.accent, "SliderGrab": p.accent,
            "SliderGrabActive": _rgb(0x7CCBDA), "Button": p.raised, "ButtonHovered": p.hover, "ButtonActive": p.active,
            "Header": p.raised, "HeaderHovered": p.hover, "HeaderActive": p.active, "Separator": p.line,
            "SeparatorHovered": p.accent_dim, "SeparatorActive": p.accent, "Tab": p.clear, "TabHovered": p.hover,
            "TabSelected": p.raised, "TabSelectedOverline": p.accent, "TabDimmed": p.clear, "TabDimmedSelected": p.raised,
            "PlotHistogram": p.accent_dim, "PlotHistogramHovered": p.accent, "TableHeaderBg": p.panel,
            "TableBorderStrong": p.line, "TableBorderLight": p.line, "TableRowBg": p.clear,
            "TableRowBgAlt": _rgb(0xFFFFFF, 7), "TextSelectedBg": p.accent_dim, "NavCursor": p.clear,
            "ModalWindowDimBg": _rgb(0x000000, 130), "ResizeGrip": p.clear, "InputTextCursor": p.text}
        plot = {"PlotBg": p.clear, "FrameBg": p.clear, "PlotBorder": p.line, "LegendBg": _rgb(0x191C22, 200),
                "LegendBorder": p.clear, "LegendText": p.muted, "TitleText": p.muted, "InlayText": p.muted,
                "AxisText": p.muted, "AxisGrid": _rgb(0xFFFFFF, 22), "AxisTick": p.line, "AxisBgHovered": p.hover,
                "Selection": p.accent, "Crosshairs": p.muted}
        style = {
            "WindowPadding": (px(8), px(8)), "FramePadding": (px(7), px(3)), "ItemSpacing": (px(SPACE), px(5)),
            "ItemInnerSpacing": (px(5), px(4)), "CellPadding": (px(3), px(2)), "IndentSpacing": (px(12),),
            "ScrollbarSize": (px(10),), "GrabMinSize": (px(9),), "WindowRounding": (0,), "ChildRounding": (0,),
            "FrameRounding": (px(3),), "PopupRounding": (px(4),), "ScrollbarRounding": (px(5),), "GrabRounding": (px(3),),
            "TabRounding": (px(3),), "WindowBorderSize": (0,), "ChildBorderSize": (0,), "FrameBorderSize": (0,),
            "PopupBorderSize": (1,), "TabBarBorderSize": (1,), "TabBarOverlineSize": (px(2),)}
        plot_style = {"PlotPadding": (px(4), px(4)), "LabelPadding": (px(3), px(2)), "LegendPadding": (px(4), px(2)),
                      "LegendInnerPadding": (px(4), px(2)), "PlotBorderSize": (1,), "PlotMinSize": (px(60), px(40))}
        with dpg.theme() as theme, dpg.theme_component(dpg.mvAll):
            for name, color in core.items():
                dpg.add_theme_color(getattr(dpg, "mvThemeCol_" + name), color, category=dpg.mvThemeCat_Core)
            for name, color in plot.items():
                dpg.add_theme_color(getattr(dpg, "mvPlotCol_" + name), color, category=dpg.mvThemeCat_Plots)
            for name, values in style.items():
                dpg.add_theme_style(getattr(dpg, "mvStyleVar_" + name), *values, category=dpg.mvThemeCat_Core)
            for name, values in plot_style.items():
                dpg.add_theme_style(getattr(dpg, "mvPlotStyleVar_" + name), *values, category=dpg.mvThemeCat_Plots)
        with dpg.theme_component(dpg.mvButton, enabled_state=False, parent=theme):   # what cannot be pressed now
            for name, color in (("Text", p.faint), ("Button", p.panel), ("ButtonHovered", p.panel), ("ButtonActive", p.panel)):
                dpg.add_theme_color(getattr(dpg, "mvThemeCol_" + name), color, category=dpg.mvThemeCat_Core)
        return int(theme)
