"""Try one commit of a loop (`ablation try`), from its checks to an exit code and a line with the reason."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ablation.campaign.campaign import Campaign, machine
from ablation.campaign.ledger import Event
from ablation.campaign.policy import Decision, Verification
from ablation.campaign.repository import Repository
from ablation.campaign.runs import Refused, last_lines, log_of
from ablation.campaign.settings import TABLE
from ablation.contract.atomic import WriteError, write_text
from ablation.contract.display import one_line
from ablation.contract.numbers import counted, duration, estimate, p_value, rough, stated
from ablation.contract.reading import read_text
from ablation.runner.guarded import NoResult
from ablation.runner.lifetime import lock_folder

KEEP, RESET, AGAIN, CRASHED, REFUSED = 0, 10, 11, 12, 13  # exit codes
_EXITS = {"step": KEEP, "verified": KEEP, "nothing": KEEP, "again": AGAIN, "crash": CRASHED}
_STATUS = {"step": "keep", "verified": "keep", "crash": "crash"}  # in results.tsv
_EXITS |= dict.fromkeys(("constant", "costly", "refused"), REFUSED)


@dataclass
class Answer:
    """The answer of a command, as exit code, lines of text, and fields for programs."""

    exit: int
    lines: list[str]
    fields: dict[str, Any] = field(default_factory=dict)


@contextmanager
def locked(repository: Repository) -> Iterator[None]:
    """Hold the campaign's lock; a second caller waits until the trial of the first caller is decided."""
    repository.folder.mkdir(parents=True, exist_ok=True)

    def waits(holder: str) -> None:
        print(f"waiting for {holder}, which is running a trial", file=sys.stderr)

    handle = lock_folder(repository.folder, float("inf"), waits)
    try:
        yield
    finally:
        os.close(handle)


def try_commit(repository: Repository, why: str, *, simplified: bool = False, margin: float | None = None) -> Answer:
    """Try the code of HEAD, or of the working tree if it has changes. Raises ConfigError."""
    commit, files = repository.snapshot()
    notes = [f"the trial includes uncommitted changes: {', '.join(files[:5])}"] if files else []

    def trial(campaign: Campaign) -> Answer:
        state, base, pending = campaign.state, campaign.commits["base"], campaign.pending()
        campaign.check_added(commit)
        chosen = _margin(campaign, margin) if simplified else None
        code = repository.identity(base, commit)
        if pending and pending["code"] != code:
            return _first(campaign, pending, notes, trial)
        same = (code, "trial", simplified)
        decided = (each for each in campaign.trials if "decision" in each)
        kinds = ((each, (each["code"], each["event"], each["margin"] is not None)) for each in decided)
        if earlier := next((each for each, kind in kinds if kind == same), None):
            word = earlier["decision"]["word"]
            left = _EXITS.get(word) == KEEP and code != state.provisional  # the loop is elsewhere
            said = f"known: trial {_number(campaign, earlier)} ran the same code ({_outcome(campaign, earlier)})"
            fields = {"word": "known", "was": word}
            return Answer(RESET if left else _EXITS.get(word, RESET), [f"{said}, so nothing was run"], fields)
        if code in (state.provisional, repository.identity(base, base)):
            said = "reset: the champion or the baseline has the same code, so nothing was run"
            return Answer(RESET, [said], {"word": "known"})
        if not pending:
            closed = campaign.trials and campaign.trials[-1]["event"] == "verification"
            if not closed and (pairs := state.closing(campaign.left())):
                return _first(campaign, _verification(campaign, "last", pairs), notes, trial)
            if campaign.left() < 1:
                raise Refused("the budget is used up; run `ablation campaign` for the report")
            pending = campaign.begin("trial", commit, code, why, margin=chosen)
        return _answer(campaign, pending)

    return _asked(repository, notes, trial)


def verify_now(repository: Repository) -> Answer:
    """Verify the provisional champion now. Raises ConfigError if no campaign can be read."""
    notes: list[str] = []

    def verification(campaign: Campaign) -> Answer:
        state = campaign.state
        if pending := campaign.pending():
            return _first(campaign, pending, notes, verification)
        if state.provisional == state.verified or state.exact:
            why = "the provisional champion is already verified"
            if state.exact:
                why = "all runs of a commit give the same value, so there is no noise to test against"
            return Answer(KEEP, [f"nothing to verify: {why}"], {"word": "nothing"})
        return _answer(campaign, _verification(campaign, "asked for", campaign.rules.most))

    return _asked(repository, notes, verification)


