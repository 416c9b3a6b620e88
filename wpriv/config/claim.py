"""Claims about a process as users write them: eps=3,delta=1e-5, or eps=1 (pure DP), mu=1, or rho=0.5 with xi or not."""

from __future__ import annotations

from dataclasses import dataclass

from wpriv.errors import UsageError
from wpriv.hints import did_you_mean, plain_key
from wpriv.numerics.numbers import echo, number, short

KEYS = ("eps", "delta", "mu", "fpr", "rho", "xi")
FORMS = (
    "eps=3,delta=1e-5; eps=1 (pure DP); mu=1 (Gaussian DP), with fpr=1e-9 for tests of that rate or more; rho=0.5 "
    "(zCDP); or xi=0.1,rho=0.5"
)
# the notion of a claim by the keys that it gives
NOTIONS = {
    frozenset({"eps", "delta"}): "approximate-dp",
    frozenset({"eps"}): "approximate-dp",
    frozenset({"mu"}): "gdp",
    frozenset({"mu", "fpr"}): "gdp",
    frozenset({"rho"}): "zcdp",
    frozenset({"xi", "rho"}): "zcdp",
}


@dataclass(frozen=True)
class Claim:
    """A claim to be decided.

    Args:
        notion: approximate-dp, gdp or zcdp. eps, delta: of approximate DP; delta = 0 is pure DP.
        mu: of Gaussian DP. fpr: the smallest error rate of the tests that mu is about; 0 for all tests.
        xi, rho: of zero-concentrated DP, D_alpha <= xi + rho alpha; (xi, 0)-zCDP is pure xi-DP.
    """

    notion: str
    eps: float = 0.0
    delta: float = 0.0
    mu: float = 0.0
    fpr: float = 0.0
    rho: float = 0.0
    xi: float = 0.0

    def __str__(self) -> str:
        if self.notion == "gdp":
            tests = f", for tests with both error rates at least {short(self.fpr)}" if self.fpr else ""
            return f"{short(self.mu)}-GDP{tests}"
        if self.notion == "zcdp":
            return f"({short(self.xi)}, {short(self.rho)})-zCDP" if self.xi else f"{short(self.rho)}-zCDP"
        return f"({short(self.eps)}, {short(self.delta)})-DP"

    def as_dict(self) -> dict[str, str | float]:
        """The claim as plain data, with the keys that were given."""
        concentrated = ("xi", "rho") if self.xi else ("rho",)
        keys = {"approximate-dp": ("eps", "delta"), "gdp": ("mu", "fpr"), "zcdp": concentrated}[self.notion]
        return {"notion": self.notion, **{key: getattr(self, key) for key in keys}}


def parse_claim(text: str) -> Claim:
    """Parse a claim such as ``eps=3,delta=1e-5``."""
    values: dict[str, float] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        key = plain_key(key.strip().lower())
        if not equals or key not in KEYS:
            near = did_you_mean(key, KEYS) or ""
            raise UsageError(f"a claim is one of {FORMS}; found {text[:80]!r}{near}")
        if key in values:
            raise UsageError(f"the claim {text[:80]!r} gives {key} twice; give it once")
        values[key] = number(value.strip(), f"{key} of the claim")
    notion = NOTIONS.get(frozenset(values))
    if notion is None:
        raise UsageError(f"a claim is one of {FORMS}; found {text[:80]!r}")
    claim = Claim(notion, **values)
    if min(claim.eps, claim.mu, claim.rho, claim.xi) < 0:
        raise UsageError(f"eps, mu, rho and xi of a claim are at least 0; found {text[:80]!r}")
    if not 0 <= claim.delta < 1:
        raise UsageError(f"delta of a claim is at least 0 and below 1; found {echo(claim.delta)}")
    if "fpr" in values and not 0 < claim.fpr <= 0.5:
        raise UsageError(f"fpr of a claim is above 0 and at most 0.5; found {echo(claim.fpr)}")
    return claim
