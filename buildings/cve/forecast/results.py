"""Makes the answers of the forecast: the list, its teaser, and the record of all grades. Pure."""

from collections.abc import Sequence
from datetime import date

from buildings.cve.arguments import spelled
from buildings.cve.forecast.formula import DAYS_PER_YEAR, FORECAST_LENGTH, Forecast, ForecastCve, Forecaster
from buildings.cve.forecast.grading import PUBLISHED, Grade, Names, hits_of, lists_of, precision_at, records_of
from buildings.cve.forecast.models import (
    ForecastEntry,
    ForecastList,
    ForecastName,
    ForecastRecord,
    ForecastTeaser,
    ForecastTerms,
    Precision,
)
from buildings.cve.ranking.edition import Edition
from buildings.cve.ranking.methodology import FORECAST_METHODOLOGY, NOTICES
from buildings.cve.ranking.results import DECIMALS, TEASER_LENGTH, about, feeds_of, notices_of

SHOWN_HITS = 100


def forecast_list_of(edition: Edition, forecast: Forecast, *, precision: Sequence[Precision], today: date) -> ForecastList:
    first = forecast.first[:FORECAST_LENGTH]
    entries = tuple(_entry(edition, rank, cve, precision[rank - 1]) for rank, cve in enumerate(first, 1))
    return ForecastList(
        **about(edition),
        generated_at=edition.made_at,
        stale=edition.facts.issues.is_stale(today),
        count=len(entries),
        of=forecast.total,
        epss_compared_with=forecast.compared_with,
        entries=entries,
        methodology=FORECAST_METHODOLOGY,
        feeds=feeds_of(edition, today=today),
        notices=notices_of(edition),
    )


def _entry(edition: Edition, rank: int, cve: ForecastCve, precision: Precision) -> ForecastEntry:
    cve_id = spelled(cve.number)
    record = edition.nvd.find(cve_id)
    terms = cve.factors
    return ForecastEntry(
        rank=rank,
        cve_id=cve_id,
        score=round(terms.score, DECIMALS),
        factors=ForecastTerms(
            epss=round(terms.epss, DECIMALS), age=round(terms.age, DECIMALS), neighbor=terms.neighbor, rise=round(terms.rise, DECIMALS)
        ),
        epss=cve.epss,
        epss_percentile=cve.percentile,
        epss_week_ago=cve.week_ago,
        age_days=round(cve.age * DAYS_PER_YEAR, 1),
        vendor=record.vendor if record else None,
        product=record.product if record else None,
        severity=record.rating.severity if record and record.rating else "UNKNOWN",
        precision=precision,
    )


def forecast_teaser_of(forecast: ForecastList, *, full_list: str, record: str) -> ForecastTeaser:
    first = tuple(
        ForecastName(rank=entry.rank, cve_id=entry.cve_id, vendor=entry.vendor, product=entry.product)
        for entry in forecast.entries[:TEASER_LENGTH]
    )
    return ForecastTeaser(
        ok=True,
        day=forecast.day,
        sample=forecast.sample,
        question=FORECAST_METHODOLOGY.question,
        teaser=first,
        full_list=full_list,
        record=record,
        stale=forecast.stale,
    )


def record_of(edition: Edition, grades: Sequence[Grade], names: Names) -> ForecastRecord:
    in_time = [grade for grade in grades if not grade.is_backfilled]
    late = [grade for grade in grades if grade.is_backfilled]
    hits = hits_of(grades)
    return ForecastRecord(
        **about(edition),
        graded_at=edition.made_at,
        kev_version=edition.facts.issues.kev.version,
        rankings=records_of(in_time, names),
        backfilled=records_of(late, names) if late else (),
        list_count=sum(grade.ranking == PUBLISHED for grade in grades),
        lists=lists_of(grades),
        hit_count=len(hits),
        hits=hits[:SHOWN_HITS],
        methodology=FORECAST_METHODOLOGY,
        notices=NOTICES,
    )


def sample_forecast(edition: Edition) -> ForecastList:
    return forecast_list_of(edition, Forecaster(edition, None).forecast(), precision=precision_at(()), today=edition.day)
