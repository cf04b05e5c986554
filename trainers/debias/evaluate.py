"""Stage `evaluate` of study `debias`: SS, LMS and ICAT on the test items, per domain and per item.

Metrics: docs/studies/metrics/debias.md.

Protocols:
    unedited  the model as it is, with the scores that `prepare` cached. If the variant does not edit, the other two
              protocols have the same scores.
    edited    BiasEdit's: the hypernetwork edits the model on each batch of n_edits test items, and this batch is then
              measured.
    transfer  the shifts predicted for all batches of n_edits training items are averaged and applied once, and all test
              items are measured. No test item takes part in the edit, nor (with split.by term) does its target term.

The three sentences of each test item are saved as samples, with their log-probabilities before and after the edit.
Items that share a target term or an edit batch of the protocol `edited` are in one cluster.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import torch
from safetensors.torch import load_file
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from trainers.assets import files
from trainers.debias.config import DebiasConfig
from trainers.debias.data import KINDS
from trainers.debias.editor import WEIGHTS_FILE, Hypernetwork, micro_batches, predict
from trainers.debias.measure import (
    ItemScores,
    batch_shares,
    graded_ss,
    load_suffix,
    measure,
    measure_edited,
    reported,
    summarise,
    term_means,
    unedited,
)
from trainers.debias.model import SuffixModel
from trainers.debias.prepared import Prepared, TokenisedItem
from trainers.parallel import join
from trainers.running.samples import Row as Sample
from trainers.running.samples import save_samples, some_items
from trainers.running.stage import Stage


# A cluster is a connected component: it holds every item that shares a target term or an edit batch with another of
# its items, as one shift of the weights moves the whole batch. Where batches mix terms, it may hold a whole domain.
def item_clusters(items: Sequence[TokenisedItem], batches: Sequence[Sequence[int]]) -> dict[str, str]:
    """Return the cluster of each item: `<domain>/<term>`, followed by `+<n>` if the cluster includes n other terms.

    batches: edit batches as numbers of items, each of one domain. An item in no batch is clustered by its term only.
    """
    terms = ["/".join((item.domain, item.term)) for item in items]
    names = sorted(set(terms))
    number = {name: place for place, name in enumerate(names)}
    edges = [(number[terms[one]], number[terms[other]]) for batch in batches for one, other in pairwise(batch)]
    ones, others = zip(*edges, strict=True) if edges else ((), ())
    graph = coo_array((torch.ones(len(edges)).numpy(), (ones, others)), shape=(len(names), len(names)))
    _, component = connected_components(graph, directed=False)
    members: dict[int, list[str]] = {}
    for name, label in zip(names, component.tolist(), strict=True):
        members.setdefault(label, []).append(name)
    shown = {label: first + (f"+{len(others)}" if others else "") for label, (first, *others) in members.items()}
    return {item.id: shown[component[number[term]]] for item, term in zip(items, terms, strict=True)}


Row = tuple[str, str, str, str, float]
NAMES = {"anti": "anti-stereotype", "stereo": "stereotype", "unrelated": "unrelated"}
PROTOCOLS = ("unedited", "edited", "transfer")
RANKS = join  # several devices: a process for each, with some of the edit batches


class Evaluator:
    """Measurement of the prepared items, with the trained hypernetwork if the variant edits the model."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.prepared = Prepared(stage.inputs["prepare"], stage.devices[0])
        self.config: DebiasConfig = stage.config
        if not self.config.editing:
            return
        self.model: SuffixModel = load_suffix(files(stage.inputs["model"]), self.prepared)
        editor = self.config.editor
        self.hypernetwork = Hypernetwork(
            self.prepared.modules, rank=editor.rank, n_blocks=editor.n_blocks, lr=0.0, seed=0
        )
        self.hypernetwork.load_state_dict(load_file(stage.inputs["train"] / WEIGHTS_FILE))
        self.hypernetwork.to(self.prepared.device)

    def transfer_shifts(self) -> dict[str, Tensor]:
        """Return {module name: mean shift [d_in, d_out] over all batches of training items}; all ranks must call it."""
        settings, ranks = self.config.edit, self.stage.ranks
        batches = micro_batches(self.prepared.indices("train"), settings.n_edits)
        total: dict[str, Tensor] = {}
        for indices in batches[ranks.share(len(batches))]:
            pieces = micro_batches(indices, settings.batch_size)
            edits = predict(
                self.hypernetwork, self.prepared, pieces, chunk=self.config.editor.batch_size, update_normaliser=False
            )
            for name, edit in edits.items():
                total[name] = total.get(name, 0) + edit.shift / len(batches)
        for module in self.prepared.modules:  # a rank without batches has none
            total.setdefault(module.name, torch.zeros(module.d_in, module.d_out, device=self.prepared.device))
        ranks.add_up([total[module.name] for module in self.prepared.modules])
        return total

    def measured(
        self, protocol: str, batches: Sequence[Sequence[int]], note: Callable[[int], None]
    ) -> list[list[ItemScores]]:
        """Return, for each batch of test items, the scores of its micro-batches under a protocol.

        note: called with the number of items in each batch that this rank has measured.
        """
        size, chunk = self.config.edit.batch_size, self.config.editor.batch_size
        protocol = protocol if self.config.editing else "unedited"
        shifts = self.transfer_shifts() if protocol == "transfer" else {}

        def scores(indices: Sequence[int]) -> list[ItemScores]:
            if protocol == "unedited":
                return [unedited(self.prepared, part) for part in micro_batches(indices, size)]
            if protocol == "edited":
                return measure_edited(
                    self.model, self.prepared, self.hypernetwork, indices, batch_size=size, chunk=chunk
                )
            return measure(self.model, self.prepared, shifts, micro_batches(indices, size))

        def work(indices: Sequence[int]) -> list[ItemScores]:
            results = scores(indices)
            note(len(indices))
            return results

        return self.stage.ranks.divided(batches, work)