def _asked(repository: Repository, notes: list[str], ask: Callable[[Campaign], Answer]) -> Answer:
    """Return the answer that `ask` gives while the campaign's lock is held, after the lines in `notes`."""
    with locked(repository):
        campaign = Campaign(repository)
        if (now := machine()) != (first := campaign.start["machine"]):
            notes.append(f"warning: this machine is {now}, but the campaign began on {first}; the noise may differ")
        try:
            campaign.check_settings()
            answer = ask(campaign)
        except Refused as refusal:
            answer = Answer(REFUSED, [f"refused: {refusal}"], {"word": "refused", "reason": str(refusal)})
        except NoResult as error:
            seconds = campaign.of_a_run()
            again = f"again: {error}; run the command again (a run takes about {duration(seconds)})"
            answer = Answer(AGAIN, [again], {"word": "again", "seconds": seconds})
    answer.lines[:0] = notes
    return answer


def _first(campaign: Campaign, before: Event, notes: list[str], ask: Callable[[Campaign], Answer]) -> Answer:
    """Decide an interrupted trial, or a due verification, then ask again."""
    _decide(campaign, before)
    what = "a verification" if before["event"] == "verification" else f"the interrupted trial {before['why']!r}"
    notes.append(f"{what} was decided first: {_outcome(campaign, before)}")
    return ask(Campaign(campaign.repository))


def _decide(campaign: Campaign, trial: Event) -> None:
    campaign.decide(trial)
    write_table(campaign)


def _verification(campaign: Campaign, why: str, pairs: int) -> Event:
    code = campaign.state.provisional
    return campaign.begin("verification", campaign.commits[code], code, why, pairs=pairs)


def _margin(campaign: Campaign, margin: float | None) -> float:
    """Return the margin of a simplification. Raises Refused if it is missing, or so large that anything would pass."""
    margin, state = campaign.settings.margin if margin is None else margin, campaign.state
    if margin is None:
        raise Refused("--claim not-worse needs a margin; pass --margin M")
    if not 0 < margin < abs(state.pool.runs[state.verified].mean) + 20 * state.pool.noise()[0] ** 0.5:
        said = "is not above 0, or is as large as the metric itself; pass a positive number far smaller than the metric"
        raise Refused(f"--margin {stated(margin)} {said}")
    if campaign.settings.margin is not None and margin > campaign.settings.margin:
        wide = f"--margin {stated(margin)} is wider than the margin of the campaign, {stated(campaign.settings.margin)}"
        raise Refused(f"{wide}; pass a smaller margin")
    return margin


def _answer(campaign: Campaign, trial: Event) -> Answer:
    _decide(campaign, trial)
    decided, result = trial["decision"], trial["result"]
    word = decided["word"]
    lines = [f"step {_number(campaign, trial)}: {_outcome(campaign, trial)}; next: {next_step(campaign)}"]
    if word == "crash":
        runs = [run for run in campaign.known if run[1] == trial["code"]]
        failed = next((run for run in runs if campaign.known[run]["value"] is None), runs[-1])
        lines += [campaign.known[failed].get("why_none", ""), last_lines(log_of(campaign.repository, failed))]
    if word == "back":
        lines.append(f"reset to the verified champion: git reset --hard {decided['verified'][:12]}")
    fields = {"word": word, **{name: decided[name] for name in ("provisional", "verified")}}
    if isinstance(result, Decision):
        sign = campaign.settings.sign
        numbers = {"value": result.value, "champion": result.against, "again": result.again}
        fields |= {name: None if value is None else sign * value for name, value in numbers.items()}
        result = result.verification
    if result is not None:
        fields["verification"] = verification_fields(campaign, result)
    return Answer(_EXITS.get(word, RESET), lines, fields)


def _number(campaign: Campaign, trial: Event) -> int:
    return sum(each["event"] == "trial" for each in campaign.trials[: campaign.trials.index(trial) + 1])


