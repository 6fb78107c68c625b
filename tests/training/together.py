"""What test_distributed.py starts with `torchrun`: trains in all processes together, and in one of them alone.

Prints how far the two are apart, as JSON.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from classnorm.data import SyntheticConfig, load, synthesize, synthetic
from classnorm.methods import METHODS, FitJob, resolve
from classnorm.scoring import fit_calibrated
from classnorm.training import SINGLE_PROCESS, FitContext, TrainingConfig, process_group, train

CPU = torch.device("cpu")
LOOPS = {  # of 301 rows; the last batch of 20 or 100 has a single row, which only one process can have
    "batches of 20": {"batch_size": 20},
    "batches of 100": {"batch_size": 100, "optimizer": "sgd"},
    "batches of 7": {"batch_size": 7},
    "one row": {"batch_size": 1},
    "clipped": {"batch_size": 64, "grad_clip": 0.05},
}


def far(first, second):
    return max(
        float((a.detach().double() - b.detach().double()).abs().max()) for a, b in zip(first, second, strict=True)
    )


def loop(processes, settings):
    """A linear classifier in float64, where rounding cannot hide an error."""
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(301, 6, generator=generator, dtype=torch.float64)
    labels = (features @ torch.randn(6, 4, generator=generator, dtype=torch.float64)).argmax(dim=1)
    torch.manual_seed(0)
    model = nn.Linear(6, 4).double()
    config = TrainingConfig(epochs=2, lr=0.05, **settings)
    context = FitContext(CPU, processes=processes)
    history = train(model, lambda x, y: F.cross_entropy(model(x), y), features, labels, config, context=context)
    return list(model.parameters()), [record["loss"] for record in history]


def fits(folder):
    """Every method that can be divided, with a calibration by validation.

    With Adam, rounding decides about the steps of weights whose gradient is 0, like those of a bias before a
    standardization. Gradient descent keeps small differences small.
    """
    small = synthetic(SyntheticConfig(classes=20, unseen=5, rows=700, features=16, attributes=12, noise=0.4))
    large = synthetic(SyntheticConfig(classes=20, unseen=5, rows=9000, features=16, attributes=12, noise=0.4))
    recipes = [(name, "reference") for name, method in METHODS.items() if method.parallel]
    for name, recipe in [*recipes, ("classnorm", "best"), ("classnorm", "paper"), ("kernel", "closed-form")]:
        data = large if name == "kernel" else small
        method, config = resolve(data, name, recipe, calibration="validation:bias", validation_splits=2)
        if recipe != "closed-form":
            config = config.replace(epochs=1, batch_size=100, optimizer="sgd", lr=0.01)
        if hasattr(config, "hidden"):
            config = config.replace(hidden=16)
        yield f"{name} {recipe}", FitJob(data, method, config)
        if recipe == "reference" and name in ("classnorm", "kernel"):
            yield f"{name} from files", FitJob(load(folder), method, config)


def compared(together, alone):
    data, scorers = together[0].dataset, [fit.scorer for _, fit in (together, alone)]
    scores = [scorer.scores(data.features[data.test_rows]) for scorer in scorers]
    return {
        "weights": far(*(scorer.model.state_dict().values() for scorer in scorers)),
        "scores": float(abs(scores[0] - scores[1]).max() / abs(scores[1]).max()),
        "harmonic": [fit.validation["harmonic"] for _, fit in (together, alone)],
    }


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with process_group("cpu") as (processes, _):
        if processes.is_first:
            synthesize(SyntheticConfig(classes=20, unseen=5, rows=5000, features=16, attributes=12), folder)
        processes.from_first()  # the other waits for the files
        last = processes.rank == processes.count - 1
        loops = {name: loop(processes, settings) for name, settings in LOOPS.items()}
        trained = {name: (job, fit_calibrated(job, FitContext(CPU, processes=processes))) for name, job in fits(folder)}
        told = processes.from_first(processes.rank + 7)
        squares = processes.concatenated(np.arange(5)[processes.part(5)] ** 2)
        odd = processes.concatenated(np.arange(5)[processes.part(5)] % 2 == 1)
    if last:
        found = {"loops": {}, "methods": {}, "told": told, "squares": squares.tolist(), "odd": odd.tolist()}
        for name, (weights, losses) in loops.items():
            expected, expected_losses = loop(SINGLE_PROCESS, LOOPS[name])
            found["loops"][name] = [far(weights, expected), far(*map(torch.tensor, ([losses], [expected_losses])))]
        for name, (job, fit) in trained.items():
            found["methods"][name] = compared((job, fit), (job, fit_calibrated(job, FitContext(CPU))))
        json.dump(found, sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # PyTorch has been seen to abort a process at the end of its interpreter, after all work was done
