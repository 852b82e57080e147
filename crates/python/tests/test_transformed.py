"""Encrypted stores, and tables of compressed values."""

import pathlib
import time

import pytest

import qpair
from conftest import open_on_disk

KEY = bytes(range(32))


def test_an_encrypted_store_opens_with_its_key_alone(path, tmp_path: pathlib.Path):
    with open_on_disk(path, encryption_key=KEY) as store:
        store.table("t")[b"attack"] = b"at dawn"
    assert b"at dawn" not in pathlib.Path(path).read_bytes()
    for wrong in ({}, {"encryption_key": bytes(32)}):
        with pytest.raises(qpair.Denied):
            open_on_disk(path, **wrong)
    file = tmp_path / "key"
    file.write_text(KEY.hex() + "\n")
    with open_on_disk(path, key_file=file) as store:
        assert store["t"][b"attack"] == b"at dawn"


def test_a_wrong_key_is_not_shown(path):
    for wrong in (b"secret", "secret" * 8, 7):
        with pytest.raises(ValueError) as raised:
            open_on_disk(path, encryption_key=wrong)
        assert "secret" not in str(raised.value) and "32 bytes" in str(raised.value)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_values(store, compression):
    table = store.table("small", compression=compression)
    value = b"a line of text, " * 100
    table[b"k"] = value
    assert table[b"k"] == value and table.get(b"k") == value and dict(table.items()) == {b"k": value}
    assert (table.compression, store.table("plain").compression) == (compression, "none")
    metrics = store.metrics()
    assert metrics["compressed_value_bytes"] == len(value) > 5 * metrics["compressed_stored_bytes"]
    with pytest.raises(qpair.Exists):
        store.table("plain", compression=compression)
    with pytest.raises(ValueError):
        store.table("other", compression="zip")


def test_times_to_live(store):
    table = store.table("sessions", ttl=3600)
    table[b"k"] = b"v"
    assert (table[b"k"], table.ttl, store.table("plain").ttl) == (b"v", 3600.0, None)
    assert store.table("sessions").ttl == 3600.0
    with pytest.raises(qpair.Exists):
        store.table("sessions", ttl=60)
    for wrong in (0, 0.5, -1, float("nan")):
        with pytest.raises((ValueError, qpair.Error)):
            store.table("other", ttl=wrong)
    store.table("soon", ttl=1)[b"k"] = b"v"
    while store.table("soon").get(b"k") is not None:
        time.sleep(0.05)
