"""Compose a process step by step, and ask what has been spent after each.

Run: python examples/step_by_step.py
"""

from wpriv import Gauss, Laplace, Poisson, Process, Step, curve

process = Process((Step(Laplace(scale=20.0)),))
print(f"one count with Laplace noise:      eps = {curve(process).epsilon(delta=1e-5):.4f}")

process = process + Step(Gauss(sigma=10.0), n=12)
print(f"and twelve with Gaussian noise:       eps = {curve(process).epsilon(delta=1e-5):.4f}")

training = Process((Step(Gauss(sigma=1.0), n=2000, sampling=Poisson(256 / 60_000)),))
process = process + training
print(f"and a training by DP-SGD:          eps = {curve(process).epsilon(delta=1e-5):.4f}")

answer = curve(process).at(delta=1e-5)
print(f"certified to lie between {answer.epsilon.lower:.7f} and {answer.epsilon.upper:.7f}, under {process.adjacency}")
