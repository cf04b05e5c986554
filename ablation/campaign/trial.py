"""`ablation try`: one commit of a loop, from its checks to an exit code and a line that says why."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ablation.campaign.campaign import Campaign, Refused
from ablation.campaign.ledger import Event
from ablation.campaign.policy import Decision, Referee, Verification
from ablation.campaign.repository import Repository
from ablation.campaign.results import write_results
from ablation.campaign.runs import last_lines
from ablation.contract.display import counted, duration
from ablation.runner.guarded import NoResult
from ablation.runner.lifetime import lock_folder

KEEP, RESET, AGAIN, CRASHED, REFUSED = 0, 10, 11, 12, 13  # exit codes
_EXITS = {"step": KEEP, "verified": KEEP, "crash": CRASHED, "constant": REFUSED, "costly": REFUSED, "refused": REFUSED}


@dataclass
class Answer:
    """What `ablation try` says: exit code, lines, and the same for programs."""

    exit: int
    lines: list[str]
    fields: dict[str, Any] = field(default_factory=dict)


@contextmanager
def locked(repository: Repository) -> Iterator[None]:
    """Hold the campaign's lock: a second caller waits until the first one's trial is decided."""
    repository.folder.mkdir(parents=True, exist_ok=True)
    handle = lock_folder(
        repository.folder,
        float("inf"),
        lambda who: print(f"waits for {who}, which is trying a commit", file=sys.stderr),
    )
    try:
        yield
    finally:
        os.close(handle)


def try_commit(repository: Repository, why: str, *, simplified: bool = False, margin: float | None = None) -> Answer:
    """Try what HEAD, or the working tree, holds. Raises ConfigError."""
    commit, files = repository.snapshot()
    with locked(repository):
        campaign = Campaign(repository)
        state = campaign.state
        notes = [f"the trial includes uncommitted changes: {', '.join(files[:5])}"] if files else []
        if elsewhere := campaign.elsewhere():
            notes.append(f"warning: {elsewhere}")
        try:
            campaign.check_settings()
            campaign.check_locked(commit)
            if simplified:
                margin = _checked(campaign.settings.margin if margin is None else margin, state)
            code = repository.identity(campaign.commits["base"], commit)
            pending = campaign.pending()
            if pending and pending["code"] != code:
                _decide(campaign, pending)
                notes.append(f"first finished the trial that was interrupted: {_outcome(campaign, pending)}")
                campaign = Campaign(repository)
                state, pending = campaign.state, None
            if earlier := next(
                (trial for trial in campaign.trials if trial["code"] == code and "decision" in trial), None
            ):
                return _known(campaign, earlier, notes)
            if code in (
                state.provisional,
                "base",
                repository.identity(campaign.commits["base"], campaign.commits["base"]),
            ):
                return Answer(
                    RESET, [*notes, "reset: this is the champion's code, so nothing was run"], {"word": "known"}
                )
            if not pending:
                if pairs := state.closing(campaign.left()):
                    last = campaign.begin(
                        "verification", campaign.commits[state.provisional], state.provisional, "last", pairs=pairs
                    )
                    _decide(campaign, last)
                    notes.append(f"last verification: {_outcome(campaign, last)}")
                if campaign.left() < 1:
                    raise Refused("the budget is used up; see the report: ablation campaign")
                pending = campaign.begin("trial", commit, code, why, margin=margin if simplified else None)
            _decide(campaign, pending)
        except Refused as refusal:
            return Answer(REFUSED, [*notes, f"refused: {refusal}"], {"word": "refused", "reason": str(refusal)})
        except NoResult as error:
            again = f"again: {error}; run it again: about {duration(campaign.seconds())}"
            return Answer(AGAIN, [*notes, again], {"word": "again", "seconds": campaign.seconds()})
        return _answer(campaign, pending, notes)


def _decide(campaign: Campaign, trial: Event) -> None:
    campaign.decide(trial)
    write_results(campaign)


def _checked(margin: float | None, state: Referee) -> float:
    """Return the margin of a simplification. Raises Refused for one that would let anything pass."""
    if margin is None:
        raise Refused("--claim not-worse needs a margin: pass --margin M")
    if not 0 < margin < abs(state.pool.of[state.verified].mean) + 20 * state.pool.noise()[0] ** 0.5:
        raise Refused(
            f"--margin {margin:g} is not above 0, or is as large as the metric itself; pass a smaller number above 0"
        )
    return margin


def verify_now(repository: Repository, pairs: int | None = None) -> Answer:
    """Verify the provisional champion now. Raises ConfigError."""
    with locked(repository):
        campaign = Campaign(repository)
        try:
            campaign.check_settings()
            notes = []
            if pending := campaign.pending():
                _decide(campaign, pending)
                notes.append(f"first finished the trial that was interrupted: {_outcome(campaign, pending)}")
                campaign = Campaign(repository)
            state = campaign.state
            if state.provisional == state.verified or state.exact:
                why = (
                    "it is verified"
                    if not state.exact
                    else "runs of one commit are equal, so there is no noise to test"
                )
                return Answer(KEEP, [*notes, f"nothing to verify: {why}"], {"word": "nothing"})
            event = campaign.begin(
                "verification",
                campaign.commits[state.provisional],
                state.provisional,
                "asked for",
                pairs=pairs or campaign.rules.most,
            )
            _decide(campaign, event)
        except Refused as refusal:
            return Answer(REFUSED, [f"refused: {refusal}"], {"word": "refused", "reason": str(refusal)})
        except NoResult as error:
            return Answer(AGAIN, [f"again: {error}; nothing was decided"], {"word": "again"})
        return _answer(campaign, event, notes)


def _known(campaign: Campaign, trial: Event, notes: list[str]) -> Answer:
    word = trial["decision"]["word"]
    status = _EXITS.get(word, RESET)
    if status == KEEP and trial["code"] != campaign.state.provisional:
        status = RESET
    said = (
        f"known: the same code was trial {_number(campaign, trial)} ({_outcome(campaign, trial)}), so nothing was run"
    )
    return Answer(status, [*notes, said], {"word": "known", "was": word})


def _answer(campaign: Campaign, trial: Event, notes: list[str]) -> Answer:
    decided, result = trial["decision"], trial["result"]
    word = decided["word"]
    lines = [*notes, f"step {_number(campaign, trial)}: {_outcome(campaign, trial)}; next: {next_step(campaign)}"]
    if word == "crash":
        runs = [run for run in campaign.known if run[1] == trial["code"]]
        failed = next((run for run in runs if campaign.known[run]["value"] is None), runs[-1])
        lines += [campaign.known[failed].get("why_none", ""), last_lines(campaign.log(failed))]
    if word == "back":
        lines.append(f"reset to the verified champion: git reset --hard {decided['verified'][:12]}")
    verification = result.verification if isinstance(result, Decision) else result
    fields = {"word": word, **{name: decided[name] for name in ("provisional", "verified")}}
    if verification is not None:
        fields["verification"] = verification_fields(campaign, verification)
    if isinstance(result, Decision):
        sign = campaign.settings.sign
        numbers = {"value": result.value, "champion": result.against, "again": result.again}
        fields |= {name: None if value is None else sign * value for name, value in numbers.items()}
    return Answer(_EXITS.get(word, RESET), lines, fields)


def _number(campaign: Campaign, trial: Event) -> int:
    return sum(each["event"] == "trial" for each in campaign.trials[: campaign.trials.index(trial) + 1])


def _outcome(campaign: Campaign, trial: Event) -> str:
    """Return what became of a trial, with its numbers, on one line."""
    decided, result, sign = trial["decision"], trial.get("result"), campaign.settings.sign
    word = {"step": "provisional", "back": "not verified, and lower"}.get(decided["word"], decided["word"])
    if reason := decided.get("reason"):
        return f"refused: {reason}"
    parts = [word]
    if isinstance(result, Decision):
        if result.word == "costly":
            return f"refused: showing that it is not worse would take {result.cost} runs; pass a larger --margin"
        if result.word == "constant":
            return (
                "refused: three seeds gave one value although runs of the baseline differ, so the code fixes "
                "its own seed"
            )
        if result.value is not None:
            parts.append(f"{shown(sign * result.value)} against {shown(sign * result.against)} +- {result.error:.2g}")
        if result.again is not None:
            parts.append(f"fresh runs {shown(sign * result.again)}")
        result = result.verification
    if isinstance(result, Verification):
        parts.append(in_words(campaign, result))
    return ", ".join(parts)


def in_words(campaign: Campaign, done: Verification) -> str:
    """Return a verification in words: gains are positive where the metric improves."""
    low, high = done.interval()
    pairs = counted(done.pairs, "fresh pair")
    if not done.shown:
        return (
            f"not shown by {pairs}: {done.gain:+.3g} [{low:+.3g}, {high:+.3g}], p {done.p:.2g} above {done.level:.2g}"
        )
    if done.margin is not None:
        return f"not worse by {done.margin:g}, by {pairs}: {done.gain:+.3g} [{low:+.3g}, {high:+.3g}]"
    return f"verified by {pairs}: {done.stated:+.3g} (measured {done.gain:+.3g} [{low:+.3g}, {high:+.3g}])"


def verification_fields(campaign: Campaign, done: Verification) -> dict[str, Any]:
    """Return a verification for programs."""
    low, high = done.interval()
    return {
        "old": campaign.commits[done.old],
        "new": campaign.commits[done.new],
        "shown": done.shown,
        "pairs": done.pairs,
        "gain": done.stated if done.shown else done.gain,
        "measured": done.gain,
        "low": low,
        "high": high,
        "p": done.p,
        "level": done.level,
        "margin": done.margin,
    }


def next_step(campaign: Campaign) -> str:
    """Return what the campaign waits for."""
    state = campaign.state
    if state.exact:
        return "runs of one commit are equal, so differences are exact for this machine and nothing is claimed"
    if state.provisional == state.verified:
        return "a trial that is better"
    steps = counted(max(1, campaign.rules.patience - state.steps), "more step")
    pairs = state.pairs_for(state.ahead()) if state.ahead() > 0 else campaign.rules.most
    return f"verification after {steps}, or when the lead is larger (now it would take {2 * pairs} runs)"


def shown(value: float) -> str:
    """Return a value of the metric, as loops print it."""
    return f"{value:.6g}"
