"""Audit a published table: check whether numbers are possible and consistent, and whether differences exceed chance.

Each finding is a sentence that shows the arithmetic. Its kind is mean, attainability, share, grimmer, claim, noise or
reproduction. docs/explanation/statistics.md describes the tests and their assumptions.
"""

from ablation.audit.claimed import Claimed, claimed_changes, claimed_standings
from ablation.audit.claims import claim_findings, noise_findings, standing_findings
from ablation.audit.possible import attainability_findings, grimmer_findings
from ablation.audit.reproduction import Measured, cell_findings, delta_findings
from ablation.audit.table import Finding, Table, mean_findings
from ablation.audit.training_claims import claimed_figures
from ablation.config.published_schema import PublishedFile


def audit(published: PublishedFile, measured: Measured | None = None) -> list[Finding]:
    """Return the findings on one published table, in the order of the checks; `measured` has our numbers, if any."""
    table = Table.of(published)
    checks = mean_findings, attainability_findings, grimmer_findings, claim_findings, standing_findings, noise_findings
    findings = [finding for check in checks for finding in check(table)]
    if measured is not None:
        findings += [*cell_findings(table, measured), *delta_findings(published.deltas, measured)]
    return findings


def claimed(published: PublishedFile, measured: Measured | None) -> list[Claimed]:
    """Return a verdict on each claim of a source: changes, superlatives, bounds, and figures on training.

    Without measurements, every verdict is `not testable here`.
    """
    measurement = measured or Measured({})
    claims = claimed_changes, claimed_standings, claimed_figures
    return [line for claims_of in claims for line in claims_of(published, measurement)]
