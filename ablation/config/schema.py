"""JSON schemas, made from the pydantic models, with which editors complete and check configuration files."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ablation.config.scale import ScaleFile
from ablation.config.study import Study
from ablation.config.study_schema import StudyFile

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def study_json_schema(study: Study) -> dict[str, Any]:
    """Return the schema of a variant file: the config model with every key optional, and keys such as `extends`."""
    schema = study.config_model.model_json_schema()
    # A part of a tagged union without its tag, which the parent gives, fits several kinds.
    schema = json.loads(json.dumps(schema).replace('"oneOf":', '"anyOf":'))
    definitions = schema.get("$defs", {})
    # A variant states only what it changes, so nothing is required; but lists replace, so their items are complete.
    item_definitions = _in_lists(schema)
    for name, definition in definitions.items():
        if name not in item_definitions:
            definition.pop("required", None)
    fields = {
        "extends": {"type": "string", "description": "The variant's parent; only a root has none."},
        "why": {"type": "string", "minLength": 1, "description": "Why this variant exists, in a sentence."},
        "label": {
            "type": "string",
            "minLength": 1,
            "description": "What the variant changes, in a few words for tables and figures.",
        },
        "gpu": {
            "type": "integer",
            "minimum": 1,
            "description": "Number of accelerators for each stage of the variant that needs an accelerator.",
        },
        "between": {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 2,
            "maxItems": 2,
            "description": "Replaces `extends` in variants that `ablation explain` writes: [A, B] is A with some of "
            "B's changes.",
        },
    }
    return {
        "$schema": _DRAFT,
        "title": f"A variant of {study.name}",
        "description": study.written.title,
        "type": "object",
        "properties": {**fields, **schema["properties"]},
        "required": ["why"],
        "additionalProperties": False,
        "$defs": definitions,
    }


def schemas(studies: Iterable[Study]) -> dict[str, str]:
    """Return {file name: text} of the schemas of `_study.yaml`, of scales and of each study's variants."""
    files = {
        "_study.json": {"$schema": _DRAFT, **StudyFile.model_json_schema(by_alias=True)},
        "_scale.json": {"$schema": _DRAFT, **ScaleFile.model_json_schema()},
    }
    files |= {f"{study.name}.variant.json": study_json_schema(study) for study in studies}
    return {name: json.dumps(schema, indent=2, ensure_ascii=False) + "\n" for name, schema in files.items()}


def write_schemas(studies: Iterable[Study], folder: Path) -> list[Path]:
    """Write the schemas that differ from the files in `folder`; return the paths of the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in schemas(studies).items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            written.append(path)
    return written


def _in_lists(schema: Mapping[str, Any]) -> set[str]:
    """Return the names of the definitions that items of lists refer to, directly or through other definitions."""
    names: list[str] = []

    def note(part: dict[str, Any]) -> dict[str, Any]:
        names.extend(_references([part.get(key) for key in ("items", "prefixItems")]))
        return part

    json.loads(json.dumps(schema), object_hook=note)  # visits every map
    for name in names:
        names += (other for other in _references(schema["$defs"][name]) if other not in names)
    return set(names)


def _references(schema: Any) -> list[str]:
    return re.findall(r'"#/\$defs/([^"]+)"', json.dumps(schema))
