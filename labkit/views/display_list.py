"""Drawing instructions of a figure, for a browser. `DisplayList` records what matplotlib would draw, without making pixels.

A live panel is drawn many times per second. Recording its artists takes a fraction of the time of drawing and encoding pixels,
and the browser draws the instructions at its own resolution. Panels remain matplotlib panels, so that a live view and a report
have one definition.

A display list is a list of instructions, dictionaries of plain values, and one array of points, float32 of shape (n, 2): pixels
of the figure (at `style.DPI`) from its upper left corner. `at` is the number of an instruction's first point.

    shapes   n: points of each part (a line or a polygon); fill, edge, width: one value per part, or one for all
    curve    one part with `codes` per point: 1 move, 2 line, 3 quadratic, 4 cubic, 79 close
    markers  one shape (as curve) at each of `count` points, which follow the points of the shape
    text     s at (x, y); align -1, 0, 1 (left, center, right), base -1, 0, 1, 2 (top, center, baseline, bottom), size in pixels,
             angle in degrees, bold, halo: width of the outline in pixels
    image    rows x columns pixels, RGBA bytes at `byte` of the pixels, drawn in the box (x, y, width, height)

Colours are texts "#rrggbbaa", "" for none; widths and dashes are in pixels; `clip` is (x, y, width, height).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axis import XAxis, YAxis
from matplotlib.backend_bases import GraphicsContextBase, RendererBase
from matplotlib.collections import Collection, LineCollection, PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation, Text
from matplotlib.ticker import NullLocator

from . import style

_ALIGN = {"left": -1, "center": 0, "right": 1}
_BASE = {"top": -1, "center": 0, "center_baseline": 0, "baseline": 1, "bottom": 2}
_PIXELS = style.DPI / 72  # pixels per point
MOST_POINTS = 500  # of a line; matplotlib simplifies longer ones


@functools.lru_cache(maxsize=1024)
def _hex(red: float, green: float, blue: float, alpha: float) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in (red, green, blue, alpha))


def _colour(rgba: Any, alpha: float | None = None) -> str:
    """A colour as text; "" if it is None or transparent."""
    if rgba is None:
        return ""
    values = [float(part) for part in rgba]
    opacity = values[3] if len(values) > 3 and alpha is None else 1.0 if alpha is None else alpha
    return _hex(*values[:3], opacity) if opacity > 0 else ""


class DisplayList(RendererBase):
    """The instructions for a figure of `width` x `height` pixels.

    `add(artists)` records artists in the order in which matplotlib draws them. `instructions`, `points`, `pixels`: the result.
    """

    def __init__(self, width: int, height: int):
        super().__init__()
        self.width, self.height = width, height
        self.instructions: list[dict[str, Any]] = []
        self._points: list[np.ndarray] = []
        self._count = self._bytes = 0
        self._pixels: list[bytes] = []
        self._affine: dict[int, tuple[Any, tuple[float, ...]]] = {}  # by transform: itself, its coefficients

    @property
    def points(self) -> np.ndarray:
        """Shape (n, 2), float32."""
        return np.concatenate(self._points, dtype=np.float32) if self._points else np.empty((0, 2), np.float32)

    @property
    def pixels(self) -> bytes:
        return b"".join(self._pixels)

    def add(self, artists: Iterable[Artist]) -> DisplayList:
        """Record artists, lowest `zorder` first."""
        for artist in sorted(artists, key=lambda each: each.zorder):
            if _is_empty(artist):
                continue
            if isinstance(artist, Text):
                self._add_text(artist)
            elif isinstance(artist, PolyCollection | LineCollection) and _is_simple(artist):
                self._add_collection(artist)
            elif isinstance(artist, Line2D) and _is_solid(artist):
                self._add_line(artist)
            elif isinstance(artist, AxesImage) and _is_unscaled(artist):
                self._add_image(artist)
            elif isinstance(artist, XAxis | YAxis) and _is_plain(artist):
                self._add_axis(artist)
            else:
                artist.draw(self)
        return self

    # matplotlib's renderer interface ------------------------------------------------------------------------------------

    def get_canvas_width_height(self) -> tuple[float, float]:
        return self.width, self.height

    def points_to_pixels(self, points: Any) -> Any:
        return points * _PIXELS

    def option_scale_image(self) -> bool:
        """The browser scales images."""
        return True

    def get_text_width_height_descent(self, s: str, prop: Any, ismath: Any) -> tuple[float, float, float]:
        """Size of a text in pixels, from the table of advance widths."""
        size = prop.get_size_in_points()
        return style.width(s, size), size * _PIXELS, size * _PIXELS * 0.2

    def draw_path(self, gc: GraphicsContextBase, path: Path, transform: Any, rgbFace: Any = None) -> None:
        line = rgbFace is None
        clip = (-9.0, -9.0, self.width + 9.0, self.height + 9.0) if line else None
        cleaned = path.cleaned(
            transform, remove_nans=True, clip=clip, simplify=path.should_simplify and line, curves=True
        )
        codes, vertices = np.asarray(cleaned.codes), np.asarray(cleaned.vertices)
        last = int(np.argmax(codes == Path.STOP)) if Path.STOP in codes else len(codes)
        if last > 1:
            self._shape(gc, vertices[:last], codes[:last], _colour(rgbFace))

    def draw_markers(
        self, gc: GraphicsContextBase, marker_path: Path, marker_trans: Any, path: Path, trans: Any, rgbFace: Any = None
    ) -> None:
        shape = marker_path.transformed(marker_trans)
        vertices = np.asarray(shape.vertices)
        codes = np.asarray(shape.codes) if shape.codes is not None else _line_codes(len(vertices))
        places = trans.transform(np.asarray(path.vertices))
        places = places[np.isfinite(places).all(axis=1)]
        if not len(places):
            return
        at = self._put(vertices * (1, -1))
        self._put(self._down(places))
        self._note(gc, "markers", at, _colour(rgbFace), codes=codes.tolist(), count=len(places))

    def draw_path_collection(
        self, gc: GraphicsContextBase, master_transform: Any, paths: Any, all_transforms: Any, offsets: Any, offset_trans: Any,
        facecolors: Any, edgecolors: Any, linewidths: Any, linestyles: Any, antialiaseds: Any, urls: Any, offset_position: Any,
        *, hatchcolors: Any = None,
    ) -> None:  # fmt: skip
        """Many polygons or lines in one instruction, if they are not moved, curved or dashed one by one."""
        paths = list(paths)
        shifted = len(all_transforms) or np.any(offset_trans.transform(offsets))
        curved = any(path.codes is not None and np.any((path.codes == 3) | (path.codes == 4)) for path in paths[:1])
        if shifted or curved or any(style != linestyles[0] for style in linestyles[1:]) or not paths:
            super().draw_path_collection(
                gc, master_transform, paths, all_transforms, offsets, offset_trans, facecolors, edgecolors, linewidths,
                linestyles, antialiaseds, urls, offset_position, hatchcolors=hatchcolors,
            )  # fmt: skip
            return
        vertices = np.concatenate([path.vertices for path in paths])
        at = self._put(self._down(master_transform.transform(vertices)))
        if len(linestyles):
            gc.set_dashes(*linestyles[0])
        edges = [_colour(each) for each in edgecolors]
        self._note(
            gc, "shapes", at, [_colour(each) for each in facecolors], n=[len(path.vertices) for path in paths],
            edge=edges, width=[float(each) * _PIXELS for each in linewidths] if edges else [0.0],
            closed=any(path.codes is not None and path.codes[-1] == Path.CLOSEPOLY for path in paths[:1]),
        )  # fmt: skip

    def draw_image(self, gc: GraphicsContextBase, x: float, y: float, im: Any, transform: Any = None) -> None:
        rows, columns = im.shape[:2]
        width, height = float(columns), float(rows)
        if transform is not None:  # of the unit square, relative to (x, y)
            (left, bottom), (right, top) = transform.transform([[0, 0], [1, 1]])
            x, y, width, height = x + left, y + bottom, right - left, top - bottom
        if height < 0:  # the first row is the upper one
            y, height = y + height, -height
        else:
            im = im[::-1]
        self._note(
            gc, "image", 0, "", byte=self._bytes, rows=rows, columns=columns, x=round(float(x), 2),
            y=round(self.height - float(y) - float(height), 2), w=round(float(width), 2), h=round(float(height), 2),
        )  # fmt: skip
        pixels = np.ascontiguousarray(im, np.uint8).tobytes()
        self._bytes += len(pixels)
        self._pixels.append(pixels)

    def draw_text(
        self, gc: GraphicsContextBase, x: float, y: float, s: str, prop: Any, angle: float, ismath: Any = False,
        mtext: Text | None = None,
    ) -> None:  # fmt: skip
        """A text whose left end is at (x, y), such as a tick label. Its anchor is the aligned end, because fonts differ."""
        align = _ALIGN[mtext.get_horizontalalignment()] if mtext is not None and not angle else -1
        x += (align + 1) / 2 * self.get_text_width_height_descent(s, prop, False)[0]
        self._text(s, x, self.height - y if not self.flipy() else y, align, 1, prop, angle, _colour(gc.get_rgb()))

    # recording ----------------------------------------------------------------------------------------------------------
    # The most frequent artists are recorded directly: `artist.draw` takes several times as long.

    def _add_collection(self, artist: Collection) -> None:
        """Solid polygons or lines, all in one instruction."""
        paths = artist.get_paths()
        corners = [np.asarray(path.vertices) for path in paths]
        at = self._put(self._place(artist.get_transform(), np.concatenate(corners)))
        edges = [_colour(each) for each in artist.get_edgecolor()]
        widths = np.atleast_1d(artist.get_linewidth()).tolist()
        self.instructions.append({
            "do": "shapes", "at": at, "fill": [_colour(each) for each in artist.get_facecolor()],
            "n": [len(each) for each in corners], "edge": edges,
            "width": [float(each) * _PIXELS for each in widths] if edges else [0.0],
            "closed": isinstance(artist, PolyCollection), **self._clip(artist),
        })  # fmt: skip
        if isinstance(artist, LineCollection) and artist.get_capstyle() == "round":
            self.instructions[-1]["round"] = True

    def _add_line(self, artist: Line2D) -> None:
        """A solid line without markers and without missing values."""
        at = self._put(self._place(artist.get_transform(), np.asarray(artist.get_xydata())))
        width = artist.get_linewidth() * _PIXELS
        colour = _colour(to_rgba(artist.get_color(), artist.get_alpha())) if width > 0 else ""
        self.instructions.append({
            "do": "shapes", "at": at, "fill": [""], "n": [self._count - at], "closed": False, "edge": [colour],
            "width": [width], **self._clip(artist),
        })  # fmt: skip
        if artist.get_solid_capstyle() == "round":
            self.instructions[-1]["round"] = True

    def _add_image(self, artist: AxesImage) -> None:
        left, right, bottom, top = artist.get_extent()
        transform, values = artist.get_transform(), artist.get_array()
        x0, y0 = self._place_one(transform, left, top)
        x1, y1 = self._place_one(transform, right, bottom)
        colours = np.asarray(artist.to_rgba(np.asarray(values), bytes=True))
        if artist.origin == "lower":
            colours = colours[::-1]
        if y0 > y1:
            colours, y0, y1 = colours[::-1], y1, y0
        if x0 > x1:
            colours, x0, x1 = colours[:, ::-1], x1, x0
        pixels = np.ascontiguousarray(colours).tobytes()
        self.instructions.append({
            "do": "image", "at": 0, "fill": "", "byte": self._bytes, "rows": colours.shape[0], "columns": colours.shape[1],
            "x": round(x0, 2), "y": round(y0, 2), "w": round(x1 - x0, 2), "h": round(y1 - y0, 2), **self._clip(artist),
        })  # fmt: skip
        self._bytes += len(pixels)
        self._pixels.append(pixels)

    def _clip(self, artist: Artist) -> dict[str, list[float]]:
        box = artist.get_clip_box() if artist.get_clip_on() else None
        if box is None:
            return {}
        left, bottom, right, top = box.extents
        return {"clip": [round(float(each), 2) for each in (left, self.height - top, right - left, top - bottom)]}

    def _place(self, transform: Any, points: np.ndarray) -> np.ndarray:
        """Points in pixels from the upper left corner."""
        if not transform.is_affine:
            return self._down(transform.transform(points))
        a, b, c, d, e, f = self._coefficients(transform)
        x, y = points[:, 0], points[:, 1]
        return np.column_stack((a * x + c * y + e, b * x + d * y + f))

    def _place_one(self, transform: Any, x: float, y: float) -> tuple[float, float]:
        """One point in pixels from the upper left corner."""
        if not transform.is_affine:
            x, y = transform.transform((x, y))
            return float(x), self.height - float(y)
        a, b, c, d, e, f = self._coefficients(transform)
        return a * x + c * y + e, b * x + d * y + f

    def _coefficients(self, transform: Any) -> tuple[float, ...]:
        """The matrix of an affine transform, with the vertical axis downwards; computed once per display list."""
        known = self._affine.get(id(transform))
        if known is None:
            (a, c, e), (b, d, f), _ = transform.get_matrix().tolist()
            # with the transform itself, so that no other one gets its id meanwhile
            known = self._affine[id(transform)] = transform, (a, -b, c, -d, e, self.height - f)
        return known[1]

    def _add_axis(self, axis: XAxis | YAxis) -> None:
        """Grid, ticks, labels: as `axis.draw`, which measures every text twice, and takes half of the time of a panel."""
        if not axis.get_visible():
            return
        axes: Any = axis.axes
        flat = isinstance(axis, XAxis)
        (left, low), (right, high) = axes.bbox.get_points()
        first, last = (left, right) if flat else (low, high)
        locations = axis.get_majorticklocs()
        ticks: list[Any] = axis.get_major_ticks(len(locations))
        labels = axis.get_major_formatter().format_ticks(list(locations))
        zero = np.zeros(len(ticks))
        at = axes.transData.transform(np.column_stack((locations, zero) if flat else (zero, locations)))[
            :, 0 if flat else 1
        ]
        # `transData` of a logarithmic other axis has no position for zero; only this axis' coordinate is used
        inside = [k for k, place in enumerate(at) if first - 0.5 <= place <= last + 0.5]
        shown = [(ticks[k], float(at[k])) for k in inside]
        start, widest, lines = (low if flat else left), 0.0, 0
        grid = [place for tick, place in shown if tick.gridline.get_visible()]
        if grid:
            self._lines(shown[0][0].gridline, grid, (low, high) if flat else (left, right), flat)
        marked = [
            place for tick, place in shown if tick.tick1line.get_visible() and tick.tick1line.get_markersize() > 0
        ]
        if marked:
            mark = shown[0][0].tick1line
            length = mark.get_markersize() * _PIXELS
            ink = _colour(to_rgba(mark.get_markeredgecolor()))
            self._lines(mark, marked, (start - length, start), flat, ink, mark.get_markeredgewidth())
        for (tick, place), k in zip(shown, inside):
            label, words = tick.label1, labels[k]
            if not words or not label.get_visible():
                continue
            away = start - (tick.get_tick_padding() + tick.get_pad()) * _PIXELS
            font = label.get_fontproperties()
            x, y, align, base = (place, self.height - away, 0, -1) if flat else (away, self.height - place, 1, 0)
            self._text(words, x, y, align, base, font, 0, _colour(_rgba(label)))
            lines = max(lines, words.count("\n") + 1)
            widest = max(widest, *(style.width(line, font.get_size_in_points()) for line in words.split("\n")))
        self._add_axis_label(axis, shown, start, widest, lines)

    def _lines(
        self,
        line: Line2D,
        places: list[float],
        ends: tuple[float, float],
        flat: bool,
        ink: str = "",
        width: float | None = None,
    ) -> None:
        """Straight lines across the axis at `places`, from one end to the other, in pixels from the lower left corner."""
        along, across = np.repeat(np.asarray(places), 2), np.tile(np.asarray(ends), len(places))
        at = self._put(self._down(np.column_stack((along, across) if flat else (across, along))))
        self.instructions.append({
            "do": "shapes", "at": at, "fill": [], "n": [2] * len(places), "closed": False,
            "edge": [ink or _colour(to_rgba(line.get_color(), line.get_alpha()))],
            "width": [(line.get_linewidth() if width is None else width) * _PIXELS],
        })  # fmt: skip

    def _add_axis_label(self, axis: XAxis | YAxis, shown: list[Any], start: float, widest: float, lines: int) -> None:
        label = axis.label
        words = label.get_text()
        if not words or not label.get_visible():
            return
        (left, low), (right, high) = axis.axes.bbox.get_points()
        away = start - axis.labelpad * _PIXELS
        if lines:
            tick = shown[0][0]
            away -= (tick.get_tick_padding() + tick.get_pad()) * _PIXELS
        font, ink = label.get_fontproperties(), _colour(_rgba(label))
        if isinstance(axis, XAxis):
            if lines:
                away -= (1.2 * lines - 0.2) * shown[0][0].label1.get_fontsize() * _PIXELS
            wide = style.width(words, font.get_size_in_points())
            if wide > self.width:  # all of it is in the figure
                font = font.copy()
                font.set_size(font.get_size_in_points() * self.width / wide)
            half = min(wide, self.width) / 2
            middle = max(half, min((left + right) / 2, self.width - half))
            self._text(words, middle, self.height - away, 0, -1, font, 0, ink)
        else:
            self._text(words, away - widest, self.height - (low + high) / 2, 0, 2, font, 90, ink)

    def _add_text(self, artist: Text) -> None:
        """A text, without matplotlib's layout: the browser aligns it."""
        if isinstance(artist, Annotation):
            artist.draw(self)
            return
        words = artist.get_text()
        if not words or not artist.get_visible():
            return
        x, y = self._place_one(artist.get_transform(), *map(float, artist.get_unitless_position()))
        if not (math.isfinite(x) and math.isfinite(y)):
            return
        box = artist.get_clip_box() if artist.get_clip_on() else None
        if box is not None and not box.contains(x, self.height - y):
            return
        strokes = [effect for effect in artist.get_path_effects() or () if isinstance(effect, withStroke)]
        halo = max((float(vars(effect)["_gc"]["linewidth"]) for effect in strokes), default=0.0)
        self._text(
            words, x, y, _ALIGN[artist.get_horizontalalignment()], _BASE[artist.get_verticalalignment()],
            artist.get_fontproperties(), artist.get_rotation(), _colour(_rgba(artist)), halo * _PIXELS,
        )  # fmt: skip

    def _text(
        self, s: str, x: float, y: float, align: int, base: int, prop: Any, angle: float, colour: str, halo: float = 0.0
    ) -> None:
        if not angle:
            x, y = self._inside(s, float(x), float(y), align, base, prop)
        self.instructions.append({
            "do": "text", "s": s, "x": round(float(x), 2), "y": round(float(y), 2), "align": align, "base": base,
            "size": round(prop.get_size_in_points() * _PIXELS, 2), "angle": float(angle), "colour": colour,
            "bold": prop.get_weight() in ("bold", "semibold", 600, 700), "halo": round(halo, 2),
        })  # fmt: skip

    def _inside(self, s: str, x: float, y: float, align: int, base: int, prop: Any) -> tuple[float, float]:
        """The anchor of a text, moved so that the text does not cross an edge of the figure by a few pixels."""
        size = prop.get_size_in_points()
        lines = s.split("\n")
        wide = max(style.width(line, size, prop.get_weight() == "bold") for line in lines)
        high = (1.2 * len(lines) - 0.2) * size * _PIXELS
        left, top = x - (align + 1) / 2 * wide, y - {-1: 0.0, 0: 0.5, 1: 0.8, 2: 1.0}[base] * high
        if wide < self.width:
            x += max(0.0, -left) - max(0.0, left + wide - self.width)
        if high < self.height:
            y += max(0.0, -top) - max(0.0, top + high - self.height)
        return x, y

    def _shape(self, gc: GraphicsContextBase, vertices: np.ndarray, codes: np.ndarray, fill: str) -> None:
        at = self._put(self._down(vertices))
        straight = codes[0] == Path.MOVETO and (codes[1:-1] == Path.LINETO).all()
        if straight and codes[-1] in (Path.LINETO, Path.CLOSEPOLY):
            self._note(gc, "shapes", at, [fill], n=[len(codes)], closed=bool(codes[-1] == Path.CLOSEPOLY))
        else:
            self._note(gc, "curve", at, fill, codes=codes.tolist())

    def _note(self, gc: GraphicsContextBase, do: str, at: int, fill: Any, **more: Any) -> None:
        instruction = {"do": do, "at": at, "fill": fill, **more}
        width = float(gc.get_linewidth()) * _PIXELS
        if "edge" not in more:
            edge = _colour(gc.get_rgb(), gc.get_alpha() if gc.get_forced_alpha() else None) if width > 0 else ""
            instruction["edge"], instruction["width"] = ([edge], [width]) if do == "shapes" else (edge, width)
        dashing: Any = gc.get_dashes()
        start, dashes = dashing
        if dashes is not None:
            instruction["dash"] = [start * _PIXELS, *(each * _PIXELS for each in dashes)]
        clip = gc.get_clip_rectangle()
        if clip is not None:
            x, y, wide, high = clip.bounds
            instruction["clip"] = [round(x, 2), round(self.height - y - high, 2), round(wide, 2), round(high, 2)]
        if gc.get_hatch():
            instruction["hatch"] = _colour(gc.get_hatch_color())
        if gc.get_capstyle() == "round":
            instruction["round"] = True
        self.instructions.append(instruction)

    def _put(self, points: np.ndarray) -> int:
        at = self._count
        self._points.append(points)
        self._count += len(points)
        return at

    def _down(self, points: np.ndarray) -> np.ndarray:
        return np.column_stack((points[:, 0], self.height - points[:, 1]))


