"""Replay a campaign's ledger through the policy, run and judge a trial, and record the decision.

After a crash at any point, the state is that of the ledger: a trial without a decision is finished first, with the runs
that were recorded.
"""

import math
import shutil
import sys
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path, PurePath
from typing import Any

from ablation.campaign.ledger import Event, Ledger
from ablation.campaign.policy import Batch, Decision, Referee, Rules, Values, Verification
from ablation.campaign.repository import Repository, files_below, imported
from ablation.campaign.runs import Outcome, Refused, Run, digest_of, last_lines, log_of, on_another_scale, run_once
from ablation.campaign.settings import LEDGER, SETTINGS, TABLE, Settings, named
from ablation.contract.atomic import write_text
from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted, stated
from ablation.contract.reading import sha256
from ablation.runner.devices import visible_devices
from ablation.runner.guarded import NoResult

_ANEW = "start a new campaign with `ablation campaign init`"
Asked = Generator[Batch, Values, Any]


class Campaign:
    """A campaign in a repository. Hold the campaign's lock while you use this object.

    Attributes:
        settings: the settings in `campaign.toml` when the campaign began.
        trials: the events of trials and verifications in order, each with its `decision` and `result`, if it has one.
        commits: {identity of code: a commit with this code}.
        known: {run: its event in the ledger}.
    """

    def __init__(self, repository: Repository) -> None:
        """Read and replay the ledger. Raises ConfigError if the ledger is missing, damaged or outdated."""
        self.repository = repository
        self.ledger = Ledger(repository.root / LEDGER, repository.folder / "seal")
        start = self.ledger.events[0] if self.ledger.events else {}
        if start.get("event") != "start" or "imported" not in start:
            problem = "cannot be read by this version of ablation"
            raise ConfigError(self.ledger.path, "line 1", None, problem, _ANEW)
        self.start = start
        self.rules, self.settings = Rules(**start["rules"]), Settings(**start["settings"])
        self.commits = {"base": str(start["commit"])}
        self.trials: list[Event] = []
        self.known: dict[Run, Event] = {}
        for event in self.ledger.events:
            if event["event"] == "run":
                self.known[event["verify"], event["code"], event["seed"]] = event
            elif event["event"] in ("trial", "verification"):
                self.trials.append({**event})
                self.commits.setdefault(event["code"], event["commit"])
            elif event["event"] == "decision":
                self.trials[-1]["decision"] = event
        self.referee: Referee | None = None
        if all(self.known.get(run, {}).get("value") is not None for run in self.baseline()):
            self._replay()

    def baseline(self) -> list[Run]:
        """Return the runs of the baseline; if verifications have a command of their own, for both commands."""
        kinds = (False, True) if self.settings.verify_run else (False,)
        return [(verify, "base", seed) for verify in kinds for seed in range(self.rules.baseline)]

    def _replay(self) -> None:
        values: dict[bool, list[float]] = {False: [], True: []}
        for run in self.baseline():
            values[run[0]].append(self.settings.sign * self.known[run]["value"])
        seconds = [self.known[run]["seconds"] for run in self.baseline()]
        limit = self.settings.time_limit or max(1.0, 3 * max(seconds) / 60)
        least = min(seconds) / 10 if self.settings.min_seconds is None else self.settings.min_seconds
        self.settings = replace(self.settings, time_limit=limit, min_seconds=least)
        paired = bool(self.settings.seed_arg or self.settings.seed_env)
        self.referee = Referee(self.rules, "base", values[False], paired=paired, held_out=values[True])
        for trial in self.trials:
            if decided := trial.get("decision"):
                if decided["word"] != "refused":
                    trial["result"] = self._finish(trial, make=False)
                    if self._word(trial["result"]) != decided["word"]:
                        problem = "records a decision that this version of the policy does not make"
                        raise ConfigError(self.ledger.path, f"line {decided['n'] + 1}", None, problem, _ANEW)
                self.referee.skip(decided["seeds"])  # no run that a refused trial was shown counts again

    @property
    def state(self) -> Referee:
        """State of the policy. Raises ConfigError before the baseline is measured."""
        if self.referee is None:
            raise ConfigError(self.ledger.path, "", None, "the runs of the baseline are incomplete", _ANEW)
        return self.referee

    def _word(self, result: Decision | Verification | None) -> str:
        """Return the word that the ledger records for the result of a trial or verification."""
        if isinstance(result, Decision):
            return result.word
        if result is None:
            return "nothing"
        return "verified" if result.shown else "back" if self.state.provisional == self.state.verified else "step"

    def _finish(self, trial: Event, *, make: bool) -> Decision | Verification | None:
        """Return the result of a trial, from the runs of the ledger and, with `make`, new runs."""
        left = math.inf if trial["left"] is None else trial["left"]
        asked: Asked
        if trial["event"] == "verification":
            asked = self.state.verify(trial["pairs"])
        elif trial["margin"] is not None:
            asked = self.state.simplification(trial["code"], trial["margin"], left)
        else:
            asked = self.state.trial(trial["code"], left)
        try:
            batch = next(asked)
            while True:
                batch = asked.send(self._values(batch, trial, make=make))
        except StopIteration as done:
            result: Decision | Verification | None = done.value
            return result

    def _values(self, batch: Batch, trial: Event, *, make: bool) -> Values:
        verify = batch.purpose == "verify" and bool(self.settings.verify_run)
        wanted = [(verify, code, seed) for code, seed in batch.runs]
        missing = [run for run in wanted if run not in self.known]
        if missing and not make:
            problem = "this version of the policy needs runs that are missing from the ledger"
            raise ConfigError(self.ledger.path, f"line {trial['n'] + 1}", None, problem, _ANEW)
        self.run(missing, batch.purpose, trial["why"])
        runs, first = [self.known[run] for run in wanted], self.known[verify, "base", 0]
        for run in runs:
            if run.get("refused") and run["code"] == trial["code"]:
                raise Refused(run["why_none"])
            if run["value"] is None:
                continue
            if run.get("items", {}).get("ids") != first.get("items", {}).get("ids"):
                has, needs = (counted(each["items"]["count"], "item") for each in (run, first))
                odd = f"the run of {run['commit'][:9]} has other items ({has}) than the baseline ({needs})"
                raise Refused(f"{odd}; evaluate the same items")
            others = [self.known[each]["value"] for each in self.baseline() if each[0] == verify]
            if on_another_scale(run["value"], others):
                both = f"the value {stated(run['value'])} and the baseline's {stated(others[0])}"
                raise Refused(f"{both} are not on the same scale; print all values as shares, or all as percentages")
        return [None if run["value"] is None else self.settings.sign * run["value"] for run in runs]

    def run(self, runs: Sequence[Run], purpose: str, why: str) -> None:
        """Make runs, as many at once as the devices allow, and record each."""
        width = max(1, len(visible_devices()) // max(1, self.settings.gpus))
        slots = list(range(width))
        for verify, code, seed in runs:
            if log_of(self.repository, (verify, code, seed)).exists():  # somebody may have seen its value and killed it
                self.ledger.add({"event": "interrupted", "code": code, "seed": seed, "verify": verify})

        def one(run: Run) -> tuple[Run, Outcome]:
            slot = slots.pop()
            try:
                return run, run_once(
                    self.repository, self.settings, self.start["locked"], self.commits[run[1]], run, slot=slot
                )
            except NoResult as error:
                if purpose != "verify":
                    raise
                return run, Outcome(None, why_none=f"{error}; a verification counts this as a crash")
            finally:
                slots.append(slot)

        with ThreadPoolExecutor(width) as pool:
            for (verify, code, seed), outcome in pool.map(one, runs) if width > 1 else map(one, runs):
                named = {"code": code, "commit": self.commits[code], "seed": seed, "verify": verify, "why": why}
                event = self.ledger.add({"event": "run", "purpose": purpose, **named, **outcome.fields()})
                self.known[verify, code, seed] = event

    def seconds(self) -> float:
        """Return the total time of all runs, in seconds."""
        return float(sum(run["seconds"] for run in self.known.values()))

    def of_a_run(self) -> float:
        """Return the average time of a run, in seconds."""
        return max(self.seconds() / max(1, len(self.known)), 1e-3)

    def left(self) -> float:
        """Return the number of runs that the budget still allows; infinite without a budget."""
        budget = math.inf if self.settings.budget is None else 3600 * self.settings.budget
        return max(0.0, (budget - self.seconds()) / self.of_a_run())

    def pending(self) -> Event | None:
        """Return the trial or verification that was interrupted before its decision; None if there is none."""
        return self.trials[-1] if self.trials and "decision" not in self.trials[-1] else None

    def decide(self, trial: Event) -> None:
        """Make the runs of a trial, and record its decision. Raises NoResult if a run is ended from outside."""
        verified, more = self.state.verified, {}
        try:
            result = self._finish(trial, make=True)
            word = self._word(result)
        except Refused as refusal:
            result, word, more = None, "refused", {"reason": str(refusal)}
            self._replay()
        state = self.state
        if state.verified != verified and self.settings.tag:
            number = sum(done.shown for done in state.verifications)
            self.repository.remember(self.commits[state.verified], f"verified/{number}")
        champions = {"provisional": self.commits[state.provisional], "verified": self.commits[state.verified]}
        seeds = 1 + max(seed for _, _, seed in self.known)
        decided = self.ledger.add({"event": "decision", "word": word, **champions, **more, "seeds": seeds})
        trial |= {"decision": decided, "result": result}
        state.skip(seeds)

    def begin(self, event: str, commit: str, code: str, why: str, **more: Any) -> Event:
        """Record the start of a trial or verification, and return its event."""
        left = self.left()
        fields = {"event": event, "commit": commit, "code": code, "why": why, "margin": None}
        trial = dict(self.ledger.add({**fields, "left": None if math.isinf(left) else round(left, 2), **more}))
        self.commits.setdefault(code, commit)
        self.repository.remember(commit)
        self.trials.append(trial)
        return trial

    def check_added(self, commit: str) -> None:
        """Raise Refused if the commit adds a file that would shadow a module that locked files import."""
        locked = [PurePath(name) for name in self.start["locked"] if name.endswith(".py")]
        names = sys.stdlib_module_names | {*self.start["imported"]} | {path.stem for path in locked}
        for path in map(PurePath, self.repository.added(self.commits["base"], commit)):
            module = path.parent if path.name == "__init__.py" else path
            beside = path.suffix in (".py", ".so") and any(module.parent == each.parent for each in locked)
            if beside and module.name.partition(".")[0] in names:
                raise Refused(
                    f"the commit adds {path}, which would shadow a module that locked files import; rename it"
                )

    def check_settings(self) -> None:
        """Raise Refused if `campaign.toml` was edited since the campaign began."""
        path = self.repository.root / SETTINGS
        if not path.is_file() or sha256(path) != self.start["settings_sha256"]:
            raise Refused(f"{SETTINGS} has changed since the campaign began; restore it, or {_ANEW}")


def machine() -> str:
    """Return the host and processor of this machine, so that a change of machines is noticed."""
    from ablation.runner.provenance import describe_hardware

    hardware = describe_hardware()
    return f"{hardware['host']} ({hardware['processor']})"


def begin_campaign(repository: Repository, settings: Settings) -> Campaign:
    """Begin a campaign at HEAD, measure the baseline, and return the campaign.

    An earlier campaign's ledger gets another name. Raises ConfigError if there are uncommitted changes, a locked path
    is not committed, or a run of the baseline fails, whose last lines are then printed.
    """
    root, seal = repository.root, repository.folder / "seal"
    commit, changed = repository.snapshot()
    if changed:
        problem = f"there are uncommitted changes ({', '.join(changed[:3])})"
        raise ConfigError(root, "", None, problem, "commit the changes, because the baseline must be a commit")
    repository.ignore([SETTINGS, LEDGER, "campaign-*.jsonl", TABLE])
    evaluators = [name for name in repository.tracked(named(settings.run)) if "eval" in Path(name).name]
    names = [*(settings.locked or evaluators), *repository.tracked(settings.held_out)]
    names += [SETTINGS, LEDGER]
    place = repository.checkout(commit, 0, settings.links)
    for name in settings.locked:
        if not (place / name).exists():
            raise ConfigError("campaign init", "--locked", name, "is not in HEAD", "name a committed file or folder")
    locked = {name: digest_of(files_below(place / name)) for name in names}
    write_text(root / SETTINGS, settings.text())
    if (path := root / LEDGER).exists():
        used = {file.name for file in root.glob("campaign-*.jsonl")}
        path.rename(next(root / name for n in range(1, len(used) + 2) if (name := f"campaign-{n}.jsonl") not in used))
    seal.unlink(missing_ok=True)
    shutil.rmtree(repository.folder / "logs", ignore_errors=True)  # of an earlier campaign
    path.touch()
    start = {"event": "start", "commit": commit, "settings": asdict(settings), "machine": machine(), "locked": locked}
    start["imported"] = sorted(imported(place / name for name in names if name.endswith(".py")))
    rules = asdict(Rules(confirm=settings.policy == "confirm"))
    Ledger(path, seal).add({**start, "settings_sha256": sha256(root / SETTINGS), "rules": rules})
    campaign = Campaign(repository)
    campaign.run(campaign.baseline(), "baseline", "baseline")
    for run in campaign.baseline():
        event, first = campaign.known[run], campaign.known[run[0], "base", 0]
        why = event.get("why_none", "")
        if not why and event.get("items", {}).get("ids") != first.get("items", {}).get("ids"):
            why = "the command wrote different items than in the first run"
        if why:
            path.unlink()  # nothing has been measured
            seal.unlink(missing_ok=True)
            print(last_lines(log_of(repository, run)))
            problem = one_line(f"the run of the baseline failed: {why}", 300)
            remedy = "correct the command; if it needs files that git ignores, name them with --link"
            option, command = ("--verify-run", settings.verify_run) if run[0] else ("--run", settings.run)
            raise ConfigError("campaign init", option, command, problem, remedy)
    return Campaign(repository)
