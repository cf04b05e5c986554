"""What it means: contrasts, power, looks, verdicts, the audit of reported numbers, and seeds until decided."""
