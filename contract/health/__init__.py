"""Rules of what a healthy run looks like: evaluated while it trains (abort) and by the tracker afterwards (all)."""

from contract.health.rules import Rule, parse_rule, parse_rules
from contract.health.windows import Event, Monitor, evaluate

__all__ = ["Event", "Monitor", "Rule", "evaluate", "parse_rule", "parse_rules"]
