"""The examples of the README and of the package are run as they stand."""

import doctest
import pathlib

import qpair

FLAGS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
README = pathlib.Path(__file__).parent.parent / "README.md"


def test_the_readme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = README.read_text(encoding="utf-8").replace("```", "")
    examples = doctest.DocTestParser().get_doctest(text, {}, "README.md", str(README), 0)
    assert len(examples.examples) > 20
    outcome = doctest.DocTestRunner(optionflags=FLAGS).run(examples)
    assert outcome.failed == 0


def test_the_package():
    outcome = doctest.testmod(qpair, optionflags=FLAGS)
    assert outcome.attempted and outcome.failed == 0


def test_everything_public_is_documented_and_has_types():
    stubs = (pathlib.Path(qpair.__file__).parent / "_qpair.pyi").read_text(encoding="utf-8")
    assert (pathlib.Path(qpair.__file__).parent / "py.typed").exists()
    for name in qpair.__all__:
        if name != "__version__":
            assert getattr(qpair, name).__doc__, name
    for kind in (qpair.Store, qpair.Table, qpair.Range, qpair.Transaction, qpair.Snapshot, qpair.Batch, qpair.AsyncTable):
        part = stubs[stubs.index(f"class {kind.__name__}") :].split("\nclass ")[0]
        for name in vars(kind):
            if not name.startswith("__"):
                assert f"def {name}(" in part, f"{kind.__name__}.{name} has no stub"
                assert getattr(kind, name).__doc__, name
