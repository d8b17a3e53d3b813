"""Every page in a real browser: what it shows, that it complains of nothing, and that nothing of a run comes alive."""

import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from dashboards.app.places import Places
from dashboards.app.server import open_server
from dashboards.report import write_report
from orchestrator.store import RunStore
from tests.dashboards.app.conftest import PATIENCE_MS, serve, shoot, watched
from tests.dashboards.releases import write_targets
from tests.dashboards.synthetic import HOSTILE, TIE, WINNER, synthetic_run

pytestmark = pytest.mark.browser

KINDS = ("winner", "tie", "invalid", "load", "half", "damaged", "hostile", "bare")
PAGES = (
    "/",
    "/diff?a=winner-synthetic&b=load-synthetic",
    *(f"/runs/{kind}-synthetic" for kind in KINDS),
    *(f"/trees/{kind}-synthetic" for kind in ("winner", "tie")),
)
VIEWS = ((1280, "light"), (1280, "dark"), (390, "light"), (390, "dark"))
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"]}
TEXT_COLOR = {"light": "rgb(27, 31, 39)", "dark": "rgb(231, 234, 239)"}


def open_page(page: Page, address: str) -> None:
    page.set_default_timeout(PATIENCE_MS)
    page.goto(address)
    page.wait_for_selector("#page h1")


def draw_everything(page: Page) -> int:
    """Scroll through the page until each figure is drawn; how many there are."""
    places = page.locator(".drawing").all()
    for place in places:
        place.scroll_into_view_if_needed()
        place.locator(".main-svg").first.wait_for(state="attached")
    return len(places)


def until_figures_fit(page: Page) -> None:
    """Polled from here: the pages' content security policy forbids the evaluation that wait_for_function needs."""
    fit = "[...document.querySelectorAll('.plot')].every(p => p.querySelector('svg').clientWidth === p.clientWidth)"
    for _ in range(200):
        if page.evaluate(fit):
            return
        page.wait_for_timeout(100)
    raise AssertionError("a figure is not as wide as its place after 20 s")


def check_views(page: Page, name: str) -> None:
    """In each size and scheme: figures as wide as their places, nothing wider than the window, and axe content."""
    for width, scheme in VIEWS:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.locator("body")).to_have_css("color", TEXT_COLOR[scheme])
        until_figures_fit(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = Axe().run(page, options=RULES)
        assert found.violations_count == 0, found.generate_report()
        shoot(page, f"{name}-{width}-{scheme}")


def picture(path: str) -> str:
    """A page's address as the name of its pictures."""
    return re.sub(r"\W+", "-", path.replace("-synthetic", "")).strip("-") or "list"


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES)
def test_pages_draw_fit_and_are_accessible(page: Page, served: str, path: str) -> None:
    open_page(page, served + path)
    expect(page.locator("h1")).to_have_count(1)
    figures = draw_everything(page)
    assert figures >= 17 or path != "/runs/winner-synthetic"
    check_views(page, picture(path))


@pytest.mark.slow
def test_releases_are_shown(chromium: Browser, runs: Path, tmp_path: Path) -> None:
    addresses = serve(open_server(Places(runs, write_targets(tmp_path), tmp_path / "made"), "127.0.0.1", 0))
    address = next(addresses)
    complaints: list[str] = []
    page = watched(chromium.new_page(), address, complaints)
    open_page(page, f"{address}/releases")
    expect(page.locator("#target-serving")).to_have_text("serving: ddtree-budget=15 serves")
    canary = page.locator("section", has=page.locator("#target-canary"))
    expect(canary).to_contain_text("it has 25 % of the sessions")
    expect(canary.get_by_role("button", name="Copy")).to_be_visible()
    expect(page.locator("section", has=page.locator("#target-empty"))).to_contain_text("nothing serves")
    expect(page.get_by_text("<b>here</b>")).to_be_visible()
    check_views(page, "releases")
    page.get_by_role("link", name="winner-synthetic").first.click()
    expect(page.locator("#headline")).to_contain_text("ddtree-budget=15")
    expect(page.locator("section", has=page.locator("#promotion"))).to_contain_text("--to serving --runs")
    page.close()
    addresses.close()
    assert complaints == []


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(1800)
def test_a_real_run_is_shown(chromium: Browser, measured: Path) -> None:
    (name,) = [path.name for path in measured.iterdir()]
    addresses = serve(open_server(Places(measured), "127.0.0.1", 0))
    address = next(addresses)
    for path, figures in (("/", 0), (f"/runs/{name}", 3), (f"/trees/{name}?arm=ddtree-budget=15", 1)):
        complaints: list[str] = []
        page = watched(chromium.new_page(), address, complaints)
        open_page(page, address + path)
        assert draw_everything(page) >= figures
        expect(page.get_by_role("alert")).to_have_count(0)
        check_views(page, f"real-{picture(path)[:5]}")
        page.close()
        assert complaints == []
    addresses.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["winner", "load", "half", "hostile"])
