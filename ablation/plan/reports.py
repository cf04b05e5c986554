"""The results that a folder of reports shows: two results that shared one would show each other's numbers."""

import os
from pathlib import Path

from ablation.contract.atomic import date, write_text
from ablation.contract.errors import ConfigError
from ablation.contract.reading import read_text

MARKER = ".results"
_LONG_AGO = 1


def claim_reports(results: Path, reports: Path) -> None:
    """Record in the folder of reports which results it shows, as a relative path, so that both may move together.

    Reports without such a record are drawn again by the next Snakemake, since they may show any results. Raises
    ConfigError where the folder shows other results, TrackerError where it cannot be written.
    """
    marker, mine = reports / MARKER, os.path.relpath(results.resolve(), reports.resolve())
    try:
        theirs = read_text(marker).strip()
    except FileNotFoundError:
        drawn = [
            reports / "index.html",
            *(path for table in reports.glob("*/table.html") for path in table.parent.iterdir()),
        ]
        date((path for path in drawn if path.is_file()), _LONG_AGO)
        write_text(marker, f"{mine}\n")
        return
    except NotADirectoryError:
        raise ConfigError(reports, "", None, "is not a folder", "name another one (reports=... or --reports)") from None
    except (OSError, ValueError) as error:
        raise ConfigError(marker, "", None, f"cannot be read ({error})", "delete it") from None
    if theirs != mine:
        problem = f"this folder shows the results in {os.path.normpath(reports / theirs)}, not those in {results}"
        remedy = "name another one (reports=... or --reports); or delete it, to have it drawn again"
        raise ConfigError(reports, "", None, problem, remedy)
