"""The files of a study's variants, as written: read, checked by themselves, parents before children."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ablation.config.lineage import ancestors, in_natural_order, walk
from ablation.config.names import is_safe_name, suggest
from ablation.config.validation import check_known
from ablation.config.yaml_io import load_yaml
from ablation.contract.errors import ConfigError, Mistakes

RESERVED_KEYS = ("extends", "why", "gpu")


@dataclass(frozen=True)
class VariantFile:
    """A variant file as written."""

    name: str
    path: Path
    parent: str | None
    why: str
    gpu: int | None
    overrides: dict[str, Any]


def read_variants(folder: Path, model: type[BaseModel]) -> list[VariantFile]:
    """Read a study's variants, parents before children, siblings in natural order (v2 before v10).

    Raises:
        ConfigError: a file is wrong by itself, names a parent that does not exist, or descends from itself.
    """
    files, mistakes = {}, Mistakes()
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in (".yml", ".yaml") and path.suffix != ".yaml":
            raise ConfigError(path, "", None, f"has the suffix {path.suffix}", "rename it to .yaml")
        if path.name.lower() == "_study.yaml" != path.name:
            raise ConfigError(path, "", None, "is not a valid variant name", "write _study.yaml, or name it otherwise")
        if path.suffix == ".yaml" and path.name != "_study.yaml":
            with mistakes:
                files[path.stem] = _read_variant(path, model)
    mistakes.refuse()
    if not files:
        raise ConfigError(folder, "", None, "holds no variant", "add one, for example baseline.yaml")
    for variant in files.values():
        if variant.parent is not None and variant.parent not in files:
            remedy = suggest(variant.parent, files)
            raise ConfigError(variant.path, "extends", variant.parent, "there is no such variant", remedy)
    return list(_parents_first(files))


def _read_variant(path: Path, model: type[BaseModel]) -> VariantFile:
    if not is_safe_name(path.stem):
        remedy = "use letters, digits, '.', '-', '_', not starting with '.' or '-'"
        raise ConfigError(path, "", None, "is not a valid variant name", remedy)
    overrides = load_yaml(path)
    parent, why, gpu = (overrides.pop(key, None) for key in RESERVED_KEYS)
    if parent is not None and not isinstance(parent, str):
        raise ConfigError(
            path, "extends", parent, "is not the name of one variant", "write one name, in quotes if a number"
        )
    if not isinstance(why, str) or not why.strip():
        raise ConfigError(path, "why", why, "is missing", "say in a sentence why this variant exists")
    if gpu is not None and (not isinstance(gpu, int) or isinstance(gpu, bool) or gpu < 1):
        raise ConfigError(path, "gpu", gpu, "is not a number of devices", "write 1, 2, ...")
    check_known(model, overrides, path)
    return VariantFile(path.stem, path, parent, why.strip(), gpu, overrides)


def _parents_first(files: Mapping[str, VariantFile]) -> Iterator[VariantFile]:
    parents = {name: file.parent for name, file in files.items()}
    reached = [place.name for place in walk(parents, in_natural_order)]
    if len(reached) < len(files):
        start = next(name for name in files if name not in reached)
        first = next(name for name in (start, *ancestors(start, parents)) if name in ancestors(name, parents))
        problem = f"the lineage is a cycle: {' -> '.join([first, *ancestors(first, parents)])}"
        remedy = "remove `extends` from the one that is the root"
        raise ConfigError(files[first].path, "extends", parents[first], problem, remedy)
    yield from (files[name] for name in reached)
