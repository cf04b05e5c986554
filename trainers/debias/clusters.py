"""Which test items share what: items of one target term, and items that one edit serves, err together.

    item_clusters(items, batches) -> {item id: cluster}

A cluster is a connected component: it holds every item that shares a term or an edit batch with another of its items.
The items of a term name the same group of people; and where an edit serves a batch, one shift of the weights moves all
its items. Where batches mix terms, as BiasEdit's do, the components soon hold a whole domain.
"""

from collections.abc import Sequence
from itertools import pairwise

from trainers.debias.prepared import TokenisedItem


def item_clusters(items: Sequence[TokenisedItem], batches: Sequence[Sequence[int]]) -> dict[str, str]:
    """Name the cluster of each item: `<domain>/<term>`, with `+<n>` where n further terms belong to it.

    Args:
        items: the items of a study; those in no batch share their term only.
        batches: numbers of the items that one edit serves. A batch holds items of one domain.
    """
    terms = [(item.domain, item.term) for item in items]
    parent = {term: term for term in terms}

    def root(term: tuple[str, str]) -> tuple[str, str]:
        while parent[term] != term:
            term = parent[term]
        return term

    for batch in batches:
        for one, other in pairwise(batch):
            first, second = sorted((root(terms[one]), root(terms[other])))
            parent[second] = first  # the root is the first of its terms in the alphabet

    sizes: dict[tuple[str, str], int] = {}
    for term in parent:
        sizes[root(term)] = sizes.get(root(term), 0) + 1

    def name(term: tuple[str, str]) -> str:
        more = sizes[term] - 1
        return "/".join(term) + (f"+{more}" if more else "")

    return {item.id: name(root(term)) for item, term in zip(items, terms, strict=True)}
