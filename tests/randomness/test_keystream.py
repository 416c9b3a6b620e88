"""The stream of random bits is AES-256 in counter mode."""

from __future__ import annotations

import pytest

from wpriv.randomness import Keystream, new_key

# NIST SP 800-38A (2001), F.5.5 CTR-AES256.Encrypt: the key, the first counter and the output blocks
KEY = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
COUNTER = 0xF0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF
BLOCKS = bytes.fromhex(
    "0bdf7df1591716335e9a8b15c860c502"
    "5a6e699d536119065433863c8f657b94"
    "1bc12c9c01610d5d0d8bd6a3378eca62"
    "2956e1c8693536b1bee99c73a31576b6"
)


def test_the_stream_is_that_of_the_published_test_vector():
    assert Keystream(KEY, COUNTER).read(64) == BLOCKS


@pytest.mark.parametrize("size", [1, 16, 65_536, 65_537, 200_000])
def test_fill_writes_what_read_returns(size):
    memory = bytearray(size + 16)
    Keystream(KEY).fill(memoryview(memory), size)
    assert bytes(memory[:size]) == Keystream(KEY).read(size)


def test_a_stream_continues_where_it_stopped():
    stream = Keystream(KEY, COUNTER)
    assert stream.read(10) + stream.read(54) == BLOCKS


def test_new_keys_have_256_bits_and_differ():
    assert len(new_key()) == 32
    assert new_key() != new_key()
