"""Languages and the scripts that they are written in."""

import re

import regex

UNSPACED = {"bo", "dz", "ja", "km", "lo", "my", "th", "yue", "zh"}
"""Languages that put no spaces between words."""

_SCRIPTS = {  # Unicode script(s) → languages written in it
    "Latin": "af ast br bs ca ceb cs cy da de en eo es et eu fi fil fo fr fy ga gd gl ha hr ht hu "
    "id ig is it jv la lb lg ln lt lv mg ms mt nb nl nn no ns oc om pl pt qu ro rw sk sl so sq ss "
    "su sv sw tl tn tr ts vi wa wo xh yo zu",
    "Cyrillic": "be bg ce cv ky mk mn os ru sah tg tt uk",
    "Cyrillic Latin": "az kk sr uz",
    "Arabic": "ar fa ps sd ug ur",
    "Armenian": "hy",
    "Bengali": "as bn",
    "Devanagari": "hi mr ne sa",
    "Ethiopic": "am ti",
    "Georgian": "ka",
    "Greek": "el",
    "Gujarati": "gu",
    "Gurmukhi": "pa",
    "Han": "yue zh",
    "Han Hangul": "ko",
    "Han Hiragana Katakana": "ja",
    "Hebrew": "he yi",
    "Kannada": "kn",
    "Khmer": "km",
    "Lao": "lo",
    "Malayalam": "ml",
    "Myanmar": "my",
    "Oriya": "or",
    "Sinhala": "si",
    "Tamil": "ta",
    "Telugu": "te",
    "Thai": "th",
}


_NAMES = """
af:Afrikaans,am:Amharic,ar:Arabic,as:Assamese,ast:Asturian,az:Azerbaijani,be:Belarusian,bg:Bulgarian
bn:Bengali,bo:Tibetan,br:Breton,bs:Bosnian,ca:Catalan,ce:Chechen,ceb:Cebuano,cs:Czech,cv:Chuvash
cy:Welsh,da:Danish,de:German,dz:Dzongkha,el:Greek,en:English,eo:Esperanto,es:Spanish,et:Estonian
eu:Basque,fa:Persian,fi:Finnish,fil:Filipino,fo:Faroese,fr:French,fy:Western Frisian,ga:Irish
gd:Scottish Gaelic,gl:Galician,gu:Gujarati,ha:Hausa,he:Hebrew,hi:Hindi,hr:Croatian
ht:Haitian Creole,hu:Hungarian,hy:Armenian,id:Indonesian,ig:Igbo,is:Icelandic,it:Italian,ja:Japanese
jv:Javanese,ka:Georgian,kk:Kazakh,km:Khmer,kn:Kannada,ko:Korean,ky:Kyrgyz,la:Latin,lb:Luxembourgish
lg:Ganda,ln:Lingala,lo:Lao,lt:Lithuanian,lv:Latvian,mg:Malagasy,mk:Macedonian,ml:Malayalam
mn:Mongolian,mr:Marathi,ms:Malay,mt:Maltese,my:Burmese,nb:Norwegian Bokmål,ne:Nepali,nl:Dutch
nn:Norwegian Nynorsk,no:Norwegian,ns:Northern Sotho,oc:Occitan,om:Oromo,or:Odia,os:Ossetian
pa:Punjabi,pl:Polish,ps:Pashto,pt:Portuguese,qu:Quechua,ro:Romanian,ru:Russian,rw:Kinyarwanda
sa:Sanskrit,sah:Yakut,sd:Sindhi,si:Sinhala,sk:Slovak,sl:Slovenian,so:Somali,sq:Albanian,sr:Serbian
ss:Swati,su:Sundanese,sv:Swedish,sw:Swahili,ta:Tamil,te:Telugu,tg:Tajik,th:Thai,ti:Tigrinya
tl:Tagalog,tn:Tswana,tr:Turkish,ts:Tsonga,tt:Tatar,ug:Uyghur,uk:Ukrainian,ur:Urdu,uz:Uzbek
vi:Vietnamese,wa:Walloon,wo:Wolof,xh:Xhosa,yi:Yiddish,yo:Yoruba,yue:Cantonese,zh:Chinese,zu:Zulu
"""
_ENGLISH: dict[str, str] = dict(re.findall("(.+?):(.+?)[,\n]", _NAMES))
"""English names, as in Unicode's CLDR, by language code: of two letters, if there is one."""

