"""The validation sequence: each experiment gets the settings that its own first tasks prefer."""

from dataclasses import replace

import numpy as np
import pytest

from classnorm.continual import STRATEGIES, Strategy, TaskStream, configure, run_stream
from classnorm.continual.strategies import GradientStrategy
from classnorm.errors import ConfigError, DataError
from classnorm.metrics import continual_scores
from classnorm.results.run_folder import Result, find_results
from classnorm.runs.engine import Engine
from classnorm.runs.streams import BIASES, ContinualExperiment
from classnorm.runs.validation_sequence import Grid, default_grid, paper_grid, validated


def test_each_experiment_gets_the_setting_that_its_own_first_tasks_prefer(experiment, tmp_path):
    plain = experiment(class_norm=False)
    rates = (1e-6, 0.05, 0.3)
    [chosen] = validated([plain], tmp_path, Engine(jobs=1), grid=Grid({"lr": rates}), validation_tasks=2)
    first = {
        lr: Result.read(tmp_path / replace(plain, config=replace(plain.config, lr=lr), part=(0, 2)).name)
        for lr in rates
    }
    best = max(first, key=lambda lr: first[lr].scores["mAUC"])
    assert chosen.settings == {"lr": best}
    assert chosen.edges == (("lr",) if best in (1e-6, 0.3) else ())
    assert chosen.experiment.part == (2, None)
    assert chosen.experiment.config == replace(plain.config, lr=best)
    assert chosen.experiment.chosen == {"by": "mAUC", "settings": ["lr"]}


def test_trials_are_not_among_the_runs_that_are_reported(experiment, tmp_path):
    start, grid = experiment(), Grid({"lr": (1e-3, 0.1)})
    [chosen] = validated([start], tmp_path / "validation", Engine(jobs=1), grid=grid, validation_tasks=2)
    with pytest.raises(DataError, match="no finished run but trials"):
        find_results([tmp_path])
    chosen.experiment.run(tmp_path / "seed-1")
    assert [result.folder for result in find_results([tmp_path])] == [tmp_path / "seed-1"]


def test_a_second_round_tries_the_neighbours_of_the_best_rate(experiment, tmp_path):
    grid = Grid({"lr": (1e-4, 1e-2, 1.0)}, refined=("lr",))
    [chosen] = validated([experiment()], tmp_path, Engine(jobs=1), grid=grid, validation_tasks=2)
    tried = sorted(Result.read(folder).document["config"]["lr"] for folder in tmp_path.iterdir())
    assert len(tried) == 5
    centre = next(lr for lr in grid.values["lr"] if any(np.isclose(t, lr * 10**0.5, rtol=0.01) for t in tried))
    assert any(np.isclose(t, centre / 10**0.5, rtol=0.01) for t in tried)
    assert chosen.settings["lr"] in tried


def test_a_choice_at_an_edge_says_so(experiment, tmp_path):
    grid = Grid({"lr": (1e-9, 1e-8, 1e-7, 0.05)})
    [chosen] = validated([experiment()], tmp_path, Engine(jobs=1), grid=grid, validation_tasks=2)
    assert chosen.edges == ("lr",)
    assert str(chosen) == "lr 0.05 (edge)"


def test_the_bias_is_chosen_by_mH_whatever_chooses_the_rest(data, tmp_path):
    stream = TaskStream.make(data, 5, 1)
    start = ContinualExperiment(data, "analytic", configure(stream, "analytic"), seed=1, tasks=5)
    [chosen] = validated([start], tmp_path, Engine(jobs=1), score="mAUC", validation_tasks=3)
    first = stream.part(0, 3)
    mh = {}
    for bias in np.round(BIASES, 4):
        config = replace(chosen.experiment.config, bias=float(bias))
        history = run_stream(first, "analytic", config, 1).history
        mh[bias] = continual_scores(history, first.test_labels, first.tasks).mH
    assert mh[chosen.best_bias] == pytest.approx(max(mh.values()), abs=1e-3)
    assert chosen.experiment.config.bias == chosen.best_bias == chosen.settings["bias"]
    assert set(chosen.settings) == {"descriptor_power", "error_share", "ridge", "length", "bias"}


def test_a_fixed_setting_is_not_chosen():
    grid = default_grid("analytic").without({"bias"})
    assert grid.names == ("descriptor_power", "error_share", "ridge", "length") and not grid.bias
    grid = default_grid("ewc").without({"lr"})
    assert (grid.names, grid.refined) == (("penalty",), ())


def test_the_grid_of_the_paper_is_its_table():
    assert len(paper_grid("sequential").points()) == 16
    assert len(paper_grid("sequential", encoder=True).points()) == 32
    assert paper_grid("agem", encoder=True).values == {
        "init_distribution": ("uniform", "normal"),
        "grad_clip": (10.0, 100.0),
        "lr": (1e-3, 5e-3),
        "momentum": (0.9, 0.95),
        "encoder_lr": (1e-3, 5e-3),
    }
    assert "penalty" in paper_grid("mas").names
    with pytest.raises(ConfigError, match="not in the paper"):
        paper_grid("analytic")


def test_finished_trials_are_not_run_again(experiment, tmp_path):
    grid = Grid({"lr": (1e-3, 0.1)})
    first = validated([experiment()], tmp_path, Engine(jobs=1), grid=grid, validation_tasks=2)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}
    assert validated([experiment()], tmp_path, Engine(jobs=1), grid=grid, validation_tasks=2) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")} == stamps


@pytest.mark.parametrize("tasks", [1, 4])
def test_too_few_tasks_to_choose_or_to_report_are_refused(experiment, tmp_path, tasks):
    with pytest.raises(ConfigError, match="at least 2 must choose"):
        validated([experiment()], tmp_path, Engine(jobs=1), validation_tasks=tasks)


def test_only_the_penalised_strategies_search_for_a_penalty(data):
    names = ("sequential", "ewc", "mas", "agem")
    assert {name for name in names if "penalty" in default_grid(name).names} == {"ewc", "mas"}


def test_a_strategy_from_a_plug_in_has_the_grid_of_its_class(monkeypatch):
    class Mine(GradientStrategy):
        pass

    class Wider(GradientStrategy):
        grid = GradientStrategy.grid.extended(momentum=(0.5, 0.9))

    monkeypatch.setitem(STRATEGIES, "mine", Mine)
    monkeypatch.setitem(STRATEGIES, "wider", Wider)
    assert default_grid("mine") == default_grid("sequential")
    assert (default_grid("wider").names, default_grid("wider").refined) == (("lr", "momentum"), ("lr",))


def test_a_strategy_without_a_grid_is_refused(experiment, tmp_path, monkeypatch):
    class Bare(Strategy):
        Config = STRATEGIES["analytic"].Config

    monkeypatch.setitem(STRATEGIES, "bare", Bare)
    start = replace(experiment(), strategy="bare")
    with pytest.raises(ConfigError, match="strategy bare has no validation grid"):
        validated([start], tmp_path, Engine(jobs=1), validation_tasks=2)
    with pytest.raises(ConfigError, match="strategy bare is not in the paper"):
        paper_grid("bare")