def test_reports_draw_fit_and_are_accessible(chromium: Browser, runs: Path, tmp_path: Path, kind: str) -> None:
    path = write_report(RunStore(runs / f"{kind}-synthetic"), tmp_path / "report.html")
    complaints: list[str] = []
    page = watched(chromium.new_page(), path.as_uri(), complaints)
    page.goto(path.as_uri())
    draw_everything(page)
    check_views(page, f"report-{kind}")
    page.close()
    assert complaints == []


def test_the_list_shows_every_run_and_its_verdict(page: Page, served: str) -> None:
    open_page(page, served)
    expect(page.locator("table.runs tbody tr")).to_have_count(len(KINDS))
    row = page.locator("tr", has=page.get_by_role("link", name="winner-synthetic"))
    expect(row).to_contain_text("winner")
    expect(row).to_contain_text("ddtree-budget=15")
    expect(page).to_have_title("Runs · orchestrate")


def test_a_filter_becomes_part_of_the_address(page: Page, served: str) -> None:
    open_page(page, served)
    page.get_by_label("Verdict").select_option("tie")
    expect(page.locator("table.runs tbody tr")).to_have_count(2)
    assert page.url.endswith("/?verdict=tie")
    page.get_by_label("Search").fill("nothing like it")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No run matches")).to_be_visible()
    page.go_back()
    page.go_back()
    expect(page.locator("table.runs tbody tr")).to_have_count(len(KINDS))
    open_page(page, f"{served}/?verdict=invalid")
    expect(page.locator("table.runs tbody tr")).to_have_count(1)
    expect(page.get_by_label("Verdict")).to_have_value("invalid")


def test_two_runs_are_chosen_and_compared(page: Page, served: str) -> None:
    open_page(page, served)
    page.get_by_label("Compare").select_option("winner-synthetic")
    page.get_by_label("with").select_option("load-synthetic")
    page.get_by_role("button", name="Show the differences").click()
    expect(page.get_by_role("heading", name="Two runs")).to_be_visible()
    assert page.url.endswith("/diff?a=winner-synthetic&b=load-synthetic")
    expect(page.locator("tr", has_text="workload.concurrency")).to_contain_text("[1, 2, 4]")


def test_the_run_page_says_what_was_decided(page: Page, served: str) -> None:
    open_page(page, f"{served}/runs/winner-synthetic")
    expect(page.locator("#headline")).to_contain_text("ddtree-budget=15 decodes")
    expect(page.locator(".card .gain")).to_contain_text("×")
    promotion = page.locator("section", has=page.locator("#promotion"))
    expect(promotion).to_contain_text("orchestrate promote winner-synthetic --to local")
    promotion.get_by_role("button", name="Copy").first.click()
    expect(promotion.get_by_role("status").first).not_to_be_empty()
    expect(page.locator("del").first).to_be_attached()


def test_columns_sort(page: Page, served: str) -> None:
    open_page(page, f"{served}/runs/winner-synthetic")
    arms = page.locator("table.arms tbody tr th")
    expect(arms.first).to_have_text("ddtree-budget=15")
    page.get_by_role("link", name="Acceptance length", exact=True).click()
    expect(arms.first).to_have_text("ddtree-budget=63")
    assert "sort=acceptance" in page.url
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Acceptance length")
    # The reader stays where they are, and so does the keyboard.
    expect(page.get_by_role("link", name="Acceptance length", exact=True)).to_be_focused()
    expect(page.locator("table.arms")).to_be_in_viewport()


