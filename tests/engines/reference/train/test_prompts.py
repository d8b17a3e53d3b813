import json
from itertools import islice

import pytest

from engines.reference.train import openers
from engines.reference.train.prompts import ChatFrame, encode, from_file, self_written, vocabulary_words


def test_the_frame_is_the_chat_template_without_the_user_turn(source):
    frame = ChatFrame.of(source.tokenizer)
    assert frame.before == "<s>user\n"
    assert source.tokenizer.decode(frame.after) == "</s>\n<s>assistant\n"
    assert frame.after[0] == 2


def test_a_tokenizer_without_a_template_is_refused():
    with pytest.raises(ValueError, match="no chat template"):
        ChatFrame.of(object())


def test_openings_repeat_with_the_seed_and_cover_the_four_groups(source):
    frame = ChatFrame.of(source.tokenizer)
    first = list(islice(self_written(source.tokenizer, frame, 5, 40), 40))
    again = list(islice(self_written(source.tokenizer, frame, 5, 40), 40))
    other = list(islice(self_written(source.tokenizer, frame, 6, 40), 40))
    assert first == again != other
    assert not any(opening.complete for opening in first)
    before = len(encode(source.tokenizer, frame.before))
    assert all(before < len(opening.tokens) <= before + 40 for opening in first)
    assert len(set(first)) > 30


def test_every_opener_can_be_filled():
    values = {"word": "w", "Word": "W", "verb": "v", "name": "n", "mood": "m", "number": 3}
    for group in openers.TASKS.values():
        assert all("{" not in opener.format(**values) for opener in group)


def test_vocabulary_words_are_plain_words_after_a_space():
    class Vocabulary:
        def get_vocab(self):
            return {"Ġriver": 0, "Ġthe": 1, "river": 2, "ĠParis": 3, "Ġnaïve": 4, "▁stone": 5, "Ġx1yz": 6}

    assert vocabulary_words(Vocabulary()) == ["river", "stone"]


def test_prompts_from_a_file_are_complete_and_long_ones_are_left_out(source, tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text(json.dumps({"prompt": "hello"}) + "\n\n" + json.dumps({"prompt": "x" * 50}) + "\n")
    found = from_file(file, source.tokenizer, ChatFrame.of(source.tokenizer), limit=20)
    assert [source.tokenizer.decode(opening.tokens) for opening in found] == ["<s>user\nhello"]
    assert found[0].complete


@pytest.mark.parametrize("line", ["{", '{"text": "a"}', '{"prompt": ""}', '["a"]'])
def test_a_bad_line_is_named(source, tmp_path, line):
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "fine"}\n' + line)
    with pytest.raises(ValueError, match="line 2"):
        from_file(file, source.tokenizer, ChatFrame.of(source.tokenizer), limit=20)
