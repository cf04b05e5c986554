"""How a plan becomes files: the rows of plan.json, its text, and writing it so that no reader sees a part."""

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract.reading import read_text
from tracker.config.variants import Study, Variant
from tracker.plan.keys import key_of

if TYPE_CHECKING:
    from tracker.plan.build import Run


def study_row(study: Study, runs: "list[Run]") -> dict[str, Any]:
    """Return a study as plan.json holds it."""
    return {
        "name": study.name,
        "title": study.title,
        "question": study.question,
        "source": study.source,
        "table": study.definition["table"],
        "curves": study.definition["curves"],
        "figures": study.definition["figures"],
        "analysis": study.definition["analysis"],
        "analysis_digest": key_of(study.definition["analysis"]),
        "health": study.definition["health"],
        "trained_model": study.definition["trained_model"],
        "published": study.published,
        "variants": [_variant_row(variant) for variant in study.variants.values()],
        "runs": [{"variant": run.variant, "seed": run.seed, "stages": run.stages} for run in runs],
        "last_stage": study.last_stage,
    }


def _variant_row(variant: Variant) -> dict[str, Any]:
    changes = [
        {"key": c.key, "from": c.old, "to": c.new, "factor": c.factor}
        | ({"no_effect": c.no_effect} if c.no_effect else {})
        for c in variant.changes
    ]
    return {
        "name": variant.name,
        "parent": variant.parent,
        "why": variant.why,
        "file": str(variant.file),
        "gpu": variant.gpu,
        "resolved": variant.resolved_dict(),
        "factors": list(variant.factors),
        "changes": changes,
    }


def plan_text(plan: Mapping[str, Any]) -> str:
    """Return JSON with a study or stage on each line: it diffs well, and the fast encoder writes it."""
    parts = []
    for name, value in plan.items():
        if isinstance(value, list):
            rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in value)
            parts.append(f"{json.dumps(name)}: [\n{rows}\n]")
        else:
            parts.append(f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}")
    return "{" + ",\n".join(parts) + "}\n"


def write_if_changed(file: Path, text: str, *, sync: bool) -> None:
    """Write the file unless it holds the text already."""
    with contextlib.suppress(OSError, ValueError):  # a part, or garbage, is replaced
        if read_text(file) == text:
            return
    write(file, text, sync=sync)


def write(file: Path, text: str, *, sync: bool) -> None:
    """Write next to the file, then rename: a reader sees the old or the new content, never a part."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            if sync:
                stream.flush()
                os.fsync(stream.fileno())
        os.chmod(name, 0o644)
        os.replace(name, file)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