def test_promotion_of_a_tie_is_refused_in_words(page: Page, served: str) -> None:
    open_page(page, f"{served}/runs/tie-synthetic")
    expect(page.get_by_role("heading", name="Promotion would be refused")).to_be_visible()
    expect(page.locator(".refusals")).to_contain_text("tie")
    expect(page.get_by_role("button", name="Copy")).to_have_count(0)


def test_the_limit_of_goodput_moves_by_keyboard_and_by_its_line(page: Page, served: str) -> None:
    open_page(page, f"{served}/runs/winner-synthetic")
    told, slider = page.locator("#figure-goodput .told"), page.locator("#slider-goodput")
    slider.scroll_into_view_if_needed()
    expect(told).to_contain_text("Within 40 ms")
    slider.focus()
    page.keyboard.press("Home")
    expect(told).to_contain_text("Within 0 ms")
    expect(told).to_contain_text(re.compile(r"autoregressive 0\.00"))
    line = page.locator("#figure-goodput .shapelayer path").first
    expect(line).to_be_attached()
    page.keyboard.press("End")
    expect(told).not_to_contain_text("0.00")
    box = line.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 300, y, steps=8)
    page.mouse.up()
    expect(told).not_to_contain_text(f"Within {slider.get_attribute('max')} ms")


def test_a_smaller_budget_takes_nodes_away(page: Page, served: str) -> None:
    open_page(page, f"{served}/trees/winner-synthetic?arm=ddtree-budget%3D15&step=1")
    told, slider = page.locator("#figure-tree .told"), page.locator("#slider-tree")
    expect(told).to_contain_text("Of 15 nodes, the best 15")
    marks = page.locator("#figure-tree .scatterlayer .point")
    expect(page.locator("#figure-tree .main-svg").first).to_be_attached()
    before = marks.count()
    slider.focus()
    page.keyboard.press("Home")
    expect(told).to_contain_text("the best 0: 0 of")
    assert marks.count() < before
    page.keyboard.press("End")
    expect(told).to_contain_text("the best 15")
    expect(marks).to_have_count(before)


def test_a_step_and_an_arm_are_chosen_by_address(page: Page, served: str) -> None:
    open_page(page, f"{served}/runs/winner-synthetic")
    page.get_by_role("link", name="All recorded steps").click()
    expect(page.locator("h1")).to_have_text("Draft trees")
    page.get_by_label("Arm", exact=True).select_option("ddtree-budget=7")
    expect(page.locator("h2")).to_have_text("ddtree-budget=7")
    page.get_by_label("Step", exact=True).select_option("3")
    expect(page.locator("figcaption")).to_contain_text("Step 3 of prompt chat-01")
    assert page.url.endswith("/trees/winner-synthetic?arm=ddtree-budget%3D7&step=3")
    open_page(page, f"{served}/trees/winner-synthetic?arm=none&step=99999999999")
    expect(page.locator("figcaption")).to_contain_text("Step 1")


def test_a_figure_follows_the_page_it_stands_on(page: Page, served: str) -> None:
    open_page(page, f"{served}/runs/winner-synthetic")
    expect(page.locator("#figure-forest .ytick text")).to_have_count(4)
    page.get_by_role("link", name="orchestrate", exact=True).click()
    page.get_by_role("link", name="tie-synthetic").click()
    expect(page.locator("#figure-forest .ytick text")).to_have_count(1)


def test_figures_follow_another_concurrency(page: Page, served: str) -> None:
    open_page(page, f"{served}/runs/load-synthetic")
    page.get_by_label("Figures at").select_option("4")
    expect(page.locator("#figure-goodput figcaption")).to_contain_text("4 at once")
    assert page.url.endswith("at=4")
    expect(page.locator("#headline")).to_contain_text("concurrency 1")


def test_dark_pages_have_dark_figures(page: Page, served: str) -> None:
    page.emulate_media(color_scheme="dark")
    open_page(page, f"{served}/runs/winner-synthetic")
    tick = page.locator("#figure-forest .xtick text").first
    expect(tick).to_have_css("fill", "rgb(160, 169, 184)")
    page.emulate_media(color_scheme="light")
    expect(tick).to_have_css("fill", "rgb(90, 99, 114)")