_ISO_639_3 = """
afr:af als:sq amh:am ara:ar arb:ar asm:as aze:az azj:az bel:be ben:bn bod:bo bos:bs bre:br bul:bg
cat:ca ces:cs che:ce chv:cv cmn:zh cym:cy dan:da deu:de dzo:dz ell:el eng:en epo:eo est:et ekk:et
eus:eu fao:fo fas:fa pes:fa fin:fi fra:fr fry:fy gla:gd gle:ga glg:gl guj:gu hat:ht hau:ha heb:he
hin:hi hrv:hr hun:hu hye:hy ibo:ig ind:id isl:is ita:it jav:jv jpn:ja kan:kn kat:ka kaz:kk khk:mn
khm:km kin:rw kir:ky kor:ko lao:lo lat:la lav:lv lvs:lv lin:ln lit:lt ltz:lb lug:lg mal:ml mar:mr
mkd:mk mlg:mg mlt:mt mon:mn msa:ms mya:my nep:ne npi:ne nld:nl nno:nn nob:nb nor:no oci:oc orm:om
gaz:om nso:ns ory:or oss:os pan:pa plt:mg pol:pl por:pt pus:ps pbt:ps que:qu quy:qu ron:ro rus:ru
san:sa sin:si slk:sk slv:sl snd:sd som:so spa:es sqi:sq srp:sr ssw:ss sun:su swa:sw swh:sw swe:sv
tam:ta tat:tt tel:te tgk:tg tgl:tl tha:th tir:ti tsn:tn tso:ts tur:tr uig:ug ukr:uk urd:ur uzb:uz
uzn:uz vie:vi wln:wa wol:wo xho:xh yid:yi ydd:yi yor:yo zho:zh zsm:ms zul:zu
"""
_TWO_LETTERS: dict[str, str] = dict(re.findall(r"(\w+):(\w+)", _ISO_639_3))
"""Two-letter codes by ISO 639-3 code, as FLORES and OPUS use it."""


def base_language(lang: str) -> str:
    """Language code without script and region, of two letters if there is one.

    ``pt`` for ``pt-BR``, ``zh`` for ``zh_Hans``, ``zho`` and ``cmn_Hant``.
    """
    code = re.split("[-_]", lang.lower())[0]
    return _TWO_LETTERS.get(code, code)


def language_name(lang: str) -> str:
    """English name of a language, with its script or region: ``Portuguese (BR)`` for ``pt_BR``.

    A code without a known name stays as it is.
    """
    _, *variant = re.split("[-_]", lang)
    name = _ENGLISH.get(base_language(lang))
    return lang if name is None else name + f" ({', '.join(variant)})" * bool(variant)


def may_be_same_language(code: str, lang: str) -> bool:
    """Whether two codes may name one language: ``und`` and ``mul`` stand for any."""
    codes = {base_language(code), base_language(lang)}
    return len(codes) == 1 or not codes.isdisjoint(("und", "mul"))


def word_separator(lang: str) -> str:
    """What a language puts between words: a space, or nothing."""
    return "" if base_language(lang) in UNSPACED else " "


def is_variant(code: str, lang: str) -> bool:
    """Whether a code names a language or a variant of it (basic filtering of RFC 4647).

    ``de``, ``de-AT`` and ``deu_DE`` are variants of ``de``; ``de`` is not one of ``de-AT``.
    """
    normalized, wanted = (
        "-".join([base_language(name), *re.split("[-_]", name.lower())[1:], ""])
        for name in (code, lang)
    )
    return normalized.startswith(wanted)


def foreign_letter(lang: str) -> regex.Pattern[str] | None:
    """Pattern of a letter that is not in the language's script, or None if that is unknown."""
    for scripts, languages in _SCRIPTS.items():
        if base_language(lang) in languages.split():
            # Script extensions (scx) include letters that scripts share, as the ー of ラーメン.
            own = "".join(rf"\p{{scx={script}}}" for script in scripts.split())
            return regex.compile(rf"[^\P{{L}}{own}]")
    return None
