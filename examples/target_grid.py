"""The noise that a training run needs, over a grid of targets.

Run: python examples/target_grid.py
"""

import wpriv

JOB = {"sampling": "poisson", "batch": 256, "records": 60_000, "epochs": 10}


def main() -> None:
    print("eps    delta    sigma     attacker's true-positive rate at 1 false alarm in 1000")
    for eps in (0.5, 1.0, 3.0, 8.0):
        sigma = wpriv.calibrate("gauss", eps=eps, delta=1e-5, **JOB).value
        attack = wpriv.budget("gauss", sigma=sigma, delta=1e-5, attack=True, **JOB).extra["attack"]["tpr_at_fpr"][0]
        print(f"{eps:<6g} 1e-05    {sigma:<9g} at most {attack['tpr_upper']:.4f}")


if __name__ == "__main__":
    main()
