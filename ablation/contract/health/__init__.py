"""Rules of what a healthy run looks like: evaluated while it trains (abort) and by the tracker afterwards (all)."""

from ablation.contract.health.rules import Rule, parse_rule, parse_rules
from ablation.contract.health.windows import Event, Monitor, evaluate

__all__ = ["Event", "Monitor", "Rule", "evaluate", "parse_rule", "parse_rules"]
