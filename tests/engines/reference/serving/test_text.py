"""Incremental text equals the text of all tokens, however the tokens and characters are cut."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models

from engines.reference.serving.text import TextStream, Tokenizer
from tests.engines.reference.scripted import EOS, byte_tokenizer

TOKENIZER = byte_tokenizer()


def pieces(data: list[int], cuts: list[int], stop: tuple[str, ...] = ()) -> tuple[list[str], int]:
    """The texts released while `data` is pushed in chunks of the sizes `cuts`, and how many tokens counted."""
    stream, texts, kept, at = TextStream(TOKENIZER, stop), [], 0, 0
    for size in [*cuts, len(data)]:
        chunk, at = data[at : at + size], at + size
        piece = stream.push(chunk)
        texts.append(piece.text)
        kept += piece.kept
        if piece.stopped:
            return texts, kept
    return [*texts, stream.flush()], kept


sizes = st.lists(st.integers(1, 9), max_size=60)


@given(st.text(max_size=80), sizes)
def test_text_comes_out_whole_and_never_with_half_a_character(text: str, cuts: list[int]) -> None:
    texts, kept = pieces([*text.encode()], cuts)
    assert "".join(texts) == text
    assert kept == len(text.encode())
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in texts)


@given(st.lists(st.integers(0, EOS), max_size=120), sizes)
def test_any_bytes_give_the_text_of_all_tokens(data: list[int], cuts: list[int]) -> None:
    texts, _ = pieces(data, cuts)
    assert "".join(texts) == TOKENIZER.decode(data)


@given(st.text("abé€", max_size=40), st.lists(st.text("abé€", min_size=1, max_size=4), min_size=1, max_size=3), sizes)
def test_text_ends_before_the_first_stop_string(text: str, stops: list[str], cuts: list[int]) -> None:
    texts, kept = pieces([*text.encode()], cuts, tuple(stops))
    # The first to be complete wins; of those complete with the same character, the one that begins first.
    ends = [text.index(stop) + len(stop) for stop in stops if stop in text]
    if not ends:
        assert ("".join(texts), kept) == (text, len(text.encode()))
        return
    end = min(ends)
    begin = min(text.index(stop) for stop in stops if stop in text[:end])
    assert ("".join(texts), kept) == (text[:begin], len(text[:end].encode()))


def test_words_keep_their_spaces_where_a_decoder_strips_the_first() -> None:
    """SentencePiece models write a space as the beginning of a word, and the decoder drops the text's first one."""
    vocabulary = {"▁go": 0, "▁on": 1, "!": 2}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.decoder = decoders.Metaspace()
    tokenizer = Tokenizer(backend)
    data = [0, 1, 2] * 30
    stream = TextStream(tokenizer)
    text = "".join(stream.push([token]).text for token in data) + stream.flush()
    assert text == tokenizer.decode(data)
    assert text.startswith("go on! go on!")


def test_text_is_not_held_back_longer_than_needed() -> None:
    stream = TextStream(TOKENIZER, ("stop",))
    assert [stream.push([byte]).text for byte in b"a stub"] == ["a", " ", "", "", "stu", "b"]
    assert TextStream(TOKENIZER).push([*"ab€".encode()[:-1]]).text == "ab"


def test_special_tokens_are_not_text() -> None:
    stream = TextStream(TOKENIZER)
    assert stream.push([EOS, ord("a"), EOS]).text == "a"
    assert TOKENIZER.token_text(EOS) == "<eos>"


@pytest.mark.parametrize("content", [None, "{", "{}"])
def test_a_folder_without_a_tokenizer_is_a_value_error(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path)
