"""Counters of several workers, as Prometheus reads them."""

import os
import subprocess
import sys

from classnorm.serve.counters import Counters


def values(counters):
    lines = [line for line in counters.text().splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_counters_of_all_workers_add_up_and_gauges_of_the_dead_do_not(tmp_path):
    script = (
        "from pathlib import Path; from classnorm.serve.counters import Counters\n"
        f"c = Counters(Path({str(tmp_path)!r})); c.request('/predict', 200, 0.003); c.set('in_flight', 7)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    counters = Counters(tmp_path)
    counters.request("/predict", 200, 0.3)
    counters.request("/predict", 404, 0.3)
    counters.request("/page/x.js", 200, 0.3)
    counters.request("/../etc", 418, 0.3)
    counters.set("in_flight", 2)
    found = values(counters)
    assert found['classnorm_requests_total{path="/predict",status="200"}'] == 2
    assert found['classnorm_requests_total{path="/predict",status="404"}'] == 1
    assert found['classnorm_requests_total{path="/page",status="200"}'] == 1
    assert found['classnorm_requests_total{path="other",status="other"}'] == 1
    assert found["classnorm_in_flight"] == 2
    buckets = [
        found[f'classnorm_request_seconds_bucket{{path="/predict",le="{le}"}}']
        for le in ("0.0025", "0.005", "0.25", "0.5", "+Inf")
    ]
    assert buckets == [0, 1, 1, 3, 3]
    assert found['classnorm_request_seconds_count{path="/predict"}'] == 3
    assert len(list(tmp_path.iterdir())) == 2 and (tmp_path / f"{os.getpid()}.counters").is_file()
