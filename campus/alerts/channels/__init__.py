"""The channels that alerts are sent through: webhooks, Discord, e-mail. A new one is a file here; buildings list those that they offer.

The file has one class derived from `campus.alerts.Channel`. It says its `kind`, which addresses it recognizes, and how it sends a message:

    class Slack(Channel):
        kind = "slack"

        def recognizes(self, address: str) -> bool:
            return address.startswith("https://hooks.slack.com/services/")

        async def send(self, attempt: Attempt, content: Content) -> Outcome:
            lines = [line for text in content.texts for line in (text.headline, *text.details)]
            answer = await post(attempt.client, attempt.message.address, to_json({"text": "\\n".join(lines)}), {})
            ...

A building lists its channels where it opens its dispatcher, the most specific first:
`channels=(Slack(), Discord(hosts), Email(mail, links=…), Webhook())`. A building may add channels of its own (tests/alerts/floods has one).
"""
