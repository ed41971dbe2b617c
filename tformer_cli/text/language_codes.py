"""Labels of languages, which models and other programs write in ways of their own."""

from tformer_cli.text.languages import main_code

_CODES = (
    "af afr, am amh, ar ara arb, as asm, az aze azj, be bel, bg bul, bn ben, bo bod, bs bos, ca "
    "cat, cs ces cze, cy cym wel, da dan, de deu ger, el ell gre, en eng, eo epo, es spa, et "
    "est ekk, eu eus baq, fa fas pes, fi fin, fo fao, fr fra fre, ga gle, gd gla, gl glg, gu "
    "guj, ha hau, he heb iw, hi hin, hr hrv, ht hat, hu hun, hy hye arm, id ind in, ig ibo, is isl "
    "ice, it ita, ja jpn, jv jav, ka kat geo, kk kaz, km khm, kn kan, ko kor, ku kmr kur, ky "
    "kir, lb ltz, lo lao, lt lit, lv lav lvs, mg plt mlg, mi mri, mk mkd mac, ml mal, mn mon "
    "khk, mr mar, ms msa zsm may, mt mlt, my mya bur, nb nob, ne nep npi, nl nld dut, nn nno, "
    "no nor, ny nya, oc oci, or ori ory, pa pan, pl pol, ps pus pbt, pt por, ro ron rum, ru "
    "rus, sd snd, si sin, sk slk slo, sl slv, sm smo, sn sna, so som, sq sqi als alb, sr srp, "
    "st sot, su sun, sv swe, sw swa swh, ta tam, te tel, tg tgk, th tha, tk tuk, tl tgl, tr "
    "tur, tt tat, ug uig, uk ukr, ur urd, uz uzb uzn, vi vie, xh xho, yi yid ydd ji, yo yor, zh "
    "zho chi cmn, zu zul"
)
_SHORT = {three: codes.split()[0] for codes in _CODES.split(", ") for three in codes.split()[1:]}
"""Two letters for three (ISO 639), the commonest form of a language for all of it."""


def label_of(code: str) -> str:
    """Returns the label (BCP 47) of a language that a model calls `fra_Latn`, `fr_XX` or `fr`."""
    main, *rest = code.replace("_", "-").split("-")
    short = _SHORT.get(main.lower())
    # A script matters for a language that has two; XX is not a country
    scripts = ("Hans", "Hant") if short == "zh" else ()
    kept = [
        part for part in rest if part != "XX" and (not short or len(part) != 4 or part in scripts)
    ]
    return "-".join([short or main, *kept])


def is_same_language(code: str, other: str) -> bool:
    """Tests whether two codes name one language, whatever the region or script."""
    return main_code(label_of(code)) == main_code(label_of(other))
