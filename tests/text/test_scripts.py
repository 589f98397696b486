"""Which script a line is in, and which damage is told from sound text."""

from __future__ import annotations

import pytest

from regard.text.scripts import damage, escape, mojibake, repair, script


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("A small house.", "Latin"),
        ("Ça va, où êtes-vous ? – « Là »", "Latin"),
        ("Tôi không biết tiếng Việt", "Latin"),
        ("Маленький дом", "Cyrillic"),
        ("Ένα μικρό σπίτι", "Greek"),
        ("一座小房子", "Han"),
        ("日本語を話します", "Kana"),
        ("コンピュータ", "Kana"),
        ("ｺﾝﾋﾟｭｰﾀ", "Kana"),
        ("작은 집", "Hangul"),
        ("بيت صغير", "Arabic"),
        ("בית קטן", "Hebrew"),
        ("एक छोटा घर", "Devanagari"),
        ("บ้านหลังเล็ก", "Thai"),
        ("պատուհան", "Armenian"),
        ("ＡＢＣ", "Latin"),
        ("12 + 30 = 42 !", ""),
        ("", ""),
        ("① ½ № 😀", ""),
    ],
)
def test_a_line_has_the_script_of_its_letters(text, name):
    assert script(text) == name


def test_the_script_of_most_letters_wins():
    assert script("Мы читаем Nature каждый день") == "Cyrillic"


@pytest.mark.parametrize("text", ["a\0b", "a\x85b", "a\ufffdb", "a\ue000b", "a\ufffeb", "a\rb", "a\u2028b", "\ufeffa"])
def test_a_control_private_or_lost_character_is_seen(text):
    assert damage(text)[0] == "control-characters"


@pytest.mark.parametrize("text", ["a\tb", "می‌روم", "क्‍ष", "\u200fשלום", "soft\u00adhyphen", "a\u00a0b", "👩‍👧"])
def test_tabs_joiners_and_direction_marks_are_no_damage(text):
    assert damage(text) == ("", "")


SOUND = [
    "Où êtes-vous allé cet été ? « À la mer », dit-il… l’été dernier.",
    "CAFÉ\u00a0! L’ÉTÉ… « GARÇON\u00a0» À\u00a0«\u00a0PARIS\u00a0»",
    "Großes Maß“, sagte er. „Spaß“ – der Fuß… Äpfel, Öl, Übel: STRAẞE",
    "ÄÖÜ „Österreich“ ‚Ähre‘ MAẞ… das Ä… und das Ö“",
    "NÃO… AMANHÃ… “A MANHÃ” A IRMû, AMANHÃ” — ÀS TRÊS HORAS, AÇÕES",
    "Não, amanhã de manhã não há pão… “maçã” e irmã” às 3ª feira, nº 5 º",
    "TÔI ĐÃ… ĐÂU” CÂU… Tôi đã… ở đâu? “Ã” ỚT Ơ Ư",
    "Það er ekki gott… „Ísland“ ÞAÐ… „ÐÞ“ Ærin “ÆÐ”",
    "Ça coûte 5 €. Â, Ê, Î, Ô, Û… naïf, Noël, maïs… 12° 3² ©1999 ®",
    "În „România“ mâine… cât? hotărî… coborâ… „hotărâ”",
    "Åse ble født på Ås… «Ærlig», sa Øystein… FÅ» SÅ… BLÅ”",
    "Zażółć gęślą jaźń… „Łódź” GÓRĄ… Příliš žluťoučký kůň",
    "El Niño… ESPAÑA… ¿QUÉ? ¡SÍ! 25º C, EL AÑO… NIÑ… «Ñ»",
    "çà et là… déjà… voilà» « à » à…",
    "İstanbul’da… GÜNEŞ… Iğdır",
]


@pytest.mark.parametrize("text", SOUND)
def test_sound_text_with_accents_is_not_called_mojibake(text):
    assert not mojibake(text)


def wrong_table(text, table):
    """The text as it looks when its UTF-8 is read through the wrong table."""
    return "".join(
        bytes([byte]).decode(table) if table == "latin-1" or byte not in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else chr(byte)
        for byte in text.encode()
    )


@pytest.mark.parametrize("table", ["cp1252", "latin-1"])
@pytest.mark.parametrize(
    "text",
    [
        "un café",
        "Été",
        "l’eau",
        "“yes”",
        "5 €",
        "größer",
        "błąd źle",
        "žluťoučký",
        "Привет",
        "Ελλάδα",
        "日本語",
        "한국어",
        "شكرا",
        "שלום",
        "ภาษาไทย",
        "नमस्ते",
        "Tiếng Việt",
        "smile 😀",
        "20 °C",
        "mot\u00a0: oui",
    ],
)
def test_utf8_read_through_the_wrong_table_is_mojibake(text, table):
    assert mojibake(wrong_table(text, table))


@pytest.mark.parametrize("text", ["un café à l’été", "“größer” – 5 €", "Привет, мир", "日本語を話します"])
def test_repair_reads_misread_utf8_again(text):
    assert repair(wrong_table(text, "cp1252")) == text


@pytest.mark.parametrize("text", SOUND)
def test_repair_leaves_sound_text_as_it_is(text):
    assert repair(text) == text


@pytest.mark.parametrize(
    "text",
    [
        *("l&amp;apos;eau", "don&amp;#39;t", "caf\\u00e9", "a &amp; quot ; b", "caf\\xe9"),
        *("l &apos; eau", "don&#39;t", "&quot;yes&quot;", "&#91; 1 &#93;", "l & apos ; eau"),
    ],
)
def test_an_escape_is_seen(text):
    assert escape(text)


@pytest.mark.parametrize(
    "text",
    [
        *("AT&T", "R&D; the rest", "fish & chips; peas", "a & b;", "100 % sûr", "50%CA", "C:\\users"),
        "http://fr.wikipedia.org/wiki/Caf%C3%A9",
    ],
)
def test_signs_that_are_no_escapes_are_text(text):
    assert not escape(text)


@pytest.mark.parametrize(
    ("damaged", "sound"),
    [
        ("don&apos;t", "don't"),
        ("l&amp;#39;eau", "l'eau"),
        ("caf\\u00e9", "café"),
        ("a\0b", "ab"),
        ("a \\ud83d\\ude00 smile", "a 😀 smile"),
        ("a \\U0001F600 smile", "a 😀 smile"),
        ("half an emoji \\ud83d!", "half an emoji !"),
    ],
)
def test_repair_resolves_escapes_and_drops_controls(damaged, sound):
    assert repair(damaged) == sound
