"""Hard streams: two strategies when rows come late, classes return, tasks are unequal or attributes appear late.

python examples/hard_streams.py [DATASET FEATURES IMAGE_SPLIT SEEDS] prints the scores and writes hard-streams.png.
"""

import sys
from dataclasses import replace
from pathlib import Path

from classnorm.continual import StreamOptions, TaskStream, configure, read_image_split
from classnorm.data import load
from classnorm.report.draw import COLORS, Style, draw, png
from classnorm.report.stream_results import task_curve
from classnorm.results.artifact import Plot
from classnorm.results.numbers import mean_text
from classnorm.runs.streams import ContinualExperiment

source, features, split, seeds = sys.argv[1:5] or ("synthetic:classes=40,unseen=10,rows=800", "", "", "1")
data = load(source, features=features)
data = replace(data, is_train=read_image_split(Path(split), data.image_files)) if split else data
streams = {
    "plain": StreamOptions(),
    "blurry 0.5": StreamOptions(blurry=0.5),
    "returning 0.5": StreamOptions(returning=0.5),
    "imbalance 10": StreamOptions(imbalance=10.0),
    "late attributes 0.5": StreamOptions(late_attributes=0.5),
    "8 rows at once": StreamOptions(rows_at_once=8),
}
settings = {"analytic": {"descriptor_power": 0.6, "error_share": 0.5, "bias": 0.04}, "sequential": {"lr": 0.003}}
series, styles, joint = [], {}, {}
for strategy, name in [(strategy, name) for strategy in settings for name in streams]:
    results = []
    for seed in range(int(seeds)):
        stream = TaskStream.make(data, seed=seed, arrivals=streams[name])
        config = configure(stream, strategy, **settings[strategy])
        experiment = ContinualExperiment(data, strategy, config, seed, arrivals=streams[name])
        folder = Path("runs", "hard-streams", f"{strategy}-{name.replace(' ', '-')}", f"seed-{seed}")
        results.append(experiment.run(folder))
    cells = [mean_text([r.document["scores"][score] for r in results]) for score in ("mH", "mAUC", "mJA")]
    cells.append(mean_text([r.document["scores"]["forgetting"] for r in results], 2))
    print(f"| `{strategy}` | {name} | {' | '.join(cells)} |")
    joint[strategy, name] = results[0].document["per_task"][-1]["joint"]
    label = f"{strategy}, {name}"
    styles[label] = Style(COLORS[list(streams).index(name)], "-" if strategy == "analytic" else "--", "")
    series.append(task_curve(label, label, results, "ausuc"))
plot = Plot("hard-streams", "lines", f"{data.name}: AUSUC on hard streams", "after task", "AUSUC (%)", series)
Path("hard-streams.png").write_bytes(png(draw(plot, styles)))
assert abs(joint["analytic", "plain"] - joint["analytic", "blurry 0.5"]) < 1.0  # in the end it has seen the same rows
