"""The console in a real browser, before real nodes."""

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from console_site import (
    OPERATOR,
    PATIENCE_S,
    READER,
    VIEWS,
    Node,
    Site,
    Tab,
    answers,
    behind_a_prefix,
    browser,
    chromium,
    violations,
)

pytestmark = pytest.mark.skipif(
    chromium() is None, reason="no chromium here (Debian: apt-get install chromium)"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("console"))
    yield site
    site.stop()


@pytest.fixture(scope="module")
def chrome() -> Iterator:
    with browser() as chrome:
        yield chrome


@pytest.fixture
def tab(chrome, site: Site) -> Iterator:
    """Makes tabs with settings of their own; each must have had nothing to complain about."""
    tabs, contexts = [], []

    def make(node: Node, **settings) -> Tab:
        contexts.append(chrome.new_context(**settings))
        tabs.append(Tab(contexts[-1], node))
        return tabs[-1]

    yield make
    for context in contexts:
        context.close()
    assert [it for tab in tabs for it in tab.complaints] == []


def wait_for(read, expected) -> None:
    """Waits until `read()` is as expected; fails with what it was last."""
    deadline = time.monotonic() + PATIENCE_S
    while (last := read()) != expected and time.monotonic() < deadline:
        time.sleep(0.05)  # wait: until it is looked at again
    assert last == expected


