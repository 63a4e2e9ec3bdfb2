"""Graphics as SVG that the server draws: sparkline, strip of time, bar, chart, shares with intervals. Without script."""

from collections.abc import Iterable, Mapping, Sequence
from math import floor, log10

from markupsafe import Markup

WIDTH, HEIGHT, MARGIN = 120.0, 28.0, 2.0
SPARKLINE = Markup(
    '<svg class="sparkline" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img" aria-label="{label}">'
    '<polyline points="{points}"/><circle cx="{x:.1f}" cy="{y:.1f}" r="2"/></svg>'
)
BAR = Markup('<svg class="bar" viewBox="0 0 100 10" width="120" height="10" preserveAspectRatio="none" role="img" aria-label="{label}">')
SLOTS = Markup(
    '<svg class="slots" viewBox="0 0 {width} 18" width="{width}" height="18" preserveAspectRatio="none" role="img" aria-label="{label}">'
)
TOPS = {"bad": 0, "warn": 3, "good": 6}
SLOT = Markup('<path class="{tone}" d="{path}"/>')
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


def slots(tones: Sequence[str], label: str) -> Markup:
    """A strip of equal parts of time, the oldest first: good, warn, bad or none. `label` says in words what it shows.

    The worse, the higher: colours alone would not tell everybody.
    """
    drawn = [SLOTS.format(width=len(tones) * 6, label=label)]
    for tone in dict.fromkeys(tones):
        top = TOPS.get(tone, 12)
        path = "".join(f"M{place * 6 + 3} {top}V18" for place, one in enumerate(tones) if one == tone)  # one path for each tone
        drawn.append(SLOT.format(tone=tone, path=path))
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


CHART = Markup('<svg class="chart-of" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{label}">')
LABEL = Markup('<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>')
RULE = Markup('<line class="rule" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')
LINE = Markup('<polyline class="line-{number}" points="{points}"/>')
DOT = Markup('<circle class="part-{number}" cx="{x:.1f}" cy="{y:.1f}" r="{r:g}"/>')
WHISKER = Markup('<line class="line-{number}" x1="{x1:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y:.1f}"/>')
CHART_WIDTH, LEFT, BOTTOM, ROW, LETTER = 640.0, 44.0, 24.0, 26.0, 11.0


def chart(
    series: Mapping[str, Sequence[float | None]], places: Sequence[str], label: str, *, unit: str = "", most: float | None = None
) -> Markup:
    """A line for each series over the same places, the oldest first, with an axis from 0, to `most`, and a legend; None leaves a place out.

    `label` says in words what it shows, `unit` follows the numbers of the axis, apart from $. Put a table of the same numbers beside it.
    """
    high = most or _round_up(max((value for values in series.values() for value in values if value is not None), default=0.0))
    ticks = [(share, _on_axis(high * share, unit)) for share in (0.0, 0.5, 1.0)]
    left = max(LEFT, 8 + LETTER * max(len(text) for _, text in ticks))
    legend = _legend(series, left)
    top = ROW + max((y for _, y in legend), default=0.0)
    base = top + 150.0
    step = (CHART_WIDTH - left - 8) / max(len(places) - 1, 1)
    drawn = [CHART.format(width=CHART_WIDTH, height=base + BOTTOM, label=label)]
    for share, text in ticks:
        y = base - share * (base - top)
        drawn += [RULE.format(x1=left, y1=y, x2=CHART_WIDTH, y2=y)]
        drawn += [LABEL.format(x=left - 6, y=y + 4, anchor="end", text=text)]
    if places:
        drawn += [LABEL.format(x=left, y=base + 18, anchor="start", text=places[0])]
        drawn += [LABEL.format(x=CHART_WIDTH, y=base + 18, anchor="end", text=places[-1])] if len(places) > 1 else []
    for number, (name, values) in enumerate(series.items(), start=1):
        points = [(left + place * step, base - value / high * (base - top)) for place, value in enumerate(values) if value is not None]
        drawn += [LINE.format(number=number, points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points))]
        drawn += [DOT.format(number=number, x=x, y=y, r=3) for x, y in points[-1:]]
        x, y = legend[number - 1]
        drawn += [DOT.format(number=number, x=x + 5, y=y + 8, r=5), LABEL.format(x=x + 16, y=y + 12, anchor="start", text=name)]
    return Markup("").join([*drawn, Markup("</svg>")])


def _legend(names: Iterable[str], left: float) -> list[tuple[float, float]]:
    x, y = left, 0.0
    places = []
    for name in names:
        if x > left and x + 16 + len(name) * LETTER > CHART_WIDTH:
            x, y = left, y + ROW
        places.append((x, y))
        x += 36 + len(name) * LETTER
    return places


def intervals(rows: Sequence[tuple[str, str, int, float, float, float]], label: str) -> Markup:
    """Shares with their intervals on one axis in percent: name, count in words, number of its colour, low, value and high, 0 to 1."""
    high = _round_up(max((row[5] for row in rows), default=0.0) * 100)
    left, right = 190.0, CHART_WIDTH - 190
    base = len(rows) * ROW + 6
    drawn = [CHART.format(width=CHART_WIDTH, height=base + BOTTOM, label=label)]
    for share in (0.0, 0.5, 1.0):
        x = left + share * (right - left)
        drawn += [RULE.format(x1=x, y1=0, x2=x, y2=base), LABEL.format(x=x, y=base + 18, anchor="middle", text=f"{high * share:g} %")]
    for place, (name, count, number, *shares) in enumerate(rows):
        y = (place + 0.5) * ROW
        low, value, most = (left + share * 100 / high * (right - left) for share in shares)
        drawn += [LABEL.format(x=0, y=y + 4, anchor="start", text=name), WHISKER.format(number=number, x1=low, x2=most, y=y)]
        drawn += [DOT.format(number=number, x=value, y=y, r=5), LABEL.format(x=CHART_WIDTH, y=y + 4, anchor="end", text=count)]
    return Markup("").join([*drawn, Markup("</svg>")])


def _on_axis(value: float, unit: str) -> str:
    return f"${value:,.10g}" if unit == "$" else f"{value:,.10g}{unit}"


def _round_up(value: float) -> float:
    """The end of an axis: an even number of powers of ten, so that its middle is a short number, and a whole one for counts."""
    power = 10.0 ** floor(log10(value)) if value > 0 else 1.0
    return next(power * factor for factor in (2, 4, 6, 8, 10) if value <= power * factor)
