"""Small published tables for the tests of the audit."""

from ablation.config.published_schema import PublishedFile
from ablation.config.validation import validate


def published(rows, claims=(), *, target="0.5", items=None, columns=None, **more):
    """A table of two columns and their mean, or of the columns given."""
    items = {"a": 20, "b": 40} if items is None else items
    columns = columns or [*items, "mean"]
    content = {"source": "x", "metric": "ss", "target": target, "model": "m", "items": items, "columns": columns}
    return validate(PublishedFile, content | {"rows": rows, "claims": list(claims)} | more, "a table")


def claim(variant="new", against="old", column="a", **more):
    """One claim about two rows."""
    return {"variant": variant, "against": against, "column": column, "text": "a change"} | more


def of_kind(findings, kind, variant=None):
    """Findings of one kind, of one row where it is given."""
    return [finding for finding in findings if finding.kind == kind and variant in (None, finding.variant)]
