"""TEMPORARY: fills the tables of CVEs as the refresh will."""

from pydantic import TypeAdapter
from buildings.cve.arguments import number_of, spelled
from buildings.cve.feeds.kev import KevEntry
from buildings.cve.ranking.formula import factors_of
from buildings.cve.search.plain_names import plain_name
from buildings.cve.tables import *
from buildings.cve.watches.news import ListMatching
from sqlalchemy import select

ENTRY = TypeAdapter(KevEntry)


def fill(connection, edition):
    R, C, P, D, W = [], [], [], [], []
    kev = {number_of(k): v for k, v in edition.facts.kev.items()}
    for n in sorted({*edition.ranked.numbers, *kev}):
        cve_id = spelled(n)
        k = kev.get(n)
        r = edition.nvd.find(cve_id)
        c = edition.ranked.find(cve_id)
        if c:
            R.append(
                dict(
                    number=n,
                    rank=c.rank,
                    score=factors_of(epss=c.epss, added=k.listed_by if k else None, day=edition.day).score,
                    epss=c.epss,
                    percentile=None,
                )
            )
        rt = r.rating if r else None
        s = r.ssvc if r else None
        if k or r:
            C.append(
                dict(
                    number=n,
                    kev_added=k and k.listed_by,
                    kev_due=k and k.due_date,
                    kev_ransomware=k and k.ransomware,
                    kev_entry=ENTRY.dump_json(k).decode() if k else None,
                    nvd_version=1,
                    status=r and r.status,
                    severity=rt and rt.severity,
                    cvss=rt and rt.score,
                    exploit_url=r and r.exploit_url,
                    vendor=r and r.vendor,
                    product=r and r.product,
                    exploitation=s and s.exploitation,
                    automatable=s and s.automatable,
                    technical_impact=s and s.technical_impact,
                )
            )
        if r:
            W += [dict(number=n, cwe=w) for w in set(r.cwes)]
        names = {(a.vendor, a.product, False) for a in (r.affected if r else ())} | ({(k.vendor, k.product, True)} if k else set())
        P += [dict(number=n, vendor=v, product=p, of_kev=o, plain_vendor=plain_name(v), plain_product=plain_name(p)) for v, p, o in names]
    for t, rows in ((RANKED, R), (CVES, C), (CVE_PRODUCTS, P), (CVE_WEAKNESSES, W)):
        connection.execute(t.delete())
        if rows:
            connection.execute(t.insert(), rows)


real = ListMatching.__call__


def call(self, connection):
    fill(connection, self.edition)
    return real(self, connection)


ListMatching.__call__ = call
