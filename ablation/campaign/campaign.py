"""A campaign: the ledger is replayed through the policy, a trial is run and judged, and what it becomes is recorded.

So the state after a crash at any point is that of the ledger: a trial without a decision is finished first, with the
runs that were recorded.
"""

import math
import shutil
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ablation.campaign.ledger import Event, Ledger
from ablation.campaign.policy import Batch, Decision, Referee, Rules, Values, Verification
from ablation.campaign.repository import Repository
from ablation.campaign.runs import Outcome, last_lines, on_another_scale, run_once
from ablation.campaign.settings import LEDGER, SETTINGS, Settings, from_values
from ablation.contract.atomic import write_text
from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError
from ablation.contract.reading import sha256
from ablation.runner.devices import lease, visible_devices

_START_AGAIN = "start a new campaign with `ablation campaign init`"
_OTHER = "restore the file or the tracker's version, or start a new campaign with `ablation campaign init`"
Asked = Generator[Batch, Values, Any]


def word_of(result: Decision | Verification | None, referee: Referee) -> str:
    """Return what became of a trial, or of a verification that was asked for."""
    if isinstance(result, Decision):
        return result.word
    if result is None:
        return "nothing"
    return "verified" if result.shown else "back" if referee.provisional == referee.verified else "step"


class Refused(Exception):
    """A trial that does not count: it touched what is locked, or its value is not a run's."""


