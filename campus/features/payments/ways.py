"""The ways to pay: each network of [payments] with its wallet, its node and its facilitators; and the same once it is open."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from pydantic import SecretStr

from campus.errors import ConfigError
from campus.features.payments.audit import Audit
from campus.features.payments.chain import Chain
from campus.features.payments.facilitators import LazyFacilitators
from campus.features.payments.feature import FacilitatorTable, PaymentsTable
from campus.features.payments.networks import Network, network_of
from campus.features.payments.reconciler import Reconciler
from campus.features.payments.settlement import Settlement

NODE = "CAMPUS_PAYMENTS_RPC_URL"
"""The variable of the node; with _ and the number of the chain that of a further network's."""


@dataclass(frozen=True, slots=True)
class Way:
    """A network, the wallet that is paid there, the address of its node, which may hold a secret, and its facilitators in order."""

    network: Network
    pay_to: str
    rpc_url: str
    facilitators: tuple[FacilitatorTable, ...]


def ways_of(settings: PaymentsTable, secrets: Mapping[str, SecretStr]) -> tuple[Way, ...]:
    """The ways of [payments], its own network first. ConfigError for a network without a token that campus knows, or without a node."""
    ways = [Way(network_of(settings.network), settings.pay_to, settings.rpc_url, settings.facilitators)]
    for further in settings.networks:
        network = network_of(further.network)
        node = _node_of(further.rpc_url, network, secrets)
        ways.append(Way(network, further.pay_to or settings.pay_to, node, further.facilitators or settings.facilitators))
    return tuple(ways)


def secrets_of(settings: PaymentsTable) -> tuple[str, ...]:
    """How the variables begin that these facilitators and networks read."""
    facilitators = chain(settings.facilitators, *(one.facilitators or () for one in settings.networks))
    nodes = (f"{NODE}_{network_of(one.network).chain_id}" for one in settings.networks)
    return (*(f"CAMPUS_PAYMENTS_{one.name}_".upper() for one in facilitators), *nodes)


def _node_of(written: str | None, network: Network, secrets: Mapping[str, SecretStr]) -> str:
    variable = f"{NODE}_{network.chain_id}"
    if (secret := secrets.get(variable)) is not None:
        return secret.get_secret_value()
    if written is None:
        raise ConfigError(f"payments.networks: {network.id} has no node; write its rpc_url, or set {variable} in the environment")
    return written


@dataclass(frozen=True)
class OpenWay:
    """One way with all that works on its network."""

    way: Way
    chain: Chain
    facilitators: LazyFacilitators
    settlement: Settlement
    reconciler: Reconciler
    audit: Audit
