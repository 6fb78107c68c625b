"""ONNX graphs give what PyTorch gives, for every method, for any number of rows and classes, and without PyTorch."""

import dataclasses
import errno
import functools
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from classnorm.encoders import frozen_encoder
from classnorm.errors import ConfigError, OutputError
from classnorm.methods import METHODS, ZeroShotModel
from classnorm.metrics import Calibration
from classnorm.scoring import Scorer, fit
from classnorm.scoring import onnx_export as module
from classnorm.scoring.onnx_export import export_onnx
from classnorm_lab.rivals.parts.softmax_rows import SoftmaxRowsConfig

pytestmark = pytest.mark.slow

TRAINED = {name for name in METHODS if issubclass(METHODS[name].config, SoftmaxRowsConfig)}
"""Methods without a formula for the prototype of a new class."""

each_method = pytest.mark.parametrize("method", [name for name in METHODS if name != "clip"])  # needs a pair


@pytest.fixture(scope="module", autouse=True)
def one_registry():
    """PyTorch reads its whole library of operators for every graph, a third of the time; here once."""
    registry = pytest.importorskip("torch.onnx._internal.exporter._registration").ONNXRegistry
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "from_torchlib", staticmethod(functools.cache(registry.from_torchlib)))
        yield


@pytest.fixture(scope="module")
def trained(tiny_scorer):
    """Method → its scorer, with a calibration and a temperature, which the graph must have too."""
    scorers: dict[str, Scorer] = {}

    def get(method):
        if method not in scorers:
            calibration = Calibration("bias", 0.3) if len(scorers) % 2 else Calibration("scale", 0.8)
            scorers[method] = tiny_scorer(method).calibrated(calibration, temperature=1.7)
        return scorers[method]

    return get


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    """Method → the sessions of its graphs, exported once."""
    sessions: dict[str, list[onnxruntime.InferenceSession]] = {}

    def get(method):
        if method not in sessions:
            files = export_onnx(trained(method), tmp_path_factory.mktemp("onnx") / "model.onnx")
            sessions[method] = [session(file) for file in files]
        return sessions[method]

    return get


@pytest.fixture(scope="module")
def classnorm_files(trained, exported):
    """The two files of the method classnorm."""
    return [Path(part._model_path) for part in exported("classnorm")]


def session(file):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(file, options)


def about(part):
    return json.loads(part.get_modelmeta().custom_metadata_map["classnorm"])


