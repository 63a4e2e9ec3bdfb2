"""Measured values and the lines of the result table: medians and goals. Pure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

VERDICTS = ("met", "undecided", "missed")
"""From best to worst. A goal is undecided if it lies within the spread of a figure's rounds."""
HEADINGS = ("what", "goal", "median (min … max)", "CPU (min … max)", "req/s", "CPU µs", "verdict")


@dataclass(frozen=True)
class Measured:
    """The result of a load: answered requests, duration, and the CPU seconds of the server and of the load itself.

    Two results can be added.
    """

    answered: int
    seconds: float
    server_cpu: float
    own_cpu: float

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.answered / self.seconds

    @property
    def cpu(self) -> float:
        """CPU seconds of the server per request."""
        return self.server_cpu / self.answered

    @property
    def own_share(self) -> float:
        """The share of a CPU that the load used."""
        return self.own_cpu / self.seconds

    def __add__(self, other: "Measured") -> "Measured":
        return Measured(
            self.answered + other.answered,
            self.seconds + other.seconds,
            self.server_cpu + other.server_cpu,
            self.own_cpu + other.own_cpu,
        )


@dataclass(frozen=True)
class Pair:
    """The results of campus and its baseline, measured in turns. Two pairs can be added."""

    campus: Measured
    baseline: Measured

    def __add__(self, other: "Pair") -> "Pair":
        return Pair(self.campus + other.campus, self.baseline + other.baseline)

    @property
    def rate_ratio(self) -> float:
        """Requests per second as a share of the baseline's."""
        return self.campus.rate / self.baseline.rate

    @property
    def cpu_ratio(self) -> float:
        """The baseline's CPU per request ÷ campus's: as with the rate, 1 is equal and more is better."""
        return self.baseline.cpu / self.campus.cpu

    @property
    def own_share(self) -> float:
        """The larger share of a CPU that the load used; near 1 the load would have measured itself."""
        return max(self.campus.own_share, self.baseline.own_share)


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    what: str
    goal: str
    cells: tuple[str, str, str, str]
    verdict: str


def line_of_pairs(what: str, *, goal: float, pairs: Sequence[Pair], judged: Sequence[str] = ("req/s", "CPU")) -> Line:
    """The medians of all rounds, and whether the `judged` ratios reach the goal."""
    rates = [pair.rate_ratio for pair in pairs]
    cpus = [pair.cpu_ratio for pair in pairs]
    requests = f"{median(pair.campus.rate for pair in pairs):,.0f} ÷ {median(pair.baseline.rate for pair in pairs):,.0f}"
    micros = f"{median(pair.campus.cpu for pair in pairs) * 1e6:,.0f} ÷ {median(pair.baseline.cpu for pair in pairs) * 1e6:,.0f}"
    found = {name: judged_by(ratios, at_least=goal) for name, ratios in (("req/s", rates), ("CPU", cpus)) if name in judged}
    worst = max(found.values(), key=VERDICTS.index)
    verdict = worst if worst == VERDICTS[0] else f"{worst} ({', '.join(name for name, one in found.items() if one == worst)})"
    return Line(what, f"≥ {goal:g}", (_spread(rates), _spread(cpus), requests, micros), verdict)


def judged_by(values: Sequence[float], *, at_least: float = -math.inf, at_most: float = math.inf) -> str:
    """The verdict on a figure: it is undecided if the goal lies within the spread of its rounds, since noise decides then."""
    within = [at_least <= value <= at_most for value in values]
    return VERDICTS[0] if all(within) else VERDICTS[1] if any(within) else VERDICTS[2]


def line_of_costs(what: str, *, unit: str, costs: Sequence[float], goal: float | None = None, cpu: Sequence[float] = ()) -> Line:
    """The median of an absolute cost, such as seconds, and the CPU seconds behind it; without a goal it is shown for comparison."""
    verdict = "for comparison" if goal is None else judged_by(costs, at_most=goal)
    said = "" if goal is None else f"≤ {goal:g} {unit}"
    return Line(what, said, (f"{_spread(costs)} {unit}", f"{_spread(cpu)} s" if cpu else "", "", ""), verdict)


def line_of_speeds(what: str, *, unit: str, speeds: Sequence[float], goal: float) -> Line:
    """The median of a value of which more is better."""
    return Line(what, f"≥ {goal:,g} {unit}", (f"{_spread(speeds)} {unit}", "", "", ""), judged_by(speeds, at_least=goal))


def line_of_skipped(what: str, *, reason: str) -> Line:
    """A line that says why something was not measured."""
    return Line(what, "", ("", "", "", ""), f"skipped: {reason}")


def table(lines: Iterable[Line]) -> str:
    """The lines as a table with headings."""
    rows = [HEADINGS, *((line.what, line.goal, *line.cells, line.verdict) for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def _spread(values: Sequence[float]) -> str:
    digits = 0 if median(values) >= 100 else 2
    return f"{median(values):.{digits}f} ({min(values):.{digits}f} … {max(values):.{digits}f})"
