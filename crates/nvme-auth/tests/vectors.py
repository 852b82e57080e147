"""Makes vectors.txt: responses of DH-HMAC-CHAP and keys of TLS, by Python's hashlib and hmac alone.

    python3 vectors.py > vectors.txt
"""

import base64
import hashlib
import hmac
import struct
import zlib

HASHES = {1: hashlib.sha256, 2: hashlib.sha384, 3: hashlib.sha512}
HOST = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000001"
SUBSYSTEM = "nqn.2026-11.example:disks"
SEQUENCE, TRANSACTION = 0x01020304, 0x0506
SHARED = bytes([7]) * 256


def mac(number, key, data):
    return hmac.new(key, data, HASHES[number]).digest()


def interchange(key):
    return base64.b64encode(key + struct.pack("<I", zlib.crc32(key))).decode()


def response(number, key_hash, key, own, other, role, challenge, shared):
    if key_hash:
        key = mac(key_hash, key, own.encode() + b"NVMe-over-Fabrics")
    if shared:
        challenge = mac(number, HASHES[number](shared).digest(), challenge)
    numbers = struct.pack("<IHB", SEQUENCE, TRANSACTION, 0)
    return mac(number, key, challenge + numbers + role + own.encode() + b"\0" + other.encode())


def expand_label(number, key, label, context, length):
    extracted = mac(number, bytes(HASHES[number]().digest_size), key)
    label = b"tls13 " + label
    info = struct.pack(">HB", length, len(label)) + label + bytes([len(context)]) + context
    out, last, count = b"", b"", 1
    while len(out) < length:
        last = mac(number, extracted, last + info + bytes([count]))
        out, count = out + last, count + 1
    return out[:length]


def tls(key_hash, key):
    number = key_hash or {32: 1, 48: 2}[len(key)]
    length = HASHES[number]().digest_size
    retained = expand_label(number, key, b"HostNQN", HOST.encode(), length) if key_hash else key
    text = f"NVMeTLSkey-1:{key_hash:02x}:{interchange(key)}:"
    digest = base64.b64encode(mac(number, retained, f"{HOST} {SUBSYSTEM} NVMe-over-Fabrics".encode())).decode()
    old = f"NVMe0R{number:02x} {HOST} {SUBSYSTEM}"
    new = f"NVMe1R{number:02x} {HOST} {SUBSYSTEM} {digest}"
    for version, identity, context in [(0, old, old), (1, new, f"{number:02x} {digest}")]:
        print("tls", text, version, identity.replace(" ", "_"), expand_label(number, retained, b"nvme-tls-psk", context.encode(), length).hex())


for key_hash, length in [(0, 32), (1, 32), (2, 48), (3, 64)]:
    key = bytes(range(length))
    for number in HASHES:
        challenge = bytes([0xC0 + number]) * HASHES[number]().digest_size
        host, dh, controller = (
            response(number, key_hash, key, own, other, role, challenge, shared).hex()
            for own, other, role, shared in [
                (HOST, SUBSYSTEM, b"HostHost", None),
                (HOST, SUBSYSTEM, b"HostHost", SHARED),
                (SUBSYSTEM, HOST, b"Controller", None),
            ]
        )
        print("chap", f"DHHC-1:{key_hash:02x}:{interchange(key)}:", number, host, dh, controller)
for key_hash, length in [(0, 32), (0, 48), (1, 32), (2, 48)]:
    tls(key_hash, bytes(range(length)))