@contextmanager
def request_in_flight(node: Node) -> Iterator[None]:
    """A long answer that is being read."""
    body = {"model": "tiny", "max_tokens": 4_000, "stream": True, "ignore_eos": True}
    body["messages"] = [{"role": "user", "content": "Tell me a long story."}]
    request = urllib.request.Request(
        f"http://127.0.0.1:{node.gateway}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        is_over = threading.Event()
        reading = threading.Thread(target=read_until, args=(response, is_over))
        reading.start()
        yield
        is_over.set()
        reading.join(timeout=30)


def read_until(response, is_over: threading.Event) -> None:
    while not is_over.is_set() and response.readline():
        pass


def test_each_view_has_a_title_and_the_focus_and_nothing_that_bars_anybody(tab, site: Site) -> None:
    """Signed in as an operator, whose views have buttons, too."""
    own = tab(site.one)
    page = own.open(OPERATOR)
    # From the last to the first, since the first one is there already.
    for view, title in reversed(VIEWS.items()):
        own.show(view)
        assert page.title() == f"{title} – one – Spillway"
        assert page.evaluate("document.activeElement.id") == "main", view
        for scheme in ["light", "dark"]:
            page.emulate_media(color_scheme=scheme)
            assert violations(page) == [], (view, scheme)


def test_the_sign_in_and_the_dialog_bar_nobody_either(tab, site: Site) -> None:
    own = tab(site.one)
    own.page.goto(site.one.console)
    own.page.get_by_label("Token").wait_for()
    assert violations(own.page) == []
    page = own.open(OPERATOR)
    own.show("regions/eu-central-1")
    page.get_by_role("button", name="Drain region eu-central-1").click()
    page.get_by_role("cell", name="draining").wait_for()
    assert violations(page) == []


def test_the_arms_of_a_split_show_how_they_do(tab, site: Site) -> None:
    """Those of the cluster's record with what this node saw of them, and no cell that is only a dash."""
    arms = [
        {"name": "old", "model": "tiny", "weight_percent": 100},
        {"name": "new", "model": "huge", "weight_percent": 0},
    ]
    site.two.put("v1/splits/chat?create=true", {"arms": arms})
    wait_for(lambda: site.two.asks("chat"), 200)
    own = tab(site.two)
    page = own.open()
    own.show("routes")
    rows = page.get_by_role("table", name="Splits").locator("tbody tr")
    cells = lambda: [row.locator("th, td").all_inner_texts() for row in rows.all()]
    wait_for(lambda: [row[4] for row in cells()], ["1", "–"])
    asked, _idle = cells()
    assert asked[:4] == ["chat", "old", "tiny", "100 %"]
    assert asked[5] == "0" and asked[7].endswith("ms") and int(asked[8]) > 0 and asked[9] == "3"
    assert violations(page) == []
    site.two.delete("v1/splits/chat")


def test_no_view_is_wider_than_the_screen(tab, site: Site) -> None:
    own = tab(site.one)
    page = own.open(READER)
    for view in VIEWS:
        own.show(view)
        for width in [360, 820, 1600]:
            page.set_viewport_size({"width": width, "height": 800})
            root = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert root == [width, width], view


def test_a_narrow_screen_has_the_views_behind_a_button(tab, site: Site) -> None:
    page = tab(site.one, viewport={"width": 360, "height": 740}).open(READER)
    link = page.get_by_role("link", name="Replicas")
    assert not link.is_visible()
    page.get_by_role("button", name="Menu").press("Enter")
    link.press("Enter")
    page.get_by_role("heading", level=1, name="Replicas").wait_for()
    assert page.evaluate("document.activeElement.id") == "main"
    assert not link.is_visible()


def test_regions_are_on_the_map_and_figures_follow_the_node(tab, site: Site) -> None:
    own = tab(site.one)
    page = own.open(READER)
    row = page.get_by_role("row", name="eu-central-1")
    requests = row.get_by_role("cell").nth(2)
    # An order of another test may just be over, and nodes that share a processor miss each other now and then.
    wait_for(page.locator(".sentence").inner_text, "healthy: serves 1 of 1 replicas; 2 of 2 voters")
    wait_for(page.locator("svg.map .dot").count, 2)
    assert "Not on the map" not in page.locator("main").inner_text()
    wait_for(requests.inner_text, "0")
    with request_in_flight(site.one):
        wait_for(requests.inner_text, "1")
    wait_for(requests.inner_text, "0")


def test_replicas_can_be_filtered_and_sorted(tab, site: Site) -> None:
    own = tab(site.one)
    page = own.open(READER)
    own.show("replicas")
    rows = page.locator("tbody tr")
    wait_for(rows.count, 2)
    page.get_by_role("button", name="Region").click()
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("Region")
    assert rows.first.get_by_role("rowheader").inner_text() == "one-tiny"
    page.get_by_role("button", name="Region").press("Enter")
    assert rows.first.get_by_role("rowheader").inner_text() == "two-tiny"
    page.get_by_label("Filter").fill("my-region")
    assert rows.count() == 1
    page.get_by_label("Filter").fill("nowhere")
    page.get_by_text("Nothing has “nowhere”.").wait_for()


def test_who_only_reads_is_offered_no_order(tab, site: Site) -> None:
    own = tab(site.one)
    page = own.open(READER)
    assert page.locator("#who").inner_text() == "rea (read)"
    for view in ["regions/eu-central-1", "replicas", "control"]:
        own.show(view)
        page.locator("tbody tr").first.wait_for()
        assert page.get_by_role("button", name="Drain").count() == 0, view
        assert page.get_by_role("button", name="Hand").count() == 0, view


def test_an_operator_drains_a_region_after_seeing_what_changes(tab, site: Site) -> None:
    own = tab(site.one)
    page = own.open(OPERATOR)
    own.show("regions/eu-central-1")
    opener = page.get_by_role("button", name="Drain region eu-central-1")
    opener.click()
    dialog = page.get_by_role("dialog", name="Drain region eu-central-1")
    dialog.get_by_role("cell", name="draining").wait_for()
    assert "Estimate:" in dialog.inner_text()
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert site.one.state_of_region("eu-central-1", READER) == "active", "nothing was ordered"
    assert opener.evaluate("button => button === document.activeElement")
    opener.click()
    dialog.get_by_role("button", name="Drain eu-central-1").click()
    page.get_by_text("Done: Drain region eu-central-1").wait_for()
    assert site.one.state_of_region("eu-central-1", READER) == "draining"
    page.get_by_role("button", name="Undrain region eu-central-1").click()
    page.get_by_role("dialog").get_by_role("button", name="Undrain eu-central-1").click()
    page.get_by_text("Done: Undrain region eu-central-1").wait_for()
    assert site.one.state_of_region("eu-central-1", READER) == "active"
    own.show("control")
    page.get_by_role("cell", name="oda").first.wait_for()


def test_the_leader_hands_the_lead_over_and_then_offers_it_no_more(tab, site: Site) -> None:
    tokens = {"one": OPERATOR, "two": ""}
    leader = site.two.get("v1/node")["log"]["leader"]["node"]
    [heir] = tokens.keys() - {leader}
    own = tab(getattr(site, leader))
    page = own.open(tokens[leader])
    own.show("control")
    page.get_by_role("button", name=f"Hand the lead over to {heir}").click()
    dialog = page.get_by_role("dialog", name=f"Hand the lead over to {heir}")
    assert "no dry run" in dialog.inner_text()
    dialog.get_by_role("button", name=f"Hand over to {heir}").click()
    page.get_by_text(f"Done: Hand the lead over to {heir}").wait_for()
    page.get_by_text(f"Only the leader hands the lead over: open the console of {heir}.").wait_for()
    assert page.get_by_role("button", name="Hand").count() == 0
    wait_for(lambda: site.two.get("v1/node")["log"]["leader"]["node"], heir)


def test_without_tokens_the_console_may_order_and_other_pages_may_not(tab, site: Site) -> None:
    own = tab(site.two)
    page = own.open()
    own.show("replicas")
    page.get_by_role("button", name="Drain replica two-tiny").click()
    page.get_by_role("dialog").get_by_role("button", name="Drain two-tiny").click()
    page.get_by_text("Done: Drain replica two-tiny").wait_for()
    page.get_by_role("button", name="Undrain replica two-tiny").click()
    page.get_by_role("dialog").get_by_role("button", name="Undrain two-tiny").click()
    page.get_by_text("Done: Undrain replica two-tiny").wait_for()
    # A page of another listener of this machine, which is as near as a page can come.
    page.goto(f"http://127.0.0.1:{site.two.gateway}/livez")
    order = f"{site.two.url}/v1/regions/my-region/drain"
    for options in [
        '{method: "POST", headers: {"x-spillway-console": "1"}}',
        '{method: "POST", mode: "no-cors", body: "{}"}',
    ]:
        page.evaluate(f"fetch({json.dumps(order)}, {options}).catch(error => String(error))")
    assert site.two.state_of_region("my-region") == "active"
    # The browser has told of what it stopped, which is what this test wants.
    own.complaints.clear()


def test_a_token_is_wrong_or_right_and_stays_in_its_tab(tab, site: Site) -> None:
    own = tab(site.one)
    own.page.goto(site.one.console)
    own.page.get_by_label("Token").fill("wrong")
    own.page.get_by_role("button", name="Sign in").click()
    own.page.get_by_text("the token is unknown, revoked or expired").wait_for()
    page = own.open(READER)
    assert page.evaluate("Object.values(sessionStorage)") == [READER]
    assert READER not in page.evaluate("JSON.stringify(localStorage) + document.cookie + location.href")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Token").wait_for()
    assert page.evaluate("Object.values(sessionStorage)") == []
    own.complaints = [it for it in own.complaints if "401" not in it]


def test_it_works_below_a_path_of_a_proxy(tab, site: Site) -> None:
    own = tab(site.one)
    with behind_a_prefix(site.one) as own.console:
        # Without the slash at the end, as people type it.
        page = own.open(READER)
        own.show("limits")
        assert page.url == f"{own.console}/#/limits"
        page.close()


def test_an_explanation_begins_with_a_sentence(tab, site: Site) -> None:
    own = tab(site.one)
    page = own.open(READER)
    own.show("explain")
    page.get_by_label("Prompt").fill("Where would this go?")
    page.get_by_role("button", name="Explain").click()
    page.get_by_text("The request would go to replica one-tiny of this region").wait_for()
    assert page.get_by_role("row", name="one-tiny").get_by_role("cell", name="chosen").count() == 1
    page.get_by_label("Model").fill("no-such-model")
    page.get_by_role("button", name="Explain").click()
    alert = page.get_by_role("alert").filter(has_text="no-such-model")
    alert.wait_for()
    # A question that can't be answered is an error of HTTP, too.
    own.complaints = [it for it in own.complaints if "422" not in it]


def row_of(page, request_id: str):
    """The row of a request, whose id shows above its time."""
    return page.locator(f'tr:has([title="{request_id}"])')


def reason_of(node: Node, request_id: str) -> str:
    """The meaning that the node's API gives the reason for a request's replica, as it follows a colon."""
    name = node.get(f"v1/requests?id={request_id}", READER)["requests"][0]["reason"]
    kinds = {it["kind"]: it["reasons"] for it in node.get("v1/reasons", READER)["kinds"]}
    text = next(it["text"] for it in kinds["replica"] if it["name"] == name)
    return text[0].lower() + text[1:]


def test_reasons_are_worded_as_the_node_words_them(tab, site: Site) -> None:
    own = tab(site.one)

    def reworded(route) -> None:
        answer = route.fetch()
        document = answer.json()
        # Before the sign-in the answer is an error.
        for kind in document.get("kinds", []):
            for it in kind["reasons"]:
                it["text"] = f"Other words for {it['name']}"
        route.fulfill(response=answer, json=document)

    own.page.route("**/v1/reasons", reworded)
    page = own.open(READER)
    own.show("explain")
    page.get_by_role("button", name="Explain").click()
    page.get_by_text("The request would go to replica one-tiny of this region (other words for ").wait_for()


def test_a_request_appears_as_it_ends_and_a_drawer_says_where_it_went(tab, site: Site) -> None:
    own = tab(site.one)
    page = own.open(READER)
    own.show("requests")
    assert site.one.ask("asked-while-looking") == 200
    opener = row_of(page, "asked-while-looking").get_by_role("button")
    opener.click()
    drawer = page.get_by_role("dialog", name="200 from one-tiny")
    drawer.get_by_text(f"It went to eu-central-1/one-tiny: {reason_of(site.one, 'asked-while-looking')}.").wait_for()
    assert violations(page) == []
    # Its address leads back to it, in another tab too.
    link = page.url
    page.keyboard.press("Escape")
    drawer.wait_for(state="hidden")
    assert "request=" not in page.url
    assert opener.evaluate("button => button === document.activeElement")
    other = tab(site.one)
    other.open(READER).goto(link)
    other.page.get_by_role("dialog").get_by_text("asked-while-looking").wait_for()


def test_filters_are_those_of_the_node_and_stay_in_the_address(tab, site: Site) -> None:
    own = tab(site.one)
    page = own.open(READER)
    own.show("requests")
    assert site.one.ask("went-well") == 200
    assert site.one.asks("no-such-model") == 404
    row_of(page, "went-well").wait_for()
    page.get_by_label("Status").select_option("failed")
    row_of(page, "went-well").wait_for(state="detached")
    page.get_by_role("cell", name="404").first.wait_for()
    assert page.url.endswith("?failed=true")
    page.get_by_role("button", name="Clear filters").click()
    page.get_by_label("Model").fill("no-such-model")
    page.get_by_label("Model").press("Enter")
    page.get_by_text("No request like that has ended yet.").wait_for()
    page.reload()
    page.get_by_text("No request like that has ended yet.").wait_for()
    assert page.get_by_label("Model").input_value() == "no-such-model"


def test_rows_stay_where_they_are_while_they_are_paused(tab, site: Site) -> None:
    own = tab(site.one)
    page = own.open(READER)
    own.show("requests")
    assert site.one.ask("before-the-pause") == 200
    row_of(page, "before-the-pause").wait_for()
    page.get_by_role("button", name="Pause").click()
    assert site.one.ask("during-the-pause") == 200
    # The page follows the node, so that a table that does not is one that waits.
    seen = page.evaluate("document.querySelector('#connection').dataset.state")
    page.wait_for_timeout(2_500)  # wait: two looks that must not happen
    assert (seen, row_of(page, "during-the-pause").count()) == ("live", 0)
    page.get_by_role("button", name="Go on").click()
    row_of(page, "during-the-pause").wait_for()


def test_a_request_is_found_by_its_id_on_whichever_node_it_ended(tab, site: Site) -> None:
    assert site.one.ask("sent-by-a-customer") == 200
    own = tab(site.two)
    page = own.open()
    page.get_by_label("Find a request id").fill("sent-by-a-customer")
    page.get_by_label("Find a request id").press("Enter")
    page.get_by_role("dialog").get_by_text("on node one").wait_for()
    assert "#/requests/sent-by-a-customer" in page.url
    assert page.get_by_role("heading", level=1).inner_text() == "Request sent-by-a-customer"
    page.keyboard.press("Escape")
    page.get_by_label("Find a request id").fill("nobody-sent-this")
    page.get_by_label("Find a request id").press("Enter")
    page.get_by_text("No node remembers a request with this id.").wait_for()
    assert violations(page) == []


@contextmanager
def requests_at(node: Node) -> Iterator[None]:
    """A few requests a second, again and again."""
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.wait(0.3):
            node.ask("again-and-again")

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        is_over.set()
        asking.join(timeout=30)


def requests_per_s(page) -> float:
    text = page.locator(".signals > div", has_text="Requests/s").locator("dd").first.inner_text()
    return float(text) if text != "–" else 0.0


def test_the_signals_are_those_of_the_cluster_or_of_this_region(tab, site: Site) -> None:
    own = tab(site.two)
    page = own.open()
    with requests_at(site.one):
        wait_for(lambda: requests_per_s(page) > 0, True)
        page.get_by_role("button", name="This region").click()
        wait_for(lambda: requests_per_s(page), 0.0)
        assert page.url.endswith("?scope=region")
        page.reload()
        page.locator("#connection[data-state=live]").wait_for()
        assert page.get_by_role("button", name="This region").get_attribute("aria-pressed") == "true"
        page.get_by_role("button", name="Cluster").click()
        wait_for(lambda: requests_per_s(page) > 0, True)


def test_the_first_screen_has_the_signals_and_the_map(tab, site: Site) -> None:
    page = tab(site.two, viewport={"width": 1280, "height": 800}).open()
    for part in [".sentence", ".signals", "svg.map"]:
        box = page.locator(part).bounding_box()
        # Below the map there is room for what is wrong.
        assert box["y"] + box["height"] < 600, part
    for dot in page.locator("svg.map .dot").all():
        [x, right] = dot.evaluate("it => [it.getBoundingClientRect().left, it.getBoundingClientRect().right]")
        assert x > 184 and right < 1280


def test_no_table_is_cut_at_1280_pixels(tab, site: Site) -> None:
    own = tab(site.two, viewport={"width": 1280, "height": 800})
    page = own.open()
    assert site.two.ask("for-a-row") == 200
    for view in VIEWS:
        own.show(view)
        page.locator("#connection[data-state=live]").wait_for()
        assert page.locator(".table.cut-right").count() == 0, view


def test_an_administrator_makes_limits_rotates_and_revokes_a_key(tab, site: Site) -> None:
    own = tab(site.two)
    page = own.open()
    own.show("limits")
    page.get_by_role("button", name="Create a key").click()
    form = page.get_by_role("dialog", name="Create a key")
    form.get_by_label("Name", exact=True).fill("acme-1")
    form.get_by_label("Tenant", exact=True).fill("acme")
    form.get_by_role("button", name="Create", exact=True).click()
    form.get_by_text("tenant acme does not exist").wait_for()
    form.get_by_label("Make the tenant if it is new").check()
    assert violations(page) == []
    form.get_by_role("button", name="Create", exact=True).click()
    secret = page.get_by_role("dialog", name="Secret of acme-1").locator("code").inner_text()
    assert secret.startswith("sw_acme-1_")
    page.get_by_role("button", name="Done").click()
    page.get_by_role("button", name="acme-1", exact=True).click()
    drawer = page.get_by_role("dialog", name="Key acme-1")
    drawer.get_by_role("button", name="Set limits").click()
    form = page.get_by_role("dialog", name="Set a limit")
    form.get_by_label("Requests per minute").fill("600")
    form.get_by_role("button", name="Review").click()
    review = page.get_by_role("dialog", name="Limit key:acme-1")
    review.get_by_role("cell", name="600").wait_for()
    review.get_by_role("button", name="Set the limit").click()
    drawer.get_by_text("600 requests/min").wait_for()
    assert site.two.get("v1/limits/key:acme-1")["item"]["record"]["requests_per_min"] == 600
    drawer.get_by_role("button", name="Rotate key acme-1").click()
    page.get_by_role("dialog", name="Rotate key acme-1").get_by_role("button", name="Rotate").click()
    page.get_by_role("dialog", name="Secret of acme-2").wait_for()
    page.get_by_role("button", name="Done").click()
    old, new = (site.two.get(f"v1/keys/{key}")["item"]["record"] for key in ["acme-1", "acme-2"])
    assert (old["tenant"], new["tenant"]) == ("acme", "acme")
    assert old["expires_ms"] and new["expires_ms"] is None
    drawer.get_by_role("button", name="Revoke key acme-1").click()
    review = page.get_by_role("dialog", name="Revoke key acme-1")
    review.get_by_role("cell", name="is_revoked").wait_for()
    review.get_by_role("button", name="Revoke acme-1").click()
    page.get_by_text("Done: Revoke key acme-1").wait_for()
    assert site.two.get("v1/keys/acme-1")["item"]["info"]["is_revoked"]
    drawer.get_by_text("revoked").first.wait_for()
    assert violations(page) == []
    # A refused name and a missing tenant are errors of HTTP, too.
    own.complaints = [it for it in own.complaints if "422" not in it]


def test_what_was_used_is_a_chart_by_day(tab, site: Site) -> None:
    assert site.two.ask("to-be-counted") == 200
    page = tab(site.two).open()
    page.goto(f"{site.two.console}#/limits?by=requests")
    today = time.strftime("%Y-%m-%d", time.gmtime())
    chart = page.get_by_role("img", name="Requests by day")
    wait_for(lambda: today in (chart.get_attribute("aria-label") or ""), True)
    assert chart.locator("rect").count() == 30
    page.get_by_label("Show").select_option("Cost")
    page.get_by_role("img", name="Cost by day").wait_for()
    assert "by=cost" in page.url


def test_a_beginning_that_many_requests_share_is_hot_and_forks_where_they_differ(tab, site: Site) -> None:
    own = tab(site.one)
    page = own.open(READER)
    own.show("prompts")
    beginning = "You answer questions about the rules of a library. " * 80
    for index in range(24):
        # Two questions, asked again and again, so that both become hot behind what they share.
        assert site.one.ask(f"hot-{index}", beginning + ["When is it open? ", "Who may borrow? "][index % 2] * 80) == 200
    trie = page.get_by_role("table", name="Hottest beginnings of prompts")
    forks = trie.get_by_role("rowheader").filter(has_text="└")
    wait_for(forks.count, 2)
    whole = trie.get_by_role("rowheader").filter(has_not_text="└").first.inner_text()
    assert whole.startswith("1 to "), whole
    # Each of the two goes on from the end of what they share.
    begins = {text.strip().removeprefix("└ ").split(" ")[0] for text in forks.all_inner_texts()}
    assert begins == {str(int(whole.split(" ")[2]) + 1)}
    assert trie.get_by_role("row").nth(1).get_by_role("cell").nth(1).inner_text() == "eu-central-1"
    blocks = page.get_by_role("table", name="Hot blocks of regions").get_by_role("row", name="eu-central-1")
    assert int(blocks.get_by_role("cell").nth(0).inner_text()) > 8


def test_a_node_that_does_not_answer_is_named_beside_the_signals(tab, site: Site) -> None:
    page = tab(site.two).open()
    site.one.process.stop()
    page.get_by_text("Without one in eu-central-1 (").wait_for()
    site.one.again()
    wait_for(lambda: site.one.sees(2, READER) if answers(site.one) else False, True)
    page.get_by_text("Without one in eu-central-1 (").wait_for(state="hidden")


def test_a_lost_connection_is_told_and_found_again(tab, site: Site) -> None:
    own = tab(site.alone)
    page = own.open()
    for view in VIEWS:
        if not view.startswith("regions/"):
            own.show(view)
    site.alone.process.stop()
    page.get_by_text("trying again in").wait_for()
    assert "stale" in page.locator("body").get_attribute("class")
    site.alone.again()
    page.locator("#connection[data-state=live]").wait_for()
    assert page.locator("#banner").is_hidden()
    assert "stale" not in (page.locator("body").get_attribute("class") or "")
    own.complaints = [it for it in own.complaints if "ERR_" not in it]


def test_the_colours_can_be_chosen_and_are_remembered(tab, site: Site) -> None:
    page = tab(site.one, color_scheme="light").open(READER)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_label("Colours").select_option("dark")
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    page.locator("#connection[data-state=live]").wait_for()
    assert page.evaluate(ground) == dark
