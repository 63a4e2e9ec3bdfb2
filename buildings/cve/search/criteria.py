"""The language of criteria: what a CVE must fulfil to be found by a search, or told by a watch. Pure.

Each criterion is one argument of the tools, one condition in SQL and one sentence, and is written once: as a member of Criteria. The
first four name CVEs: one of these names is enough. All others must hold.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from sqlalchemy import ColumnElement, Float, Table, and_, cast, false, null, or_, select

from buildings.cve.arguments import SEQUENCES, CveId, number_of
from buildings.cve.plain_names import plain_name, plain_package, plain_product
from buildings.cve.ranking.enrichment import Severity
from buildings.cve.tables import CVES, DETAILS, EPSS_CHANGES, PRODUCTS, RANKED, WEAKNESSES

MOST_NAMES = 50
MOST_CVE_IDS = 1_000
TEN_WORDS = r"^\s*\S+(\s+\S+){0,9}\s*$"
LONGEST_NAME = 200  # KEV has a product of 90 characters, and its vendor comes before it
IN_KEV = 25.0  # The lowest score of a CVE in KEV. One outside has at most 25 times EPSS, and counts as lower.
HALF_STEP = 0.0005  # Scores are shown with three decimals.
LEAST_RISE = 0.00001  # EPSS has five decimals.
SEVERITIES: Sequence[Severity] = ("LOW", "MEDIUM", "HIGH", "CRITICAL")
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Condition = ColumnElement[bool]


@dataclass(frozen=True)
class Days:
    """The days that criteria count from: `today`; and the day a week before EPSS's, None if its scores cannot be compared with today's."""

    today: date
    week_before: date | None


@dataclass(frozen=True)
class Criterion:
    """The condition, and its sentence, in which {} is the value; one that may be false has two sentences.

    The condition is one on a row of `ranked` beside its row of `cve`, or with `table` on a row of that, of which one must hold.
    """

    holds: Callable[[Any, Days], Condition]
    says: str
    if_false: str = ""
    table: Table | None = None


def _vendors(names: Sequence[str], days: Days) -> Condition:
    return PRODUCTS.c.plain_vendor.in_([plain_name(name) for name in names])


def _products(names: Sequence[str], days: Days) -> Condition:
    pairs = [plain_product(name) for name in names]
    alone = PRODUCTS.c.plain_product.in_([product for vendor, product in pairs if vendor is None])
    of_vendors = [and_(PRODUCTS.c.plain_vendor == vendor, PRODUCTS.c.plain_product == name) for vendor, name in pairs if vendor]
    return or_(alone, *of_vendors)


def _listed(since: date = date.min) -> Condition:
    return CVES.c.kev_added > since  # a comparison, which the index answers


def _ransomware(value: bool, days: Days) -> Condition:
    return and_(_listed(), CVES.c.kev_ransomware.is_(True) if value else CVES.c.kev_ransomware.is_not(True))


def _due(within: int, days: Days) -> Condition:
    return CVES.c.kev_due.between(days.today, days.today + timedelta(days=within))


def _exploit(value: bool, days: Days) -> Condition:
    link = CVES.c.exploit_url
    return link.is_not(None) if value else and_(CVES.c.status.is_not(None), link.is_(None))


def reached(least: float) -> float:
    """The unrounded score from which a CVE has this score, to three decimals. That of KEV is not rounded to."""
    return max(least - HALF_STEP, IN_KEV if least >= IN_KEV else 0)


def _score(least: float, days: Days) -> Condition:
    enough = RANKED.c.score >= reached(least)
    return and_(enough, CVES.c.number == RANKED.c.number, _listed()) if least >= IN_KEV else enough


def _text(text: str, days: Days) -> Condition:
    """Every word; what LIKE takes for a pattern is escaped."""
    return and_(*(DETAILS.c.description.icontains(word, autoescape=True) for word in text.split()))


def risen(days: Days) -> ColumnElement[Any]:
    """How much the EPSS of a row of `ranked` rose in a week; null where one of both scores is missing."""
    if days.week_before is None:
        return cast(null(), Float)  # PostgreSQL takes the opposite of no null without a type
    change = EPSS_CHANGES.c
    before = select(change.epss).where(change.number == RANKED.c.number, change.day <= days.week_before)
    return RANKED.c.epss - before.correlate(RANKED).order_by(change.day.desc()).limit(1).scalar_subquery()


def _changed(least: float, days: Days) -> Condition:
    """Only an EPSS that changed within the week can have risen."""
    return EPSS_CHANGES.c.day > days.week_before if days.week_before else false()


def _visible(name: str) -> str:
    """On one line, without characters that are not shown: these are no part of a name."""
    shown = "".join(character if character.isprintable() else " " for character in name)
    return " ".join(shown.split()) or "?"


Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=r"\S"), AfterValidator(_visible)]
Cwe = Annotated[str, Field(pattern=r"^CWE-[1-9][0-9]{0,4}$")]


class Criteria(BaseModel):
    """What a CVE must fulfil; None for a criterion that was not sent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    vendors: Annotated[
        list[Name] | None,
        Field(
            max_length=MOST_NAMES,
            description="Vendors, as KEV or NVD spells them; case, blanks and punctuation do not matter. cve_verdict shows a CVE's vendor.",
            examples=[["Cisco", "Fortinet"]],
        ),
        Criterion(_vendors, "of vendor {}", table=PRODUCTS),
    ] = None
    products: Annotated[
        list[Name] | None,
        Field(
            max_length=MOST_NAMES,
            description="Products, as KEV or NVD spells them, of any vendor; or vendor:product.",
            examples=[["Log4j2", "microsoft:exchange server"]],
        ),
        Criterion(_products, "of product {}", table=PRODUCTS),
    ] = None
    packages: Annotated[
        list[Name] | None,
        Field(
            max_length=MOST_NAMES,
            description="Packages by name or package URL; the last part is compared with product names, since NVD has no packages.",
            examples=[["pkg:npm/lodash", "django"]],
        ),
        Criterion(
            lambda names, days: PRODUCTS.c.plain_product.in_([plain_package(name) for name in names]),
            "of a product named as the package {}",
            table=PRODUCTS,
        ),
    ] = None
    cve_ids: Annotated[
        list[CveId] | None,
        Field(max_length=MOST_CVE_IDS, description="CVE identifiers, at most 1,000."),
        Criterion(lambda ids, days: RANKED.c.number.in_([number_of(one) for one in ids]), "with the identifier {}"),
    ] = None
    text: Annotated[
        str | None,
        Field(
            min_length=2,
            max_length=200,
            pattern=TEN_WORDS,
            description="Up to ten words that must all occur in NVD's description, such as 'deserialization java'.",
        ),
        Criterion(_text, "described with {}", table=DETAILS),
    ] = None
    cwes: Annotated[
        list[Cwe] | None,
        Field(max_length=MOST_NAMES, description="Weaknesses: one of them is enough.", examples=[["CWE-78", "CWE-502"]]),
        Criterion(lambda cwes, days: WEAKNESSES.c.cwe.in_(cwes), "of weakness {}", table=WEAKNESSES),
    ] = None
    kev: Annotated[
        bool | None,
        Field(description="True: in KEV. False: not."),
        Criterion(lambda value, days: _listed() if value else CVES.c.kev_added.is_(None), "in KEV", "not in KEV"),
    ] = None
    kev_days: Annotated[
        int | None,
        Field(ge=1, le=36_500, description="Added to KEV in the last so many days, today included."),
        Criterion(lambda count, days: _listed(days.today - timedelta(days=count)), "added to KEV in the last {} days"),
    ] = None
    due_days: Annotated[
        int | None,
        Field(ge=0, le=36_500, description="KEV's due date is today or in the next so many days: 7 for this week. Not what is overdue."),
        Criterion(_due, "due within {} days"),
    ] = None
    ransomware: Annotated[
        bool | None,
        Field(description="True: CISA reports its use in ransomware campaigns. False: in KEV, and CISA does not report that."),
        Criterion(_ransomware, "used in ransomware campaigns", "in KEV, not reported in ransomware campaigns"),
    ] = None
    exploitation: Annotated[
        Literal["none", "poc", "active"] | None,
        Field(description="Exploitation, as CISA rates it (SSVC)."),
        Criterion(lambda word, days: CVES.c.exploitation == word, "SSVC exploitation {}"),
    ] = None
    automatable: Annotated[
        Literal["no", "yes"] | None,
        Field(description="Whether attacks can be automated, as CISA rates it (SSVC)."),
        Criterion(lambda word, days: CVES.c.automatable == word, "SSVC automatable {}"),
    ] = None
    technical_impact: Annotated[
        Literal["partial", "total"] | None,
        Field(description="Technical impact, as CISA rates it (SSVC)."),
        Criterion(lambda word, days: CVES.c.technical_impact == word, "SSVC technical impact {}"),
    ] = None
    least_epss: Annotated[
        float | None,
        Field(ge=0, le=1, description="Least EPSS, 0 to 1."),
        Criterion(lambda least, days: RANKED.c.epss >= least, "EPSS of at least {}"),
    ] = None
    least_rise: Annotated[
        float | None,
        Field(gt=0, le=1, description="Least rise of EPSS in a week: 0.1 from 0.2 to 0.3."),
        Criterion(_changed, "EPSS risen by at least {} in a week", table=EPSS_CHANGES),
    ] = None
    least_cvss: Annotated[
        float | None,
        Field(ge=0, le=10, description="Least CVSS base score, of whatever version rates it first: versions are not comparable."),
        Criterion(lambda least, days: CVES.c.cvss >= least, "CVSS of at least {}"),
    ] = None
    least_severity: Annotated[
        Literal["LOW", "MEDIUM", "HIGH", "CRITICAL"] | None,
        Field(description="Least CVSS severity."),
        Criterion(lambda least, days: CVES.c.severity.in_(SEVERITIES[SEVERITIES.index(least) :]), "severity {} or higher"),
    ] = None
    exploit_reference: Annotated[
        bool | None,
        Field(description="True: NVD tags a page as Exploit. False: NVD's record was read and has none."),
        Criterion(_exploit, "with a page that NVD tags as Exploit", "without a page that NVD tags as Exploit"),
    ] = None
    year: Annotated[
        int | None,
        Field(ge=1999, le=2099, description="Year in the identifier."),
        Criterion(lambda year, days: RANKED.c.number.between(year * SEQUENCES, (year + 1) * SEQUENCES - 1), "numbered in {}"),
    ] = None
    least_score: Annotated[
        float | None,
        Field(
            ge=0,
            le=100,
            description="Least score, 0 to 100. 25: only CVEs in KEV reach it. 5: others too, if their probability of exploitation (EPSS) "
            "is 20 % or more. Above 50: only CVEs that were listed in KEV recently.",
        ),
        Criterion(_score, "score of at least {}"),
    ] = None

    @property
    def names_cves(self) -> bool:
        """Whether it names vendors, products, packages or CVEs; otherwise every CVE fits that the other criteria let through."""
        return any(getattr(self, name) for name in NAMING)

    @property
    def beside_names(self) -> "Criteria | None":
        """The criteria beside names and the least score; None if there are none."""
        sent = {name: value for name in self.model_fields_set & BESIDE_NAMES if (value := getattr(self, name)) not in (None, [])}
        return Criteria.model_construct(**sent) if sent else None

    def sent(self) -> Iterator[tuple[str, Any]]:
        """The criteria that say something, with their values; an empty list says nothing."""
        return ((name, value) for name in CRITERIA if (value := getattr(self, name)) is not None and value != [])

    def conditions(self, days: Days) -> Iterator[Condition]:
        """The conditions on the rows that fit, all of which must hold.

        The first table that a criterion is about gives the numbers to look at, unless KEV does; the others are asked about each of these.
        """
        sent = dict(self.sent())
        holding = {name: CRITERIA[name].holds(value, days) for name, value in sent.items()}
        is_narrow = any(sent.get(name) for name in IN_KEV_ONLY) or sent.get("least_score", 0) >= IN_KEV
        named = [holding.pop(name) for name in NAMING[:-1] if name in holding]
        ids = [holding.pop("cve_ids")] if "cve_ids" in holding else []
        if named or ids:
            yield or_(*ids, *([_has(PRODUCTS, or_(*named), first=not is_narrow)] if named else []))
            is_narrow = True
        for name, condition in holding.items():
            table = CRITERIA[name].table
            yield condition if table is None else _has(table, condition, first=not is_narrow)
            is_narrow = is_narrow or table is not None
        if self.least_rise is not None:
            yield risen(days) >= self.least_rise

    def sentences(self) -> tuple[str, ...]:
        """Each criterion in words."""
        return tuple(_sentence(CRITERIA[name], value) for name, value in self.sent())


