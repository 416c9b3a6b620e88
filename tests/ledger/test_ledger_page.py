"""The page of a ledger: what it shows, who may write, and under which names it answers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("sqlalchemy")
pytest.importorskip("starlette")
pytest.importorskip("httpx2")

from starlette.testclient import TestClient

from tests.command_line import call
from wpriv.config import plain_words
from wpriv.errors import MissingResource, UsageError
from wpriv.ledger import page
from wpriv.ledger.charter import process_of
from wpriv.ledger.filters import Limit
from wpriv.ledger.overview import Overview, sentence
from wpriv.ledger.service import Ledger, Refused

TOKEN = "a-token-of-the-tests"
HOME = "http://127.0.0.1:8787"


@pytest.fixture
def ledger(tmp_path):
    """A ledger with releases of two actors in two scopes, a reservation, and a refusal."""
    url = f"sqlite:///{tmp_path}/b.db"
    about = {"scopes": ["sales:mu=0.1"], "partitions": ["sales:region=north,south"], "unit": "one customer"}
    with Ledger.create(url, eps=1, delta=1e-6, rule="gauss", **about) as book:
        book.spend("gauss sigma=100 n=10", key="july", actor="dashboard", reason="weekly <report>")
        book.spend("gauss sigma=100", actor="<b>research</b>", scope="sales:region=north")
        book.reserve("gauss sigma=50", scope="sales")
        with pytest.raises(Refused):
            book.spend("gauss sigma=2", actor="research")
        yield book


@pytest.fixture
def client(ledger):
    return TestClient(page.application(ledger.store.url), base_url=HOME)


@pytest.fixture
def writer(ledger):
    return TestClient(page.application(ledger.store.url, token=TOKEN), base_url=HOME)


def test_the_page_shows_what_is_left_by_whom_and_what_was_refused(client, ledger):
    answer = client.get("/")
    assert answer.status_code == 200
    # 10/100^2 and 1/100^2 of T = .05602896 (T3), and 1/50^2 + 1/100^2 of .1^2
    for word in (
        "97.32% left of (1, 1e-6)-DP",
        "95% left of 0.1-GDP",
        "1.785%",
        "0.1785%",
        "5% of T of sales",
        "dashboard",
        "one customer",
        "1 reserved",
        "region",
    ):
        assert word in answer.text
    assert "left. Nothing was spent" in answer.text
    assert "This page only reads" in answer.text


@pytest.mark.parametrize("path", ["/", "/overview", "/fixed"])
def test_no_other_request_reads_new_entries_while_a_page_is_filled(client, monkeypatch, path):
    fill, held = page.Page.filled, []

    def filled(self, *values):
        held.append(self.lock.locked())
        return fill(self, *values)

    monkeypatch.setattr(page.Page, "filled", filled)
    assert client.get(path).status_code == 200
    assert held == [True]


def test_what_others_wrote_is_escaped(client):
    text = client.get("/").text
    assert "&lt;b&gt;research&lt;/b&gt;" in text
    assert "<b>" not in text
    assert "weekly &lt;report&gt;" in text


def test_the_plot_ends_at_what_is_left(client, ledger):
    text = client.get("/overview").text
    paths = re.findall(r'<path class="line line\d" d="(M[^"]*H708)"', text)
    heights = [float(re.findall(r"V([\d.]+)H708$", path)[0]) for path in paths]
    left = [1 - (height - 12) / 200 for height in heights]
    assert left == pytest.approx([1 - 0.0015 / 0.05602896, 1 - 0.0005 / 0.01], abs=0.001)


def test_new_releases_and_their_end_are_read_on(client, ledger):
    client.get("/overview")
    name = ledger.spend("gauss sigma=70", actor="audit").release
    assert "audit" in client.get("/overview").text
    ledger.done(name)
    assert "1 done" in client.get("/overview").text


def test_a_planned_release_is_charged_on_paper_only(client, ledger):
    head, before = ledger.head(), ledger.status()
    text = client.get("/cost", params={"words": "gauss sigma=100 n=10", "scope": "all"}).text
    assert "takes 1.785% of T" in text
    assert f"{ledger.fits('gauss sigma=100')} of its steps in one release" in text
    assert "refused by scope sales" in client.get("/cost", params={"words": "gauss sigma=9", "scope": "sales"}).text
    assert "did you mean" in client.get("/cost", params={"words": "guass sigma=9"}).text
    assert "takes 1.785% of T" in client.get("/", params={"words": "gauss sigma=100 n=10"}).text
    assert (ledger.head(), ledger.status()) == (head, before)


def test_costs_are_what_a_spend_books(ledger):
    costs = {cost.scope: cost for cost in ledger.cost("gauss sigma=60", scope="sales:region=north")}
    before = {(account.scope, account.name): account.left for account in ledger.status().accounts}
    ledger.spend("gauss sigma=60", scope="sales:region=north")
    for account in ledger.status().accounts:
        shares = {name: (share, left) for name, share, left in costs[account.scope].accounts}
        share, left = shares[account.name]
        assert left == account.left
        assert share == pytest.approx(before[account.scope, account.name] - account.left, abs=1e-14)


@pytest.fixture
def lowered(tmp_path):
    """A ledger that promises (3, 1e-6)-DP, where (1, 1e-6)-DP is in force, and a limit that stands twice."""
    url, limits = f"sqlite:///{tmp_path}/c.db", ["mu=1", "mu=1"]
    with Ledger.create(url, eps=1, delta=1e-6, ceiling="eps=3,delta=1e-6", limits=limits, rule="gauss") as book:
        book.spend("gauss sigma=100 n=56", actor="reports")
        yield book


def test_shares_are_those_of_the_limit_in_force(lowered):
    """T of (1, 1e-6) is .05602896 by T3, of which 56 releases of 1/100^2 take 9.9948%."""
    client = TestClient(page.application(lowered.store.url), base_url=HOME)
    text = client.get("/").text
    assert "90% left of (1, 1e-6)-DP for all" in text
    assert "Everything ever released from scope all is (3, 1e-6)-DP" in text
    assert "The limit is (1, 1e-6)-DP at present, and may rise to (3, 1e-6)-DP." in text
    assert "9.995% of T of all" in text
    assert 'data-label="of all (1, 1e-6)-DP">9.995%' in text
    assert (
        "takes 9.995% of T, then 80.01% is left" in client.get("/cost", params={"words": "gauss sigma=100 n=56"}).text
    )


def test_of_a_limit_that_fell_below_what_is_booked_nothing_is_left(lowered):
    lowered.limit(Limit(0.1, 1e-6))
    assert lowered.status(fixed=False).accounts[0].left == 0.0
    with pytest.raises(Refused) as refused:
        lowered.spend("gauss sigma=1000")
    assert refused.value.left == (("T", 0.0),)
    overview = Overview(lowered)
    overview.update()
    # the axis of the picture is 28 above its lower end
    assert overview.picture().lines[0][1].endswith("V212.0H708")
    assert overview.rows()[0].limits[0].share == 0.0


def test_the_cost_under_a_union_is_that_of_a_filter_which_admits_it(tmp_path):
    """At (1, 1e-6) T admits more Gaussian releases than B, whose account at the ceiling has room for all of them."""
    with Ledger.create(
        f"sqlite:///{tmp_path}/u.db", eps=1, delta=1e-6, ceiling="eps=3,delta=1e-6", rule="union"
    ) as book:
        ((name, share, left), _) = book.cost(f"gauss sigma=100 n={book.fits('gauss sigma=100')}")[0].accounts
    assert (name, share) == ("T", pytest.approx(1, abs=2e-3))
    assert left == pytest.approx(1 - share)


def test_shares_and_refusals_of_a_union_are_of_the_filter_that_still_holds(tmp_path):
    with Ledger.create(f"sqlite:///{tmp_path}/u.db", eps=1, delta=1e-6, rule="union") as book:
        while not any(account.closed for account in book.status(fixed=False).accounts):
            book.spend("gauss sigma=30")
        overview = Overview(book)
        overview.update()
        open_accounts = [account for account in book.status(fixed=False).accounts if not account.closed]
        with pytest.raises(Refused) as refused:
            book.spend("gauss sigma=1")
        assert refused.value.left == tuple((account.name, account.left) for account in open_accounts)
    ((_, count, (share,)),) = overview.actors()
    assert count == len(overview.releases)
    assert float(share[:-1]) == pytest.approx(100 * (1 - open_accounts[0].left), abs=0.02)


def test_the_database_of_the_page_refuses_to_write(url):
    Ledger.create(url, eps=1, delta=1e-6, rule="gauss").close()
    with Ledger(url, read_only=True) as reader:
        assert reader.fits("gauss sigma=100") == 560
        with pytest.raises(MissingResource, match=r"read-?only"):
            reader.spend("gauss sigma=100")


@pytest.mark.parametrize(
    "terms",
    [
        {"rule": "union"},
        {"rule": "basic"},
        {"rule": "rdp", "limits": ["rho=0.01"]},
        {"plan": "gauss sigma=1 n=20 poisson 0.01"},
    ],
)
def test_every_rule_has_a_page(tmp_path, terms):
    url = f"sqlite:///{tmp_path}/b.db"
    with Ledger.create(url, eps=1, delta=1e-6, **terms) as book:
        book.spend("laplace scale=200")
        if "plan" in terms:
            book.spend("gauss sigma=1 n=5 poisson 0.01", planned=True)
        client = TestClient(page.application(url), base_url=HOME)
        answer = client.get("/", params={"words": "laplace scale=200"})
        assert answer.status_code == 200
        assert "fits; nothing was spent" in answer.text
        assert (", or of the other filter: T " in answer.text) == (terms.get("rule") == "union")
        assert (", planned<" in answer.text) == ("plan" in terms)
        assert client.get("/fixed").status_code == 200


def test_a_ledger_that_was_cut_behind_the_page_is_no_longer_shown(client, ledger):
    client.get("/")
    ledger.spend("gauss sigma=100")
    assert client.get("/").status_code == 200
    with ledger.store.transaction() as connection:
        connection.exec_driver_sql("DROP TRIGGER entry_no_delete")
        connection.exec_driver_sql("DELETE FROM entry WHERE seq = 5")
        connection.exec_driver_sql("UPDATE ledger SET head_seq = 4")
    answer = client.get("/")
    assert answer.status_code == 503
    assert "restored from a backup" in answer.text


def test_a_read_only_cost_under_residue_writes_no_tariff(tmp_path):
    url = f"sqlite:///{tmp_path}/r.db"
    Ledger.create(url, eps=1, delta=1e-6).close()
    before = (tmp_path / "r.db").read_bytes()
    answer = TestClient(page.application(url), base_url=HOME).get("/cost", params={"words": "laplace scale=20"})
    # the charge of Laplace noise of scale 20 at the floor T/2
    assert "of A" in answer.text
    assert (tmp_path / "r.db").read_bytes() == before


@pytest.mark.parametrize("words", ["plc/fig7-dpsgd", "gauss", "rdp-curve file=/etc/passwd", 'gauss "sigma=1'])
def test_a_request_reads_no_file(client, words):
    text = client.get("/cost", params={"words": words}).text
    assert 'class="missing"' in text
    assert "root" not in text


def test_a_token_allows_to_spend_once_for_a_key(writer, ledger):
    fields = {"words": "gauss sigma=100", "scope": "sales", "key": "august", "actor": "page"}
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json"}
    first = writer.post("/spend", data=fields, headers=headers)
    again = writer.post("/spend", data={**fields, "token": TOKEN}, headers={"Accept": "application/json"})
    assert (first.status_code, first.json()["state"], first.json()["repeated"]) == (200, "begun", False)
    assert (again.status_code, again.json()["release"], again.json()["repeated"]) == (
        200,
        first.json()["release"],
        True,
    )
    assert first.headers["hx-trigger"] == "spent"  # the rest of the page is read again at once
    assert ledger.state("august").release == first.json()["release"]
    other = writer.post("/spend", data={**fields, "words": "gauss sigma=9"}, headers=headers)
    assert (other.status_code, other.json()["kind"]) == (400, "wrong")
    refused = writer.post("/spend", data={"words": "gauss sigma=1"}, headers=headers)
    assert (refused.status_code, refused.json()["kind"]) == (409, "refused")
    assert TOKEN not in writer.get("/").text


@pytest.mark.parametrize(
    ("headers", "data"),
    [
        ({}, {}),
        ({"Authorization": "Bearer "}, {}),
        ({"Authorization": f"Basic {TOKEN}"}, {}),
        ({"Authorization": f"Bearer {TOKEN}x"}, {"token": TOKEN}),
        ({}, {"token": TOKEN[:-1]}),
        ({}, {"token": "\N{SNOWMAN}"}),
    ],
)
def test_without_the_token_nothing_is_spent(writer, ledger, headers, data):
    head = ledger.head()
    answer = writer.post("/spend", data={"words": "gauss sigma=100", **data}, headers=headers)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert ledger.head() == head


def test_a_page_without_token_file_spends_nothing(client, ledger):
    head = ledger.head()
    assert client.post("/spend", data={"words": "gauss sigma=100", "token": ""}).status_code == 403
    assert client.post("/", data={"words": "gauss sigma=100"}).status_code == 405
    assert ledger.head() == head


def test_a_long_request_is_refused(writer):
    answer = writer.post("/spend", data={"words": "x" * 70_000, "token": TOKEN})
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8787", "127.0.0.1.evil.example", "", "127.0.0.1:x", "a@127.0.0.1"]
)
def test_another_name_of_the_server_is_refused(writer, host):
    """DNS rebinding: a name of the attacker's that resolves to 127.0.0.1."""
    for answer in (writer.get("/", headers={"Host": host}), writer.post("/spend", headers={"Host": host})):
        assert answer.status_code == 421
        assert "left" not in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1:8787", "localhost:8787", "LOCALHOST", "[::1]:8787"])
