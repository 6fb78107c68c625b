"""Class standardization and proper variance in a custom model, trained with and without them."""

import torch
import torch.nn.functional as F
from torch import nn

from classnorm.data import load
from classnorm.metrics import gzsl_scores
from classnorm.nn import ClassStandardization, cosine_logits, proper_variance_


class Embedder(nn.Module):  # class descriptors → prototypes in feature space
    def __init__(self, d_a: int, d_z: int, hidden: int, class_norm: bool) -> None:
        super().__init__()
        self.first = nn.Linear(d_a, hidden)
        self.standardize = ClassStandardization(hidden) if class_norm else nn.Identity()  # over the class axis
        self.last = proper_variance_(nn.Linear(hidden, d_z)) if class_norm else nn.Linear(hidden, d_z)

    def forward(self, descriptors: torch.Tensor) -> torch.Tensor:
        return self.last(self.standardize(F.relu(self.first(descriptors)))).relu()


def harmonic_mean(class_norm: bool) -> float:
    torch.manual_seed(0)
    model = Embedder(data.d_a, data.d_z, 512, class_norm)
    optimizer = torch.optim.Adam(model.parameters(), 5e-4)  # learning rate, batch size and epochs as in `make run`
    for _ in range(25):
        for rows in torch.randperm(len(features)).split(256):  # prototypes of the seen classes only
            optimizer.zero_grad()
            F.cross_entropy(cosine_logits(features[rows], model(descriptors[seen])), labels[rows]).backward()
            optimizer.step()
    model.eval()  # running statistics: a prototype does not depend on the other classes
    with torch.no_grad():
        logits = cosine_logits(torch.from_numpy(data.features[data.test_rows]), model(descriptors))
    return gzsl_scores(logits, data.labels[data.test_rows], data.seen).harmonic


data = load("glyphs-light")
seen = torch.from_numpy(data.seen)
features = torch.from_numpy(data.features[data.split.train])
labels = (seen.cumsum(0) - 1)[data.labels[data.split.train]]  # positions among the seen classes
descriptors = F.normalize(torch.from_numpy(data.descriptors)) * data.d_a**0.5
plain, standardized = harmonic_mean(class_norm=False), harmonic_mean(class_norm=True)
print(f"H on glyphs-light: {plain:.1f} without class normalization, {standardized:.1f} with it")
assert standardized > 30
