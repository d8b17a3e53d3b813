import pytest

from engines.messages import error_message, one_line


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"error": {"message": "too\\n long"}}', "too long"),
        ('{"error": "plain"}', "plain"),
        ('{"error": {"code": 400}}', '{"error": {"code": 400}}'),
        ("[1]", "[1]"),
        ("<html>\n502</html>", "<html> 502</html>"),
    ],
)
def test_error_messages_of_any_shape_become_one_line(body: str, message: str) -> None:
    assert error_message(body) == message


def test_a_line_has_no_breaks_and_an_end() -> None:
    assert one_line(" a\n\tb\r\n ") == "a b"
    assert len(one_line("word " * 500)) == 300
