"""The channels: a new one is one new file here, such as slack.py, with one class derived from campus.alerts.channel.Channel.

The class says its `kind`, which addresses it recognizes, and how it sends a message:

    class Slack(Channel):
        kind = "slack"

        def recognizes(self, address: str) -> bool:
            return address.startswith("https://hooks.slack.com/services/")

        async def send(self, attempt: Attempt, content: Content) -> Outcome:
            lines = [line for text in content.texts for line in (text.headline, *text.details)]
            answer = await post(attempt.client, attempt.message.address, to_json({"text": "\\n".join(lines)}), {})
            ...

A building names the channels that it offers where it opens its Dispatcher, the most particular first:
`channels=(Slack(), Discord(hosts), Email(mail, links=…), Webhook())`. So a building may also bring a channel of its own.
"""
