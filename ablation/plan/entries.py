"""Names that an entry module binds, read without importing it: the planner does not import torch."""

import ast
from collections.abc import Iterable
from pathlib import Path

from ablation.contract.fingerprint import read_source


def names_of(entry: str, folders: Iterable[Path]) -> set[str] | None:
    """Return the names that a module binds at its top level, by assignment or from another; None: no such file.

    folders: that may hold its package, in the order in which they are searched.
    """
    stems = [folder.joinpath(*entry.split(".")) for folder in folders]
    paths = (path for stem in stems for path in (stem / "__init__.py", stem.with_name(f"{stem.name}.py")))
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        return None
    found: set[str] = set()
    for node in ast.parse(read_source(path)).body:
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found
