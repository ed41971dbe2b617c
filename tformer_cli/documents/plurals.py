"""Plural categories of languages, from Unicode's CLDR.

Each row covers languages with the same rules: their categories, in CLDR's order, with the whole
numbers up to 30 in each (100 if there is none, 1.5 if it has only fractions). The tables come from
Babel's copy of CLDR, and a test compares them; Babel itself would add 10 MB.
"""

from functools import lru_cache

from tformer_cli.text.languages import main_code

_CARDINAL = {
    (
        "af an asa ast az bal bem bez bg brx ce cgg chr ckb da de dv ee el en eo et eu fi fo fur "
        "fy gl gsw ha haw hu ia io jgo jmc ka kaj kcg kk kkj kl ks ksb ku ky lb lg lij mas mgo ml "
        "mn mr nb nd ne nl nn nnh no nr ny nyn om or os pap ps rm rof rwk saq sc sd sdh seh sn so "
        "sq ss ssy st sv sw syr ta te teo tig tk tn tr ts ug ur uz ve vo vun wae xh xog yi"
    ): "one 1; other 0 2-30",
    (
        "bm bo dz hnj id ig ii ja jbo jv kde kea km ko lkt lo ms my nqo sah ses sg su th to tpi "
        "vi wo yo yue zh"
    ): "other 0-30",
    "ak am as bho bn csw doi fa ff gu hi hy kab kn ln mg nso pa pcm si ti wa zu": (
        "one 0-1; other 2-30"
    ),
    "he iu naq sat se sma smj smn sms": "one 1; two 2; other 0 3-30",
    "ca es it lld scn vec": "one 1; many; other 0 2-30",
    "be ru uk": "one 1 21; few 2-4 22-24; many 0 5-20 25-30; other 1.5",
    "blo ksh lag": "zero 0; one 1; other 2-30",
    "bs hr sr": "one 1 21; few 2-4 22-24; other 0 5-20 25-30",
    "dsb hsb sl": "one 1; two 2; few 3-4; other 0 5-30",
    "fr ht pt": "one 0-1; many; other 2-30",
    "ceb fil": "one 0-3 5 7-8 10-13 15 17-18 20-23 25 27-28 30; other 4 6 9 14 16 19 24 26 29",
    "cs sk": "one 1; few 2-4; many 1.5; other 0 5-30",
    "is mk": "one 1 21; other 0 2-20 22-30",
    "lv prg": "zero 0 10-20 30; one 1 21; other 2-9 22-29",
    "ar": "zero 0; one 1; two 2; few 3-10; many 11-30; other 100",
    "br": "one 1 21; two 2 22; few 3-4 9 23-24 29; many; other 0 5-8 10-20 25-28 30",
    "cy": "zero 0; one 1; two 2; few 3; many 6; other 4-5 7-30",
    "ga": "one 1; two 2; few 3-6; many 7-10; other 0 11-30",
    "gd": "one 1 11; two 2 12; few 3-10 13-19; other 0 20-30",
    "gv": "one 1 11 21; two 2 12 22; few 0 20; many 1.5; other 3-10 13-19 23-30",
    "kw": "zero 0; one 1; two 2 22; few 3 23; many 21; other 4-20 24-30",
    "lt": "one 1 21; few 2-9 22-29; many 1.5; other 0 10-20 30",
    "mt": "one 1; two 2; few 0 3-10; many 11-19; other 20-30",
    "pl": "one 1; few 2-4 22-24; many 0 5-21 25-30; other 1.5",
    "ro": "one 1; few 0 2-19; other 20-30",
    "shi": "one 0-1; few 2-10; other 11-30",
    "tzm": "one 0-1 11-30; other 2-10",
}
_ORDINAL = {
    (
        "af am an ar bg bs ce cs cv da de dsb el es et eu fa fi fy gl gsw he hr hsb ia id is ja "
        "km kn ko ky lt lv ml mn my nb nl no pa pl prg ps pt ru sd si sk sl sr sw ta te th tpi tr "
        "ur uz yue zh zu"
    ): "other 0-30",
    "bal fil fr ga ht hy lo ms ro vi": "one 1; other 0 2-30",
    "it lij lld sc scn vec": "many 8 11; other 0-7 9-10 12-30",
    "as bn": "one 1 5 7-10; two 2-3; few 4; many 6; other 0 11-30",
    "gu hi": "one 1; two 2-3; few 4; many 6; other 0 5 7-30",
    "az": (
        "one 1-2 5 7-8 11-12 15 17-18 20-22 25 27-28; few 3-4 13-14 23-24; many 0 6 16 26; "
        "other 9-10 19 29-30"
    ),
    "be": "few 2-3 22-23; other 0-1 4-21 24-30",
    "blo": "zero 0; one 1; few 2-6; other 7-30",
    "ca": "one 1 3; two 2; few 4; other 0 5-30",
    "cy": "zero 0 7-9; one 1; two 2; few 3-4; many 5-6; other 10-30",
    "en": "one 1 21; two 2 22; few 3 23; other 0 4-20 24-30",
    "gd": "one 1 11; two 2 12; few 3 13; other 0 4-10 14-30",
    "hu": "one 1 5; other 0 2-4 6-30",
    "ka": "one 1; many 0 2-20; other 21-30",
    "kk": "many 6 9-10 16 19-20 26 29-30; other 0-5 7-8 11-15 17-18 21-25 27-28",
    "kw": "one 1-4 21-24; many 5; other 0 6-20 25-30",
    "mk": "one 1 21; two 2 22; many 7-8 27-28; other 0 3-6 9-20 23-26 29-30",
    "mr": "one 1; two 2-3; few 4; other 0 5-30",
    "ne": "one 1-4; other 0 5-30",
    "or": "one 1 5 7-9; two 2-3; few 4; many 6; other 0 10-30",
    "sq": "one 1; many 4 24; other 0 2-3 5-23 25-30",
    "sv": "one 1-2 21-22; other 0 3-20 23-30",
    "tk": "few 6 9-10 16 19 26 29; other 0-5 7-8 11-15 17-18 20-25 27-28 30",
    "uk": "few 3 23; other 0-2 4-22 24-30",
}

