"""Arrays in files."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from classnorm.io.arrays import read_npy, write_npy


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.float16).reshape(2, 3)),
        np.arange(24, dtype=np.uint8).reshape(2, 3, 4)[:, ::2],
        np.zeros((0, 5), dtype=np.int64),
    ],
)
def test_numpy_reads_what_is_written(tmp_path, array):
    write_npy(tmp_path / "a.npy", array)
    loaded = np.load(tmp_path / "a.npy")
    assert loaded.dtype == array.dtype
    np.testing.assert_array_equal(loaded, array)
    np.testing.assert_array_equal(read_npy(tmp_path / "a.npy"), array)


def test_a_disk_that_is_full_is_noticed_however_small_the_array(tmp_path):
    """Files of more than 1000 bytes fail, as on a full disk."""
    pytest.importorskip("resource")
    script = (
        "import resource, sys\nimport numpy as np\nfrom pathlib import Path\n"
        "from classnorm.io.arrays import write_npy\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))\n"
        "write_npy(Path(sys.argv[1]), np.ones(300, np.float32))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "a.npy")], capture_output=True, text=True)
    assert "OSError" in done.stderr and "File too large" in done.stderr
    assert Path(tmp_path / "a.npy").stat().st_size <= 1000
