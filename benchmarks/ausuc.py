"""Time of AUSUC for 20,000 test images of 1,000 classes in single precision; the best of 5 must be below 1 s.

Run ``python benchmarks/ausuc.py``; it exits with code 1 if it takes longer.
"""

from __future__ import annotations

import sys
import timeit

import numpy as np

from classnorm.metrics import ausuc

N_SAMPLES, N_CLASSES, N_SEEN = 20_000, 1_000, 750
REPEATS = 5
LIMIT_SECONDS = 1.0


def main() -> int:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, N_CLASSES, N_SAMPLES)
    seen_mask = np.arange(N_CLASSES) < N_SEEN
    logits = rng.standard_normal((N_SAMPLES, N_CLASSES), dtype=np.float32)
    logits[np.arange(N_SAMPLES), labels] += 3.0
    area = ausuc(logits, labels, seen_mask)
    seconds = min(timeit.repeat(lambda: ausuc(logits, labels, seen_mask), number=1, repeat=REPEATS))
    print(f"AUSUC {area:.2f} of {N_SAMPLES:,} samples × {N_CLASSES:,} classes: {seconds:.3f} s, best of {REPEATS}")
    return 0 if seconds < LIMIT_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