def _outcome(campaign: Campaign, trial: Event) -> str:
    """Return the outcome of a trial, with its numbers, as one line."""
    decided, result, sign = trial["decision"], trial.get("result"), campaign.settings.sign
    if reason := decided.get("reason"):
        return f"refused: {reason}"
    parts = [
        {"step": "provisional", "back": "not verified, and not better than the verified champion on average"}.get(
            decided["word"], decided["word"]
        )
    ]
    if isinstance(result, Decision):
        if result.word == "costly":
            return (
                f"refused: showing that this commit is not worse would take {result.cost} runs; pass a larger --margin"
            )
        if result.word == "constant":
            said = "three seeds gave the same value, although runs of the baseline differ"
            return f"refused: {said}; make the code use the seed that the command gets"
        if result.value is not None:
            parts.append(
                f"{stated(sign * result.value)} against {stated(sign * result.against)} +- {rough(result.error)}"
            )
        if result.again is not None:
            parts.append(f"mean of fresh runs {stated(sign * result.again)}")
        if trial["margin"] is not None and not result.kept and (result.value or -1e999) > result.against:
            parts.append("if this commit is better by more than the margin, try it without --claim not-worse")
        result = result.verification
    return ", ".join([*parts, *([in_words(result)] if isinstance(result, Verification) else [])])


def in_words(done: Verification) -> str:
    """Return a verification in words; gains are positive if the metric improves."""
    low, high = done.interval()
    pairs, gain = counted(done.pairs, "fresh pair"), " ".join(estimate(done.gain, low, high))
    within = "" if done.margin is None else f"within {stated(done.margin)}"
    if not done.shown:
        what = f"equivalence {within}" if within else "a gain"
        return f"{pairs} did not show {what}: {gain}, p {p_value(done.p)} is above {rough(done.level)}"
    if within:
        return f"equivalent {within}, by {pairs}: {gain}"
    return f"verified by {pairs}: {estimate(done.stated, low, high)[0]} (measured {gain})"


def verification_fields(campaign: Campaign, done: Verification) -> dict[str, Any]:
    """Return the fields of a verification for programs."""
    low, high = done.interval()
    own = {name: getattr(done, name) for name in ("shown", "pairs", "p", "level", "margin")}
    commits = {"old": campaign.commits[done.old], "new": campaign.commits[done.new]}
    return {**commits, **own, "gain": done.stated, "measured": done.gain, "low": low, "high": high}


def next_step(campaign: Campaign) -> str:
    """Return the next step of the campaign, in words."""
    state = campaign.state
    if state.exact:
        return (
            "try a change that could improve the metric (nothing to verify: all runs of a commit give the same value)"
        )
    if state.provisional == state.verified:
        return "try a change that could improve the metric"
    steps = counted(max(1, campaign.rules.patience - state.steps), "more step")
    pairs = state.pairs_for(state.ahead()) if state.ahead() > 0 else campaign.rules.most
    early = f"or earlier if the lead over the verified champion grows (verifying now would take {2 * pairs} runs)"
    return f"try more changes; a verification follows after {steps}, {early}"


def write_table(campaign: Campaign) -> None:
    """Write the trials to `results.tsv`, one tab-separated row each; print a warning if it cannot be written.

    If another program writes `results.tsv`, the table goes to `results.referee.tsv`.
    """
    first = {run["code"]: run for run in reversed(campaign.known.values()) if not run["verify"]}
    lines = [
        f"commit\t{campaign.settings.metric}\tmemory_gb\tstatus\tdescription",
        _row(first["base"], "keep", "baseline"),
    ]
    for trial in campaign.trials:
        if trial["event"] == "trial" and (decided := trial.get("decision")):
            said = f"refused: {decided['reason']} ({trial['why']})" if "reason" in decided else trial["why"]
            lines.append(_row({**trial, **first.get(trial["code"], {})}, _STATUS.get(decided["word"], "discard"), said))
    path, text = campaign.repository.root / TABLE, "\n".join(lines) + "\n"
    try:
        unchanged = not path.exists() or text.startswith(read_text(path))
    except (OSError, ValueError):
        unchanged = False
    if not unchanged:
        other, path = path.name, path.with_suffix(".referee.tsv")
        why = "left unchanged, because another program writes this file too"
        print(f"{other}: {why}; the trials are in {path.name}", file=sys.stderr)
    try:
        write_text(path, text)
    except WriteError as error:
        print(f"warning: {error}", file=sys.stderr)


def _row(run: dict[str, Any], status: str, said: str) -> str:
    value, memory = run.get("value") or 0.0, run.get("memory_gb") or 0.0
    return f"{run['commit'][:7]}\t{value:.6f}\t{memory:.1f}\t{status}\t{one_line(said, 300)}"
