"""The house style: one look for every figure, readable at 600 px, on white and on dark paper.

Figures are made without pyplot: no global state, no window, nothing to close.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#22272f"
"""Text and axes. In an SVG this becomes ``currentColor``: the page decides."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#c46a9b", "#a67c00", "#6b7a8f")
"""Okabe and Ito's colour-blind-safe set; the last three darkened until they read on white and on black."""

DARK_COLOURS = ("#4ba6e3", "#f0883e", "#2fc99a", "#e39cc4", "#d9ae3c", "#9aa9bd")
"""The same series, lighter: what a page on dark paper puts in place of :data:`COLOURS`."""

DASHES = ("solid", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
"""Lines differ by dash as well, for those who print in grey."""

TEXT = 9.5  # point size of all text: 12.7 px in a picture 480 px wide

LOG_FROM = 10.0  # positive values that span more than this factor are drawn on a logarithmic axis


def colour(i: int) -> str:
    """The ``i``-th series colour; starts again after the last."""
    return COLOURS[i % len(COLOURS)]


def dash(i: int) -> Any:
    """The ``i``-th dash: changes once the colours have been used up."""
    return DASHES[(i // len(COLOURS)) % len(DASHES)]


def wants_log(values: list[float], score: str = "") -> bool:
    """Whether a logarithmic axis shows these values better. Never for accuracies: they end at 1."""
    if not values or score == "accuracy":
        return False
    return min(values) > 0 and max(values) / min(values) > LOG_FROM


def blank_figure(width: float, height: float) -> Figure:
    """A figure without axes, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def new_figure(rows: int = 1, width: float = 5.0, height: float = 3.1) -> tuple[Figure, list[Axes]]:
    """An empty figure of ``rows`` panels with a common x axis (inches; 5 inches are 480 px in a page)."""
    figure = blank_figure(width, height)
    axes = [figure.add_subplot(rows, 1, 1)]
    axes += [figure.add_subplot(rows, 1, i + 1, sharex=axes[0]) for i in range(1, rows)]
    for panel in axes:
        dress(panel)
    for panel in axes[:-1]:
        panel.tick_params(labelbottom=False)
    return figure, axes


def dress(axes: Axes) -> None:
    """Two thin spines, a faint horizontal grid, ink-coloured text."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(INK)
        axes.spines[side].set_linewidth(0.7)
        axes.spines[side].set_alpha(0.55)
    axes.tick_params(which="both", colors=INK, labelsize=TEXT, width=0.7, length=3)
    axes.tick_params(which="minor", length=0)
    axes.grid(axis="y", color=INK, alpha=0.13, linewidth=0.7)
    axes.set_axisbelow(True)


def label(axes: Axes, x: str = "", y: str = "") -> None:
    """Names the axes; y reads horizontally above its axis, where there is room for words."""
    if x:
        axes.set_xlabel(x, color=INK, fontsize=TEXT)
    if y:
        axes.set_title(y, color=INK, fontsize=TEXT, loc="left", pad=7)


def legend(axes: Axes, **options: Any) -> None:
    """A legend without a box, if there is more than one thing to tell apart."""
    handles, names = axes.get_legend_handles_labels()
    if len(handles) > 1:
        axes.legend(
            handles, names, frameon=False, fontsize=TEXT - 0.5, labelcolor=INK, handlelength=1.8, **options
        )


def log_scale(axes: Axes, values: list[float], which: str = "y") -> None:
    """A logarithmic axis for ``values``, with plain numbers (0.1, 1, 10) that every screen can show."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    getattr(axes, f"set_{which}scale")("log")
    axis = axes.yaxis if which == "y" else axes.xaxis
    wide = max(values) / min(values) > (3000.0 if which == "y" else 300.0)
    axis.set_major_locator(LogLocator(base=10, subs=(1.0,) if wide else (1.0, 2.0, 5.0), numticks=9))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    axis.set_minor_formatter(NullFormatter())


def whole_steps(axes: Axes) -> None:
    """Ticks of the x axis at whole numbers, thousands set apart."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}".replace(",", "\u202f")))


_ID = re.compile(r'(\bid="|url\(#|href="#)')


def figure_to_svg(figure: Figure, name: str = "figure", title: str = "", description: str = "") -> str:
    """One ``<svg>`` element, for a page or a file of its own.

    Ids are derived from the content and prefixed with ``name``, so the text is reproducible and two
    figures never share one. Text stays text; ink becomes ``currentColor``, the background transparent.

    Args:
        figure: what a renderer of this room returned.
        name: prefix of every id; give each figure of a page its own.
        title: a short name for screen readers.
        description: what there is to see, for those who cannot.
    """
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = prefixed(text, name)
    text = re.sub(re.escape(INK), "currentColor", text, flags=re.IGNORECASE)
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 system-ui, 'DejaVu Sans', sans-serif", text)
    return _described(text, name, title, description).strip() + "\n"


def prefixed(svg: str, name: str) -> str:
    """The same picture with ``name`` before every id, and before every use of one."""
    return _ID.sub(rf"\g<1>{name}-", svg)


def _described(svg: str, name: str, title: str, description: str) -> str:
    """Adds role, title and description: an image without words is no image to some readers."""
    head, rest = svg.split(">", 1)
    if not title and not description:
        return f'{head} role="presentation">{rest}'
    used = [(tag, text) for tag, text in (("title", title), ("desc", description)) if text]
    names = " ".join(f"{name}-{tag}" for tag, _ in used)
    words = "".join(f'\n <{tag} id="{name}-{tag}">{html.escape(text)}</{tag}>' for tag, text in used)
    return f'{head} role="img" aria-labelledby="{names}">{words}{rest}'


def write_figures(folder: Path, figures: Mapping[str, Figure]) -> list[str]:
    """Writes every figure as ``STEM.png`` and ``STEM.svg``; returns the paths of the PNGs, in order."""
    written = []
    for stem, figure in figures.items():
        figure.savefig(folder / f"{stem}.png", dpi=160, facecolor="white")
        (folder / f"{stem}.svg").write_text(figure_to_svg(figure, stem), encoding="utf-8")
        written.append(str(folder / f"{stem}.png"))
    return written
