"""Names, countries, adverbs, times, numbers, determiners and prepositions."""

NAMES = """
    Mary Marie f; Paul Paul m; Peter Pierre m; Julia Julie f; John Jean m; Sophie Sophie f;
    Anna Anne f; Louis Louis m; Alice Alice f; Mark Marc m; Lucy Lucie f; Henry Henri m;
    Claire Claire f; Thomas Thomas m; Emma Emma f; Andrew André m; Helen Hélène f; Hugo Hugo m;
    Charlotte Charlotte f; Oscar Oscar m
"""
COUNTRIES = """
    France|France|f; England|Angleterre|f; Italy|Italie|f; Germany|Allemagne|f; Spain|Espagne|f;
    Japan|Japon|m; Canada|Canada|m; China|Chine|f; Russia|Russie|f; Portugal|Portugal|m;
    Greece|Grèce|f; Brazil|Brésil|m; Morocco|Maroc|m; Sweden|Suède|f; Mexico|Mexique|m
"""
CITIES = "Paris|Paris; London|Londres; Rome|Rome; Berlin|Berlin; Lisbon|Lisbonne; Geneva|Genève"
PAST_TIMES = """
    yesterday|hier; last night|hier soir|0-0 1-1;
    last week|la semaine dernière|0-2 1-0 1-1; last year|l' année dernière|0-2 1-0 1-1;
    this morning|ce matin|0-0 1-1; on Monday|lundi; on Sunday|dimanche;
    last month|le mois dernier|0-2 1-0 1-1;
    a long time ago|il y a longtemps; two days ago|il y a deux jours|0-3 1-4 2-0 2-1 2-2;
    last summer|l' été dernier|0-2 1-0 1-1
"""
PRESENT_TIMES = """
    every day|tous les jours|0-0 0-1 1-2; today|aujourd'hui; every morning|chaque matin|0-0 1-1;
    now|maintenant;
    every evening|chaque soir|0-0 1-1; in winter|en hiver|0-0 1-1; in summer|en été|0-0 1-1;
    every week|chaque semaine|0-0 1-1;
    in spring|au printemps|0-0 1-1
"""
FUTURE_TIMES = """
    tomorrow|demain; next week|la semaine prochaine|0-2 1-0 1-1; tonight|ce soir; soon|bientôt;
    next year|l' année prochaine|0-2 1-0 1-1; on Saturday|samedi;
    tomorrow morning|demain matin|0-0 1-1;
    next month|le mois prochain|0-2 1-0 1-1; on Friday|vendredi;
    next summer|l' été prochain|0-2 1-0 1-1
"""
STATE_TIMES = """
    yesterday|hier; that day|ce jour-là|0-0 1-1; last year|l' année dernière|0-2 1-0 1-1;
    at that time|à cette époque|0-0 1-1 2-2
"""
MANNER = """
    slowly|lentement; quickly|rapidement; quietly|tranquillement; together|ensemble;
    gently|doucement; well|bien; badly|mal; noisily|bruyamment; carefully|prudemment
"""
FREQUENCY = "often|souvent; always|toujours; never|jamais; sometimes|parfois; rarely|rarement"
DEGREES = "very|très; too|trop; really|vraiment; rather|plutôt; extremely|extrêmement; quite|assez"
NUMBERS = """
    two|deux; three|trois; four|quatre;
    five|cinq; six|six; ten|dix; seven|sept; eight|huit; nine|neuf;
    twelve|douze; eleven|onze; fifteen|quinze; twenty|vingt; thirteen|treize; sixteen|seize;
    thirty|trente; forty|quarante; fourteen|quatorze; fifty|cinquante; seventeen|dix-sept;
    twenty-two|vingt-deux; sixty|soixante; eighteen|dix-huit; nineteen|dix-neuf;
    twenty-five|vingt-cinq; thirty-three|trente-trois; seventy|soixante-dix; eighty|quatre-vingts;
    ninety|quatre-vingt-dix
"""