@pytest.mark.parametrize(
    "path",
    ["/", "/runs/hostile-synthetic", "/runs/winner-synthetic", "/trees/winner-synthetic?step=2", "/?text=<img src=x>"],
)
def test_markup_in_a_run_stays_text(page: Page, served: str, path: str) -> None:
    open_page(page, served + path)
    draw_everything(page)
    assert page.locator("img").count() == 0
    assert page.evaluate("[...document.scripts].every(s => !s.textContent.includes('alert('))")
    if "hostile" in path:
        expect(page.locator(".question")).to_have_text(HOSTILE)


def test_pages_that_are_not_there_say_so(page: Page, served: str) -> None:
    for path in (
        "/runs/none",
        "/trees/none",
        "/trees/..%2F..%2Fetc",
        "/runs/..%2F..%2Fetc",
        "/runs/%2Fetc",
        "/diff?a=winner-synthetic&b=../x",
        "/other",
    ):
        open_page(page, served + path)
        expect(page.locator("h1")).to_have_text("Not here")


def test_a_part_of_a_page_can_be_linked_to(page: Page, served: str) -> None:
    open_page(page, f"{served}/runs/winner-synthetic#equivalence")
    expect(page.locator("#equivalence")).to_be_in_viewport()


def test_the_keyboard_reaches_what_the_mouse_does(page: Page, served: str) -> None:
    open_page(page, f"{served}/runs/winner-synthetic")
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.textContent.slice(0, 40)"))
    assert {"Skip to the content", "Equivalence", "Copy", "Speed-up"} <= reached


def test_a_running_sweep_is_followed(chromium: Browser, tmp_path: Path) -> None:
    store = synthetic_run(tmp_path / "live-synthetic", WINNER, share=0.25, decided=False)
    addresses = serve(open_server(Places(tmp_path), "127.0.0.1", 0))
    address = next(addresses)
    complaints: list[str] = []
    page = watched(chromium.new_page(), address, complaints)
    with store.lock():
        open_page(page, address)
        expect(page.locator("#live")).to_contain_text("6 of 24 trials")
        expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "6")
        entry = store.entries()[-1]
        store.journal(entry.model_copy(update={"trial": "another", "seconds": 3.0}))
        expect(page.locator("#live")).to_contain_text("7 of 24 trials")
    expect(page.locator("#live")).to_be_empty()
    page.close()
    addresses.close()
    assert complaints == []


def test_the_longest_name_of_a_run_fits_a_phone(chromium: Browser, tmp_path: Path) -> None:
    name = "x" * 200
    synthetic_run(tmp_path / name, TIE)
    addresses = serve(open_server(Places(tmp_path), "127.0.0.1", 0))
    address = next(addresses)
    page = chromium.new_page(viewport={"width": 390, "height": 900})
    for path in ("/", f"/runs/{name}", f"/trees/{name}", f"/diff?a={name}&b={name}"):
        open_page(page, address + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    page.close()
    addresses.close()


def test_an_empty_folder_says_what_to_do(chromium: Browser, tmp_path: Path) -> None:
    addresses = serve(open_server(Places(tmp_path), "127.0.0.1", 0))
    address = next(addresses)
    complaints: list[str] = []
    page = watched(chromium.new_page(), address, complaints)
    open_page(page, address)
    expect(page.locator("#page")).to_contain_text("orchestrate sweep FILE")
    # The first run shows up by itself.
    synthetic_run(tmp_path / "first-synthetic", TIE)
    expect(page.get_by_role("link", name="first-synthetic")).to_be_visible(timeout=10_000)
    page.close()
    addresses.close()
    assert complaints == []


def test_a_token_opens_the_door_once(chromium: Browser, runs: Path) -> None:
    server = open_server(Places(runs), "0.0.0.0", 0)
    secret = server.address.partition("?token=")[2]
    addresses = serve(server)
    next(addresses)
    here = f"http://127.0.0.1:{server.wsgi.port}"
    context = chromium.new_context()
    page = context.new_page()
    answer = page.goto(f"{here}/")
    assert answer is not None
    assert answer.status == 403
    open_page(page, f"{here}/runs/winner-synthetic?token={secret}")
    assert page.url == f"{here}/runs/winner-synthetic"
    open_page(page, f"{here}/")
    context.close()
    addresses.close()
