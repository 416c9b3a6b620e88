"""Read a DpEvent of dp_accounting as a wpriv process, and compare the two libraries' eps.

Events that wpriv has no proven pair for are refused by name. Needs: pip install dp-accounting

Run: python examples/from_dp_accounting.py
"""

from wpriv import Gauss, Laplace, Poisson, Process, Sampling, Step, curve

try:
    import dp_accounting
    from dp_accounting import dp_event, pld
except ImportError:
    dp_accounting = None


def steps_of(event: "dp_event.DpEvent", n: int = 1, sampling: Sampling | None = None) -> list[Step]:
    """The steps of an event: composition, Poisson sampling, Gaussian and Laplace mechanisms."""
    if isinstance(event, dp_event.NoOpDpEvent):
        return []
    if isinstance(event, dp_event.ComposedDpEvent):
        return [step for inner in event.events for step in steps_of(inner, n, sampling)]
    if isinstance(event, dp_event.SelfComposedDpEvent):
        return steps_of(event.event, n * event.count, sampling)
    if isinstance(event, dp_event.PoissonSampledDpEvent) and sampling is None:
        return steps_of(event.event, n, Poisson(event.sampling_probability))
    if isinstance(event, dp_event.GaussianDpEvent):
        return [Step(Gauss(sigma=event.noise_multiplier), n, sampling or Sampling())]
    if isinstance(event, dp_event.LaplaceDpEvent):
        return [Step(Laplace(scale=event.noise_multiplier), n, sampling or Sampling())]
    raise SystemExit(f"no step of wpriv corresponds to {type(event).__name__} here")


def main() -> None:
    training = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(noise_multiplier=1.0))
    event = dp_event.ComposedDpEvent([dp_event.SelfComposedDpEvent(training, 1000), dp_event.LaplaceDpEvent(20.0)])

    process = Process(tuple(steps_of(event)))
    answer = curve(process).at(delta=1e-5)
    theirs = pld.PLDAccountant().compose(event).get_epsilon(1e-5)
    print(f"wpriv:         {answer.epsilon.lower:.6f} <= eps <= {answer.epsilon.upper:.6f}")
    print(f"dp_accounting: eps <= {theirs:.6f}")


if __name__ == "__main__":
    if dp_accounting is None:
        print("dp_accounting is not installed: pip install dp-accounting")
    else:
        main()
