"""The user of an OAuth client and its browser: opens the address, types a key on campus's page, and goes where that leads.

Command-line clients start it as their browser: BROWSER="python browser.py", with the key in the variable CAMPUS_KEY.
"""

import os
import re
import sys
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx

SECONDS = 60


def allow(url: str, key: str) -> str:
    with httpx.Client(trust_env=False, headers={"Accept": "text/html"}, timeout=SECONDS) as web:
        asked = web.get(url)
        assert asked.status_code == 302, asked.text
        page = web.get(urljoin(url, asked.headers["location"]))
        token = re.search(r'name="form_token" value="(\w+)"', page.text)
        assert token is not None, page.text
        answer = web.post(page.url, data={"form_token": token[1], "key": key, "answer": "allow"})
        assert answer.status_code == 303, answer.text
        return str(answer.headers["location"])


def answer_in(address: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


if __name__ == "__main__":
    httpx.get(allow(sys.argv[1], os.environ["CAMPUS_KEY"]), trust_env=False, timeout=SECONDS)
