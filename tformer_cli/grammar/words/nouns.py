"""The nouns: ``english french gender``, entries divided by ``;``, one group a meaning class.

Irregular plurals stand after a slash. A group is ordered from frequent to rare (Zipf). Its tags
say what verbs and adjectives may go with the nouns; ``+tag`` adds one to a single noun and
``-s`` marks a noun used in the singular only (a mass noun).
"""

NOUNS = {
    "human man_ person": """
        man/men homme m; boy garçon m; teacher professeur m +owned; father père m +owned;
        king roi m;
        doctor médecin m +owned; brother frère m +owned; child/children enfant m +owned;
        friend ami m +owned; neighbor voisin m +owned;
        farmer fermier m; student étudiant m +owned; uncle oncle m +owned; baker boulanger m;
        son fils m +owned;
        soldier soldat m; grandfather grand-père/grands-pères m +owned; cousin cousin m +owned;
        prince prince m;
        painter peintre m; writer écrivain m; husband mari m +owned; judge juge m;
        lawyer avocat m +owned;
        tourist touriste m; guest invité m +owned; pupil élève m +owned;
        postman/postmen facteur m;
        captain capitaine m; sailor marin m; hero/heroes héros m; thief/thieves voleur m;
        waiter serveur m;
        policeman/policemen policier m; fireman/firemen pompier m; butcher boucher m;
        gardener jardinier m; dancer danseur m; knight chevalier m; shepherd berger m;
        workman/workmen ouvrier m; merchant marchand m; hunter chasseur m; driver chauffeur m;
        engineer ingénieur m; actor acteur m""",
    "human woman_ person": """
        woman/women femme f; girl fille f; mother mère f +owned; sister sœur f +owned;
        queen reine f;
        lady dame f; nurse infirmière f +owned; aunt tante f +owned; daughter fille f +owned;
        princess princesse f;
        grandmother grand-mère/grands-mères f +owned; actress actrice f; waitress serveuse f;
        witch sorcière f; singer chanteuse f; wife/wives femme f +owned;
        nun religieuse f; hairdresser coiffeuse f +owned""",
    "animal": """
        animal animal m +wild; dog chien m +barker; cat chat m +hunter_; horse cheval m;
        bird oiseau m +flier;
        cow vache f; mouse/mice souris f; rabbit lapin m; lion lion m +hunter_; lamb agneau m;
        fox renard m +hunter_; bear ours m +hunter_; goat chèvre f; hen poule f;
        wolf/wolves loup m +hunter_;
        monkey singe m; elephant éléphant m; duck canard m +flier; turtle tortue f;
        frog grenouille f; pig cochon m; tiger tigre m +hunter_; snake serpent m +hunter_;
        donkey âne m;
        squirrel écureuil m; giraffe girafe f; spider araignée f; owl hibou/hiboux m +flier;
        ant fourmi f; bee abeille f +flier; butterfly papillon m +flier; goose/geese oie f +flier;
        puppy chiot m +barker; kitten chaton m; eagle aigle m +flier; hedgehog hérisson m;
        zebra zèbre m; camel chameau m; hamster hamster m; swan cygne m +flier;
        panther panthère f +hunter_;
        beaver castor m; wasp guêpe f +flier; bull taureau m; fly mouche f +flier""",
    "place way open_air": """
        street rue f; road route f; garden jardin m +owned; bridge pont m +bridge; field champ m;
        square place f; forest forêt f; park parc m; valley vallée f; desert désert m;
        path chemin m; village village m +town +owned; city ville f +town +owned;
        meadow prairie f; yard cour f +owned;
        avenue avenue f; tunnel tunnel m; highway autoroute f; marsh marais m""",
    "place way water_way": """
        river rivière f; lake lac m; sea mer f; ocean océan m; stream ruisseau m""",
    "place climbable": """
        mountain montagne f; hill colline f; wall mur m +buildable +owned; tree arbre m +plant;
        tower tour f +buildable; roof toit m +buildable +owned; rock rocher m; cliff falaise f""",
    "place building buildable room_": """
        house maison f; school école f; church église f; hotel hôtel m; hospital hôpital m;
        museum musée m; shop magasin m; station gare f; castle château m;
        farm ferme f; restaurant restaurant m; library bibliothèque f; bank banque f;
        factory usine f; theater théâtre m; palace palais m; bakery boulangerie f;
        stable écurie f;
        barn grange f; pharmacy pharmacie f; hut cabane f""",
    "place room_": """
        kitchen cuisine f; room pièce f; office bureau m; market marché m; cellar cave f;
        bedroom chambre f; classroom classe f; attic grenier m; cave grotte f""",
    "food thing": """
        apple pomme f +crop; cake gâteau m +dish; egg œuf m +dish; orange orange f +crop;
        sandwich sandwich m +dish;
        pear poire f +crop; carrot carotte f +crop; tomato/tomatoes tomate f +crop;
        cookie biscuit m;
        strawberry fraise f +crop; lemon citron m +crop; cherry cerise f +crop;
        banana banane f +crop;
        potato/potatoes patate f +crop; salad salade f +dish; peach pêche f +crop;
        onion oignon m +crop;
        pancake crêpe f +dish; mushroom champignon m; walnut noix f +crop; melon melon m +crop""",
    "food thing mass": """
        bread pain m; cheese fromage m +dish; meat viande f +dish; soup soupe f +dish;
        butter beurre m;
        chocolate chocolat m; rice riz m +dish; jam confiture f; honey miel m; sugar sucre m;
        salt sel m""",
    "drink mass": """
        water eau f; milk lait m; coffee café m; tea thé m; wine vin m; juice jus m;
        beer bière f""",
    "thing portable": """
        box boîte f +openable +container; bag sac m +openable +container; gift cadeau m;
        basket panier m +container;
        ball ballon m +toy; flower fleur f +plant; key clé f; chair chaise f;
        bottle bouteille f +container;
        table table f; lamp lampe f; phone téléphone m; cup tasse f +container;
        knife/knives couteau m;
        glass verre m +container; suitcase valise f +openable +container;
        umbrella parapluie m +openable;
        plate assiette f; clock horloge f +machine; pen stylo m; toy jouet m +toy;
        doll poupée f +toy;
        spoon cuillère f; fork fourchette f; mirror miroir m; pencil crayon m; stone pierre f;
        ring bague f; blanket couverture f; pillow oreiller m; bucket seau m +container;
        hammer marteau m; axe hache f; rope corde f; candle bougie f; coin pièce f; photo photo f;
        ticket billet m; bell cloche f;
        camera caméra f +machine; computer ordinateur m +machine; drum tambour m +instrument;
        guitar guitare f +instrument; violin violon m +instrument; flute flûte f +instrument""",
    "thing portable clothes": """
        hat chapeau m; coat manteau m; shirt chemise f; dress robe f; shoe chaussure f;
        jacket veste f; skirt jupe f; scarf/scarves écharpe f; glove gant m; boot botte f;
        sweater pull m;
        watch montre f +machine""",
    "thing text portable": """
        book livre m +openable +written; letter lettre f +openable +written;
        newspaper journal m +openable; map carte f;
        dictionary dictionnaire m; magazine magazine m""",
    "text tale": """
        story histoire f +written; legend légende f; joke blague f; tale conte m +written""",
    "text": """
        poem poème m +written +learned; sentence phrase f +written +learned;
        lesson leçon f +learned;
        message message m +written;
        novel roman m +written; word mot m +written +learned""",
    "idea": """
        question question f +solvable; problem problème m +solvable; answer réponse f;
        rule règle f; idea idée f;
        secret secret m; plan projet m; mistake erreur f; danger danger m""",
    "song": """
        song chanson f +written +learned; tune mélodie f +learned""",
    "show": """
        movie film m; play pièce f; game jeu m; match match m; exhibition exposition f""",
    "thing vehicle": """
        car voiture f; train train m +rail; boat bateau m; bike vélo m; bus bus m; truck camion m;
        plane avion m +flier; cart charrette f; taxi taxi m; ship navire m; tractor tracteur m""",
    "thing fixture openable": """
        door porte f; window fenêtre f; gate portail m; drawer tiroir m; cupboard placard m""",
    "thing fixture": """
        bed lit m; piano piano m +instrument; machine machine f +machine; statue statue f;
        carpet tapis m; bench banc m; sofa canapé m; desk bureau m; painting tableau m;
        flag drapeau m;
        fence clôture f +buildable; engine moteur m +machine""",
    "sky": """
        sun soleil m -s; moon lune f -s; star étoile f; sky ciel m -s""",
}