def assert_same(exported, expected):
    np.testing.assert_allclose(exported, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@each_method
def test_scores_and_probabilities_are_those_of_pytorch_on_seen_and_unseen_classes(tiny_data, trained, exported, method):
    scorer = trained(method)
    scores, probabilities = exported(method)[0].run(["scores", "probabilities"], {"features": tiny_data.features})
    expected = scorer.scores(tiny_data.features)
    for side in (scorer.seen, ~scorer.seen):
        assert_same(scores[:, side], expected[:, side])
    assert_same(probabilities, scorer.probabilities(tiny_data.features))


@each_method
def test_a_class_added_later_scores_as_after_add_classes(tiny_data, trained, exported, method):
    new = np.stack([tiny_data.descriptors[:5].mean(axis=0), tiny_data.descriptors[3:9].max(axis=0)])
    more = trained(method).add_classes({"okapi": new[0], "quagga": new[1]})
    graphs = exported(method)
    assert len(graphs) == (1 if method in TRAINED else 2)
    if method in TRAINED:
        prototypes = more.prototypes()
    else:
        prototypes = np.concatenate([graphs[1].run(None, {})[0], graphs[1].run(None, {"descriptors": new})[0]])
    assert_same(prototypes, more.prototypes())
    seen = np.array([*about(graphs[0])["seen"], False, False])
    inputs = {"features": tiny_data.features, "prototypes": prototypes, "seen": seen}
    assert_same(graphs[0].run(["scores"], inputs)[0], more.scores(tiny_data.features))


@each_method
def test_one_row_and_one_class_are_enough(tiny_data, trained, exported, method):
    few = trained(method).only([tiny_data.class_names[12]])
    graphs = exported(method)
    if method not in TRAINED:
        assert_same(graphs[1].run(None, {"descriptors": few.descriptors})[0], few.prototypes())
    inputs = {"features": tiny_data.features[:1], "prototypes": few.prototypes(), "seen": few.seen}
    assert_same(graphs[0].run(["scores"], inputs)[0], few.scores(tiny_data.features[:1]))


def test_many_more_rows_and_classes_than_the_model_has(tiny_data, trained, exported):
    scorer = trained("classnorm")
    scores, prototypes = exported("classnorm")
    table = np.tile(scorer.descriptors, (20, 1))
    inputs = {"features": np.tile(tiny_data.features, (5, 1)), "seen": np.tile(scorer.seen, 20)}
    result = scores.run(["scores"], inputs | {"prototypes": prototypes.run(None, {"descriptors": table})[0]})[0]
    assert_same(result, np.tile(scorer.scores(tiny_data.features), (5, 20)))


def test_the_files_say_what_they_are_and_belong_together(tiny_data, trained, exported, classnorm_files):
    scores, prototypes = map(about, exported("classnorm"))
    assert classnorm_files[1].name == "model.prototypes.onnx"
    assert scores.pop("prototypes_sha256") == hashlib.sha256(classnorm_files[1].read_bytes()).hexdigest()
    assert scores == prototypes
    assert scores["class_names"] == list(tiny_data.class_names)
    assert scores["seen"] == tiny_data.seen.tolist()
    assert (scores["method"], scores["feature_dim"], scores["descriptor_dim"]) == ("classnorm", 16, 8)
    assert (scores["calibration"], scores["temperature"]) == (str(trained("classnorm").calibration), 1.7)


def test_the_files_do_not_tell_where_they_were_made(classnorm_files):
    for file in classnorm_files:
        assert str(Path(module.__file__).parent).encode() not in file.read_bytes()
        assert b"stack_trace" not in file.read_bytes()


def test_axes_have_names_and_old_runtimes_can_read_the_files(classnorm_files):
    scores = onnx.load(classnorm_files[0])
    axes = [entry.type.tensor_type.shape.dim[0].dim_param for entry in scores.graph.input]
    assert axes == ["rows", "classes", "classes"]
    assert scores.ir_version <= 10
    assert [(entry.domain, entry.version) for entry in scores.opset_import] == [("", 18)]


def test_no_torch_is_needed_to_use_the_files(tiny_data, trained, classnorm_files, tmp_path):
    np.save(tmp_path / "features.npy", tiny_data.features)
    script = f"""
import sys, numpy as np, onnxruntime
sys.modules["torch"] = sys.modules["classnorm"] = None
onnxruntime.set_default_logger_severity(3)
session = onnxruntime.InferenceSession({str(classnorm_files[0])!r})
print(session.run(["scores"], {{"features": np.load("features.npy")}})[0].argmax(axis=1).tolist())
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == trained("classnorm").scores(tiny_data.features).argmax(axis=1).tolist()
    assert done.stderr == ""


def test_half_precision_features_must_be_made_single(tiny_data, exported):
    scores = exported("classnorm")[0]
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument, match="float16"):
        scores.run(["scores"], {"features": tiny_data.features.astype(np.float16)})


def test_a_method_that_trains_its_prototypes_replaces_both_files_of_an_earlier_export(trained, tmp_path):
    (tmp_path / "model.prototypes.onnx").write_text("of another model")
    assert export_onnx(trained("fclswgan"), tmp_path / "model.onnx") == [tmp_path / "model.onnx"]
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


class Undecided(ZeroShotModel):
    """Logits that look at a value to decide what to do."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def prototypes(self, descriptors):
        return descriptors

    def logits(self, features, prototypes):
        return features @ prototypes.T if features.sum().item() > 0 else features @ -prototypes.T


def test_logits_without_an_onnx_form_are_refused(trained, tmp_path):
    scorer = dataclasses.replace(trained("eszsl"), model=Undecided(), d_z=8)
    with pytest.raises(ConfigError, match="method eszsl cannot be exported: ONNX has no form for its scores"):
        export_onnx(scorer, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def quick(classnorm_files, monkeypatch):
    """Graphs that were made before, for tests of what comes after."""
    graphs = {"descriptors": classnorm_files[1], "features": classnorm_files[0]}

    def graph(_, inputs, *rest):
        loaded = onnx.load(graphs[next(iter(inputs))])
        del loaded.graph.initializer[-(2 if "features" in inputs else 1) :]  # the defaults
        return loaded

    monkeypatch.setattr(module, "_graph", graph)


@pytest.mark.usefixtures("quick")
def test_the_same_model_gives_the_same_bytes(trained, classnorm_files, tmp_path):
    again = export_onnx(trained("classnorm"), tmp_path / "new" / "model.onnx")
    assert [file.read_bytes() for file in again] == [file.read_bytes() for file in classnorm_files]


@pytest.mark.usefixtures("quick")
def test_graphs_that_give_other_scores_are_not_written(trained, tmp_path):
    scorer = trained("classnorm")
    other = scorer.calibrated(Calibration("scale", 0.81))  # the graph has another one
    with pytest.raises(OutputError, match=r"exported scores differ from PyTorch's by .*nothing was written"):
        export_onnx(other, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("quick")
def test_graphs_that_the_installed_onnxruntime_does_not_read_are_not_written(trained, tmp_path, monkeypatch):
    def refuse(*arguments):
        raise onnxruntime.capi.onnxruntime_pybind11_state.Fail("opset 99 is under development")

    monkeypatch.setattr(onnxruntime, "InferenceSession", refuse)
    with pytest.raises(OutputError, match=r"onnxruntime .* cannot run the exported graph, so nothing was written"):
        export_onnx(trained("classnorm"), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("quick")
def test_without_onnxruntime_files_are_written_unverified(trained, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert len(export_onnx(trained("classnorm"), tmp_path / "model.onnx")) == 2


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("which", ["model.onnx", "model.prototypes.onnx"])
def test_a_full_disk_leaves_an_earlier_export_as_it_was(trained, tmp_path, monkeypatch, which):
    for name in ("model.onnx", "model.prototypes.onnx"):
        (tmp_path / name).write_text("earlier")
    write = Path.write_bytes

    def full(self, content):
        if self.name.startswith(f".{which}."):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(self, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutputError, match=f"cannot write .*{which}: No space left on device"):
        export_onnx(trained("classnorm"), tmp_path / "model.onnx")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "model.onnx": "earlier",
        "model.prototypes.onnx": "earlier",
    }


@pytest.mark.usefixtures("quick")
def test_a_folder_in_the_way_is_named(trained, tmp_path):
    (tmp_path / "model.onnx").mkdir()
    with pytest.raises(OutputError, match=r"cannot write .*model\.onnx"):
        export_onnx(trained("classnorm"), tmp_path / "model.onnx")


def test_a_name_without_onnx_is_refused(trained, tmp_path):
    with pytest.raises(ConfigError, match=r"model\.pt: the name of an ONNX file must end in \.onnx"):
        export_onnx(trained("classnorm"), tmp_path / "model.pt")


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_a_missing_package_is_named_with_the_way_to_get_it(trained, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"export needs {package}; pip install 'classnorm\[onnx\]'"):
        export_onnx(trained("classnorm"), tmp_path / "model.onnx")


def test_an_old_pytorch_is_named(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.onnx, "export", lambda model, args, f, dynamo=False: None)
    with pytest.raises(ConfigError, match=r"export needs PyTorch 2\.6 or later"):
        export_onnx(trained("classnorm"), tmp_path / "model.onnx")


def test_a_model_beyond_what_a_file_holds_is_refused(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LARGEST", 1000)
    with pytest.raises(ConfigError, match=r"an ONNX file at most 2; keep fewer classes"):
        export_onnx(trained("classnorm"), tmp_path / "model.onnx")


def test_an_opset_that_pytorch_does_not_give_is_refused(trained, tmp_path):
    with pytest.raises(ConfigError, match="`opset=11` is not supported; use `opset=18`"):
        export_onnx(trained("eszsl"), tmp_path / "model.onnx", opset=11)


def test_a_later_opset_works(tiny_data, trained, tmp_path):
    files = export_onnx(trained("eszsl"), tmp_path / "model.onnx", opset=21)
    assert {onnx.load(file).opset_import[0].version for file in files} == {21}
    scores = session(files[0]).run(["scores"], {"features": tiny_data.features})[0]
    assert_same(scores, trained("eszsl").scores(tiny_data.features))


def test_examples_are_in_the_exported_prototypes_and_scores(tiny_data, tmp_path):
    scorer = fit(tiny_data, "kernel", calibration="bias:0.5").add_examples(
        tiny_data.features[tiny_data.split.test_unseen[:6]],
        [tiny_data.class_names[c] for c in tiny_data.labels[tiny_data.split.test_unseen[:6]]],
    )
    export_onnx(scorer, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    features = tiny_data.features[:20].astype(np.float32)
    scores = session.run(["scores"], {"features": features})[0]
    np.testing.assert_allclose(scores, scorer.scores(features), rtol=1e-4, atol=1e-3)
    assert {entry.name for entry in session.get_overridable_initializers()} >= {"prototypes", "seen", "penalties"}


def test_weights_of_descriptor_blocks_are_in_the_exported_prototypes(small_dataset, tmp_path):
    scorer = fit(small_dataset, "kernel", "closed-form", blocks="10,20", calibration="none")
    assert scorer.model.choices()
    _, prototypes = export_onnx(scorer, tmp_path / "model.onnx")
    [found] = session(prototypes).run(["prototypes"], {"descriptors": scorer.descriptors})
    np.testing.assert_allclose(found, scorer.prototypes(), atol=1e-4)


def test_several_encoders_inside_are_refused_before_anything_is_written(small_dataset, tmp_path):
    scorer = fit(small_dataset, method="eszsl", calibration="none")
    with pytest.raises(ConfigError, match="only one encoder fits"):
        export_onnx(scorer, tmp_path / "x.onnx", encoder=frozen_encoder("convnet+convnet-gray", 32))
    assert not list(tmp_path.iterdir())
