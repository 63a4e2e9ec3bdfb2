"""CSAF 2.0 and 2.1, VEX and advisories: one finding for each vulnerability and product that a `product_status` names."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from buildings.cve.reports.findings import Finding, Form, Said, Unreadable
from buildings.cve.reports.items import has, words
from buildings.cve.reports.paths import Node, first_text, nodes, texts
from buildings.cve.reports.schemes import own_ids
from buildings.cve.reports.vex import package_of

GROUPS = words(
    open="known_affected first_affected last_affected under_investigation",
    fixed="fixed first_fixed recommended",
    not_affected="known_not_affected",
)
SEVERITY = (*("cvss_v3.baseSeverity", "cvss_v4.baseSeverity"), *("content.cvss_v4.baseSeverity", "content.cvss_v3.baseSeverity"))


class Product(NamedTuple):
    package: str
    version: str = ""
    place: str = ""


def _read(value: Any) -> Iterator[Finding | Unreadable]:
    products = _products(value.get("product_tree"))
    groups = {first_text(group, ("group_id",)): texts(group, "product_ids") for group in nodes(Node(value), "product_tree.product_groups")}
    author = first_text(Node(value), ("document.publisher.name",)) or "the publisher of the document"
    severity = first_text(Node(value), ("document.aggregate_severity.text",))
    for place, node in enumerate(nodes(Node(value), "vulnerabilities"), start=1):
        ids = tuple(own_ids([*texts(node, "cve"), *texts(node, "ids.text")]))
        if not ids:
            yield Unreadable(f"vulnerabilities {place}", "has neither cve nor ids")
            continue
        severities = _of_products(node, ("scores", "metrics"), SEVERITY, groups)
        fixes = _of_products(node, ("remediations",), ("details",), groups, category="vendor_fix")
        for product_id, statuses in _statuses(node).items():
            said, state = _said(statuses)
            product = products.get(product_id, Product(product_id))
            yield Finding(
                ids=ids,
                said=said,
                state=state,
                by="" if said in ("open", "unknown") else author,
                package=product.package,
                version=product.version,
                fixed=fixes.get(product_id, ""),
                place=product.place,
                severity=severities.get(product_id, severity),
            )


def _statuses(node: Node) -> dict[str, list[str]]:
    """The groups in which each product stands; of a vulnerability without any the one that says so."""
    statuses: dict[str, list[str]] = {}
    for group in nodes(node, "product_status.{}"):
        statuses.setdefault(str(group.value), []).append(group.name)
    return statuses or {"": ["no product_status"]}


def _said(statuses: list[str]) -> tuple[Said, str]:
    """What the groups of a product say; if they contradict each other nothing is known."""
    meanings = {GROUPS.get(status, "unknown") for status in statuses}
    return meanings.pop() if len(meanings) == 1 else "unknown", ", ".join(statuses)


def _of_products(
    node: Node, lists: tuple[str, ...], paths: tuple[str, ...], groups: Mapping[str, list[str]], *, category: str = ""
) -> dict[str, str]:
    """What the members of a list say of the products that they name."""
    said: dict[str, str] = {}
    for member in (each for path in lists for each in nodes(node, path)):
        if category in ("", first_text(member, ("category",))) and (text := first_text(member, paths)):
            named = [*texts(member, "products"), *texts(member, "product_ids")]
            for product_id in (*named, *(each for group in texts(member, "group_ids") for each in groups.get(group, ()))):
                said.setdefault(product_id, text)
    return said


def _products(tree: Any) -> dict[str, Product]:
    products: dict[str, Product] = {}
    branches: list[tuple[Any, str, str]] = [(tree, "", "")]
    while branches:
        branch, name, version = branches.pop()
        if not isinstance(branch, Mapping):
            continue
        name = str(branch.get("name")) if branch.get("category") == "product_name" else name
        version = str(branch.get("name")) if branch.get("category") == "product_version" else version
        branches += [(each.value, name, version) for each in nodes(Node(branch), "branches")]
        for product in nodes(Node(branch), "product"):
            products |= _product(product, name, version)
    for product in nodes(Node(tree), "full_product_names"):
        products |= _product(product, "", "")
    for relation in nodes(Node(tree), "relationships"):
        component = products.get(first_text(relation, ("product_reference",)))
        whole = products.get(first_text(relation, ("relates_to_product_reference",)))
        full_name = first_text(relation, ("full_product_name.name",))
        products[first_text(relation, ("full_product_name.product_id",))] = Product(
            component.package if component else full_name,
            component.version if component else "",
            " ".join(filter(None, (whole.package, whole.version))) if whole else "",
        )
    return products


def _product(product: Node, name: str, version: str) -> dict[str, Product]:
    purl = first_text(product, ("product_identification_helper.purl", "product_identification_helper.purls"))
    named = package_of(purl) if purl else (name, version) if name and version else (first_text(product, ("name",)), version)
    return {first_text(product, ("product_id",)): Product(*named)}


FORMS = (Form(name="CSAF", recognises=has("document.csaf_version"), read=_read),)