def test_names_of_this_machine_are_answered(client, host):
    assert client.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "https://127.0.0.1:8787"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
    ],
)
def test_pages_of_other_origins_are_refused_even_with_the_token(writer, ledger, headers):
    head = ledger.head()
    fields = {"words": "gauss sigma=100", "token": TOKEN}
    assert writer.post("/spend", data=fields, headers=headers).status_code == 403
    assert writer.get("/cost", params=fields, headers=headers).status_code == 403
    assert ledger.head() == head


def test_the_own_origin_and_links_from_elsewhere_are_answered(writer):
    fields = {"words": "gauss sigma=100", "token": TOKEN}
    assert (
        writer.post("/spend", data=fields, headers={"Origin": HOME, "Sec-Fetch-Site": "same-origin"}).status_code == 200
    )
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert writer.get("/", headers=link).status_code == 200
    assert writer.post("/spend", data=fields, headers=link).status_code == 403


def test_nothing_is_loaded_from_elsewhere(client):
    answer = client.get("/")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
    assert "unsafe" not in policy
    sources = re.findall(r'(?:src|href|action)="([^"]*)"', answer.text)
    assert sources
    for source in sources:
        assert source == "data:," or re.match(r"/(?!/)", source)
    assert "style=" not in answer.text
    for source in ("/page.css", "/ledger.css", "/htmx.min.js"):
        answer = client.get(source)
        assert answer.status_code == 200
        assert "content-security-policy" in answer.headers
    assert "http" not in client.get("/page.css").text + client.get("/ledger.css").text


