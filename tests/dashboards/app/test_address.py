from hypothesis import given
from hypothesis import strategies as st

from dashboards.app.address import parsed, run_address, run_name, written

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(NAMES)
def test_a_run_is_found_by_its_address(name: str) -> None:
    address = run_address(name)
    assert address.count("/") == 2
    assert run_name(address) == name


def test_other_pages_name_no_run() -> None:
    assert run_name("/") is None
    assert run_name("/diff") is None


def test_empty_values_leave_the_address() -> None:
    assert written({"engine": "", "age": "7"}) == "?age=7"
    assert written({}) == ""
    assert parsed(None) == {}
    assert len(parsed("?" + "&".join(f"a{number}=1" for number in range(999)))) == 999
