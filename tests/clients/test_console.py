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


def test_a_request_appears_as_it_ends_and_tells_where_it_went(tab, site: Site) -> None:
    own = tab(site.one)
    page = own.open(READER)
    own.show("requests")
    assert site.one.ask("asked-while-looking") == 200
    page.get_by_role("button", name="More of the request asked-while-looking").click()
    page.get_by_text("It went to eu-central-1/one-tiny: ").wait_for()
    page.get_by_label("Failed only").check()
    page.get_by_role("button", name="More of the request asked-while-looking").wait_for(state="detached")


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