def test_a_changed_entry_is_shown_as_a_broken_ledger(client, ledger):
    with ledger.store.transaction() as connection:
        connection.exec_driver_sql("DROP TRIGGER entry_no_update")
        connection.exec_driver_sql("UPDATE entry SET kind = 'done' WHERE seq = 3")
    answer = client.get("/")
    assert answer.status_code == 503
    assert "wpriv ledger check" in answer.text


@pytest.mark.parametrize("words", ["gauss sigma=100 n=10", "gauss sigma=4 n=500 poisson 0.01 + laplace scale=20"])
def test_steps_are_shown_in_words_that_spend_reads(words):
    steps = process_of(words, "add-remove", 1).describe()
    stored = json.loads(json.dumps(steps, sort_keys=True))
    assert process_of(sentence(stored), "add-remove", 1).describe() == steps
    assert plain_words.is_sentence(sentence(stored))


def test_a_token_is_the_first_line_of_a_file(tmp_path):
    (tmp_path / "token").write_text("secret\n")
    assert page.read_token(tmp_path / "token") == "secret"
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(UsageError, match="first line"):
        page.read_token(tmp_path / "empty")
    with pytest.raises(MissingResource):
        page.read_token(tmp_path / "none")


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        ("--host 0.0.0.0", 2, "this machine alone"),
        ("--port 70000", 2, "from 0 to 65535"),
        ("--token-file none.txt", 4, "none.txt"),
    ],
)
def test_a_page_for_other_machines_is_refused(capsys, ledger, flags, code, words):
    exit_code, out, err = call(capsys, f"ledger serve {ledger.store.url} {flags}")
    assert (exit_code, out) == (code, "")
    assert words in err


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed")
def test_a_browser_runs_the_page_without_an_error(ledger, tmp_path):
    """The script fills in what ran, and the policy blocks nothing that the page needs."""
    serve = [sys.executable, "-m", "wpriv", "ledger", "serve", ledger.store.url, "--port", "0"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[0]
            browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
            browser += ["--virtual-time-budget=3000", "--enable-logging=stderr", "--v=0"]
            done = subprocess.run([*browser, "--dump-dom", address], capture_output=True, text=True, timeout=600)
        finally:
            server.terminate()
    assert "no such number is a guarantee" in done.stdout
    assert "CONSOLE" not in done.stderr
