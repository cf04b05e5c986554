"""The stages of study `debias` as wholes: restoration, what is measured and written."""

import math

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from tests.make_stage import part_names
from tests.trainers.debias.helpers import (
    FULL,
    config,
    debias_stage,
    run_evaluate,
    run_prepare,
    run_train,
    stereoset_rows,
)
from trainers.assets import files
from trainers.debias import development, evaluate, train
from trainers.debias.editor import edit_batches
from trainers.debias.measure import load_suffix, measure_edited
from trainers.debias.prepared import Prepared
from trainers.debias.train import Trainer
from trainers.running.stage import Diverged


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("stages")
    return tmp, run_prepare(tmp, "llama")


@pytest.fixture(scope="module")
def undisturbed(home, tmp_path_factory):
    return run_train(tmp_path_factory.mktemp("undisturbed"), home[1], config(**FULL))


def metrics(stage):
    frame = pd.read_parquet(stage.out / "metrics.parquet")
    return frame[frame.name != "train/wall_s"].sort_values(["step", "name"]).reset_index(drop=True)


def test_metrics_of_a_full_objective_and_of_the_baseline(home, undisturbed, tmp_path):
    common = {"loss", "edit_loss", "loc_loss", "ss", "ss_distance", "lms", "shift_norm", "grad_norm", "lr", "lambda"}
    extra = {"grpo_loss", "reward", "kl", "rcs_alpha", "rcs_weight", "fairness"}
    dev = {"loss", "edit_loss", "loc_loss", "ss_distance", "ss_distance_max", "lms", "lms_change"}
    dev |= {"ss_graded_distance", "ss_batch_mean_distance"}
    dev |= {f"{figure}_{domain}" for figure in ("ss", "ss_distance") for domain in ("gender", "race")}
    names = set(metrics(undisturbed).name)
    assert names == {f"train/{name}" for name in common | extra} | {f"edit/{name}" for name in dev}
    baseline = run_train(tmp_path, home[1], config())
    assert set(metrics(baseline).name) == {f"train/{name}" for name in common} | {f"edit/{name}" for name in dev}
    assert part_names(config(), "train") == {}
    # 16 training items in batches of 6: 3 batches, 2 a step, so 2 steps an epoch for 3 epochs
    assert sorted(metrics(baseline).query("name == 'train/loss'").step) == [1, 2, 3, 4, 5, 6]
    assert sorted(metrics(baseline).query("name == 'edit/loss'").step) == [2, 4, 6]


def test_schedule_takes_over_at_its_fraction(undisturbed):
    alpha = metrics(undisturbed).query("name == 'train/rcs_alpha'").set_index("step").value
    # 3 epochs of 2 steps: epochs 0 and 1 are below half, epoch 2 (2/3) is beyond; steps average up to 2 batches
    assert alpha.loc[[1, 2, 3, 4]].max() <= 2.0
    assert alpha.loc[[5, 6]].min() >= 3.0


def test_clipping_and_share_scale_the_gradient(home, tmp_path):
    prepared = Prepared(home[1]["prepare"])
    model = load_suffix(files(home[1]["model"]), prepared)
    gradients = []
    for number, share in enumerate((1.0, 0.25)):
        trainer = Trainer(debias_stage(tmp_path, f"t{number}", config(), home[1]), prepared, model)
        trainer.edit_batch(prepared.indices("train")[:6], share)
        gradients.append([p.grad for p in trainer.hypernetwork.parameters() if p.grad is not None])
    for whole, part in zip(*gradients, strict=True):
        torch.testing.assert_close(part, whole / 4)
    assert any(bool(gradient.abs().max() > 0) for gradient in gradients[0])


def test_every_epoch_has_all_items_in_an_order_of_its_own(home, tmp_path):
    prepared = Prepared(home[1]["prepare"])
    model = load_suffix(files(home[1]["model"]), prepared)
    orders, starts = [], []
    for seed in (0, 1):
        trainer = Trainer(debias_stage(tmp_path, f"t{seed}", config(), home[1], seed), prepared, model)
        starts.append(torch.cat([p.detach().flatten() for p in trainer.hypernetwork.parameters()]))
        for trainer.progress.epoch in (0, 1):
            groups = trainer.batches_of_steps()
            assert [[len(batch) for batch in group] for group in groups] == [[6, 6], [4]]
            orders.append([index for group in groups for batch in group for index in batch])
            assert sorted(orders[-1]) == prepared.indices("train")
    assert len({tuple(order) for order in orders}) == 4
    assert not torch.equal(*starts)  # each seed has an editor of its own


