"""Rules of what a healthy run looks like: evaluated while it trains (abort) and by the tracker afterwards (all)."""

from health.rules import Rule, parse_rule, parse_rules
from health.windows import Event, Monitor, evaluate

__all__ = ["Event", "Monitor", "Rule", "evaluate", "parse_rule", "parse_rules"]
