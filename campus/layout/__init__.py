"""Pages for people: templates, a page as HTML, Markdown or JSON, apps, streams of events, static files, and CSRF tokens."""

from campus.layout.apps import add_app
from campus.layout.events import EventStreams
from campus.layout.renderer import pretty_json, unless_known

__all__ = ["EventStreams", "add_app", "pretty_json", "unless_known"]
