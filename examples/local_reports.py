"""The mean of locally private reports: a single report is uninformative, the average of many is accurate.

Averaging is post-processing, so the average has the guarantee of the reports.

Run: python examples/local_reports.py
"""

import numpy as np

import wpriv


def main() -> None:
    # heights in units of 10 cm around 170 cm: a public centre, and a clip radius that covers nearly everybody
    heights = np.random.default_rng(0).normal(0.2, 0.7, size=(100_000, 1))
    reports = wpriv.privatize(heights, "local-gauss", radius=2, eps=1, delta=1e-6, dtype="float64")
    guarantee, sigma = reports.statement["guarantees"][0], reports.statement["noise"]["sigma"]
    eps, delta = guarantee["epsilon"], guarantee["delta"]
    print(f"eps = {eps:.4f} at delta = {delta:g} for every person, sigma = {sigma:g}")
    print("people   mean of their reports   true mean")
    for count in (1, 100, 10_000, 100_000):
        print(f"{count:<8} {reports.x[:count].mean():<+23.3f} {heights[:count].mean():+.3f}")


if __name__ == "__main__":
    main()
