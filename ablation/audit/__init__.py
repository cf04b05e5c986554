"""Are reported numbers possible, consistent, and larger than chance? Every finding is one sentence with its arithmetic.

    audit(published, measured=None) -> list[Finding]

`published` is an `ablation.config.published_schema.PublishedFile`; `measured` are our own numbers
(`ablation.audit.measured.measured`). Tests and assumptions: docs/statistics.md.
Finding.kind is one of KINDS, severity is error (impossible or wrong), warn (unsupported) or note.
"""

from ablation.audit.attainability import attainability_findings
from ablation.audit.chance import chance_findings
from ablation.audit.claims import claim_findings, standing_findings
from ablation.audit.finding import Finding
from ablation.audit.grimmer import grimmer_findings
from ablation.audit.means import mean_findings
from ablation.audit.noise import group_findings, noise_findings, p_findings
from ablation.audit.patterns import digit_findings, duplicate_findings
from ablation.audit.recomputed import recomputed_findings
from ablation.audit.reproduction import Measured, cell_findings, delta_findings
from ablation.audit.table import Table
from ablation.audit.together import together_findings
from ablation.audit.training import training_findings
from ablation.config.published_schema import PublishedFile

KINDS = (
    "mean",
    "attainability",
    "share",
    "grimmer",
    "claim",
    "together",
    "test",
    "noise",
    "group",
    "chance",
    "spread",
    "duplicate",
    "digits",
    "reproduction",
    "training",
)


def audit(published: PublishedFile, measured: Measured | None = None) -> list[Finding]:
    """Check one published table; findings come in the order of KINDS."""
    table = Table.of(published)
    findings = [
        *mean_findings(table),
        *attainability_findings(table),
        *grimmer_findings(table),
        *claim_findings(table),
        *standing_findings(table),
        *together_findings(table),
        *p_findings(table),
        *recomputed_findings(published.tests),
        *noise_findings(table),
        *group_findings(table),
        *chance_findings(table),
        *duplicate_findings(table),
        *digit_findings(table),
    ]
    if measured is not None:
        findings += [*cell_findings(table, measured), *delta_findings(published.deltas, measured)]
    return [*findings, *training_findings(published, measured)]
