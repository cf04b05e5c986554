"""Clusters of test items: connected by a target term, or by an edit that serves them together."""

from trainers.debias.evaluate import item_clusters
from trainers.debias.prepared import TokenisedItem


def items(*terms):
    words = {"split": "test", "sentences": {}, "tokens": {}}
    return [TokenisedItem(str(n), *term.split("/"), **words) for n, term in enumerate(terms)]


def named(terms, batches):
    return list(item_clusters(items(*terms), batches).values())


def test_without_edits_a_term_is_a_cluster():
    assert named(["race/arab", "race/iraq", "race/arab"], []) == ["race/arab", "race/iraq", "race/arab"]


def test_an_edit_joins_its_terms_and_all_their_items():
    terms = ["race/iraq", "race/arab", "race/syria", "race/iraq", "race/syria"]
    assert named(terms, [[0, 1], [2], [3, 4]]) == ["race/arab+2"] * 5
    one, other = "race/arab+1", "race/syria"
    assert named(terms, [[0, 1], [2, 4], [3]]) == [one, one, other, one, other]


def test_a_term_of_two_domains_is_two():
    assert named(["race/mother", "gender/mother"], [[0], [1]]) == ["race/mother", "gender/mother"]


def test_a_chain_of_edits_is_one_cluster():
    terms = [f"race/{n:02}" for n in range(20)]
    assert set(named(terms, [[n, n + 1] for n in reversed(range(19))])) == {"race/00+19"}
