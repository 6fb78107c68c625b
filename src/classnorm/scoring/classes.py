"""New classes from their descriptors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from classnorm.data.attribute_names import attribute_order
from classnorm.data.checks import check_descriptors
from classnorm.data.descriptions import respelled
from classnorm.errors import DataError

if TYPE_CHECKING:
    from classnorm.scoring.scorer import Scorer


def described(
    scorer: Scorer, descriptors: Mapping[str, npt.ArrayLike], where: str, columns: Sequence[str] | None
) -> Scorer:
    """The scorer with more unseen classes; see `Scorer.add_classes`."""
    if not descriptors:
        return scorer
    order = None
    if columns and scorer.attribute_names:
        order = attribute_order(columns, scorer.attribute_names, where)
    names, vectors = list(descriptors), [np.ravel(np.asarray(vector)) for vector in descriptors.values()]
    for name, vector in zip(names, vectors, strict=True):
        if len(vector) != scorer.d_a:
            raise DataError(
                f"{where}: the descriptor of class {name!r} has {len(vector)} dimensions; "
                f"the model was trained on {scorer.d_a}"
            )
    table = check_descriptors(vectors, names, where)
    table = table if order is None else table[:, order]
    position = {name: i for i, name in enumerate(scorer.class_names)}
    given, names = names, respelled(names, scorer.class_names)
    new, known = [], np.array(scorer.descriptors)
    for i, name in enumerate(names):
        if name not in position:
            new.append(i)
        elif name in scorer.undescribed:
            known[position[name]] = table[i]
        elif not np.allclose(table[i], scorer.descriptors[position[name]], rtol=1e-4, atol=1e-6):
            spelling = f" (as {name!r})" if name != given[i] else ""
            raise DataError(
                f"{where}: class {given[i]!r} is known to the model{spelling} with another descriptor; leave it "
                "out or, if it is another class, rename it"
            )
    if not new and not scorer.undescribed.intersection(names):
        return scorer
    return replace(
        scorer,
        class_names=(*scorer.class_names, *(names[i] for i in new)),
        descriptors=np.concatenate([known, table[new]]),
        seen=np.concatenate([scorer.seen, np.zeros(len(new), dtype=bool)]),
        undescribed=scorer.undescribed.difference(names),
    )
