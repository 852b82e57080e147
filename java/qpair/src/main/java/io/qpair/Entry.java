package io.qpair;

/** A record: a key and its value. The arrays are the caller's. */
public record Entry(byte[] key, byte[] value) {}
