"""The verbs: ``english | french | subjects | objects``, each group ordered from frequent to rare.

English may carry a particle (*look for*), French a preposition of the object (*parler à*), ``se``
for a reflexive verb; ``*`` marks a verb with *être* and ``~`` a state, whose English past is a
French imperfect. Subjects and objects are tags of nouns; several are alternatives.
"""

TRANSITIVE = """
    cross|traverser|human animal vehicle|way
    see|voir|human animal|human animal place thing
    eat|manger|human animal|food
    find|trouver|human animal|portable food animal
    buy|acheter|human|portable food vehicle clothes fixture
    love|adorer~|human|human animal drink food song show
    avoid|éviter|human animal vehicle|way animal
    read|lire|human|text
    drink|boire|human animal|drink
    open|ouvrir|human|openable
    look for|chercher|human animal|portable human animal food
    leave|quitter|human animal|building room_ town
    enter|entrer dans*|human animal|building room_ open_air
    help|aider|human|human animal
    watch|regarder|human animal|human animal show sky
    follow|suivre|human animal|human animal
    close|fermer|human|openable
    carry|porter|human animal|portable
    chase|poursuivre|animal|animal human
    know|connaître~|human|human town building song tale
    lose|perdre|human|portable clothes
    write|écrire|human|written
    sell|vendre|human|portable food vehicle building animal
    visit|visiter|human|building town
    break|casser|human animal|portable fixture machine
    clean|nettoyer|human|room_ vehicle fixture
    hear|entendre|human animal|human animal song vehicle
    choose|choisir|human|portable food clothes vehicle show
    climb|escalader|human animal|climbable
    catch|attraper|human hunter_|animal human
    wash|laver|human|vehicle clothes animal container
    wait for|attendre|human|human vehicle
    build|construire|human|buildable
    repair|réparer|human|machine vehicle fixture
    touch|toucher|human animal|thing animal
    hide|cacher|human animal|portable food
    understand|comprendre|human|text idea human
    listen to|écouter|human|human song
    push|pousser|human animal|vehicle fixture human
    steal|voler|human|portable food vehicle
    prepare|préparer|human|food drink
    paint|peindre|human|building fixture place human animal
    learn|apprendre|human|learned
    wear|porter|human|clothes
    cut|couper|human|food plant
    drive|conduire|human|vehicle
    bite|mordre|animal|human animal
    solve|résoudre|human|solvable
    fill|remplir|human|container
    pull|tirer|human animal|vehicle
    finish|finir|human|written
    forget|oublier|human|text idea human portable
    feed|nourrir|human|animal human
    invite|inviter|human|human
    explore|explorer|human animal|place
    destroy|détruire|human|building vehicle
    admire|admirer~|human|human show sky building
    hate|détester~|human|human animal food drink show
    own|posséder~|human|vehicle building animal portable
    protect|protéger|human animal|human animal
    discover|découvrir|human animal|place idea
    throw|lancer|human|portable
    greet|saluer|human|human
    save|sauver|human|human animal
    attack|attaquer|animal|human animal
    borrow|emprunter|human|portable vehicle text
    taste|goûter|human|food drink
    bury|enterrer|human animal|portable food
    photograph|photographier|human|human animal place vehicle
    recognize|reconnaître|human animal|human place
    thank|remercier|human|human
    count|compter|human|animal portable
    smell|sentir|human animal|food
    abandon|abandonner|human|vehicle animal portable
"""
PREPOSITIONAL = """
    talk to|parler à|human|human animal
    play|jouer de|human|instrument
    answer|répondre à|human|human
    obey|obéir à|human animal|human
    dream of|rêver de|human|animal human place vehicle
    think of|penser à~|human|human idea
    smile at|sourire à|human|human
    look like|ressembler à~|human|human animal
    climb onto|monter sur*|human animal|climbable fixture
    fall into|tomber dans*|human animal vehicle|water_way
    believe in|croire à~|human|idea
    dance with|danser avec|human|human
    work with|travailler avec|human|human
"""
INTRANSITIVE = """
    sleep|dormir|human animal
    arrive|arriver*|human animal vehicle
    run|courir|human animal
    sing|chanter|human
    play|jouer|human animal
    work|travailler|human
    wait|attendre|human animal
    swim|nager|human animal
    fall|tomber*|human animal
    come back|revenir*|human animal vehicle
    rest|se reposer|human animal
    dance|danser|human
    cry|pleurer|human
    laugh|rire|human
    bark|aboyer|barker
    leave|partir*|human animal vehicle
    stop|s' arrêter|human animal vehicle
    walk|marcher|human animal
    jump|sauter|human animal
    fly|voler|flier
    wake up|se réveiller|human animal
    go out|sortir*|human
    hide|se cacher|human animal
    die|mourir*|human animal
    get up|se lever|human
    smile|sourire|human
    hurry|se dépêcher|human
    disappear|disparaître|human animal vehicle portable
    travel|voyager|human
    stay|rester*|human animal
    shine|briller|sky
    escape|s' enfuir|human animal
    sit down|s' asseoir|human
    scream|crier|human
    get lost|se perdre|human animal
"""
DITRANSITIVE = """
    give|donner|portable food clothes
    show|montrer|portable text animal
    send|envoyer|written portable
    offer|offrir|portable food clothes
    lend|prêter|vehicle portable text
    bring|apporter|portable food drink
    sell|vendre|animal vehicle portable food
    tell|raconter|tale
    explain|expliquer|idea learned
    promise|promettre|portable vehicle animal
    return|rendre|portable text
"""
OPINION = """
    think|penser~; know|savoir~; say|dire; hope|espérer~; believe|croire~
"""
"""Verbs with a *that* clause; *believe* is *croire*."""
CONTROL = """
    want|vouloir~|; try|essayer|de; decide|décider|de; refuse|refuser|de; start|commencer|à;
    hope|espérer~|; manage|réussir|à; forget|oublier|de; love|adorer~|; learn|apprendre|à;
    promise|promettre|de; hesitate|hésiter|à
"""
"""Verbs with an infinitive: English *to*, French nothing, *de* or *à*."""