def snapshot(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def assert_unchanged(module, before):
    after = module.state_dict()
    assert set(after) == set(before)
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_model_and_normaliser_are_left_as_they_were(home, tmp_path):
    prepared = Prepared(home[1]["prepare"])
    model = load_suffix(files(home[1]["model"]), prepared)
    before = snapshot(model.model)
    trainer = Trainer(debias_stage(tmp_path, "t", config(n_epochs=1), home[1]), prepared, model)
    trainer.run_epoch()
    assert_unchanged(model.model, before)

    network = snapshot(trainer.hypernetwork)
    assert all(float(network[name]) > 0 for name in network if name.endswith("normaliser.n"))
    trainer.development()
    assert_unchanged(trainer.hypernetwork, network)
    assert_unchanged(model.model, before)


def test_development_figures_are_those_of_the_edited_items(home, tmp_path):
    prepared = Prepared(home[1]["prepare"])
    model = load_suffix(files(home[1]["model"]), prepared)
    trainer = Trainer(debias_stage(tmp_path, "t", config(), home[1]), prepared, model)
    figures = trainer.development()
    graded, by_probability = [], []
    for domain in ("gender", "race"):
        indices = prepared.indices("dev", domain)  # one edit of at most six items
        [part] = measure_edited(model, prepared, trainer.hypernetwork, indices, batch_size=6, chunk=64)
        tokens = [prepared.items[index].tokens for index in indices]
        gaps = [
            (len(one["anti"]) + len(one["stereo"]) - 2) / 2 * (logp[1] - logp[0])
            for one, logp in zip(tokens, part.logp.tolist(), strict=True)
        ]
        graded.append(abs(sum(1 / (1 + math.exp(-gap)) for gap in gaps) / len(gaps) - 0.5))
        by_probability.append(abs(sum(p[1] > p[0] for p in part.p.tolist()) / len(gaps) - 0.5))
    assert figures["edit/ss_graded_distance"] == pytest.approx(sum(graded) / 2)
    assert figures["edit/ss_batch_mean_distance"] == pytest.approx(sum(by_probability) / 2)


def test_a_loss_that_is_not_a_number_ends_the_stage_as_diverged(home, tmp_path, monkeypatch):
    plain = train.objective

    def broken(*args):
        loss, figures = plain(*args)
        return loss * float("nan"), {**figures, "loss": float("nan")}

    monkeypatch.setattr(train, "objective", broken)
    with pytest.raises(Diverged, match="step 1: loss is nan"):
        run_train(tmp_path, home[1], config())


def test_early_stopping_on_batches_that_mix_the_domains(home, tmp_path):
    early = {"key": "edit/ss_distance_mixed", "patience": 1}
    settings = config(n_epochs=2, early_stop=early, edit={**config().edit.model_dump(), "batch_size": 4})
    stage = run_train(tmp_path, home[1], settings)
    logged = metrics(stage).set_index(["name", "step"]).value
    mixed = logged["edit/ss_mixed"]
    assert logged["edit/ss_distance_mixed"].tolist() == pytest.approx((mixed - 0.5).abs().tolist())
    prepared = Prepared(home[1]["prepare"])
    dev = prepared.indices("dev")
    batches = edit_batches(dev, 6, "mixed")
    assert sorted(index for batch in batches for index in batch) == sorted(dev)
    assert len({prepared.items[index].domain for index in batches[0]}) == 2
    assert "edit/ss_mixed" not in set(metrics(run_train(tmp_path, home[1], config(n_epochs=1), name="plain")).name)


def test_batches_as_biasedit_has_them(home, tmp_path, monkeypatch):
    """Its data/base.py: neither file is shuffled, the last, smaller training batch is dropped, domains stay mixed."""
    seen, measured, plain, measure = [], [], Trainer.edit_batch, development.measure_edited

    def edit_batch(self, indices, share):
        seen.append(list(indices))
        return plain(self, indices, share)

    def measure_edited(model, prepared, hypernetwork, indices, **sizes):
        measured.append(list(indices))
        return measure(model, prepared, hypernetwork, indices, **sizes)

    monkeypatch.setattr(Trainer, "edit_batch", edit_batch)
    monkeypatch.setattr(development, "measure_edited", measure_edited)
    settings = config(n_epochs=2, batches={"order": "file", "drop_last": True, "mixed": True}, ss="probability")
    logged = metrics(run_train(tmp_path, home[1], settings)).set_index("name").value
    prepared = Prepared(home[1]["prepare"])
    train_items, dev = prepared.indices("train"), prepared.indices("dev")
    assert seen == 2 * [train_items[:6], train_items[6:12]]  # of 16 items, 4 are left over
    mixed = [dev[begin : begin + 6] for begin in range(0, len(dev), 6)]
    assert measured[-len(mixed) :] == mixed
    apart = config(n_epochs=2, batches={"order": "file", "drop_last": True}, ss="probability")
    by_domain = metrics(run_train(tmp_path, home[1], apart, name="apart"))
    assert logged["edit/edit_loss"].iloc[0] != by_domain.set_index("name").value["edit/edit_loss"].iloc[0]
    few = config(batches={"drop_last": True}, edit={**config().edit.model_dump(), "n_edits": 17})
    with pytest.raises(ValueError, match=r"drop_last leaves no batch, .* training items, 16;"):
        run_train(tmp_path, home[1], few, name="none")


@pytest.mark.slow
def test_best_epoch_is_kept(home, tmp_path, monkeypatch):
    values = iter([3.0, 1.0, 1.0, 2.5])  # as low as before is no improvement
    weights = []
    plain = Trainer.development

    def scripted(self):
        weights.append(snapshot(self.hypernetwork))
        return plain(self) | {"edit/ss_distance": next(values)}

    monkeypatch.setattr(Trainer, "development", scripted)
    early = {"key": "edit/ss_distance", "patience": 2}
    stage = run_train(tmp_path, home[1], config(n_epochs=9, early_stop=early))
    assert len(weights) == 4  # two epochs without improvement
    kept = load_file(stage.out / train.WEIGHTS_FILE)
    assert all(torch.equal(kept[name], weights[1][name]) for name in kept)
    assert any(not torch.equal(kept[name], weights[3][name]) for name in kept)


@pytest.fixture(scope="module")
def evaluated(home, undisturbed, tmp_path_factory):
    return run_evaluate(tmp_path_factory.mktemp("evaluated"), home[1], config(), undisturbed)


def test_evaluation_metrics_are_the_means_of_their_items(home, evaluated):
    items = pd.read_parquet(evaluated.out / "items.parquet")
    values = metrics(evaluated).set_index("name").value
    prepared = Prepared(home[1]["prepare"])
    assert set(items.protocol) == {"unedited", "edited", "transfer"}
    for (protocol, domain), group in items.groupby(["protocol", "subset"]):
        wide = group.pivot(index="item", columns="name", values="value")
        assert len(wide) == len(prepared.indices("test", domain))
        assert values[f"{protocol}/{domain}/ss"] == pytest.approx((wide.stereo_logp > wide.anti_logp).mean())
        wins = (wide.anti_logp > wide.unrelated_logp) / 2 + (wide.stereo_logp > wide.unrelated_logp) / 2
        assert values[f"{protocol}/{domain}/lms"] == pytest.approx(wins.mean())
        graded = values[f"{protocol}/{domain}/ss_graded"]
        assert graded == pytest.approx(wide.ss_graded.mean())
        assert values[f"{protocol}/{domain}/ss_graded_distance"] == pytest.approx(abs(graded - 0.5))
        assert ((wide.ss_graded > 0.5) == (wide.ss == 1)).all()
        ss, lms = values[f"{protocol}/{domain}/ss"], values[f"{protocol}/{domain}/lms"]
        assert values[f"{protocol}/{domain}/icat"] == pytest.approx(100 * lms * min(ss, 1 - ss) / 0.5)
    both = [values[f"edited/{domain}/ss_distance"] for domain in ("gender", "race")]
    assert values["edited/mean/ss_distance"] == pytest.approx(sum(both) / 2)
    terms = [prepared.items[i].term for i in prepared.indices("test", "race")]
    by_term = items.query("protocol == 'edited' and subset == 'race' and name == 'ss'").set_index("item").value
    by_term = by_term[[prepared.items[i].id for i in prepared.indices("test", "race")]].groupby(terms).mean()
    assert len(by_term) > 1
    assert values["edited/race/ss_term_mean"] == pytest.approx(by_term.mean())
    # 8 test items a domain in batches of 6: the batch mean weighs the two that are left over as much as the six
    order = [prepared.items[i].id for i in prepared.indices("test", "race")]
    by_p = items.query("protocol == 'edited' and subset == 'race'").pivot(index="item", columns="name", values="value")
    assert (by_p.ss_probability == (by_p.stereo_p > by_p.anti_p)).all()
    assert values["edited/race/ss_probability_distance"] == pytest.approx(abs(by_p.ss_probability.mean() - 0.5))
    ss = by_p.ss_probability[order]
    assert values["edited/race/ss_batch_mean"] == pytest.approx((ss.iloc[:6].mean() + ss.iloc[6:].mean()) / 2)
    assert values["edited/race/ss_batch_mean"] == pytest.approx(by_p.ss_batch_mean.mean())
    scores = items.query("name == 'stereo_logp'").pivot(index="item", columns="protocol", values="value")
    for protocol in ("edited", "transfer"):
        assert (scores[protocol] - scores.unedited).abs().max() > 1e-3
    for index in prepared.indices("test"):  # of the unedited model: those that `prepare` kept
        assert scores.unedited[prepared.items[index].id] == prepared.scores[index, 1, 1].item()


def test_without_editing_every_protocol_measures_the_model_as_it_is(home, evaluated, tmp_path):
    settings = config(editing=False)
    trained = run_train(tmp_path, home[1], settings)
    assert not (trained.out / train.WEIGHTS_FILE).exists()
    assert metrics(trained).empty
    stage = run_evaluate(tmp_path, home[1], settings, trained)
    rows = ["item", "subset", "name", "value"]
    items, edited = (pd.read_parquet(each.out / "items.parquet") for each in (stage, evaluated))
    as_it_is = edited.query("protocol == 'unedited'")
    for protocol in ("unedited", "edited", "transfer"):
        found = items[items["protocol"] == protocol]
        pd.testing.assert_frame_equal(found[rows].reset_index(drop=True), as_it_is[rows].reset_index(drop=True))
    clusters = [dict(zip(frame["item"], frame["cluster"], strict=True)) for frame in (items, edited)]
    assert clusters[0] == clusters[1]


def test_samples_are_the_sentences_of_the_test_items_with_their_scores_before_and_after(home, evaluated):
    prepared = Prepared(home[1]["prepare"])
    kinds = {"anti-stereotype": "anti", "stereotype": "stereo", "unrelated": "unrelated"}
    sentences = {(f"{row['bias_type']}/{row['target']}", row[label]) for row in stereoset_rows() for label in kinds}
    samples = pd.read_parquet(evaluated.out / "samples.parquet")
    items = pd.read_parquet(evaluated.out / "items.parquet").set_index(["item", "protocol", "name"])["value"]
    assert len(samples) == 3 * 2 * len(prepared.indices("test"))  # sentences, protocols
    assert set(samples["item"]) == {prepared.items[i].id for i in prepared.indices("test")}
    for row in samples.to_dict("records"):
        assert (row["item"].rsplit("/", 1)[0], row["response"]) in sentences
        name = f"{kinds[row['sentence']]}_logp"
        assert row["log-probability before"] == items[row["item"], "unedited", name]
        assert row["log-probability after"] == items[row["item"], row["protocol"], name]
    assert (samples["log-probability before"] != samples["log-probability after"]).any()


def test_transfer_uses_training_items_only(home, undisturbed, evaluated, tmp_path, monkeypatch):
    plain, asked = Prepared.edit_inputs, set()

    def noting(self, name, indices):
        asked.update(self.items[i].split for i in indices)
        return plain(self, name, indices)

    monkeypatch.setattr(Prepared, "edit_inputs", noting)
    monkeypatch.setattr(evaluate, "PROTOCOLS", ("unedited", "transfer"))
    stage = run_evaluate(tmp_path, home[1], config(), undisturbed)
    assert asked == {"train"}
    columns = ["item", "name", "value"]
    one, other = (
        pd.read_parquet(s.out / "items.parquet").query("protocol == 'transfer'")[columns] for s in (stage, evaluated)
    )
    pd.testing.assert_frame_equal(one.reset_index(drop=True), other.reset_index(drop=True), check_exact=True)
