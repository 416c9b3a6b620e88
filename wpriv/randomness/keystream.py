"""A stream of cryptographic random bits: AES-256 in counter mode under a secret key.

An adversary who knows all records but one knows the two values that a release may have been made of, and so two
candidates for its noise. Of the output of a statistical generator only one candidate fits the generator's equations
(those of the Mersenne Twister are linear and can be solved), which reveals the record and all other noise. No test is
known that distinguishes the output of AES under an unknown key from random bits.
"""

from __future__ import annotations

import secrets

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

KEY_BYTES = 32
BLOCK_BYTES = 16
_ZEROS = bytes(2**16)


def new_key() -> bytes:
    """Return 256 secret bits from the operating system."""
    return secrets.token_bytes(KEY_BYTES)


class Keystream:
    """The random bits of a key from one value of the 128-bit counter on; each value gives a block of 16 bytes.

    Args:
        key: 32 bytes. start: the first value of the counter. Streams of one key whose counters overlap repeat bits.
    """

    def __init__(self, key: bytes, start: int = 0):
        counter = modes.CTR(start.to_bytes(BLOCK_BYTES, "big"))
        self._cipher = Cipher(algorithms.AES256(key), counter).encryptor()

    def read(self, count: int) -> bytes:
        """Return the next ``count`` bytes of the stream."""
        return self._cipher.update(bytes(count))

    def fill(self, memory: memoryview, count: int) -> None:
        """Write the next ``count`` bytes of the stream to ``memory``, which must have room for one block more."""
        for start in range(0, count, len(_ZEROS)):
            self._cipher.update_into(memoryview(_ZEROS)[: count - start], memory[start:])
