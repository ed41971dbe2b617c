"""Plural forms of gettext: how many a language has, and which form a number takes.

The rules come from GNU gettext or, for other languages, from the translate toolkit; the tests
compare them with both.
"""

from tformer_cli.text.languages import main_code

_FEW_OR_MANY = "n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2"
_RULES = {
    "1; plural=0": "ay bo dz id ja jbo jv km ko lo ms my sah su th vi wo yo yue zh",
    "2; plural=(n != 1)": (
        "af an ast az bg brx ca ce da de doi el en eo es et eu fi fo fur fy gl ha he hne hu ia it "
        "ka kk kl kok ks ku ky lb mai ml mn mni nah nap nb ne nl nn no or pap pms ps pt rm rw sat "
        "scn sco sd se so sq st sv sw ta te tk tr ug ur uz ve"
    ),
    "2; plural=(n > 1)": (
        "ach ak am arn as bn fa ff fil fr gu gun hi hy kab ln mfe mg mi mr nso oc pa pt_br si ti "
        "tl wa zu"
    ),
    "2; plural=(n%10!=1 || n%100==11)": "is",
    "2; plural=(n==1 || n%10==1 ? 0 : 1)": "mk",
    f"3; plural=(n%10==1 && n%100!=11 ? 0 : {_FEW_OR_MANY})": "be bs hr me ru sr uk",
    f"3; plural=(n==1 ? 0 : {_FEW_OR_MANY})": "csb pl szl",
    "3; plural=(n==1) ? 0 : (n>=2 && n<=4) ? 1 : 2": "cs sk",
    "3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && (n%100<10 || n%100>=20) ? 1 : 2)": "lt",
    "3; plural=(n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2)": "lv",
    "3; plural=n==1 ? 0 : (n==0 || (n%100 > 0 && n%100 < 20)) ? 1 : 2": "ro",
    "3; plural=n==1 ? 0 : n==2 ? 1 : 2": "ga sa",
    "4; plural=(n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3)": "sl",
    "4; plural=(n==1 || n==11) ? 0 : (n==2 || n==12) ? 1 : (n > 2 && n < 20) ? 2 : 3": "gd",
    (
        "4; plural=(n==1 ? 0 : n==0 || (n%100>1 && n%100<11) ? 1 : (n%100>10 && n%100<20) ? 2 : 3)"
    ): "mt",
    "5; plural=(n==1 ? 1 : n==2 ? 2 : n==3 ? 3 : n==6 ? 4 : 0)": "cy",
    (
        "6; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5"
    ): "ar",
}
PLURAL_FORMS = {
    code: f"nplurals={rule};" for rule, codes in _RULES.items() for code in codes.split()
}


def plural_forms(label: str) -> str:
    """Returns the value of the header field Plural-Forms; empty for an unknown language."""
    code = label.lower().replace("-", "_")
    main = code.partition("_")[0]
    return next(
        (PLURAL_FORMS[name] for name in (code, main, main_code(main)) if name in PLURAL_FORMS), ""
    )