def _is_empty(artist: Artist) -> bool:
    """Whether an artist draws nothing. Most artists of a panel are empty at a given moment, and drawing them takes as long."""
    if not artist.get_visible():
        return True
    if isinstance(artist, Line2D):
        return not len(artist.get_xdata())  # type: ignore[arg-type]
    if isinstance(artist, Collection):
        return not len(artist.get_paths())
    # one may be an arrow
    return isinstance(artist, Text) and not isinstance(artist, Annotation) and not artist.get_text()


def _is_simple(artist: Collection) -> bool:
    """Solid lines, no pattern, and no shape that is moved or scaled."""
    styles: Any = artist.get_linestyle()
    solid = all(dashes is None for _, dashes in styles)
    return solid and not artist.get_hatch() and not len(artist.get_transforms()) and not np.any(artist.get_offsets())


def _is_solid(artist: Line2D) -> bool:
    """A solid line, without markers and missing values, that is short enough to be sent as it is."""
    plain = (
        artist.get_linestyle() == "-" and artist.get_marker() in ("None", None, "") and not artist.get_path_effects()
    )
    if not plain or artist.get_drawstyle() != "default":
        return False
    points = np.asarray(artist.get_xydata())
    return len(points) <= MOST_POINTS and bool(np.isfinite(points).all())


