"""What several commands do alike."""

import shutil

from contract.errors import ConfigError
from tracker.config.settings import suggest
from tracker.store.database import Store


def check_study(store: Store, command: str, study: str | None) -> None:
    """Refuse the name of a study that is not in the database; None asks for all."""
    if study is not None and study not in store.studies():
        raise ConfigError(command, "STUDY", study, "is not in the database", suggest(study, store.studies()))


def terminal_width() -> int:
    """Return the width of paragraphs."""
    return max(shutil.get_terminal_size((120, 24)).columns, 60)
