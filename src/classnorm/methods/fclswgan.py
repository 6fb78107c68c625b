"""f-CLSWGAN: a softmax classifier trained on generated features of the unseen classes.

Xian, Lorenz, Schiele, Akata: Feature generating networks for zero-shot learning, CVPR 2018. A generator G and a critic
D, both conditioned on the class descriptor a, play the game (their equations 2, 4 and 5)

    min_G max_D  E[D(x, a)] − E[D(x̃, a)] − λ E[(‖∇_x̂ D(x̂, a)‖ − 1)²] + β L_CLS,    x̃ = G(z, a)

where x̂ lies between a real and a generated feature, and L_CLS is the cross-entropy of generated features under a
classifier pretrained on real ones.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.methods.parts.generation import Batch, Game, GameRows, GenerativeModel, build, generative_fit
from classnorm.methods.parts.softmax_rows import train_softmax
from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Fitted, TrainingRows, ZeroShotModel
from classnorm.methods.parts.known import known_classes
from classnorm.methods.settings.fclswgan import METHOD, FCLSWGANConfig

__all__ = ["METHOD", "ClassifiedGame", "FCLSWGANConfig", "build", "fit"]


class ClassifiedGame(Game):
    """The game with a classification loss, by a softmax classifier of the seen classes trained on real features."""

    config: FCLSWGANConfig

    def __init__(self, model: GenerativeModel, rows: GameRows, config: FCLSWGANConfig, seed: int) -> None:
        super().__init__(model, rows, config, seed)
        self.classifier = nn.Linear(rows.features.shape[1], len(rows.seen)).to(rows.features.device)
        train_softmax(self.classifier, rows.features, rows.labels, config, seed)
        self.classifier.requires_grad_(False)

    def generator_loss(self, batch: Batch) -> Tensor:
        return self.generated_loss(self.model.generate(batch.noise(), batch.descriptors), batch)

    def generated_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        """The loss of features [b, d_z] generated for a batch."""
        adversarial = self.adversarial_loss(fake, batch.descriptors)
        return adversarial + self.config.classification_weight * F.cross_entropy(self.classifier(fake), batch.labels)


fit = generative_fit(GenerativeModel, ClassifiedGame)
class Critic(nn.Module):
    """Feature and descriptor → score, with one hidden layer.

    The first layer on their concatenation is written as a sum: the descriptor part is shared by real and generated
    features, and the gradient penalty needs the feature part alone.
    """

    def __init__(self, d_a: int, d_z: int, hidden: int) -> None:
        super().__init__()
        self.feature = nn.Linear(d_z, hidden)
        self.descriptor = nn.Linear(d_a, hidden, bias=False)
        self.score = nn.Linear(hidden, 1)

    def forward(self, features: Tensor, descriptors: Tensor) -> Tensor:
        """[b, d_z], [b, d_a] → [b]."""
        hidden = F.leaky_relu(self.feature(features) + self.descriptor(descriptors), _SLOPE)
        scores: Tensor = self.score(hidden)
        return scores.squeeze(1)


def critic_loss(
    critic: Critic, real: Tensor, fake: Tensor, descriptors: Tensor, mix: Tensor, penalty_weight: float
) -> Tensor:
    """The critic's loss: mean score of generated minus that of real features, plus the gradient penalty.

    With hidden units h = W_x x + W_a a + b and scores v·φ(h), the gradient with respect to x is W_xᵀ(φ′(h) ⊙ v). As φ′
    is piecewise constant, the penalty needs no double backward pass. As h is linear in x, the hidden units of a point
    between two features interpolate theirs.

    Args:
        real, fake: [b, d_z], of the same classes.
        descriptors: [b, d_a].
        mix: [b, 1] in [0, 1], the share of the real feature in the point of the gradient.
    """
    from_descriptors = critic.descriptor(descriptors)
    hidden_real, hidden_fake = critic.feature(torch.cat([real, fake])).chunk(2)
    hidden_real, hidden_fake = hidden_real + from_descriptors, hidden_fake + from_descriptors  # [b, hidden]
    v = critic.score.weight  # [1, hidden]
    difference = F.leaky_relu(hidden_fake, _SLOPE).mean(dim=0) - F.leaky_relu(hidden_real, _SLOPE).mean(dim=0)
    with torch.no_grad():
        slope = torch.lerp(hidden_fake, hidden_real, mix).gt(0).to(v.dtype).mul_(1.0 - _SLOPE).add_(_SLOPE)
    gradient = (slope * v) @ critic.feature.weight  # [b, d_z]
    penalty = (gradient.norm(dim=1) - 1.0).square().mean()
    loss: Tensor = difference @ v.squeeze(0) + penalty_weight * penalty
    return loss


class FCLSWGANModel(ZeroShotModel):
    """The final softmax classifier, and the generator for classes added later.

    Classes known at training time have trained rows. A row for a new class is trained on demand, with the other rows
    fixed, to separate generated features of the class from those of the known classes. The noise is fixed, so the row
    depends only on the descriptor.
    """

    low: Tensor  # [d_z]
    span: Tensor  # [d_z]
    descriptors: Tensor  # [n_known, d_a], raw
    counts: Tensor  # [n_known], training rows of the classifier per class

    def __init__(self, config: FCLSWGANConfig, d_a: int, d_z: int, n_known: int) -> None:
        super().__init__()
        self.config = config
        self.attributes = AttributeNormalization(d_a, config.attribute_normalization)
        self.generator = Generator(d_a, d_z, config.hidden, config.final_relu)
        self.classifier = nn.Linear(d_z, n_known)
        self.register_buffer("low", torch.zeros(d_z))
        self.register_buffer("span", torch.ones(d_z))
        self.register_buffer("descriptors", torch.zeros(n_known, d_a))
        self.register_buffer("counts", torch.zeros(n_known))
        self._last: tuple[Tensor, Tensor] | None = None  # descriptors and prototypes of the last call

    def scale(self, features: Tensor) -> Tensor:
        """Scale each dimension so that the training features fill [0, 1]."""
        return (features - self.low) / self.span

    @torch.no_grad()
    def fit_scale(self, features: Tensor) -> None:
        """Compute the range of each dimension over the training rows; constant dimensions are only shifted."""
        self.low.copy_(features.amin(dim=0))
        span = features.amax(dim=0) - self.low
        self.span.copy_(torch.where(span > 0, span, 1.0))

    def synthesize(self, descriptors: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """[k, d_a] → [k, n, d_z], scaled features, with the same noise for every class."""
        noise = torch.randn(n, descriptors.shape[1], generator=generator).to(descriptors.device)
        normalized = self.attributes(descriptors)
        with torch.no_grad():
            return torch.stack([self.generator(noise, a.expand(n, -1)) for a in normalized])

    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        return F.linear(self.scale(features), prototypes[:, :-1], prototypes[:, -1])

    def prototypes(self, descriptors: Tensor) -> Tensor:
        """[n_classes, d_a] → [n_classes, d_z + 1], weights and bias of each class."""
        last = self._last
        if last and last[0].device == descriptors.device and torch.equal(last[0], descriptors):
            return last[1].clone()
        index = known_classes(descriptors, self.descriptors)
        new = index < 0
        rows = torch.cat([self.classifier.weight, self.classifier.bias[:, None]], dim=1).detach()[index]
        if new.any():
            rows[new] = self._new_rows(descriptors[new])
        self._last = (descriptors.clone(), rows)
        return rows.clone()

    def _new_rows(self, descriptors: Tensor) -> Tensor:
        """[k, d_a] → [k, d_z + 1]: minimise the loss of the final classifier over the row of one more class.

        With the other rows fixed, this is a logistic regression whose offset is the log-sum-exp of their logits. Class
        weights are those of the final classifier, and the learning rate lets the row move as far as the rows did there.
        """
        config, n_known = self.config, len(self.descriptors)
        n = max(1, min(_CONTRAST_PER_CLASS, _CONTRAST_ROWS // n_known))
        steps = config.classifier_epochs * math.ceil(float(self.counts.sum()) / config.batch_size)
        with torch.inference_mode(False), torch.enable_grad():
            positives = self.synthesize(descriptors.clone(), _CONTRAST_PER_CLASS, torch.Generator().manual_seed(0))
            negatives = self.synthesize(self.descriptors, n, torch.Generator().manual_seed(1)).flatten(0, 1)
            weights = (self.counts / (n * config.synthesized)).repeat_interleave(n)[:, None]  # [n_negatives, 1]
            with torch.no_grad():
                positive_offset = self.classifier(positives).logsumexp(dim=2)  # [k, n_positives]
                negative_offset = self.classifier(negatives).logsumexp(dim=1, keepdim=True)  # [n_negatives, 1]
            weight = positives.new_zeros(len(positives), positives.shape[2], requires_grad=True)
            bias = positives.new_zeros(len(positives), requires_grad=True)
            optimizer = torch.optim.Adam([weight, bias], config.classifier_lr * steps / _NEW_CLASS_STEPS)
            for _ in range(_NEW_CLASS_STEPS):
                hits = torch.einsum("knd,kd->kn", positives, weight) + bias[:, None] - positive_offset
                misses = negatives @ weight.T + bias - negative_offset
                # A sum over the new classes, so that their rows do not depend on each other.
                loss = F.softplus(-hits).mean(dim=1).sum() + (weights * F.softplus(misses)).sum()
                gradient_step(optimizer, loss)
        return torch.cat([weight.detach(), bias.detach()[:, None]], dim=1)


def build(config: FCLSWGANConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> FCLSWGANModel:
    """A model to load weights into."""
    return FCLSWGANModel(config, d_a, d_z, len(weights["descriptors"]))


def fit(dataset: ZeroShotDataset, config: FCLSWGANConfig, seed: int, context: FitContext) -> Fitted:
    """Train the generator on the training rows, then the classifier on real and generated rows."""
    config.check()
    rows = TrainingRows.of(dataset, context.device)
    model = FCLSWGANModel(config, dataset.d_a, dataset.d_z, dataset.n_classes).to(context.device)
    model.fit_scale(rows.features)
    model.attributes.fit(rows.descriptors)
    model.descriptors.copy_(torch.from_numpy(np.array(dataset.descriptors)))
    features = model.scale(rows.features)
    history = _Game(model, features, rows, config, seed).play(context)

    seen = torch.from_numpy(dataset.seen).to(context.device)
    unseen = (~seen).nonzero().squeeze(1)
    labels = seen.nonzero().squeeze(1)[rows.labels]
    if len(unseen):
        noise = seeded(seed, config.epochs + 1)
        generated = model.synthesize(model.descriptors[unseen], config.synthesized, noise).flatten(0, 1)
        features = torch.cat([features, generated])
        labels = torch.cat([labels, unseen.repeat_interleave(config.synthesized)])
    _train_classifier(model.classifier, features, labels, config, seed)
    model.counts.copy_(labels.bincount(minlength=dataset.n_classes))
    return Fitted(model.eval(), history)


def _train_classifier(
    classifier: nn.Linear, features: Tensor, labels: Tensor, config: FCLSWGANConfig, seed: int
) -> None:
    """Softmax regression, starting from zero."""
    nn.init.zeros_(classifier.weight)
    nn.init.zeros_(classifier.bias)
    training = TrainingConfig(
        epochs=config.classifier_epochs,
        batch_size=config.batch_size,
        lr=config.classifier_lr,
        weight_decay=0.0,
        schedule="constant",
    )

    def loss(rows: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(classifier(rows), targets)

    train(classifier, loss, features, labels, training, seed=seed, hint="lower `classifier_lr`")


class _Game:
    """The training of the generator against the critic."""

    def __init__(
        self, model: FCLSWGANModel, features: Tensor, rows: TrainingRows, config: FCLSWGANConfig, seed: int
    ) -> None:
        self.config, self.seed = config, seed
        self.features, self.labels = features, rows.labels
        self.descriptors = model.attributes(rows.descriptors)  # [n_seen, d_a]
        d_a, d_z = self.descriptors.shape[1], features.shape[1]
        self.generator = model.generator
        self.critic = Critic(d_a, d_z, config.hidden).to(features.device)
        self.networks = nn.ModuleDict({"generator": self.generator, "critic": self.critic})
        self._initialize(seeded(seed, 0))  # stages 1, 2, … are the epochs, and the last one the generated features
        self.judge = nn.Linear(d_z, len(self.descriptors)).to(features.device)
        if config.classification_weight:
            _train_classifier(self.judge, features, rows.labels, config, seed)
        self.judge.requires_grad_(False)

    @torch.no_grad()
    def _initialize(self, draws: torch.Generator) -> None:
        """Draw weights from N(0, 0.02²) and set biases to zero."""
        for parameter in self.networks.parameters():
            if parameter.ndim == 1:
                parameter.zero_()
            else:
                parameter.copy_(_WEIGHT_STD * torch.randn(parameter.shape, generator=draws))

    def play(self, context: FitContext) -> History:
        """Train for all epochs; the history records the critic's loss."""
        fused = self.features.device.type in ("cpu", "cuda")
        # One optimizer for both: it skips parameters without a gradient.
        optimizer = torch.optim.Adam(self.networks.parameters(), self.config.lr, _BETAS, fused=fused)
        epoch = functools.partial(self._epoch, optimizer)
        return run_epochs(epoch, self.config.epochs, self.networks, optimizer, context, largest_rise=math.inf)

    def _epoch(self, optimizer: torch.optim.Optimizer, epoch: int) -> EpochLosses:
        """The critic's losses. Random draws depend only on seed and epoch, so that training can resume."""
        config = self.config
        draws = seeded(self.seed, epoch + 1)
        losses = []
        for step, rows in enumerate(self._batches(draws)):
            real, labels = self.features[rows], self.labels[rows]
            descriptors = self.descriptors[labels]
            with torch.no_grad():
                fake = self._generate(descriptors, draws)
            mix = torch.rand(len(real), 1, generator=draws).to(real.device)
            loss = critic_loss(self.critic, real, fake, descriptors, mix, config.gradient_penalty)
            gradient_step(optimizer, loss)
            losses.append(loss.detach())
            if (step + 1) % config.critic_steps == 0:
                self.critic.requires_grad_(False)
                gradient_step(optimizer, self._generator_loss(descriptors, labels, draws))
                self.critic.requires_grad_(True)
        return EpochLosses(torch.stack(losses), config.lr)

    def _batches(self, draws: torch.Generator) -> Iterator[Tensor]:
        """Row indices: `critic_steps` shuffled passes."""
        for _ in range(self.config.critic_steps):
            order = torch.randperm(len(self.labels), generator=draws).to(self.labels.device)
            yield from torch.split(order, self.config.batch_size)

    def _generate(self, descriptors: Tensor, draws: torch.Generator) -> Tensor:
        noise = torch.randn(descriptors.shape, generator=draws).to(descriptors.device)
        features: Tensor = self.generator(noise, descriptors)
        return features

    def _generator_loss(self, descriptors: Tensor, labels: Tensor, draws: torch.Generator) -> Tensor:
        fake = self._generate(descriptors, draws)
        loss: Tensor = -self.critic(fake, descriptors).mean()
        if self.config.classification_weight:
            loss = loss + self.config.classification_weight * F.cross_entropy(self.judge(fake), labels)
        return loss
