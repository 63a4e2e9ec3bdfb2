"""The settings of the CVE building: the keys of [buildings.cve] in campus.toml."""

from datetime import date

from pydantic import Field, NonNegativeInt, PositiveInt, SecretStr

from campus import Settings

URL = r"^(https?|file)://"
ECOSYSTEMS = (
    *("npm", "PyPI", "Maven", "Go", "crates.io", "NuGet", "Packagist", "RubyGems", "Hex", "Pub", "GitHub Actions", "SwiftURL"),
    *("AlmaLinux", "Rocky Linux"),
)
EXAMPLES = ["https://host/path", "file:///srv/feed.json"]


class CveSettings(Settings):
    """The feeds' addresses, the hour of the list, the archive's first day, the sample before the first list, and limits of watches."""

    kev_url: str = Field(
        "https://www.cisa.gov/sites/default/files/feeds/known_exploited_vulnerabilities.json", pattern=URL, examples=EXAMPLES
    )
    """CISA's list of exploited vulnerabilities, KEV."""
    kev_mirror_url: str | None = Field(
        "https://raw.githubusercontent.com/cisagov/kev-data/develop/known_exploited_vulnerabilities.json", pattern=URL, examples=EXAMPLES
    )
    """Read if kev_url cannot be read: CISA answers 403 to some clouds. It may lag behind."""
    epss_url: str = Field("https://epss.empiricalsecurity.com/epss_scores-current.csv.gz", pattern=URL, examples=EXAMPLES)
    """FIRST's probabilities of exploitation, EPSS."""
    nvd_url: str = Field("https://services.nvd.nist.gov/rest/json/cves/2.0", pattern=URL, examples=EXAMPLES)
    """The API; or a file in its format, where the address ends in .json or .json.gz. No file is known to hold every record: of a CVE
    that it lacks, answers say that NVD's record was not read, and never that NVD has none."""
    nvd_api_key: SecretStr | None = None
    """NVD's API key, with which it answers ten times as often."""
    osv_url: str = Field(
        "https://storage.googleapis.com/osv-vulnerabilities", pattern=URL, examples=["https://host/path", "file:///srv/osv"]
    )
    """OSV's records by ecosystem, or a copy of them: from the names of other schemes in them, such as GHSA, reports are read."""
    osv_ecosystems: tuple[str, ...] = ECOSYSTEMS
    """The ecosystems that are read, as OSV spells them; none turns it off. Each is downloaded whole once a month, else only what changed.
    Names of distributions need theirs: Debian (DSA, DLA), Ubuntu (USN), Red Hat (RHSA), SUSE; these zip files are large."""
    discord_hosts: tuple[str, ...] = ("discord.com", "discordapp.com", "canary.discord.com", "ptb.discord.com")
    """Hosts whose /api/webhooks/… URLs are sent Discord messages instead of signed events, for watches."""
    watches_per_minute: PositiveInt = 30
    """Watches that one key may make or change in a minute, in each process."""
    free_reports_per_day: NonNegativeInt = 5
    """Scanner's reports that everyone may have read on the start page and /cve/report, from one network and in each process: how many
    findings to fix when, and of the first 50 what, where to, and why; 0 asks for a key at once."""
    refresh_at: str = Field("20:30", pattern=r"^([01]\d|2[0-3]):[0-5]\d$", examples=["20:30"])
    """When the day's list is made, as HH:MM in UTC. CISA publishes additions to KEV from 13:30 UTC on, 98.9 % of them by 20:30."""
    archive_start: date = date(2026, 8, 19)
    """The first day of the archive of lists."""
    sample: bool = False
    """True shows the shipped sample, marked as such, until the first list is made from the feeds."""