class Campaign:
    """A campaign in a repository; hold its lock.

    Attributes:
        settings: of `campaign.toml`, as they were at the start.
        referee: the policy's state after all decided trials.
        trials: the events of trials in order, each with its `decision`, if it has one.
        commits: identity of code -> a commit that has it.
    """

    def __init__(self, repository: Repository) -> None:
        """Read and replay the ledger. Raises ConfigError."""
        self.repository = repository
        self.ledger = Ledger(repository.root / LEDGER, repository.folder / "seal")
        start = self.ledger.events[0] if self.ledger.events else {}
        if start.get("event") != "start":
            raise ConfigError(
                repository.root / LEDGER, "line 1", None, "is not the first line of a ledger", _START_AGAIN
            )
        self.start = start
        self.settings = from_values(start["settings"])
        self.commits = {"base": str(start["commit"])}
        self.trials: list[Event] = []
        self.known: dict[tuple[bool, str, int], Event] = {}
        for event in self.ledger.events:
            if event["event"] == "run":
                self.known[event["verify"], event["code"], event["seed"]] = event
            elif event["event"] in ("trial", "verification"):
                self.trials.append({**event})
                self.commits.setdefault(event["code"], event["commit"])
            elif event["event"] == "decision":
                self.trials[-1] |= {"decision": event, "seeds": 1 + max(seed for _, _, seed in self.known)}
        self.rules = Rules(**start["rules"])
        self.referee: Referee | None = None
        if not self.missing_baseline() and None not in (run["value"] for run in self._baseline()):
            self._derive()
            self._replay()

    def _baseline(self) -> list[Event]:
        return [run for (_, code, seed), run in self.known.items() if code == "base" and seed < self.rules.baseline]

    def _derive(self) -> None:
        """Set the limits of a run that were not stated by those of the baseline."""
        seconds, settings = [run["seconds"] for run in self._baseline()], self.settings
        limit = settings.time_limit or max(1.0, 3 * max(seconds) / 60)
        least = min(seconds) / 10 if settings.min_seconds is None else settings.min_seconds
        self.settings = replace(settings, time_limit=limit, min_seconds=least)

    def referee_baseline(self) -> float:
        """Return the mean of the baseline's first runs, larger is better."""
        values = [self.settings.sign * run["value"] for run in self._baseline() if not run["verify"]]
        return float(sum(values) / len(values))

    def missing_baseline(self) -> list[tuple[bool, int]]:
        """Return the runs of the baseline that are still to be made: (verify, seed)."""
        kinds = (False, True) if self.settings.verify_run else (False,)
        wanted = [(verify, seed) for verify in kinds for seed in range(self.rules.baseline)]
        return [(verify, seed) for verify, seed in wanted if (verify, "base", seed) not in self.known]

    def _replay(self) -> None:
        settings = self.settings
        values: dict[bool, list[float]] = {False: [], True: []}
        for run in self._baseline():
            values[run["verify"]].append(settings.sign * run["value"])
        paired = bool(settings.seed_arg or settings.seed_env)
        self.referee = Referee(self.rules, "base", values[False], paired=paired, held_out=values[True])
        for trial in self.trials:
            if decided := trial.get("decision"):
                if decided["word"] != "refused":
                    trial["result"] = self._finish(self._asked(trial), trial, make=False)
                    if word_of(trial["result"], self.referee) != decided["word"]:
                        problem = "is not what this version of the policy decides"
                        raise ConfigError(self.ledger.path, f"line {decided['n'] + 1}", None, problem, _START_AGAIN)
                self.referee.skip(trial["seeds"])  # no run that a refused trial was shown counts again

    @property
    def state(self) -> Referee:
        """Return the policy's state. Raises ConfigError before the baseline is measured."""
        if self.referee is None:
            problem, remedy = "the baseline has not been measured yet", "continue with: ablation campaign init"
            raise ConfigError(self.ledger.path, "", None, problem, remedy)
        return self.referee

    def _asked(self, trial: Event) -> Asked:
        left = math.inf if trial["left"] is None else trial["left"]
        if trial["event"] == "verification":
            return self.state.verify(trial["pairs"])
        if trial["margin"] is not None:
            return self.state.simplification(trial["code"], trial["margin"], left)
        return self.state.trial(trial["code"], left)

    def _finish(self, asked: Asked, trial: Event, *, make: bool) -> Decision | Verification | None:
        """Answer a trial's batches from the ledger, and with `make` run what it lacks; return what it became."""
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
            problem = "is not what this version of the policy decides by the runs of the ledger"
            raise ConfigError(self.ledger.path, f"line {trial['n'] + 1}", None, problem, _OTHER)
        self.run(missing, batch.purpose, trial["why"])
        runs = [self.known[run] for run in wanted]
        if refused := next((run for run in runs if run.get("refused") and run["code"] == trial["code"]), None):
            raise Refused(refused["why_none"])
        values = [run["value"] for run in runs]
        others = [run["value"] for run in self._baseline() if run["verify"] == verify]
        if odd := next((value for value in values if value is not None and on_another_scale(value, others)), None):
            raise Refused(f"{odd:g} is on another scale than {others[0]:g}, such as a percentage among shares")
        return [None if value is None else self.settings.sign * value for value in values]

    def run(self, runs: Sequence[tuple[bool, str, int]], purpose: str, why: str) -> None:
        """Make runs, as many at once as there are devices, and record each."""
        settings = self.settings
        width = max(1, len(visible_devices()) // max(1, settings.gpus))
        slots = list(range(width))
        for verify, code, seed in runs:
            if self.log((verify, code, seed)).exists():  # a program that sees its values and kills this one draws again
                self.ledger.add({"event": "interrupted", "code": code, "seed": seed, "verify": verify})

        def one(run: tuple[bool, str, int]) -> tuple[tuple[bool, str, int], Outcome]:
            verify, code, seed = run
            slot = slots.pop()
            devices = lease(settings.gpus)
            try:
                return run, run_once(
                    self.repository,
                    settings,
                    self.commits[code],
                    seed,
                    verify=verify,
                    log=self.log(run),
                    slot=slot,
                    devices=devices.tokens,
                    locks=devices.descriptors,
                )
            finally:
                devices.release()
                slots.append(slot)

        if width == 1 or len(runs) < 2:
            for run in runs:
                self._record(*one(run), purpose, why)
            return
        with ThreadPoolExecutor(width) as pool:
            for run, outcome in pool.map(one, runs):
                self._record(run, outcome, purpose, why)

    def _record(self, run: tuple[bool, str, int], outcome: Outcome, purpose: str, why: str) -> None:
        verify, code, seed = run
        named = {"code": code, "commit": self.commits[code], "seed": seed, "verify": verify, "why": why}
        self.known[run] = self.ledger.add({"event": "run", "purpose": purpose, **named, **outcome.fields()})

    def log(self, run: tuple[bool, str, int]) -> Path:
        """Return the file with the output of a run."""
        verify, code, seed = run
        return self.repository.folder / "logs" / f"{code}-{seed}{'-verify' if verify else ''}.txt"

    def seconds(self, *, spent: bool = False) -> float:
        """Return the mean seconds of a run; or of all runs together."""
        runs = [run["seconds"] for run in self.known.values()]
        return sum(runs) if spent else max(sum(runs) / len(runs), 1e-3) if runs else math.nan

    def left(self) -> float:
        """Return how many runs the budget still holds."""
        if self.settings.budget is None:
            return math.inf
        return max(0.0, (3600 * self.settings.budget - self.seconds(spent=True)) / self.seconds())

    def pending(self) -> Event | None:
        """Return the trial that was interrupted before its decision, if there is one."""
        return self.trials[-1] if self.trials and "decision" not in self.trials[-1] else None

    def decide(self, trial: Event) -> Event:
        """Run what a trial needs, and record its decision. Raises NoResult if a run was ended from outside."""
        verified, more = self.state.verified, {}
        try:
            result = self._finish(self._asked(trial), trial, make=True)
            word = word_of(result, self.state)
        except Refused as refusal:
            result, word, more = None, "refused", {"reason": str(refusal)}
            self._replay()
        state = self.state
        if state.verified != verified and self.settings.tag:
            number = sum(done.shown for done in state.verifications)
            self.repository.remember(self.commits[state.verified], f"verified/{number}")
        champions = {"provisional": self.commits[state.provisional], "verified": self.commits[state.verified]}
        decided = self.ledger.add({"event": "decision", "word": word, **champions, **more})
        trial |= {"decision": decided, "result": result, "seeds": 1 + max(seed for _, _, seed in self.known)}
        state.skip(trial["seeds"])
        return decided

    def begin(self, event: str, commit: str, code: str, why: str, **more: Any) -> Event:
        """Record a trial, or a verification, that is about to be made."""
        left = self.left()
        left_field = None if math.isinf(left) else round(left, 2)
        fields = {"event": event, "commit": commit, "code": code, "why": why, "left": left_field, "margin": None}
        trial = dict(self.ledger.add({**fields, **more}))
        self.commits.setdefault(code, commit)
        self.repository.remember(commit)
        self.trials.append(trial)
        return trial

    def check_settings(self) -> None:
        """Refuse to go on after an edit of `campaign.toml`. Raises Refused."""
        path = self.repository.root / SETTINGS
        with suppress(OSError):
            if sha256(path) == self.start["settings_sha256"]:
                return
        raise Refused(f"{SETTINGS} has changed since the start; restore it, or {_START_AGAIN}")

    def check_locked(self, commit: str) -> None:
        """Refuse a commit that changes what measures it. Raises Refused."""
        base = self.commits["base"]
        if touched := self.repository.changed(base, commit, self.start["locked"]):
            raise Refused(f"changes locked files: {', '.join(touched[:5])}")

    def elsewhere(self) -> str:
        """Return what to say where the campaign began on another machine."""
        here, there = machine(), self.start["machine"]
        return (
            ""
            if here == there
            else f"this machine is {here}, but the campaign began on {there}, so its noise may differ"
        )


def machine() -> str:
    """Return what tells machines apart."""
    from ablation.runner.provenance import describe_hardware

    hardware = describe_hardware()
    return f"{hardware['host']} ({hardware['processor']})"


def begin_campaign(repository: Repository, settings: Settings, rules: Rules) -> Campaign:
    """Begin a campaign at HEAD, or go on with one whose baseline is not complete. Raises ConfigError.

    A finished ledger of an earlier campaign is kept under another name.
    """
    root = repository.root
    commit, files = repository.snapshot()
    if files:
        problem = f"there are uncommitted changes ({', '.join(files[:3])})"
        raise ConfigError(root, "", None, problem, "commit them, because the baseline is a commit")
    repository.ignore([SETTINGS, LEDGER, "campaign-*.jsonl", settings.results])
    named = repository.tracked([*settings.words(0, verify=True)]) if settings.verify_run else []
    evaluators = [word for word in repository.tracked(settings.words(0, verify=False)) if "eval" in Path(word).name]
    locked = list(dict.fromkeys([*(settings.locked or evaluators), *named]))
    for name in settings.locked:
        if not repository.git("ls-tree", "--name-only", commit, "--", name.rstrip("/")).strip():
            raise ConfigError("campaign init", "--locked", name, "is not a file of this commit", "correct it")
    # A package of the same name would be imported in place of a locked module.
    shadows = [name.removesuffix(".py") for name in locked if name.endswith(".py")]
    write_text(root / SETTINGS, settings.text())
    start = {
        "event": "start",
        "commit": commit,
        "settings": asdict(settings),
        "settings_sha256": sha256(root / SETTINGS),
        "locked": [*locked, *shadows, SETTINGS, LEDGER],
        "rules": asdict(rules),
        "machine": machine(),
    }
    path, seal = root / LEDGER, repository.folder / "seal"
    same = ("commit", "settings", "locked", "rules", "machine")
    if path.exists():
        with suppress(ConfigError):
            going = Campaign(repository)
            if going.referee is None and all(going.start[name] == _as_read(start[name]) for name in same):
                return going
        number = 1
        while (kept := root / f"campaign-{number}.jsonl").exists():
            number += 1
        path.rename(kept)
    repository.folder.mkdir(parents=True, exist_ok=True)
    seal.unlink(missing_ok=True)
    shutil.rmtree(repository.folder / "logs", ignore_errors=True)  # of an earlier campaign
    path.touch()
    Ledger(path, seal).add(start)
    return Campaign(repository)


def _as_read(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _as_read(each) for name, each in value.items()}
    return list(value) if isinstance(value, tuple) else value


def measure_baseline(campaign: Campaign) -> Campaign:
    """Make the baseline's runs. Raises ConfigError if one has no metric, with the last lines of its output."""
    missing = campaign.missing_baseline()
    campaign.run([(verify, "base", seed) for verify, seed in missing], "baseline", "baseline")
    for run in ((verify, "base", seed) for verify in (False, True) for seed in range(campaign.rules.baseline)):
        event = campaign.known.get(run)
        if event and event["value"] is None:
            said = last_lines(campaign.log(run))
            campaign.ledger.path.unlink()  # nothing has been measured
            print(said)
            command = campaign.settings.verify_run if run[0] else campaign.settings.run
            problem = one_line(f"the baseline's run {event['why_none']}", 300)
            remedy = "correct the command; name files that git ignores with --link"
            raise ConfigError("campaign init", "--verify-run" if run[0] else "--run", command, problem, remedy)
    return Campaign(campaign.repository)
