"""Read a DpEvent of dp_accounting as a wpriv process, and compare the two libraries' eps.

Events that wpriv has no proven pair for are refused by name. Needs: pip install dp-accounting

Run: python examples/from_dp_accounting.py
"""

from wpriv import curve
from wpriv.checks.dp_events import steps_of

try:
    from dp_accounting import dp_event, pld
except ImportError:
    dp_event = None


def main() -> None:
    training = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(noise_multiplier=1.0))
    event = dp_event.ComposedDpEvent([dp_event.SelfComposedDpEvent(training, 1000), dp_event.LaplaceDpEvent(20.0)])

    process = steps_of(event, "add-remove").process()
    answer = curve(process).at(delta=1e-5)
    theirs = pld.PLDAccountant().compose(event).get_epsilon(1e-5)
    print(f"wpriv:         {answer.epsilon.lower:.6f} <= eps <= {answer.epsilon.upper:.6f}")
    print(f"dp_accounting: eps <= {theirs:.6f}")


if __name__ == "__main__":
    if dp_event is None:
        print("dp_accounting is not installed: pip install dp-accounting")
    else:
        main()
