"""Small graphics as SVG that the server draws: a sparkline, columns, and a bar of parts. Without script and without inline style."""

from collections.abc import Sequence

from markupsafe import Markup

WIDTH, HEIGHT, MARGIN = 120.0, 28.0, 2.0
SPARKLINE = Markup(
    '<svg class="sparkline" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img" aria-label="{label}">'
    '<polyline points="{points}"/><circle cx="{x:.1f}" cy="{y:.1f}" r="2"/></svg>'
)
BAR = Markup('<svg class="bar" viewBox="0 0 100 10" width="120" height="10" preserveAspectRatio="none" role="img" aria-label="{label}">')
COLUMNS_WIDTH, COLUMNS_HEIGHT = 360.0, 60.0
COLUMNS = Markup(
    '<svg class="columns" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img" aria-label="{label}">'
)
COLUMN = Markup('<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="1"/>')
PART = Markup('<rect class="part-{number}" x="{x:.2f}" y="0" width="{width:.2f}" height="10"/>')


def sparkline(values: Sequence[float | None], label: str, *, least: float | None = None, most: float | None = None) -> Markup:
    """A line through the values, the oldest first; None leaves a place out. `label` says in words what it shows.

    The scale goes from `least` to `most`; by default from the lowest value to the highest.
    """
    known = [(index, value) for index, value in enumerate(values) if value is not None]
    if not known:
        return Markup("")
    low = min(value for _, value in known) if least is None else least
    high = max(value for _, value in known) if most is None else most
    step = (WIDTH - 2 * MARGIN) / max(len(values) - 1, 1)
    span = (high - low) or 1.0
    places = [(MARGIN + index * step, HEIGHT - MARGIN - (value - low) / span * (HEIGHT - 2 * MARGIN)) for index, value in known]
    if len(places) == 1:
        places = [(MARGIN, places[0][1]), (WIDTH - MARGIN, places[0][1])]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return SPARKLINE.format(width=WIDTH, height=HEIGHT, label=label, points=points, x=places[-1][0], y=places[-1][1])


def columns(values: Sequence[float], label: str) -> Markup:
    """A column for each value, the oldest first, none below 0. `label` says in words what they show."""
    high = max([*values, 0.0]) or 1.0
    width = COLUMNS_WIDTH / max(len(values), 1)
    drawn = [COLUMNS.format(width=COLUMNS_WIDTH, height=COLUMNS_HEIGHT, label=label)]
    for index, value in enumerate(values):
        height = max(value / high * COLUMNS_HEIGHT, 1.0)  # a day without anything is a line at the bottom
        drawn.append(COLUMN.format(x=index * width + 1, y=COLUMNS_HEIGHT - height, width=max(width - 2, 1.0), height=height))
    return Markup("").join([*drawn, Markup("</svg>")])


def bar(parts: Sequence[float], label: str, *, most: float = 100.0) -> Markup:
    """A bar of parts from the left, as shares of `most`; the first has the class part-1. `label` says in words what it shows."""
    drawn = [BAR.format(label=label)]
    x = 0.0
    for number, part in enumerate(parts, start=1):
        width = max(min(part / most * 100, 100 - x), 0.0)
        drawn.append(PART.format(number=number, x=x, width=width))
        x += width
    return Markup("").join([*drawn, Markup("</svg>")])
