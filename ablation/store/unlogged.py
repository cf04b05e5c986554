"""Find metrics and subsets in `_study.yaml` that no stage has logged, usually because a name is misspelt."""

import difflib
from collections import defaultdict
from collections.abc import Collection, Iterator

from ablation.config.study_schema import Analysis
from ablation.contract.health import parse_rules
from ablation.plan.plan_file import StudyRecord
from ablation.store.database import Store

_OVER_SUBSETS = ("subsets", "distributions")  # kinds of figures that read items
_Check = tuple[str, str, set[str]]  # what is said of a name that is not among the known ones


def find_unlogged(store: Store, study: str, now: StudyRecord | None = None) -> list[str]:
    """Return a sentence for each name of a metric, protocol or subset that no stage of the study has logged.

    Nothing is reported while a stage that could still log the name has not succeeded, because the metrics that a stage
    logs depend on its settings. `now` is the study's current definition; by default the one in the database.
    """
    definition = now or store.study(study)
    logged, ended = _logged(store, study), _ended(store, study)
    sentences = [*_unwatched(definition, logged, ended)]
    checks = [*_drawn(definition, set().union(*logged.values()))] if all(ended.values()) else []
    if ended.get(definition.last_stage):
        measured = logged[definition.last_stage]
        checks += [("table: no run has measured", column.metric, measured) for column in definition.table.columns]
        checks += _judged(store, study, definition.analysis)
    sentences += [f"{what} {name}{_meant(name, names, most=10)}" for what, name, names in checks if name not in names]
    return list(dict.fromkeys(sentences))


def _unwatched(definition: StudyRecord, logged: dict[str, set[str]], ended: dict[str, bool]) -> Iterator[str]:
    for rule in definition.health:
        stage = rule.stage
        (parsed,) = parse_rules([rule.model_dump()])
        covered = any(map(parsed.covers, logged[stage]))
        for metric, is_logged in ((rule.metric, covered), (rule.reference, rule.reference in logged[stage])):
            if metric and ended.get(stage) and not is_logged:
                meant = _meant(metric, logged[stage])
                yield f"health rule {rule.id} never applies, because the stage {stage} has never logged {metric}{meant}"


def _drawn(definition: StudyRecord, logged: set[str]) -> Iterator[_Check]:
    for curve in definition.curves:
        yield "curves: no stage has logged", curve.metric, logged
    for figure in definition.figures:
        if figure.kind not in _OVER_SUBSETS:
            shown = [panel.metric for panel in figure.panels] + ([figure.x.metric] if figure.x else [])
            yield from ((f"figure {figure.name}: no stage has logged", metric, logged) for metric in shown)


def _judged(store: Store, study: str, analysis: Analysis) -> Iterator[_Check]:
    query = "SELECT DISTINCT protocol, name, subset FROM finals JOIN items USING (key) WHERE study = ?"
    items = store.rows(query, [study])[1]
    names = {name for protocol, name, _ in items if protocol == analysis.protocol}
    subsets = {subset for protocol, name, subset in items if (protocol, name) == (analysis.protocol, analysis.value)}
    no_value = f"no item of the protocol {analysis.protocol} has a value called"
    if items:
        protocols = {protocol for protocol, _, _ in items}
        yield "analysis.protocol: no item was saved under the protocol", analysis.protocol, protocols
    if names:
        yield f"analysis.value: {no_value}", analysis.value, names
    if subsets:
        yield from ((f"analysis.guardrails: {no_value}", rail.metric, names) for rail in analysis.guardrails)
        yield from (("analysis.subsets: no item belongs to the subset", subset, subsets) for subset in analysis.subsets)


def _logged(store: Store, study: str) -> dict[str, set[str]]:
    query = """SELECT DISTINCT r.stage, m.name FROM run_stages r JOIN metrics m USING (key) WHERE r.study = ?"""
    names: dict[str, set[str]] = defaultdict(set)
    for stage, name in store.rows(query, [study])[1]:
        names[stage].add(name)
    return names


def _ended(store: Store, study: str) -> dict[str, bool]:
    query = """SELECT r.stage, bool_and(s.state IN ('ok', 'imported')) FROM run_stages r JOIN stages s USING (key)
               WHERE r.study = ? GROUP BY r.stage"""
    return dict(store.rows(query, [study])[1])


def _meant(name: str, names: Collection[str], most: int = 0) -> str:
    """Return a hint at the closest name, or else all names if there are at most `most`; "" if there is no hint."""
    close = difflib.get_close_matches(name, sorted(names), n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; choose from {', '.join(sorted(names))}" if 0 < len(names) <= most else ""
