"""The GBU benchmarks (Xian et al.), recognised by their class names."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

# SHA-256 (first 16 digits) of the sorted class names. AwA1 and AwA2 have the same classes but different rows.
_BENCHMARKS = {
    "839cf39f663841e7": "CUB",
    "97eaea9ca5eba9a8": "SUN",
    "dd61963d915d9176": "AWA2",
    "6dfa98a106b8e62a": "APY",
}
_AWA1_ROWS = 30475


def recognise(class_names: Sequence[str], n_rows: int) -> str | None:
    """Return the GBU benchmark with these class names (CUB, SUN, AWA1, AWA2 or APY), or None."""
    digest = hashlib.sha256("\n".join(sorted(class_names)).encode()).hexdigest()[:16]
    benchmark = _BENCHMARKS.get(digest)
    return "AWA1" if benchmark == "AWA2" and n_rows == _AWA1_ROWS else benchmark
