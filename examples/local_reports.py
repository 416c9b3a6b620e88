"""What survives local noise: each report alone is useless, the average of many is not.

Averaging is post-processing, so the guarantee of the reports is that of the average as well.

Run: python examples/local_reports.py
"""

import numpy as np

import wpriv


def main() -> None:
    # heights in units of 10 cm around 170 cm: a public centre, and a clip radius that fits nearly everybody
    heights = np.random.default_rng(0).normal(0.2, 0.7, size=(100_000, 1))
    done = wpriv.privatize(heights, "local-gauss", radius=2, eps=1, delta=1e-6, dtype="float64")
    found = done.statement["guarantees"][0]
    print(
        f"eps = {found['epsilon']:.4f} at delta = {found['delta']:g} for every person, sigma = {done.statement['noise']['sigma']:g}"
    )
    print("people   mean of their reports   true mean")
    for count in (1, 100, 10_000, 100_000):
        print(f"{count:<8} {done.x[:count].mean():<+23.3f} {heights[:count].mean():+.3f}")


if __name__ == "__main__":
    main()
