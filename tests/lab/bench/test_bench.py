"""The measurements of `classnorm bench`: what they are of, not how fast."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from classnorm.data import SyntheticConfig, save_gbu, synthetic
from classnorm.errors import ConfigError, DataError
from classnorm.methods import ClassNormConfig, FitContext, resolve
from classnorm_lab.bench import textbook
from classnorm_lab.bench.measures import (
    FORMAT,
    Change,
    Measure,
    bench_tables,
    compare,
    comparison_table,
    measured,
    measures,
    read_bench,
    step_plot,
)
from classnorm_lab.bench.shapes import SHAPES, Shape, chosen_shapes, find_dataset, synthetic_dataset
from classnorm_lab.bench.timing import busy_warning, peak_memory, threads
from classnorm_lab.bench.training_speed import embedder_products, logit_products, measure_training

CPU = FitContext(torch.device("cpu"))
STAGES = ["gather", "embedder", "logits", "backward", "optimizer", "other"]
TINY = Shape("tiny", rows=130, seen=8, unseen=3, attributes=12)


@pytest.fixture(scope="module")
def tiny():
    return synthetic_dataset(TINY, 16)


@pytest.fixture(scope="module")
def training(tiny):
    return measure_training(tiny, 2, CPU)[0]


def document(epoch=2.0, spread=0.1, threads=2, data="synthetic", torch_version="2.0", **more):
    """A document with one shape, as bench.json holds it."""
    loop = {
        "epoch": measured([epoch - spread, epoch, epoch + spread], "s"),
        "training": measured([50 * epoch], "s"),
        "memory": measured([0.5], "GB"),
        "step": {stage: measured([0.001 * (i + 1)], "s") for i, stage in enumerate(STAGES)},
        "loss": 3.0,
    }
    shape = {
        **{"data": data, "rows": 100, "features_dim": 16, "epochs": 50},
        **{"ours": loop, "textbook": loop},
        "textbook_over_ours": measured([1.0], "×"),
        "product_share": measured([0.5], "share"),
        "top_5": measured([90.0, 100.0, 110.0], "rows/s"),
    }
    machine = {"processor": "P", "threads": threads, "versions": {"torch": torch_version}}
    head = {"format": FORMAT, "machine": machine, "settings": {"repeats": 3, "quick": False}}
    return {**head, "shapes": {"CUB": shape}, "ausuc": {"samples": 5, "time": measured([0.4], "s")}, **more}


@pytest.mark.parametrize("epochs", [1, 3])
def test_the_textbook_loop_has_the_losses_of_the_method(tiny, epochs):
    method, config = resolve(tiny, epochs=epochs, hidden=32, batch_size=50)
    ours, plain = (fit(tiny, config, 4, CPU) for fit in (method.fit, textbook.fit))
    for one, other in zip(ours.history, plain.history, strict=True):
        assert (one["epoch"], one["lr"]) == (other["epoch"], pytest.approx(other["lr"]))
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)


def test_the_textbook_loop_learns(tiny):
    _, config = resolve(tiny, epochs=8, hidden=32, batch_size=50, lr=1e-2)
    losses = [record["loss"] for record in textbook.fit(tiny, config, 0, CPU).history]
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("shape", [*SHAPES[:2], TINY], ids=lambda shape: shape.name)
def test_synthetic_data_has_exactly_the_shape(shape):
    data = synthetic_dataset(shape, 4)
    assert (len(data.split.train), data.d_a, data.d_z) == (shape.rows, shape.attributes, 4)
    assert (int(data.seen.sum()), data.n_classes) == (shape.seen, shape.seen + shape.unseen)
    assert set(data.labels[data.split.train]) == set(np.flatnonzero(data.seen))


def test_the_shapes_are_those_of_the_papers_datasets():
    # Xian et al. 2018, table 1: seen + unseen classes, attributes, training rows.
    sizes = {shape.name: (shape.seen + shape.unseen, shape.unseen, shape.attributes, shape.rows) for shape in SHAPES}
    assert sizes == {
        "CUB": (200, 50, 312, 7057),
        "SUN": (717, 72, 102, 10320),
        "AwA1": (50, 10, 85, 19832),
        "AwA2": (50, 10, 85, 23527),
    }


def test_shapes_are_chosen_by_name_in_any_case():
    assert [shape.name for shape in chosen_shapes(["sun", "AWA2", "SUN"])] == ["SUN", "AwA2"]
    assert chosen_shapes([]) == list(SHAPES)
    with pytest.raises(ConfigError, match="did you mean 'CUB'"):
        chosen_shapes(["CUBS"])


def test_real_data_is_used_where_it_is_and_said(tmp_path):
    real = synthetic(SyntheticConfig(classes=9, unseen=2, rows=90, features=5, attributes=6))
    save_gbu(real, tmp_path / "AWA1", features="vit")
    data, what = find_dataset(replace(TINY, name="AwA1"), 16, tmp_path)
    assert (what, data.d_z, data.n_classes) == ("real, vit", 5, 9)
    data, what = find_dataset(TINY, 16, tmp_path)
    assert (what, data.d_z) == ("synthetic", 16)
    with pytest.raises(DataError, match="no such folder"):
        find_dataset(TINY, 16, tmp_path / "nowhere")


def test_the_products_of_a_step_are_those_that_autograd_computes():
    n_seen, batch, d_a, d_z = 7, 5, 3, 11
    config = ClassNormConfig(hidden=4, layers=3)
    layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4), torch.nn.Linear(4, 11))
    with torch.profiler.profile(record_shapes=True) as profile:
        prototypes = layers(torch.randn(n_seen, d_a))
        (torch.randn(batch, d_z) @ prototypes.T).sum().backward()
    operations = [event for event in profile.events() if event.name in ("aten::mm", "aten::addmm")]
    factors = [event.input_shapes[-2:] if event.name == "aten::mm" else event.input_shapes[1:3] for event in operations]
    computed = sorted(a * b * c for (a, b), (_, c) in factors)
    listed = [*embedder_products(config, d_a, d_z, n_seen), *logit_products(batch, d_z, n_seen)]
    assert sorted(a * b * c for a, b, c in listed) == computed


def test_a_training_is_measured_with_its_stages(training):
    for loop in ("ours", "textbook"):
        part = training[loop]
        assert list(part["step"]) == STAGES
        assert all(part["step"][stage]["median"] > 0 for stage in STAGES[:-1])
        assert part["training"]["low"] >= training["epochs"] * part["epoch"]["low"]
    assert training["ours"]["loss"] == pytest.approx(training["textbook"]["loss"], rel=1e-4)
    assert training["epochs"] == ClassNormConfig.epochs
    assert training["product_share"]["median"] > 0


def test_the_stages_of_a_step_add_up_to_the_epoch(tiny):
    training, _ = measure_training(tiny, 1, CPU)  # one repeat: medians are the measurements
    for loop in ("ours", "textbook"):
        steps = sum(stage["median"] for stage in training[loop]["step"].values())
        assert steps == pytest.approx(training[loop]["epoch"]["median"])  # 130 rows are a single step


def test_measures_are_found_with_their_names():
    found = dict(measures(document()))
    assert found["CUB ours epoch"] == Measure(2.0, 1.9, 2.1, "s")
    assert found["CUB textbook step other"] == Measure(0.006, 0.006, 0.006, "s")
    assert found["ausuc time"].median == 0.4
    assert len(found) == 2 * (3 + len(STAGES)) + 3 + 1


@pytest.mark.parametrize(
    ("old", "new", "unit", "ratio", "verdict"),
    [
        ((1.0, 0.9, 1.1), (2.0, 1.8, 2.2), "s", 2.0, "slower"),
        ((2.0, 1.8, 2.2), (1.0, 0.9, 1.1), "s", 0.5, "faster"),
        ((1.0, 0.5, 1.9), (2.0, 1.8, 2.2), "s", 2.0, ""),  # the ranges overlap
        ((100.0, 90.0, 110.0), (50.0, 40.0, 60.0), "rows/s", 0.5, "slower"),
        ((0.6, 0.6, 0.6), (0.9, 0.8, 1.0), "share", 1.5, "faster"),
        ((1.0, 1.0, 1.0), (1.01, 1.01, 1.01), "s", 1.01, ""),  # too little to notice
        ((1.0, 1.0, 1.0), (1.5, 1.5, 1.5), "GB", 1.5, "more"),
        ((3.0, 3.0, 3.0), (1.5, 1.5, 1.5), "GB", 0.5, "less"),
    ],
)
def test_a_change_counts_if_the_ranges_are_apart(old, new, unit, ratio, verdict):
    change = Change("x", Measure(*old, unit), Measure(*new, unit))
    assert (change.ratio, change.verdict) == (pytest.approx(ratio), verdict)


def test_a_comparison_names_what_differs_apart_from_speed():
    same = compare(document(), document())
    assert (same.differences, same.unmatched) == ([], [])
    assert not any(change.verdict for change in same.changes)
    new = document(epoch=4.0, threads=1, torch_version="3.0", data="real", start_up={"help": measured([0.1], "CPU s")})
    other = compare(document(), new)
    assert other.differences == ["threads 2 → 1", "torch 2.0 → 3.0", "CUB data synthetic → real"]
    assert other.unmatched == ["start up help"]
    assert [c.name for c in other.changes if c.verdict == "slower"] == [
        f"CUB {loop} {what}" for loop in ("ours", "textbook") for what in ("epoch", "training")
    ]


def test_a_document_survives_its_file(tmp_path):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(document()))
    assert read_bench(path) == document()


@pytest.mark.parametrize("content", ["", "[]", "{}", json.dumps({"format": FORMAT}), json.dumps({"format": "other"})])
def test_another_file_is_refused(tmp_path, content):
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(DataError, match=r"not a readable bench|give one that `classnorm bench` wrote"):
        read_bench(path)


def test_the_tables_hold_the_medians():
    training, stages, rest = bench_tables(document())
    assert [row[0].text for row in training.body] == ["CUB ours (100 × 16, synthetic)", "CUB textbook"]
    assert [cell.text for cell in training.body[0][1:]] == ["2 (1.9–2.1)", "100", "1", "50%", "0.5"]
    assert [cell.text for cell in stages.body[0][1:]] == ["1.00", "2.00", "3.00", "4.00", "5.00", "6.00", "21.00"]
    assert [row[0].text for row in rest.body] == ["CUB top 5", "ausuc time"]
    change = comparison_table(compare(document(), document(epoch=4.0))).body[0]
    assert [cell.text for cell in change] == ["CUB ours epoch", "2 (1.9–2.1)", "4 (3.9–4.1)", "s", "2.00", "slower"]


def test_the_plot_stacks_the_stages_of_both_loops():
    plot = step_plot(document())
    assert plot.ticks == ["CUB\nours", "CUB\ntextbook"]
    assert [series.model for series in plot.series] == STAGES
    assert [series.y for series in plot.series] == [[pytest.approx(i)] * 2 for i in range(1, 7)]


def test_without_stages_there_is_neither_their_table_nor_a_bar():
    bare = document()
    for loop in ("ours", "textbook"):
        bare["shapes"]["CUB"][loop] = {**bare["shapes"]["CUB"][loop], "step": {}}
    assert len(bench_tables(bare)) == 2
    assert step_plot(bare).ticks == []


@pytest.mark.parametrize(("load", "share", "word"), [(9.0, 1.0, "load average 9.0"), (None, 0.5, "50%")])
def test_a_busy_machine_is_noticed(load, share, word):
    assert word in busy_warning(load, share, 2)
    assert busy_warning(0.2, 0.95, 2) is None
    assert busy_warning(None, 0.95, 2) is None


def test_the_number_of_threads_is_put_back():
    before = torch.get_num_threads()
    with threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is measured on Linux alone")
def test_peak_memory_is_that_of_the_block():
    with peak_memory() as large:
        held = np.ones(50_000_000)  # 0.4 GB, which is released before the next block
        del held
    with peak_memory() as small:
        pass
    assert 0.3 < large[0] - small[0] < 0.5


def test_a_measure_is_plain_data():
    assert measured([2.0, 1.0, 4.0], "s") == asdict(Measure(2.0, 1.0, 4.0, "s"))
