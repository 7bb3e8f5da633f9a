import mongolab, servers, pytest
from hypothesis import settings, Phase
from hypothesis.stateful import run_state_machine_as_test
from holdfast.testing import CI, ledger_machine
def test_l():
    n=iter(range(10**6))
    with mongolab.fresh() as url:
        run_state_machine_as_test(ledger_machine(lambda: mongolab.with_options(url, namespace=f"c{next(n)}")), settings=settings(CI, phases=[Phase.explicit, Phase.generate]))
