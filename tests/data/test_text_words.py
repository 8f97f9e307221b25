"""Words of plain text."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.data import text_words


@pytest.mark.parametrize(
  ("text", "words"),
  [
    ("Jim Henson was born.", "Jim|Henson|was|born|."),
    ("He (a man) left the U.S. today!", "He|(|a|man|)|left|the|U.S.|today|!"),
    ("Anna's 1996-08-22, e-mail a@b.de", "Anna|'s|1996-08-22|,|e-mail|a@b.de"),
    ("他在北京 lives", "他|在|北|京|lives"),
    ("Mu\u0308ller, हिन्दी", "Mu\u0308ller|,|हिन्दी"),
    ("co\u00adop \u2764\ufe0f!", "co\u00adop|\u2764\ufe0f|!"),
    ("le musée d'Orsay et l’OTAN", "le|musée|d|'|Orsay|et|l|’|OTAN"),
    ("qu'Été don't d'Sa it'S", "qu|'|Été|don't|d|'|Sa|it|'S"),
    ("Conan O'Brien met Sinéad O’Connor", "Conan|O'Brien|met|Sinéad|O’Connor"),
    ("Germany’s 'rock'n'roll'", "Germany|’s|'|rock'n'roll|'"),
    ("ANNA'S cat's 'twas o'snow", "ANNA|'S|cat|'s|'|twas|o'snow"),
    ("the players' 90's 6'4", "the|players|'|90|'s|6|'|4"),
    ("George W. Bush", "George|W.|Bush"),
    ("J. R. R. Tolkien, É. Zola", "J.|R.|R.|Tolkien|,|É.|Zola"),
    ("plan B. then IX. Then C.", "plan|B|.|then|IX|.|Then|C|."),
    ("中W. Big", "中|W|.|Big"),
    ("1,000 a2,5b 10:30 3.5", "1,000|a2,5b|10:30|3.5"),
    ("1, 2,a b:1 3:, 4,5,6", "1|,|2|,|a|b|:|1|3|:|,|4,5,6"),
    ("I met \u2066שלום\u2069 and \u200bEve", "I|met|שלום\u2069|and|Eve"),
    ("U.S.\u200b a\x00b (\u200b) \ufffd", "U.S.|a|b|(\u200b|)"),
    ("", ""),
  ],
)
def test_text_is_split_into_words(text, words):
  found = [text[a:b] for a, b in text_words.split_text(text)]
  assert "|".join(found) == words


@given(st.text())
def test_words_cover_what_tokenizers_keep(text):
  end, rest = 0, ""
  for start, stop in text_words.split_text(text):
    assert end <= start < stop
    rest += text[end:start]
    end = stop
  for character in rest + text[end:]:
    is_dropped = unicodedata.category(character) in ("Cc", "Cf")
    assert character.isspace() or is_dropped or character == "\ufffd"


@given(st.lists(st.text(min_size=1), min_size=1))
def test_joined_words_are_found_at_their_offsets(words):
  text, spans = text_words.join_words(words)
  assert [text[a:b] for a, b in spans] == words
