"""A table is an ordered mapping of bytes."""

import collections.abc

import pytest

import qpair
from conftest import open_on_disk


def test_a_table_behaves_like_a_mapping(table):
    assert isinstance(table, collections.abc.MutableMapping)
    assert not table and len(table) == 0 and table.first() is None
    table[b"b"] = b"2"
    table[b"a"] = b"1"
    assert table[b"a"] == b"1" and b"a" in table and b"c" not in table
    assert table.get(b"c") is None and table.get(b"c", b"0") == b"0"
    with pytest.raises(KeyError) as raised:
        table[b"c"]
    assert raised.value.args == (b"c",)
    with pytest.raises(KeyError):
        del table[b"c"]
    assert list(table) == [b"a", b"b"] and list(reversed(table)) == [b"b", b"a"]
    assert dict(table) == dict(table.items()) == {b"a": b"1", b"b": b"2"}
    assert list(table.keys()) == [b"a", b"b"] and list(table.values()) == [b"1", b"2"]
    assert len(table) == 2 and table and table.last() == (b"b", b"2")
    assert table.pop(b"a") == b"1" and table.pop(b"a", None) is None
    with pytest.raises(KeyError):
        table.pop(b"a")
    assert table.setdefault(b"c", b"3") == b"3" and table.setdefault(b"c", b"4") == b"3"
    assert table.popitem() == (b"c", b"3") and table.pop_first() == (b"b", b"2")
    with pytest.raises(KeyError):
        table.popitem()
    table.update({b"x": b"1", b"y": b"2"})
    table.update([(b"y", b"3")])
    assert dict(table) == {b"x": b"1", b"y": b"3"}
    assert table.clear() == 2 and not table


def test_changes_tell_what_was_there(table):
    assert table.put(b"k", b"1") is False and table.put(b"k", b"2") is True
    assert table.insert(b"k", b"3") is False and table.insert(b"l", b"3") is True
    assert table.compare_and_swap(b"k", b"1", b"9") is False
    assert table.compare_and_swap(b"k", b"2", b"9") is True
    assert table.compare_and_swap(b"m", None, b"1") is True
    assert table.compare_and_swap(b"m", b"1", None) is True
    assert table.delete(b"m") is False and table.delete(b"l") is True
    assert dict(table) == {b"k": b"9"}


def test_ranges_in_both_directions(table):
    for number in range(100):
        table[b"%02d" % number] = b"%d" % number
    assert [key for key, _ in table.range(b"10", b"13")] == [b"10", b"11", b"12"]
    assert list(table.range(b"98").only_keys()) == [b"98", b"99"]
    assert list(table.range(stop=b"02").only_values()) == [b"0", b"1"]
    assert list(table.prefix(b"5").only_keys()) == [b"5%d" % digit for digit in range(10)]
    assert list(reversed(table.prefix(b"5").only_keys()))[:2] == [b"59", b"58"]
    assert list(table.items().reverse().only_keys().limit(2)) == [b"99", b"98"]
    assert list(table.range(b"3", b"1")) == []
    assert len(list(table.items())) == 100
    # A range is not used up by an iteration.
    part = table.range(b"97").limit(2)
    assert list(part) == list(part) == [(b"97", b"97"), (b"98", b"98")]
    with pytest.raises(ValueError, match="reversed before"):
        part.reverse()


def test_ranges_look_keys_up(table):
    table.update({b"a": b"1", b"b": b"2"})
    assert b"a" in table.keys() and b"c" not in table.keys() and b"a" not in table.range(b"b").only_keys()
    assert (b"a", b"1") in table.items() and (b"a", b"2") not in table.items() and 7 not in table.items()
    assert b"2" in table.values() and b"3" not in table.values()
    assert b"b" not in table.keys().limit(1)


def test_bytes_of_all_kinds(table):
    table[bytearray(b"key")] = memoryview(b"xvaluex")[1:-1]
    assert table[memoryview(b"key")] == b"value"
    assert table.get(memoryview(bytearray(b"akbecyx"))[1::2]) == b"value"
    table[b""] = b""
    assert table[b""] == b"" and b"" in table
    for wrong in ("text", 7, None, ["k"]):
        with pytest.raises(TypeError, match="buffer protocol"):
            table[wrong]
        with pytest.raises(TypeError, match="buffer protocol"):
            table.put(b"k", wrong)
    with pytest.raises(TypeError, match=r"text\.encode"):
        table["text"]


def test_long_keys_and_values(store, table):
    large = bytes(range(256)) * 40_000
    table[b"large"] = large
    assert table[b"large"] == large and list(table.items()) == [(b"large", large)]
    with pytest.raises(qpair.KeyTooLong) as raised:
        table[b"k" * (store.key_len_max + 1)] = b""
    assert isinstance(raised.value, ValueError) and raised.value.kind == "KeyTooLong"
    with pytest.raises(qpair.ValueTooLong):
        table[b"k"] = bytes((16 << 20) + 1)


def test_multi_get_keeps_the_order(path):
    with open_on_disk(path) as store:
        table = store.table("t")
        table.load(((b"%06d" % number, b"%d" % number * 20) for number in range(100_000)), sorted=True)
        # Far more than the memory of the store: most pages have to be read.
        keys = [b"%06d" % (number * 7919 % 110_000) for number in range(2_000)]
        for key, value in zip(keys, table.multi_get(keys)):
            number = int(key)
            assert value == (b"%d" % number * 20 if number < 100_000 else None)
            assert table.get(key) == value
    assert len(keys) == 2_000


def test_tables_of_a_store(store):
    store.table("a")[b"k"] = b"v"
    assert store["a"][b"k"] == b"v" and store["a"].name == "a"
    with pytest.raises(KeyError):
        store["b"]
    with pytest.raises(KeyError):
        store.table("b", create=False)
    store.rename_table("a", "b")
    assert store.table_names() == ["b"]
    dropped = store["b"]
    store.drop_table("b")
    with pytest.raises(qpair.NotFound, match="dropped"):
        dropped.get(b"k")
    with pytest.raises(qpair.NotFound):
        store.drop_table("b")


def test_statistics_and_metrics(store, table):
    table[b"k"] = b"value"
    assert table.statistics()["records"] == 1
    metrics = store.metrics()
    assert metrics["commits"] >= 1 and metrics["commit_latency_us"]["count"] >= 1, metrics
    assert "# TYPE" in store.metrics_text()


def test_a_check_and_a_backup(path):
    with open_on_disk(path) as store:
        store.table("t").load((b"%05d" % number, b"v") for number in range(1_000))
        with pytest.raises(qpair.Invalid, match="close it and open it again"):
            store.check()
        assert store.backup(path + ".copy") > 0
    for copy in (path, path + ".copy"):
        with open_on_disk(copy, read_only=True) as store:
            assert store.check() == [] and len(store["t"]) == 1_000