def run(stage: Stage) -> None:
    """Log metrics `<protocol>/<domain>/<name>` and write one row per item and value to `items.parquet`."""
    evaluator = Evaluator(stage)
    prepared = evaluator.prepared
    domains = sorted({item.domain for item in prepared.items})
    total, n_edits = len(PROTOCOLS) * len(prepared.indices("test")), stage.config.edit.n_edits
    batches = {domain: micro_batches(prepared.indices("test", domain), n_edits) for domain in domains}
    rows: list[Row] = []
    done = 0

    def note(items: int) -> None:
        nonlocal done
        done += items
        stage.progress(min(done * stage.ranks.size, total), total, "items")  # other ranks are about as far

    for protocol in PROTOCOLS:
        figures = {}
        scores = iter(evaluator.measured(protocol, [batch for domain in domains for batch in batches[domain]], note))
        for domain in domains:
            indices = prepared.indices("test", domain)
            measured = [next(scores) for _ in batches[domain]]
            passes = [part for batch in measured for part in batch]
            graded = graded_ss(prepared, indices, passes)
            more = {"ss_graded": graded, "ss_batch_mean": batch_shares(measured)}
            rows += _rows(prepared, indices, protocol, passes, more)
            figures[domain] = summarise(passes) | reported(measured)
            figures[domain] |= term_means([prepared.items[i].term for i in indices], passes)
            mean = float(graded.mean())
            figures[domain] |= {"ss_graded": mean, "ss_graded_distance": abs(mean - 0.5)}
        stage.log_metrics(0, _names(protocol, figures))
    edits = [batch for domain_batches in batches.values() for batch in domain_batches]
    stage.save_items(rows, clusters=item_clusters(prepared.items, edits))
    save_samples(stage, _samples(prepared, PROTOCOLS[1:], rows))


def _samples(prepared: Prepared, protocols: Sequence[str], rows: Sequence[Row]) -> Iterator[Sample]:
    values = {(item, protocol, name): value for item, _, protocol, name, value in rows}
    test = [prepared.items[i] for i in prepared.indices("test")]
    for item in (test[place] for place in some_items([item.id for item in test])):
        for protocol in protocols:
            for kind, sentence in item.sentences.items():
                yield {
                    "item": item.id,
                    "subset": item.domain,
                    "protocol": protocol,
                    "sentence": NAMES[kind],
                    "response": sentence,
                    "log-probability before": values[item.id, "unedited", f"{kind}_logp"],
                    "log-probability after": values[item.id, protocol, f"{kind}_logp"],
                }


def _names(protocol: str, domains: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the metrics by `<protocol>/<domain>/<name>`, and their means over domains under the domain `mean`."""
    named = {
        f"{protocol}/{domain}/{figure}": value for domain, values in domains.items() for figure, value in values.items()
    }
    for figure in next(iter(domains.values())):
        named[f"{protocol}/mean/{figure}"] = sum(values[figure] for values in domains.values()) / len(domains)
    return named


def _rows(
    prepared: Prepared,
    indices: Sequence[int],
    protocol: str,
    passes: Sequence[ItemScores],
    more: Mapping[str, Tensor],
) -> Iterator[Row]:
    """Yield the rows (item, domain, protocol, name, value) of `items.parquet`. more: other values [items] by name."""
    scores = ItemScores(torch.cat([part.p for part in passes]), torch.cat([part.logp for part in passes]))
    columns = {"ss": scores.ss, "ss_probability": scores.ss_probability, "lms": scores.lms, **more}
    for number, kind in enumerate(KINDS):
        columns |= {f"{kind}_p": scores.p[:, number], f"{kind}_logp": scores.logp[:, number]}
    lists = {name: values.tolist() for name, values in columns.items()}
    for position, index in enumerate(indices):
        item = prepared.items[index]
        for name, values in lists.items():
            yield item.id, item.domain, protocol, name, values[position]
