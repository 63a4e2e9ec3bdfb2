"""What an agent must know before it buys: the texts that the tools return. Pure."""

from campus.idempotency_keys import HOW_TO_MAKE_A_KEY

DEFAULT_SPEND_LIMIT = "1"  # US dollars per payment: the limit of x402's clients unless it is raised.

IDEMPOTENCY_KEY = (
    f"Make an Idempotency-Key before you pay; it is required, and it is a secret. {HOW_TO_MAKE_A_KEY}; one that counts, repeats or is "
    "made of words is refused. Over HTTP send it as the header Idempotency-Key, over MCP as the argument idempotency_key; a client that "
    "can set neither sends it in the payment, as the id of x402's extension payment-identifier. A settled "
    "payment can be read on the chain by everyone, so the payment alone does not prove who sent it. A lost answer is returned again only "
    "with this key, and the stored answer is encrypted under it."
)

BEFORE_PAYING = (
    "Before you pay, call list_products: it is free, and returns the products, the prices and the steps of a purchase. The payment needs "
    "an Idempotency-Key, a secret of 22 or more random characters: over HTTP the header Idempotency-Key, over MCP the argument "
    f"idempotency_key. x402 clients pay no more than ${DEFAULT_SPEND_LIMIT} per payment until you raise their limit."
)

LOST_ANSWER = (
    "If the answer to a payment is lost, send the same request again with the same Idempotency-Key within 24 hours of the charge. You get "
    "the same answer and pay nothing. Your client may send the first payment again, sign a new one with the same wallet, which is not "
    "charged, or, from the same network address, send none. So keep the Idempotency-Key until you have the key. With another "
    "Idempotency-Key you buy another key."
)

RENEWAL = (
    "Nothing renews by itself. Before or after its end, call buy_key with renew=KEY_ID and the key's own product: the key stays the same, "
    "and the new term begins at its end, or at the call if it has ended. Another product is another key: buy it without renew. The key id "
    "is no secret, so anyone who has it may pay for more time. A key that was revoked or replaced, or is of another product, is refused "
    "before anything is charged."
)

TERMS = "A call that is refused or fails costs nothing."


def spending_limit(highest: str) -> str:
    dollars = f"${highest}"
    return (
        f"x402 clients refuse payments above ${DEFAULT_SPEND_LIMIT} unless you raise their limit (x402-fetch and other v1 clients above "
        f'$0.10). Set the limit to the price that you mean to pay. Python: x402Client().set_spend_controls({{"max_amount_per_payment": '
        f'"{dollars}"}}). TypeScript: new x402Client().setSpendControls({{ maxAmountPerPayment: "{dollars}" }}). v1: '
        f"wrapFetchWithPayment(fetch, wallet, maxValue) with maxValue in millionths of a dollar."
    )


def how_to_buy(url: str, highest: str) -> tuple[str, ...]:
    """The steps of a purchase. `url` is the address of buy_key over HTTP, `highest` the highest price in US dollars."""
    return (
        "Choose a product. Its scope says what it unlocks; a key of scope all unlocks every server, also those added later.",
        IDEMPOTENCY_KEY,
        spending_limit(highest),
        f'Call the tool buy_key, or POST {url} with the JSON body {{"product": "NAME"}}. Without a payment it answers 402 with the '
        "terms: amount, asset and network, in USDC. Sign them, and send the same request again with the payment; you pay no gas. Over HTTP "
        "an x402 client library does both for you (wrapHttpxWithPayment, wrapFetchWithPayment). Over MCP a client pays only if its own "
        "code signs the payment and sends it in _meta['x402/payment']; common hosts do not: use the HTTP route, or ask your user to buy a "
        "key and to add it to this server's configuration.",
        "Store the key from the answer at once: it is shown there and nowhere else.",
        LOST_ANSWER,
    )
