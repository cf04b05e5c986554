"""Find the step at which the final metrics of imported runs are taken, as selected by `--at`."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ablation.config.import_file import ImportFile, with_known_direction
from ablation.contract.errors import ConfigError
from ablation.store.imports.stored import Record


@dataclass
class FinalStep:
    """The rule that selects the step of a study's final metrics; `find_common` sets `common`."""

    at: int | str | None
    metrics: list[str]  # that decide
    direction: object  # of them
    common: int | None = None

    @classmethod
    def of(cls, written: ImportFile) -> "FinalStep":
        """Return the rule of a study.yaml. Raises ConfigError if it needs a metric or direction that is not set."""
        plan, at = with_known_direction(written.analysis), written.runs.at
        metrics = plan.get("metric") or []
        if at in ("best", "common") and not metrics:
            raise ConfigError("import", "--at", at, "needs a metric", "name it with --metric")
        if at == "best" and "direction" not in plan:
            raise ConfigError("import", "--at", at, "needs the direction of the metric", "pass --direction max or min")
        return cls(at, [*map(str, metrics)] if isinstance(metrics, list) else [str(metrics)], plan.get("direction"))

    def find_common(self, runs: Iterable[tuple[Hashable, pa.Table]]) -> None:
        """Find the last step at which all runs logged the primary metrics; `runs` yields pairs (run, metrics).

        Runs that never logged a metric do not count for it. Raises ConfigError if the runs have no step in common.
        """
        logged: dict[tuple[Hashable, str], set[int]] = {}
        for run, metrics in runs:
            for name in self.metrics:
                if rows := _rows(metrics, name):
                    logged.setdefault((run, name), set()).update(step for step, _ in rows)
        shared = set.intersection(*logged.values()) if logged else set()
        if logged and not shared:
            first, last = ([extreme(steps) for steps in logged.values()] for extreme in (min, max))
            ranges = f"first logged at steps {min(first)} to {max(first)}, last at steps {min(last)} to {max(last)}"
            problem = f"there is no step at which all runs logged {' and '.join(self.metrics)} ({ranges})"
            remedy = "leave out runs with --map leave_out=NAME, or pass --at last to compare the runs' last steps"
            raise ConfigError("import", "--at", self.at, problem, remedy)
        self.common = max(shared, default=None)

    def step(self, record: Record, metrics: pa.Table) -> int | None:
        """Return the step of one run's final metrics; None for the last step of each metric.

        Raises ConfigError if the run began after the requested step, or ended before it.
        """
        rows = [row for name in self.metrics for row in _rows(metrics, name)]
        if self.at == "common":
            return self.common
        if isinstance(self.at, int):
            last = pc.max(metrics["step"]).as_py()
            if rows and (last < self.at or min(rows)[0] > self.at):
                shown = f"{record.name} ({record.source})"
                problem = f"{shown} logged {self.metrics[0]} from step {min(rows)[0]} and ended at step {last}"
                remedy = "pass --at common for the last step that all runs logged, or leave out the run with"
                remedy += " --map leave_out=NAME"
                raise ConfigError("import", "--at", self.at, problem, remedy)
            steps = [step for step, _ in rows] or metrics["step"].to_pylist()
            return max((step for step in steps if step <= self.at), default=self.at)
        kept = record.kept if self.at in (None, "best") else None
        if kept is None and self.at == "best" and rows:
            return min(rows, key=self._distance)[0]
        return None if kept == pc.max(metrics["step"]).as_py() else kept

    def _distance(self, row: tuple[int, float]) -> float:
        """Return a number that is smallest for the row (step, value) with the best value."""
        target = self.direction.get("target", 0.0) if isinstance(self.direction, dict) else None
        return abs(row[1] - target) if target is not None else row[1] if self.direction == "min" else -row[1]


def _rows(metrics: pa.Table, name: str) -> list[tuple[int, float]]:
    rows = metrics.filter(pc.and_(pc.equal(metrics["name"], name), pc.is_finite(metrics["value"])))
    return list(zip(rows["step"].to_pylist(), rows["value"].to_pylist(), strict=True))
