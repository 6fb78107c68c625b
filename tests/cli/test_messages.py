"""What users are told: mistakes as one line that names the options that are meant, settings as flags."""

import pytest

from classnorm.cli import main
from classnorm.cli.messages import as_flags


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["train", "glyphs", "--epochs", "abc"],
            ["--epochs cannot be 'abc'", "--epochs INT: Passes over the training"],
        ),
        (["serve", "model", "--port", "x"], ["--port cannot be 'x'", "any free one"]),
        (["train", "glyphs", "--epoch", "3"], ["--epoch", "perhaps you meant --epochs;"]),
        (["train", "glyphs", "--hiden", "3", "--epoch", "3"], ["--hidden", "--epochs"]),
        (["train", "glyphs", "extra"], ["extra"]),
        (["train", "glyphs", "--seed"], ["--seed"]),
        (["train", "glyphs", "--logits", "foo"], ["--logits", "'foo'", "'cosine'"]),
        (["predict"], ["MODEL"]),
        (["bench", "--jsno"], ["perhaps you meant --json;"]),
    ],
)
def test_a_mistake_is_one_line_with_what_is_meant_and_where_to_look(arguments, words, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    said = capsys.readouterr()
    assert end.value.code == 2
    assert said.out == ""
    [line] = said.err.splitlines()
    assert line.startswith("classnorm: error: ")
    assert line.endswith(f"see classnorm {arguments[0]} --help")
    assert all(word in line for word in words), line
    assert not set("│╭─") & set(line)


def test_help_still_goes_to_stdout(capsys):
    with pytest.raises(SystemExit) as end:
        main(["train", "--help"])
    said = capsys.readouterr()
    assert end.value.code in (0, None)
    assert "--epochs" in said.out and said.err == ""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("lower `lr`", "lower --lr"),
        ("leave out `hold_out`", "leave out --hold-out"),
        ("use `features='vit'` or `features=\"res101\"`", "use --features vit or --features res101"),
        ("use `gamma=13.3`", "use --gamma 13.3"),
        ("use `class_norm=True` or `final_relu=False`", "use --class-norm or --no-final-relu"),
        ('use `template="a photo of a {}"`', 'use --template "a photo of a {}"'),
        ("run `classnorm describe`; see `att_splits.mat`, `fit(X, y)`", None),
    ],
)
def test_only_settings_in_backticks_become_flags(message, expected):
    assert as_flags(message) == (message if expected is None else expected)
