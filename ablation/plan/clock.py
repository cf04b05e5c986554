"""Results that a wrong clock dated in the future, made usable before the first job."""

from ablation.contract.clock import LONG_AGO, date, from_the_future
from ablation.contract.stage_folder import DATABASE
from ablation.contract.status import KEPT_STATUS
from ablation.plan.plan import Plan


def settle_times(plan: Plan) -> list[str]:
    """Redate files from the future; return a warning if there were any.

    Statuses and the database count as written now. Tables and figures, and copies of statuses, which are taken over if
    they are recent, count as written long ago: whether they are older than the rest cannot be known.
    """
    results, reports, stages = plan.settings.results, plan.settings.reports, plan.selected()
    drawn = [
        *(results / name for name in ("gate.txt", "certificate.json")),
        *(stage.dir / KEPT_STATUS for stage in stages),
    ]
    for folder in (reports, *(reports / study for study in plan.studies)):
        drawn += [path for path in folder.glob("*") if path.is_file()]
    young = from_the_future([*(stage.status for stage in stages), results / DATABASE])
    old = from_the_future(drawn)
    date(young)  # the database last
    date(old, LONG_AGO)
    if not (found := [*young, *old]):
        return []
    more = f" and {len(found) - 1} more files are" if len(found) > 1 else " is"
    return [f"{found[0]}{more} dated in the future, by a clock that was wrong; they count as written now"]
