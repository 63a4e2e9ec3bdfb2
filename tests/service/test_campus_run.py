"""`campus run`: what it refuses before a database is opened, and how a failure is printed."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from commands import Command, Ran, command_of
from serving import write_config

CONFIG = """
[buildings.cve]
kev_url = "file:///nowhere/kev.json"
osv_ecosystems = []
kev_mirror_url = "file:///nowhere/kev.json"
epss_url = "file:///nowhere/epss.csv"
nvd_url = "file:///nowhere/nvd.json"
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return command_of(capsys)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cve.refesh"], "there is no job 'cve.refesh'; the jobs are: credits.delete_answers, cve.grade, cve.names, cve.nvd,"),
        (
            ["cve.refresh", "--dya", "2026-11-20"],
            "cve.refresh: Unknown option: --dya. Did you mean --day?; its options are: --day, --accept, --correct",
        ),
        (["cve.refresh", "--day", "20.11.2026"], 'Invalid value for --day: unable to convert "20.11.2026" into date'),
        (["cve.refresh", "2026-11-20"], "Unused Tokens: ['2026-11-20']; its options are: --day, --accept, --correct"),
    ],
)
def test_an_unknown_job_or_option_is_refused_before_a_database_is_made(
    tmp_path: Path, run: Command, words: Sequence[str], said: str
) -> None:
    answer = run("run", "--config", str(write_config(tmp_path, CONFIG, port=8000)), *words)
    assert_one_sentence(answer, said)
    assert not (tmp_path / "data").exists()


def test_a_jobs_options_are_listed_without_a_database(tmp_path: Path, run: Command) -> None:
    answer = run("run", "cve.refresh", "--config", str(write_config(tmp_path, CONFIG, port=8000)), "--", "--help")
    assert (answer.code, "--accept" in answer.out) == (0, True)
    assert not (tmp_path / "data").exists()


def test_a_failure_that_was_foreseen_is_printed_once(tmp_path: Path, run: Command) -> None:
    answer = run("run", "cve.refresh", "--config", str(write_config(tmp_path, CONFIG, port=8000)))
    assert answer.code == 2
    assert (answer.out + answer.err).count("its mirror: file:///nowhere/kev.json does not exist") == 1, answer.err


def assert_one_sentence(answer: Ran, said: str) -> None:
    assert answer.code == 2, answer
    assert answer.err.startswith("campus: "), answer
    assert said in answer.err
    assert answer.err.count("\n") == 1
    assert answer.out == ""
