"""The adjectives: ``english french`` with the nouns they fit, ordered from frequent to rare.

The French forms are masculine, feminine, masculine before a vowel (``beau/belle/bel``); what is
left out follows the rules. ``ANIMATE`` adjectives describe only people and animals, the classes of
``THINGS`` only places and things; this is what decides what *it* stands for.
``-`` marks a reason not to do something, ``+`` a reason to do it.
"""

ANIMATE = """
    tired fatigué -; hungry affamé +; curious curieux +; scared effrayé -; sick malade -;
    thirsty assoiffé +; brave courageux +; lazy paresseux -; nervous nerveux -; weak faible -;
    furious furieux +; intelligent intelligent +; shy timide -; patient patient +;
    impatient impatient +; worried inquiet -; injured blessé -; jealous jaloux +;
    stubborn têtu +; calm calme +; cautious prudent -; clumsy maladroit -; sleepy somnolent -;
    strong fort/forte +; bold audacieux +; anxious anxieux -; exhausted épuisé -; greedy gourmand +;
    fearful peureux -; distracted distrait -
"""
HUMAN_ONLY = """
    rich riche; famous célèbre; polite poli; honest honnête; generous généreux; poor pauvre;
    serious sérieux; funny drôle; kind gentil/gentille; proud fier; talented doué; lonely solitaire;
    elegant élégant
"""
BEFORE_NOUN = """
    big grand; small petit; old vieux/vieille/vieil; beautiful beau/belle/bel; good bon;
    young jeune; new nouveau/nouvelle/nouvel; pretty joli; bad mauvais; huge énorme
"""
BEFORE_NOUN_TAGS = {
    "big": "place animal thing vehicle",
    "small": "place animal thing",
    "old": "place animal human thing text",
    "beautiful": "place animal human thing text song show sky",
    "good": "food drink text show idea person",
    "young": "human animal",
    "new": "building thing clothes text show idea",
    "pretty": "place thing woman_ song",
    "bad": "food text show idea",
    "huge": "place animal vehicle",
}
COLORS = """
    red rouge; white blanc/blanche; black noir; blue bleu; green vert; yellow jaune;
    grey gris; brown marron/marron/marron/=; pink rose; purple violet/violette
"""
NATIONALITIES = """
    French français; English anglais; Italian italien; German allemand; Spanish espagnol;
    American américain; Japanese japonais; Chinese chinois; Canadian canadien; Russian russe;
    Portuguese portugais; Greek grec/grecque; Swedish suédois; Turkish turc/turque
"""
ABSOLUTE = frozenset({
    "broken", "torn", "flooded", "empty", "deserted", "burnt", "rotten", "full", "huge",
    "delicious",    "exhausted", "furious", "injured", "public", "round", "polluted", "useless",
})  # fmt: skip
"""Adjectives without degrees: no *too broken* and no *huger*."""
THINGS = {
    "way": "wide large -; long long/longue -; narrow étroit -; dangerous dangereux -; "
    "quiet tranquille +; noisy bruyant -; sunny ensoleillé +",
    "open_air": "muddy boueux -; flooded inondé -; crowded bondé -; dark sombre -; "
    "slippery glissant -; deserted désert +",
    "water_way": "deep profond -; icy glacé -; polluted pollué -",
    "climbable": "high haut -; steep escarpé -; slippery glissant -; dangerous dangereux -",
    "room_": "dirty sale -; noisy bruyant -; dark sombre -; expensive cher -; cold froid -; "
    "clean propre +; empty vide -; modern moderne +; comfortable confortable +; "
    "famous célèbre +; public public/publique +",
    "dish": "salty salé -; spicy épicé -; burnt brûlé -",
    "crop": "ripe mûr +; juicy juteux +; sour acide -",
    "food": "rotten pourri -; delicious délicieux +; cold froid -; hot chaud -; "
    "fresh frais/fraîche +; sweet sucré +; bitter amer -",
    "drink": "hot chaud -; cold froid -; bitter amer -; fresh frais/fraîche +; sweet sucré +",
    "container": "full plein -; empty vide -",
    "clothes": "warm chaud +; elegant élégant +; tight serré -; torn déchiré -",
    "portable": "heavy lourd -; expensive cher -; useful utile +; broken cassé -; "
    "fragile fragile -; light léger +; dirty sale -; precious précieux +; "
    "useless inutile -; wet mouillé -; round rond +; rare rare +; ugly laid -",
    "text": "boring ennuyeux -; long long/longue -; interesting intéressant +; "
    "difficult difficile -; short court +; easy facile +; famous célèbre +",
    "idea": "difficult difficile -; important important +; strange étrange +; "
    "simple simple +; complicated compliqué -; obvious évident +",
    "song": "sad triste -; famous célèbre +; long long/longue -; joyful joyeux +",
    "show": "boring ennuyeux -; interesting intéressant +; long long/longue -; violent violent -",
    "vehicle": "slow lent -; fast rapide +; expensive cher -; dangerous dangereux -; "
    "modern moderne +; noisy bruyant -; comfortable confortable +; full plein -",
    "fixture": "heavy lourd -; dirty sale -; expensive cher -; broken cassé -; "
    "solid solide +; dusty poussiéreux -; ugly laid -",
    "sky": "bright brillant +",
}
"""A noun takes the adjectives of each of its classes in this order."""
