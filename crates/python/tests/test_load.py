"""Loading records from iterables, Arrow and Parquet."""

import random

import pytest

import qpair


def records(count):
    return [(b"%06d" % number, b"value %d" % number) for number in range(count)]


def test_sorted_records_need_an_empty_table_and_ascending_keys(table):
    assert table.load(iter(records(5_000)), sorted=True) == 5_000
    assert list(table.items()) == records(5_000)
    with pytest.raises(qpair.Invalid, match="empty") as raised:
        table.load(records(1), sorted=True)
    assert raised.value.hint and raised.value.loaded == 0
    table.clear()


def test_a_sorted_load_is_all_or_nothing(store):
    table = store.table("new")
    with pytest.raises(qpair.Invalid, match="not greater"):
        table.load([(b"b", b""), (b"a", b"")], sorted=True)
    assert not table

    def broken():
        yield from records(3_000)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        table.load(broken(), sorted=True)
    assert not table
    assert table.load(records(3), sorted=True) == 3


def test_unsorted_records_of_all_shapes(table):
    mixed = records(20_000) + [(b"000007", b"the last one")]
    head = mixed[:-1]
    random.Random(7).shuffle(head)
    assert table.load(head + mixed[-1:]) == 20_000
    assert len(table) == 20_000 and table[b"000007"] == b"the last one"
    assert table.load({b"a": b"1"}) == 1
    assert table.load([[bytearray(b"b"), memoryview(b"2")]]) == 1
    assert table.load(table.range(b"a")) == 2
    assert table.load([]) == 0
    for wrong in ([7], [(b"k",)], [("k", b"v")], [(b"k", 7)], 7, [b"kv"]):
        with pytest.raises(TypeError):
            table.load(wrong)


def test_an_unsorted_load_keeps_what_it_told(table):
    def broken():
        yield from records(2_000)
        raise LookupError("mine")

    with pytest.raises(LookupError) as raised:
        table.load(broken())
    assert raised.value.loaded == len(table) == 2_000


@pytest.mark.parametrize("sorted", ["", "sorted"])
def test_a_full_disk_in_the_middle_of_a_load(program, path, sorted):
    program(
        """
        import resource, sys, qpair
        path, sorted = sys.argv[1], bool(sys.argv[2])
        # A file that cannot grow further is a disk without space.
        resource.setrlimit(resource.RLIMIT_FSIZE, (24 << 20, 24 << 20))
        few = [(b"%06d" % number, b"value") for number in range(1_000)]
        with qpair.open(path, memory="8MiB", workers=1, buffered=True) as store:
            table, keep = store.table("t"), store.table("keep")
            keep.load(few)
            try:
                table.load(((b"%08d" % number, bytes(1_000)) for number in range(100_000)), sorted=sorted)
                raise SystemExit("the load did not fail")
            except qpair.Full as error:
                assert error.kind == "NoSpace" and error.loaded == len(table), (error.loaded, len(table))
            assert sorted == (len(table) == 0) and list(keep.items()) == few
            # Room is made, and the store takes changes again.
            store.drop_table("t")
            store.checkpoint()
            assert store.table("again").load(few, sorted=sorted) == 1_000
        with qpair.open(path, memory="8MiB", workers=1, buffered=True, read_only=True) as store:
            assert store.check() == [] and dict(store["again"]) == dict(store["keep"]) == dict(few)
        """,
        path,
        sorted,
    )


def test_an_interrupt_ends_a_load(program):
    said = program(
        """
        import itertools, os, signal, qpair
        with qpair.open("ram:size=64MiB", memory="16MiB", workers=1) as store:
            table = store.table("t")
            def endless():
                for number in itertools.count():
                    if number == 100_000:
                        os.kill(os.getpid(), signal.SIGINT)
                    yield b"%012d" % number, b""
            try:
                table.load(endless(), sorted=True)
            except KeyboardInterrupt:
                print("interrupted", len(table))
        """
    )
    assert said == "interrupted 0\n"


@pytest.fixture
def pyarrow():
    return pytest.importorskip("pyarrow")


def test_arrow_tables(table, pyarrow):
    source = pyarrow.table({"id": ["b", "a", "c"], "data": [b"2", b"1", b""], "other": [1, 2, 3]})
    assert qpair.load_arrow(table, source, key="id", value="data") == 3
    assert dict(table) == {b"a": b"1", b"b": b"2", b"c": b""}
    table.clear()
    # Parts of batches have offsets that do not begin at 0.
    part = source.slice(1, 2)
    assert qpair.load_arrow(table, part, key="id", value="data", sorted=True) == 2
    assert dict(table) == {b"a": b"1", b"c": b""}
    assert qpair.load_arrow(table, part.to_batches()[0], key="id", value="data") == 2
    assert qpair.load_arrow(table, source.slice(0, 0), key="id", value="data") == 0
    assert qpair.load_arrow(table, source.to_reader(), key="id", value="data") == 3


def test_arrow_columns_that_do_not_fit(table, pyarrow):
    source = pyarrow.table({"key": ["a", None], "value": [b"1", b"2"], "number": [1, 2]})
    with pytest.raises(ValueError, match="nulls"):
        qpair.load_arrow(table, source)
    with pytest.raises(TypeError, match="binary or text"):
        qpair.load_arrow(table, source, key="number")
    with pytest.raises(KeyError):
        qpair.load_arrow(table, source, key="none")
    with pytest.raises(ValueError, match="offsets"):
        table._load_columns([(bytes(16), b"", (9).to_bytes(16, "little"), b"short")], sorted=False)
    assert not table


def test_parquet_files(table, pyarrow, tmp_path):
    from pyarrow import parquet

    count = 100_000
    source = pyarrow.table({
        "key": [b"%06d" % number for number in range(count)],
        "value": [b"%d" % number for number in range(count)],
    })
    parquet.write_table(source, tmp_path / "t.parquet")
    assert qpair.load_parquet(table, tmp_path / "t.parquet", sorted=True) == count
    assert table[b"000123"] == b"123" and len(table) == count