def _is_unscaled(artist: AxesImage) -> bool:
    """One colour per cell."""
    return type(artist) is AxesImage and artist.get_interpolation() == "none" and artist.get_alpha() is None


def _is_plain(axis: XAxis | YAxis) -> bool:
    """Whether an axis has its ticks and its label at the lower or left side, no minor ticks, and no common factor."""
    side = "bottom" if isinstance(axis, XAxis) else "left"
    plain = axis.get_ticks_position() in (side, "default") and axis.get_label_position() == side
    return plain and isinstance(axis.get_minor_locator(), NullLocator) and not axis.get_major_formatter().get_offset()


def _line_codes(count: int) -> np.ndarray:
    return np.array([Path.MOVETO] + [Path.LINETO] * (count - 1), np.uint8)


def _rgba(artist: Text) -> tuple[float, float, float, float]:
    return to_rgba(artist.get_color(), artist.get_alpha())


def figure_list(figure: Figure) -> DisplayList:
    """Return the display list of a whole figure, without its background: all axes, and the texts of the figure."""
    wide, high = (round(value * style.DPI) for value in figure.get_size_inches())
    recorded = DisplayList(wide, high)
    for axes in figure.axes:
        axes.apply_aspect()
        frame = (axes.patch, axes.xaxis, axes.yaxis, *axes.spines.values())
        recorded.add(frame[1:])
        recorded.add(artist for artist in axes.get_children() if artist not in frame)
    return recorded.add([*figure.texts, *figure.lines])