_PAIRS_OF_CODES = (
    "afr:af aka:ak fat:ak twi:ak amh:am arg:an ara:ar arb:ar asm:as aze:az azj:az bel:be "
    "bul:bg bam:bm ben:bn bod:bo tib:bo bre:br bos:bs cat:ca che:ce ces:cs cze:cs cym:cy "
    "wel:cy dan:da deu:de ger:de div:dv adp:dz dzo:dz ewe:ee ell:el gre:el eng:en epo:eo "
    "spa:es ekk:et est:et baq:eu eus:eu fas:fa per:fa pes:fa fuc:ff ful:ff fin:fi fao:fo "
    "fra:fr fre:fr fry:fy gle:ga gla:gd glg:gl guj:gu prp:gu glv:gv hau:ha heb:he hin:hi "
    "hrv:hr scr:hr hat:ht hun:hu arm:hy hye:hy ina:ia ind:id ibo:ig iii:ii ido:io ice:is "
    "isl:is ita:it ike:iu iku:iu jpn:ja jav:jv jaw:jv geo:ka kat:ka kaz:kk kal:kl khm:km "
    "kan:kn kor:ko kas:ks kmr:ku kur:ku cor:kw kir:ky ltz:lb lug:lg lin:ln lao:lo lit:lt "
    "lav:lv lvs:lv mlg:mg plt:mg mac:mk mkd:mk mal:ml drh:mn khk:mn mon:mn mar:mr may:ms "
    "msa:ms zsm:ms mlt:mt bur:my mya:my nob:nb nde:nd nep:ne npi:ne dut:nl nld:nl nno:nn "
    "nor:no nbl:nr nya:ny gaz:om orm:om ori:or ory:or oss:os pan:pa pol:pl pbu:ps pus:ps "
    "por:pt roh:rm mol:ro ron:ro rum:ro rus:ru src:sc srd:sc snd:sd sme:se sag:sg sin:si "
    "slk:sk slo:sk slv:sl sna:sn som:so alb:sq als:sq sqi:sq scc:sr srp:sr ssw:ss sot:st "
    "sun:su swe:sv swa:sw swh:sw tam:ta tel:te tha:th tir:ti tuk:tk tsn:tn ton:to tur:tr "
    "tso:ts uig:ug ukr:uk urd:ur uzb:uz uzn:uz ven:ve vie:vi vol:vo wln:wa wol:wo xho:xh "
    "ydd:yi yid:yi yor:yo chi:zh cmn:zh zho:zh zul:zu"
)
_LONG_CODES = dict(pair.split(":") for pair in _PAIRS_OF_CODES.split())
"""Codes of three letters, as NLLB's begin (fra_Latn), and those that CLDR has for them."""


@lru_cache(maxsize=64)
def plural_samples(language: str, *, is_ordinal: bool) -> dict[str, tuple[str, ...]]:
    """Returns sample numbers for each category of a language; empty for an unknown language."""
    code = main_code(language)
    code = _LONG_CODES.get(code, code)
    for languages, row in (_ORDINAL if is_ordinal else _CARDINAL).items():
        if code in languages.split():
            cells = (cell.split() for cell in row.split("; "))
            return {name: tuple(_numbers(ranges)) for name, *ranges in cells}
    return {}


def _numbers(ranges: list[str]) -> list[str]:
    numbers: list[str] = []
    for part in ranges:
        first, _, last = part.partition("-")
        numbers += map(str, range(int(first), int(last) + 1)) if last else [first]
    return numbers


def sample_number(
    source: str, source_category: str, target: str, target_category: str, *, is_ordinal: bool
) -> str:
    """Chooses a number that belongs to both categories; "" if there is none.

    If no value fits both, the target category wins: the sentence must have that form.
    """
    ours, theirs = (
        (plural_samples(code, is_ordinal=is_ordinal) or plural_samples("en", is_ordinal=is_ordinal))
        for code in (source, target)
    )
    own = ours.get(source_category, ())
    wanted = theirs.get(target_category, ())
    both = [number for number in wanted if number in own]
    return next((number for number in (*both, *wanted, *own) if number != "0"), "")
