"""`configs/published/<name>.yaml`, read with the digits of its numbers."""

from pathlib import Path

from ablation.config.published_schema import PublishedFile
from ablation.config.validation import validate
from ablation.config.yaml_io import load_yaml


def load_published(file: Path) -> PublishedFile:
    """Read what a source reports. Raises ConfigError, one line that names file, key and value."""
    return validate(PublishedFile, load_yaml(file, as_printed=True), file)
