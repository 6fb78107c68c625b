"""Class Normalization in plain PyTorch: equations 1, 2, 9 and 10 of the paper, trained on glyphs-light in seconds."""

import torch
import torch.nn.functional as F
from torch import nn

from classnorm.data import load
from classnorm.metrics import gzsl_scores

torch.manual_seed(0)
data = load("glyphs-light")
seen = torch.from_numpy(data.seen)
features = torch.from_numpy(data.features[data.split.train])
labels = (seen.cumsum(0) - 1)[data.labels[data.split.train]]  # positions among the seen classes
descriptors = F.normalize(torch.from_numpy(data.descriptors)) * data.d_a**0.5  # equation 2, times √d_a

# P(a) = V S(H(a)). Without S, the variance of the logits depends on the descriptors by E‖h‖² (equation 8).
d_h, gamma = 512, 5.0
hidden = nn.Linear(data.d_a, d_h)  # H, with a ReLU
V = nn.Linear(d_h, data.d_z)
nn.init.normal_(V.weight, std=(data.d_z * d_h) ** -0.5)  # equation 10: Var V = 1 / (d_z d_h)
nn.init.zeros_(V.bias)
mean, variance = torch.zeros(d_h), torch.ones(d_h)  # running statistics, over classes


def prototypes(of: torch.Tensor, training: bool) -> torch.Tensor:
    h = F.relu(hidden(of))  # [n_classes, d_h]
    if training:  # equation 9: S(h) = (h − μ) / σ, over the classes
        m, v = h.mean(dim=0), h.var(dim=0, correction=0)
        mean.lerp_(m.detach(), 0.1), variance.lerp_(v.detach(), 0.1)
    else:  # a prototype does not depend on the other classes
        m, v = mean, variance
    return F.relu(V((h - m) / (v + 1e-5).sqrt()))


def logits(z: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    return gamma**2 * F.normalize(z) @ F.normalize(p).T  # equation 1: γ² cos(z, p)


optimizer = torch.optim.Adam([*hidden.parameters(), *V.parameters()], lr=5e-4)
for _ in range(25):
    for rows in torch.randperm(len(features)).split(256):
        optimizer.zero_grad()
        F.cross_entropy(logits(features[rows], prototypes(descriptors[seen], True)), labels[rows]).backward()
        optimizer.step()
with torch.no_grad():  # all classes compete, also those without a training row
    scores = logits(torch.from_numpy(data.features[data.test_rows]), prototypes(descriptors, False))
result = gzsl_scores(scores, data.labels[data.test_rows], data.seen)
print(f"unseen {result.unseen:.1f}, seen {result.seen:.1f}, H {result.harmonic:.1f}")
assert result.harmonic > 30
