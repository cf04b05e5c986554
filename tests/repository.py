"""Where this repository is, and which of its definitions a fingerprint covers."""

from pathlib import Path

from ablation.contract.fingerprint import Sources

ROOT = Path(__file__).resolve().parents[1]


def definitions(code):
    """(module, definition) of all that counts for this code."""
    sources = Sources(ROOT)
    nodes = sources.reached((*code.names, *code.parts.values()), frozenset(code.exclude))
    counting = [(module, sources.read(module).statements[number]) for module, number in nodes if number >= 0]
    return {(module, name) for module, statement in counting for name in statement.binds}
