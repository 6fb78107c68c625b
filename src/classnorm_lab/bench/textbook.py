"""The plain implementation that speed is judged against: the recipe `reference` as a PyTorch tutorial would write it.

A DataLoader over samples, features normalised in the loop, autograd, Adam with its defaults. The model, the initial
weights, the batches and hence the loss are those of the method `classnorm`; only the loop differs.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from classnorm.data import ZeroShotDataset
from classnorm.methods.classnorm import ClassNormModel
from classnorm.methods.method import Fitted
from classnorm.methods.rows import TrainingRows
from classnorm.methods.settings.classnorm import ClassNormConfig
from classnorm.nn import cosine_logits
from classnorm.training import FitContext, History, learning_rate, seeded, stage


def fit(dataset: ZeroShotDataset, config: ClassNormConfig, seed: int, context: FitContext) -> Fitted:
    """Train on the training rows. Supports what the recipe `reference` uses, without progress and checkpoints."""
    rows = TrainingRows.of(dataset, torch.device("cpu"))
    model = ClassNormModel(config, dataset.d_a, dataset.d_z, seed, rows.descriptors, len(rows.descriptors))
    samples = TensorDataset(rows.features, rows.labels)
    generator = torch.Generator()
    loader = DataLoader(samples, config.batch_size, sampler=RandomSampler(samples, generator=generator))
    descriptors = rows.descriptors.to(context.device)
    model.to(context.device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
    total_steps = config.epochs * len(loader)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate(config, step, total_steps) / config.lr
    )
    history: History = []
    for epoch in range(config.epochs):
        seeded(seed, epoch, generator=generator)
        started, rate = time.perf_counter(), float(optimizer.param_groups[0]["lr"])
        losses = _epoch(model, descriptors, loader, optimizer, scheduler)
        seconds = time.perf_counter() - started
        history.append({"epoch": epoch + 1, "loss": sum(losses) / len(losses), "lr": rate, "seconds": seconds})
    return Fitted(model.eval(), history)


def _epoch(
    model: ClassNormModel,
    descriptors: Tensor,
    loader: DataLoader[tuple[Tensor, ...]],
    optimizer: torch.optim.Optimizer,
    scheduler: torch.optim.lr_scheduler.LRScheduler,
) -> list[float]:
    """The loss of every step."""
    criterion = nn.CrossEntropyLoss()
    losses = []
    batches = iter(loader)
    for _ in range(len(loader)):
        with stage("gather"):
            features, labels = (part.to(descriptors.device) for part in next(batches))
        with stage("embedder"):
            prototypes = model.embedder(descriptors)
        with stage("logits"):
            loss = criterion(cosine_logits(features, prototypes, model.gamma), labels)
        with stage("backward"):
            optimizer.zero_grad()
            loss.backward()
        with stage("optimizer"):
            optimizer.step()
            scheduler.step()
        losses.append(loss.item())
    return losses