def _has(table: Table, condition: Condition, *, first: bool) -> Condition:
    number = table.c.number
    if first:
        return RANKED.c.number.in_(select(number).where(condition))
    return select(number).where(number == RANKED.c.number, condition).correlate(RANKED).exists()


def _sentence(criterion: Criterion, value: Any) -> str:
    if value is False:
        return criterion.if_false
    if isinstance(value, float):
        return criterion.says.format(f"{value:.5f}".rstrip("0").rstrip("."))
    if isinstance(value, list):
        return criterion.says.format(" or ".join(value if len(value) <= 5 else [*value[:4], f"{len(value) - 4} others"]))
    return criterion.says.format(value)


_ARGUMENTS = {name: hint for name, hint in get_type_hints(Criteria, include_extras=True).items() if name in Criteria.model_fields}
CRITERIA = {name: next(one for one in get_args(hint) if isinstance(one, Criterion)) for name, hint in _ARGUMENTS.items()}
IN_KEV_ONLY = ("kev", "kev_days", "due_days", "ransomware")
NAMING = ("vendors", "products", "packages", "cve_ids")
BESIDE_NAMES = frozenset(CRITERIA.keys() - {*NAMING, "least_score"})


def _criterion(name: str) -> str:
    if name not in CRITERIA:
        raise ValueError(f"must be a criterion; there are: {', '.join(CRITERIA)}")
    return name


CriterionName = Annotated[str, AfterValidator(_criterion), WithJsonSchema({"type": "string", "enum": list(CRITERIA)})]


def takes_criteria(function: FunctionT) -> FunctionT:
    """Give a tool's function an argument for each criterion in place of `**criteria`, for all that read signatures."""
    return _takes(function, _ARGUMENTS)


def takes_criteria_of_search(function: FunctionT) -> FunctionT:
    """The same, in fewer words: what each is, search_cves says, and clients read the lists of tools again and again."""
    return _takes(function, {name: Annotated[hint, Field(description="As in search_cves.")] for name, hint in _ARGUMENTS.items()})


def _takes(function: FunctionT, arguments: Mapping[str, Any]) -> FunctionT:
    signature = inspect.signature(function)
    own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint) for name, hint in arguments.items()]
    function.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
    function.__annotations__ |= arguments
    return function
